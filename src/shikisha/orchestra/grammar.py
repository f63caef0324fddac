"""Questions as text: many ways to ask for a chain or a join of parts, and one reader for all of them.

A phrase ("the tally listed for kalo") stands for a part; a part that uses an earlier one holds that one's phrase, or
a word that points at it ("it"), in which case the sentence says what it stands for. Invariant: `parse(write(q)) == q`
for every question, wording and order of clauses (a test goes through all of them); workers read questions with `parse`
and have nothing else to go by.
"""

import itertools
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

from shikisha.orchestra.families import OPERATIONS
from shikisha.orchestra.operation import Operation
from shikisha.orchestra.question import Part, Question, Ref
from shikisha.orchestra.values import Sort, Value, read, spoken
from shikisha.orchestra.wording import Split, wordings

_POINTERS = "it|that|this"
_POINTING = frozenset({"it", "that", "this", "one", "two"})
_ASK = "find|give|report|state|tell me|work out|name"

ONE = wordings(
    f"({_ASK}) {{A}}.",
    f"please ({_ASK}) {{A}}.",
    "what is {A}?",
    "(i want|we need|i need) {A}.",
    "(can|could) you (find|give|report|work out) {A}?",
)
CHAIN = wordings(  # clauses in the order of work, and the other way round; B speaks of A
    f"(take|get|start with) {{A}}. (then|now|next) ({_ASK}) {{B}}.",
    f"(first|to begin) (take|get|find) {{A}}; (then|after that) ({_ASK}) {{B}}.",
    "(say|suppose) (someone knows|you have) {A}: what is {B}?",
    f"({_ASK}) {{B}}, (where|when) (it|that|this) (is|means) {{A}}.",
    "what is {B}, (if|when) (it|that|this) (is|means) {A}?",
)
JOIN = wordings(  # C speaks of A as "one" and of B as "two"
    f"(take|get) {{A}} as one. (take|get) {{B}} as two. (then|now) ({_ASK}) {{C}}.",
    f"({_ASK}) {{C}}, (where|when) one (is|means) {{A}}, two (is|means) {{B}}.",
    "(say|suppose) one (is|means) {A}; two (is|means) {B}: what is {C}?",
)
TRIPLE = wordings(  # C speaks of B, and B of A
    f"(take|get) {{A}}. (from that|now) (take|get) {{B}}. (then|now) ({_ASK}) {{C}}.",
    "(first|to begin) (take|get) {A}; (then|after that) (take|get) {B}; (at last|finally) (find|give|report) {C}.",
)
FOUR = wordings(  # each clause speaks of the one before
    "(take|get) {A}. (from that|now) (take|get) {B}. (next|then) (take|get) {C}. "
    "(at last|finally) (find|give|report) {D}.",
    "(first|to begin) (take|get) {A}; (then|after that) get {B}; (next|from that) get {C}; "
    "(at last|finally) (find|give) {D}.",
)
FIVE = wordings(
    "(take|get) {A}. (from that|now) get {B}. (next|then) get {C}. (from that|now) get {D}. "
    "(at last|finally) (find|give) {E}.",
    "(first|to begin) take {A}; (then|after that) get {B}; (next|from that) get {C}; then get {D}; "
    "(at last|finally) (find|give) {E}.",
)
_CHAINED = {3: TRIPLE, 4: FOUR, 5: FIVE}
_FORMS = (ONE, CHAIN, JOIN, TRIPLE, FOUR, FIVE)
_LONGEST = 2_000  # characters: nothing of this world is longer, and patterns take their time on what is
_NESTED = 3  # parts that one phrase may hold, where questions can be spread out
_SPREAD = 0.6  # of the compositions are asked in several clauses, the others in one nested phrase
_Clause: TypeAlias = "tuple[int, dict[int, str]]"
_SENTENCE = re.compile(r"(^|[.?!] )([a-z])")


@dataclass(frozen=True, slots=True)
class Phrase:
    """An operation whose inputs are values, pointers ("it") or phrases."""

    operation: Operation
    inputs: tuple["Value | Pointer | Phrase", ...]
    constants: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Pointer:
    """A word that stands for what another clause says."""

    word: str

    def clause(self, here: str) -> str:
        """Return the letter of the clause that it stands for: "one" is A, "two" is B, "it" the clause before."""
        return {"one": "A", "two": "B"}.get(self.word, chr(ord(here) - 1))


def write(question: Question, split: Split, dice: random.Random, most: int = 3) -> str:
    """Ask the question in one of the split's wordings, of so many clauses at most.

    Where more than three are allowed, questions of more than three parts are never asked in one phrase.
    """
    spread = most > _NESTED and len(question) > _NESTED
    form, clauses = _spread_out(question, split, dice) if spread else _form(question, split, dice)
    pointer = pointer_in(form) or dice.choice(_POINTERS.split("|"))
    texts = {}
    for letter, (place, known) in clauses.items():
        names = {part: pointer if word == "it" else word for part, word in known.items()}
        texts[letter] = _phrase(question, place, names, split, dice)
    return _SENTENCE.sub(lambda match: match[1] + match[2].upper(), form.format(**texts))


def _form(question: Question, split: Split, dice: random.Random) -> tuple[str, dict[str, _Clause]]:
    """Choose a wording, and for each of its clauses the part that it asks for and what points at earlier ones."""
    last = len(question) - 1
    if not last or dice.random() > _SPREAD:
        return dice.choice(ONE.by_split[split]), {"A": (last, {})}
    if question.joined:
        one, two = question.parts[last].uses
        clauses: dict[str, _Clause] = {"A": (one, {}), "B": (two, {}), "C": (last, {one: "one", two: "two"})}
        return dice.choice(JOIN.by_split[split]), clauses
    first = dice.randrange(last)
    if first + 1 < last and dice.random() < _SPREAD:
        clauses = {"A": (first, {}), "B": (first + 1, {first: "it"}), "C": (last, {first + 1: "it"})}
        return dice.choice(TRIPLE.by_split[split]), clauses
    return dice.choice(CHAIN.by_split[split]), {"A": (first, {}), "B": (last, {first: "it"})}


def _spread_out(question: Question, split: Split, dice: random.Random) -> tuple[str, dict[str, _Clause]]:
    """Choose a wording in several clauses: of a join one for each arm, of a chain three and more."""
    last = len(question) - 1
    if question.joined:
        one, two = question.parts[last].uses
        clauses: dict[str, _Clause] = {"A": (one, {}), "B": (two, {}), "C": (last, {one: "one", two: "two"})}
        return dice.choice(JOIN.by_split[split]), clauses
    count = dice.randint(_NESTED, len(question))
    ends = [*sorted(dice.sample(range(last), count - 1)), last]
    chained = {"ABCDE"[at]: (end, {ends[at - 1]: "it"} if at else dict[int, str]()) for at, end in enumerate(ends)}
    return dice.choice(_CHAINED[count].by_split[split]), chained


def pointer_in(form: str) -> str | None:
    """Return the word that the form itself explains ("where it is ..."), which its other clause must then use."""
    found = re.search(rf"\b({_POINTERS}) (?:is|means)\b", form)
    return found[1] if found else None


def _phrase(question: Question, at: int, names: dict[int, str], split: Split, dice: random.Random) -> str:
    if at in names:
        return names[at]
    part = question.parts[at]
    slots = dict(zip(part.operation.slots, map(spoken, part.constants), strict=True))
    for slot, given in zip("xy", part.inputs, strict=False):
        slots[slot] = _phrase(question, given.part, names, split, dice) if isinstance(given, Ref) else spoken(given)
    return dice.choice(part.operation.words.by_split[split]).format(**slots)


@lru_cache(maxsize=4096)
def parse(text: str) -> Question | None:
    """Return the question that the text asks; None when it is none of this world's."""
    if len(text) > _LONGEST:
        return None
    return next(readings(text), None)


def readings(text: str) -> Iterator[Question]:
    """Yield every question that the text can be read as (a test holds that there is at most one)."""
    text = " ".join(text.lower().split())
    for form in _FORMS:
        for clauses in form.matches(text):
            letters = sorted(clauses)
            for phrases in itertools.product(*(list(_meanings(clauses[letter])) for letter in letters)):
                yield from _laid_out(dict(zip(letters, phrases, strict=True)))


def _laid_out(clauses: dict[str, Phrase]) -> Iterator[Question]:
    """Yield the question that the clauses make, if every clause has its use, joins are last and no kind comes twice."""
    parts: list[Part] = []
    used: set[str] = set()

    def place(phrase: Phrase, letter: str) -> int | None:
        used.add(letter)
        inputs: list[Value | Ref] = []
        for given, sort in zip(phrase.inputs, phrase.operation.takes, strict=True):
            home, meant = letter, given
            if isinstance(given, Pointer):
                home = given.clause(letter)
                if home not in clauses or home == letter:
                    return None
                meant = clauses[home]
            if isinstance(meant, Phrase):
                at = place(meant, home) if sort.takes(meant.operation.gives) else None
                if at is None:
                    return None
                inputs.append(Ref(at))
            elif not isinstance(meant, Pointer):
                inputs.append(meant)
        parts.append(Part(phrase.operation, tuple(inputs), phrase.constants))
        return len(parts) - 1

    asked = max(clauses)
    if place(clauses[asked], asked) is None or used != set(clauses):
        return
    once = len({part.family for part in parts}) == len(parts)
    if once and not any(part.operation.joins for part in parts[:-1]):
        yield Question(tuple(parts))


def _meanings(text: str) -> Iterator[Phrase]:
    for operation in OPERATIONS.values():
        for slots in operation.words.matches(text):
            constants = tuple(_constant(slots[slot]) for slot in operation.slots)
            given = [list(_inputs(slots[slot], sort)) for slot, sort in zip("xy", operation.takes, strict=False)]
            if None not in constants:
                known = tuple(value for value in constants if value is not None)
                yield from (Phrase(operation, inputs, known) for inputs in itertools.product(*given))


def _constant(text: str) -> Value | None:
    return read(text, Sort.NUMBER if text.isdigit() else Sort.DAY)


def _inputs(text: str, sort: Sort) -> Iterator[Value | Pointer | Phrase]:
    if text in _POINTING:
        yield Pointer(text)
        return
    value = read(text, Sort.NUMBER if sort is Sort.TEXT and text.isdigit() else sort)
    if value is not None:
        yield value
    else:
        yield from (phrase for phrase in _meanings(text) if sort.takes(phrase.operation.gives))
