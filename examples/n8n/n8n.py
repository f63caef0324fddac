"""n8n with the cheapest model that works: learn from a log, ask `/v1/route` for each task, call whom it names.

    python examples/n8n/n8n.py                                  # simulated models, named so
    python examples/n8n/n8n.py --log FOLDER --workers A,B       # an outcome log of your own: its answers are replayed
    python examples/n8n/n8n.py --real                           # two models of this machine answer the tasks first
    python examples/n8n/n8n.py --real A,B                       # or any two workers, as in openai:gpt-5-mini

The log has both models' answers to the same tasks. A policy is learned from its first part, a server routes the rest,
and this script does what the flow `n8n-flow.json` does: route, call, keep the outcome. It compares with the best model
for every task, the cheap one, a random mix that costs the same, and a rule on keywords, and draws `money.svg`.
"""

import argparse
import asyncio
import json
import random
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path

import httpx2
from openai import AsyncOpenAI

from shikisha import RunFailed, Shikisha
from shikisha.core.budget import format_dollars
from shikisha.outcomes.log_reader import open_log
from shikisha.plots.money_curve import Spending, money_curve
from shikisha.testing import ReceivedChatRequest, ScriptedAnswer, chat_server

HERE = Path(__file__).parent
ENDPOINT = "http://127.0.0.1:11434/v1"
REAL = "local:smollm2-135m,local:qwen2.5-coder-0.5b"
CHEAP, BEST = "cheap", "best"
_RIGHT = 0.5
PRICES = {CHEAP: 0.2, BEST: 5.0}  # dollars per million tokens, as in shikisha.toml
# The share of right answers of the simulated models: easy tasks, hard ones.
SKILL = {CHEAP: (0.995, 0.4), BEST: (0.99, 0.97)}
KEYWORDS = re.compile(r"\b(why|how many|calculate|probability|when)\b", re.IGNORECASE)
PEOPLE = ("Ada", "Ben", "Chen", "Dora", "Emil", "Fatma", "Goran", "Hana")
MONTHS = ("January", "March", "May", "July", "September", "November")


@dataclass(frozen=True, slots=True)
class LoggedTask:
    """A task of the log, whether it is easy (None: nobody knows), and by worker (answer, right, dollars)."""

    name: str
    prompt: str
    truth: str
    easy: bool | None
    outcomes: Mapping[str, tuple[str, bool, float]]


def easy_task(drawn: random.Random) -> tuple[str, str]:
    """Return an easy task and its answer."""
    number, person, day = drawn.randint(10_000, 99_999), drawn.choice(PEOPLE), drawn.randint(1, 28)
    month = drawn.randrange(len(MONTHS))
    return drawn.choice(
        [
            (f"Give me the order number in this mail: 'Hello, {person} here, order {number} is late.'", str(number)),
            (f"Write this day as YYYY-MM-DD: {MONTHS[month]} {day}, 2026", f"2026-{2 * month + 1:02}-{day:02}"),
            (f"Who signed this note? 'Back at {day % 12 + 1}. Yours, {person}'", person),
            (f"How many digits does {number} have? Answer with a number.", "5"),
            (f"Is '{person} wants the money back for {number}' a refund request? Answer yes or no.", "yes"),
            (f"Copy only the amount: 'Paid {number} euros on {MONTHS[month]} {day} by {person}.'", str(number)),
        ]
    )


def hard_task(drawn: random.Random) -> tuple[str, str]:
    """Return a hard task and its answer."""
    one, other, person = drawn.randint(12, 98), drawn.randint(12, 98), drawn.choice(PEOPLE)
    few = other % 9 + 2
    together = str(round(60 * one * other / (one + other)))
    return drawn.choice(
        [
            (
                f"{person} plans {one} routes with {other} stops each, and {few} more. Calculate the stops in all.",
                str(one * other + few),
            ),
            (
                f"Two pumps fill a tank in {one} and {other} hours. After how many minutes is it full with both?",
                together,
            ),
            (
                (
                    f"Trains leave at {one} and {other} km/h towards each other, {one * other} km apart. "
                    "In how many minutes do they meet?"
                ),
                together,
            ),
            (
                f"A shelf of {one} books holds {few} by {person}. Reason out how many pairs have none of these.",
                str((one - few) * (one - few - 1) // 2),
            ),
        ]
    )


def drawn_share(*parts: str) -> float:
    """Return a number in [0, 1) that depends on these texts only."""
    return int(sha256("|".join(parts).encode()).hexdigest()[:8], 16) / 2**32


def simulated_log(count: int, seed: int, easy_share: float) -> list[LoggedTask]:
    """Return different tasks with what the simulated models answer."""
    drawn, found = random.Random(seed), dict[str, LoggedTask]()  # noqa: S311  tasks, no secrets
    while len(found) < count:
        easy = drawn.random() < easy_share
        prompt, truth = (easy_task if easy else hard_task)(drawn)
        if prompt in found:
            continue
        outcomes = {}
        for worker, skill in SKILL.items():
            right = drawn_share(worker, prompt) < skill[0 if easy else 1]
            dollars = PRICES[worker] * (len(prompt) / 4 + 20) / 1e6
            outcomes[worker] = (truth if right else f"{truth}0", right, dollars)
        found[prompt] = LoggedTask(f"{'easy' if easy else 'hard'}/{len(found)}", prompt, truth, easy, outcomes)
    return list(found.values())


def recorded_log(folder: Path, cheap: str, best: str, count: int, seed: int) -> list[LoggedTask]:
    """Return tasks of an outcome log that both workers answered, in a random order."""
    log = open_log(folder, (cheap, best))
    found = []
    for name in log.task_ids:
        cells = {CHEAP: log.find(name, cheap), BEST: log.find(name, best)}
        outcomes = {
            worker: (cell.answer or "", cell.score >= _RIGHT, cell.dollars or 0.0)
            for worker, cell in cells.items()
            if cell is not None and cell.score is not None
        }
        if len(outcomes) == len(cells):
            found.append(LoggedTask(name, log.task(name).prompt, "", None, outcomes))
    random.Random(seed).shuffle(found)  # noqa: S311  an order, no secret
    return found[:count]


def real_log(tasks: Sequence[LoggedTask], workers: Mapping[str, str]) -> list[LoggedTask]:
    """Return the tasks with what real workers answer, at the prices above; no answer is a wrong one."""
    found = []
    with ExitStack() as stack:
        pools = {
            name: stack.enter_context(
                Shikisha([{"name": name, "spec": spec, "temperature": 0.0, "max_output_tokens": 40, "timeout": 300}])
            )
            for name, spec in workers.items()
        }
        for place, task in enumerate(tasks):
            outcomes = {}
            for name, pool in pools.items():
                try:
                    answer = pool.run(task.prompt).answer
                except RunFailed:
                    answer = ""
                right = re.search(rf"(?<!\w){re.escape(task.truth)}(?!\w)", answer.replace(",", ""), re.IGNORECASE)
                dollars = PRICES[name] * (len(task.prompt) + len(answer)) / 4 / 1e6
                outcomes[name] = (answer, right is not None, dollars)
            found.append(replace(task, outcomes=outcomes))
            print(f"\r{place + 1} of {len(tasks)} tasks answered", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return found


def write_log(folder: Path, tasks: Sequence[LoggedTask]) -> None:
    """Write an outcome log, as `shikisha learn` reads it."""
    folder.mkdir(parents=True, exist_ok=True)
    asked = [{"task_id": task.name, "domain": "n8n", "prompt": task.prompt} for task in tasks]
    rows = [
        {"task_id": task.name, "worker": worker, "score": float(right), "cost_usd": dollars}
        for task in tasks
        for worker, (_, right, dollars) in task.outcomes.items()
    ]
    (folder / "tasks.jsonl").write_text("".join(json.dumps(row) + "\n" for row in asked))
    (folder / "outcomes.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


async def learn(folder: Path) -> None:
    """Learn a policy from the log, as a person would."""
    command = (sys.executable, "-m", "shikisha", "learn", "log", "--out", "our.policy")
    process = await asyncio.create_subprocess_exec(
        *command, cwd=folder, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    said = (await process.communicate())[0].decode()
    if process.returncode:
        sys.exit(said)


async def route_and_call(folder: Path, tasks: Sequence[LoggedTask], url: str) -> list[tuple[str, str]]:
    """Do what the flow does, for each task: ask who is to answer, call that model; return (worker, answer)."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "shikisha", "serve", "--json", "--port", "0", "--journal", "routes.db"),
        cwd=folder,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    came = []
    try:
        assert process.stdout is not None  # noqa: S101  it is a pipe
        told = json.loads(await process.stdout.readline())
        if "key" not in told:
            sys.exit(told["error"]["what"])
        headers = {"Authorization": f"Bearer {told['key']}"}
        async with (
            httpx2.AsyncClient(base_url=told["url"], headers=headers, timeout=60) as server,
            AsyncOpenAI(base_url=url, api_key="none", max_retries=0) as models,
        ):
            for task in tasks:
                decided = (await server.post("/v1/route", json={"prompt": task.prompt})).raise_for_status().json()
                answer = await models.chat.completions.create(
                    model=decided["endpoint_model"], messages=[{"role": "user", "content": task.prompt}]
                )
                came.append((decided["worker"], answer.choices[0].message.content or ""))
    finally:
        process.terminate()
        await process.wait()
    return came


def playing(tasks: Sequence[LoggedTask]) -> Callable[[ReceivedChatRequest], ScriptedAnswer]:
    """Return an endpoint that answers as the log has it."""
    known = {task.prompt: task for task in tasks}

    def answer(asked: ReceivedChatRequest) -> ScriptedAnswer:
        worker = asked.model.removeprefix("simulated-").removeprefix("recorded-")
        return ScriptedAnswer(text=known[asked.last].outcomes[worker][0] or "no answer")

    return answer


@dataclass(frozen=True, slots=True)
class Compared:
    """A way of working: whether each answer was right, and the dollars of each."""

    right: Sequence[bool]
    dollars: Sequence[float]

    @property
    def accuracy(self) -> float:
        """The share of right answers."""
        return sum(self.right) / len(self.right)


def by_rule(tasks: Sequence[LoggedTask], choose: Callable[[LoggedTask], str]) -> Compared:
    """Return what a rule comes to by the log."""
    outcomes = [task.outcomes[choose(task)] for task in tasks]
    return Compared([right for _, right, _ in outcomes], [dollars for _, _, dollars in outcomes])


def compare(tasks: Sequence[LoggedTask], chosen: Mapping[str, str], seed: int) -> dict[str, Compared]:
    """Return ours and the controls, on the same tasks."""
    drawn = random.Random(seed)  # noqa: S311  no secret
    share = sum(worker == CHEAP for worker in chosen.values()) / len(chosen)
    return {
        "the policy, through /v1/route": by_rule(tasks, lambda task: chosen[task.name]),
        "always the best": by_rule(tasks, lambda _: BEST),
        "always the cheap one": by_rule(tasks, lambda _: CHEAP),
        "a random mix of the same share": by_rule(tasks, lambda _: CHEAP if drawn.random() < share else BEST),
        "the best where a keyword says so": by_rule(
            tasks, lambda task: BEST if KEYWORDS.search(task.prompt) else CHEAP
        ),
    }


async def main(arguments: Sequence[str] | None = None) -> None:
    """Learn, route, compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=1200, help="Tasks in all; half of them to learn from.")
    parser.add_argument("--seed", type=int, default=1, help="The seed of the tasks and of the random mix.")
    parser.add_argument("--easy", type=float, default=0.9, help="The share of easy tasks, where they are simulated.")
    parser.add_argument("--log", type=Path, help="The folder of an outcome log, in place of the simulated one.")
    parser.add_argument("--workers", default="", help="With --log: the cheap worker and the best one, as in A,B.")
    parser.add_argument("--real", nargs="?", const=REAL, help=f"Ask two real workers, the cheap one first [{REAL}].")
    parser.add_argument("--folder", type=Path, default=Path("n8n-example"), help="Where to write.")
    given = parser.parse_args(arguments)
    if given.log is not None:
        cheap, comma, best = given.workers.partition(",")
        if not comma:
            sys.exit("--workers: expected two workers of the log, the cheap one first, as in A,B")
        tasks = recorded_log(given.log, cheap, best, given.tasks, given.seed)
    else:
        tasks = simulated_log(given.tasks, given.seed, given.easy)
    if given.real is not None:
        # Threads of their own, since a facade runs a loop of its own.
        tasks = await asyncio.to_thread(real_log, tasks, dict(zip((CHEAP, BEST), given.real.split(","), strict=True)))
    half = len(tasks) // 2
    write_log(given.folder / "log", tasks[:half])
    async with AsyncExitStack() as stack:
        url = await stack.enter_async_context(chat_server(playing(tasks)))
        settings = (HERE / "shikisha.toml").read_text().replace(ENDPOINT, url)
        if given.real:  # nobody knows beforehand what real models' policy may cost
            settings = settings.replace("?max_cost=20%", "")
        names, kind = iter((CHEAP, BEST)), "recorded" if given.log or given.real else "simulated"
        settings = re.sub(r'^model = ".*"', lambda _: f'model = "{kind}-{next(names)}"', settings, flags=re.M)
        (given.folder / "shikisha.toml").write_text(settings)
        await learn(given.folder)
        held = tasks[half:]
        came = await route_and_call(given.folder, held, url)
    show(given, held, {task.name: worker for task, (worker, _) in zip(held, came, strict=True)})


def show(given: argparse.Namespace, held: Sequence[LoggedTask], chosen: Mapping[str, str]) -> None:
    """Print what was reached, and draw it."""
    compared = compare(held, chosen, given.seed)
    best = compared["always the best"]
    easy = [task for task in held if task.easy]
    figures = {
        name: {
            "accuracy": each.accuracy,
            "quality": each.accuracy / best.accuracy,
            "cost": sum(each.dollars) / sum(best.dollars),
        }
        for name, each in compared.items()
    }
    for name, figure in figures.items():
        right, cost = f"{figure['accuracy']:.1%} right", f"{figure['cost']:.1%} of its cost"
        print(f"{name:34} {right}, {figure['quality']:.3f} of the best, {cost}")
    cheap = sum(chosen[task.name] == CHEAP for task in easy or held) / len(easy or held)
    print(f"{cheap:.1%} of the {'easy ' if easy else ''}tasks went to the cheap model")
    (given.folder / "n8n.json").write_text(json.dumps({"cheap share": cheap, "ways": figures}))
    kind = "recorded answers" if given.log else f"real: {given.real}" if given.real else "simulated models"
    lines = [Spending(name, each.dollars, f"{each.accuracy:.1%} right") for name, each in compared.items()]
    (given.folder / "money.svg").write_text(money_curve(f"{len(held)} tasks of a flow, {kind}", lines))
    print(f"{format_dollars(sum(best.dollars))} for the best model alone; written: {given.folder / 'money.svg'}")


if __name__ == "__main__":
    asyncio.run(main())
