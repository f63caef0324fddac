"""JSON Schema with bounded work: the only way in for foreign schemas, and the validation of JSON documents.

Neither library can be given a budget or be stopped, and a foreign schema needs both: below `unevaluatedProperties`, 16
levels of doubled references take jsonschema-rs 0.60 14 s, and `jsonschema` takes exponential time on the event loop and
recurses without limit. When a schema is compiled, it is counted before anything else looks at it: characters, values,
nesting, and its size with every reference expanded. A schema that leads back to itself at the same place of a document
is refused. Validation spends counted steps, so that a verdict does not depend on how busy the machine is; a clock backs
them up. Patterns, whose repeats are counted first, run against that clock without the interpreter's lock. Work that
takes longer than a moment moves from the event loop to a thread, one for each owner of work (see `fair_work`), which
yields to the loop and ends by itself. Nothing is fetched. Any module may import this package; `compiler` and `keywords`
are its own. Deliberately absent: `format`, references to the drafts' own schemas, and repairing JSON.

Drafts 4 to 2020-12. Of the official test suite's required files 4,770 cases are right, 2 wrong (`$vocabulary`), and 170
are refused (remote references and the drafts' own schemas); its optional files differ. `schema_bombs` in tests/support
lists the attacks that were tried.
"""

import asyncio
import json
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from math import isinf
from typing import TYPE_CHECKING, NoReturn, TypeAlias, TypeVar

from shikisha.core.errors import ConfigError
from shikisha.core.fair_work import FairExecutor
from shikisha.core.fast_dataclass import dataclass
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
from shikisha.core.text import fenced_blocks

if TYPE_CHECKING:
    from pydantic import JsonValue  # the engine starts without pydantic

MOST_CHARACTERS = 200_000  # of a schema as compact JSON
# Objects, lists, names of keys and plain values in it.
MOST_VALUES = 10_000
MOST_LEVELS = 64
MOST_EXPANDED = 100_000  # schemas, with every reference expanded
# Of those, how many may apply to one value.
MOST_AT_ONCE = 5_000
MOST_CHAINED = 100  # of these, how many may be nested
MOST_STEPS = 500_000  # about half a second
# On the event loop: less than a millisecond.
_AT_ONCE_STEPS = 500
_AT_ONCE_SECONDS = 0.002
# Of a schema without patterns that the event loop compiles.
_AT_ONCE_LETTERS = 5_000
_LONGEST_REASON = 500
_OTHERS = 7  # threads for so many owners besides one: the system shares the cores among them
Schema: TypeAlias = Mapping[str, Json]
T = TypeVar("T")


class SchemaCheck:
    """A usable schema. `seconds`: the time limit for one document."""

    def __init__(self, schema: Schema, where: str, seconds: float = 1.0) -> None:
        text = _schema_text(schema, where)
        try:
            self._compiled = _compile_schema(text)
        except ConfigError as error:
            raise ConfigError(f"{where}: {error}") from None
        self._seconds = seconds

    @classmethod
    async def create(cls, schema: Schema, where: str, seconds: float = 1.0) -> "SchemaCheck":
        """Compile a foreign schema without blocking the event loop; ConfigError says what is wrong with it."""
        return await _off_loop(_schema_text(schema, where), lambda: cls(schema, where, seconds))

    async def problem(self, document: "JsonValue") -> str | None:
        """Return what is wrong with a document, and where; None for a valid one. TimeoutError when undecided."""
        try:
            return self._validate(document, _AT_ONCE_STEPS, _AT_ONCE_SECONDS)
        except TimeoutError:  # too long for the event loop
            return await _run_in_thread(lambda: self._validate(document, MOST_STEPS, self._seconds, patient=True))

    def _validate(self, document: "JsonValue", steps: int, seconds: float, *, patient: bool = False) -> str | None:
        validator = SchemaValidator(steps, seconds, tracks=self._compiled.tracks, patient=patient)
        try:
            problem = validator.apply(self._compiled.root, ValueFrame(document))
        except RecursionError:
            return "the answer is nested too deeply to be validated"
        return None if problem is None else storable_reason(f"{json_path(problem.path)}: {problem.what()}")


def check_size(schema: Json, where: str, times: int = 1) -> None:
    """Refuse a schema that is too large, before anything else looks at it; ConfigError says where.

    `times`: the limit for a list of several schemas, as a multiple of that for one.
    """
    try:
        _check_size(schema, times)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from None


async def check_bounds(schemas: Mapping[str, Schema]) -> None:
    """Refuse schemas that are only passed on (a client's tools, by their places) when they are too large.

    ConfigError names the place. Unknown keywords in them are accepted: the receiver of the schema decides.
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


def read_document(text: str) -> "JsonValue":
    """Return the JSON document that an answer is, or that its one fenced block is; ValueError where it is none."""
    blocks = fenced_blocks(text)
    return parse_json(blocks[0] if len(blocks) == 1 else text)


def storable_reason(reason: str) -> str:
    """Return a reason that any store accepts: no lone surrogates, no zero bytes, not too long."""
    return reason.encode("utf-8", "backslashreplace").decode().replace("\x00", "\\x00")[:_LONGEST_REASON]


def _reject_number(text: str) -> NoReturn:
    raise ValueError(f"{text[:40]} is no JSON number")


def _finite_float(text: str) -> float:
    return _reject_number(text) if isinf(number := float(text)) else number


@cache
def _schema_threads(process: int) -> FairExecutor:  # noqa: ARG001 - a forked process lacks its parent's threads
    return FairExecutor("schema", 1, _OTHERS)


async def _run_in_thread(work: Callable[[], T]) -> T:
    return await asyncio.get_running_loop().run_in_executor(_schema_threads(os.getpid()), work)


async def _off_loop(text: str, work: Callable[[], T]) -> T:
    """Run work that depends on a schema's text; in the thread if that is long."""
    short = len(text) <= _AT_ONCE_LETTERS and '"pattern' not in text  # compiling a pattern may take some ms
    return work() if short else await _run_in_thread(work)


@dataclass(frozen=True, slots=True)
class _CompiledSchema:
    """A compiled schema. `tracks`: it needs to know which parts of a value were evaluated."""

    root: SchemaPart
    tracks: bool


def _schema_text(schema: Schema, where: str) -> str:
    """Return a schema as text, after checking its size; ConfigError when it is too large."""
    try:
        _check_size(schema)
        return dump_json(schema)
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigError(f"{where}: not readable JSON: {error}") from None
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from None


@lru_cache(maxsize=64)  # so that a request's schema is not compiled for each answer
def _compile_schema(text: str, *, lenient: bool = False) -> _CompiledSchema:
    """Compile a schema; ConfigError says what is wrong with it, and where."""
    schema: Json = json.loads(text)
    reading = SchemaCompiler(schema, KEYWORDS, lenient=lenient)
    try:
        root = reading.part(schema, reading.root, None)
    except KeywordError as error:
        raise ConfigError(f"$: {error}") from None
    reading.resolve()
    # Refuse schemas that apply to the same value infinitely or too often.
    parts = reading.parts.values()
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
            said = f"with its references expanded it has more than {MOST_EXPANDED:,} schemas"
            raise ConfigError(f"{json_path(group[0].place)}: {said}")
    return _CompiledSchema(root, reading.tracks)


def _check_size(schema: Json, times: int = 1) -> None:
    """Refuse what is too large, level by level, before anything recurses or copies."""
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


def _expanded_groups(
    parts: "Collection[SchemaPart]", leads: "Callable[[SchemaPart], list[SchemaPart]]"
) -> "Iterator[tuple[list[SchemaPart], int, int]]":
    """Yield the strongly connected groups of parts (most are one part), each with its expanded size and nesting.

    A group counts once. The algorithm is Tarjan's (SIAM J. Comput. 1972).
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
