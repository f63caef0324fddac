"""Lessons in language: what sentences of the office ask for, and what cards claim, in training authors' words.

A lesson is a text in sentences, each with its role (a kind of work, a remark, a condition's branch, what is at stake)
and how many earlier results it uses. A third of the texts is by one author, a third by several, and in a third most
sentences are put together from `phrases.toml`, which is by no author. Texts are then roughened as a whole: no full
stops, few capitals, swapped letters, shorthand, words left out or put in front.

Invariant: nothing here comes from what a worker can do (`staff`); a test walks the imports.
"""

import random
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files

from shikisha_train.office.cards import card_authors, card_texts
from shikisha_train.office.company import WorkKind, write_value
from shikisha_train.office.questions import (
    MAX_PARTS,
    STAKES,
    AuthorSplit,
    EarlierPart,
    OfficeNoise,
    OfficePart,
    OfficeQuestion,
    draw_names,
    draw_question,
    office_authors,
    office_wordings,
    write_part,
)
from shikisha_train.pointer.task_reader import CLAIM_ALL, CLAIM_NONE, HIGH_STAKES, IF_ABOVE, IF_NOT, LOW_STAKES, REMARK

_NOISE = OfficeNoise(0.4, 0.5, 0.25, 0.3)
_OTHER_WORDS = 0.6  # how often a branch opens in other words than the author's
_OTHER_REMARKS = 0.25  # further remarks, for each sentence
_PARAGRAPHS = 0.15  # how often a paragraph that asks for nothing stands before a text, and half as often after it
_STATED = 0.3
_PARTS = (0.22, 0.24, 0.22, 0.16, 0.1, 0.06)  # shares of questions of 1 to 6 parts
_MARKS = ".?!:;,"
_BY_MANY, _PHRASED, _PHRASED_SENTENCE = 0.33, 0.34, 0.85
_PUT_TOGETHER = 0.6
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+")


@dataclass(frozen=True, slots=True)
class LessonSentence:
    """A sentence, what it is for, and how many earlier results it uses."""

    text: str
    role: str
    uses: int = 0


@dataclass(frozen=True, slots=True)
class _Roughness:
    """How a text is written: shares of full stops left out, first capitals left out, letters swapped, and so on."""

    bare: float = 0.0
    lower: float = 0.0
    typing: float = 0.0
    short: float = 0.0
    dropped: float = 0.0
    said_more: float = 0.0
    other_marks: float = 0.0
    clauses: float = 0.0


def draw_lesson(
    rng: random.Random, authors: Sequence[str] | None = None, unmarked: float = 0.7
) -> list[LessonSentence]:
    """Draw a text of training authors (or of these) as its sentences; a share of them has no full stops."""
    known = authors or office_authors(AuthorSplit.TRAIN)
    question = draw_question(rng.randint(1, MAX_PARTS), rng, known, _NOISE, 0.3)
    lesson = list(_vary(_label(question, known, rng), rng))
    if rng.random() < _STATED:
        value, stated = rng.choice(STAKES[1:])
        lesson.append(LessonSentence(stated, HIGH_STAKES if value > 1 else LOW_STAKES))
    bare = rng.random() < unmarked
    rough = _Roughness(
        rng.choice((0.8, 0.95, 1.0)) if bare else 0.0,
        rng.choice((0.5, 0.9, 1.0)) if bare or rng.random() < 0.15 else 0.0,
        rng.choice((0.05, 0.15, 0.35)) if rng.random() < 0.35 else 0.0,
        rng.choice((0.2, 0.5)) if rng.random() < 0.2 else 0.0,
        rng.choice((0.2, 0.6)) if rng.random() < 0.15 else 0.0,
        rng.choice((0.15, 0.5)) if rng.random() < 0.4 else 0.0,
        rng.choice((0.2, 0.7)) if rng.random() < 0.15 else 0.0,
        rng.choice((0.2, 0.6)) if rng.random() < 0.3 else 0.0,
    )
    return [replace(each, text=_roughen(each.text, each.role, rough, rng)) for each in lesson]


def draw_question_text(rng: random.Random, authors: Sequence[str] | None = None) -> tuple[OfficeQuestion, str, float]:
    """Draw a question of training authors (or of these) as tasks have it, its text with what is at stake, and that."""
    count, known = rng.choices(range(1, MAX_PARTS + 1), _PARTS)[0], authors or office_authors(AuthorSplit.TRAIN)
    question = draw_question(count, rng, known, OfficeNoise(), 0.25)
    value, stated = rng.choice(STAKES[1:]) if rng.random() < _STATED else STAKES[0]
    return question, f"{question.text} {stated}".strip(), value


@cache
def _phrases() -> Mapping[str, Mapping[str, tuple[str, ...]]]:
    """Return the tables of remarks and phrases: `frames`, `references`, `rough`, `shorthand`, and one an operation."""
    folder = files("shikisha_train.office")
    table = tomllib.loads(folder.joinpath("phrases.toml").read_text("utf-8"))
    remarks = tomllib.loads(folder.joinpath("remarks.toml").read_text("utf-8"))
    remarks.pop("paragraphs")
    tables = {"remarks": remarks, **table.pop("phrases"), **table}
    return {name: {key: tuple(texts) for key, texts in each.items()} for name, each in tables.items()}


def _vary(lesson: Iterator[LessonSentence], rng: random.Random) -> Iterator[LessonSentence]:
    """Yield a lesson with further remarks, and branches that open in other words."""
    remarks = _phrases()["remarks"]
    if rng.random() < _PARAGRAPHS:
        yield from _paragraph(rng)
    for each in lesson:
        if rng.random() < _OTHER_REMARKS:
            yield LessonSentence(rng.choice(remarks["remarks"]).format(**draw_names(rng)), REMARK)
        if each.role in (IF_ABOVE, IF_NOT) and rng.random() < _OTHER_WORDS:
            threshold = next((word for word in re.findall(r"\d+", each.text)), "")
            opening = rng.choice(remarks["if_above" if each.role == IF_ABOVE else "if_not"])
            opening = _open_branch(each.role, rng) if rng.random() < _PUT_TOGETHER else opening
            yield LessonSentence(opening.format(t=threshold), each.role)
        else:
            yield each
    if rng.random() < _OTHER_REMARKS:
        yield LessonSentence(rng.choice(remarks["remarks"]).format(**draw_names(rng)), REMARK)
    if rng.random() < _PARAGRAPHS / 2:
        yield from _paragraph(rng)


def _paragraph(rng: random.Random) -> Iterator[LessonSentence]:
    """Yield the sentences of a paragraph that asks for nothing."""
    for sentence in rng.choice(_paragraphs()):
        yield LessonSentence(sentence.format(**draw_names(rng)), REMARK)


@cache
def _paragraphs() -> Sequence[Sequence[str]]:
    table = tomllib.loads(files("shikisha_train.office").joinpath("remarks.toml").read_text("utf-8"))
    return tuple(map(tuple, table["paragraphs"]))


def _open_branch(role: str, rng: random.Random) -> str:
    """Put the opening of a branch together."""
    of, end = _phrases()["branches"], rng.choice(_phrases()["branches"]["end"])
    if role == IF_NOT:
        said = rng.choice(of["else"])
    elif rng.random() < 0.4:
        said = rng.choice(of["bare"])
    else:
        said = " ".join(rng.choice(of[name]) for name in ("if", "subject", "above"))
    return _raise_first(said, rng) + end


def _label(question: OfficeQuestion, authors: Sequence[str], rng: random.Random) -> Iterator[LessonSentence]:
    """Yield the sentences of a question with their roles, in order, some in others' words."""
    draw = rng.random()
    at, rule = 0, question.condition
    for place, (sentence, part) in enumerate(zip(question.sentences, question.parts, strict=True)):
        start = question.text.index(sentence, at)
        between = question.text[at:start].strip()
        if rule is not None and place in (rule.first_then, rule.first_else):
            name, role = ("if_above", IF_ABOVE) if place == rule.first_then else ("if_not", IF_NOT)
            leads = [text.format(t=rule.threshold) for text in office_wordings()[name][question.author]]
            lead = max((text for text in leads if between.endswith(text)), key=len)
            yield from _remarks(between.removesuffix(lead))
            yield LessonSentence(lead, role)
        else:
            yield from _remarks(between)
        said = sentence
        if draw < _BY_MANY:
            said = _raise_first(write_part(part, rng.choice(authors), rng), rng)
        elif draw < _BY_MANY + _PHRASED and rng.random() < _PHRASED_SENTENCE:
            said = _raise_first(_phrase(part, rng), rng)
        yield LessonSentence(said, part.kind, len(part.uses))
        at = start + len(sentence)
    yield from _remarks(question.text[at:])


def _phrase(part: OfficePart, rng: random.Random) -> str:
    """Put a sentence together that asks for a part: how one asks, around what is asked for."""
    slots = dict(zip("cd", map(str, part.constants), strict=False))
    for slot, given, kind in zip("xy", part.inputs, part.operation.takes, strict=False):
        if isinstance(given, EarlierPart):
            slots[slot] = rng.choice(_phrases()["references"][kind])
        else:
            slots[slot] = write_value(given)
    form, texts = rng.choice(list(_phrases()[part.operation.name].items()))
    frame = rng.choice(_phrases()["frames"][form])
    said = frame.replace("{p}", rng.choice(texts).format(**slots)).replace("{x}", slots.get("x", ""))
    return said if said[-1] in _MARKS or rng.random() < 0.3 else said + "."


def _raise_first(text: str, rng: random.Random) -> str:
    return text[0].upper() + text[1:] if rng.random() < 0.7 else text


def _remarks(text: str) -> Iterator[LessonSentence]:
    """Yield what is no part as one remark for each sentence."""
    for piece in text.split("\n"):
        for sentence in _SENTENCE_END.split(piece):
            if sentence.strip():
                yield LessonSentence(sentence.strip(), REMARK)


def _roughen(text: str, role: str, rough: _Roughness, rng: random.Random) -> str:
    """Write a sentence as somebody in a hurry would."""
    words = text.split()
    if role not in (IF_ABOVE, IF_NOT, HIGH_STAKES, LOW_STAKES) and rng.random() < rough.clauses:
        words = _add_clause(words, rng)
    if len(words) > 2:
        words = [word for word in words if word.lower() not in _dropped() or rng.random() >= rough.dropped] or words
    words = [_shorten(word, rng) if rng.random() < rough.short else word for word in words]
    words = [_mistype(word, rng) if rng.random() < rough.typing else word for word in words]
    tables = _phrases()["rough"]
    if rng.random() < rough.said_more:
        words.insert(0, rng.choice(tables["openings"]).strip())
    if rng.random() < rough.said_more and words[-1][-1] not in ":,":
        last = words[-1]
        mark = last[-1] if last[-1] in _MARKS and len(last) > 1 else ""
        words[-1] = last.removesuffix(mark)
        words.append(rng.choice(tables["closings"]) + mark)
    found = " ".join(words)
    if rng.random() < rough.other_marks:
        found = found.rstrip(_MARKS) + rng.choice((",", ";", " -", "...", "!", "??", ".", " /"))
    if rng.random() < rough.bare:
        found = found.rstrip(_MARKS) or found
    first, _, rest = found.partition(" ")
    if rng.random() < rough.lower and rest[:1].islower() and first[1:].islower():
        found = f"{first.lower()} {rest}"
    return found


def _add_clause(words: list[str], rng: random.Random) -> list[str]:
    """Say why one asks, before or after: long-winded people do, and their commas end nothing."""
    tables = _phrases()["clauses"]
    if rng.random() < 0.65:
        opening = rng.choice(tables["before"]).split()
        first = words[0]
        lowered = first.lower() if first[1:].islower() or first == "I" else first
        words = [*opening, "I" if first == "I" else lowered, *words[1:]]
        words[0] = words[0][0].upper() + words[0][1:] if rng.random() < 0.7 else words[0]
    else:
        mark = words[-1][-1] if words[-1][-1] in _MARKS else ""
        last = words[-1].rstrip(_MARKS) or words[-1]
        words = [*words[:-1], f"{last},", *rng.choice(tables["after"]).split()]
        words[-1] += mark
    return words


@cache
def _dropped() -> frozenset[str]:
    return frozenset(_phrases()["rough"]["dropped"])


def _shorten(word: str, rng: random.Random) -> str:
    bare = word.rstrip(_MARKS)
    short = _phrases()["shorthand"].get(bare.lower())
    return rng.choice(short) + word[len(bare) :] if short else word


def _mistype(word: str, rng: random.Random) -> str:
    """Swap, lose, double or replace a letter of a plain word."""
    bare = word.rstrip(_MARKS)
    if len(bare) < 3 or not bare.isalpha() or bare[0].isupper():
        return word
    at = rng.randrange(len(bare) - 1)
    changed = rng.choice(
        (
            f"{bare[:at]}{bare[at + 1]}{bare[at]}{bare[at + 2 :]}",
            f"{bare[:at]}{bare[at + 1]}{bare[at]}{bare[at + 2 :]}",
            bare[:at] + bare[at + 1 :],
            bare[: at + 1] + bare[at:],
            f"{bare[:at]}{rng.choice('aeiourtnsl')}{bare[at + 1 :]}",
        )
    )
    return changed + word[len(bare) :]


def card_lessons(split: AuthorSplit = AuthorSplit.TRAIN) -> Iterator[tuple[str, str]]:
    """Yield (text, what it claims) for each sentence of the split's cards."""
    for name, texts in card_texts().items():
        claim = {"generalist": CLAIM_ALL, "vague": CLAIM_NONE}.get(name, name)
        for author in card_authors(split):
            yield from ((text[0].upper() + text[1:], claim) for text in texts[author])


OFFICE_KINDS = tuple(str(kind) for kind in WorkKind)
