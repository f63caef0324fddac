"""A subtask read as a tool's arguments: a JSON object that fits the tool's schema, or a fault that says what and where.

Invariants: nothing is repaired, guessed or filled in; a schema, which may come from a server, is bounded as `schema`
says. Deliberately absent: arguments taken from granted results.
"""

import json
import re
from collections.abc import Sequence
from typing import NoReturn

from pydantic import JsonValue

from shikisha.errors import FaultKind, WorkerError
from shikisha.schema import SchemaCheck

_FENCE = re.compile(r"^```[^\n`]*\n(.*?)^```[ \t]*$", re.MULTILINE | re.DOTALL)
_LONGEST = 300


class Arguments:
    """What one tool takes. `free` names the argument that a subtask in plain words is passed as."""

    def __init__(self, check: SchemaCheck, free: str | None = None) -> None:
        self._check = check
        self._free = free

    async def read(self, subtask: str) -> dict[str, JsonValue]:
        """Return the arguments that this subtask holds; BAD_ARGUMENTS says what does not fit, and where."""
        if self._free is None:
            return await self._fitting(_object(_json_part(subtask)))
        try:
            return await self._fitting(_object(subtask))
        except WorkerError:
            return await self._fitting({self._free: subtask})

    async def _fitting(self, arguments: dict[str, JsonValue]) -> dict[str, JsonValue]:
        try:
            problem = await self._check.problem(arguments)
        except TimeoutError as error:
            problem = f"whether they fit the tool's schema is {error}"
        if problem is not None:
            raise WorkerError(FaultKind.BAD_ARGUMENTS, problem)
        return arguments


def _bad(what: str, where: str) -> WorkerError:
    short = what if len(what) <= _LONGEST else what[:_LONGEST] + "…"
    return WorkerError(FaultKind.BAD_ARGUMENTS, f"{where}: {short}")


def _json_part(subtask: str) -> str:
    """Return the whole subtask if it is an object, or else its only fenced block."""
    if subtask.lstrip().startswith("{"):
        return subtask
    blocks = _FENCE.findall(subtask)
    if len(blocks) != 1:
        found = "no fenced block" if not blocks else f"{len(blocks)} fenced blocks"
        raise _bad(f"expected a JSON object as the whole text or as its only fenced block; there is {found}", "subtask")
    return str(blocks[0])


def _object(text: str) -> dict[str, JsonValue]:
    """Parse strictly: no name twice, no number that JSON does not have."""
    try:
        value = json.loads(text, object_pairs_hook=_unique, parse_constant=_no_constant)
        json.dumps(
            value, ensure_ascii=False
        ).encode()  # half a surrogate pair can be written as an escape, but not sent
    except json.JSONDecodeError as error:
        raise _bad(error.msg, f"line {error.lineno} column {error.colno}") from None
    except (ValueError, RecursionError) as error:
        raise _bad(str(error), "subtask") from None
    if not isinstance(value, dict):
        raise _bad(f"expected a JSON object, not {type(value).__name__}", "$")
    return value


def _unique(pairs: Sequence[tuple[str, object]]) -> dict[str, object]:
    made = dict(pairs)
    if len(made) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"{next(name for name in names if names.count(name) > 1)!r} is given twice")
    return made


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")
