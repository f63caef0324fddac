"""Evidence about candidate answers: what each one looks like beside the question, and which texts mention it.

A candidate is a distinct answer to one task. Its looks compare it with the question and with the other options, if the
prompt has lettered ones; a mention says how often and where a worker's text names it. Invariants: everything comes from
the prompt and from what workers wrote, never from the right answer; a worker that was not asked adds nothing; texts and
candidates are read up to a fixed length, so the work is bounded; the same text gives the same numbers everywhere.
"""

import re
from collections.abc import Sequence
from functools import lru_cache
from math import copysign, log1p

import numpy as np

from shikisha.core.fast_dataclass import dataclass
from shikisha.outcomes.log_reader import text_before_mark
from shikisha.routing.arrays import Flags, Floats32, Ints
from shikisha.routing.text_features import LETTERED_OPTION

# Columns of a candidate's looks, and of a mention: times named, where last (1: never), times its letter is in brackets.
NUM_LOOKS, NUM_MENTIONS = 22, 3
NEVER_MENTIONED = 1.0
# Characters that are read of a text (its end) and of a candidate.
_TEXT_CHARACTERS, _CANDIDATE_CHARACTERS = 8_000, 300
# A text must be longer than the answer in it by this much to count as a text.
_MIN_TEXT_MARGIN = 20
_MAX_COUNT = 9
_WORD = re.compile(r"[a-z]+|\d+(?:\.\d+)?")
_NUMBER = re.compile(r"-?\d{1,15}(?:[.,]\d{1,15}){0,4}")
_MARKUP = re.compile(r"[\s$\\{}*_`]+")
_LETTER = re.compile(r"\(([A-J])\)")
_ABSOLUTE = re.compile(r"\b(?:not|never|only|always|all|every|no)\b")
_FORMULA_SIGNS = frozenset("\\^=/()")


@dataclass(frozen=True, slots=True)
class AnswerEvidence:
    """`looks` [T, K, NUM_LOOKS] of K candidate codes, `mentions` [T, J, K, NUM_MENTIONS], and `written` [T, J].

    `written` are the log lengths of the workers' texts in characters, 0 where none is kept.
    """

    looks: Floats32
    mentions: Floats32
    written: Floats32

    def at(self, rows: Ints | slice) -> "AnswerEvidence":
        """Return these tasks."""
        return AnswerEvidence(self.looks[rows], self.mentions[rows], self.written[rows])

    def select_workers(self, columns: Ints | slice) -> "AnswerEvidence":
        """Return the evidence from these workers."""
        return AnswerEvidence(self.looks, self.mentions[:, columns], self.written[:, columns])

    def without_texts(self, cells: Flags) -> "AnswerEvidence":
        """Return the evidence without these texts [T, J]."""
        return AnswerEvidence(self.looks, self.mentions, np.where(cells, np.float32(0), self.written))


@dataclass(frozen=True, slots=True)
class TaskEvidence:
    """The same of one task: candidates by code, workers in the order given."""

    looks: Sequence[Sequence[float]]
    mentions: Sequence[Sequence[tuple[float, float, float]]]
    written: Sequence[float]


def read_candidates(prompt: str, answers: Sequence[str | None], texts: Sequence[str | None]) -> TaskEvidence:
    """Return the evidence of one task: `answers` are the workers' canonical answers, `texts` all that they wrote.

    Candidates are numbered by first appearance, as `state.encode_answers` does.
    """
    stem, options = _split_options(prompt)
    candidates = list(dict.fromkeys(answer for answer in answers if answer is not None))
    shown = [_CandidateText.of(options.get(each, each)) for each in candidates]
    others = {letter: _CandidateText.of(option) for letter, option in options.items()}
    stem_words = frozenset(_WORD.findall(stem))
    looks = [
        _candidate_looks(letter, candidate, (stem, stem_words), others)
        for letter, candidate in zip(candidates, shown, strict=True)
    ]
    mentions, written = [], []
    for answer, text in zip(answers, texts, strict=True):
        body = _read_text(text or "")
        kept = body.length > len(answer or "") + _MIN_TEXT_MARGIN
        written.append(log1p(body.length) if kept else 0.0)
        mentions.append(
            [
                body.mention(candidate.normal, letter if options else "") if kept else (0.0, NEVER_MENTIONED, 0.0)
                for letter, candidate in zip(candidates, shown, strict=True)
            ]
        )
    return TaskEvidence(looks, mentions, written)


def stack_evidence(
    tasks: Sequence[TaskEvidence], workers: Sequence[int] | None = None, width: int = 0
) -> AnswerEvidence:
    """Return the evidence of several tasks as arrays; `workers` are the columns of those given, of `width` columns."""
    columns = list(range(max((len(task.written) for task in tasks), default=0))) if workers is None else list(workers)
    width = width or len(columns)
    most = max([1, *(len(task.looks) for task in tasks)])
    looks = np.zeros((len(tasks), most, NUM_LOOKS), np.float32)
    mentions = np.zeros((len(tasks), width, most, NUM_MENTIONS), np.float32)
    mentions[..., 1] = NEVER_MENTIONED
    written = np.zeros((len(tasks), width), np.float32)
    for row, task in enumerate(tasks):
        if task.looks:
            looks[row, : len(task.looks)] = task.looks
            mentions[row, columns, : len(task.looks)] = task.mentions
        written[row, columns] = task.written
    return AnswerEvidence(looks, mentions, written)


@dataclass(frozen=True, slots=True)
class _Text:
    """A worker's text without markup: lowercase, its length, and the bracketed letters in it."""

    normal: str
    length: int
    letters: str

    def mention(self, candidate: str, letter: str) -> tuple[float, float, float]:
        place = self.normal.rfind(candidate) if candidate else -1
        if place < 0:
            return 0.0, NEVER_MENTIONED, float(self.letters.count(letter) if letter else 0)
        times = min(_MAX_COUNT, self.normal.count(candidate))
        last = (len(self.normal) - place) / max(1, len(self.normal))
        return float(times), last, float(self.letters.count(letter) if letter else 0)


@lru_cache(maxsize=64)
def _read_text(text: str) -> _Text:
    """Read a text; a run's next decision reads its earlier answers again."""
    body = text_before_mark(text)
    end = body[-_TEXT_CHARACTERS:]
    return _Text(_normalize(end), len(body), "".join(_LETTER.findall(end)))


def _normalize(text: str) -> str:
    return _MARKUP.sub(" ", text.lower()).strip(" .")


def _split_options(prompt: str) -> tuple[str, dict[str, str]]:
    """Return the question in lowercase, and its lettered options."""
    half = _TEXT_CHARACTERS
    text = prompt if len(prompt) <= 2 * half else f"{prompt[:half]}\n{prompt[-half:]}"
    found = list(LETTERED_OPTION.finditer(text))
    if not found or found[0][1] != "A":
        return text.lower(), {}
    return text[: found[0].start()].lower(), {option[1]: option[2].strip() for option in found}


@dataclass(frozen=True, slots=True)
class _CandidateText:
    """A candidate's text, in normal form, its words, and its first number."""

    text: str
    normal: str
    words: tuple[str, ...]
    different: frozenset[str]
    number: float | None

    @classmethod
    def of(cls, text: str) -> "_CandidateText":
        text = text[:_CANDIDATE_CHARACTERS]
        normal = _normalize(text)
        words = tuple(_WORD.findall(normal))
        return cls(text, normal, words, frozenset(words), _first_number(text))


def _first_number(text: str) -> float | None:
    found = _NUMBER.search(text)
    try:
        return float(found[0].replace(",", "")) if found else None
    except ValueError:  # a date, a version
        return None


def _candidate_looks(
    letter: str, one: _CandidateText, question: tuple[str, frozenset[str]], options: dict[str, _CandidateText]
) -> list[float]:
    stem, stem_words = question
    others = [other for name, other in options.items() if name != letter]
    return [
        float(ord(letter) - ord("A")) if options and len(letter) == 1 else -1.0,
        float(len(options)),
        *_length_looks(one, others),
        *_number_looks(one, others),
        sum(word in stem_words for word in one.words) / max(1, len(one.words)),
        float(sum(word not in stem_words for word in one.words)),
        float(bool(one.normal) and one.normal in stem),
        *_overlap_looks(one, others),
        float("all of" in one.normal or "both" in one.normal),
        float("none of" in one.normal or "cannot" in one.normal),
        float(_ABSOLUTE.search(one.normal) is not None),
        float(sum(character in _FORMULA_SIGNS for character in one.text)),
        float(one.text[:1].isupper()),
    ]


def _length_looks(one: _CandidateText, others: Sequence[_CandidateText]) -> list[float]:
    """Length, the same less the other options' mean, share of the shorter ones, and number of words."""
    own, lengths = log1p(len(one.text)), [log1p(len(other.text)) for other in others]
    count = max(1, len(lengths))
    relative = own - sum(lengths) / count if lengths else 0.0
    return [own, relative, sum(length < own for length in lengths) / count, float(len(one.words))]


def _number_looks(one: _CandidateText, others: Sequence[_CandidateText]) -> list[float]:
    """Whether there is a number, its size, its rank among the other options', whether it is whole, its digits."""
    if one.number is None:
        return [0.0, 0.0, 0.5, -1.0, -1.0]
    values = [other.number for other in others if other.number is not None]
    rank = sum(value < one.number for value in values) / len(values) if values else 0.5
    size = copysign(log1p(abs(one.number)), one.number)
    whole = one.number.is_integer() if abs(one.number) < 1e15 else -1.0
    return [1.0, size, rank, float(whole), float(len(str(one.number).rstrip("0")))]


def _overlap_looks(one: _CandidateText, others: Sequence[_CandidateText]) -> list[float]:
    """Mean and largest similarity of words to another option, and the share of its words that others have."""
    if not others:
        return [0.0, 0.0, 0.0]
    alike = [len(one.different & other.different) / max(1, len(one.different | other.different)) for other in others]
    known = frozenset().union(*(other.different for other in others))
    return [sum(alike) / len(alike), max(alike), len(one.different & known) / max(1, len(one.different))]
