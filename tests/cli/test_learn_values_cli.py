"""`shikisha learn steps` and `learn plans` on a journal, from the runs to the conductor that uses the file."""

import asyncio
import json
import random
from pathlib import Path

import pytest
from typer.testing import CliRunner

from shikisha import Caps, Card, Engine, Member, Plan, Pool, Reply, Step, Task
from shikisha.cli import app
from shikisha.config.container import load_config
from shikisha.core.budget import Price
from shikisha.core.events import AnswerGraded, GradeMark
from shikisha.engine.conductor import Proposal, Situation
from shikisha.engine.worker import Request
from shikisha.journal import open_journal

CONFIG = """
[journal]
file = "runs.db"
[workers.ann]
kind = "scripted"
price = { call = 0.001 }
answers = "1"
[workers.bob]
kind = "scripted"
price = { call = 0.001 }
answers = "2"
[conductors.learned]
kind = "value"
file = "steps.json"
over = "fixed:single?worker=ann"
share = 1.0
"""


class Worker:
    def __init__(self, good: bool) -> None:
        self.good = good

    async def perform(self, _: Request) -> Reply:
        return Reply("right" if self.good else "wrong", dollars=0.001)


class Draws:
    """Gives the whole task to a drawn worker."""

    name = "draws"

    async def propose(self, situation: Situation) -> Proposal:
        if situation.rounds:
            return Proposal(Plan())
        worker = random.Random(situation.task.prompt).randrange(2)
        return Proposal(Plan((Step("Answer the question.", worker),)))


async def fill(folder: Path, count: int, luck: bool = False) -> None:
    """Runs in which ann adds right and bob tells days right; with `luck` nobody is better at anything."""
    async with open_journal(f"sqlite:///{folder / 'runs.db'}") as journal:
        engine = Engine(journal)
        for number in range(count):
            rng = random.Random(number)
            sums = rng.random() < 0.5
            text = f"Add {number} and 3." if sums else f"Which weekday is 2024-01-{number % 28 + 1:02}?"
            good = [
                rng.random() < (0.5 if luck else 0.95 if sums == (name == "ann") else 0.05) for name in ("ann", "bob")
            ]
            pool = Pool(
                [
                    Member(Card(name, price=Price(call=0.001)), Worker(one))
                    for name, one in zip(("ann", "bob"), good, strict=True)
                ]
            )
            run = await engine.run(Task(f"{text} (task {number})"), pool, Draws(), Caps())
            score = float(run.answer == "right")
            mark = GradeMark.RIGHT if score else GradeMark.WRONG
            journal.add(AnswerGraded(run=run.id, at=1.0, checker="feedback", mark=mark, score=score, actor="me"))


def learn(folder: Path, *arguments: str, code: int = 0) -> str:
    command = ["learn", *arguments, "--out", str(folder / "steps.json"), "-c", str(folder / "shikisha.toml")]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == code, (result.output, result.stderr)
    return result.stdout + result.stderr


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "shikisha.toml").write_text(CONFIG)
    return tmp_path


def test_steps_are_learned_from_a_journal_and_used(folder: Path) -> None:
    asyncio.run(fill(folder, 150))
    said = learn(folder, "steps")
    assert "draws" in said
    assert "acts on half of the tasks" in said
    body = json.loads((folder / "steps.json").read_text())
    assert len(body["evidence"]) == 150
    container = load_config(folder / "shikisha.toml")
    conductor = container.conductor("learned", container.pool())

    def worker_for(text: str) -> int:
        situation = Situation(Task(text), container.pool().cards)
        return asyncio.run(conductor.propose(situation)).plan.steps[0].worker

    # Which half of the tasks it acts on depends on the file, and with it on the runs' random ids; on the other half one
    # worker does both kinds.
    sums = sum(worker_for(f"Add {number} and 3.") == 0 for number in range(20, 50))
    days = sum(worker_for(f"Which weekday is 2024-01-{day}?") == 0 for day in range(1, 31))
    assert sums - days >= 5
    shown = json.loads(learn(folder, "plans", "--json").split("\n{")[0].partition("\nsteps")[0].splitlines()[0])
    assert shown["shown"] is True


def test_what_is_not_shown_to_gain_is_not_written(folder: Path) -> None:
    asyncio.run(fill(folder, 90, luck=True))
    said = learn(folder, "steps", code=3)
    assert "Nothing is written" in said
    assert not (folder / "steps.json").exists()
    learn(folder, "steps", "--trial")
    assert json.loads((folder / "steps.json").read_text())["content"]["trial"] is True


def test_too_few_runs_and_no_journal_are_refused(folder: Path) -> None:
    assert "journal" in learn(folder, "steps", code=2)
    asyncio.run(fill(folder, 3))
    assert "expected at least 60 graded runs" in learn(folder, "steps", code=3)
    assert "Nothing is written" in learn(folder, "steps", "--labels", "", code=3)
