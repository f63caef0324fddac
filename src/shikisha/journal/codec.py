"""Events as JSON and back, by a form made once for each class of event.

Invariant: `decode` gives back what `encode` was given, for every event, and what is stored as data is ASCII JSON, so
that any store can hold whatever characters a model wrote. Texts (`Body` fields) are not in the data: their place holds
the SHA-256 of their bytes. `Free` fields are bodies too, under their name and `#`, as older journals have them in
place. So does the place of a long list of names (a large pool), which is stored once for all runs.
Events of one run that are added together may share a row (`bundle_events`): its data is a list of them, each with its
kind and time, and its kind that of its first or last event. `split_bundle` gives them back.
A field that equals its default is left out, which makes the defaults of events part of the format (a test pins them).
Deliberately absent: numbers that JSON does not have; NaN is an error where it comes from.
"""

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from functools import cache
from hashlib import sha256
from json.encoder import encode_basestring_ascii
from math import isfinite
from operator import attrgetter
from types import UnionType
from typing import Annotated, NamedTuple, Union, cast, get_args, get_origin, get_type_hints

from shikisha.core.budget import Usage
from shikisha.core.errors import ConfigError, JournalTampered
from shikisha.core.events import BODY, EVENT_CLASSES, FREE, Event, RunStarted
from shikisha.core.fast_dataclass import MISSING, Field, dataclass, fields, is_dataclass
from shikisha.core.messages import decode_json, encode_ascii_json

_MAX_LIST_CHARACTERS = 2_000  # of names that stand in the event itself
_BY_HASH = "#"  # behind the name of a field whose value stood in the event itself, in older journals
_SURROGATES = "surrogatepass"  # a model's text may hold half a character: it is kept as it came


class EncodedEvent(NamedTuple):
    """An event ready to be stored: its columns, the bytes that are chained after its place, and its bodies by hash."""

    run: str
    kind: str
    at: float
    data: str
    tail: bytes
    bodies: tuple[tuple[str, bytes], ...]


def encode_event(event: Event) -> EncodedEvent:
    """Return the event as an entry; ValueError for a run id that cannot be printed and for numbers that JSON lacks."""
    return _entry(event, event.kind, *_stored_form(event))


def _entry(first: Event, kind: str, data: str, bodies: Sequence[tuple[str, bytes]]) -> EncodedEvent:
    run, at = first.run, float(first.at)
    return EncodedEvent(run, kind, at, data, canonical_tail(run, kind, at, data), tuple(bodies))


def _stored_form(event: Event) -> tuple[str, list[tuple[str, bytes]]]:
    """Return an event's data, and the bodies that it refers to."""
    form = _event_format(event.kind)
    data: dict[str, object] = {
        name: value
        for name, value, default in zip(form.names, form.values(event), form.defaults, strict=True)
        if value is not default and value != default
    }
    bodies = []
    for name in form.bodies:
        if name in data and isinstance(text := data[name], str):
            body = text.encode("utf-8", _SURROGATES)
            data[name] = key = sha256(body).hexdigest()
            bodies.append((key, body))
    for name in form.free:
        if name in data:
            value = data.pop(name)
            written = value if isinstance(value, str) else encode_ascii_json(value)
            body = written.encode("utf-8", _SURROGATES)
            data[f"{name}{_BY_HASH}"] = key = sha256(body).hexdigest()
            bodies.append((key, body))
    for name, parts, values in form.nested:
        if name in data and (whole := data[name]) is not None:
            stored = dict(zip(parts, values(whole), strict=True))
            # Most calls use few of the kinds of tokens, and no count is ever missing: none is 0.
            data[name] = {part: count for part, count in stored.items() if count} if type(whole) is Usage else stored
    for name in form.lists:
        names = data.get(name, ())
        if isinstance(names, tuple) and sum(map(len, names)) > _MAX_LIST_CHARACTERS:
            body = encode_ascii_json(names).encode("utf-8", _SURROGATES)
            data[name] = key = sha256(body).hexdigest()
            bodies.append((key, body))
    run, at = event.run, event.at
    if not (run and run.isprintable() and isfinite(at)):
        raise ValueError(f"{event.kind}: a run's id is printable and a time is finite, not {run!r} and {at}")
    return encode_ascii_json(data), bodies


_BETWEEN = ",\n"  # compact JSON has no line break, so that a bundle is split without being parsed


def bundle_events(events: Sequence[Event], kind: str) -> EncodedEvent:
    """Return events of one run as one row of this kind, that of the first or the last of them."""
    parts, bodies = list[str](), list[tuple[str, bytes]]()
    for event in events:
        data, own = _stored_form(event)
        parts.append(f'["{event.kind}",{float(event.at)!r},{data}]')
        bodies += own
    return _entry(events[0], kind, f"[{_BETWEEN.join(parts)}]", bodies)


def split_bundle(kind: str, at: float, data: str) -> Sequence[tuple[str, float, str]]:
    """Return kind, time and data of each event of a row; a row that is no bundle is its own only event."""
    if not data.startswith("[["):
        return ((kind, at, data),)
    try:
        found = [part[1:-1].split(",", 2) for part in data[1:-1].split(_BETWEEN)]
        parts = [(name[1:-1], float(when), own) for name, when, own in found]
    except ValueError:
        return ((kind, at, data),)
    return parts if kind in (parts[0][0], parts[-1][0]) else ((kind, at, data),)


def canonical_tail(run: str, kind: str, at: float, data: str) -> bytes:
    """Return the canonical bytes of an event, `[seq,run,kind,at,data]`, from the first comma on."""
    quote = encode_basestring_ascii
    return f",{quote(run)},{quote(kind)},{at!r},{data}]".encode("utf-8", _SURROGATES)


def decode_event(kind: str, run: str, at: float, data: str, bodies: Mapping[str, str]) -> Event:
    """Return the event; `bodies` has the text for each hash in the data. JournalTampered when that makes no event."""
    return make_event(kind, run, at, stored_values(data), bodies)


def make_event(kind: str, run: str, at: float, stored: Mapping[str, object] | None, bodies: Mapping[str, str]) -> Event:
    """Return the event of data that was read by `stored_values`, as `decode_event` does."""
    try:
        form = _event_format(kind)
        if stored is None:
            raise ValueError("its data is no JSON object")
        values = dict(stored)
        for name in form.bodies:
            if values.get(name) is not None:
                values[name] = bodies[cast("str", values[name])]
        for name, structured in form.free.items():
            if (key := values.pop(f"{name}{_BY_HASH}", None)) is not None:
                written = bodies[cast("str", key)]
                if written or not structured:  # "": read without texts, or erased
                    values[name] = decode_json(written) if structured else written
        for name in form.lists:
            if isinstance(key := values.get(name), str):
                values[name] = decode_json(bodies[key] or "[]")  # "": read without texts
        for name, unpack in form.unpack:
            if values.get(name) is not None:
                values[name] = unpack(values[name])
        return form.make(run=run, at=at, **values)
    except (AttributeError, KeyError, TypeError, ValueError, ConfigError) as error:
        raise JournalTampered(f"run {run}: a stored {kind} makes no event: {error!r}") from error


def stored_values(data: str) -> Mapping[str, object] | None:
    """Return the fields that stored data holds; None where it is no event's."""
    try:
        values = decode_json(data)
    except ValueError:
        return None
    return values if isinstance(values, dict) else None


def body_references(kind: str, data: str) -> dict[str, str]:
    """Return the hash of each text that stored data refers to, by field; none where the data is no event's."""
    return body_keys(kind, stored_values(data))


def body_keys(kind: str, stored: Mapping[str, object] | None) -> dict[str, str]:
    """Return the hash of each text that these stored fields refer to, by field; none where they are no event's."""
    if stored is None or kind not in EVENT_CLASSES:
        return {}
    form = _event_format(kind)
    places = [(name, name) for name in form.bodies] + [(name, f"{name}{_BY_HASH}") for name in form.free]
    return {name: key for name, place in places if isinstance(key := stored.get(place), str)}


def list_references(kind: str, data: str) -> dict[str, str]:
    """Return the hash of each list of names that stored data refers to, by field; no erasure removes these."""
    lists = _event_format(kind).lists if kind in EVENT_CLASSES else ()
    stored = (stored_values(data) if lists else None) or {}
    return {name: key for name in lists if isinstance(key := stored.get(name), str)}


def body_hash(body: bytes) -> str:
    """Return the key under which a body is stored: its SHA-256, in hex."""
    return sha256(body).hexdigest()


def body_text(body: bytes) -> str:
    """Return a stored body as the text that it was."""
    return body.decode("utf-8", _SURROGATES)


@dataclass(frozen=True, slots=True)
class _EventFormat:
    """How the fields of one class of event are stored; `run` and `at` have columns of their own."""

    make: type[Event]
    names: tuple[str, ...]
    values: Callable[[Event], tuple[object, ...]]
    defaults: tuple[object, ...]
    bodies: tuple[str, ...]
    free: Mapping[str, bool]  # by name, whether it is stored as JSON
    lists: tuple[str, ...]  # of names that many runs share, stored apart where they are long
    nested: tuple[tuple[str, tuple[str, ...], Callable[[object], tuple[object, ...]]], ...]  # the dataclasses
    unpack: tuple[tuple[str, Callable[..., object]], ...]


@cache
def _event_format(kind: str) -> _EventFormat:
    make = EVENT_CLASSES[kind]
    hints = get_type_hints(make, include_extras=True)
    own = [field for field in fields(make) if field.name not in {"run", "at"}]
    types = {field.name: _without_none(hints[field.name]) for field in own}
    free = {name: get_args(hint)[0] for name, hint in types.items() if FREE in get_args(hint)}
    types |= free
    return _EventFormat(
        make,
        tuple(types),
        cast("Callable[[Event], tuple[object, ...]]", attrgetter(*types)) if len(types) > 1 else lambda _: (),
        tuple(map(_default, own)),
        tuple(name for name, hint in types.items() if (get_origin(hint) is Annotated and BODY in get_args(hint))),
        {name: hint is not str for name, hint in free.items()},
        ("pool",) if make is RunStarted else (),
        tuple((name, parts, attrgetter(*parts)) for name, hint in types.items() if (parts := _parts(hint))),
        tuple((name, unpack) for name, hint in types.items() if (unpack := _unpacker(hint))),
    )


def _default(field: "Field[object]") -> object:
    return field.default if field.default_factory is MISSING else field.default_factory()


def _without_none(hint: object) -> object:
    if get_origin(hint) in {Union, UnionType}:
        return next(option for option in get_args(hint) if option is not type(None))
    return hint


def _parts(hint: object) -> tuple[str, ...]:
    return tuple(field.name for field in fields(cast("type[Event]", hint))) if is_dataclass(hint) else ()


def _unpacker(hint: object) -> Callable[..., object] | None:
    if get_origin(hint) is tuple:
        return tuple
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return hint
    if isinstance(hint, type) and is_dataclass(hint):
        return lambda values: hint(**values)
    return None
