"""`shikisha learn` without a log and its switch: from a journal of runs to a run that uses what they taught."""

import asyncio
import json
import random
from pathlib import Path

import pytest
from typer.testing import CliRunner

from shikisha import Caps, Card, Engine, Member, Plan, Pool, Reply, Step, Task
from shikisha.cli import app
from shikisha.config.container import learned_name, load_config
from shikisha.core.budget import Price
from shikisha.core.errors import ConfigError
from shikisha.core.events import AnswerGraded, GradeMark
from shikisha.engine.conductor import Proposal, Situation
from shikisha.engine.worker import Request
from shikisha.journal import open_journal

CONFIG = """
conductor = "fixed:single"
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
[budgets]
dollars = 0.05
"""
ON = "[learning]\non = true\ndollars_share = 0\n"


class Answers:
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


async def fill(folder: Path, count: int, *labels: str) -> None:
    """Runs in which ann adds right and bob tells days right."""
    async with open_journal(f"sqlite:///{folder / 'runs.db'}") as journal:
        engine = Engine(journal)
        for number in range(count):
            rng = random.Random(number)
            sums = rng.random() < 0.5
            text = f"Add {number} and 3." if sums else f"Which weekday is 2024-01-{number % 28 + 1:02}?"
            good = [rng.random() < (0.95 if sums == (name == "ann") else 0.05) for name in ("ann", "bob")]
            members = [
                Member(Card(name, price=Price(call=0.001)), Answers(one))
                for name, one in zip(("ann", "bob"), good, strict=True)
            ]
            run = await engine.run(Task(f"{text} (task {number})", labels=labels), Pool(members), Draws(), Caps())
            score = float(run.answer == "right")
            mark = GradeMark.RIGHT if score else GradeMark.WRONG
            journal.add(AnswerGraded(run=run.id, at=1.0, checker="feedback", mark=mark, score=score, actor="me"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "shikisha.toml").write_text(CONFIG + ON)
    return tmp_path


def call(folder: Path, *words: str, code: int = 0) -> str:
    result = CliRunner().invoke(app, [*words, "-c", str(folder / "shikisha.toml")])
    assert result.exit_code == code, (result.output, result.stderr)
    return result.stdout if "--json" in words else result.stdout + result.stderr


def test_one_switch_learns_and_runs_use_it(folder: Path) -> None:
    asyncio.run(fill(folder, 120))
    said = call(folder, "learn")
    assert "Learning is on." in said
    assert "120 runs, 120 graded" in said
    told = json.loads(call(folder, "learn", "show", "--json"))
    workers = told["models"][0]["workers"]
    assert set(workers) == {"ann", "bob"}
    right = {"ann": 0, "bob": 0}
    for number, (prompt, best) in enumerate((("Add {} and 3.", "ann"), ("Which weekday is 2024-03-{}?", "bob")) * 4):
        answer = call(folder, "run", prompt.format(10 + number), "--quiet", "--yes").split()[0]
        right[best] += answer == {"ann": "1", "bob": "2"}[best]
    assert right["ann"] >= 3
    assert right["bob"] >= 3
    explained = call(folder, "explain")
    assert "model" in explained


def test_run_learns_in_the_background_of_commands(folder: Path) -> None:
    asyncio.run(fill(folder, 24))
    assert not (folder / "learning" / "index.json").exists()
    call(folder, "run", "Add 1 and 3.", "--quiet", "--yes")
    assert json.loads((folder / "learning" / "index.json").read_text())["scopes"]


def test_what_can_be_done_by_hand(folder: Path) -> None:
    assert "Nothing was learned yet" in call(folder, "learn", "show")
    asyncio.run(fill(folder, 30))
    call(folder, "learn")
    first = json.loads(call(folder, "learn", "show", "--json"))["models"][0]["version"]
    asyncio.run(fill(folder, 30))
    call(folder, "learn")
    second = json.loads(call(folder, "learn", "show", "--json"))["models"][0]["version"]
    assert first != second
    assert first in call(folder, "learn", "pin", "previous")
    assert json.loads(call(folder, "learn", "show", "--json"))["models"][0]["version"] == first
    assert "no earlier version" in call(folder, "learn", "pin", "previous", code=3)
    call(folder, "learn", "pin")
    assert json.loads(call(folder, "learn", "show", "--json"))["models"][0]["version"] == second
    exported = json.loads(call(folder, "learn", "show", "live"))
    assert exported["kind"] == "outcome-model"
    asyncio.run(fill(folder, 30, "hr"))
    call(folder, "learn")
    own, _, labelled = call(folder, "learn", "show", "live").partition("\n}\n")
    assert json.loads(f"{own}\n}}") != json.loads(labelled)  # one of each scope
    call(folder, "learn", "pin", "off")
    assert "Learning is off by" in call(folder, "learn", "show")
    call(folder, "learn", "pin")
    assert "Learning is on" in call(folder, "learn", "show")
    assert "known are" in call(folder, "learn", "pin", "zzz", code=3)


def test_without_grades_it_says_what_would_tell_more(folder: Path) -> None:
    call(folder, "run", "Add 1 and 3.", "--quiet", "--yes")
    said = call(folder, "learn")
    assert "Grades would tell most: 0 of 1 runs" in said
    assert "Little is known of" in said


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('[notes]\nfile = "n"\n', "[learning] on = true"),
        ('[learned]\nprompt = "p"\n', "[learning] on = true"),
        ('[conductors.c]\nkind = "value"\nfile = "f"\nover = "fixed:single"\n', "value"),
        ('[conductors.c]\nkind = "pointer"\nfile = "shipped"\n', "c: pointer conductors were removed: write"),
        ('[conductors.c]\nkind = ["pointer"]\n', "conductors.c"),
        ("[learning]\non = 5\n", "learning.on"),
        ("[learning]\ndollars_share = 2\n", "dollars_share"),
        ("[learning]\nphrases = ['N/A']\n", "learning.phrases[0]"),
        ("[learning]\nphrases = ['']\n", "learning.phrases[0]"),
    ],
)
def test_what_left_the_configuration_says_what_to_write(folder: Path, text: str, says: str) -> None:
    (folder / "shikisha.toml").write_text(CONFIG + text)
    assert says in call(folder, "run", "?", code=3)


@pytest.mark.parametrize(
    "words",
    [
        ("learn", "steps"),
        ("learn", "plans"),
        ("memory", "learn"),
        ("tune",),
        ("notes",),
        ("skills",),
        ("learned",),
        ("practise",),
    ],
)
def test_commands_that_left_say_what_is_there_instead(folder: Path, words: tuple[str, ...]) -> None:
    result = CliRunner().invoke(app, [*words, "-c", str(folder / "shikisha.toml")])
    assert result.exit_code in (2, 3)
    assert "[learning] on = true" in result.output + result.stderr


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("value:steps.json?over=fixed:single", r"\[learning\] on = true, or learned:CONDUCTOR"),
        ("pointer:shipped", r"pointer:shipped: .* \[learning\] on = true, learned:CONDUCTOR, or head:shipped"),
        ("learned:pointer:own.safetensors?fallback=fixed:single", "head:shipped"),
    ],
)
def test_an_old_conductor_by_name_says_what_to_write(folder: Path, name: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        load_config(folder / "shikisha.toml").conductor(name)


def test_the_learner_stands_over_what_proposes_plans_and_names_no_workers(folder: Path) -> None:
    container = load_config(folder / "shikisha.toml")
    names = {
        "fixed:single": True, "lm:ann": True, "fixed:single?worker=ann": False,
        "rules:r.toml": False, "policy:p": False, "team:t": False, "chat:turns": False,
    }  # fmt: skip
    assert {name: learned_name(container, name).startswith("learned:") for name in names} == names
    assert container.conductor("fixed:cascade", container.pool(), learns=True).name == "fixed:cascade"
