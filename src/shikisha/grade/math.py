"""The checker of mathematical answers: equal to the right expression, however it is written.

Spelling goes first (`canon_math`): numbers, sets, pairs and most expressions are decided by it within microseconds.
What it cannot decide goes to `algebra`. Invariants: no expression hangs or slows the event loop; an answer that is so
hard that it cannot be shown equal in time is WRONG, as evaluations have it, and says so; UNGRADED is only what our own
process failed at. Ratios, and answers in words, are compared by spelling alone: as algebra `6:1` would be 6, and a word
a product of its letters. Deliberately absent: part marks for some members of a set.
"""

import re

from pydantic import BaseModel, ConfigDict, Field

from shikisha.errors import ConfigError
from shikisha.grade import Grade, Tools, graded, no_answer, ungraded
from shikisha.grade.algebra import Algebra, Finding, require_math, shared
from shikisha.grade.canon import Form
from shikisha.grade.canon_math import (
    brackets,
    canonical_expression,
    contradicts,
    equated,
    expression,
    figure,
    has_base,
    latex,
)
from shikisha.grade.canon_place import spoken
from shikisha.grade.number import agree

_LONGEST = 1_000  # characters of an expression that algebra is asked about
_SHOWN = 200
_RELATION = re.compile(r"[=<>≤≥≠∈]|\\(?:neq?|leq?|geq?|lt|gt|in|equiv)\b")


class Settings(BaseModel):
    """The right expression, in LaTeX or plain."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    answer: str = Field(min_length=1)


def build(settings: Settings, tools: Tools) -> "MathChecker":  # noqa: ARG001 - every checker's signature
    """Return the checker; MissingExtra without math-verify, ConfigError when the right answer is empty."""
    require_math()
    return MathChecker(settings.answer)


class MathChecker:
    """Grades the expression that an answer gives."""

    __slots__ = ("_algebra", "_canonical", "_figure", "_right")
    name = "math"
    form = Form.MATH

    def __init__(self, right: str, algebra: Algebra | None = None) -> None:
        written = expression(right) or spoken(right)
        canonical = canonical_expression(written)
        if canonical is None:
            raise ConfigError("answer: expected an expression")
        self._right = written
        self._figure = figure(written)
        self._canonical = canonical
        self._algebra = algebra

    async def grade(self, answer: str) -> Grade:
        """Compare by spelling, then by algebra."""
        written = expression(answer)
        found = None if written is None else canonical_expression(written)
        if written is None or found is None:
            return no_answer(self.name, f"no expression found, expected {self._right}")
        same = self._spelled(written, found)
        if same is not None:
            return self._graded(found, same)
        algebra = self._algebra or shared()
        finding = await algebra.compare(latex(self._right), latex(written))
        if finding is Finding.EQUAL and not _RELATION.search(self._right):
            for one, other in equated(written):  # "x - 1 = x + 1": what is said to be equal must be
                finding = await algebra.compare(latex(one), latex(other)) if finding is Finding.EQUAL else finding
        if finding is Finding.FAILED:
            return ungraded(self.name, "the process that compares expressions failed")
        notes = {
            Finding.UNDECIDED: f"; not shown equal within {algebra.seconds:g} s",
            Finding.UNREAD: "; compared by spelling, since not both can be read as mathematics",
        }
        return self._graded(found, finding is Finding.EQUAL, notes.get(finding, ""))

    def _spelled(self, written: str, found: str) -> bool | None:
        """Return whether they are the same, where spelling can tell."""
        ours = None if self._figure is None else figure(written)
        if ours is not None and self._figure is not None:
            return agree(ours, self._figure)
        if found == self._canonical:
            return True
        if self._differs(written):
            return False
        if any(_is_wording(one) for one in (found, self._canonical)) or len(written) > _LONGEST:
            return False
        return None

    def _differs(self, written: str) -> bool:
        """Return whether the forms say that they differ, though algebra would make one of them the other.

        A set is no pair or interval, a number in another base is not its digits, and of the numbers that an answer
        says to be equal none is another than the right one ("4 = 5").
        """
        ours, theirs = brackets(written), brackets(self._right)
        if ours and theirs and ours != theirs:
            return True
        if has_base(written) and not has_base(self._right):
            return True
        return not _RELATION.search(self._right) and contradicts(written)

    def _graded(self, found: str, right: bool, note: str = "") -> Grade:
        shown = found[:_SHOWN]
        evidence = f"found {shown}, as expected" if right else f"found {shown}, expected {self._right}{note}"
        return graded(self.name, float(right), shown, evidence)


def _is_wording(canonical: str) -> bool:
    words = canonical.replace(" ", "").replace("-", "")
    return ":" in canonical or (words.isalpha() and len(words) > 3)
