"""One call: reserved before, retried in one place, bounded, scrubbed, and always ended by a reply or a typed fault."""

import asyncio

import pytest

from shikisha.conductors.fixed_conductors import ScriptedConductor
from shikisha.core.budget import Amount, Caps, Price, Usage
from shikisha.core.call import Reply, Request
from shikisha.core.errors import FaultKind, WorkerError
from shikisha.core.events import AttemptFailed, AttemptReason, AttemptStarted, FinishReason
from shikisha.core.run import Run
from shikisha.core.secrets import MASK, SecretStore
from shikisha.engine.engine import Engine
from shikisha.engine.recorder import MemoryRecorder
from shikisha.engine.run_context import RetryPolicy
from support import AT_ONCE, TASK, Answer, AnswerFunction, member, plan_of, pool_of, run_events, run_plans, seen

ONE = plan_of((0, ()))
KEY = "sk-very-secret-key"


def failing(times: int, kind: FaultKind, retry_after: float | None = None) -> AnswerFunction:
    left = iter([WorkerError(kind, "not now", retry_after=retry_after)] * times)

    def answer(_: Request) -> Answer:
        return next(left, "done")

    return answer


def fault_of(run: Run) -> FaultKind | None:
    result = run.rounds[0].results[0]
    return result.fault.kind if result and result.fault else None


@pytest.mark.parametrize("kind", [kind for kind in FaultKind if kind.retryable and kind is not FaultKind.UNCERTAIN])
async def test_a_passing_fault_is_retried(kind: FaultKind) -> None:
    one = member("w", failing(2, kind))
    run = await run_plans(pool_of(one), ONE)
    assert run.answer == "done"
    assert [attempt.started.reason for attempt in run.attempts] == [
        AttemptReason.FIRST,
        AttemptReason.RETRY,
        AttemptReason.RETRY,
    ]


@pytest.mark.parametrize("kind", [FaultKind.AUTH, FaultKind.REFUSED, FaultKind.TRUNCATED, FaultKind.BAD_REQUEST])
async def test_a_lasting_fault_is_not_retried(kind: FaultKind) -> None:
    one = member("w", failing(1, kind))
    run = await run_plans(pool_of(one), ONE)
    assert (len(seen(one)), fault_of(run)) == (1, kind)


async def test_attempts_end_at_the_limit_of_the_card() -> None:
    one = member("w", failing(9, FaultKind.SERVER), attempts=4)
    run = await run_plans(pool_of(one), ONE)
    assert (len(seen(one)), fault_of(run)) == (4, FaultKind.SERVER)


async def test_a_worker_that_asks_for_too_long_a_wait_is_not_waited_for() -> None:
    one = member("w", failing(1, FaultKind.RATE_LIMITED, retry_after=86_400))
    run = await run_plans(pool_of(one), ONE)
    assert (len(seen(one)), fault_of(run)) == (1, FaultKind.RATE_LIMITED)


@pytest.mark.parametrize(
    ("wish", "pause"), [(None, 1.0), (7.0, 7.0), (0.0, 1.0), (-5.0, 1.0), (float("nan"), 1.0), (1e9, None)]
)
def test_a_sane_wish_for_a_pause_is_granted(wish: float | None, pause: float | None) -> None:
    assert RetryPolicy(first=1.0, jitter=lambda: 1.0).pause(0, wish) == pause


def test_pauses_grow_to_a_limit_and_jitter_below_it() -> None:
    policy = RetryPolicy(first=1.0, longest=5.0, jitter=lambda: 0.0)
    assert [policy.pause(retry, None) for retry in range(4)] == [0.5, 1.0, 2.0, 2.5]


async def test_an_attempt_ends_at_its_workers_timeout() -> None:
    async def sleep(_: Request) -> Answer:
        await asyncio.sleep(60)
        return "late"

    run = await run_plans(pool_of(member("w", sleep, timeout=0.02, attempts=1)), ONE)
    assert fault_of(run) is FaultKind.TIMEOUT


async def test_a_repeat_after_an_ambiguous_fault_has_the_same_key_and_after_a_clear_one_another() -> None:
    ambiguous, clear = member("w", failing(1, FaultKind.RESET)), member("w", failing(1, FaultKind.SERVER))
    await run_plans(pool_of(ambiguous), ONE)
    await run_plans(pool_of(clear), ONE)
    assert len({request.key for request in seen(ambiguous)}) == 1
    assert len({request.key for request in seen(clear)}) == 2


async def test_invariant_6_an_unforeseen_error_in_a_worker_is_a_recorded_fault() -> None:
    def broken(_: Request) -> Answer:
        raise ZeroDivisionError("oh")

    run = await run_plans(pool_of(member("w", broken)), ONE)
    result = run.rounds[0].results[0]
    assert result is not None
    assert result.fault is not None
    assert (result.fault.kind, result.fault.message) == (FaultKind.INTERNAL, "ZeroDivisionError: oh")


@pytest.mark.parametrize("text", ["half \ud800 pair", "nul \x00"])
async def test_text_that_no_journal_can_keep_is_a_bad_reply(text: str) -> None:
    run = await run_plans(pool_of(member("w", text, attempts=1)), ONE)
    assert fault_of(run) is FaultKind.BAD_REPLY


@pytest.mark.parametrize("reply", [Reply("x", Usage(-1)), Reply("x", dollars=-1.0), Reply("x", dollars=float("nan"))])
async def test_an_absurd_bill_is_a_fault(reply: Reply) -> None:
    run = await run_plans(pool_of(member("w", reply)), ONE)
    assert fault_of(run) is FaultKind.BAD_USAGE


@pytest.mark.parametrize(
    ("finish", "kind"), [(FinishReason.LENGTH, FaultKind.TRUNCATED), (FinishReason.REFUSED, FaultKind.REFUSED)]
)
async def test_invariant_6_a_cut_or_refused_answer_is_never_passed_on_as_one(
    finish: FinishReason, kind: FaultKind
) -> None:
    run = await run_plans(pool_of(member("w", Reply("half an ans", finish=finish))), ONE)
    assert (run.answer, fault_of(run)) == (None, kind)


async def test_invariant_3_tokens_are_reserved_before_the_call_and_settled_after_it() -> None:
    price = Price(input=1.0, output=10.0)
    one = member("w", Reply("done", Usage(20, 4)), price=price, max_output_tokens=100)
    run, events = await run_events(pool_of(one), ONE)
    started = next(event for event in events if isinstance(event, AttemptStarted))
    assert started.reserved.tokens >= len(TASK.prompt) + 100
    assert run.charged == Amount(24, (20 * 1.0 + 4 * 10.0) / 1e6)


async def test_invariant_3_a_call_that_may_break_a_cap_is_refused_and_not_made() -> None:
    one = member("w", price=Price(output=10.0), max_output_tokens=1000)
    run = await run_plans(pool_of(one), ONE, caps=Caps(dollars=0.0099))
    assert (seen(one), fault_of(run)) == ([], FaultKind.CAP)
    assert run.finished is not None
    assert run.finished.cap == "dollars"


async def test_invariant_3_what_cannot_be_priced_is_refused_under_a_dollar_cap() -> None:
    one = member("w", price=None)
    run = await run_plans(pool_of(one), ONE, caps=Caps(dollars=100.0))
    assert (seen(one), fault_of(run)) == ([], FaultKind.CAP)


DEAR = Price(1.0, 2.0, call=0.5)
UNKNOWN = (FaultKind.TIMEOUT, FaultKind.RESET, FaultKind.CUT_OFF, FaultKind.TOO_LARGE, FaultKind.INTERNAL)
DEFINITE = (FaultKind.AUTH, FaultKind.CONNECT, FaultKind.RATE_LIMITED, FaultKind.SERVER, FaultKind.REFUSED)


@pytest.mark.parametrize("kind", [*UNKNOWN, *DEFINITE])
async def test_invariant_3_a_definite_failure_costs_nothing_and_an_unknown_outcome_is_uncertain(
    kind: FaultKind,
) -> None:
    one = member("w", failing(1, kind), attempts=1, max_output_tokens=50, price=DEAR)
    run = await run_plans(pool_of(one), ONE)
    reserved = run.attempts[0].started.reserved
    assert reserved.tokens > 50
    assert run.charged == Amount()
    assert run.uncertain == (reserved if kind in UNKNOWN else Amount())
    assert run.counted == run.uncertain


async def test_an_error_after_a_part_of_an_answer_is_uncertain_and_a_tool_that_failed_has_run() -> None:
    late = member("w", lambda _: WorkerError(FaultKind.SERVER, partial="It is"), attempts=1, price=DEAR)
    assert (await run_plans(pool_of(late), ONE)).uncertain.dollars == pytest.approx(0.5, rel=0.01)
    tool = member("w", failing(1, FaultKind.TOOL_ERROR), attempts=1, max_output_tokens=50, price=DEAR)
    run = await run_plans(pool_of(tool), ONE)
    assert (run.charged, run.uncertain) == (Amount(0, 0.5), Amount())


async def test_invariant_3_what_is_uncertain_counts_against_the_caps() -> None:
    """Each call may have cost $0.50: of four, a cap of $1.20 allows two, although none is known to have cost a cent."""
    one = member("w", failing(4, FaultKind.TIMEOUT), attempts=4, price=Price(call=0.5))
    run = await run_plans(pool_of(one), ONE, caps=Caps(dollars=1.2))
    assert (len(run.attempts), run.charged.dollars, run.uncertain.dollars) == (2, 0.0, 1.0)
    assert fault_of(run) == FaultKind.CAP
    free = member("w", failing(3, FaultKind.SERVER), attempts=4, price=Price(call=0.5))
    assert (await run_plans(pool_of(free), ONE, caps=Caps(dollars=1.2))).charged.dollars == 0.5


@pytest.mark.parametrize(
    "odd",
    [
        Reply("a", dollars=10**400),
        Reply("a", Usage(10**400)),
        Reply("a", uncertain=Amount(-1)),
        WorkerError(FaultKind.SERVER, dollars=10**400, tokens=1),
        WorkerError(FaultKind.SERVER, tokens=10**400, dollars=0.0),
        WorkerError(FaultKind.SERVER, retry_after=10**400),
        WorkerError(FaultKind.NO_ANSWER, tokens=1, dollars=0.0, uncertain_tokens=-(10**400)),
    ],
)
async def test_numbers_that_no_float_holds_end_the_attempt_and_nothing_else(odd: Reply | WorkerError) -> None:
    one = member("w", lambda _: odd, attempts=1)
    run = await run_plans(pool_of(one), ONE)
    assert run.answer is None
    assert run.charged.tokens < 100
    assert run.uncertain.tokens < 1000


async def test_invariant_8_a_key_that_a_worker_echoes_reaches_neither_journal_nor_worker() -> None:
    secret_store = SecretStore({"THE_KEY": KEY})
    secret_store.read("THE_KEY")
    leaking = member("leaking", f"your key is {KEY}")
    wordy = member("wordy", lambda _: WorkerError(FaultKind.AUTH, f"bad key {KEY}", partial=KEY))
    recorder = MemoryRecorder()
    engine = Engine(recorder, secret_store=secret_store, retry=AT_ONCE)
    plan = plan_of((0, ()), (1, (0,)), (1, ()))
    run = await engine.run(TASK, pool_of(leaking, wordy), ScriptedConductor([plan]))
    assert KEY not in repr(await recorder.read(run.id))
    assert KEY not in repr(seen(wordy))
    assert MASK in repr(seen(wordy))


async def test_a_failed_attempt_keeps_what_had_arrived_as_evidence() -> None:
    error = WorkerError(FaultKind.CUT_OFF, "no end", partial="The answer is")
    _, events = await run_events(pool_of(member("w", lambda _: error, attempts=1)), ONE)
    failed = next(event for event in events if isinstance(event, AttemptFailed))
    assert failed.partial == "The answer is"


@pytest.mark.parametrize(
    "pieces", [[KEY], list(KEY), [f"your key {KEY[:5]}", f"{KEY[5:]} is safe"], ["sk-", "very", KEY]]
)
async def test_invariant_8_a_key_that_arrives_in_pieces_is_not_heard(pieces: list[str]) -> None:
    secret_store = SecretStore({"THE_KEY": KEY, "SHORT_KEY": KEY[:11], "OTHER_KEY": KEY[-3:] + "-other"})
    for variable in ("THE_KEY", "SHORT_KEY", "OTHER_KEY"):
        secret_store.read(variable)

    def stream(request: Request) -> Answer:
        assert request.on_text is not None
        for piece in pieces:
            request.on_text(piece)
        return "".join(pieces)

    heard: list[str] = []
    engine = Engine(
        MemoryRecorder(), secret_store=secret_store, on_text=lambda _round, _step, piece: heard.append(piece)
    )
    run = await engine.run(TASK, pool_of(w=stream), ScriptedConductor([ONE]))
    assert "".join(heard) == run.answer
    assert KEY[11:] not in "".join(heard)
