"""Grade numbers: equal within a tolerance, in any unit, as a fraction or as a percentage.

Without a tolerance, whole numbers must be equal and others agree to a millionth. A `%` on one side only allows both
readings of the other side: 50 % is 50 and 0.5, as published answers to "what percentage" have no sign, but 0.5 % is not
0.5. Units count where both sides have a known one: 5 km is 5000 m and not 5 m. An answer's unit is ignored where the
right answer has none, and may be omitted unless it is required. Invariants: values are exact fractions; anything but a
single number is NO_ANSWER. Deliberately absent: significant figures.
"""

from fractions import Fraction
from typing import Annotated

from pydantic import BeforeValidator, Field

from shikisha.core.errors import ConfigError
from shikisha.core.fast_dataclass import dataclass
from shikisha.core.kinds import Kind
from shikisha.core.toml import Table
from shikisha.evals.graders import Grade, GraderTools, grade_from_score, no_answer_grade
from shikisha.evals.graders.canonical_form import AnswerForm
from shikisha.evals.graders.quantities import Quantity, Unit, extract_quantity
from shikisha.evals.graders.quantities import parse_unit as known_unit

_MILLIONTH = Fraction(1, 10**6)
_NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]


@dataclass(frozen=True, slots=True)
class Tolerance:
    """How far a number may be off: by an amount, or by a share of the right value (None: see the module docstring)."""

    absolute: float = 0.0
    relative: float | None = None

    def allows(self, found: Fraction, right: Fraction) -> bool:
        """Whether one value is close enough to the other."""
        if found == right:
            return True
        relative = self.relative
        if relative is None:
            share = Fraction(0) if right.denominator == 1 or self.absolute else _MILLIONTH
        else:
            share = Fraction(relative)
        return abs(found - right) <= max(Fraction(self.absolute), share * abs(right))


DEFAULT_TOLERANCE = Tolerance()


def _as_text(given: object) -> object:
    return str(given) if isinstance(given, int | float) and not isinstance(given, bool) else given


class NumberSettings(Table):
    """The right number (as text it may hold its unit); its unit; whether an answer must give one; tolerances."""

    answer: Annotated[str, BeforeValidator(_as_text)]
    unit: str = ""
    unit_required: bool = False
    absolute: _NonNegative = 0.0
    relative: _NonNegative | None = None


def build_number_grader(settings: NumberSettings, tools: GraderTools) -> "NumberGrader":  # noqa: ARG001 - every grader's signature
    """Return the grader; ConfigError when the right answer is not a number, or a required unit is missing."""
    right = extract_quantity(settings.answer)
    if right is None:
        raise ConfigError("answer: expected one number")
    if settings.unit:
        right = Quantity(right.text, right.value, settings.unit.strip())
    if settings.unit_required and not right.unit:
        raise ConfigError("unit: is missing, though unit_required")
    return NumberGrader(right, Tolerance(settings.absolute, settings.relative), unit_required=settings.unit_required)


KIND = Kind(settings=NumberSettings, build=build_number_grader)


class NumberGrader:
    """Grades the number that an answer gives."""

    __slots__ = ("_right", "_tolerance", "_unit_required")
    name = "number"
    form = AnswerForm.NUMBER

    def __init__(
        self, right: Quantity, tolerance: Tolerance = DEFAULT_TOLERANCE, *, unit_required: bool = False
    ) -> None:
        self._right = right
        self._tolerance = tolerance
        self._unit_required = unit_required

    async def grade(self, answer: str) -> Grade:
        """Compare the number found with the right one."""
        found = extract_quantity(answer)
        if found is None:
            return no_answer_grade(self.name, f"no single number found, expected {format_quantity(self._right)}")
        if self._unit_required and not found.unit:
            evidence = f"found {format_quantity(found)} without a unit, expected {format_quantity(self._right)}"
            return grade_from_score(self.name, 0.0, found.text, evidence)
        right = quantities_agree(found, self._right, self._tolerance, strict=self._unit_required)
        expected = "as expected" if right else f"expected {format_quantity(self._right)}"
        return grade_from_score(self.name, float(right), found.text, f"found {format_quantity(found)}, {expected}")


def format_quantity(one: Quantity) -> str:
    """Return a quantity as text for evidence."""
    return f"{one.text}{'' if one.unit in ('', '%', '°') else ' '}{one.unit}"


def quantities_agree(
    found: Quantity, right: Quantity, tolerance: Tolerance = DEFAULT_TOLERANCE, *, strict: bool = False
) -> bool:
    """Whether two quantities are the same. `strict`: unknown units must have the same letters."""
    ours, theirs = known_unit(found.unit), known_unit(right.unit)
    if ours is not None and theirs is not None:
        return ours.dimension == theirs.dimension and _agree_in_base_units(found, ours, right, theirs, tolerance)
    if strict and (ours is not theirs or _unit_letters(found.unit) != _unit_letters(right.unit)):
        return False
    if found.value is None or right.value is None:
        return found.text == right.text
    readings = [found.value]
    if found.percent and not right.percent:
        readings = [found.value / 100, *(readings if abs(right.value) >= 1 else [])]
    elif right.percent and not found.percent:
        readings.append(found.value * 100)
    return any(tolerance.allows(reading, right.value) for reading in readings)


def _agree_in_base_units(found: Quantity, ours: Unit, right: Quantity, theirs: Unit, tolerance: Tolerance) -> bool:
    if found.value is None or right.value is None:
        return found.text == right.text and ours == theirs
    return tolerance.allows((ours.base(found.value) - theirs.offset) / theirs.factor, right.value)


def _unit_letters(unit: str) -> str:
    return unit.casefold().rstrip(".").removesuffix("s")
