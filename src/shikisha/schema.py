"""JSON Schema with bounded work: the one door for every foreign schema, and what is wrong with a JSON document.

Invariants: no schema and no document makes the process hang, grow or end. A schema is counted before anything else
looks at it (characters, values, nesting, and what it comes to with every reference written out); a schema that leads
back to itself at the same place of a document is refused. Judging spends counted steps, so that a verdict does not
depend on how busy the machine is; only patterns, whose repeats are counted first, run against the clock, without the
interpreter's lock. What takes longer than a moment leaves the event loop for one thread, and ends there by itself.
Nothing is fetched. Drafts 4 to 2020-12; deliberately absent: `format`, references to the drafts' own schemas, finding
the document in an answer (`json_schema`, `checks.json_schema`), and repairing JSON.

Why it is our own: neither library can be bounded. `jsonschema` takes time exponential in the schema on the event loop,
writes whole documents into every message, recurses without limit (a Rust part of it then panics, which is no
`Exception`), and its helpers for `unevaluatedProperties` cannot be counted from outside. `jsonschema-rs` survives
cycles and has linear patterns, but no budget and no way to stop: 24 levels of doubled `allOf` take .2 s, 40 would take
hours, and 22 of them below `unevaluatedProperties` more than 20 s. What
stands here is held to the official test suite of all five drafts.
"""

import asyncio
import json
import operator
import os
import re
import reprlib
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache, lru_cache
from math import isinf
from time import monotonic, sleep
from typing import TYPE_CHECKING, NoReturn, TypeAlias, TypeGuard, TypeVar
from urllib.parse import unquote, urldefrag, urljoin

from shikisha.errors import ConfigError
from shikisha.turn import Json, written_json

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
_DEEPEST = 250  # schemas being applied inside one another; two frames each, in a stack of a thousand
_WEIGHT = 10_000  # what a schema's patterns may come to with their counted repeats written out; 300 bytes each
_AT_ONCE_REACH = 20_000
_REACH = 10**7  # weight of a pattern times length of a text: regex looks at its clock only now and then
_LONGEST_REASON = 500
_LONGEST_NAME = 200

Schema: TypeAlias = Mapping[str, Json]
T = TypeVar("T")


class SchemaCheck:
    """A schema that was found usable. `seconds`: the most that judging one document may take."""

    def __init__(self, schema: Schema, where: str, seconds: float = 1.0) -> None:
        text = _letters(schema, where)
        try:
            self._compiled = _compiled(text)
        except ConfigError as error:
            raise ConfigError(f"{where}: {error}") from None
        self._seconds = seconds

    @classmethod
    async def of(cls, schema: Schema, where: str, seconds: float = 1.0) -> "SchemaCheck":
        """Return the check of a stranger's schema; ConfigError says what is wrong with it."""
        return await _off_loop(_letters(schema, where), lambda: cls(schema, where, seconds))

    async def problem(self, document: "JsonValue") -> str | None:
        """Return what is wrong with a document, and where; None: nothing. TimeoutError when it stays undecided."""
        try:
            return self._judge(document, _AT_ONCE_STEPS, _AT_ONCE_SECONDS)
        except TimeoutError:  # it needs longer than the event loop can wait
            return await _in_thread(lambda: self._judge(document, MOST_STEPS, self._seconds, patient=True))

    def _judge(self, document: "JsonValue", steps: int, seconds: float, *, patient: bool = False) -> str | None:
        judge = _Judge(steps, seconds, tracks=self._compiled.tracks, patient=patient)
        try:
            problem = judge.apply(self._compiled.root, _Frame(document))
        except RecursionError:
            return "the answer is nested too deeply to be judged"
        return None if problem is None else storable(f"{_written(problem.path)}: {problem.what()}")


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
    letters = [_letters(schema, where) for where, schema in schemas.items()]
    if sum(map(len, letters)) > 2 * MOST_CHARACTERS:
        raise ConfigError(f"{next(iter(schemas))} and those after it: longer than {2 * MOST_CHARACTERS:,} characters")

    def check() -> None:
        for where, text in zip(schemas, letters, strict=True):
            try:
                _compiled(text, lenient=True)
            except ConfigError as error:
                raise ConfigError(f"{where}: {error}") from None

    await _off_loop("".join(letters), check)


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


# --- off the event loop: one thread, so that hostile schemas take no more than their share of the interpreter


@cache
def _thread(process: int) -> ThreadPoolExecutor:  # noqa: ARG001 - a forked process has none of its parent's threads
    return ThreadPoolExecutor(1, thread_name_prefix="schema")


async def _in_thread(work: Callable[[], T]) -> T:
    return await asyncio.get_running_loop().run_in_executor(_thread(os.getpid()), work)


async def _off_loop(text: str, work: Callable[[], T]) -> T:
    """Do what depends on a schema's text, where that is long, in the thread."""
    short = len(text) <= _AT_ONCE_LETTERS and '"pattern' not in text  # compiling a pattern may take some ms
    return work() if short else await _in_thread(work)


# --- judging

_Path: TypeAlias = "tuple[_Path, str | int] | None"
_Scope: TypeAlias = "tuple[_Resource, _Scope] | None"


@dataclass(slots=True)
class _Problem:
    path: _Path
    what: Callable[[], str]  # a message is written for the one problem that is told, not for every branch that fails


class _Frame:
    """A value of the document while schemas are applied to it, and which of its parts they have looked at."""

    __slots__ = ("items", "keys", "path", "scope", "value")

    def __init__(self, value: "JsonValue", path: _Path = None, scope: _Scope = None) -> None:
        self.value = value
        self.path = path
        self.scope = scope
        self.keys: set[str] = set()
        self.items: set[int] = set()

    def problem(self, what: Callable[[], str]) -> _Problem:
        return _Problem(self.path, what)


class _Judge:
    """The judging of one document: what it may still spend, and how deep it is."""

    __slots__ = ("_deadline", "_depth", "_left", "_patient", "_seconds", "_steps", "tracks")

    def __init__(self, steps: int, seconds: float, *, tracks: bool, patient: bool) -> None:
        self._left = self._steps = steps
        self._seconds, self._deadline = seconds, monotonic() + seconds
        self._patient = patient
        self._depth = 0
        self.tracks = tracks

    def spend(self, steps: int = 1) -> None:
        """Count work; TimeoutError when there was too much of it."""
        before, self._left = self._left, self._left - steps
        if self._left < 0:
            raise TimeoutError(f"undecided after {self._steps:,} steps")
        if before // 1000 != self._left // 1000:
            if monotonic() > self._deadline:
                raise self.late()
            if self._patient:
                sleep(0)  # the event loop may be waiting for the interpreter

    def late(self) -> TimeoutError:
        return TimeoutError(f"undecided after {self._seconds:g} s")

    def apply(self, part: "_Part", frame: _Frame) -> _Problem | None:
        """Return the first thing that is wrong with the frame's value; RecursionError when it lies too deep."""
        self._depth += 1
        if self._depth > _DEEPEST:
            raise RecursionError
        if frame.scope is None or frame.scope[0] is not part.resource:
            frame.scope = part.resource, frame.scope
        for check in part.checks:
            self.spend()
            if (problem := check(self, frame)) is not None:
                self._depth -= 1
                return problem
        self._depth -= 1
        return None

    def here(self, part: "_Part", frame: _Frame) -> _Problem | None:
        """Apply a further schema to the same value; what it has looked at counts if it fits."""
        inner = _Frame(frame.value, frame.path, frame.scope)
        problem = self.apply(part, inner)
        if problem is None and self.tracks:
            self.spend(len(inner.keys) + len(inner.items))
            frame.keys |= inner.keys
            frame.items |= inner.items
        return problem

    def key(self, part: "_Part", frame: _Frame, key: str, value: "JsonValue") -> _Problem | None:
        """Apply a schema to one of an object's values."""
        self.spend()
        if self.tracks:
            frame.keys.add(key)
        return self.apply(part, _Frame(value, (frame.path, key), frame.scope))

    def item(self, part: "_Part", frame: _Frame, index: int, value: "JsonValue") -> _Problem | None:
        """Apply a schema to one of a list's items."""
        self.spend()
        if self.tracks:
            frame.items.add(index)
        return self.apply(part, _Frame(value, (frame.path, index), frame.scope))

    def found(self, pattern: "_Pattern", text: str) -> bool:
        """Search against the clock; TimeoutError when there is no time left."""
        self.spend()
        work, left = pattern.weight * len(text), self._deadline - monotonic()
        if left <= 0 or work > (_REACH if self._patient else _AT_ONCE_REACH):
            raise self.late()
        try:
            return pattern.search(text, left)
        except TimeoutError:
            raise self.late() from None

    def frozen(self, value: "JsonValue") -> Hashable:
        """Return a value that is equal where JSON Schema says equal: true is not 1, but 1.0 is."""
        self._depth += 1
        if self._depth > _DEEPEST:
            raise RecursionError
        self.spend()
        made = _frozen(value, self.frozen)
        self._depth -= 1
        return made


def _frozen(value: "JsonValue", freeze: "Callable[[JsonValue], Hashable]") -> Hashable:
    match value:
        case dict():
            return "object", frozenset([(key, freeze(item)) for key, item in value.items()])
        case list():
            return "array", tuple([freeze(item) for item in value])
        case bool() | str() | None:
            return type(value).__name__, value
        case float() if value.is_integer():
            return "number", str(int(value))
        case _:
            return "number", str(value)  # texts have hashes that nobody can make collide


def _freeze(value: "JsonValue") -> Hashable:
    return _frozen(value, _freeze)


_REPR = reprlib.Repr()
_REPR.maxstring = _REPR.maxother = _REPR.maxlong = 200
_REPR.maxdict = _REPR.maxlist = 8


def _shown(value: object) -> str:
    return _REPR.repr(value)


def _written(path: _Path) -> str:
    names: list[str] = []
    while path is not None:
        path, name = path
        if isinstance(name, int):
            names.append(f"[{name}]")
        else:
            short = name[:_LONGEST_NAME]
            names.append(f".{short}" if re.fullmatch(r"[\w$-]+", short) else f"[{short!r}]")
    return "$" + "".join(reversed(names))


def _depth(path: _Path) -> int:
    depth = 0
    while path is not None:
        path, depth = path[0], depth + 1
    return depth


# --- reading a schema: every part of it once, then where its references lead, then what it all comes to

_Check: TypeAlias = Callable[["_Judge", "_Frame"], "_Problem | None"]


@dataclass(eq=False, slots=True)
class _Part:
    """A schema inside the schema: what it asks, and which others it applies to the same value, and below it."""

    resource: "_Resource"
    place: _Path
    raw: Mapping[str, Json] = field(default_factory=dict)
    checks: list[_Check] = field(default_factory=list)
    here: "list[_Part]" = field(default_factory=list)
    below: "list[_Part]" = field(default_factory=list)
    refuses: bool = False  # the schema `false`


@dataclass(eq=False, slots=True)
class _Resource:
    """A schema with an address of its own, and the names inside it that references may use."""

    uri: str
    raw: Json
    place: _Path
    anchors: "dict[str, _Part]" = field(default_factory=dict)
    dynamic: "dict[str, _Part]" = field(default_factory=dict)
    recursive: "_Part | None" = None


@dataclass(frozen=True, slots=True)
class _Compiled:
    """A schema ready to be applied. `tracks`: it asks which parts of a value no schema has looked at."""

    root: _Part
    tracks: bool


class _MisusedError(Exception):
    """A keyword with a value that it cannot have; who only passes a schema on does not mind."""


def _letters(schema: Schema, where: str) -> str:
    """Return a schema as text, once it is known to be short; ConfigError when it is not."""
    try:
        _check_size(schema)
        return written_json(schema)
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigError(f"{where}: no JSON that can be read: {error}") from None
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from None


@lru_cache(maxsize=64)  # what was read at a door is not read again for each answer
def _compiled(text: str, *, lenient: bool = False) -> _Compiled:
    """Return a schema ready to be applied; ConfigError says what is wrong with it, and where."""
    schema: Json = json.loads(text)
    reading = _Reading(schema, lenient=lenient)
    try:
        root = reading.part(schema, reading.root, None)
    except _MisusedError as error:
        raise ConfigError(f"$: {error}") from None
    reading.resolve()
    _check_circles(reading.parts.values())
    return _Compiled(root, reading.tracks)


def _check_size(schema: Json, times: int = 1) -> None:
    """Refuse what is too large, level by level, before anything recurses or copies; no further than it has to."""
    most_values, most_characters = times * MOST_VALUES, times * MOST_CHARACTERS
    values, characters = 0, 0
    level: list[tuple[Json, _Path]] = [(schema, None)]
    for _ in range(MOST_LEVELS):
        below: list[tuple[Json, _Path]] = []
        for each, path in level:
            for key, value in _children(each):
                values += 1
                characters += (len(key) if isinstance(key, str) else 0) + (len(value) if isinstance(value, str) else 2)
                if values > most_values or characters > most_characters:
                    most = f"{most_values:,} values or {most_characters:,} characters"
                    raise ConfigError(f"{_written((path, key))}: a schema of more than {most}")
                below.append((value, (path, key)))
        level = below
        if not level:
            return
    raise ConfigError(f"{_written(level[0][1])}: a schema nested deeper than {MOST_LEVELS} levels")


def _children(value: Json) -> Iterable[tuple[str | int, Json]]:
    if isinstance(value, Mapping):
        return value.items()
    return enumerate(value) if isinstance(value, Sequence) and not isinstance(value, str) else ()


def _check_circles(parts: "Collection[_Part]") -> None:
    """Refuse what would be applied to the same value for ever, or too often."""
    for group, size, chain in _expanded(parts, lambda part: part.here):
        if len(group) > 1 or group[0] in group[0].here:
            raise ConfigError(
                f"{_written(group[0].place)}: it leads back to itself without going deeper into a document"
            )
        if size > MOST_AT_ONCE or chain > MOST_CHAINED:
            what = f"{size:,}" if size <= MOST_EXPANDED else f"more than {MOST_EXPANDED:,}"
            said = f"with its references {what} schemas apply to one value, {chain} inside one another"
            most = f"at most {MOST_AT_ONCE:,} and {MOST_CHAINED} are taken"
            raise ConfigError(f"{_written(group[0].place)}: {said}; {most}")
    for group, size, _ in _expanded(parts, lambda part: [*part.here, *part.below]):
        if size > MOST_EXPANDED:
            said = f"with its references written out it comes to more than {MOST_EXPANDED:,} schemas"
            raise ConfigError(f"{_written(group[0].place)}: {said}")


def _expanded(
    parts: "Collection[_Part]", leads: "Callable[[_Part], list[_Part]]"
) -> "Iterator[tuple[list[_Part], int, int]]":
    """Yield the groups of parts that lead to each other (most are one part) with what each comes to, written out.

    That is how many parts, where a group counts once, and how many inside one another (Tarjan, SIAM J. Comput. 1972).
    """
    number: dict[_Part, int] = {}
    lowest: dict[_Part, int] = {}
    done: dict[_Part, tuple[int, int]] = {}
    open_: list[_Part] = []
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
                    yield group, *_size(group, leads, done)


def _size(
    group: "list[_Part]", leads: "Callable[[_Part], list[_Part]]", done: "dict[_Part, tuple[int, int]]"
) -> tuple[int, int]:
    targets = [done[target] for part in group for target in leads(part) if target in done]
    size = min(len(group) + sum([size for size, _ in targets]), MOST_EXPANDED + 1)
    chain = min(1 + max([chain for _, chain in targets], default=0), MOST_CHAINED + 1)
    done.update(dict.fromkeys(group, (size, chain)))
    return size, chain


class _Reference:
    """Where a reference leads, once everything is read."""

    __slots__ = ("keyword", "name", "part", "text", "to")

    def __init__(self, part: _Part, keyword: str, text: str) -> None:
        self.part = self.to = part
        self.keyword = keyword
        self.text = text
        self.name = text.partition("#")[2]


class _Reading:
    """The reading of one schema."""

    def __init__(self, schema: Json, *, lenient: bool) -> None:
        self.lenient = lenient
        self.draft = _draft(schema)
        self.parts: dict[int, _Part] = {}
        self.tracks = False
        self.references: list[_Reference] = []
        self._resources: dict[str, _Resource] = {}
        self._weight = 0
        self.root = self._resource("", schema, None)

    def part(self, raw: Json, resource: _Resource, place: _Path) -> _Part:
        """Return what a schema says; one that was read already is returned as it is."""
        if isinstance(raw, bool):
            return _Part(resource, place) if raw else _Part(resource, place, checks=[_nothing], refuses=True)
        if not isinstance(raw, dict):
            raise _MisusedError(f"expected a schema, which is an object, true or false; not {_shown(raw)}")
        if (known := self.parts.get(id(raw))) is not None:
            return known
        alone = self.draft <= 7 and "$ref" in raw  # what stands beside a reference is not read
        if not alone:
            resource = self._identified(raw, resource, place)
        part = self.parts[id(raw)] = _Part(resource, place, raw)
        if not alone:
            self._name(part)
        late: list[_Check] = []
        for name, value in raw.items():
            keyword = _KEYWORDS.get(name)
            if keyword is None or not keyword.since <= self.draft <= keyword.until:
                continue
            if alone and name not in ("$ref", "definitions", "$defs"):
                continue
            try:
                check = keyword.read(_Slot(self, part, name, value))
            except _MisusedError as error:
                if self.lenient:
                    continue
                raise ConfigError(f"{_written((place, name))}: {error}") from None
            if check is not None:
                (late if keyword.late else part.checks).append(check)
        part.checks += late
        return part

    def resolve(self) -> None:
        """Find what every reference leads to; that may be what nothing else has led to, with references of its own."""
        for reference in self.references:  # grows
            try:
                reference.to = self._found(reference.part.resource, reference.text)
            except (_MisusedError, ValueError) as error:
                if self.lenient:
                    reference.to = _Part(reference.part.resource, None)
                    continue
                place = _written((reference.part.place, reference.keyword))
                raise ConfigError(f"{place}: {_shown(reference.text)}: {error}") from None
            reference.part.here.append(reference.to)

    def pattern(self, text: str) -> "_Pattern":
        """Return a pattern ready to be searched for; _MisusedError when it is none, or too large."""
        import regex

        if self.lenient:
            return _Pattern(0, lambda _text, _seconds: False)
        try:
            weight = _weight(text)
            self._weight += weight
            if self._weight > _WEIGHT:
                most = f"more than {_WEIGHT:,} characters with its counted repeats written out"
                raise _MisusedError(f"the regex {_shown(text)} (or all of a schema together) comes to {most}")
            compiled = regex.compile(text, flags=regex.VERSION0, cache_pattern=False)
        except (regex.error, ValueError, RecursionError) as error:
            raise _MisusedError(f"{_shown(text)} is not a regex: {error}") from None
        return _Pattern(
            weight, lambda found, seconds: compiled.search(found, timeout=seconds, concurrent=True) is not None
        )

    def _resource(self, uri: str, raw: Json, place: _Path) -> _Resource:
        return self._resources.setdefault(uri, _Resource(uri, raw, place))

    def _identified(self, raw: dict[str, Json], resource: _Resource, place: _Path) -> _Resource:
        """Return the resource that a schema belongs to: one of its own if it has an address."""
        own = raw.get("id" if self.draft == 4 else "$id")
        if not isinstance(own, str) or own.startswith("#"):
            return resource
        try:
            address = urldefrag(urljoin(resource.uri, own))[0]
        except ValueError as error:
            raise ConfigError(f"{_written(place)}: {_shown(own)} is no address: {error}") from None
        if raw is self.root.raw:
            self._resources[address] = self.root
            self.root.uri = address
            return self.root
        return self._resource(address, raw, place)

    def _name(self, part: _Part) -> None:
        """Note the names that references may use for a schema."""
        raw, resource = part.raw, part.resource
        own = raw.get("id" if self.draft == 4 else "$id")
        if self.draft <= 7 and isinstance(own, str) and own.startswith("#"):
            resource.anchors.setdefault(own[1:], part)
        for keyword, since in (("$anchor", 2019), ("$dynamicAnchor", 2020)):
            name = raw.get(keyword)
            if self.draft >= since and isinstance(name, str):
                resource.anchors.setdefault(name, part)
                if keyword == "$dynamicAnchor":
                    resource.dynamic.setdefault(name, part)
        if self.draft == 2019 and raw.get("$recursiveAnchor") is True and raw is resource.raw:
            resource.recursive = part

    def _found(self, resource: _Resource, reference: str) -> _Part:
        address, _, fragment = reference.partition("#")
        missing = _MisusedError(f"it refers to {_shown(reference)}, which is not in it, and nothing is fetched")
        if address:
            known = self._resources.get(urldefrag(urljoin(resource.uri, address))[0])
            if known is None:
                raise missing
            resource = known
        fragment = unquote(fragment)
        if not fragment.startswith("/"):
            named = resource.anchors.get(fragment) if fragment else self.part(resource.raw, resource, resource.place)
            if named is None:
                raise missing
            return named
        part, place = resource.raw, resource.place
        for name in fragment[1:].split("/"):
            key = name.replace("~1", "/").replace("~0", "~")
            if isinstance(part, dict) and key in part:
                part, place = part[key], (place, key)
            elif isinstance(part, list) and key.isdecimal() and key.isascii() and int(key[:9]) < len(part):
                part, place = part[int(key[:9])], (place, int(key[:9]))
            else:
                raise missing
            if (known_part := self.parts.get(id(part))) is not None:
                resource = known_part.resource
        return self.part(part, resource, place)


_DRAFTS = {"draft-04": 4, "draft-06": 6, "draft-07": 7, "2019-09": 2019, "2020-12": 2020}


def _draft(schema: Json) -> int:
    """Return which draft a schema is of: the newest where it names none that is known."""
    named = schema.get("$schema") if isinstance(schema, dict) else None
    if isinstance(named, str) and named.startswith(("http://json-schema.org/", "https://json-schema.org/")):
        return next((draft for name, draft in _DRAFTS.items() if f"/{name}/" in named), 2020)
    return 2020


# --- patterns


@dataclass(frozen=True, slots=True)
class _Pattern:
    """A pattern that can be searched for within some seconds, and what it comes to with its repeats written out."""

    weight: int
    search: Callable[[str, float], bool]


_QUANTIFIER = re.compile(r"\{(\d{1,9})?(,)?(\d{1,9})?\}", re.ASCII)
_ESCAPE = re.compile(r"\\(?:[pPuxN]\{[^{}]{1,60}\}|k<\w{1,60}>|.)", re.DOTALL)
_CLASS = re.compile(r"\[\^?(?:\\.|[^\]\\])+\]", re.DOTALL)
_GROUP = re.compile(r"\((?:\?(?:[:=!]|<[=!]|P?<[A-Za-z_]\w*>))?")
_BRACE = re.compile(r"\{(?=[^\w\s,<>=~:+-]|$)")  # a brace that can begin neither a count nor an extension of `regex`


def _weight(pattern: str) -> int:
    """Return how many characters a pattern comes to with its counted repeats written out, as `regex` compiles it.

    ValueError for what is not in ECMA 262: `regex` would take it for one of its extensions. Compiling a{999999999}, 12
    characters, takes all memory that there is.
    """
    total, last, place = [0], 0, 0
    while place < len(pattern):
        letter = pattern[place]
        if letter == "{" and (count := _QUANTIFIER.match(pattern, place)) and (count[1] or count[3]):
            times = max(1, int(count[1] or 0), int(count[3] or 0))
            total[-1] += last * (times - 1)
            last *= times
            place = count.end()
            continue
        if letter == "(" and (group := _GROUP.match(pattern, place)) and pattern[group.end() : group.end() + 1] != "?":
            total.append(1)
            place, last = group.end(), 0
            continue
        if letter == ")" and len(total) > 1:
            last = total.pop()
            total[-1] += last
            place += 1
            continue
        if letter in "*+?":
            place += 1
            continue
        place, last = _atom(pattern, place), 1
        total[-1] += 1
    return sum(total)


def _atom(pattern: str, place: int) -> int:
    """Return where the character, escape or class ends that begins in this place."""
    kind = {"\\": _ESCAPE, "[": _CLASS, "{": _BRACE}.get(pattern[place])
    if kind is None and pattern[place] not in "()":
        return place + 1
    if kind is None or (found := kind.match(pattern, place)) is None:
        raise ValueError(f"{pattern[place : place + 20]!r} is not in ECMA 262")
    return found.end()


# --- keywords


class _Slot:
    """The value of one keyword, read as what it has to be."""

    def __init__(self, reading: _Reading, part: _Part, name: str, value: Json) -> None:
        self._reading = reading
        self.part = part
        self.draft = reading.draft
        self.name = name
        self.value = value

    def beside(self, name: str) -> "_Slot":
        """Return another keyword of the same schema; its value is None when it is not there."""
        return _Slot(self._reading, self.part, name, self.part.raw.get(name))

    def schema(self, value: Json, *names: str | int, here: bool = False) -> _Part:
        place: _Path = (self.part.place, self.name)
        for name in names:
            place = place, name
        try:
            read = self._reading.part(value, self.part.resource, place)
        except _MisusedError as error:
            if not names or self._reading.lenient:
                raise
            raise ConfigError(f"{_written(place)}: {error}") from None
        (self.part.here if here else self.part.below).append(read)
        return read

    def schemas(self, *, here: bool = False) -> list[_Part]:
        if not isinstance(self.value, list) or not self.value:
            raise self._misused("a list of schemas")
        return [self.schema(value, index, here=here) for index, value in enumerate(self.value)]

    def mapping(self) -> dict[str, Json]:
        if not isinstance(self.value, dict):
            raise self._misused("an object")
        return self.value

    def number(self) -> float:
        if not _is_number(self.value):
            raise self._misused("a number")
        return self.value

    def count(self) -> int:
        if not _is_number(self.value) or self.value < 0 or self.value != int(self.value):
            raise self._misused("a whole number from 0")
        return int(self.value)

    def text(self) -> str:
        if not isinstance(self.value, str):
            raise self._misused("a text")
        return self.value

    def texts(self) -> list[str]:
        if not isinstance(self.value, list):
            raise self._misused("a list of texts")
        return [_Slot(self._reading, self.part, self.name, each).text() for each in self.value]

    def values(self) -> "list[JsonValue]":
        if not isinstance(self.value, list):
            raise self._misused("a list")
        return self.value

    def optional(self) -> _Part | None:
        return None if self.value is None else self.schema(self.value, here=True)

    def holding(self, value: Json) -> "_Slot":
        return _Slot(self._reading, self.part, self.name, value)

    def pattern(self, text: str) -> _Pattern:
        return self._reading.pattern(text)

    def patterns(self) -> list[_Pattern]:
        return [self.pattern(text) for text in self.value] if isinstance(self.value, dict) else []

    def reference(self) -> _Reference:
        made = _Reference(self.part, self.name, self.text())
        self._reading.references.append(made)
        return made

    def track(self) -> None:
        self._reading.tracks = True

    def _misused(self, expected: str) -> _MisusedError:
        return _MisusedError(f"expected {expected}, not {_shown(self.value)}")


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _nothing(_: _Judge, frame: _Frame) -> _Problem | None:
    return frame.problem(lambda: f"{_shown(frame.value)} may not be here")


_TYPES: Mapping[str, Callable[[object], bool]] = {
    "string": lambda value: isinstance(value, str),
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
    "number": _is_number,
    "integer": lambda value: _is_number(value) and (isinstance(value, int) or value.is_integer()),
}


def _type(slot: _Slot) -> _Check:
    names = [slot.value] if isinstance(slot.value, str) else slot.texts()
    if unknown := [name for name in names if name not in _TYPES]:
        raise _MisusedError(f"{_shown(unknown[0])} is no type; there are {', '.join(_TYPES)}")
    tests = [_TYPES[name] for name in names]
    if slot.draft == 4:
        tests = [(lambda value: type(value) is int) if name == "integer" else _TYPES[name] for name in names]
    wanted = ", ".join(map(repr, names))

    def check(judge: _Judge, frame: _Frame) -> _Problem | None:
        judge.spend(len(tests))
        if any(test(frame.value) for test in tests):
            return None
        return frame.problem(lambda: f"{_shown(frame.value)} is not of type {wanted[:_LONGEST_NAME]}")

    return check


def _one_of(values: "list[JsonValue]") -> _Check:
    frozen = {_freeze(value) for value in values}
    wanted = _shown(values[0]) if len(values) == 1 else f"one of {_shown(values)}"

    def check(judge: _Judge, frame: _Frame) -> _Problem | None:
        if judge.frozen(frame.value) in frozen:
            return None
        return frame.problem(lambda: f"{_shown(frame.value)} is not {wanted}")

    return check


def _enum(slot: _Slot) -> _Check:
    return _one_of(slot.values())


def _const(slot: _Slot) -> _Check:
    return _one_of(slot.holding([slot.value]).values())


def _compared(slot: _Slot, fits: Callable[[float, float], bool], words: str) -> _Check:
    most = slot.number()

    def check(_: _Judge, frame: _Frame) -> _Problem | None:
        value = frame.value
        if not _is_number(value) or fits(value, most):
            return None
        return frame.problem(lambda: f"{_shown(value)} is {words} {_shown(most)}")

    return check


def _maximum(slot: _Slot) -> _Check:
    if slot.draft == 4 and slot.beside("exclusiveMaximum").value is True:
        return _compared(slot, operator.lt, "not less than")
    return _compared(slot, operator.le, "more than")


def _minimum(slot: _Slot) -> _Check:
    if slot.draft == 4 and slot.beside("exclusiveMinimum").value is True:
        return _compared(slot, operator.gt, "not more than")
    return _compared(slot, operator.ge, "less than")


def _multiple_of(slot: _Slot) -> _Check:
    unit = slot.number()
    if unit <= 0:
        raise _MisusedError(f"expected a number above 0, not {_shown(unit)}")

    def check(judge: _Judge, frame: _Frame) -> _Problem | None:
        value = frame.value
        if not _is_number(value):
            return None
        if isinstance(value, int) and isinstance(unit, int):
            judge.spend(value.bit_length() // 64)
            fits = value % unit == 0
        else:
            judge.spend(50)  # exactly, as the decimals are written
            fits = Fraction(str(value)) % Fraction(str(unit)) == 0
        return None if fits else frame.problem(lambda: f"{_shown(value)} is not a multiple of {_shown(unit)}")

    return check


def _length(kind: type, unit: str, *, least: bool) -> "Callable[[_Slot], _Check]":
    def read(slot: _Slot) -> _Check:
        bound = slot.count()

        def check(_: _Judge, frame: _Frame) -> _Problem | None:
            value = frame.value
            if not isinstance(value, str | list | dict) or not isinstance(value, kind):
                return None
            if len(value) >= bound if least else len(value) <= bound:
                return None
            words = "at least" if least else "at most"
            return frame.problem(lambda: f"{_shown(value)} has {len(value)} {unit}; expected {words} {bound}")

        return check

    return read


def _matching(slot: _Slot) -> _Check:
    text = slot.text()
    pattern = slot.pattern(text)

    def check(judge: _Judge, frame: _Frame) -> _Problem | None:
        if not isinstance(frame.value, str) or judge.found(pattern, frame.value):
            return None
        return frame.problem(lambda: f"{_shown(frame.value)} does not match {_shown(text)}")

    return check


def _items(slot: _Slot) -> _Check:
    if slot.draft <= 2019 and isinstance(slot.value, list):
        return _prefix(slot)
    start = len(ahead) if slot.draft == 2020 and isinstance(ahead := slot.beside("prefixItems").value, list) else 0
    return _items_from(slot, start)


def _additional_items(slot: _Slot) -> _Check | None:
    ahead = slot.beside("items").value
    return _items_from(slot, len(ahead)) if isinstance(ahead, list) else None


def _items_from(slot: _Slot, start: int) -> _Check:
    part = slot.schema(slot.value)

    def check(judge: _Judge, frame: _Frame) -> _Problem | None:
        if isinstance(frame.value, list):
            for index in range(start, len(frame.value)):
                if (problem := judge.item(part, frame, index, frame.value[index])) is not None:
                    return problem
        return None

    return check


def _prefix(slot: _Slot) -> _Check:
    parts = slot.schemas()

    def check(judge: _Judge, frame: _Frame) -> _Problem | None:
        if isinstance(frame.value, list):
            for index, (part, value) in enumerate(zip(parts, frame.value, strict=False)):
                if (problem := judge.item(part, frame, index, value)) is not None:
                    return problem
        return None

    return check


def _contains(slot: _Slot) -> _Check:
    part, most = slot.schema(slot.value), None
    least = 1
    if slot.draft >= 2019:
        if (bound := slot.beside("minContains")).value is not None:
            least = bound.count()
        if (bound := slot.beside("maxContains")).value is not None:
            most = bound.count()

    def check(judge: _Judge, frame: _Frame) -> _Problem | None:
        if not isinstance(frame.value, list):
            return None
        fit = []
        for index, value in enumerate(frame.value):
            judge.spend()
            if judge.apply(part, _Frame(value, (frame.path, index), frame.scope)) is None:
                fit.append(index)
        if slot.draft == 2020 and judge.tracks:
            frame.items.update(fit)
        if least <= len(fit) and (most is None or len(fit) <= most):
            return None
        wanted = f"at least {least}" if most is None else f"{least} to {most}"
        return frame.problem(lambda: f"{len(fit)} of its items are as `contains` says; expected {wanted}")

    return check


def _unique_items(slot: _Slot) -> _Check | None:
    if slot.value is not True:
        return None

    def check(judge: _Judge, frame: _Frame) -> _Problem | None:
        if not isinstance(frame.value, list):
            return None
        if len({judge.frozen(item) for item in frame.value}) == len(frame.value):
            return None
        return frame.problem(lambda: "an item is there twice")

    return check


def _required(slot: _Slot) -> _Check:
    names = slot.texts()

    def check(judge: _Judge, frame: _Frame) -> _Problem | None:
        if not isinstance(frame.value, dict):
            return None
        judge.spend(len(names))
        for name in names:
            if name not in frame.value:
                return frame.problem(lambda: f"{_shown(name)} is a required property")  # noqa: B023 - returned at once
        return None

    return check


def _properties(slot: _Slot) -> _Check:
    parts = {name: slot.schema(value, name) for name, value in slot.mapping().items()}

    def check(judge: _Judge, frame: _Frame) -> _Problem | None:
        value = frame.value
        if not isinstance(value, dict):
            return None
        judge.spend(min(len(parts), len(value)))
        for name in parts if len(parts) <= len(value) else value:
            if name in parts and name in value and (problem := judge.key(parts[name], frame, name, value[name])):
                return problem
        return None

    return check


def _pattern_properties(slot: _Slot) -> _Check:
    parts = [(slot.pattern(text), slot.schema(value, text)) for text, value in slot.mapping().items()]

    def check(judge: _Judge, frame: _Frame) -> _Problem | None:
        if isinstance(frame.value, dict):
            for pattern, part in parts:
                for name, value in frame.value.items():
                    if judge.found(pattern, name) and (problem := judge.key(part, frame, name, value)):
                        return problem
        return None

    return check


def _additional_properties(slot: _Slot) -> _Check:
    part = slot.schema(slot.value)
    patterns = slot.beside("patternProperties").patterns()
    named = slot.beside("properties").value
    known: Collection[str] = named.keys() if isinstance(named, dict) else ()

    def check(judge: _Judge, frame: _Frame) -> _Problem | None:
        if not isinstance(frame.value, dict):
            return None
        judge.spend(len(frame.value))
        for name, value in frame.value.items():
            if name in known or any(judge.found(pattern, name) for pattern in patterns):
                continue
            if (problem := _further(judge, part, frame, name, value)) is not None:
                return problem
        return None

    return check


def _further(judge: _Judge, part: _Part, frame: _Frame, name: str, value: "JsonValue") -> _Problem | None:
    if part.refuses:
        return frame.problem(lambda: f"the key {_shown(name)} is not allowed")
    return judge.key(part, frame, name, value)


def _property_names(slot: _Slot) -> _Check:
    part = slot.schema(slot.value)

    def check(judge: _Judge, frame: _Frame) -> _Problem | None:
        if isinstance(frame.value, dict):
            for name in frame.value:
                judge.spend()
                if (problem := judge.apply(part, _Frame(name, frame.path, frame.scope))) is not None:
                    return _Problem(frame.path, lambda: f"the key {_shown(name)}: {problem.what()}")  # noqa: B023
        return None

    return check


def _dependent(slot: _Slot) -> _Check:
    """`dependentRequired` and `dependentSchemas`, which `dependencies` was both of."""
    lists: dict[str, list[str]] = {}
    parts: dict[str, _Part] = {}
    for name, value in slot.mapping().items():
        if isinstance(value, list) and slot.name != "dependentSchemas":
            lists[name] = slot.holding(value).texts()
        elif slot.name != "dependentRequired":
            parts[name] = slot.schema(value, name, here=True)
        else:
            raise _MisusedError(f"{_shown(name)}: expected a list of names, not {_shown(value)}")

    def check(judge: _Judge, frame: _Frame) -> _Problem | None:
        if not isinstance(frame.value, dict):
            return None
        judge.spend(len(lists) + len(parts))
        for name, needed in lists.items():
            judge.spend(len(needed))
            if name in frame.value and (absent := [each for each in needed if each not in frame.value]):
                return frame.problem(lambda: f"{_shown(absent[0])} is a required property beside {_shown(name)}")  # noqa: B023
        for name, part in parts.items():
            if name in frame.value and (problem := judge.here(part, frame)) is not None:
                return problem
        return None

    return check


def _all_of(slot: _Slot) -> _Check:
    parts = slot.schemas(here=True)

    def check(judge: _Judge, frame: _Frame) -> _Problem | None:
        for part in parts:
            if (problem := judge.here(part, frame)) is not None:
                return problem
        return None

    return check


def _any_of(slot: _Slot) -> _Check:
    parts = slot.schemas(here=True)

    def check(judge: _Judge, frame: _Frame) -> _Problem | None:
        problems = []
        for part in parts:
            problem = judge.here(part, frame)
            if problem is not None:
                problems.append(problem)
            elif not judge.tracks:
                return None
        return _nearest(frame, problems) if len(problems) == len(parts) else None

    return check


def _one_of_them(slot: _Slot) -> _Check:
    parts = slot.schemas(here=True)

    def check(judge: _Judge, frame: _Frame) -> _Problem | None:
        problems = [problem for part in parts if (problem := judge.here(part, frame)) is not None]
        fit = len(parts) - len(problems)
        if fit == 1:
            return None
        if fit > 1:
            return frame.problem(lambda: f"{_shown(frame.value)} fits {fit} of what it may fit one of")
        return _nearest(frame, problems)

    return check


def _nearest(frame: _Frame, problems: list[_Problem]) -> _Problem:
    """Return what is wrong by the alternative that got furthest into the value, if one got into it at all."""
    deepest = max(problems, key=lambda problem: _depth(problem.path))
    if _depth(deepest.path) > _depth(frame.path) or len(problems) == 1:
        return deepest
    return frame.problem(lambda: f"{_shown(frame.value)} fits none of {len(problems)}; the first: {problems[0].what()}")


def _not(slot: _Slot) -> _Check:
    part = slot.schema(slot.value, here=True)

    def check(judge: _Judge, frame: _Frame) -> _Problem | None:
        if judge.here(part, frame) is not None:
            return None
        return frame.problem(lambda: f"{_shown(frame.value)} fits what it must not fit")

    return check


def _if(slot: _Slot) -> _Check:
    condition = slot.schema(slot.value, here=True)
    then, other = (slot.beside(name).optional() for name in ("then", "else"))

    def check(judge: _Judge, frame: _Frame) -> _Problem | None:
        branch = then if judge.here(condition, frame) is None else other
        return None if branch is None else judge.here(branch, frame)

    return check


def _unevaluated_items(slot: _Slot) -> _Check:
    part = slot.schema(slot.value)
    slot.track()

    def check(judge: _Judge, frame: _Frame) -> _Problem | None:
        if isinstance(frame.value, list):
            for index, value in enumerate(frame.value):
                judge.spend()
                if index not in frame.items and (problem := judge.item(part, frame, index, value)):
                    return problem
        return None

    return check


def _unevaluated_properties(slot: _Slot) -> _Check:
    part = slot.schema(slot.value)
    slot.track()

    def check(judge: _Judge, frame: _Frame) -> _Problem | None:
        if isinstance(frame.value, dict):
            for name, value in frame.value.items():
                judge.spend()
                if name not in frame.keys and (problem := _further(judge, part, frame, name, value)):
                    return problem
        return None

    return check


def _ref(slot: _Slot) -> _Check:
    reference = slot.reference()
    return lambda judge, frame: judge.here(reference.to, frame)


def _dynamic_ref(slot: _Slot) -> _Check:
    reference = slot.reference()

    def check(judge: _Judge, frame: _Frame) -> _Problem | None:
        part, scope = reference.to, frame.scope
        if part.resource.dynamic.get(reference.name) is part:
            while scope is not None:  # the outermost has the say
                judge.spend()
                part, scope = scope[0].dynamic.get(reference.name, part), scope[1]
        return judge.here(part, frame)

    return check


def _recursive_ref(slot: _Slot) -> _Check:
    reference = slot.reference()

    def check(judge: _Judge, frame: _Frame) -> _Problem | None:
        part, scope = reference.to, frame.scope
        while part.resource.recursive is not None and scope is not None:
            judge.spend()
            if scope[0].recursive is None:
                break
            part, scope = scope[0].recursive, scope[1]
        return judge.here(part, frame)

    return check


def _definitions(slot: _Slot) -> None:
    for name, value in slot.mapping().items():
        slot.schema(value, name)


@dataclass(frozen=True, slots=True)
class _Keyword:
    """How a keyword is read, in which drafts; `late`: after all others, which it looks at."""

    read: "Callable[[_Slot], _Check | None]"
    since: int = 4
    until: int = 2020
    late: bool = False


_KEYWORDS: Mapping[str, _Keyword] = {
    "$ref": _Keyword(_ref),
    "$recursiveRef": _Keyword(_recursive_ref, 2019, 2019),
    "$dynamicRef": _Keyword(_dynamic_ref, 2020),
    "$defs": _Keyword(_definitions),
    "definitions": _Keyword(_definitions),
    "type": _Keyword(_type),
    "enum": _Keyword(_enum),
    "const": _Keyword(_const, 6),
    "maximum": _Keyword(_maximum),
    "minimum": _Keyword(_minimum),
    "exclusiveMaximum": _Keyword(lambda slot: _compared(slot, operator.lt, "not less than"), 6),
    "exclusiveMinimum": _Keyword(lambda slot: _compared(slot, operator.gt, "not more than"), 6),
    "multipleOf": _Keyword(_multiple_of),
    "maxLength": _Keyword(_length(str, "characters", least=False)),
    "minLength": _Keyword(_length(str, "characters", least=True)),
    "maxItems": _Keyword(_length(list, "items", least=False)),
    "minItems": _Keyword(_length(list, "items", least=True)),
    "maxProperties": _Keyword(_length(dict, "keys", least=False)),
    "minProperties": _Keyword(_length(dict, "keys", least=True)),
    "pattern": _Keyword(_matching),
    "prefixItems": _Keyword(_prefix, 2020),
    "items": _Keyword(_items),
    "additionalItems": _Keyword(_additional_items, until=2019),
    "contains": _Keyword(_contains, 6),
    "uniqueItems": _Keyword(_unique_items),
    "required": _Keyword(_required),
    "properties": _Keyword(_properties),
    "patternProperties": _Keyword(_pattern_properties),
    "additionalProperties": _Keyword(_additional_properties),
    "propertyNames": _Keyword(_property_names, 6),
    "dependencies": _Keyword(_dependent, until=7),
    "dependentRequired": _Keyword(_dependent, 2019),
    "dependentSchemas": _Keyword(_dependent, 2019),
    "allOf": _Keyword(_all_of),
    "anyOf": _Keyword(_any_of),
    "oneOf": _Keyword(_one_of_them),
    "not": _Keyword(_not),
    "if": _Keyword(_if, 7),
    "unevaluatedItems": _Keyword(_unevaluated_items, 2019, late=True),
    "unevaluatedProperties": _Keyword(_unevaluated_properties, 2019, late=True),
}
