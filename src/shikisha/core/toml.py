"""Reading TOML that people write, and writing tables of it: errors name file, key and what was expected.

Invariant: an error never repeats a value from the file (8: it might be a key in the wrong place). Deliberately absent:
what the keys mean (`config` and `conductors.rules` bring the pydantic models).
"""

import codecs
import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar, get_args, get_origin

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic.fields import FieldInfo

from shikisha.core.errors import MOST_LISTED, ConfigError, close_name, describe_invalid

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

M = TypeVar("M", bound=BaseModel)
Loc = tuple[int | str, ...]


class Table(BaseModel):
    """A table that people write: frozen, closed to unknown keys, and compiled when one is read for the first time."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


_MAX_BYTES = 1_000_000
_MAX_ERRORS = 20
_KEY_PART = "[key]"  # how pydantic marks that a table's name is wrong, and not its value
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_SECRETS = ("api_key", "apikey", "key", "password", "secret", "token")


def read_toml(path: Path) -> dict[str, object]:
    """Return the file's tables; ConfigError when it cannot be read or is not TOML."""
    try:
        with path.open("rb") as opened:
            data = opened.read(_MAX_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    if len(data) > _MAX_BYTES:
        raise ConfigError(f"{path}: more than {_MAX_BYTES:,} bytes are too many for a configuration")
    if data.startswith(codecs.BOM_UTF8):
        raise ConfigError(f"{path}: begins with a byte order mark: expected UTF-8 text without one")
    try:
        return tomllib.loads(data.decode())
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: expected UTF-8 text") from None
    except (tomllib.TOMLDecodeError, RecursionError, ValueError) as error:  # ValueError: a number of 5,000 digits
        raise ConfigError(f"{path}: not TOML: {error}") from None


def validate_model(model: type[M], data: object, file: str, prefix: str = "") -> M:
    """Return the data as this model; ConfigError names the file, each wrong key (dotted) and what was expected."""
    try:
        return model.model_validate(data)
    except ValidationError as error:
        details = error.errors(include_url=False, include_context=False, include_input=False)
    said = [_error_line(model, detail, file, prefix) for detail in details]
    more = f"\n(and {len(said) - _MAX_ERRORS} more)" if len(said) > _MAX_ERRORS else ""
    raise ConfigError("\n".join(said[:_MAX_ERRORS]) + more)


def _error_line(model: type[BaseModel], detail: "ErrorDetails", file: str, prefix: str) -> str:
    loc, known = _place(model, detail["loc"])
    match detail["type"]:
        case "extra_forbidden":
            what = _unknown_key(str(loc[-1]), sorted(known))
        case "missing":
            what = "is missing"
        case _:
            what = describe_invalid(detail["msg"])
    return f"{file}: {dotted_path(loc, prefix) or 'the file'}: {what}"


def first_invalid(error: ValidationError, whole: str = "") -> str:
    """Return the first thing that is wrong, and where; `whole`: what the place is called where that is all of it."""
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    place = dotted_path(first["loc"]) or whole
    return f"{place}: {describe_invalid(first['msg'])}" if place else describe_invalid(first["msg"])


@contextmanager
def error_location(where: str) -> Iterator[None]:
    """Put the place in front of a ConfigError that is raised inside."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from None


def dotted_path(loc: Loc, prefix: str = "") -> str:
    """Return a place as people write it: `workers.cheap.price.input`, `rule[1].domain`."""
    text = prefix
    for part in loc:
        if part != _KEY_PART:
            text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def _unknown_key(key: str, known: list[str]) -> str:
    if key.lower() in _SECRETS:
        return "keys are never written into a file: name the environment variable that holds it (api_key_env)"
    close = close_name(key, known)
    hint = f"; did you mean {close!r}?" if close else ""
    listed = "" if close and len(known) > MOST_LISTED else f"; known are {', '.join(known)}"
    return f"unknown key{listed}{hint}"


def _place(model: type[BaseModel], loc: Loc) -> tuple[Loc, Mapping[str, FieldInfo]]:
    """Return a place as a file has it, without pydantic's names of kinds, and the fields of the table around it."""
    here: object = model
    kept, known = list[int | str](), dict[str, FieldInfo]()
    for part in loc:
        while get_origin(here) is Annotated:
            here = get_args(here)[0]
        kept.append(part)
        if get_origin(here) in (dict, list, tuple):
            here = get_args(here)[-1 if get_origin(here) is dict else 0]
            continue
        tables = list(_nested_models(here))
        of_kind = [each for each in tables if any(part in get_args(f.annotation) for f in each.model_fields.values())]
        if len(tables) > 1 and of_kind:
            here = of_kind[0]
            kept.pop()
            continue
        known = dict(tables[0].model_fields) if tables else {}
        here = known[part].annotation if isinstance(part, str) and part in known else None
    return tuple(kept), known


def _nested_models(annotation: object) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in get_args(annotation):
        yield from _nested_models(inner)


def table_text(name: str, keys: Mapping[str, object]) -> str:
    """Return a table as TOML: its dotted name, and a line for each key."""
    return "\n".join([f"[{name}]", *(f"{quoted_key(key)} = {literal_text(value)}" for key, value in keys.items()), ""])


def quoted_key(name: str) -> str:
    """Return a key as TOML, in quotes where it needs them."""
    return name if _BARE_KEY.fullmatch(name) else literal_text(name)


def literal_text(value: object) -> str:
    """Return a value as TOML: a mapping as an inline table, a date as itself, all else as in JSON."""
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{quoted_key(key)} = {literal_text(inner)}" for key, inner in value.items()) + " }"
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(literal_text, value)) + "]"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
