"""Questions as parts and as text: writing one in many ways, and the one parser that reads them all.

A question is parts in an order of work: which operation, on which inputs, with which constants, and which part feeds
which. The last part's value is the answer. In text, a phrase ("the tally listed for kalo") stands for a part. A part
that uses an earlier one contains that part's phrase, or a pointer ("it") that another clause explains.

Invariant: `parse_question(write_question(q)) == q` for every question, wording and order of clauses. Workers read
questions with `parse_question` and have nothing else to go by.
"""

import itertools
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TypeAlias

from shikisha.simulation.question_families import SMALL_FAMILIES, Operation, QuestionFamily
from shikisha.simulation.question_families_large import LARGE_FAMILIES
from shikisha.simulation.values import SimulatedValue, ValueKind, format_value, parse_value, spell_value
from shikisha.simulation.vocabulary import Paraphrases, WordingSplit

FAMILIES: dict[str, QuestionFamily] = {family.name: family for family in (*SMALL_FAMILIES, *LARGE_FAMILIES)}
SMALL_FAMILY_NAMES = tuple(family.name for family in SMALL_FAMILIES)
OPERATIONS: dict[str, Operation] = {each.name: each for family in FAMILIES.values() for each in family.operations}


@dataclass(frozen=True, slots=True)
class PartReference:
    """The value of an earlier part."""

    part: int


@dataclass(frozen=True, slots=True)
class QuestionPart:
    """One operation on literal values or earlier parts' values."""

    operation: Operation
    inputs: tuple[SimulatedValue | PartReference, ...]
    constants: tuple[SimulatedValue, ...] = ()

    @property
    def family(self) -> str:
        """The kind of work that it is."""
        return self.operation.family

    @property
    def uses(self) -> tuple[int, ...]:
        """The parts whose values it needs."""
        return tuple(given.part for given in self.inputs if isinstance(given, PartReference))


@dataclass(frozen=True)
class ComposedQuestion:
    """Parts in an order of work."""

    parts: tuple[QuestionPart, ...]

    def __len__(self) -> int:
        return len(self.parts)

    @cached_property
    def families(self) -> tuple[str, ...]:
        """The kinds of work in order."""
        return tuple(part.family for part in self.parts)

    @property
    def joined(self) -> bool:
        """Whether two independent parts are brought together at the end."""
        return self.parts[-1].operation.joins

    @property
    def noisy(self) -> bool:
        """Whether independent attempts at one of its parts pay."""
        return any(FAMILIES[name].noisy for name in self.families)

    def solve(self) -> tuple[SimulatedValue, ...]:
        """Return every part's true value, in order."""
        values: list[SimulatedValue] = []
        for part in self.parts:
            inputs = [values[given.part] if isinstance(given, PartReference) else given for given in part.inputs]
            values.append(part.operation.apply(inputs, part.constants))
        return tuple(values)


def has_shortcut(question: ComposedQuestion, values: Sequence[SimulatedValue]) -> bool:
    """Whether the answer already stands in the question (if only as a day's year), or is an earlier part's value."""
    literals = [given for part in question.parts for given in part.inputs if not isinstance(given, PartReference)]
    constants = [constant for part in question.parts for constant in part.constants]
    there = (*literals, *constants, *values[:-1])
    words = {word for value in there for word in spell_value(value).split()}
    return format_value(values[-1]) in words or values[-1] in there


_POINTERS = "it|that|this"
_POINTER_WORDS = frozenset({"it", "that", "this", "one", "two"})
_ASK = "find|give|report|state|tell me|work out|name"

ONE_CLAUSE = Paraphrases.of(
    f"({_ASK}) {{A}}.",
    f"please ({_ASK}) {{A}}.",
    "what is {A}?",
    "(i want|we need|i need) {A}.",
    "(can|could) you (find|give|report|work out) {A}?",
)
TWO_CLAUSES = Paraphrases.of(  # clauses in the order of work, and the other way round; B speaks of A
    f"(take|get|start with) {{A}}. (then|now|next) ({_ASK}) {{B}}.",
    f"(first|to begin) (take|get|find) {{A}}; (then|after that) ({_ASK}) {{B}}.",
    "(say|suppose) (someone knows|you have) {A}: what is {B}?",
    f"({_ASK}) {{B}}, (where|when) (it|that|this) (is|means) {{A}}.",
    "what is {B}, (if|when) (it|that|this) (is|means) {A}?",
)
JOINED_CLAUSES = Paraphrases.of(  # C speaks of A as "one" and of B as "two"
    f"(take|get) {{A}} as one. (take|get) {{B}} as two. (then|now) ({_ASK}) {{C}}.",
    f"({_ASK}) {{C}}, (where|when) one (is|means) {{A}}, two (is|means) {{B}}.",
    "(say|suppose) one (is|means) {A}; two (is|means) {B}: what is {C}?",
)
THREE_CLAUSES = Paraphrases.of(  # C speaks of B, and B of A
    f"(take|get) {{A}}. (from that|now) (take|get) {{B}}. (then|now) ({_ASK}) {{C}}.",
    "(first|to begin) (take|get) {A}; (then|after that) (take|get) {B}; (at last|finally) (find|give|report) {C}.",
)
FOUR_CLAUSES = Paraphrases.of(  # each clause speaks of the one before
    "(take|get) {A}. (from that|now) (take|get) {B}. (next|then) (take|get) {C}. "
    "(at last|finally) (find|give|report) {D}.",
    "(first|to begin) (take|get) {A}; (then|after that) get {B}; (next|from that) get {C}; "
    "(at last|finally) (find|give) {D}.",
)
FIVE_CLAUSES = Paraphrases.of(
    "(take|get) {A}. (from that|now) get {B}. (next|then) get {C}. (from that|now) get {D}. "
    "(at last|finally) (find|give) {E}.",
    "(first|to begin) take {A}; (then|after that) get {B}; (next|from that) get {C}; then get {D}; "
    "(at last|finally) (find|give) {E}.",
)
_CHAIN_WORDINGS = {3: THREE_CLAUSES, 4: FOUR_CLAUSES, 5: FIVE_CLAUSES}
_QUESTION_WORDINGS = (ONE_CLAUSE, TWO_CLAUSES, JOINED_CLAUSES, THREE_CLAUSES, FOUR_CLAUSES, FIVE_CLAUSES)
# Characters: no question is longer, and the patterns are slow on long texts.
_LONGEST_QUESTION = 2_000
# Parts that one phrase may hold, where questions can be spread out.
_MAX_NESTED_PARTS = 3
# Share of the questions that several clauses ask; one nested phrase asks the others.
_SEVERAL_CLAUSES_SHARE = 0.6
_Clause: TypeAlias = "tuple[int, dict[int, str]]"
_SENTENCE = re.compile(r"(^|[.?!] )([a-z])")


@dataclass(frozen=True, slots=True)
class Phrase:
    """An operation whose inputs are values, pointers ("it") or phrases."""

    operation: Operation
    inputs: tuple["SimulatedValue | Pointer | Phrase", ...]
    constants: tuple[SimulatedValue, ...]


@dataclass(frozen=True, slots=True)
class Pointer:
    """A word that stands for what another clause says."""

    word: str

    def clause(self, here: str) -> str:
        """Return the letter of the clause that it stands for: "one" is A, "two" is B, "it" the clause before."""
        return {"one": "A", "two": "B"}.get(self.word, chr(ord(here) - 1))


def write_question(question: ComposedQuestion, split: WordingSplit, rng: random.Random, most: int = 3) -> str:
    """Write the question in one of the split's wordings, with at most `most` clauses.

    Where more than three are allowed, questions of more than three parts are never asked in one phrase.
    """
    spread = most > _MAX_NESTED_PARTS and len(question) > _MAX_NESTED_PARTS
    form, clauses = _choose_long_wording(question, split, rng) if spread else _choose_wording(question, split, rng)
    pointer = pointer_in(form) or rng.choice(_POINTERS.split("|"))
    texts = {}
    for letter, (place, known) in clauses.items():
        names = {part: pointer if word == "it" else word for part, word in known.items()}
        texts[letter] = _write_phrase(question, place, names, split, rng)
    return _SENTENCE.sub(lambda match: match[1] + match[2].upper(), form.format(**texts))


def _choose_wording(
    question: ComposedQuestion, split: WordingSplit, rng: random.Random
) -> tuple[str, dict[str, _Clause]]:
    """Choose a wording, and for each clause the part that it asks for and the pointers to earlier parts."""
    last = len(question) - 1
    if not last or rng.random() > _SEVERAL_CLAUSES_SHARE:
        return rng.choice(ONE_CLAUSE.by_split[split]), {"A": (last, {})}
    if question.joined:
        one, two = question.parts[last].uses
        clauses: dict[str, _Clause] = {"A": (one, {}), "B": (two, {}), "C": (last, {one: "one", two: "two"})}
        return rng.choice(JOINED_CLAUSES.by_split[split]), clauses
    first = rng.randrange(last)
    if first + 1 < last and rng.random() < _SEVERAL_CLAUSES_SHARE:
        clauses = {"A": (first, {}), "B": (first + 1, {first: "it"}), "C": (last, {first + 1: "it"})}
        return rng.choice(THREE_CLAUSES.by_split[split]), clauses
    return rng.choice(TWO_CLAUSES.by_split[split]), {"A": (first, {}), "B": (last, {first: "it"})}


def _choose_long_wording(
    question: ComposedQuestion, split: WordingSplit, rng: random.Random
) -> tuple[str, dict[str, _Clause]]:
    """Choose a wording in several clauses: of a join one for each arm, of a chain three and more."""
    last = len(question) - 1
    if question.joined:
        one, two = question.parts[last].uses
        clauses: dict[str, _Clause] = {"A": (one, {}), "B": (two, {}), "C": (last, {one: "one", two: "two"})}
        return rng.choice(JOINED_CLAUSES.by_split[split]), clauses
    count = rng.randint(_MAX_NESTED_PARTS, len(question))
    ends = [*sorted(rng.sample(range(last), count - 1)), last]
    chained = {"ABCDE"[at]: (end, {ends[at - 1]: "it"} if at else dict[int, str]()) for at, end in enumerate(ends)}
    return rng.choice(_CHAIN_WORDINGS[count].by_split[split]), chained


def pointer_in(form: str) -> str | None:
    """Return the pointer that the wording itself explains ("where it is ..."), which the other clause must use."""
    found = re.search(rf"\b({_POINTERS}) (?:is|means)\b", form)
    return found[1] if found else None


def _write_phrase(
    question: ComposedQuestion, at: int, names: dict[int, str], split: WordingSplit, rng: random.Random
) -> str:
    if at in names:
        return names[at]
    part = question.parts[at]
    slots = dict(zip(part.operation.slots, map(spell_value, part.constants), strict=True))
    for slot, given in zip("xy", part.inputs, strict=False):
        slots[slot] = (
            _write_phrase(question, given.part, names, split, rng)
            if isinstance(given, PartReference)
            else spell_value(given)
        )
    return rng.choice(part.operation.words.by_split[split]).format(**slots)


@lru_cache(maxsize=4096)
def parse_question(text: str) -> ComposedQuestion | None:
    """Return the question that the text asks; None for any other text."""
    if len(text) > _LONGEST_QUESTION:
        return None
    return next(question_readings(text), None)


def question_readings(text: str) -> Iterator[ComposedQuestion]:
    """Yield every question that the text can mean; a test checks that there is at most one."""
    text = " ".join(text.lower().split())
    for form in _QUESTION_WORDINGS:
        for clauses in form.matches(text):
            letters = sorted(clauses)
            for phrases in itertools.product(*(list(_parse_phrases(clauses[letter])) for letter in letters)):
                yield from _questions_of_clauses(dict(zip(letters, phrases, strict=True)))


def _questions_of_clauses(clauses: dict[str, Phrase]) -> Iterator[ComposedQuestion]:
    """Yield the question of these clauses if all are used, a join comes last and no family occurs twice."""
    parts: list[QuestionPart] = []
    used: set[str] = set()

    def place(phrase: Phrase, letter: str) -> int | None:
        used.add(letter)
        inputs: list[SimulatedValue | PartReference] = []
        for given, kind in zip(phrase.inputs, phrase.operation.takes, strict=True):
            home, meant = letter, given
            if isinstance(given, Pointer):
                home = given.clause(letter)
                if home not in clauses or home == letter:
                    return None
                meant = clauses[home]
            if isinstance(meant, Phrase):
                at = place(meant, home) if kind.accepts(meant.operation.gives) else None
                if at is None:
                    return None
                inputs.append(PartReference(at))
            elif not isinstance(meant, Pointer):
                inputs.append(meant)
        parts.append(QuestionPart(phrase.operation, tuple(inputs), phrase.constants))
        return len(parts) - 1

    asked = max(clauses)
    if place(clauses[asked], asked) is None or used != set(clauses):
        return
    once = len({part.family for part in parts}) == len(parts)
    if once and not any(part.operation.joins for part in parts[:-1]):
        yield ComposedQuestion(tuple(parts))


def _parse_phrases(text: str) -> Iterator[Phrase]:
    for operation in OPERATIONS.values():
        for slots in operation.words.matches(text):
            constants = tuple(_parse_constant(slots[slot]) for slot in operation.slots)
            given = [list(_parse_inputs(slots[slot], kind)) for slot, kind in zip("xy", operation.takes, strict=False)]
            if None not in constants:
                known = tuple(value for value in constants if value is not None)
                yield from (Phrase(operation, inputs, known) for inputs in itertools.product(*given))


def _parse_constant(text: str) -> SimulatedValue | None:
    return parse_value(text, ValueKind.NUMBER if text.isdigit() else ValueKind.DAY)


def _parse_inputs(text: str, kind: ValueKind) -> Iterator[SimulatedValue | Pointer | Phrase]:
    if text in _POINTER_WORDS:
        yield Pointer(text)
        return
    value = parse_value(text, ValueKind.NUMBER if kind is ValueKind.TEXT and text.isdigit() else kind)
    if value is not None:
        yield value
    else:
        yield from (phrase for phrase in _parse_phrases(text) if kind.accepts(phrase.operation.gives))
