"""Plans composed of parts of several skills: covered to the last word, with one meaning only, in bounded work."""

import random
from dataclasses import replace

import pytest

from shikisha import Caps, Card, Engine, Member, Plan, Pool, Reply, Step, Task
from shikisha.conductors.skilled import SkilledConductor
from shikisha.core.task import OPERATOR, Scope
from shikisha.engine.conductor import Proposal, Situation
from shikisha.engine.recorder import MemoryRecorder
from shikisha.learned.skill_composition import ComposedPlan, compose_plan, cut_skills
from shikisha.learned.skills import COMPOSED_NOTE, Skill, SkillStep

WORKERS = ("clerk", "adder", "reader")
ROOM = ("Which room does ", " sit in?")
ADD = (" Add ", " to the number of that room.")

SECRET = Scope("", frozenset({"secret"}))


def skill(name: str, pieces: tuple[str, ...], *steps: tuple[str, str, tuple[int, ...]]) -> Skill:
    widths = tuple(4 for _ in pieces[1:])
    return Skill(name, pieces, tuple(SkillStep(*step) for step in steps), ("r",), (2, 2), OPERATOR, widths=widths)


ROOM_AND_ADD = skill(
    "room-and-add",
    (ROOM[0], ROOM[1] + ADD[0], ADD[1]),
    ("Find the room of {0}.", "clerk", ()),
    ("Add {1} to the room's number.", "adder", (0,)),
)
BOSS_AND_METER = skill(
    "boss-and-meter",
    ("Who is the supervisor of ", "? Read the water meter of that person's room."),
    ("Who is the supervisor of {0}?", "reader", ()),
    ("Read the water meter of that person's room.", "reader", (0,)),
)
ROOM_OF_BOSS = skill(
    "room-of-boss",
    ("Tell me who manages ", ". Which room does that person sit in?"),
    ("Tell me who manages {0}.", "reader", ()),
    ("Which room does that person sit in?", "clerk", (0,)),
)
DIFFERENCE = skill(
    "difference",
    ("What did ", " spend? And what did ", " spend? Subtract the second from the first."),
    ("What did {0} spend?", "reader", ()),
    ("And what did {1} spend?", "reader", ()),
    ("Subtract the second from the first.", "adder", (0, 1)),
)
SKILLS = (ROOM_AND_ADD, BOSS_AND_METER, ROOM_OF_BOSS, DIFFERENCE)


def composed(prompt: str, *skills: Skill, most: int = 5) -> ComposedPlan | None:
    return compose_plan(cut_skills(skills or SKILLS), prompt, WORKERS, OPERATOR, most)


class Says:
    async def perform(self, _: object) -> Reply:
        return Reply("7")


class Plans:
    name = "plans"

    def __init__(self) -> None:
        self.calls = 0

    async def propose(self, situation: Situation) -> Proposal:
        self.calls += 1
        return Proposal(Plan() if situation.rounds else Plan((Step("All of it.", 0),)))


async def test_a_question_of_one_more_part_is_performed_and_the_journal_names_the_skills() -> None:
    inner, prompt = (
        Plans(),
        "Tell me who manages Bo Li. Which room does that person sit in? Add 9 to the number of that room.",
    )
    conductor = SkilledConductor(inner, SKILLS)
    pool = Pool([Member(Card(name), Says()) for name in WORKERS])
    run = await Engine(MemoryRecorder()).run(Task(prompt), pool, conductor, Caps())
    (turn,) = [turn for turn in run.rounds if turn.plan is not None and turn.plan.steps]
    assert turn.plan == Plan(
        (
            Step("Tell me who manages Bo Li.", 2),
            Step("Which room does that person sit in?", 0, (0,)),
            Step("Add 9 to the room's number.", 1, (1,)),
        )
    )
    assert turn.proposed is not None
    assert turn.proposed.note == f"{COMPOSED_NOTE}room-of-boss, room-and-add"
    assert (run.answer, inner.calls) == ("7", 0)
    small = await Engine(MemoryRecorder()).run(Task(prompt), pool, conductor, Caps(plan_steps=2))
    assert (small.answer, inner.calls > 0) == ("7", True)
    without = SkilledConductor(plain := Plans(), SKILLS, composes=False)
    await without.propose(Situation(Task(prompt), pool.cards))
    assert plain.calls == 1


async def test_a_skill_that_fits_as_a_whole_is_not_used_where_parts_of_others_say_otherwise() -> None:
    vague = skill("vague", ("Who is the ", " of ", "?"), ("Who is the {0} of {1}?", "clerk", ()))
    situation = Situation(Task("Who is the supervisor of Cy?"), tuple(Card(name) for name in WORKERS))
    alone, both = SkilledConductor(Plans(), (vague,)), SkilledConductor(Plans(), (vague, BOSS_AND_METER))
    assert (await alone.propose(situation)).note == "skill vague"
    assert (await both.propose(situation)).plan == Plan((Step("All of it.", 0),))


def test_two_results_are_joined_by_the_part_that_takes_both() -> None:
    found = composed("What did Al spend? Who is the supervisor of Cy? Subtract the second from the first.")
    assert found is not None
    assert [step.access for step in found.plan.steps] == [(), (), (0, 1)]
    assert found.skills == ("difference", "boss-and-meter")


@pytest.mark.parametrize(
    "prompt",
    [
        "",
        "Tell me who manages Bo Li. Which room does that person sit in? In French, please.",  # words are left over
        "Tell me who manages Bo Li. Who is the supervisor of Cy?",  # nothing takes the first result
        "Add 9 to the number of that room.",  # nothing to take
        "Tell me who manages Bo Li. And be quick. Which room does that person sit in?",  # a hole holds no sentence
        "Tell me who manages Bo Li if he is still here and well. Which room does that person sit in?",
    ],
)
def test_what_is_left_over_or_not_taken_is_left_to_the_planner(prompt: str) -> None:
    assert composed(prompt) is None


def test_two_meanings_are_none_and_labels_pools_and_replays_hold() -> None:
    prompt = "Who is the supervisor of Bo Li? Which room does that person sit in?"
    assert composed(prompt) is not None
    other = replace(
        ROOM_OF_BOSS, name="other", steps=(*ROOM_OF_BOSS.steps[:1], replace(ROOM_OF_BOSS.steps[1], worker="adder"))
    )
    assert composed(prompt, *SKILLS, other) is None
    assert composed(prompt, *SKILLS, replace(other, replays=(2, 1))) is not None
    assert compose_plan(cut_skills(SKILLS), prompt, ("clerk", "adder"), OPERATOR, 5) is None
    secret = cut_skills([replace(ROOM_OF_BOSS, scope=SECRET), BOSS_AND_METER])
    assert compose_plan(secret, prompt, WORKERS, OPERATOR, 5) is None
    assert compose_plan(secret, prompt, WORKERS, SECRET, 5) is not None


def test_a_skill_that_cannot_be_cut_is_a_part_as_a_whole() -> None:
    whole = skill("whole", ("Where is ", " now?"), ("Find {0}'s boss.", "reader", ()), ("Locate them.", "clerk", (0,)))
    found = composed("Where is Bo Li now? Add 3 to the number of that room.", whole, ROOM_AND_ADD)
    assert found is not None
    assert [(step.subtask, step.access) for step in found.plan.steps] == [
        ("Find Bo Li's boss.", ()),
        ("Locate them.", (0,)),
        ("Add 3 to the room's number.", (1,)),
    ]
    sees_all = replace(whole, steps=(*whole.steps, SkillStep("Sum up.", "clerk", (0, 1))))
    assert composed("Where is Bo Li now? Add 3 to the number of that room.", sees_all, ROOM_AND_ADD) is not None
    braces = skill("braces", ("Fill in {3} for ", " now."), ("Fill in {3} for {0} now.", "clerk", ()))
    assert cut_skills([braces]) == ()


def test_hostile_texts_take_bounded_work_and_cannot_end_the_process() -> None:
    loop = [
        skill(
            f"s-{at}",
            ("go on with the work and then ", ""),
            ("go on with the work and then {0}", WORKERS[at % 3], ()),
        )
        for at in range(60)
    ]
    step = skill("t", ("x ", " go on with it"), ("x {0}", "clerk", ()), ("go on with it", "clerk", (0,)))
    parts = cut_skills([*loop, step, *SKILLS])
    assert compose_plan(parts, "go on with the work and then " * 130, WORKERS, OPERATOR, 64) is None
    assert compose_plan(parts, "x " * 1_900, WORKERS, OPERATOR, 64) is None
    assert compose_plan(parts, "x " * 100_000, WORKERS, OPERATOR, 64) is None
    rng, words = (
        random.Random(0),
        ["Add", "9", "to the number of that room.", "x", "go on with it", "\0", "\n", "é", "{0}"],
    )
    for _ in range(200):
        text = " ".join(rng.choice(words) for _ in range(rng.randint(0, 60)))
        found = compose_plan(parts, text, WORKERS, OPERATOR, 5)
        assert found is None or len(found.plan) <= 5
