"""Lessons in language: what sentences of the office ask for, and what cards claim, in training authors' words.

A lesson is a text in sentences, each with its role (a kind of work, a remark, a condition's branch, what is at stake)
and how many earlier results it uses. Some texts lose their full stops and capitals, as hurried people write.

Invariant: nothing here comes from what a worker can do (`staff`); a test walks the imports.
"""

import random
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from shikisha.conductors.task_reader import CLAIM_ALL, CLAIM_NONE, HIGH_STAKES, IF_ABOVE, IF_NOT, LOW_STAKES, REMARK
from shikisha.simulation.office.cards import card_authors, card_texts
from shikisha.simulation.office.company import WorkKind
from shikisha.simulation.office.questions import (
    MAX_PARTS,
    STAKES,
    AuthorSplit,
    OfficeNoise,
    OfficeQuestion,
    draw_names,
    draw_question,
    office_authors,
    office_wordings,
)

_NOISE = OfficeNoise(0.4, 0.5, 0.25, 0.3)
_OTHER_WORDS = 0.6  # how often a branch opens in other words than the author's
_OTHER_REMARKS = 0.25  # further remarks, for each sentence
_STATED = 0.3
_MARKS = ".?!:;,"


@dataclass(frozen=True, slots=True)
class LessonSentence:
    """A sentence, what it is for, and how many earlier results it uses."""

    text: str
    role: str
    uses: int = 0


def draw_lesson(
    rng: random.Random, split: AuthorSplit = AuthorSplit.TRAIN, unmarked: float = 0.6
) -> list[LessonSentence]:
    """Draw a text as its sentences; a share of them has no full stops and few capitals."""
    question = draw_question(rng.randint(1, MAX_PARTS), rng, office_authors(split), _NOISE, 0.3)
    lesson = list(_vary(_label(question), rng))
    if rng.random() < _STATED:
        value, stated = rng.choice(STAKES[1:])
        lesson.append(LessonSentence(stated, HIGH_STAKES if value > 1 else LOW_STAKES))
    if rng.random() >= unmarked:
        return lesson
    return [LessonSentence(_unmark(each.text, rng), each.role, each.uses) for each in lesson]


@cache
def _phrases() -> Mapping[str, tuple[str, ...]]:
    table = tomllib.loads(files("shikisha.simulation.office").joinpath("remarks.toml").read_text("utf-8"))
    return {name: tuple(texts) for name, texts in table.items()}


def _vary(lesson: Iterator[LessonSentence], rng: random.Random) -> Iterator[LessonSentence]:
    """Yield a lesson with further remarks, and branches that open in other words."""
    for each in lesson:
        if rng.random() < _OTHER_REMARKS:
            yield LessonSentence(rng.choice(_phrases()["remarks"]).format(**draw_names(rng)), REMARK)
        if each.role in (IF_ABOVE, IF_NOT) and rng.random() < _OTHER_WORDS:
            texts = _phrases()["if_above" if each.role == IF_ABOVE else "if_not"]
            threshold = next((word for word in re.findall(r"\d+", each.text)), "")
            yield LessonSentence(rng.choice(texts).format(t=threshold), each.role)
        else:
            yield each
    if rng.random() < _OTHER_REMARKS:
        yield LessonSentence(rng.choice(_phrases()["remarks"]).format(**draw_names(rng)), REMARK)


def _label(question: OfficeQuestion) -> Iterator[LessonSentence]:
    """Yield the sentences of a question with their roles, in order."""
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
        yield LessonSentence(sentence, part.kind, len(part.uses))
        at = start + len(sentence)
    yield from _remarks(question.text[at:])


def _remarks(text: str) -> Iterator[LessonSentence]:
    """Yield what is no part as one remark for each paragraph."""
    for piece in text.split("\n"):
        if piece.strip():
            yield LessonSentence(piece.strip(), REMARK)


def _unmark(text: str, rng: random.Random) -> str:
    bare = text.rstrip(_MARKS) if rng.random() < 0.8 else text
    first, _, rest = bare.partition(" ")
    if rest and first.isalpha() and first[1:].islower() and rest[:1].islower():
        bare = f"{first.lower()} {rest}"
    return bare or text


def card_lessons(split: AuthorSplit = AuthorSplit.TRAIN) -> Iterator[tuple[str, str]]:
    """Yield (text, what it claims) for each sentence of the split's cards."""
    for name, texts in card_texts().items():
        claim = {"generalist": CLAIM_ALL, "vague": CLAIM_NONE}.get(name, name)
        for author in card_authors(split):
            yield from ((text[0].upper() + text[1:], claim) for text in texts[author])


OFFICE_KINDS = tuple(str(kind) for kind in WorkKind)
