"""Compile a JSON Schema into parts that validate a document: where each stands, where references lead, what it costs.

Invariants: a part is compiled once, however many references lead to it. Applying anything to a value is a counted step,
nested no deeper than the interpreter's stack allows. A pattern is compiled only when it is short with its counted
repeats expanded. Deliberately absent: what single keywords require (`keywords`), and how large a schema may be (the
package itself).
"""

import re
import reprlib
from collections.abc import Callable, Hashable, Mapping
from time import sleep, thread_time
from typing import TYPE_CHECKING, TypeAlias, TypeGuard
from urllib.parse import unquote, urldefrag, urljoin

from shikisha.core.errors import ConfigError
from shikisha.core.fast_dataclass import dataclass, field
from shikisha.core.messages import Json

if TYPE_CHECKING:
    from pydantic import JsonValue  # the engine starts without pydantic

# Nested schemas; each takes two frames of a stack of a thousand.
_DEEPEST = 250
# Total size of a schema's patterns with counted repeats expanded; 300 bytes each.
_WEIGHT = 10_000
_AT_ONCE_REACH = 20_000
# Pattern weight times text length: regex checks its clock only now and then.
_REACH = 10**7
# Seconds to yield after each thousand steps, which take about as long.
_PAUSE = 0.001
LONGEST_NAME = 200

JsonPlace: TypeAlias = "tuple[JsonPlace, str | int] | None"
_Scope: TypeAlias = "tuple[SchemaResource, _Scope] | None"


@dataclass(slots=True)
class Mismatch:
    """A mismatch between document and schema, and its place."""

    path: JsonPlace
    # Lazy: only the reported problem needs a message, not every branch that fails.
    what: Callable[[], str]


class ValueFrame:
    """A value of the document during validation, and which of its parts were evaluated."""

    __slots__ = ("items", "keys", "path", "scope", "value")

    def __init__(self, value: "JsonValue", path: JsonPlace = None, scope: _Scope = None) -> None:
        self.value = value
        self.path = path
        self.scope = scope
        self.keys: set[str] = set()
        self.items: set[int] = set()

    def problem(self, what: Callable[[], str]) -> Mismatch:
        """Return a mismatch of this value."""
        return Mismatch(self.path, what)


class SchemaValidator:
    """The validation of one document: its remaining budget and its depth."""

    __slots__ = ("_deadline", "_depth", "_left", "_patient", "_seconds", "_steps", "tracks")

    def __init__(self, steps: int, seconds: float, *, tracks: bool, patient: bool) -> None:
        self._left = self._steps = steps
        self._seconds, self._deadline = seconds, thread_time() + seconds  # what other threads take does not count
        self._patient = patient
        self._depth = 0
        self.tracks = tracks

    def spend(self, steps: int = 1) -> None:
        """Count work; TimeoutError when the budget is used up."""
        before, self._left = self._left, self._left - steps
        if self._left < 0:
            raise TimeoutError(f"undecided after {self._steps:,} steps")
        if before // 1000 != self._left // 1000:
            if thread_time() > self._deadline:
                raise self.timeout_error()
            if self._patient:
                # sleep(0) would end before the event loop, which waits for the interpreter's lock, gets it.
                sleep(_PAUSE)

    def timeout_error(self) -> TimeoutError:
        """Return the error for an exceeded time limit."""
        return TimeoutError(f"undecided after {self._seconds:g} s")

    def apply(self, part: "SchemaPart", frame: ValueFrame) -> Mismatch | None:
        """Return the first mismatch of the frame's value; RecursionError when it is nested too deeply."""
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

    def apply_here(self, part: "SchemaPart", frame: ValueFrame) -> Mismatch | None:
        """Apply a further schema to the same value; its evaluated parts count if it matches."""
        inner = ValueFrame(frame.value, frame.path, frame.scope)
        problem = self.apply(part, inner)
        if problem is None and self.tracks:
            self.spend(len(inner.keys) + len(inner.items))
            frame.keys |= inner.keys
            frame.items |= inner.items
        return problem

    def apply_to_key(self, part: "SchemaPart", frame: ValueFrame, key: str, value: "JsonValue") -> Mismatch | None:
        """Apply a schema to one of an object's values."""
        self.spend()
        if self.tracks:
            frame.keys.add(key)
        return self.apply(part, ValueFrame(value, (frame.path, key), frame.scope))

    def apply_to_item(self, part: "SchemaPart", frame: ValueFrame, index: int, value: "JsonValue") -> Mismatch | None:
        """Apply a schema to one of a list's items."""
        self.spend()
        if self.tracks:
            frame.items.add(index)
        return self.apply(part, ValueFrame(value, (frame.path, index), frame.scope))

    def search(self, pattern: "BoundedPattern", text: str) -> bool:
        """Search for a pattern within the time limit; TimeoutError beyond it."""
        self.spend()
        work, left = pattern.weight * len(text), self._deadline - thread_time()
        if left <= 0 or work > (_REACH if self._patient else _AT_ONCE_REACH):
            raise self.timeout_error()
        try:
            return pattern.search(text, left)
        except TimeoutError:
            raise self.timeout_error() from None

    def freeze(self, value: "JsonValue") -> Hashable:
        """Return a hashable form that is equal where JSON Schema says equal: true is not 1, but 1.0 is."""
        self._depth += 1
        if self._depth > _DEEPEST:
            raise RecursionError
        self.spend()
        made = _freeze(value, self.freeze)
        self._depth -= 1
        return made


def _freeze(value: "JsonValue", freeze: "Callable[[JsonValue], Hashable]") -> Hashable:
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
            # Hashes of texts are salted, so nobody can make them collide.
            return "number", str(value)


def freeze_value(value: "JsonValue") -> Hashable:
    """Return a hashable form that is equal where JSON Schema says equal."""
    return _freeze(value, freeze_value)


_REPR = reprlib.Repr()
_REPR.maxstring = _REPR.maxother = _REPR.maxlong = 200
_REPR.maxdict = _REPR.maxlist = 8


def format_value(value: object) -> str:
    """Return a value as text for a message, shortened."""
    return _REPR.repr(value)


def json_path(path: JsonPlace) -> str:
    """Return a place as a JSON path."""
    names: list[str] = []
    while path is not None:
        path, name = path
        if isinstance(name, int):
            names.append(f"[{name}]")
        else:
            short = name[:LONGEST_NAME]
            names.append(f".{short}" if re.fullmatch(r"[\w$-]+", short) else f"[{short!r}]")
    return "$" + "".join(reversed(names))


def path_depth(path: JsonPlace) -> int:
    """Return the depth of a place."""
    depth = 0
    while path is not None:
        path, depth = path[0], depth + 1
    return depth


KeywordCheck: TypeAlias = Callable[["SchemaValidator", "ValueFrame"], "Mismatch | None"]


@dataclass(eq=False, slots=True)
class SchemaPart:
    """A subschema: its checks, and the parts that it applies to the same value (`here`) and below it (`below`)."""

    resource: "SchemaResource"
    place: JsonPlace
    raw: Mapping[str, Json] = field(default_factory=dict)
    checks: list[KeywordCheck] = field(default_factory=list)
    here: "list[SchemaPart]" = field(default_factory=list)
    below: "list[SchemaPart]" = field(default_factory=list)
    refuses: bool = False  # the schema `false`


@dataclass(eq=False, slots=True)
class SchemaResource:
    """A schema with its own URI, and the anchors that references may use."""

    uri: str
    raw: Json
    place: JsonPlace
    anchors: "dict[str, SchemaPart]" = field(default_factory=dict)
    dynamic: "dict[str, SchemaPart]" = field(default_factory=dict)
    recursive: "SchemaPart | None" = None


class KeywordError(Exception):
    """A keyword with an invalid value; ignored in schemas that are only passed on."""


class SchemaReference:
    """A reference, and the part that it leads to after `resolve`."""

    __slots__ = ("keyword", "name", "part", "text", "to")

    def __init__(self, part: SchemaPart, keyword: str, text: str) -> None:
        self.part = self.to = part
        self.keyword = keyword
        self.text = text
        self.name = text.partition("#")[2]


class SchemaCompiler:
    """Compiles one schema."""

    def __init__(self, schema: Json, keywords: "Mapping[str, SchemaKeyword]", *, lenient: bool) -> None:
        self._keywords = keywords
        self.lenient = lenient
        self.draft = _draft_of(schema)
        self.parts: dict[int, SchemaPart] = {}
        self.tracks = False
        self.references: list[SchemaReference] = []
        self._resources: dict[str, SchemaResource] = {}
        self._weight = 0
        self.root = self._resource("", schema, None)

    def part(self, raw: Json, resource: SchemaResource, place: JsonPlace) -> SchemaPart:
        """Compile a subschema; each is compiled once."""
        if isinstance(raw, bool):
            return (
                SchemaPart(resource, place)
                if raw
                else SchemaPart(resource, place, checks=[_reject_everything], refuses=True)
            )
        if not isinstance(raw, dict):
            raise KeywordError(f"expected a schema, which is an object, true or false; not {format_value(raw)}")
        if (known := self.parts.get(id(raw))) is not None:
            return known
        # Before draft 2019-09, keywords next to a reference are ignored.
        alone = self.draft <= 7 and "$ref" in raw
        if not alone:
            resource = self._identified(raw, resource, place)
        part = self.parts[id(raw)] = SchemaPart(resource, place, raw)
        if not alone:
            self._name(part)
        late: list[KeywordCheck] = []
        for name, value in raw.items():
            keyword = self._keywords.get(name)
            if keyword is None or not keyword.since <= self.draft <= keyword.until:
                continue
            if alone and name not in ("$ref", "definitions", "$defs"):
                continue
            try:
                check = keyword.read(KeywordValue(self, part, name, value))
            except KeywordError as error:
                if self.lenient:
                    continue
                raise ConfigError(f"{json_path((place, name))}: {error}") from None
            if check is not None:
                (late if keyword.late else part.checks).append(check)
        part.checks += late
        return part

    def resolve(self) -> None:
        """Resolve every reference; its target may be compiled only now, with references of its own."""
        for reference in self.references:  # grows meanwhile
            try:
                reference.to = self._found(reference.part.resource, reference.text)
            except (KeywordError, ValueError) as error:
                if self.lenient:
                    reference.to = SchemaPart(reference.part.resource, None)
                    continue
                place = json_path((reference.part.place, reference.keyword))
                raise ConfigError(f"{place}: {format_value(reference.text)}: {error}") from None
            reference.part.here.append(reference.to)

    def pattern(self, text: str) -> "BoundedPattern":
        """Compile a pattern; KeywordError when it is invalid or too large."""
        import regex

        if self.lenient:
            return BoundedPattern(0, lambda _text, _seconds: False)
        try:
            weight = _pattern_weight(text)
            self._weight += weight
            if self._weight > _WEIGHT:
                most = f"more than {_WEIGHT:,} characters with its counted repeats written out"
                raise KeywordError(f"the regex {format_value(text)} (or all of a schema together) has {most}")
            compiled = regex.compile(text, flags=regex.VERSION0, cache_pattern=False)
        except (regex.error, ValueError, RecursionError) as error:
            raise KeywordError(f"{format_value(text)} is not a regex: {error}") from None
        return BoundedPattern(
            weight, lambda found, seconds: compiled.search(found, timeout=seconds, concurrent=True) is not None
        )

    def _resource(self, uri: str, raw: Json, place: JsonPlace) -> SchemaResource:
        return self._resources.setdefault(uri, SchemaResource(uri, raw, place))

    def _identified(self, raw: dict[str, Json], resource: SchemaResource, place: JsonPlace) -> SchemaResource:
        """Return the resource that a schema belongs to: its own if it has a URI."""
        own = raw.get("id" if self.draft == 4 else "$id")
        if not isinstance(own, str) or own.startswith("#"):
            return resource
        try:
            address = urldefrag(urljoin(resource.uri, own))[0]
        except ValueError as error:
            raise ConfigError(f"{json_path(place)}: {format_value(own)} is no address: {error}") from None
        if raw is self.root.raw:
            self._resources[address] = self.root
            self.root.uri = address
            return self.root
        return self._resource(address, raw, place)

    def _name(self, part: SchemaPart) -> None:
        """Record the anchors of a schema."""
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

    def _found(self, resource: SchemaResource, reference: str) -> SchemaPart:
        address, _, fragment = reference.partition("#")
        missing = KeywordError(f"it refers to {format_value(reference)}, which is not in it, and nothing is fetched")
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


def _draft_of(schema: Json) -> int:
    """Return a schema's draft: the newest if it names no known one."""
    named = schema.get("$schema") if isinstance(schema, dict) else None
    if isinstance(named, str) and named.startswith(("http://json-schema.org/", "https://json-schema.org/")):
        return next((draft for name, draft in _DRAFTS.items() if f"/{name}/" in named), 2020)
    return 2020


@dataclass(frozen=True, slots=True)
class BoundedPattern:
    """A pattern with a time limit, and its size with counted repeats expanded."""

    weight: int
    search: Callable[[str, float], bool]


_QUANTIFIER = re.compile(r"\{(\d{1,9})?(,)?(\d{1,9})?\}", re.ASCII)
_ESCAPE = re.compile(r"\\(?:[pPuxN]\{[^{}]{1,60}\}|k<\w{1,60}>|.)", re.DOTALL)
_CLASS = re.compile(r"\[\^?(?:\\.|[^\]\\])+\]", re.DOTALL)
_GROUP = re.compile(r"\((?:\?(?:[:=!]|<[=!]|P?<[A-Za-z_]\w*>))?")
# A brace that begins neither a count nor an extension of `regex`.
_BRACE = re.compile(r"\{(?=[^\w\s,<>=~:+-]|$)")


def _pattern_weight(pattern: str) -> int:
    """Return the size of a pattern with its counted repeats expanded, as `regex` compiles it.

    ValueError for syntax outside ECMA 262, which `regex` would treat as its own extensions. Compiling a{999999999}, 12
    characters, would take all memory.
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
        place, last = _atom_end(pattern, place), 1
        total[-1] += 1
    return sum(total)


def _atom_end(pattern: str, place: int) -> int:
    """Return the end of the character, escape or class that begins here."""
    kind = {"\\": _ESCAPE, "[": _CLASS, "{": _BRACE}.get(pattern[place])
    if kind is None and pattern[place] not in "()":
        return place + 1
    if kind is None or (found := kind.match(pattern, place)) is None:
        raise ValueError(f"{pattern[place : place + 20]!r} is not in ECMA 262")
    return found.end()


class KeywordValue:
    """The value of one keyword, with typed access to it."""

    def __init__(self, reading: SchemaCompiler, part: SchemaPart, name: str, value: Json) -> None:
        self._reading = reading
        self.part = part
        self.draft = reading.draft
        self.name = name
        self.value = value

    def sibling(self, name: str) -> "KeywordValue":
        """Return another keyword of the same schema; its value is None if it is missing."""
        return KeywordValue(self._reading, self.part, name, self.part.raw.get(name))

    def schema(self, value: Json, *names: str | int, here: bool = False) -> SchemaPart:
        """Compile a schema that this keyword applies to the same value (`here`) or to a part of it."""
        place: JsonPlace = (self.part.place, self.name)
        for name in names:
            place = place, name
        try:
            read = self._reading.part(value, self.part.resource, place)
        except KeywordError as error:
            if not names or self._reading.lenient:
                raise
            raise ConfigError(f"{json_path(place)}: {error}") from None
        (self.part.here if here else self.part.below).append(read)
        return read

    def schemas(self, *, here: bool = False) -> list[SchemaPart]:
        """Compile a list of schemas."""
        if not isinstance(self.value, list) or not self.value:
            raise self._misused("a list of schemas")
        return [self.schema(value, index, here=here) for index, value in enumerate(self.value)]

    def mapping(self) -> dict[str, Json]:
        """Return the value, an object."""
        if not isinstance(self.value, dict):
            raise self._misused("an object")
        return self.value

    def number(self) -> float:
        """Return the value, a number."""
        if not is_number(self.value):
            raise self._misused("a number")
        return self.value

    def count(self) -> int:
        """Return the value, a non-negative integer."""
        if not is_number(self.value) or self.value < 0 or self.value != int(self.value):
            raise self._misused("a non-negative integer")
        return int(self.value)

    def text(self) -> str:
        """Return the value, a string."""
        if not isinstance(self.value, str):
            raise self._misused("a string")
        return self.value

    def texts(self) -> list[str]:
        """Return the value, a list of strings."""
        if not isinstance(self.value, list):
            raise self._misused("a list of strings")
        return [KeywordValue(self._reading, self.part, self.name, each).text() for each in self.value]

    def values(self) -> "list[JsonValue]":
        """Return the value, a list."""
        if not isinstance(self.value, list):
            raise self._misused("a list")
        return self.value

    def optional(self) -> SchemaPart | None:
        """Compile an optional schema."""
        return None if self.value is None else self.schema(self.value, here=True)

    def with_value(self, value: Json) -> "KeywordValue":
        """Return the same keyword with another value."""
        return KeywordValue(self._reading, self.part, self.name, value)

    def pattern(self, text: str) -> BoundedPattern:
        """Compile a pattern."""
        return self._reading.pattern(text)

    def patterns(self) -> list[BoundedPattern]:
        """Compile the keys of an object as patterns."""
        return [self.pattern(text) for text in self.value] if isinstance(self.value, dict) else []

    def reference(self) -> SchemaReference:
        """Return the value as a reference, to be resolved after compilation."""
        made = SchemaReference(self.part, self.name, self.text())
        self._reading.references.append(made)
        return made

    def track(self) -> None:
        """Request tracking of evaluated parts."""
        self._reading.tracks = True

    def _misused(self, expected: str) -> KeywordError:
        return KeywordError(f"expected {expected}, not {format_value(self.value)}")


def is_number(value: object) -> TypeGuard[float]:
    """Whether a value is a number; booleans are not."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def _reject_everything(_: SchemaValidator, frame: ValueFrame) -> Mismatch | None:
    return frame.problem(lambda: f"{format_value(frame.value)} is not allowed here")


@dataclass(frozen=True, slots=True)
class SchemaKeyword:
    """How a keyword is compiled, in which drafts; `late`: after all others, on which it depends."""

    read: "Callable[[KeywordValue], KeywordCheck | None]"
    since: int = 4
    until: int = 2020
    late: bool = False
