"""Every kind of fault of a chat endpoint, acted out over real HTTP: a typed error each, in time, and no key in it."""

import asyncio
import time
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from shikisha.core.budget import Price
from shikisha.core.errors import Fault, FaultKind, WorkerError
from shikisha.core.secrets import SecretStore
from shikisha.core.task import Task
from shikisha.engine.pool import Member, Pool
from shikisha.engine.worker import Card, Reply, Request
from shikisha.testing import ChargeLedger, InjectedFault, ScriptedAnswer, black_hole, chat_server, closed_port
from shikisha.workers.chat import ChatSettings, build
from support import plan_of, run_plans

KEY = "sk-planted-0123456789"
TIMEOUT = 1.0
PATIENCE = 20.0  # where the clock is not what ends the call: a busy machine is no fault
CARD = Card("worker", max_output_tokens=100, timeout=TIMEOUT, price=Price(1.0, 2.0))
REQUEST = Request(Task("question"), "subtask", key="run-0-0-0")

EXPECTED = {
    InjectedFault.SILENCE: FaultKind.TIMEOUT,
    InjectedFault.RATE_SECONDS: FaultKind.RATE_LIMITED,
    InjectedFault.RATE_DATE: FaultKind.RATE_LIMITED,
    InjectedFault.RATE_NEGATIVE: FaultKind.RATE_LIMITED,
    InjectedFault.RATE_HUGE: FaultKind.RATE_LIMITED,
    InjectedFault.ERROR_500: FaultKind.SERVER,
    InjectedFault.ERROR_503: FaultKind.SERVER,
    InjectedFault.UNAUTHORIZED: FaultKind.AUTH,
    InjectedFault.BAD_REQUEST: FaultKind.BAD_REQUEST,
    InjectedFault.REDIRECT: FaultKind.BAD_REQUEST,
    InjectedFault.TRUNCATED: FaultKind.CUT_OFF,
    InjectedFault.NO_FINISH: FaultKind.CUT_OFF,
    InjectedFault.BAD_JSON: FaultKind.BAD_REPLY,
    InjectedFault.HTML: FaultKind.BAD_REPLY,
    InjectedFault.WRONG_TYPE: FaultKind.BAD_REPLY,
    InjectedFault.IN_BAND: FaultKind.SERVER,
    InjectedFault.HUGE: FaultKind.TOO_LARGE,
    InjectedFault.ZIPPED: FaultKind.TOO_LARGE,
    InjectedFault.DRIP: FaultKind.TIMEOUT,
    InjectedFault.RESET: FaultKind.RESET,
    InjectedFault.RESET_MIDWAY: FaultKind.RESET,
    InjectedFault.NEGATIVE_USAGE: FaultKind.BAD_USAGE,
    InjectedFault.ABSURD_USAGE: FaultKind.BAD_USAGE,
    InjectedFault.BOOLEAN_USAGE: FaultKind.BAD_USAGE,
    InjectedFault.TEXT_USAGE: FaultKind.BAD_USAGE,
    InjectedFault.EMPTY: FaultKind.EMPTY,
    InjectedFault.REFUSAL: FaultKind.REFUSED,
    InjectedFault.FILTERED: FaultKind.REFUSED,
    InjectedFault.LENGTH: FaultKind.TRUNCATED,
}


async def call(url: str, *, stream: bool = True, timeout: float = TIMEOUT) -> Reply | Fault:  # noqa: ASYNC109 - a card's
    """Return the reply, or the fault, of one call in at most its worker's timeout and a few seconds."""
    secret_store = SecretStore({"KEY": KEY})
    settings = ChatSettings(model="m", base_url=url, api_key_env="KEY", stream=stream)
    worker = build(settings, replace(CARD, timeout=timeout), secret_store)
    try:
        async with asyncio.timeout(timeout + 3.0):
            return await worker.perform(REQUEST)
    except WorkerError as error:
        return error.fault
    finally:
        await worker.aclose()


async def fault(mishap: InjectedFault, *, stream: bool = True) -> Fault:
    ends_by_the_clock = EXPECTED.get(mishap) is FaultKind.TIMEOUT
    async with chat_server([ScriptedAnswer(text="one two three four", mishap=mishap)]) as url:
        outcome = await call(url, stream=stream, timeout=TIMEOUT if ends_by_the_clock else PATIENCE)
    assert isinstance(outcome, Fault)
    return outcome


def test_every_mishap_is_expected_to_be_some_fault() -> None:
    assert set(EXPECTED) | {InjectedFault.NO_DONE, InjectedFault.NO_USAGE} == set(InjectedFault)


@pytest.mark.parametrize("mishap", EXPECTED)
@pytest.mark.parametrize("stream", [True, False])
async def test_invariant_6_and_8_a_mishap_is_a_typed_fault_without_the_key(mishap: InjectedFault, stream: bool) -> None:
    found = await fault(mishap, stream=stream)
    assert found.kind is EXPECTED[mishap]
    assert KEY not in repr(found)


@pytest.mark.parametrize(
    ("mishap", "note"), [(InjectedFault.NO_DONE, "without [DONE]"), (InjectedFault.NO_USAGE, "an estimate")]
)
async def test_an_answer_that_came_whole_is_one_with_a_note(mishap: InjectedFault, note: str) -> None:
    async with chat_server([ScriptedAnswer(text="one two three four", mishap=mishap)]) as url:
        outcome = await call(url, timeout=PATIENCE)
    assert isinstance(outcome, Reply)
    assert outcome.text == "one two three four"
    assert note in "; ".join(outcome.notes)


async def test_a_closed_port_and_a_black_hole_are_connect_faults() -> None:
    refused = await call(closed_port(), timeout=PATIENCE)
    assert isinstance(refused, Fault)
    with black_hole() as url:
        lost = await call(url)
    assert isinstance(lost, Fault)
    assert [refused.kind, lost.kind] == [FaultKind.CONNECT, FaultKind.CONNECT]


async def test_an_unknown_host_is_a_connect_fault() -> None:
    found = await call("http://nowhere.invalid/v1", timeout=PATIENCE)
    assert isinstance(found, Fault)
    assert found.kind is FaultKind.CONNECT


@pytest.mark.parametrize(
    ("mishap", "least", "most"),
    [
        (InjectedFault.RATE_SECONDS, 7, 7),
        (InjectedFault.RATE_DATE, 5, 7),
        (InjectedFault.RATE_NEGATIVE, -7, -7),
        (InjectedFault.RATE_HUGE, 10**12, 10**12),
        (InjectedFault.ERROR_503, 7, 7),
    ],
)
async def test_the_server_s_wish_is_handed_on_as_received(mishap: InjectedFault, least: float, most: float) -> None:
    wish = (await fault(mishap)).retry_after
    assert wish is not None
    assert least <= wish <= most


@pytest.mark.parametrize(
    "mishap", [InjectedFault.TRUNCATED, InjectedFault.RESET_MIDWAY, InjectedFault.NO_FINISH, InjectedFault.FILTERED]
)
async def test_what_had_arrived_is_kept_as_evidence(mishap: InjectedFault) -> None:
    found = await fault(mishap)
    assert found.partial is not None
    assert "one two three four".startswith(found.partial)


async def test_text_that_dripped_in_before_the_deadline_is_kept() -> None:
    async with chat_server([ScriptedAnswer(text="one two three", pace=0.4)]) as url:
        found = await call(url)
    assert isinstance(found, Fault)
    assert found.kind is FaultKind.TIMEOUT
    assert found.partial
    assert "one two three".startswith(found.partial)


@pytest.mark.parametrize("stream", [True, False])
async def test_a_body_of_100_mb_is_not_taken_into_memory(stream: bool) -> None:
    await fault(InjectedFault.EMPTY, stream=stream)  # imports done
    with traced() as peak:
        found = await fault(InjectedFault.HUGE, stream=stream)
    assert found.kind is FaultKind.TOO_LARGE
    assert peak[0] < 20 * 2**20


@contextmanager
def traced() -> Iterator[list[int]]:
    """Yield a list that holds the peak of traced memory, in bytes, once the block has ended."""
    peak = [0]
    tracemalloc.start()
    try:
        yield peak
        peak[0] = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


async def test_no_fault_hangs_past_the_deadline() -> None:
    began = time.perf_counter()
    await asyncio.gather(*(fault(mishap) for mishap in (InjectedFault.SILENCE, InjectedFault.DRIP)))
    assert TIMEOUT <= time.perf_counter() - began < TIMEOUT + 3.0  # a second is ours, the rest a busy machine's


@pytest.mark.parametrize(
    "mishap", [InjectedFault.ERROR_500, InjectedFault.TRUNCATED, InjectedFault.BAD_JSON, InjectedFault.UNAUTHORIZED]
)
async def test_the_engine_ends_the_run_with_the_fault_after_no_more_attempts_than_allowed(
    mishap: InjectedFault,
) -> None:
    ledger, secret_store = ChargeLedger(), SecretStore({"KEY": KEY})
    async with chat_server([ScriptedAnswer(mishap=mishap)], ledger=ledger) as url:
        card = replace(CARD, timeout=PATIENCE)
        worker = build(ChatSettings(model="m", base_url=url, api_key_env="KEY"), card, secret_store)
        run = await run_plans(Pool([Member(card, worker)]), plan_of((0, ())))
        await worker.aclose()
    assert run.finished is not None
    assert run.finished.fault is EXPECTED[mishap]
    assert len(ledger.entries) == len(run.attempts) == (CARD.attempts if EXPECTED[mishap].retryable else 1)
