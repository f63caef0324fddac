"""JSON Schema with bounded work: the one door for every foreign schema, and what is wrong with a JSON document.

What is built: a schema is counted before anything else looks at it (characters, values, nesting, and what it comes to
with every reference written out), and one that leads back to itself at the same place of a document is refused.
Judging spends counted steps, so that a verdict does not depend on how busy the machine is; a clock stands behind them,
and patterns, whose repeats are counted first, run against that clock without the interpreter's lock. What takes longer
than a moment leaves the event loop for one thread, which gives way to the loop, and ends there by itself. Nothing is
fetched. Deliberately absent: `format`, references to the drafts' own schemas, finding the document in an answer
(`json_schema`, `checks.json_schema`), and repairing JSON.

Drafts 4 to 2020-12. Of the official test suite's required files 4,770 cases come out right, 2 wrong (`$vocabulary`),
and 170 are refused (remote references and the drafts' own schemas); its optional files differ. `schema_bombs` in
benchmarks is what was tried against it.

Why it is our own: neither library can be bounded. `jsonschema` takes time exponential in the schema on the event loop,
writes whole documents into every message, recurses without limit (a Rust part of it then panics, which is no
`Exception`), and its helpers for `unevaluatedProperties` cannot be counted from outside. `jsonschema-rs` survives
cycles and has linear patterns, but no budget and no way to stop: 24 levels of doubled `allOf` take .2 s, 40 would take
hours, and 22 of them below `unevaluatedProperties` more than 20 s.
"""

import asyncio
import json
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, lru_cache
from math import isinf
from typing import TYPE_CHECKING, NoReturn, TypeAlias, TypeVar

from shikisha.core.errors import ConfigError
from shikisha.core.json_schema.compiler import (
    JsonPlace,
    KeywordError,
    SchemaCompiler,
    SchemaPart,
    SchemaValidator,
    ValueFrame,
    json_path,
)
from shikisha.core.json_schema.keywords import KEYWORDS
from shikisha.core.messages import Json, dump_json

if TYPE_CHECKING:
    from pydantic import JsonValue  # the engine starts without pydantic

MOST_CHARACTERS = 200_000  # of a schema as compact JSON
MOST_VALUES = 10_000  # objects, lists, names of keys and plain values in it
MOST_LEVELS = 64
MOST_EXPANDED = 100_000  # schemas, when every reference that can be is replaced by what it refers to
MOST_AT_ONCE = 5_000  # of those, how many may apply to one and the same place of a document
MOST_CHAINED = 100  # of these, how many may apply one another in a row
MOST_STEPS = 500_000  # about half a second
_AT_ONCE_STEPS = 500  # what the event loop can spare: less than a millisecond
_AT_ONCE_SECONDS = 0.002
_AT_ONCE_LETTERS = 5_000  # of a schema without patterns that it can read
_LONGEST_REASON = 500
Schema: TypeAlias = Mapping[str, Json]
T = TypeVar("T")


class SchemaCheck:
    """A schema that was found usable. `seconds`: the most that judging one document may take."""

    def __init__(self, schema: Schema, where: str, seconds: float = 1.0) -> None:
        text = _schema_text(schema, where)
        try:
            self._compiled = _compile_schema(text)
        except ConfigError as error:
            raise ConfigError(f"{where}: {error}") from None
        self._seconds = seconds

    @classmethod
    async def create(cls, schema: Schema, where: str, seconds: float = 1.0) -> "SchemaCheck":
        """Return the check of a stranger's schema; ConfigError says what is wrong with it."""
        return await _off_loop(_schema_text(schema, where), lambda: cls(schema, where, seconds))

    async def problem(self, document: "JsonValue") -> str | None:
        """Return what is wrong with a document, and where; None: nothing. TimeoutError when it stays undecided."""
        try:
            return self._judge(document, _AT_ONCE_STEPS, _AT_ONCE_SECONDS)
        except TimeoutError:  # it needs longer than the event loop can wait
            return await _run_in_thread(lambda: self._judge(document, MOST_STEPS, self._seconds, patient=True))

    def _judge(self, document: "JsonValue", steps: int, seconds: float, *, patient: bool = False) -> str | None:
        judge = SchemaValidator(steps, seconds, tracks=self._compiled.tracks, patient=patient)
        try:
            problem = judge.apply(self._compiled.root, ValueFrame(document))
        except RecursionError:
            return "the answer is nested too deeply to be judged"
        return None if problem is None else storable_reason(f"{json_path(problem.path)}: {problem.what()}")


def check_size(schema: Json, where: str, times: int = 1) -> None:
    """Refuse what is too large, before anything else has been done with it; ConfigError says where.

    `times`: how often as large as one schema it may be, where it is a list of several.
    """
    try:
        _check_size(schema, times)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from None


async def check_bounds(schemas: Mapping[str, Schema]) -> None:
    """Refuse schemas that are only passed on (a client's tools, by their places) when they are too large to be.

    ConfigError names the place. What we do not understand in them is the business of whoever is to follow them.
    """
    letters = [_schema_text(schema, where) for where, schema in schemas.items()]
    if sum(map(len, letters)) > 2 * MOST_CHARACTERS:
        raise ConfigError(f"{next(iter(schemas))} and those after it: longer than {2 * MOST_CHARACTERS:,} characters")

    def check() -> None:
        for where, text in zip(schemas, letters, strict=True):
            try:
                _compile_schema(text, lenient=True)
            except ConfigError as error:
                raise ConfigError(f"{where}: {error}") from None

    await _off_loop("".join(letters), check)


def parse_json(text: str) -> "JsonValue":
    """Return a JSON text's value; ValueError for anything else, NaN and numbers beyond a double included."""
    document: JsonValue = json.loads(text, parse_constant=_reject_number, parse_float=_finite_float)
    return document


def storable_reason(reason: str) -> str:
    """Return a reason as it can be kept in any store: no lone surrogates, no zero bytes, not too long."""
    return reason.encode("utf-8", "backslashreplace").decode().replace("\x00", "\\x00")[:_LONGEST_REASON]


def _reject_number(text: str) -> NoReturn:
    raise ValueError(f"{text[:40]} is no JSON number")


def _finite_float(text: str) -> float:
    return _reject_number(text) if isinf(number := float(text)) else number


@cache
def _schema_thread(process: int) -> ThreadPoolExecutor:  # noqa: ARG001 - a forked process has none of its parent's threads
    return ThreadPoolExecutor(1, thread_name_prefix="schema")


async def _run_in_thread(work: Callable[[], T]) -> T:
    return await asyncio.get_running_loop().run_in_executor(_schema_thread(os.getpid()), work)


async def _off_loop(text: str, work: Callable[[], T]) -> T:
    """Do what depends on a schema's text, where that is long, in the thread."""
    short = len(text) <= _AT_ONCE_LETTERS and '"pattern' not in text  # compiling a pattern may take some ms
    return work() if short else await _run_in_thread(work)


@dataclass(frozen=True, slots=True)
class _CompiledSchema:
    """A schema ready to be applied. `tracks`: it asks which parts of a value no schema has looked at."""

    root: SchemaPart
    tracks: bool


def _schema_text(schema: Schema, where: str) -> str:
    """Return a schema as text, once it is known to be short; ConfigError when it is not."""
    try:
        _check_size(schema)
        return dump_json(schema)
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigError(f"{where}: no JSON that can be read: {error}") from None
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from None


@lru_cache(maxsize=64)  # what was read at a door is not read again for each answer
def _compile_schema(text: str, *, lenient: bool = False) -> _CompiledSchema:
    """Return a schema ready to be applied; ConfigError says what is wrong with it, and where."""
    schema: Json = json.loads(text)
    reading = SchemaCompiler(schema, KEYWORDS, lenient=lenient)
    try:
        root = reading.part(schema, reading.root, None)
    except KeywordError as error:
        raise ConfigError(f"$: {error}") from None
    reading.resolve()
    _check_cycles(reading.parts.values())
    return _CompiledSchema(root, reading.tracks)


def _check_size(schema: Json, times: int = 1) -> None:
    """Refuse what is too large, level by level, before anything recurses or copies; no further than it has to."""
    most_values, most_characters = times * MOST_VALUES, times * MOST_CHARACTERS
    values, characters = 0, 0
    level: list[tuple[Json, JsonPlace]] = [(schema, None)]
    for _ in range(MOST_LEVELS):
        below: list[tuple[Json, JsonPlace]] = []
        for each, path in level:
            for key, value in _children(each):
                values += 1
                characters += (len(key) if isinstance(key, str) else 0) + (len(value) if isinstance(value, str) else 2)
                if values > most_values or characters > most_characters:
                    most = f"{most_values:,} values or {most_characters:,} characters"
                    raise ConfigError(f"{json_path((path, key))}: a schema of more than {most}")
                below.append((value, (path, key)))
        level = below
        if not level:
            return
    raise ConfigError(f"{json_path(level[0][1])}: a schema nested deeper than {MOST_LEVELS} levels")


def _children(value: Json) -> Iterable[tuple[str | int, Json]]:
    if isinstance(value, Mapping):
        return value.items()
    return enumerate(value) if isinstance(value, Sequence) and not isinstance(value, str) else ()


def _check_cycles(parts: "Collection[SchemaPart]") -> None:
    """Refuse what would be applied to the same value for ever, or too often."""
    for group, size, chain in _expanded_groups(parts, lambda part: part.here):
        if len(group) > 1 or group[0] in group[0].here:
            raise ConfigError(
                f"{json_path(group[0].place)}: it leads back to itself without going deeper into a document"
            )
        if size > MOST_AT_ONCE or chain > MOST_CHAINED:
            what = f"{size:,}" if size <= MOST_EXPANDED else f"more than {MOST_EXPANDED:,}"
            said = f"with its references {what} schemas apply to one value, {chain} inside one another"
            most = f"at most {MOST_AT_ONCE:,} and {MOST_CHAINED} are taken"
            raise ConfigError(f"{json_path(group[0].place)}: {said}; {most}")
    for group, size, _ in _expanded_groups(parts, lambda part: [*part.here, *part.below]):
        if size > MOST_EXPANDED:
            said = f"with its references written out it comes to more than {MOST_EXPANDED:,} schemas"
            raise ConfigError(f"{json_path(group[0].place)}: {said}")


def _expanded_groups(
    parts: "Collection[SchemaPart]", leads: "Callable[[SchemaPart], list[SchemaPart]]"
) -> "Iterator[tuple[list[SchemaPart], int, int]]":
    """Yield the groups of parts that lead to each other (most are one part) with what each comes to, written out.

    That is how many parts, where a group counts once, and how many inside one another (Tarjan, SIAM J. Comput. 1972).
    """
    number: dict[SchemaPart, int] = {}
    lowest: dict[SchemaPart, int] = {}
    done: dict[SchemaPart, tuple[int, int]] = {}
    open_: list[SchemaPart] = []
    for start in parts:
        if start in number:
            continue
        path = [(start, iter(leads(start)))]
        number[start] = lowest[start] = len(number)
        open_.append(start)
        while path:
            part, rest = path[-1]
            for target in rest:
                if target not in number:
                    number[target] = lowest[target] = len(number)
                    open_.append(target)
                    path.append((target, iter(leads(target))))
                    break
                if target not in done:
                    lowest[part] = min(lowest[part], number[target])
            else:
                path.pop()
                if path:
                    lowest[path[-1][0]] = min(lowest[path[-1][0]], lowest[part])
                if lowest[part] == number[part]:
                    cut = open_.index(part)
                    group, open_[cut:] = open_[cut:], []
                    yield group, *_group_size(group, leads, done)


def _group_size(
    group: "list[SchemaPart]",
    leads: "Callable[[SchemaPart], list[SchemaPart]]",
    done: "dict[SchemaPart, tuple[int, int]]",
) -> tuple[int, int]:
    targets = [done[target] for part in group for target in leads(part) if target in done]
    size = min(len(group) + sum([size for size, _ in targets]), MOST_EXPANDED + 1)
    chain = min(1 + max([chain for _, chain in targets], default=0), MOST_CHAINED + 1)
    done.update(dict.fromkeys(group, (size, chain)))
    return size, chain
