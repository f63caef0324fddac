"""The large edition: the same quality as the small one, which stays what it was to the letter."""

from collections import Counter
from collections.abc import Iterable
from datetime import date
from functools import cache
from hashlib import sha256
from itertools import product

import pytest

from shikisha.engine.worker import Request
from shikisha.evals.tasksets.simulated import SIMULATED_DISTRIBUTIONS
from shikisha.evals.tasksets.taskset_loader import BUILT_IN_SETS, SIMULATED_SETS, load_taskset
from shikisha.simulation import chain_of_thought, plan_templates, sft_examples
from shikisha.simulation.editions import ALL_PROFILES, LARGE, SMALL
from shikisha.simulation.questions import FAMILIES, OPERATIONS, SMALL_FAMILY_NAMES, question_readings
from shikisha.simulation.sft_examples import SFTMixture, generate_example, plan_subtasks
from shikisha.simulation.simulated_workers import CANNOT_PREFIX, LACK_PREFIX, SimulatedWorker, apply_with_tool
from shikisha.simulation.task_generator import (
    LARGE_TASKS,
    SMALL_TASKS,
    PoolDistribution,
    SimulatedTask,
    TaskDistribution,
    every_slip_matters,
    generate_task,
    generate_tasks,
)
from shikisha.simulation.values import SimulatedValue, ValueKind, format_value, parse_value
from shikisha.simulation.vocabulary import WordingSplit, split_names
from shikisha.simulation.worker_profiles import IRRELEVANT_WORKERS, WorkerProfile

MANY = 400
TRAINED = TaskDistribution(parts=(0.3, 0.35, 0.35), lacking=0.2)
EIGHT = TaskDistribution(parts=(0, 0, 0, 1), lacking=0.0, pool=PoolDistribution(sizes=(8,)))
OURS = sorted(set(FAMILIES) - set(SMALL_FAMILY_NAMES))


@cache
def drawn(split: WordingSplit, count: int = MANY) -> list[SimulatedTask]:
    return list(generate_tasks(split, 1, LARGE_TASKS, count))


def digest(texts: Iterable[object]) -> str:
    return sha256("\n".join(map(repr, texts)).encode()).hexdigest()[:16]


@pytest.mark.parametrize(
    ("split", "recipe", "known"),
    [
        (WordingSplit.TRAIN, SMALL_TASKS, "edec14c9c4a8ecae"),
        (WordingSplit.TRAIN, TRAINED, "f6fd534428a28f12"),
        (WordingSplit.DEV, SMALL_TASKS, "5c1d0c78b6db202f"),
        (WordingSplit.HELDOUT, SMALL_TASKS, "83b497e90eff6e30"),
        (WordingSplit.HELDOUT, EIGHT, "febc62429bb76f01"),
        (
            WordingSplit.HELDOUT,
            TaskDistribution(pool=PoolDistribution(single=0.3, only_new=True)),
            "4959367b00c90fc5",
        ),
    ],
)
def test_the_small_editions_tasks_are_what_they_were_before_there_was_a_large_one(
    split: WordingSplit, recipe: TaskDistribution, known: str
) -> None:
    found = generate_tasks(split, 1, recipe, 60)
    assert digest((one.task.id, one.task.prompt, one.gold, one.workers, one.lacking) for one in found) == known


@pytest.mark.parametrize(
    ("curriculum", "known"),
    [
        (SFTMixture(), "da45fa8161c98c11"),
        (SFTMixture(drills=1, plans=0), "0ef7a0c926c90676"),
        (SFTMixture(encores=1, drills=0, plans=0), "2e7159edf5ccc70c"),
        (SFTMixture(best=1), "095d53ba8653dba6"),
    ],
)
def test_the_small_editions_lessons_are_those_that_the_warm_start_read(curriculum: SFTMixture, known: str) -> None:
    found = (generate_example(2, index, curriculum) for index in range(200))
    assert digest((one.prompt, one.shown, one.taught, one.whole) for one in found) == known


def test_what_the_small_editions_tokenizer_keeps_whole_is_what_it_was() -> None:
    assert (
        digest(
            [
                chain_of_thought.thought_tokens(),
                plan_templates.form_tokens(SMALL),
                sft_examples.OUTCOME_TOKENS,
                plan_subtasks(),
            ]
        )
        == "ad3e77a8cbf6481d"
    )


def test_a_large_item_hangs_on_split_seed_and_index_alone() -> None:
    first = drawn(WordingSplit.DEV, 20)
    again = [generate_task(WordingSplit.DEV, 1, index, LARGE_TASKS) for index in reversed(range(20))]
    assert [one.task for one in first] == [one.task for one in reversed(again)]
    assert first[0].task.domain == "rehearsal-large"
    assert first[0].task.id == "large-dev-1-0"


@pytest.mark.parametrize("split", WordingSplit)
def test_every_question_is_read_as_itself_and_nothing_else(split: WordingSplit) -> None:
    for one in drawn(split):
        assert list(question_readings(one.task.prompt)) == [one.question], one.task.prompt


def test_parts_pools_and_families_come_in_their_shares() -> None:
    found = drawn(WordingSplit.TRAIN)
    assert min(Counter(len(one.kinds) for one in found).values()) > MANY / 8
    assert {len(one.pool) for one in found} == {4, 5, 6, 7, 8}
    counted = Counter(kind for one in found for kind in one.kinds)
    assert set(counted) == set(FAMILIES)
    assert min(counted.values()) > MANY / 10
    joined = Counter(one.question.parts[-1].uses[0] for one in found if one.question.joined)
    assert set(joined) == {0, 1, 2}  # first arms of one to three parts


def test_training_never_meets_what_is_held_out() -> None:
    for split in (WordingSplit.TRAIN, WordingSplit.DEV):
        assert not any(one.unseen_pair or one.new_workers for one in drawn(split))
    pairs = {pair for one in drawn(WordingSplit.HELDOUT) for pair in LARGE.held_out if pair <= set(one.kinds)}
    assert pairs == set(LARGE.held_out)
    assert sum(one.new_workers for one in drawn(WordingSplit.HELDOUT)) > MANY / 4


@pytest.mark.parametrize("split", WordingSplit)
def test_a_split_asks_about_its_own_names_in_its_own_words(split: WordingSplit) -> None:
    places, keepers = split_names()
    others = {name for of in (places, keepers) for other in WordingSplit if other is not split for name in of[other]}
    said = {words for other in WordingSplit if other is not split for one in drawn(other) for _, words in one.workers}
    for one in drawn(split):
        assert not others & {*one.task.prompt.lower().rstrip("?.").replace(",", "").split(), one.gold}
        assert not said & {words for _, words in one.workers}


def test_every_slip_makes_a_wrong_answer_and_no_answer_stands_in_its_question() -> None:
    for one in drawn(WordingSplit.TRAIN):
        assert every_slip_matters(one.question, one.gold)
        assert one.gold not in one.task.prompt.lower().rstrip("?.").split()


def test_a_pool_has_the_specialists_unless_one_is_lacking() -> None:
    for one in drawn(WordingSplit.HELDOUT):
        able = {family for name in one.pool.names for family in ALL_PROFILES[name].skills}
        assert len(set(one.kinds) - able) == int(one.lacking)


@pytest.mark.parametrize(
    ("operation", "given", "constants", "gives"),
    [
        ("unit.feet", 12, (), 36),
        ("unit.pints", 12, (), 24),
        ("unit.shillings", 12, (), 60),
        ("numeral.roman", 1994, (), "mcmxciv"),
        ("numeral.octal", 64, (), 100),
        ("numeral.hexadecimal", 255, (), "ff"),
        ("week.name", "2026-11-22", (), "sunday"),
        ("week.place", "2024-12-31", (), 366),
        ("cipher.caesar", "xyz8", (3,), "abc1"),
        ("cipher.atbash", "abz", (), "zya"),
        ("digits.heap", 957, (), 21),
        ("digits.squares", 123, (), 14),
        ("digits.flipped", 123, (), 321),
    ],
)
def test_an_operation_does_what_its_name_says(
    operation: str, given: SimulatedValue, constants: tuple[SimulatedValue, ...], gives: SimulatedValue
) -> None:
    assert apply_with_tool(OPERATIONS[operation], [given], constants) == gives


def test_two_texts_are_woven_sign_by_sign() -> None:
    assert OPERATIONS["cipher.woven"].apply(("abc", 12345), ()) == "a1b2c345"


ODD: dict[ValueKind, tuple[SimulatedValue, ...]] = {
    ValueKind.NUMBER: (-6, 0, 1, 3_999, 4_000, 10**9),
    ValueKind.DAY: (date.min, date(2024, 2, 29), date.max),
    ValueKind.WORD: ("a", "z9", "99"),
    ValueKind.TEXT: ("a", 0, -6),
    ValueKind.NAME: ("kalo",),
}


@pytest.mark.parametrize("name", [name for name, one in OPERATIONS.items() if one.family in OURS])
def test_an_operation_bears_whatever_slips_lead_to_and_answers_can_be_read(name: str) -> None:
    one = OPERATIONS[name]
    for inputs in product(*(ODD[sort] for sort in one.takes)):
        found = format_value(one.apply(inputs, (3,) * len(one.slots)))
        assert parse_value(found, one.gives) is not None or found.startswith("-") or "-6" in found


@pytest.mark.parametrize("extra", IRRELEVANT_WORKERS, ids=lambda extra: extra.name)
def test_a_worker_of_no_use_says_that_it_cannot_whatever_it_is_told(extra: WorkerProfile) -> None:
    player = SimulatedWorker(extra)
    for one in drawn(WordingSplit.DEV, 10):
        for phrase in plan_subtasks(LARGE):
            assert player.answer(Request(one.task, phrase)).startswith((CANNOT_PREFIX, LACK_PREFIX))


def test_some_pools_have_workers_of_no_use_in_every_split() -> None:
    idle = {profile.name for profile in IRRELEVANT_WORKERS}
    for split in WordingSplit:
        counted = Counter(sum(name in idle for name in one.pool.names) for one in drawn(split))
        assert set(counted) == {0, 1, 2}


def test_the_skills_of_the_simulated_models_go_to_five_parts() -> None:
    for name in (LARGE.generalist, LARGE.novice):
        skills = ALL_PROFILES[name].skill_by_parts
        assert len(skills) == 5
        assert list(skills) == sorted(skills, reverse=True)


async def test_it_is_a_taskset_by_name() -> None:
    assert set(SIMULATED_SETS) == set(SIMULATED_DISTRIBUTIONS) <= set(BUILT_IN_SETS)
    found = load_taskset("rehearsal-large")
    assert len(found) == 100
    assert {one.difficulty for one in found} == {"1 part", *(f"{count} parts" for count in range(2, 6))}
    assert load_taskset("rehearsal").items[0].task != found.items[0].task
