"""The checker of short texts: the same, exactly or but for what makes no other answer of it.

Invariants: an accepted answer is compared before anything is read as a refusal, so that "I don't know" can be right;
an empty answer and one that declines are NO_ANSWER. Deliberately absent: overlap of words (F1), synonyms and spelling
mistakes: list what is accepted.
"""

from enum import StrEnum

from pydantic import BaseModel, ConfigDict, field_validator

from shikisha.grade import Grade, Tools, graded, no_answer
from shikisha.grade.canon import Form
from shikisha.grade.canon_text import bare_words, stated_text, text_of, unquoted

_SHOWN = 200
_SPARE = 500  # characters that may be space and punctuation


class Mode(StrEnum):
    """What two texts may differ in and be the same."""

    EXACT = "exact"  # space around them
    NORMALISED = "normalised"  # case, space, punctuation and articles, as SQuAD compares answers


class Settings(BaseModel):
    """The accepted answer, or several; how they are compared."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    answer: tuple[str, ...]
    mode: Mode = Mode.NORMALISED

    @field_validator("answer", mode="plain")
    @classmethod
    def _one_or_several(cls, given: object) -> tuple[str, ...]:
        several = given if isinstance(given, list | tuple) else (given,)
        texts = tuple(one for one in several if isinstance(one, str) and one.strip())
        if not texts or len(texts) != len(several):
            raise ValueError("expected a text that is not blank, or several")
        return texts


def build(settings: Settings, tools: Tools) -> "TextChecker":  # noqa: ARG001 - every checker's signature
    """Return the checker."""
    return TextChecker(settings.answer, settings.mode)


class TextChecker:
    """Grades what an answer says, as a text."""

    __slots__ = ("_accepted", "_longest", "_mode", "_shown")
    name = "text"
    form = Form.TEXT

    def __init__(self, accepted: tuple[str, ...], mode: Mode = Mode.NORMALISED) -> None:
        self._mode = mode
        self._longest = _SPARE + 2 * max(map(len, accepted))
        self._accepted = frozenset(self._comparable(one) for one in accepted)
        self._shown = " or ".join(repr(one[:_SHOWN]) for one in accepted[:5])

    async def grade(self, answer: str) -> Grade:
        """Compare the whole answer, and what it says to be its answer, with each accepted one."""
        said = stated_text(answer)
        found = text_of(answer, said)
        candidates = (one for one in (answer, said) if one is not None and len(one) <= self._longest)
        if any(self._comparable(one) in self._accepted for one in candidates):
            return graded(self.name, 1.0, (found or answer.strip())[:_SHOWN], f"is {self._shown}")
        if found is None:
            return no_answer(self.name, f"nothing is answered, expected {self._shown}")
        return graded(self.name, 0.0, found[:_SHOWN], f"found {found[:_SHOWN]!r}, expected {self._shown}")

    def _comparable(self, one: str) -> str:
        one = one.strip()
        return one if self._mode is Mode.EXACT else bare_words(one) or unquoted(one)
