"""Skills: mined from right runs, replayed before they are used, kept as folders, and refused once changed."""

import random
from pathlib import Path

import pytest

from shikisha import Caps, Card, Engine, Member, Plan, Pool, Reply, Step, Task
from shikisha.conductors.skilled import SkilledConductor
from shikisha.core.errors import ConfigError
from shikisha.core.events import AnswerGraded, GradeMark
from shikisha.core.run import Run
from shikisha.core.task import OPERATOR
from shikisha.engine.conductor import Proposal, Situation
from shikisha.engine.recorder import MemoryRecorder
from shikisha.learned.skills import (
    Skill,
    SkillStep,
    mine_skills,
    plain_plan,
    read_skill,
    read_skills,
    replay_on_runs,
    retire_drifted,
    write_skill,
)
from shikisha.learned.step_samples import check_subtask

NAMES = ("Ann Lee", "Bob Ray", "Cy Young", "Di Moss", "Ed Cole", "Flo Hart")
CARDS = (Card("clerk"), Card("adder"))


class Says:
    async def perform(self, _: object) -> Reply:
        return Reply("7")


class Writes:
    """Proposes one plan, then ships."""

    name = "writes"

    def __init__(self, plan: Plan) -> None:
        self.plan, self.calls = plan, 0

    async def propose(self, situation: Situation) -> Proposal:
        self.calls += 1
        return Proposal(Plan() if situation.rounds else self.plan)


def question(name: str, number: int) -> tuple[str, Plan]:
    prompt = f"Which room does {name} sit in? Add {number} to the number of that room."
    steps = (Step(f"Find the room of {name}.", 0), Step(f"Add {number} to the room's number.", 1, (0,)))
    return prompt, Plan(steps)


async def right_run(prompt: str, plan: Plan, run_id: str, *, right: bool = True, labels: tuple[str, ...] = ()) -> Run:
    pool = Pool([Member(card, Says()) for card in CARDS])
    run = await Engine(MemoryRecorder()).run(Task(prompt, labels=labels), pool, Writes(plan), Caps(), run_id=run_id)
    mark = GradeMark.RIGHT if right else GradeMark.WRONG
    run.grades.append(AnswerGraded(run=run.id, at=1.0, checker="t", mark=mark, score=float(right), actor="t"))
    return run


async def right_runs(count: int = 5, labels: tuple[str, ...] = ()) -> list[Run]:
    return [await right_run(*question(NAMES[at], 10 + at), f"run-{at}", labels=labels) for at in range(count)]


async def test_a_skill_is_mined_from_right_runs_and_fits_the_next_task() -> None:
    (skill,) = mine_skills(await right_runs())
    assert skill.admitted
    assert skill.replays == (2, 2)
    assert len(skill.evidence) == 3
    prompt, plan = question("Flo Hart", 99)
    assert skill.plan(prompt, ["clerk", "adder"]) == plan
    assert skill.plan("Which room is it?", ["clerk", "adder"]) is None
    assert skill.plan(prompt, ["adder"]) is None
    assert mine_skills(await right_runs(), [skill]) == []


async def test_what_is_not_confirmed_by_runs_held_out_is_not_a_skill() -> None:
    assert mine_skills(await right_runs(3)) == []
    runs = await right_runs(4)
    prompt, plan = question(NAMES[4], 3)
    other = Plan((Step("Do something else.", 0), plan.steps[1]))
    assert mine_skills([*runs[:3], await right_run(prompt, other, "other")]) == []
    wrong = [await right_run(*question(NAMES[at], at), f"w-{at}", right=False) for at in range(5)]
    assert mine_skills(wrong) == []


def test_a_hole_takes_no_further_sentence_and_few_more_words_than_before() -> None:
    skill = Skill(
        "s", ("Add 2 to ", ""), (SkillStep("Add 2 to {0}.", "adder", ()),), ("r",), (1, 1), OPERATOR, widths=(3,)
    )
    assert skill.match("Add 2 to the room number.") == ("the room number.",)
    assert skill.match("Add 2 to 5. Then double that.") is None
    assert skill.match("Add 2 to the room number and double that") is None


async def test_work_of_another_kind_in_similar_words_makes_no_vague_skill() -> None:
    runs, end = [], "Then write that number in words, in plain English, and keep it short."
    for at, name in enumerate(NAMES):
        asked = (
            f"Please state which seat was given to {name} now.",
            f"Please state how high is the pay of {name} now.",
        )
        for worker, part in enumerate(asked):
            prompt, plan = f"{part} {end}", Plan((Step(part, worker), Step(end, 0, (0,))))
            runs.append(await right_run(prompt, plan, f"run-{at}-{worker}"))
    skills = mine_skills(runs)
    assert sorted(skill.steps[0].worker for skill in skills) == ["adder", "clerk"]
    for run in runs:
        (fits,) = [skill for skill in skills if skill.match(run.started.prompt) is not None]
        assert fits.steps[0].worker == ("clerk" if "seat" in run.started.prompt else "adder")


async def test_a_skill_saves_the_planner_s_call_and_labels_hold() -> None:
    (skill,) = mine_skills(await right_runs(labels=("secret",)))
    inner = Writes(question("x", 1)[1])
    conductor = SkilledConductor(inner, (skill,))
    prompt, plan = question("Flo Hart", 99)
    situation = Situation(Task(prompt, labels=("secret",)), CARDS)
    found = await conductor.propose(situation)
    assert (found.plan, found.note, inner.calls) == (plan, f"skill {skill.name}", 0)
    await conductor.propose(Situation(Task(prompt), CARDS))
    assert inner.calls == 1
    await conductor.propose(Situation(Task(prompt, context="more", labels=("secret",)), CARDS))
    assert inner.calls == 2
    pool = Pool([Member(card, Says()) for card in CARDS])
    run = await Engine(MemoryRecorder()).run(Task(prompt, labels=("secret",)), pool, conductor, Caps())
    assert (run.answer, inner.calls) == ("7", 2)


async def test_a_folder_is_read_back_and_refused_once_it_was_changed(tmp_path: Path) -> None:
    (skill,) = mine_skills(await right_runs())
    folder = write_skill(tmp_path, skill, 1.0)
    assert read_skills(tmp_path) == [skill]
    assert read_skills(tmp_path / "none") == []
    page = (folder / "SKILL.md").read_text()
    assert page.startswith("---\nname: skill-1\ndescription: ")
    (folder / "SKILL.md").write_text(page.replace("Find", "Invent"))
    with pytest.raises(ConfigError, match="changed after it was written"):
        read_skill(folder)
    (folder / "SKILL.md").write_text(page)
    plan = (folder / "plan.json").read_text()
    (folder / "plan.json").write_text(plan.replace("Find the", "Lose the"))
    with pytest.raises(ConfigError, match="changed by hand"):
        read_skill(folder)


async def test_a_skill_from_elsewhere_is_not_used_before_it_was_replayed_here(tmp_path: Path) -> None:
    (skill,) = mine_skills(await right_runs())
    foreign = read_skill(write_skill(tmp_path, skill, 1.0), ours=False)
    assert not foreign.admitted
    assert replay_on_runs(foreign, await right_runs(2)).admitted
    assert not replay_on_runs(foreign, []).admitted
    inner = Writes(question("x", 1)[1])
    prompt, _ = question("Flo Hart", 99)
    await SkilledConductor(inner, (foreign,)).propose(Situation(Task(prompt), CARDS))
    assert inner.calls == 1


def test_checks_second_workers_and_phrases_are_no_part_of_a_plain_plan() -> None:
    said = "Add 2 and 3. Reply with the result only."
    plan = Plan(
        (
            Step(said, 1),
            Step(said, 0),
            Step(check_subtask(said), 1, (1,)),
            Step("Double it.", 0, (2,)),
        )
    )
    assert plain_plan(plan) == Plan((Step("Add 2 and 3.", 0), Step("Double it.", 0, (0,))))


def test_matching_hostile_texts_takes_bounded_work() -> None:
    rng = random.Random(0)
    skill = Skill("s", ("a ", " b ", " c ", ""), (SkillStep("{0} {1} {2}", "clerk", ()),), ("r",), (1, 1), OPERATOR)
    assert skill.match("a x b y c z") == ("x", "y", "z")
    for _ in range(300):
        text = "".join(rng.choice("ab c\0é") for _ in range(rng.randint(0, 200)))
        values = skill.match(text)
        assert values is None or "a " + values[0] + " b " + values[1] + " c " + values[2] == text
    assert skill.match("a " + " b " * 100_000) is None


async def test_a_skill_that_is_right_less_often_than_planners_were_is_retired(tmp_path: Path) -> None:
    (skill,) = mine_skills(await right_runs())
    before = [await right_run(*question(NAMES[at % 6], at), f"before-{at}", right=at % 4 > 0) for at in range(16)]

    async def live(right: int) -> list[Run]:
        found = []
        pool = Pool([Member(card, Says()) for card in CARDS])
        for at in range(16):
            prompt, plan = question(NAMES[at % 6], 50 + at)
            conductor = SkilledConductor(Writes(plan), (skill,))
            run = await Engine(MemoryRecorder()).run(Task(prompt), pool, conductor, Caps(), run_id=f"live-{right}-{at}")
            mark = GradeMark.RIGHT if at < right else GradeMark.WRONG
            run.grades.append(
                AnswerGraded(run=run.id, at=1.0, checker="t", mark=mark, score=float(at < right), actor="t")
            )
            found.append(run)
        return found

    assert retire_drifted(skill, [*before, *await live(10)]) == skill
    assert retire_drifted(skill, await live(0)) == skill
    drifted = retire_drifted(skill, [*before, *await live(2)])
    assert drifted.retired == "right in 0.12 of 16 runs, where planners were in 0.75 of 16"
    assert not drifted.admitted
    write_skill(tmp_path, drifted, 1.0)
    assert read_skills(tmp_path) == [drifted]
    inner = Writes(question("x", 1)[1])
    await SkilledConductor(inner, (drifted,)).propose(Situation(Task(question("Flo Hart", 9)[0]), CARDS))
    assert inner.calls == 1
