"""JSON Schema against the clock: what is wrong with a JSON document, as a sentence (draft 2020-12 unless one is named).

Invariants: nothing is fetched, whatever a schema refers to; no document makes it hang: patterns are matched against the
clock and equal items are found by hashing (jsonschema's own ways can take for ever on a hostile document). Deliberately
absent: where in an answer the document stands (`json_schema`, `checks.json_schema`), repairing JSON, `format`, and
`unevaluatedProperties` together with `patternProperties`.
"""

import asyncio
import json
from collections.abc import Collection, Hashable, Iterator, Mapping
from contextvars import ContextVar
from math import isinf
from time import monotonic
from typing import TYPE_CHECKING, NoReturn, TypeAlias

from shikisha.errors import ConfigError
from shikisha.turn import Json

if TYPE_CHECKING:
    from jsonschema.exceptions import ValidationError
    from jsonschema.protocols import Validator
    from pydantic import JsonValue  # the engine starts without pydantic

_LONGEST_REASON = 500
_AT_ONCE = 0.005  # seconds that the event loop can spare for patterns
_deadline: ContextVar[float] = ContextVar("deadline of the validation under way")

Schema: TypeAlias = Mapping[str, Json]


class SchemaCheck:
    """A schema that was found usable."""

    def __init__(self, schema: Schema, where: str, seconds: float = 1.0) -> None:
        self._validator = _validator(schema, where)
        self._seconds = seconds

    async def problem(self, document: "JsonValue", *, short: bool) -> str | None:
        """Return what is wrong, or None; TimeoutError when patterns are undecided. `short`: the loop can judge it."""
        try:
            if short:
                return self._problem(document, _AT_ONCE)
        except TimeoutError:
            pass  # it needs longer than the event loop can wait
        return await asyncio.to_thread(self._problem, document, self._seconds)

    def _problem(self, document: "JsonValue", seconds: float) -> str | None:
        from jsonschema.exceptions import best_match
        from referencing.exceptions import Unresolvable

        token = _deadline.set(monotonic() + seconds)
        try:
            error = best_match(self._validator.iter_errors(document))
        except RecursionError:
            return "the answer is nested too deeply to be judged"
        except Unresolvable as missing:
            return f"the schema refers to {missing.ref}, which is not in it"
        finally:
            _deadline.reset(token)
        return None if error is None else storable(f"{error.json_path}: {error.message}")


def parsed(text: str) -> "JsonValue":
    """Return a JSON text's value; ValueError for anything else, NaN and numbers beyond a double included."""
    document: JsonValue = json.loads(text, parse_constant=_no_number, parse_float=_finite)
    return document


def storable(reason: str) -> str:
    """Return a reason as it can be kept in any store: no lone surrogates, no zero bytes, not too long."""
    return reason.encode("utf-8", "backslashreplace").decode().replace("\x00", "\\x00")[:_LONGEST_REASON]


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text[:40]} is no JSON number")


def _finite(text: str) -> float:
    return _no_number(text) if isinf(number := float(text)) else number


def _validator(schema: Schema, where: str) -> "Validator":
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import SchemaError
    from jsonschema.validators import extend, validator_for
    from referencing.jsonschema import EMPTY_REGISTRY  # it fetches nothing

    draft = validator_for(schema, default=Draft202012Validator)
    try:
        draft.check_schema(schema, format_checker=draft.FORMAT_CHECKER)
    except SchemaError as error:
        raise ConfigError(f"{where}: {error.json_path}: {error.message}") from None
    written = json.dumps(schema)
    if '"unevaluatedProperties"' in written and '"patternProperties"' in written:
        raise ConfigError(f"{where}: unevaluatedProperties together with patternProperties is not supported")
    bounded: Validator = extend(draft, _BOUNDED)(schema, registry=EMPTY_REGISTRY)
    return bounded


def _matches(pattern: str, text: str) -> bool:
    """Search against the clock; TimeoutError when the validation's time is over."""
    import regex

    left = _deadline.get() - monotonic()
    if left <= 0:
        raise TimeoutError
    return regex.search(pattern, text, timeout=left, concurrent=True) is not None


def _pattern(validator: "Validator", pattern: str, found: object, _: Schema) -> "Iterator[ValidationError]":
    from jsonschema.exceptions import ValidationError

    if validator.is_type(found, "string") and not _matches(pattern, str(found)):
        yield ValidationError(f"{found!r} does not match {pattern!r}")


def _pattern_properties(
    validator: "Validator", subschemas: Schema, found: object, _: Schema
) -> "Iterator[ValidationError]":
    if isinstance(found, dict):
        for pattern, subschema in subschemas.items():
            for key in found:
                if _matches(pattern, key):
                    yield from validator.descend(found[key], subschema, path=key, schema_path=pattern)


def _additional_properties(
    validator: "Validator", allowed: Json, found: object, schema: Schema
) -> "Iterator[ValidationError]":
    from jsonschema.exceptions import ValidationError

    if not isinstance(found, dict) or allowed is True:
        return
    known, patterns = (_keys(schema.get(keyword)) for keyword in ("properties", "patternProperties"))
    for key in found:
        if key in known or any(_matches(pattern, key) for pattern in patterns):
            continue
        if allowed is False:
            yield ValidationError(f"the key {key!r} is not allowed")
        else:
            yield from validator.descend(found[key], allowed, path=key)


def _keys(subschemas: Json) -> Collection[str]:
    return subschemas.keys() if isinstance(subschemas, dict) else ()


def _unique_items(_: "Validator", wanted: object, found: object, __: Schema) -> "Iterator[ValidationError]":
    from jsonschema.exceptions import ValidationError

    if wanted and isinstance(found, list) and len({_hashable(item) for item in found}) < len(found):
        yield ValidationError("an item is there twice")


def _hashable(value: object) -> Hashable:
    """Return a value that is equal where JSON Schema says equal: true is not 1, but 1.0 is."""
    match value:
        case dict():
            return "object", frozenset((key, _hashable(item)) for key, item in value.items())
        case list():
            return "array", tuple(_hashable(item) for item in value)
        case bool() | str() | None:
            return type(value).__name__, value
        case float() if value.is_integer():
            return "number", str(int(value))
        case _:
            return "number", str(value)  # texts have hashes that nobody can make collide


_BOUNDED = {
    "pattern": _pattern,
    "patternProperties": _pattern_properties,
    "additionalProperties": _additional_properties,
    "uniqueItems": _unique_items,
}
