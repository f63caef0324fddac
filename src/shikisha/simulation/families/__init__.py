"""The families of work, one small file each. A new family is a file and its name in this list.

All of them can be read, told and done, whichever edition of the orchestra asks for them; what an edition draws from is
its own list (`edition`).
"""

from shikisha.simulation.families import (
    arithmetic,
    calendar,
    cipher,
    comparison,
    digits,
    fact,
    gauge,
    numeral,
    sensor,
    text,
    unit,
    week,
)
from shikisha.simulation.operations import Operation, QuestionFamily

_SMALL_MODULES = (fact, arithmetic, text, calendar, comparison, gauge)  # the small edition's
_LARGE_MODULES = (unit, numeral, week, cipher, digits, sensor)

FAMILIES: dict[str, QuestionFamily] = {
    module.FAMILY.name: module.FAMILY for module in (*_SMALL_MODULES, *_LARGE_MODULES)
}
SMALL_FAMILIES = tuple(module.FAMILY.name for module in _SMALL_MODULES)
OPERATIONS: dict[str, Operation] = {op.name: op for family in FAMILIES.values() for op in family.operations}
