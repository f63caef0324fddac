"""Reading a request's body: JSON of a bounded depth, then a wire model; what is wrong is a 400 that names the field.

Invariant 8: a message repeats no more of the input than a field's name and a short value. A depth is refused before
anything that recurses sees it. Deliberately absent: the size in bytes (`bounds`).
"""

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import TypeVar

from fastapi import Request
from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import ErrorDetails, from_json

from shikisha.server.problems import Problem

DEEPEST = 64
_LONGEST = 80
M = TypeVar("M", bound=BaseModel)


class Wire(BaseModel):
    """A part of a request: closed to unknown names, and types are not guessed."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class Treatment(StrEnum):
    """What becomes of a parameter."""

    HONOURED = "honoured"  # it does what the API says
    IGNORED = "ignored"  # accepted, because it can change no answer
    REFUSED = "refused"  # a 400, unless it asks for what happens anyway


async def read(request: Request, check: Callable[[dict[str, object]], None] | None = None) -> dict[str, object]:
    """Return the body as a JSON object; Problem when it is none. `check`: what refuses it before all else."""
    return parse(await request.body(), check)


def parse(body: bytes, check: Callable[[dict[str, object]], None] | None = None) -> dict[str, object]:
    """Return these bytes as a JSON object; Problem when they are none."""
    try:
        raw = from_json(body, allow_inf_nan=False)
    except ValueError as error:
        deep = "recursion" in str(error)
        raise Problem(400, _DEEP if deep else f"the body is not JSON: {error}", "invalid_json") from None
    if not isinstance(raw, dict):
        raise Problem(400, "the body is not a JSON object", "invalid_json")
    if check is not None:
        check(raw)  # a look at every level of a megabyte takes long
    if too_deep(raw):
        raise Problem(400, _DEEP, "invalid_json")
    return raw


def fit(raw: Mapping[str, object], model: type[M]) -> M:
    """Return what was read as this model; Problem names what is wrong."""
    try:
        return model.model_validate(raw)
    except ValidationError as error:
        raise _explained(error, raw, model) from None


def too_deep(value: object) -> bool:
    """Whether lists and objects are nested deeper than is taken."""
    level: list[object] = [value]
    for _ in range(DEEPEST):
        level = [part for each in level for part in _parts(each) if isinstance(part, dict | list)]
        if not level:
            return False
    return True


def documented(model: type[BaseModel]) -> dict[str, object]:
    """Return what the OpenAPI document says of a route that reads this model by itself."""
    schema = model.model_json_schema()
    whole = _inlined(schema, schema.pop("$defs", {}))
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": whole}}}}


def refuse(treatments: Mapping[str, str], name: str, value: object) -> Problem:
    """Return what is said of a parameter that cannot be honoured."""
    shown = repr(value)
    shown = shown if len(shown) <= _LONGEST else shown[: _LONGEST - 1] + "…"
    return Problem(400, f"{name}: {shown} cannot be honoured: {treatments[name]}", "unsupported_value", param=name)


_DEEP = f"the body is nested deeper than {DEEPEST} levels"


def _parts(value: object) -> Sequence[object]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else ()


def _explained(error: ValidationError, raw: Mapping[str, object], model: type[BaseModel]) -> Problem:
    """Return what is said of the deepest mistake: where a text or a list may stand, the other shape's is beside it."""
    found = error.errors(include_url=False, include_input=False)
    first, path = max(((each, _path(each, raw)) for each in found), key=lambda pair: len(pair[1]))
    where = _written(path)
    match first["type"]:
        case "extra_forbidden":
            known = f"; known are: {', '.join(model.model_fields)}" if len(path) == 1 else ""
            return Problem(400, f"unknown parameter: {where}{known}", "unknown_parameter", param=where)
        case "missing":
            return Problem(400, f"missing parameter: {where}", "missing_required_parameter", param=where)
        case _:
            message = first["msg"].removeprefix("Value error, ")
            return Problem(400, f"{where}: {message}" if where else message, "invalid_value", param=where or None)


def _path(error: ErrorDetails, raw: object) -> list[int | str]:
    """Return the place of a mistake in what was sent: the names of union members are left out."""
    path: list[int | str] = []
    missing = error["type"] == "missing"
    for number, part in enumerate(error["loc"], start=1):
        if isinstance(part, int) and isinstance(raw, list):
            raw = raw[part] if part < len(raw) else None
        elif isinstance(raw, dict) and part in raw:
            raw = raw[part]
        elif not (missing and number == len(error["loc"])):
            continue
        path.append(part)
    return path


def _written(path: Sequence[int | str]) -> str:
    """Return a place as clients write it: `messages[0].content`."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).removeprefix(".")


def _inlined(value: object, parts: Mapping[str, object]) -> object:
    """Return a schema with every reference replaced by what it refers to; the models are not recursive."""
    if isinstance(value, dict):
        reference = value.get("$ref")
        if isinstance(reference, str):
            return _inlined(parts[reference.rpartition("/")[2]], parts)
        return {name: _inlined(part, parts) for name, part in value.items() if name != "discriminator"}
    return [_inlined(part, parts) for part in value] if isinstance(value, list) else value
