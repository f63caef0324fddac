"""The schema that a client wants an answer to follow: whether it is one, before anything is begun.

Invariant: nothing is fetched for a schema; what it refers to is in it. Deliberately absent: holding an answer to it
(`handoff`).
"""

from collections.abc import Iterator, Mapping, Sequence

from shikisha.errors import ConfigError, TaskError
from shikisha.schema import SchemaCheck
from shikisha.server.problems import Problem
from shikisha.turn import Json

_DATA = frozenset({"const", "enum", "default", "examples", "example"})  # what holds values, and no schemas


def checked(schema: Mapping[str, Json], where: str) -> Mapping[str, Json]:
    """Return the schema; 400 names what is wrong with it."""
    try:
        SchemaCheck(schema, where)
    except (ConfigError, TaskError) as error:
        raise Problem(400, str(error), "invalid_value", param=where) from None
    for reference in _references(schema):
        if not _found(schema, reference):
            said = f"{where}: it refers to {reference[:200]!r}, which is not in it, and nothing is fetched"
            raise Problem(400, said, "invalid_value", param=where)
    return schema


def _references(part: Json) -> Iterator[str]:
    if isinstance(part, Mapping):
        if isinstance(reference := part.get("$ref"), str):
            yield reference
        for name, value in part.items():
            if name not in _DATA:
                yield from _references(value)
    elif isinstance(part, Sequence) and not isinstance(part, str):
        for value in part:
            yield from _references(value)


def _found(schema: Mapping[str, Json], reference: str) -> bool:
    """Whether a reference is one into this schema: a JSON pointer that leads somewhere, or an anchor."""
    if not reference.startswith("#/"):
        return reference.startswith("#") or reference == schema.get("$id")
    part: Json = schema
    for name in reference.removeprefix("#/").split("/"):
        key = name.replace("~1", "/").replace("~0", "~")
        if isinstance(part, Mapping) and key in part:
            part = part[key]
        elif isinstance(part, Sequence) and not isinstance(part, str) and key.isdecimal() and int(key) < len(part):
            part = part[int(key)]
        else:
            return False
    return True
