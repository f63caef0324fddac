"""Classes of tasks: found in runs, judged by what they risk, kept only once a person confirmed them, and audited."""

import asyncio
import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from shikisha import Caps, Card, Engine, Member, Plan, Pool, Reply, Step, Task
from shikisha.cli import app
from shikisha.config.container import load_config
from shikisha.core.errors import ConfigError
from shikisha.core.events import AnswerGraded, GradeMark
from shikisha.core.run import Run
from shikisha.engine.autonomy import AutonomyMode
from shikisha.engine.conductor import Proposal, Situation
from shikisha.engine.recorder import MemoryRecorder, Recorder
from shikisha.journal import open_journal
from shikisha.learned.learned_file import parse_learned, read_learned, write_learned
from shikisha_classes.task_classes import (
    CLASSES_KIND,
    ProposedClasses,
    class_risk,
    classes_file,
    propose_classes,
    propose_mode,
    read_classes,
)

CITIES = ("Paris", "Oslo", "Rome", "Lima", "Cairo", "Quito", "Delhi", "Hanoi")


class Says:
    def __init__(self, text: Callable[[str], str]) -> None:
        self.text = text

    async def perform(self, request: object) -> Reply:
        return Reply(self.text(getattr(request, "subtask", "")), dollars=0.001)


class AsksTwo:
    """Two workers answer the same subtask."""

    name = "two"

    async def propose(self, situation: Situation) -> Proposal:
        step = situation.task.prompt
        return Proposal(Plan() if situation.rounds else Plan((Step(step, 0), Step(step, 1))))


def prompts(count: int, rng: random.Random) -> list[tuple[str, bool]]:
    """Sums, whose answers are right, and letters, of which a third is wrong and then the workers differ."""
    sums = [(f"What is {rng.randrange(99)} plus {rng.randrange(99)}?", True) for _ in range(count)]
    letters = [
        (f"Write a letter of apology to our customer in {rng.choice(CITIES)}.", at % 3 > 0) for at in range(count)
    ]
    mixed = [*sums, *letters]
    rng.shuffle(mixed)
    return mixed


async def performed(
    recorder: Recorder, count: int = 110, *, grades: bool = True, labels: tuple[str, ...] = ()
) -> list[Run]:
    rights = dict[str, bool]()

    def second(subtask: str) -> str:
        return "done" if rights[subtask] else "not done"

    pool = Pool([Member(Card("a"), Says(lambda _: "done")), Member(Card("b"), Says(second))])
    engine, found = Engine(recorder), list[Run]()
    for at, (prompt, right) in enumerate(prompts(count, random.Random(1))):
        rights[prompt] = right
        run = await engine.run(Task(prompt, labels=labels), pool, AsksTwo(), Caps(), run_id=f"run-{at:04}")
        if grades:
            mark = GradeMark.RIGHT if right else GradeMark.WRONG
            grade = AnswerGraded(run=run.id, at=1.0, checker="t", mark=mark, score=float(right), actor="t")
            run.grades.append(grade)
            recorder.add(grade)
        found.append(run)
    await recorder.flush()
    return found


@pytest.fixture(scope="module")
def runs() -> list[Run]:
    return asyncio.run(performed(MemoryRecorder()))


def by_prompt(proposal: ProposedClasses, prompt: str) -> str:
    found = proposal.find([prompt])[0]
    return "" if found is None else found.name


async def test_classes_and_modes_follow_what_runs_risk(runs: list[Run]) -> None:
    proposal = propose_classes(runs, 0.1)
    sums, letters = (
        next(each for each in proposal.classes if each.name == by_prompt(proposal, prompt))
        for prompt in ("What is 12 plus 30?", "Write a letter of apology to our customer in Oslo.")
    )
    assert (sums.mode, letters.mode) == (AutonomyMode.AUTONOMOUS, AutonomyMode.ESCALATE)
    assert letters.risk.wrong > sums.risk.wrong == 0
    assert letters.risk.disagreed == letters.risk.wrong
    # The audit is of the newer half: a person would have seen every wrong letter, and no sum.
    assert letters.audit.through == 0 < letters.audit.wrong == letters.audit.asked
    assert (sums.audit.asked, sums.audit.through) == (0, 0)
    assert by_prompt(proposal, "zzz qqq") == ""


async def test_few_grades_writes_and_labels_never_lead_to_more_autonomy(runs: list[Run]) -> None:
    sums = [run for run in runs if run.started.prompt.startswith("What")]
    assert propose_mode(class_risk(sums), sums, (), 0.1)[0] is AutonomyMode.AUTONOMOUS
    assert propose_mode(class_risk(sums), sums, ("secret",), 0.1)[0] is not AutonomyMode.AUTONOMOUS
    assert propose_mode(class_risk(sums[:20]), sums[:20], (), 0.1)[0] is AutonomyMode.REVIEW
    few = await performed(MemoryRecorder(), 60, grades=False)
    assert {each.mode for each in propose_classes(few).classes} == {AutonomyMode.REVIEW}


async def test_nothing_holds_before_a_person_confirms_it(runs: list[Run], tmp_path: Path) -> None:
    proposal = propose_classes(runs, 0.1)
    assert proposal.autonomy_classes() == ()
    name = by_prompt(proposal, "Write a letter of apology to our customer in Oslo.")
    file = tmp_path / "classes.json"
    write_learned(file, classes_file(proposal.confirm([name], "Ann"), 1.0))
    again = read_classes(read_learned(file, CLASSES_KIND), "classes.json")
    (held,) = again.autonomy_classes()
    assert held.mode is AutonomyMode.ESCALATE
    assert held.fits(Task("Write a letter of apology to our customer in Lima."), "any")
    assert not held.fits(Task("What is 3 plus 4?"), "any")
    with pytest.raises(ConfigError, match="no class 'sums'"):
        proposal.confirm(["sums"], "Ann")
    changed = file.read_text().replace('"escalate"', '"autonomous"')
    with pytest.raises(ConfigError, match="changed by hand"):
        parse_learned(changed.encode(), "classes.json", CLASSES_KIND)


def test_too_few_runs_and_a_tolerance_that_means_nothing_are_refused() -> None:
    with pytest.raises(ConfigError, match="at least 40"):
        propose_classes([])
    with pytest.raises(ConfigError, match="tolerance"):
        propose_classes([], 1.5)


CONFIG = """
[journal]
file = "runs.db"
[workers.a]
kind = "scripted"
price = { call = 0.001 }
answers = "done"
[autonomy]
proposed = "classes.json"
[budgets]
dollars = 0.05
"""


def call(folder: Path, *words: str, code: int = 0) -> str:
    result = CliRunner().invoke(app, ["classes", *words, "-c", str(folder / "shikisha.toml")], env={"COLUMNS": "200"})
    assert result.exit_code == code, (result.output, result.stderr)
    return result.stdout + result.stderr


def test_the_commands_propose_audit_and_confirm_and_a_configuration_keeps_it(tmp_path: Path) -> None:
    async def fill() -> None:
        async with open_journal(str(tmp_path / "runs.db")) as journal:
            await performed(journal, 60)

    asyncio.run(fill())
    (tmp_path / "shikisha.toml").write_text(CONFIG)
    file = str(tmp_path / "classes.json")
    assert "cannot be read" in call(tmp_path, "show", file, code=3)
    said = call(tmp_path, "propose", "--out", file, "--tolerance", "0.15")
    assert "None holds before you confirm it" in said
    rows = json.loads(call(tmp_path, "show", file, "--json"))["classes"]
    name = next(row["name"] for row in rows if row["mode"] == "autonomous")
    assert load_config(tmp_path / "shikisha.toml").autonomy_policy().classes == ()
    call(tmp_path, "confirm", file, name, "--by", "Ann")
    (held,) = load_config(tmp_path / "shikisha.toml").autonomy_policy().classes
    assert (held.name, held.mode) == (name, AutonomyMode.AUTONOMOUS)
    assert "60 of 60" not in call(tmp_path, "audit", file)
    call(tmp_path, "confirm", file, "nobody", "--by", "Ann", code=3)
    call(tmp_path, "confirm", file, name, "--by", " ", code=3)


def test_a_class_that_fits_everything_leaves_nothing_for_proposed_ones(tmp_path: Path) -> None:
    (tmp_path / "shikisha.toml").write_text(CONFIG + '[[autonomy.classes]]\nmode = "review"\n')
    with pytest.raises(ConfigError, match="fits every task"):
        load_config(tmp_path / "shikisha.toml")
