"""The rehearsal questions: reproducible, split for good, without short cuts."""

from collections import Counter
from dataclasses import replace
from functools import cache

import pytest

from shikisha.core.task import Task
from shikisha.engine.worker import Request
from shikisha.simulation.questions import (
    FAMILIES,
    OPERATIONS,
    ComposedQuestion,
    PartReference,
    QuestionPart,
    has_shortcut,
)
from shikisha.simulation.seeded_random import seeded_generator
from shikisha.simulation.simulated_workers import SimulatedWorker
from shikisha.simulation.task_generator import (
    SMALL_TASKS,
    PoolDistribution,
    SimulatedTask,
    TaskDistribution,
    draw_question,
    generate_task,
    generate_tasks,
    shape_groups,
)
from shikisha.simulation.values import SLIP_COUNT, corrupt_value, format_value
from shikisha.simulation.vocabulary import WordingSplit, split_names
from shikisha.simulation.worker_profiles import GENERALIST, HELD_OUT_NAMES, JUDGE, PROFILES

MANY = 1_500


@cache
def drawn(split: WordingSplit, count: int = MANY, recipe: TaskDistribution = SMALL_TASKS) -> list[SimulatedTask]:
    return list(generate_tasks(split, 1, recipe, count))


def same(one: SimulatedTask, other: SimulatedTask) -> bool:
    return (one.task, one.gold, one.question, one.workers) == (other.task, other.gold, other.question, other.workers)


@pytest.mark.parametrize("split", WordingSplit)
def test_an_item_hangs_on_split_seed_and_index_alone(split: WordingSplit) -> None:
    first = drawn(split, 40)
    assert all(same(one, generate_task(split, 1, index)) for index, one in reversed(list(enumerate(first))))
    assert not any(same(one, generate_task(split, 2, index)) for index, one in enumerate(first))


def test_a_drawn_item_is_what_it_was_when_this_test_was_written() -> None:
    known = generate_task(WordingSplit.HELDOUT, 7, 0)
    assert known.task.prompt == (
        "Get the height on the dial of the owner of buvu in the register. Now work out "
        "the day met from 16 may 2037 taking it as days."
    )
    assert known.gold == "2039-04-12"
    assert known.pool.names == ("judge", "fact-gauge", "simulated-novice", "date-gauge")


def test_splits_share_no_question_and_no_description() -> None:
    by_split = {split: drawn(split, 400) for split in WordingSplit}
    for one, other in (
        (WordingSplit.TRAIN, WordingSplit.HELDOUT),
        (WordingSplit.TRAIN, WordingSplit.DEV),
        (WordingSplit.DEV, WordingSplit.HELDOUT),
    ):
        prompts = [{drawn.task.prompt for drawn in by_split[split]} for split in (one, other)]
        said = [{words for drawn in by_split[split] for _, words in drawn.workers} for split in (one, other)]
        assert not prompts[0] & prompts[1]
        assert not said[0] & said[1]


@pytest.mark.parametrize("split", WordingSplit)
def test_a_split_asks_about_its_own_names(split: WordingSplit) -> None:
    places, keepers = split_names()
    others = {name for of in (places, keepers) for other in WordingSplit if other is not split for name in of[other]}
    for one in drawn(split, 300):
        assert not others & {*one.task.prompt.lower().rstrip("?.").replace(",", "").split(), one.gold}


def test_the_held_out_pair_is_in_the_held_out_split_only() -> None:
    for split in (WordingSplit.TRAIN, WordingSplit.DEV):
        assert not any(one.unseen_pair for one in drawn(split))
    assert 10 < sum(one.unseen_pair for one in drawn(WordingSplit.HELDOUT)) < MANY / 5


def test_new_workers_are_in_the_held_out_split_only() -> None:
    assert not any(one.new_workers for one in drawn(WordingSplit.TRAIN))
    assert any(one.new_workers for one in drawn(WordingSplit.HELDOUT))


def test_no_answer_stands_in_its_question_or_is_an_earlier_value() -> None:
    for one in drawn(WordingSplit.TRAIN):
        values = [format_value(value) for value in one.question.solve()]
        assert values[-1] == one.gold
        assert one.gold not in values[:-1]
        assert one.gold not in one.task.prompt.lower().rstrip("?.").split()


def test_a_question_with_a_shortcut_is_recognised() -> None:
    reverse, grow = OPERATIONS["text.reverse"], OPERATIONS["arithmetic.shrink"]
    palindrome = ComposedQuestion((QuestionPart(reverse, ("kak",)),))
    constant = ComposedQuestion((QuestionPart(grow, (10,), (3, 15)),))
    earlier = ComposedQuestion(
        (
            QuestionPart(grow, (10,), (5, 28)),
            QuestionPart(OPERATIONS["comparison.nearest"], (PartReference(0),), (44, 0, 0)),
        )
    )
    assert all(has_shortcut(question, question.solve()) for question in (palindrome, constant, earlier))
    honest = ComposedQuestion((QuestionPart(grow, (10,), (5, 28)),))
    assert not has_shortcut(honest, honest.solve())


def test_a_slip_in_any_part_makes_a_wrong_answer() -> None:
    draw = seeded_generator("slips")
    for group in (*shape_groups(2), *shape_groups(3)):
        question, gold = draw_question(group.shapes[0], WordingSplit.TRAIN, draw)
        values = question.solve()
        for at, slip in ((at, slip) for at in range(len(values) - 1) for slip in range(SLIP_COUNT)):
            wrong = [*values[:at], corrupt_value(values[at], slip / SLIP_COUNT)]
            for part in question.parts[at + 1 :]:
                inputs = [wrong[one.part] if isinstance(one, PartReference) else one for one in part.inputs]
                wrong.append(part.operation.apply(inputs, part.constants))
            assert format_value(wrong[-1]) != gold, (question, at, slip)


def test_a_task_tells_neither_gold_nor_kinds() -> None:
    for index, one in enumerate(drawn(WordingSplit.TRAIN, 200)):
        assert one.task == Task(one.task.prompt, id=f"train-1-{index}", domain="rehearsal")


def test_parts_and_forms_come_in_their_shares() -> None:
    found = drawn(WordingSplit.TRAIN)
    counts = Counter(len(one.kinds) for one in found)
    for parts, share in zip((1, 2, 3), TaskDistribution().parts, strict=True):
        assert abs(counts[parts] / MANY - share) < 0.05
    assert min(Counter(kind for one in found for kind in one.kinds).values()) > MANY / 6
    assert 50 < sum(one.question.joined for one in found) < counts[3]


def test_pools_are_random_in_members_and_order() -> None:
    found = drawn(WordingSplit.TRAIN)
    assert {len(one.pool) for one in found} == {4, 5, 6}
    assert len({name for one in found for name in one.pool.names}) == len(PROFILES) - len(HELD_OUT_NAMES)
    present = [one for one in found if GENERALIST in one.pool.names]
    assert 0.25 < len(present) / MANY < 0.6
    assert {one.pool.names.index(GENERALIST) for one in present} == set(range(6))


def test_a_pool_has_the_specialists_unless_one_is_lacking() -> None:
    for one in drawn(WordingSplit.TRAIN, 500):
        able = {family for name in one.pool.names for family in PROFILES[name].skills}
        assert len(set(one.kinds) - able) == int(one.lacking)
        assert not one.lacking or any(PROFILES[name].is_model for name in one.pool.names)


def test_cards_show_price_and_description_and_no_skills() -> None:
    for card in generate_task(WordingSplit.TRAIN, 1, 0).pool.cards:
        assert card.price is not None
        assert card.description
        assert card.skills == ()
        assert card.kind == {JUDGE: "vote", GENERALIST: "simulated"}.get(card.name, card.kind)


def test_a_recipe_changes_what_is_drawn() -> None:
    large = TaskDistribution(parts=(0, 0, 0, 1), lacking=0.0, pool=PoolDistribution(sizes=(8,)))
    assert {(len(one.kinds), len(one.pool)) for one in drawn(WordingSplit.TRAIN, 50, recipe=large)} == {(4, 8)}
    pair = TaskDistribution(only_pair=True, pool=PoolDistribution(only_new=True))
    assert all({"text", "date"} <= set(one.kinds) for one in drawn(WordingSplit.HELDOUT, 50, recipe=pair))
    lacking = TaskDistribution(lacking=1.0)
    assert all(one.lacking for one in drawn(WordingSplit.DEV, 50, recipe=lacking))


def voted_on(one: SimulatedTask) -> bool:
    return any(FAMILIES[kind].noisy for kind in one.kinds) and JUDGE in one.pool.names


def test_a_recipe_may_ask_for_noisy_work_and_somebody_who_takes_votes() -> None:
    seldom, always, often = (
        drawn(WordingSplit.TRAIN, 200, recipe=TaskDistribution(noisy=share)) for share in (0.0, 1.0, 0.5)
    )
    assert all(map(voted_on, always))
    assert {len(one.kinds) for one in always} == {1, 2, 3}
    assert sum(map(voted_on, seldom)) < 60 < 100 < sum(map(voted_on, often)) < 160
    assert all(same(one, other) for one, other in zip(seldom, drawn(WordingSplit.TRAIN, 200), strict=True))


@pytest.mark.parametrize(
    ("split", "recipe", "why"),
    [
        (WordingSplit.TRAIN, TaskDistribution(only_pair=True), "no held-out pair"),
        (WordingSplit.TRAIN, TaskDistribution(pool=PoolDistribution(only_new=True)), "no new two-skilled workers"),
        (
            WordingSplit.DEV,
            TaskDistribution(lacking=1.0, pool=PoolDistribution(generalist=0, novice=0)),
            "no pool and question fit",
        ),
    ],
)
def test_a_recipe_that_cannot_be_met_is_refused(split: WordingSplit, recipe: TaskDistribution, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        drawn(split, 20, recipe=recipe)


def test_other_luck_is_another_performance_of_the_same_question() -> None:
    one = generate_task(WordingSplit.TRAIN, 1, 3)
    again = one.with_luck(luck=99)
    assert same(one, again)
    assert [member.worker.luck for member in again.pool if isinstance(member.worker, SimulatedWorker)] == [99] * len(
        one.pool
    )
    assert one.with_workers(GENERALIST).pool.names == (GENERALIST,)


def test_workers_need_nothing_but_the_request() -> None:
    one = generate_task(WordingSplit.HELDOUT, 1, 3)
    renamed = replace(one.task, id="", domain="", labels=())
    for member in one.pool:
        assert isinstance(member.worker, SimulatedWorker)
        said = [member.worker.answer(Request(task, "answer the question", key="k")) for task in (one.task, renamed)]
        assert said[0] == said[1]
