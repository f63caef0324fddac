"""The generator: item `index` of a split and seed is a question, its task, its gold and a pool to answer it with.

Invariant: an item is a pure function of (split, seed, index, recipe), and its Task holds no gold, no kinds and no hint
of them. The pool is drawn first; the question is then one for which it has the specialists, but for the recipe's share
in which one is missing. Rejected: a question whose answer stands in it or is an earlier part's value. Training never
sees the two families of the held-out pair in one question.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import count as counting
from itertools import islice

from shikisha.orchestra.arrangements import drawn_shape
from shikisha.orchestra.cast import JUDGE
from shikisha.orchestra.chance import dice
from shikisha.orchestra.edition import EVERYONE, LARGE, SMALL, Edition
from shikisha.orchestra.families import FAMILIES
from shikisha.orchestra.grammar import write
from shikisha.orchestra.pools import Auditions, Casting, cast_pool, describe, draw_cast
from shikisha.orchestra.question import Part, Question, Ref, has_shortcut
from shikisha.orchestra.shapes import Shape, fitting
from shikisha.orchestra.values import SLIPS, Sort, Value, normal, show, spoilt
from shikisha.orchestra.wording import Split
from shikisha.orchestra.world import draw_day, draw_name, draw_number, draw_word
from shikisha.pool import Pool
from shikisha.task import Task


@dataclass(frozen=True, slots=True)
class Recipe:
    """What is drawn. `parts` are weights of one-, two-, three-part questions and so on.

    `lacking` is the share of questions for one of whose parts the pool has no specialist. `only_pair` draws nothing but
    compositions that training never meets (held-out split only). `noisy` is the share of questions that are drawn until
    a part is noisy work and somebody in the pool takes votes. Neither that nor the edition shows (`repr`), since what
    is drawn without them hangs on how the other fields show.
    """

    parts: tuple[float, ...] = (0.4, 0.35, 0.25)
    lacking: float = 0.12
    auditions: Auditions = field(default_factory=Auditions)
    only_pair: bool = False
    edition: Edition = field(default=SMALL, repr=False)
    noisy: float = field(default=0.0, repr=False)


STANDARD = Recipe()
LARGE_STANDARD = Recipe(
    parts=LARGE.parts, auditions=Auditions(LARGE.sizes, judge=0.5, single=LARGE.single), edition=LARGE
)
_TRIES = 1_000
_FILLS = 40


@dataclass(frozen=True, slots=True)
class Item:
    """A question with everything that a rehearsal needs. The task and the pool are for those who answer it."""

    task: Task
    pool: Pool
    question: Question
    gold: str
    casting: Casting
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
        """Whether a worker that training never meets stands in the pool."""
        return any(name in self.edition.new_names for name, _ in self.casting)

    def grade(self, answer: str | None) -> bool:
        """Whether the answer is right: its normal form is the gold's."""
        return grade(self.gold, answer)

    def again(self, luck: int, pace: float = 0.0) -> "Item":
        """Return the item with workers of other luck, or that take their time: the same question played once more."""
        return replace(self, pool=cast_pool(self.casting, luck, pace), luck=luck)

    def cast(self, *workers: str, pace: float = 0.0) -> "Item":
        """Return the item with a pool of these workers, whether they stood in its pool or not."""
        draw = dice("cast", self.task.prompt)
        casting = tuple((name, describe(EVERYONE[name], Split.HELDOUT, draw)) for name in workers)
        return replace(self, pool=cast_pool(casting, self.luck, pace), casting=casting)


def grade(gold: str, answer: str | None) -> bool:
    """Whether an answer is right."""
    return answer is not None and normal(answer) == normal(gold)


def items(split: Split, seed: int = 0, recipe: Recipe = STANDARD, count: int | None = None) -> Iterator[Item]:
    """Yield the split's items from index 0, `count` of them or without end; ValueError if the recipe cannot be met."""
    return (item(split, seed, index, recipe) for index in islice(counting(), count))


def item(split: Split, seed: int, index: int, recipe: Recipe = STANDARD) -> Item:
    """Return one item."""
    draw = dice("item", split, seed, index, *((recipe,) if recipe != STANDARD else ()))
    weights = (0.0, *recipe.parts[1:]) if recipe.only_pair else recipe.parts
    count = 1 + draw.choices(range(len(weights)), weights)[0]
    lacking = draw.random() < recipe.lacking
    noisy = recipe.noisy > 0 and draw.random() < recipe.noisy
    edition = recipe.edition
    casting, shape = _scene(split, count, recipe, lacking, noisy, draw)
    question, gold = fill(shape, split, draw)
    while not (edition.listed or every_slip_tells(question, gold)):
        casting, shape = _scene(split, count, recipe, lacking, noisy, draw)
        question, gold = fill(shape, split, draw)
    name = "rehearsal" if edition is SMALL else f"rehearsal-{edition.name}"
    code = f"{split}-{seed}-{index}" if edition is SMALL else f"{edition.name}-{split}-{seed}-{index}"
    task = Task(write(question, split, draw, edition.slots), id=code, domain=name)
    return Item(task, cast_pool(casting, seed), question, gold, casting, seed, lacking, edition)


def _scene(
    split: Split, count: int, recipe: Recipe, lacking: bool, noisy: bool, draw: random.Random
) -> tuple[Casting, Shape]:
    if recipe.only_pair and split is not Split.HELDOUT:
        raise ValueError(f"the {split} split has no held-out pair of families")
    held_out = True if recipe.only_pair else None if split is Split.HELDOUT else False
    edition = recipe.edition
    for _ in range(_TRIES):
        casting = draw_cast(recipe.auditions, split, draw, edition)
        able = frozenset(family for name, _ in casting for family in EVERYONE[name].skills)
        if lacking and not any(EVERYONE[name].is_model for name, _ in casting):
            continue  # nobody could stand in
        shape = any_shape(edition, count, able, int(lacking), held_out, draw)
        if shape is not None and (not noisy or _voted_on(shape, casting)):
            return casting, shape
    raise ValueError(f"no pool and question fit together: {count} parts, {recipe}")


def _voted_on(shape: Shape, casting: Casting) -> bool:
    """Whether a part is noisy and somebody takes votes."""
    return any(FAMILIES[name].noisy for name in shape.families) and any(name == JUDGE for name, _ in casting)


def any_shape(
    edition: Edition, count: int, able: frozenset[str], lacking: int, held_out: bool | None, draw: random.Random
) -> Shape | None:
    """Draw a shape of so many parts for which `lacking` of the families are not among the able; None: there is none."""
    if not edition.listed:
        found = drawn_shape(edition, count, sorted(able), held_out, draw, lacking)
        return found if found is not None and has_questions(found) else None
    listed = fitting(count, able, lacking, held_out, edition)
    return draw.choice(draw.choice(listed).shapes) if listed else None


@lru_cache(maxsize=1 << 16)
def has_questions(shape: Shape) -> bool:
    """Whether questions of this shape are easily found: some operations refuse whatever others give."""
    draw = dice("has questions", *(operation.name for operation in shape.operations))
    return any(_attempt(shape, Split.TRAIN, draw) is not None for _ in range(_FILLS))


def every_slip_tells(question: Question, gold: str) -> bool:
    """Whether one slip in any part, and right work after it, makes a wrong answer."""
    values = question.solve()
    for at in range(len(question) - 1):
        for slip in range(SLIPS):
            wrong = [*values[:at], spoilt(values[at], slip / SLIPS)]
            for part in question.parts[at + 1 :]:
                given = [wrong[one.part] if isinstance(one, Ref) else one for one in part.inputs]
                wrong.append(part.operation.apply(given, part.constants))
            if show(wrong[-1]) == gold:
                return False
    return True


def fill(shape: Shape, split: Split, draw: random.Random) -> tuple[Question, str]:
    """Return a question of this shape without a shortcut, and its gold."""
    while (found := _attempt(shape, split, draw)) is None:
        pass
    return found


def _attempt(shape: Shape, split: Split, draw: random.Random) -> tuple[Question, str] | None:
    question = _filled(shape, split, draw)
    if question is None:
        return None
    values = question.solve()
    return None if has_shortcut(question, values) else (question, show(values[-1]))


def _filled(shape: Shape, split: Split, draw: random.Random) -> Question | None:
    parts: list[Part] = []
    values: list[Value] = []
    for operation, uses in zip(shape.operations, shape.uses, strict=True):
        inputs = [values[place] for place in uses] or [literal(operation.takes[0], split, draw)]
        constants = operation.draw(draw, inputs)
        if constants is None:
            return None
        parts.append(Part(operation, tuple(map(Ref, uses)) or tuple(inputs), constants))
        values.append(operation.apply(inputs, constants))
    return Question(tuple(parts))


def literal(sort: Sort, split: Split, draw: random.Random) -> Value:
    """Draw a value of a sort, as a question may hold it."""
    match sort:
        case Sort.NUMBER:
            return draw_number(draw)
        case Sort.DAY:
            return draw_day(draw)
        case Sort.NAME:
            return draw_name(draw, split)
        case _:
            return draw_word(draw, split)
