"""A researcher's own run from end to end: a model in the hub's layout, own rows, workers over HTTP, a shipped recipe.

The model has a few thousand random weights and the endpoints are doubles; every command is the one that a user types.
"""

import asyncio
import json
import re
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from threading import Event, Thread

import pytest
from chat_model import chat_model
from paths import ROOT
from typer.testing import CliRunner

from shikisha.cli import app
from shikisha.cli.exit_codes import ExitCode
from shikisha.testing import AnswerChooser, ReceivedChatRequest, ScriptedAnswer, chat_server
from shikisha_train.metrics import StepMetrics
from shikisha_train.settings import load_settings

RECIPE = ROOT / "recipes" / "conductor-0.5b.toml"
OWN = ["--set", 'model.start="tiny"', "--set", 'tasks.set="tasks.jsonl"', "--set", "spend.dollars=0.5"]
SMALL = [
    *("--steps", "2", "--set", "grpo.tasks=2", "--set", "grpo.group=4", "--set", "grpo.longest=2"),
    *("--set", "tasks.judged=2", "--set", "tasks.every=2", "--set", "model.lora=4"),
]
WORKER = """
[workers.{name}]
kind = "chat"
base_url = "{url}"
model = "{name}"
description = "{card}"
{price}
"""


def adds(asked: ReceivedChatRequest) -> ScriptedAnswer:
    """A model that can add."""
    found = re.search(r"What is (\d+) plus (\d+)", " ".join(text for _, text in asked.messages))
    assert found is not None
    return ScriptedAnswer(text=str(int(found[1]) + int(found[2])))


def guesses(_: ReceivedChatRequest) -> ScriptedAnswer:
    """A model that cannot."""
    return ScriptedAnswer(text="17")


@contextmanager
def chat_servers(*models: AnswerChooser) -> Iterator[list[str]]:
    """Serve in a thread of its own, because the commands have the event loop of this one; yield the base URLs."""
    urls, ready, end = list[str](), Event(), Event()

    async def serve() -> None:
        async with AsyncExitStack() as stack:
            urls.extend([await stack.enter_async_context(chat_server(model)) for model in models])
            ready.set()
            await asyncio.to_thread(end.wait)

    thread = Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    try:
        assert ready.wait(30)
        yield urls
    finally:
        end.set()
        thread.join()


def shikisha(*arguments: str, code: int = 0) -> tuple[str, str]:
    """Run a command; return what it printed and what it said."""
    done = CliRunner().invoke(app, list(arguments))
    assert done.exit_code == code, (done.output, done.stderr)
    return done.stdout, done.stderr


@pytest.mark.full
def test_own_rows_own_workers_and_a_model_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    chat_model(tmp_path / "tiny")
    rows = [
        {"prompt": f"What is {one} plus {two}?", "checker": "number", "answer": str(one + two)}
        for one in range(3, 18)
        for two in (4, 9)
    ]
    (tmp_path / "tasks.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    train = ["train", str(RECIPE), "--out", "run", "--quiet", *OWN, *SMALL]
    with chat_servers(adds, guesses) as (strong, weak):
        price = "price = {{ input = {0}, output = {1} }}"
        able = WORKER.format(name="strong", url=strong, card="Adds numbers.", price=price.format(1.25, 10.0))
        cheap = {"name": "weak", "url": weak, "card": "Cheap and quick."}
        (tmp_path / "shikisha.toml").write_text(able + WORKER.format(**cheap, price=""))
        _, said = shikisha(*train, code=ExitCode.CONFIG)
        assert "workers.weak: it has no price (spend.dollars is a cap)" in said
        assert not (tmp_path / "run").exists()  # so that the corrected command begins
        (tmp_path / "shikisha.toml").write_text(able + WORKER.format(**cheap, price=price.format(0.05, 0.4)))
        shikisha(*train)
        evaluated = ["eval", "--taskset", "tasks.jsonl", "--split", "test", "--controls", "none", "--json"]
        report, _ = shikisha(*evaluated, "--conductor", "lm:run/final", "--tasks", "2", "--dollars", "1")
    steps = [StepMetrics.loads(line) for line in (tmp_path / "run" / "steps.jsonl").read_text().splitlines()]
    assert [step.number for step in steps] == [1, 2]
    assert all(step.gradient > 0 for step in steps)
    assert steps[-1].judged is not None
    card = json.loads((tmp_path / "run" / "final" / "card.json").read_text())
    changed = {"model.lora": 4, "spend.dollars": 0.5, "tasks.set": "tasks.jsonl"}
    assert {key: card["settings"][key.split(".")[0]][key.split(".")[1]] for key in changed} == changed
    assert load_settings(RECIPE).grpo.rate == card["settings"]["grpo"]["rate"]
    assert "lm:run/final" in report
