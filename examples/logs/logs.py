"""From a LiteLLM spend log to a cheaper pool, with every command and the money that it saves; the models are simulated.

    python examples/logs/logs.py [--log 240] [--served 500] [--folder logs-example]

A local endpoint plays three models and a judge: sums are easy, products are hard for the small model. The steps are a
log, `eval grade`, `learn`, a server that explores a new model, feedback, `learn` again, and a promotion. What a step
refuses is shown like the rest. `money.svg` has the dollars spent, next to the large model for every task.
"""

import argparse
import asyncio
import json
import random
import re
import sys
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

import httpx2

from shikisha.plots.svg import even_scale, svg_path
from shikisha.testing import ReceivedChatRequest, ScriptedAnswer, chat_server

# Dollars for a million tokens, and the share of right answers to sums and to products.
MODELS = {"small": (0.2, (0.99, 0.6)), "large": (5.0, (0.98, 0.85)), "newcomer": (0.4, (0.99, 0.98))}
LOGGED = ("small", "large")
PROMPT = re.compile(r"What is (\d+) (plus|times) (\d+)\?")
SETTINGS = """
conductor = "policy:shelf"
pool = ["small", "large", "newcomer"]
"""
WORKER = """
[workers.{name}]
kind = "chat"
base_url = "{url}"
model = "simulated-{name}"
price = {{ input = {price}, output = {price} }}
"""


def truth(prompt: str) -> tuple[str, int]:
    """Return the kind of a question and its answer."""
    found = PROMPT.search(prompt)
    if found is None:
        raise ValueError("this endpoint knows sums and products only")
    one, other = int(found[1]), int(found[3])
    return found[2], one + other if found[2] == "plus" else one * other


def reply(model: str, prompt: str) -> str:
    """Return what a simulated model answers; the same each time."""
    kind, right = truth(prompt)
    drawn = int(sha256(f"{model} {PROMPT.findall(prompt)}".encode()).hexdigest()[:8], 16) / 2**32
    good = drawn < MODELS[model][1][kind == "times"]
    return f"The answer is {right if good else right + 1 + int(drawn * 97)}"


def judge(asked: ReceivedChatRequest) -> str:
    """Return the verdict of a simulated judge, which can multiply."""
    said = re.findall(r"The answer is (\d+)", asked.last)
    return f"I did the sum.\nVERDICT: {'right' if said and int(said[-1]) == truth(asked.last)[1] else 'wrong'}"


def choose(asked: ReceivedChatRequest) -> ScriptedAnswer:
    """Answer as the model that is asked."""
    name = asked.model.removeprefix("simulated-")
    whole = "\n".join(text for _, text in asked.messages)
    return ScriptedAnswer(text=judge(asked) if name == "judge" else reply(name, whole))


def questions(count: int, seed: int) -> list[str]:
    """Return different questions, half of them products."""
    drawn = random.Random(seed)  # noqa: S311  questions, no secrets
    found = dict.fromkeys(
        f"What is {drawn.randint(10, 9999)} {drawn.choice(('plus', 'times'))} {drawn.randint(10, 9999)}?"
        for _ in range(2 * count)
    )
    return list(found)[:count]


def write_spend_log(file: Path, prompts: Sequence[str]) -> None:
    """Write what LiteLLM's proxy keeps of these prompts, each sent to both models of the log."""
    rows: list[dict[str, object]] = []
    for prompt in prompts:
        for name in LOGGED:
            answer, tokens = reply(name, prompt), (30, 8)
            rows.append(
                {
                    "request_id": f"r{len(rows)}",
                    "call_type": "acompletion",
                    "model_group": name,
                    "spend": MODELS[name][0] * sum(tokens) / 1e6,
                    "prompt_tokens": tokens[0],
                    "completion_tokens": tokens[1],
                    "messages": [{"role": "user", "content": prompt}],
                    "response": {"choices": [{"message": {"role": "assistant", "content": answer}}]},
                    "request_tags": ["User-Agent: proxy", "sums" if "plus" in prompt else "products"],
                }
            )
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))


async def shikisha(folder: Path, line: str) -> str:
    """Run a command as a person would, and show what it says."""
    print(f"\n$ shikisha {line}", flush=True)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "shikisha", *line.split()),
        cwd=folder,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said = (await process.communicate())[0].decode()
    print(said.strip(), flush=True)
    return said


async def serve(folder: Path, prompts: Sequence[str], keys: list[str]) -> list[float]:
    """Serve these prompts, tell the server what was right, and return the dollars of each; `keys` keeps its key."""
    command = ["serve", "--json", "--port", "0", "--journal", "runs.db"]
    print(f"\n$ shikisha {' '.join(command)}   # {len(prompts)} requests, each followed by feedback", flush=True)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "shikisha", *command),
        cwd=folder,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    spent: list[float] = []
    try:
        assert process.stdout is not None  # noqa: S101  it is a pipe
        told = json.loads(await process.stdout.readline())
        keys += [told["key"]] if told["key"] else []  # shown once
        headers = {"Authorization": f"Bearer {keys[0]}"} if keys else {}
        async with httpx2.AsyncClient(base_url=told["url"], headers=headers, timeout=60) as client:
            for prompt in prompts:
                kind = {"x-shikisha-domain": "sums" if "plus" in prompt else "products"}
                body = {"model": "shikisha", "messages": [{"role": "user", "content": prompt}]}
                came = (await client.post("/v1/chat/completions", json=body, headers=kind)).raise_for_status()
                answer = came.json()
                text = answer["choices"][0]["message"]["content"] or ""
                right = str(truth(prompt)[1]) in re.findall(r"\d+", text)
                word = {"run": answer["id"].removeprefix("chatcmpl-"), "score": float(right)}
                (await client.post("/feedback", json=word)).raise_for_status()
                spent.append(float(came.headers["x-shikisha-cost"]))
    finally:
        process.terminate()
        await process.wait()
    return spent


def money_curve(file: Path, phases: Sequence[tuple[str, Sequence[float]]], each: float) -> None:
    """Draw the dollars spent by phase, next to the large model for every task."""
    every = [dollars for _, spent in phases for dollars in spent]
    totals = [sum(every[:place]) for place in range(len(every) + 1)]
    across = even_scale([0, len(every)], (60.0, 700.0))
    down = even_scale([0.0, each * len(every)], (300.0, 20.0))
    always = svg_path([(across(0), down(0)), (across(len(every)), down(each * len(every)))])
    ours = svg_path((across(place), down(total)) for place, total in enumerate(totals))
    marks, place = [], 0
    for name, spent in phases:
        marks.append(f'<path d="M{across(place):.1f} 20V300" stroke="#999" stroke-dasharray="3 3"/>')
        marks.append(f'<text x="{across(place) + 4:.1f}" y="316">{name}</text>')
        place += len(spent)
    end = len(every)
    labels = (
        f'<text x="{across(end) - 4:.1f}" y="{down(each * end) - 6:.1f}" text-anchor="end">large for every task</text>'
        f'<text x="{across(end) - 4:.1f}" y="{down(totals[-1]) - 6:.1f}" text-anchor="end">${totals[-1]:.4f}</text>'
    )
    file.write_text(
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 720 330" font-family="sans-serif" font-size="12" '
        'fill="#555"><title>Dollars spent, simulated models</title>'
        f'<path d="{always}" fill="none" stroke="#b55" stroke-width="2"/>'
        f'<path d="{ours}" fill="none" stroke="#27c" stroke-width="2"/>{"".join(marks)}{labels}</svg>\n'
    )


def version_in(said: str) -> str:
    """Return the version of the policy that a command wrote; empty where it wrote none."""
    found = re.search(r"\(version (\w+)\)", said)
    return found[1] if found else ""


def main() -> None:
    """Go all the way."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--log", type=int, default=240, help="Prompts in the spend log.")
    parser.add_argument("--served", type=int, default=500, help="Requests to serve in each phase.")
    parser.add_argument("--folder", type=Path, default=Path("logs-example"), help="Where to write.")
    given = parser.parse_args()
    folder: Path = given.folder
    folder.mkdir(parents=True)
    write_spend_log(folder / "spend.jsonl", questions(given.log, 1))
    asyncio.run(go(folder, given.served))


def configure(folder: Path, url: str, conductor: str) -> None:
    """Write the configuration: the models at this endpoint, and who conducts."""
    names = {**{name: price for name, (price, _) in MODELS.items()}, "judge": 1.0}
    tables = "".join(WORKER.format(name=name, url=url, price=price) for name, price in names.items())
    (folder / "shikisha.toml").write_text(SETTINGS.replace("policy:shelf", conductor) + tables)


async def go(folder: Path, served: int) -> None:
    """Take every step."""
    async with chat_server(choose) as url:
        configure(folder, url, "policy:shelf")
        await shikisha(
            folder, "import outcomes litellm spend.jsonl --column domain=request_tags --answers number --out log"
        )
        await shikisha(folder, "eval grade log --judge judge --dollars 0.5 --out graded")
        live = version_in(await shikisha(folder, "learn graded --out first.policy"))
        await shikisha(folder, "policy canary shelf first.policy")
        configure(folder, url, "policy:shelf?explore=30%")
        keys: list[str] = []
        exploring = await serve(folder, questions(served, 2), keys)
        learned = version_in(await shikisha(folder, "learn --from-journal runs.db --out second.policy"))
        phases = [("exploring", exploring)]
        if learned and learned != live:
            await shikisha(folder, "policy canary shelf second.policy --share 0.5")
            phases.append(("canary", await serve(folder, questions(served, 3), keys)))
            await shikisha(folder, "policy promote shelf --journal runs.db")
            await shikisha(folder, f"policy promote shelf {learned} --journal runs.db")
            phases.append(("afterwards", await serve(folder, questions(served // 2, 4), keys)))
        money_curve(folder / "money.svg", phases, MODELS["large"][0] * 60 / 1e6)
    print(f"\nwritten: {folder / 'money.svg'}")


if __name__ == "__main__":
    main()
