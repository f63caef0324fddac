"""`--set KEY=VALUE`: a file's settings with others in the place of some, for one run.

    --set grpo.group=4 --set 'trl.vllm="server"' --set 'tasks.pool=["cheap", "dear"]'

Keys are dotted as errors name them, values are TOML. Invariant: what is put in passes the same validation as the file,
so nothing can be set that a file could not say. Deliberately absent: taking a bare word for a text, because a typed
`true` or `1` would then mean something else than it looks like.
"""

import tomllib
from collections.abc import Iterable, Mapping

from shikisha.errors import ConfigError

Tables = dict[str, object]


def put(tables: Mapping[str, object], given: Iterable[str]) -> Tables:
    """Return the tables with KEY=VALUE put in, later ones over earlier ones; ConfigError says what is no such thing."""
    found: Tables = dict(tables)
    for one in given:
        key, value = _read(one)
        found = _over(found, key.split("."), value, one)
    return found


def _read(given: str) -> tuple[str, object]:
    key, mark, text = given.partition("=")
    key = key.strip()
    if not mark or not all(key.split(".")):
        raise ConfigError(f"--set {given}: expected KEY=VALUE, as in grpo.group=4")
    try:
        value = tomllib.loads(f"value = {text}")
    except tomllib.TOMLDecodeError:
        value = {}
    if set(value) != {"value"}:
        raise ConfigError(f"--set {given}: expected a TOML value; a text stands in quotes: '{key}=\"{text.strip()}\"'")
    return key, value["value"]


def _over(tables: Mapping[str, object], key: list[str], value: object, given: str) -> Tables:
    first, *rest = key
    if not rest:
        return {**tables, first: value}
    inner = tables.get(first, {})
    if not isinstance(inner, Mapping):
        raise ConfigError(f"--set {given}: {first} is a value, not a table")
    return {**tables, first: _over(inner, rest, value, given)}
