"""Questions of the office: parts in an order of work, and the sentences in which somebody asks them.

A part is an operation on literals or on earlier parts' values. A question is a chain, two arms that are joined, or a
chain whose rest depends on a value ("if that is above 500, …; if not, …"). One author writes all its sentences, one for
each part, in the order of work; an author's noise (a greeting, a distractor, filler, typing errors) is around and in
them.

Invariants: `OfficeQuestion` is a function of the generator. A sentence of each part is in the text to the letter, so
that a subtask can quote it. Noise changes no name, number or date that a part needs. Authors are split into those of
training and those that are held out. Deliberately absent: who can do what (`staff`).
"""

import random
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib.resources import files

from shikisha_train.office.company import (
    OFFICE_OPERATIONS,
    EntityKind,
    OfficeOperation,
    OfficeValue,
    WorkKind,
    draw_entity,
    write_value,
)

MAX_PARTS = 6
_MOST_OF_A_KIND = 2
_TYPED_WORD = re.compile(r"\b[a-z]{5,}\b")
# What a right answer is worth, and how a task says it.
STAKES = ((1.0, ""), (2.5, "It matters that this is right."), (0.4, "Not important, keep it cheap."))
_LOWERCASE_AUTHORS = ("hurried", "sloppy", "telegraph", "developer", "texter", "gamer", "teen", "speaker")


class AuthorSplit(StrEnum):
    """Authors that training may read, and authors that it never sees."""

    TRAIN = "train"
    HELDOUT = "heldout"
    FRESH = "fresh"


@dataclass(frozen=True, slots=True)
class EarlierPart:
    """The value of an earlier part."""

    part: int


@dataclass(frozen=True, slots=True)
class OfficePart:
    """One operation on literals or earlier parts' values."""

    operation: OfficeOperation
    inputs: tuple[OfficeValue | EarlierPart, ...]
    constants: tuple[int, ...] = ()

    @property
    def kind(self) -> WorkKind:
        """The kind of work that it is."""
        return self.operation.kind

    @property
    def uses(self) -> tuple[int, ...]:
        """The parts whose values it needs."""
        return tuple(given.part for given in self.inputs if isinstance(given, EarlierPart))


@dataclass(frozen=True, slots=True)
class OfficeCondition:
    """Parts from `first_then` are asked for if part `on` gives more than `threshold`, else those from `first_else`."""

    on: int
    threshold: int
    first_then: int
    first_else: int


@dataclass(frozen=True)
class OfficeQuestion:
    """Parts in an order of work, their sentences, and the whole text."""

    parts: tuple[OfficePart, ...]
    condition: OfficeCondition | None
    author: str
    sentences: tuple[str, ...]
    text: str

    def __len__(self) -> int:
        return len(self.parts)

    def taken(self, value: OfficeValue) -> tuple[int, ...]:
        """Return the parts that are asked for when the condition's part has this value; all without a condition."""
        rule = self.condition
        if rule is None:
            return tuple(range(len(self.parts)))
        above = isinstance(value, int) and value > rule.threshold
        branch = range(rule.first_then, rule.first_else) if above else range(rule.first_else, len(self.parts))
        return (*range(rule.first_then), *branch)

    def solve(self) -> tuple[OfficeValue, ...]:
        """Return every part's true value, those of the branch that is not taken too."""
        values: list[OfficeValue] = []
        for part in self.parts:
            inputs = [values[given.part] if isinstance(given, EarlierPart) else given for given in part.inputs]
            values.append(part.operation.apply(inputs, part.constants))
        return tuple(values)

    def is_closed(self, block: Sequence[int], path: Sequence[int]) -> bool:
        """Whether one call can do these parts of a path: what comes after needs none of them but the last."""
        inner, after = set(block[:-1]), [part for part in path if part > block[-1]]
        rule = self.condition
        if rule is not None and rule.on in inner and after:
            return False
        return not any(inner & set(self.parts[part].uses) for part in after)

    @property
    def path(self) -> tuple[int, ...]:
        """The parts that a right answer takes."""
        rule = self.condition
        return self.taken(0 if rule is None else self.solve()[rule.on])

    @property
    def answer(self) -> str:
        """The right answer."""
        return write_value(self.solve()[self.path[-1]])


@dataclass(frozen=True, slots=True)
class OfficeNoise:
    """How often (0 to 1) a question has a greeting or thanks, a distractor, a filler paragraph, typing errors."""

    polite: float = 0.3
    distractor: float = 0.25
    filler: float = 0.1
    typing: float = 0.15


NO_NOISE = OfficeNoise(0, 0, 0, 0)


@cache
def office_wordings() -> Mapping[str, Mapping[str, tuple[str, ...]]]:
    """Return what authors write, by operation (or kind of noise) and author: `wordings()["room"]["terse"]`."""
    table = tomllib.loads(files("shikisha_train.office").joinpath("wordings.toml").read_text("utf-8"))
    return {name: {author: tuple(texts) for author, texts in by.items()} for name, by in table["wordings"].items()}


@cache
def office_authors(split: AuthorSplit) -> tuple[str, ...]:
    """Return the split's authors."""
    table = tomllib.loads(files("shikisha_train.office").joinpath("wordings.toml").read_text("utf-8"))
    return tuple(table["authors"][split])


def draw_question(
    count: int, rng: random.Random, authors: Sequence[str], noise: OfficeNoise = NO_NOISE, conditional: float = 0.2
) -> OfficeQuestion:
    """Draw a question of `count` parts on the path that the answer takes, in the words of one of the authors.

    A question with a condition has two or more parts on its path, and as many in the branch that is not taken as in the
    one that is. ValueError for a count below 1 or above MAX_PARTS.
    """
    if not 1 <= count <= MAX_PARTS:
        raise ValueError(f"parts: expected 1 to {MAX_PARTS}, not {count}")
    condition = None
    if count >= 2 and rng.random() < conditional:
        rest = rng.randint(1, min(2, count - 1))
        stem = _draw_chain(count - rest, rng, gives=EntityKind.NUMBER)
        then = _draw_chain(rest, rng, at=len(stem))
        other = _draw_chain(rest, rng, at=len(stem) + rest)
        plain = OfficeQuestion(tuple(stem), None, "", (), "")
        value = int(str(plain.solve()[-1]))
        # Near the value, so that both branches are as likely and a wrong value often leads to the wrong one.
        threshold = int(value * rng.choice((0.8, 0.9, 1.1, 1.25)))
        parts, condition = (
            [*stem, *then, *other],
            OfficeCondition(len(stem) - 1, threshold, len(stem), len(stem) + rest),
        )
    elif count >= 3 and rng.random() < 0.35:
        joining = rng.choice([each for each in OFFICE_OPERATIONS.values() if each.joins])
        first = rng.randint(1, count - 2)
        left = _draw_chain(first, rng, gives=joining.takes[0])
        right = _draw_chain(count - 1 - first, rng, gives=joining.takes[1], at=first)
        parts = [*left, *right, OfficePart(joining, (EarlierPart(first - 1), EarlierPart(count - 2)))]
    else:
        parts = _draw_chain(count, rng)
    return _write(parts, condition, rng.choice(authors), noise, rng)


def _draw_chain(
    count: int, rng: random.Random, at: int = 0, gives: EntityKind | None = None, like: Sequence[OfficePart] = ()
) -> list[OfficePart]:
    """Draw `count` parts, each of which takes the value of the one before, and the last of which `gives` this kind.

    The first part takes a literal. `at` is the place of the first in the question. Kinds of work are drawn evenly.
    """
    if len(like) == count:
        return list(like) if gives is None or like[-1].operation.gives is gives else []
    taken = {part.operation.name for part in like}
    fitting = [
        each
        for each in OFFICE_OPERATIONS.values()
        if not each.joins
        and (not like or each.takes[0] is like[-1].operation.gives)
        and each.name not in taken
        and sum(part.kind is each.kind for part in like) < _MOST_OF_A_KIND
    ]
    kinds = sorted({each.kind for each in fitting})
    rng.shuffle(kinds)
    for kind in kinds:
        operations = [each for each in fitting if each.kind is kind]
        for operation in rng.sample(operations, len(operations)):
            literal = draw_entity(operation.takes[0], rng.randrange(1 << 30))
            inputs = (EarlierPart(at + len(like) - 1) if like else literal,)
            constants = tuple(rng.randint(*span) for span in operation.constants)
            part = OfficePart(operation, inputs, constants)
            if chain := _draw_chain(count, rng, at, gives, (*like, part)):
                return chain
    return []


def _write(
    parts: Sequence[OfficePart], condition: OfficeCondition | None, author: str, noise: OfficeNoise, rng: random.Random
) -> OfficeQuestion:
    said: list[str] = []
    sentences: list[str] = []
    for place, part in enumerate(parts):
        lead = ""
        if condition is not None and place in (condition.first_then, condition.first_else):
            name = "if_above" if place == condition.first_then else "if_not"
            lead = rng.choice(office_wordings()[name][author]).format(t=condition.threshold) + " "
        sentence = write_part(part, author, rng)
        literals = tuple(write_value(given) for given in part.inputs if not isinstance(given, EarlierPart))
        if not lead and author not in _LOWERCASE_AUTHORS and not sentence.startswith(literals):
            sentence = sentence[0].upper() + sentence[1:]
        if rng.random() < noise.typing:
            sentence = _mistype(sentence, part, rng)
        sentences.append(sentence)
        said.append(lead + sentence)
        if rng.random() < noise.distractor / len(parts):
            said.append(rng.choice(office_wordings()["distractor"][author]).format(**draw_names(rng)))
    text = " ".join(said)
    if rng.random() < noise.filler:
        filler = rng.choice(office_wordings()["filler"][author])
        text = f"{filler}\n\n{text}" if rng.random() < 0.7 else f"{text}\n\n{filler}"
    if rng.random() < noise.polite:
        text = f"{rng.choice(office_wordings()['greeting'][author])} {text}"
    if rng.random() < noise.polite:
        text = f"{text} {rng.choice(office_wordings()['thanks'][author])}"
    return OfficeQuestion(tuple(parts), condition, author, tuple(sentences), text)


def write_part(part: OfficePart, author: str, rng: random.Random) -> str:
    """Return a sentence in which this author asks for a part; it begins in lower case."""
    slots = dict(zip("cd", map(str, part.constants), strict=False))
    for slot, given, kind in zip("xy", part.inputs, part.operation.takes, strict=False):
        if isinstance(given, EarlierPart):
            slots[slot] = rng.choice(office_wordings()[f"that_{kind}"][author])
        else:
            slots[slot] = write_value(given)
    return rng.choice(office_wordings()[part.operation.name][author]).format(**slots)


def draw_names(rng: random.Random) -> dict[str, str]:
    """Return things that a remark may name: a person, a room, an invoice, a day."""
    kinds = {"person": EntityKind.PERSON, "room": EntityKind.ROOM, "invoice": EntityKind.INVOICE, "day": EntityKind.DAY}
    return {name: write_value(draw_entity(kind, rng.randrange(1 << 30))) for name, kind in kinds.items()}


def _mistype(sentence: str, part: OfficePart, rng: random.Random) -> str:
    """Swap two letters in one or two plain words that name nothing."""
    named = " ".join(write_value(given) for given in part.inputs if not isinstance(given, EarlierPart))
    places = [found.span() for found in _TYPED_WORD.finditer(sentence) if found[0] not in named]
    for start, end in rng.sample(places, min(len(places), rng.randint(1, 2))):
        at = rng.randrange(start + 1, end - 2)
        sentence = f"{sentence[:at]}{sentence[at + 1]}{sentence[at]}{sentence[at + 2 :]}"
    return sentence


_WORD = re.compile(r"[\w-]+")


def parts_in(subtask: str, question: OfficeQuestion) -> tuple[int, ...]:
    """Return the parts that a subtask asks for: those whose sentence it quotes, else the one that it resembles most.

    A subtask that resembles no sentence, or quotes the whole question, asks for every part.
    """
    found = tuple(place for place, sentence in enumerate(question.sentences) if sentence and sentence in subtask)
    if found:
        return found
    words = set(_WORD.findall(subtask.lower()))
    scores = [(_resemblance(words, sentence), -place) for place, sentence in enumerate(question.sentences)]
    best, place = max(scores)
    return (-place,) if best >= 0.5 else tuple(range(len(question)))


def _resemblance(words: set[str], sentence: str) -> float:
    """Return which share of the sentence's words the subtask has."""
    own = set(_WORD.findall(sentence.lower()))
    return len(own & words) / len(own) if own else 0.0


def all_sentences(split: AuthorSplit) -> Iterator[tuple[str, str]]:
    """Yield (operation's name, template) for every sentence of the split's authors."""
    for name in OFFICE_OPERATIONS:
        for author in office_authors(split):
            for template in office_wordings()[name][author]:
                yield name, template
