"""Grade short texts: equal to an accepted answer, or matching a regular expression.

Invariants: an accepted answer is compared before anything is read as a refusal, so that "I don't know" can be right. A
blank answer is NO_ANSWER; for accepted answers a refusal is too. No pattern takes longer than its time limit on any
answer: matching starts on the event loop, since nearly all of it takes microseconds, and continues in a thread if
necessary. A pattern still undecided then is UNGRADED, because the grader is at fault. Deliberately absent: word
overlap (F1), synonyms and spelling mistakes (list what is accepted), and options that patterns have as flags (`(?i)`).

An accepted answer that is a quoted Python text, or a list, tuple, set or dictionary, is compared as a value: `'R'` is
not `'r'`, `'  7'` is not `' 7'`, and `[1, 2]` is `[1,2]`. The quotes around a text may be missing.
"""

import ast
import asyncio
from enum import StrEnum
from typing import TYPE_CHECKING

from pydantic import Field, field_validator

from shikisha.core.errors import ConfigError
from shikisha.core.kinds import Kind
from shikisha.core.toml import Table
from shikisha.evals.graders import Grade, GraderTools, grade_from_score, no_answer_grade, ungraded_grade
from shikisha.evals.graders.answer_extraction import canonicalize_text, normalize_words, stated_text, strip_quotes
from shikisha.evals.graders.canonical_form import AnswerForm

if TYPE_CHECKING:
    import regex

_SHOWN = 200
_SECONDS_ON_LOOP = 0.002  # seconds of matching on the event loop
# Characters; room for space and punctuation.
_SPARE = 500
_VALUE_OPENINGS, _LONGEST_VALUE = frozenset("'\"[({b"), 10_000


class TextComparison(StrEnum):
    """The differences that two equal texts may have."""

    EXACT = "exact"  # surrounding space
    # Case, space, punctuation and articles, as in SQuAD.
    NORMALISED = "normalised"


class TextSettings(Table):
    """The accepted answer, or several; how they are compared."""

    answer: tuple[str, ...]
    mode: TextComparison = TextComparison.NORMALISED

    @field_validator("answer", mode="plain")
    @classmethod
    def _one_or_several(cls, given: object) -> tuple[str, ...]:
        several = given if isinstance(given, list | tuple) else (given,)
        texts = tuple(one for one in several if isinstance(one, str) and one.strip())
        if not texts or len(texts) != len(several):
            raise ValueError("expected a text that is not blank, or several")
        return texts


def build_text_grader(settings: TextSettings, tools: GraderTools) -> "TextGrader":  # noqa: ARG001 - every grader's signature
    """Return the grader."""
    return TextGrader(settings.answer, settings.mode)


TEXT = Kind(settings=TextSettings, build=build_text_grader)


class TextGrader:
    """Grades the text of an answer."""

    __slots__ = ("_accepted", "_longest", "_mode", "_shown", "_values")
    name = "text"
    form = AnswerForm.TEXT

    def __init__(self, accepted: tuple[str, ...], mode: TextComparison = TextComparison.NORMALISED) -> None:
        self._mode = mode
        self._longest = _SPARE + 2 * max(map(len, accepted))
        self._accepted = frozenset(self._comparable(one) for one in accepted)
        values = [_python_value(one.strip()) for one in accepted]
        self._values = (
            frozenset(value for value in values if value) if mode is not TextComparison.EXACT and all(values) else None
        )
        self._shown = " or ".join(repr(one[:_SHOWN]) for one in accepted[:5])

    async def grade(self, answer: str) -> Grade:
        """Compare the whole answer, and the answer that it states, with each accepted one."""
        said = stated_text(answer)
        found = canonicalize_text(answer, said)
        candidates = (one for one in (answer, said) if one is not None and len(one) <= self._longest)
        if any(map(self._is_accepted, candidates)):
            return grade_from_score(self.name, 1.0, (found or answer.strip())[:_SHOWN], f"is {self._shown}")
        if found is None:
            return no_answer_grade(self.name, f"no answer found, expected {self._shown}")
        return grade_from_score(self.name, 0.0, found[:_SHOWN], f"found {found[:_SHOWN]!r}, expected {self._shown}")

    def _comparable(self, one: str) -> str:
        one = one.strip()
        return one if self._mode is TextComparison.EXACT else normalize_words(one) or strip_quotes(one)

    def _is_accepted(self, one: str) -> bool:
        bare = one.strip().strip("`").strip()
        if self._values:
            return not self._values.isdisjoint((_python_value(bare), _python_value(bare[1:-1]), repr(bare), repr(one)))
        return self._comparable(one) in self._accepted


def _python_value(text: str) -> str | None:
    """Return the one spelling of a Python text or container; None for any other text."""
    if text[:1] not in _VALUE_OPENINGS or len(text) > _LONGEST_VALUE:
        return None
    try:
        value = ast.literal_eval(text)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None
    if isinstance(value, dict | set):
        value = sorted(value.items() if isinstance(value, dict) else value, key=repr), type(value).__name__
    return repr(value) if isinstance(value, str | bytes | list | tuple) else None


class RegexSettings(Table):
    """The pattern; whether it must match the whole answer (except surrounding space); its time limit in seconds."""

    pattern: str
    whole: bool = False
    seconds: float = Field(default=1.0, gt=0, le=60)


def build_regex_grader(settings: RegexSettings, tools: GraderTools) -> "RegexGrader":  # noqa: ARG001 - every grader's signature
    """Return the grader; ConfigError says where in the pattern the mistake is."""
    return RegexGrader(settings)


REGEX = Kind(settings=RegexSettings, build=build_regex_grader)


class RegexGrader:
    """Grades whether an answer fits a pattern."""

    name = "regex"
    form: AnswerForm | None = None

    def __init__(self, settings: RegexSettings) -> None:
        self._settings = settings
        self._pattern = compile_pattern(settings.pattern, "pattern")

    async def grade(self, answer: str) -> Grade:
        """Search for the pattern."""
        text, settings = answer.strip(), self._settings
        if not text:
            return no_answer_grade(self.name, "the answer is blank")
        try:
            found = await search_pattern(self._pattern, text, settings.seconds, whole=settings.whole)
        except TimeoutError:
            return ungraded_grade(self.name, f"the pattern was still undecided after {settings.seconds:g} s")
        if found is not None:
            return grade_from_score(self.name, 1.0, found[:_SHOWN], f"fits {settings.pattern}")
        verb = "does not match all of" if settings.whole else "does not contain"
        return grade_from_score(self.name, 0.0, None, f"the answer {verb} {settings.pattern}")


def compile_pattern(pattern: str, where: str) -> "regex.Pattern[str]":
    """Return the compiled pattern; ConfigError says where the mistake is."""
    import regex

    try:
        return regex.compile(pattern)
    except regex.error as error:
        raise ConfigError(f"{where}: {error}") from None


async def search_pattern(pattern: "regex.Pattern[str]", text: str, seconds: float, *, whole: bool) -> str | None:
    """Return the first match's text, or None; TimeoutError when it is undecided after `seconds`."""
    try:
        return _match(pattern, text, _SECONDS_ON_LOOP, whole)
    except TimeoutError:
        return await asyncio.to_thread(_match, pattern, text, seconds, whole)


def _match(pattern: "regex.Pattern[str]", text: str, seconds: float, whole: bool) -> str | None:
    match = (pattern.fullmatch if whole else pattern.search)(text, timeout=seconds, concurrent=True)
    return None if match is None else str(match[0])
