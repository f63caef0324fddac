"""The task generator: task `index` of a split and seed is a question, its correct answer and a pool to answer it with.

Three things are drawn, in this order: a pool, the shape of a question that this pool can answer, and the question. A
shape says which operations follow one another, in a chain or joined at the end. Small editions list all their shapes;
large ones have too many, so `sample_shape` tries orders of families until the kinds of values fit.

Invariants: a task is a pure function of (split, seed, index, distribution), and its `Task` holds neither the answer nor
a hint of it. A pool is drawn without a look at the question. No family occurs twice in a shape, and draws are even over
combinations of families, not over operations. Training never sees two families of a held-out pair in one question. A
question is rejected when its answer stands in it or is an earlier part's value. Names of workers say what they do, so
conductors that read descriptions must not be shown names (the prompt never shows them).
"""

import random
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from itertools import count as counting
from itertools import islice
from typing import TypeAlias

from shikisha.core.task import Task
from shikisha.engine.pool import Member, Pool
from shikisha.engine.worker import Card
from shikisha.simulation.editions import ALL_PROFILES, LARGE, SMALL, Edition
from shikisha.simulation.question_families import Operation
from shikisha.simulation.questions import (
    FAMILIES,
    ComposedQuestion,
    PartReference,
    QuestionPart,
    has_shortcut,
    write_question,
)
from shikisha.simulation.seeded_random import seeded_generator
from shikisha.simulation.simulated_workers import SimulatedWorker
from shikisha.simulation.values import (
    SLIP_COUNT,
    SimulatedValue,
    ValueKind,
    corrupt_value,
    format_value,
    normalize_answer,
)
from shikisha.simulation.vocabulary import WordingSplit, draw_day, draw_name, draw_number, draw_word
from shikisha.simulation.worker_profiles import JUDGE, WorkerProfile

(HELD_OUT_PAIR,) = SMALL.held_out


@dataclass(frozen=True, slots=True)
class QuestionShape:
    """Operations in order of work, and for each the places of the operations that feed it."""

    operations: tuple[Operation, ...]
    uses: tuple[tuple[int, ...], ...]

    @property
    def families(self) -> tuple[str, ...]:
        """The kinds of work in order."""
        return tuple(operation.family for operation in self.operations)


@dataclass(frozen=True, slots=True)
class ShapeGroup:
    """The shapes of one combination of families, all chains or all joins."""

    families: frozenset[str]
    shapes: tuple[QuestionShape, ...]
    # Whether only the held-out split may have it.
    held_out: bool

    @property
    def noisy(self) -> bool:
        """Whether it is nothing but noisy work."""
        return all(FAMILIES[name].noisy for name in self.families)


@cache
def shape_groups(count: int, edition: Edition = SMALL) -> tuple[ShapeGroup, ...]:
    """Return every group of an edition's shapes of this many parts."""
    by_families: dict[tuple[tuple[str, ...], bool], list[QuestionShape]] = defaultdict(list)
    for shape in _all_shapes(count, edition):
        by_families[shape.families, shape.operations[-1].joins].append(shape)
    return tuple(
        ShapeGroup(frozenset(families), tuple(found), edition.holds_out(frozenset(families)))
        for (families, _), found in sorted(by_families.items(), key=str)
    )


@cache
def matching_groups(
    count: int, able: frozenset[str], lacking: int, held_out: bool | None, edition: Edition = SMALL
) -> tuple[ShapeGroup, ...]:
    """Return the groups for which exactly `lacking` families are not among the able ones; noisy ones twice.

    `held_out` True: only combinations that training never meets; False: none of them; None: either.
    """
    found = [
        group
        for group in shape_groups(count, edition)
        if len(group.families - able) == lacking and held_out in (None, group.held_out)
    ]
    return tuple(group for group in found for _ in range(2 if group.noisy else 1))


def _all_shapes(count: int, edition: Edition) -> Iterator[QuestionShape]:
    for chain in _all_chains(count, edition):
        yield QuestionShape(chain, tuple((place - 1,) if place else () for place in range(count)))
    for first in range(1, count - 1):
        yield from _join_shapes(first, count - 1 - first, edition)


def _join_shapes(first: int, second: int, edition: Edition) -> Iterator[QuestionShape]:
    uses = [*((place - 1,) if place else () for place in range(first))]
    uses += [(first + place - 1,) if place else () for place in range(second)]
    joining = [operation for operation in edition.operations if operation.joins]
    for left in _all_chains(first, edition):
        for right in _all_chains(second, edition):
            for operation in joining:
                one, two = operation.takes
                fits = one.accepts(left[-1].gives) and two.accepts(right[-1].gives)
                if fits and _distinct_families(*left, *right, operation):
                    yield QuestionShape((*left, *right, operation), (*uses, (first - 1, first + second - 1)))


@cache
def _all_chains(count: int, edition: Edition) -> tuple[tuple[Operation, ...], ...]:
    single = [operation for operation in edition.operations if not operation.joins]
    if count == 1:
        return tuple((operation,) for operation in single)
    return tuple(
        (*chain, operation)
        for chain in _all_chains(count - 1, edition)
        for operation in single
        if operation.takes[0].accepts(chain[-1].gives) and _distinct_families(*chain, operation)
    )


def _distinct_families(*operations: Operation) -> bool:
    return len({operation.family for operation in operations}) == len(operations)


# Share of the questions with three parts or more that join two arms.
_JOIN_SHARE = 0.4
# Orders of families to try for one form.
_FAMILY_ORDERS_TRIED = 80
_CACHE_SIZE = 1 << 16


def sample_shape(
    edition: Edition, count: int, able: Sequence[str], held_out: bool | None, rng: random.Random, lacking: int = 0
) -> QuestionShape | None:
    """Return a shape of `count` parts for which the pool lacks `lacking` families; None where none was found.

    `held_out` True: only combinations that training never meets; False: none of them; None: either.
    """
    others = [name for name in edition.families if name not in able] if lacking else []
    if len(able) < count - lacking or len(others) < lacking:
        return None
    for first in _arm_lengths(count, rng):
        for _ in range(_FAMILY_ORDERS_TRIED):
            families = _sample_families(able, others, count, lacking, rng)
            if held_out is not None and edition.holds_out(frozenset(families)) is not held_out:
                continue
            if found := _shapes_of_families(families, first):
                return rng.choice(found)
    return None


def _sample_families(
    able: Sequence[str], others: Sequence[str], count: int, lacking: int, rng: random.Random
) -> tuple[str, ...]:
    """Draw families in an order; for one part, noisy families twice as often."""
    if count > 1:
        chosen = rng.sample(able, count - lacking)
        if lacking:
            chosen += rng.sample(others, lacking)
            rng.shuffle(chosen)
        return tuple(chosen)
    among = others if lacking else able
    return (rng.choice([name for name in among for _ in range(2 if FAMILIES[name].noisy else 1)]),)


def _arm_lengths(count: int, rng: random.Random) -> list[int]:
    """Return how long the first arm is (0: a chain), in the order in which forms are tried."""
    arms = list(range(1, count - 1))
    rng.shuffle(arms)
    return [*arms[:1], 0] if arms and rng.random() < _JOIN_SHARE else [0, *arms]


@lru_cache(maxsize=_CACHE_SIZE)
def _shapes_of_families(families: tuple[str, ...], first: int) -> tuple[QuestionShape, ...]:
    count = len(families)
    if not first:
        row = tuple((place - 1,) if place else () for place in range(count))
        return tuple(QuestionShape(chain, row) for chain in _chains_of_families(families))
    arms = tuple((place - 1,) if place and place != first else () for place in range(count - 1))
    uses: tuple[tuple[int, ...], ...] = (*arms, (first - 1, count - 2))
    return tuple(
        QuestionShape((*left, *right, last), uses)
        for last in FAMILIES[families[-1]].operations
        if last.joins
        for left in _chains_of_families(families[:first])
        if last.takes[0].accepts(left[-1].gives)
        for right in _chains_of_families(families[first:-1])
        if last.takes[1].accepts(right[-1].gives)
    )


@lru_cache(maxsize=_CACHE_SIZE)
def _chains_of_families(families: tuple[str, ...]) -> tuple[tuple[Operation, ...], ...]:
    last = [operation for operation in FAMILIES[families[-1]].operations if not operation.joins]
    if len(families) == 1:
        return tuple((operation,) for operation in last)
    return tuple(
        (*chain, operation)
        for chain in _chains_of_families(families[:-1])
        for operation in last
        if operation.takes[0].accepts(chain[-1].gives)
    )


# (profile's name, description), in the pool's order.
PoolWorkers: TypeAlias = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class PoolDistribution:
    """How a pool is drawn: its size, how often it has models and a judge, how often a specialist has one skill.

    `only_new` takes workers of several skills from those that training never meets (held-out split only).
    """

    sizes: tuple[int, ...] = (4, 5, 6)
    generalist: float = 0.4
    novice: float = 0.5
    judge: float = 0.6
    single: float = 0.65
    only_new: bool = False


def draw_pool_workers(
    distribution: PoolDistribution, split: WordingSplit, rng: random.Random, edition: Edition = SMALL
) -> PoolWorkers:
    """Draw the pool's workers and how each is described."""
    size = rng.choice(distribution.sizes)
    shares = (
        (edition.generalist, distribution.generalist),
        (edition.novice, distribution.novice),
        (JUDGE, distribution.judge),
    )
    chosen = [ALL_PROFILES[name] for name, often in shares if rng.random() < often]
    if edition.extras:
        chosen += rng.sample(edition.extras, rng.choices(range(len(edition.extra)), edition.extra)[0])
    rng.shuffle(chosen)
    del chosen[max(size - 2, 0) :]
    skilled = _held_out_workers(split, edition) if distribution.only_new else edition.skilled(split)
    while len(chosen) < size:
        profile = rng.choice(edition.specialists if rng.random() < distribution.single else skilled)
        if profile not in chosen:
            chosen.append(profile)
    rng.shuffle(chosen)
    return tuple((profile.name, describe_worker(profile, split, rng)) for profile in chosen)


def _held_out_workers(split: WordingSplit, edition: Edition) -> tuple[WorkerProfile, ...]:
    if split is not WordingSplit.HELDOUT:
        raise ValueError(f"the {split} split has no new two-skilled workers")
    return edition.new


def describe_worker(profile: WorkerProfile, split: WordingSplit, rng: random.Random) -> str:
    """Describe a worker in one of the split's wordings; two skills in either order."""
    offers = [rng.choice(offer.by_split[split]) for offer in profile.descriptions]
    rng.shuffle(offers)
    return " and ".join(offers)


def build_pool(workers: Sequence[tuple[str, str]], luck: int = 0, pace: float = 0.0) -> Pool:
    """Return the pool of these workers."""
    return Pool([_pool_member(name, description, luck, pace) for name, description in workers])


@lru_cache(maxsize=1 << 15)
def _pool_member(name: str, description: str, luck: int, pace: float) -> Member:
    profile = ALL_PROFILES[name]
    card = Card(
        name=name,
        description=description,
        kind="simulated" if profile.is_model else "vote" if profile.vote else "tool",
        price=profile.price,
        max_output_tokens=32 if profile.is_model else 0,
    )
    return Member(card, SimulatedWorker(profile, luck, pace))


@dataclass(frozen=True, slots=True)
class TaskDistribution:
    """How tasks are drawn. `parts` are weights of one-, two-, three-part questions and so on.

    `lacking` is the share of questions with a part for which the pool has no specialist. `only_pair` draws nothing but
    compositions that training never meets (held-out split only). `noisy` is the share of questions that are drawn until
    a part is noisy work and a worker of the pool takes votes.
    """

    parts: tuple[float, ...] = (0.4, 0.35, 0.25)
    lacking: float = 0.12
    pool: PoolDistribution = field(default_factory=PoolDistribution)
    only_pair: bool = False
    edition: Edition = SMALL
    noisy: float = 0.0

    @property
    def seed_text(self) -> str:
        """What seeds the draws: the words of version 0.1, so that every task stays the same; never change them."""
        pool = self.pool
        pools = (
            f"Auditions(sizes={pool.sizes}, generalist={pool.generalist}, novice={pool.novice}, judge={pool.judge}, "
            f"single={pool.single}, only_new={pool.only_new})"
        )
        return f"Recipe(parts={self.parts}, lacking={self.lacking}, auditions={pools}, only_pair={self.only_pair})"


SMALL_TASKS = TaskDistribution()
LARGE_TASKS = TaskDistribution(
    parts=LARGE.parts, pool=PoolDistribution(LARGE.sizes, judge=0.5, single=LARGE.single), edition=LARGE
)
_POOLS_TRIED = 1_000
_QUESTIONS_TRIED = 40


@dataclass(frozen=True, slots=True)
class SimulatedTask:
    """A task with everything that a simulation needs; conductors and workers see only `task` and `pool`."""

    task: Task
    pool: Pool
    question: ComposedQuestion
    gold: str
    workers: PoolWorkers
    luck: int
    lacking: bool
    edition: Edition = SMALL

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of work that the question takes, in order."""
        return self.question.families

    @property
    def unseen_pair(self) -> bool:
        """Whether the question brings together two kinds of work that training never sees in one question."""
        return self.edition.holds_out(frozenset(self.kinds))

    @property
    def new_workers(self) -> bool:
        """Whether the pool has a worker that training never meets."""
        return any(name in self.edition.new_names for name, _ in self.workers)

    def grade(self, answer: str | None) -> bool:
        """Whether the answer is right: its normal form is that of the correct answer."""
        return answer_matches(self.gold, answer)

    def with_luck(self, luck: int, pace: float = 0.0) -> "SimulatedTask":
        """Return the same task with workers of other luck or pace."""
        return replace(self, pool=build_pool(self.workers, luck, pace), luck=luck)

    def with_workers(self, *names: str, pace: float = 0.0) -> "SimulatedTask":
        """Return the same question with a pool of these workers."""
        rng = seeded_generator("cast", self.task.prompt)
        workers = tuple((name, describe_worker(ALL_PROFILES[name], WordingSplit.HELDOUT, rng)) for name in names)
        return replace(self, pool=build_pool(workers, self.luck, pace), workers=workers)


def answer_matches(gold: str, answer: str | None) -> bool:
    """Whether an answer is right."""
    return answer is not None and normalize_answer(answer) == normalize_answer(gold)


def generate_tasks(
    split: WordingSplit, seed: int = 0, distribution: TaskDistribution = SMALL_TASKS, count: int | None = None
) -> Iterator[SimulatedTask]:
    """Yield the split's tasks from index 0, `count` of them or without end.

    ValueError where no pool and question fit the distribution.
    """
    return (generate_task(split, seed, index, distribution) for index in islice(counting(), count))


def generate_task(
    split: WordingSplit, seed: int, index: int, distribution: TaskDistribution = SMALL_TASKS
) -> SimulatedTask:
    """Return one task."""
    settings = () if distribution == SMALL_TASKS else (distribution.seed_text,)
    rng = seeded_generator("item", split, seed, index, *settings)
    weights = (0.0, *distribution.parts[1:]) if distribution.only_pair else distribution.parts
    count = 1 + rng.choices(range(len(weights)), weights)[0]
    lacking = rng.random() < distribution.lacking
    noisy = distribution.noisy > 0 and rng.random() < distribution.noisy
    edition = distribution.edition
    workers, shape = _draw_pool_and_shape(split, count, distribution, lacking, noisy, rng)
    question, gold = draw_question(shape, split, rng)
    while not (edition.listed or every_slip_matters(question, gold)):
        workers, shape = _draw_pool_and_shape(split, count, distribution, lacking, noisy, rng)
        question, gold = draw_question(shape, split, rng)
    name = "rehearsal" if edition is SMALL else f"rehearsal-{edition.name}"
    code = f"{split}-{seed}-{index}" if edition is SMALL else f"{edition.name}-{split}-{seed}-{index}"
    task = Task(write_question(question, split, rng, edition.slots), id=code, domain=name)
    return SimulatedTask(task, build_pool(workers, seed), question, gold, workers, seed, lacking, edition)


def _draw_pool_and_shape(
    split: WordingSplit, count: int, distribution: TaskDistribution, lacking: bool, noisy: bool, rng: random.Random
) -> tuple[PoolWorkers, QuestionShape]:
    if distribution.only_pair and split is not WordingSplit.HELDOUT:
        raise ValueError(f"the {split} split has no held-out pair of families")
    held_out = True if distribution.only_pair else None if split is WordingSplit.HELDOUT else False
    edition = distribution.edition
    for _ in range(_POOLS_TRIED):
        workers = draw_pool_workers(distribution.pool, split, rng, edition)
        able = frozenset(family for name, _ in workers for family in ALL_PROFILES[name].skills)
        if lacking and not any(ALL_PROFILES[name].is_model for name, _ in workers):
            continue  # no worker could replace the missing specialist
        shape = draw_shape(edition, count, able, int(lacking), held_out, rng)
        if shape is not None and (not noisy or _can_be_voted_on(shape, workers)):
            return workers, shape
    raise ValueError(f"no pool and question fit together: {count} parts, {distribution}")


def _can_be_voted_on(shape: QuestionShape, workers: PoolWorkers) -> bool:
    """Whether a part is noisy and the pool has a judge."""
    return any(FAMILIES[name].noisy for name in shape.families) and any(name == JUDGE for name, _ in workers)


def draw_shape(
    edition: Edition, count: int, able: frozenset[str], lacking: int, held_out: bool | None, rng: random.Random
) -> QuestionShape | None:
    """Draw a shape of `count` parts for which the pool lacks `lacking` families; None where there is none."""
    if not edition.listed:
        found = sample_shape(edition, count, sorted(able), held_out, rng, lacking)
        return found if found is not None and has_valid_questions(found) else None
    listed = matching_groups(count, able, lacking, held_out, edition)
    return rng.choice(rng.choice(listed).shapes) if listed else None


@lru_cache(maxsize=1 << 16)
def has_valid_questions(shape: QuestionShape) -> bool:
    """Whether questions of this shape are easy to find: some operations reject every value of others."""
    rng = seeded_generator("has questions", *(operation.name for operation in shape.operations))
    return any(_try_question_and_gold(shape, WordingSplit.TRAIN, rng) is not None for _ in range(_QUESTIONS_TRIED))


def every_slip_matters(question: ComposedQuestion, gold: str) -> bool:
    """Whether one slip in any part, with correct work after it, gives a wrong answer."""
    values = question.solve()
    for at in range(len(question) - 1):
        for slip in range(SLIP_COUNT):
            wrong = [*values[:at], corrupt_value(values[at], slip / SLIP_COUNT)]
            for part in question.parts[at + 1 :]:
                given = [wrong[one.part] if isinstance(one, PartReference) else one for one in part.inputs]
                wrong.append(part.operation.apply(given, part.constants))
            if format_value(wrong[-1]) == gold:
                return False
    return True


def draw_question(shape: QuestionShape, split: WordingSplit, rng: random.Random) -> tuple[ComposedQuestion, str]:
    """Return a question of this shape without a shortcut, and its correct answer."""
    while (found := _try_question_and_gold(shape, split, rng)) is None:
        pass
    return found


def _try_question_and_gold(
    shape: QuestionShape, split: WordingSplit, rng: random.Random
) -> tuple[ComposedQuestion, str] | None:
    question = _try_question(shape, split, rng)
    if question is None:
        return None
    values = question.solve()
    return None if has_shortcut(question, values) else (question, format_value(values[-1]))


def _try_question(shape: QuestionShape, split: WordingSplit, rng: random.Random) -> ComposedQuestion | None:
    parts: list[QuestionPart] = []
    values: list[SimulatedValue] = []
    for operation, uses in zip(shape.operations, shape.uses, strict=True):
        inputs = [values[place] for place in uses] or [draw_value(operation.takes[0], split, rng)]
        constants = operation.draw(rng, inputs)
        if constants is None:
            return None
        parts.append(QuestionPart(operation, tuple(map(PartReference, uses)) or tuple(inputs), constants))
        values.append(operation.apply(inputs, constants))
    return ComposedQuestion(tuple(parts))


def draw_value(kind: ValueKind, split: WordingSplit, rng: random.Random) -> SimulatedValue:
    """Draw a value of this kind, as questions have them."""
    match kind:
        case ValueKind.NUMBER:
            return draw_number(rng)
        case ValueKind.DAY:
            return draw_day(rng)
        case ValueKind.NAME:
            return draw_name(rng, split)
        case _:
            return draw_word(rng, split)
