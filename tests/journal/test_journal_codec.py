"""Every event comes back from its stored form as it was, and the stored form does not change by accident."""

import json
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields, replace
from enum import StrEnum
from typing import get_args, get_origin, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st
from journals import answered, started

from shikisha.core.budget import Caps, Usage
from shikisha.core.errors import JournalTampered
from shikisha.core.events import (
    EVENT_CLASSES,
    CheckDecided,
    CheckStatus,
    Event,
    OnCheckFailure,
    RecordsChanged,
    RunResumed,
)
from shikisha.journal.chain import GENESIS, chain_hash, encode_records
from shikisha.journal.codec import body_hash, body_references, body_text, canonical_tail, decode_event, encode_event
from shikisha.journal.records import records_event

NUMBERS = st.floats(allow_nan=False, allow_infinity=False).map(lambda number: number + 0.0)  # -0.0 is 0.0
POSITIVE = st.none() | st.floats(0, 1e9)
COUNT = st.integers(0, 10**6)
SIMPLE: dict[object, st.SearchStrategy[object]] = {
    str: st.text(st.characters(), max_size=20),  # half characters (lone surrogates) and NULs included
    float: NUMBERS,
    int: st.integers(),
    bool: st.booleans(),
    type(None): st.none(),
    Mapping[str, str]: st.dictionaries(st.text("abc", max_size=3), st.text("xyz", max_size=3), max_size=3),
    Mapping[str, float]: st.dictionaries(st.text("abc", max_size=3), NUMBERS, max_size=3),
    Caps: st.builds(Caps, COUNT, COUNT, COUNT, st.none() | COUNT, POSITIVE, POSITIVE, COUNT),
}


def values_of(hint: object) -> st.SearchStrategy[object]:
    if hint in SIMPLE:
        return SIMPLE[hint]
    if get_origin(hint) is tuple:
        return st.lists(values_of(get_args(hint)[0]), max_size=3).map(tuple)
    if get_args(hint):
        return st.one_of(*map(values_of, get_args(hint)))
    assert isinstance(hint, type)
    return st.sampled_from(list(hint)) if issubclass(hint, StrEnum) else records_of(hint)


def records_of(make: type) -> st.SearchStrategy[object]:
    return st.builds(make, **{name: values_of(hint) for name, hint in fields_of(make).items()})


def fields_of(make: type) -> dict[str, object]:
    hints = get_type_hints(make)
    return {field.name: hints[field.name] for field in fields(make)}


def events_of(make: type[Event]) -> st.SearchStrategy[Event]:
    own = {name: values_of(hint) for name, hint in fields_of(make).items() if name not in {"run", "at"}}
    return st.builds(make, run=st.text("abc-019é", min_size=1), at=NUMBERS, **own)


ANY = {make: events_of(make) for make in EVENT_CLASSES.values()}


def there_and_back(event: Event) -> Event:
    entry = encode_event(event)
    texts = {key: body_text(body) for key, body in entry.bodies}
    return decode_event(entry.kind, entry.run, entry.at, entry.data, texts)


@pytest.mark.parametrize("kind", EVENT_CLASSES.values(), ids=EVENT_CLASSES)
@given(data=st.data())
def test_every_event_comes_back_as_it_was(kind: type[Event], data: st.DataObject) -> None:
    event = data.draw(ANY[kind])
    assert there_and_back(event) == event
    assert repr(there_and_back(event)) == repr(event)  # the same types too: an enum stays an enum, a tuple a tuple


@given(st.one_of(*ANY.values()))
def test_what_is_stored_is_ascii_json_and_refers_to_its_texts_by_hash(event: Event) -> None:
    entry = encode_event(event)
    assert entry.data.isascii()
    assert "\0" not in entry.data
    assert set(body_references(entry.kind, entry.data).values()) == {key for key, _ in entry.bodies}
    assert all(body_hash(body) == key for key, body in entry.bodies)


def test_a_text_is_not_in_the_data() -> None:
    entry = encode_event(answered("r", "the secret of the day"))
    assert "secret" not in entry.data
    assert entry.bodies == ((body_hash(b"the secret of the day"), b"the secret of the day"),)


def test_the_stored_form_of_an_event_is_this() -> None:
    event = CheckDecided(
        run="r1",
        at=2.5,
        round=0,
        step=1,
        attempt=2,
        check="json",
        status=CheckStatus.FAIL,
        leads_to=OnCheckFailure.REDO,
    )
    entry = encode_event(event)
    assert json.loads(entry.data) == {
        "round": 0,
        "step": 1,
        "attempt": 2,
        "check": "json",
        "status": "fail",
        "leads_to": "redo",
    }
    assert entry.tail == f',"r1","check.decided",2.5,{entry.data}]'.encode()


def test_the_hash_of_an_event_is_this() -> None:
    entry = encode_event(RunResumed(run="r1", at=3))
    assert b"[0" + entry.tail == b'[0,"r1","run.resumed",3.0,{}]'
    assert chain_hash(GENESIS, 0, entry.tail) == body_hash(GENESIS.encode() + b'[0,"r1","run.resumed",3.0,{}]')
    assert entry.tail == canonical_tail(entry.run, entry.kind, entry.at, entry.data)


def test_the_defaults_that_stored_events_leave_out_are_these() -> None:
    """A changed default would change what old journals say: it needs a new field, or a migration."""
    found = {
        f"{kind}.{field.name}": str(field.default)
        for kind, make in EVENT_CLASSES.items()
        for field in fields(make)
        if field.default is not MISSING and field.default not in (None, "", ())
    }
    assert found == {
        "run.started.config": "{}",
        "run.started.depth": "0",
        "turn.routed.kept": "False",
        "plan.proposed.final": "False",
        "plan.proposed.joins": "False",
        "plan.proposed.partial": "False",
        "attempt.started.role": "step",
        "context.gathered.left": "[]",
        "context.gathered.tokens": "0",
        "context.gathered.seconds": "0.0",
        "attempt.started.reason": "first",
        "attempt.started.reserved": "Amount(tokens=0, dollars=0.0)",
        "attempt.finished.usage": str(Usage()),
        "attempt.finished.dollars": "0.0",
        "attempt.finished.finish": "stop",
        "attempt.finished.seconds": "0.0",
        "attempt.finished.uncertain": "Amount(tokens=0, dollars=0.0)",
        "attempt.failed.charged": "Amount(tokens=0, dollars=0.0)",
        "attempt.failed.seconds": "0.0",
        "attempt.failed.cause": "unknown",
        "attempt.failed.uncertain": "Amount(tokens=0, dollars=0.0)",
        "question.asked.expires": "0.0",
        "question.asked.bound": "Amount(tokens=0, dollars=0.0)",
        "question.answered.via": "cli",
        "answer.graded.judged": "False",
        "bodies.erased.removed": "0",
    }


@pytest.mark.parametrize("run", ["", "a\0b", "a\nb", "\ud800"])
def test_a_run_id_that_cannot_be_printed_is_refused(run: str) -> None:
    with pytest.raises(ValueError, match="printable"):
        encode_event(started(run))


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_numbers_that_json_does_not_have_are_refused(number: float) -> None:
    with pytest.raises(ValueError, match="JSON"):
        encode_event(replace(answered("r", "It."), dollars=number))
    with pytest.raises(ValueError, match="finite"):
        encode_event(RunResumed(run="r", at=number))


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        ("run.paused", "{"),
        ("run.paused", "[]"),
        ("run.paused", '{"status":"dancing"}'),
        ("run.paused", '{"status":"suspended","extra":1}'),
        ("run.paused", "{}"),
        ("step.finished", '{"round":0,"step":0,"worker":"a","message":"0000"}'),
        ("run.started", '{"conductor":"c","pool":[],"caps":{"steps":-1},"prompt":null}'),
        ("nothing.known", "{}"),
    ],
)
def test_data_that_makes_no_event_is_tampering(kind: str, data: str) -> None:
    with pytest.raises(JournalTampered, match="run r"):
        decode_event(kind, "r", 1.0, data, {})


@dataclass(frozen=True)
class Told:
    """A work that makes this of records."""

    event: RecordsChanged

    def records(self) -> RecordsChanged:
        return self.event


def test_a_new_runs_row_and_what_its_key_used_are_one_event() -> None:
    row, used = records_event(rows={"served": {"r": "h"}}), records_event(member="m", used={"k": [1, 2, 3]})
    (entry,) = encode_records([Told(row), Told(used)])
    assert decode_event(entry.kind, entry.run, entry.at, entry.data, {}) == replace(used, rows=row.rows)
    key = records_event(rows={"grants": {"k": "h"}})
    assert len(encode_records([Told(key), Told(used)])) == 2
    assert len(encode_records([Told(row), Told(row)])) == 2
