"""What is told of a run while it happens is its answer, as early as nothing can take it back, and never two answers."""

import asyncio
import sys
from collections.abc import Callable, Sequence
from types import FrameType

import pytest

from shikisha.checks.text_checks import FixedCheck
from shikisha.conductors.fixed_conductors import ScriptedConductor
from shikisha.core.budget import Caps
from shikisha.core.errors import FaultKind, WorkerError
from shikisha.core.events import CheckStatus, OnCheckFailure
from shikisha.core.plan import Plan
from shikisha.engine.conductor import Conductor
from shikisha.engine.pool import OutputCheck, Pool
from shikisha.engine.worker import Reply, Request
from shikisha.server.lifecycle.broadcast import LiveRun, RunUpdate
from shikisha.server.lifecycle.run_progress import (
    AnswerPiece,
    AnswerReplaced,
    ProgressNote,
    ProgressTerms,
    ProgressTracker,
    ProgressUpdate,
    RunEnded,
    streamable_workers,
)
from support import TASK, AnswerFunction, engine, member, plan_of, pool_of

ONE = plan_of((0, ()))
TWO = plan_of((0, ()), (1, (0,)))


def saying(*takes: str | WorkerError) -> AnswerFunction:
    """A worker that says each take in pieces of a word; a fault comes after its partial text."""
    left = list(takes)

    def answer(request: Request) -> Reply:
        take = left.pop(0) if len(left) > 1 else left[0]
        text = take if isinstance(take, str) else take.fault.partial or ""
        for word in text.split(" "):
            if request.on_text is not None:
                request.on_text(f"{word} ")
        if isinstance(take, WorkerError):
            raise take
        return Reply(f"{text} ")

    return answer


def cut(partial: str) -> WorkerError:
    return WorkerError(FaultKind.RESET, partial=partial)


async def heard_of(pool: Pool, conductor: Conductor, caps: Caps | None = None) -> list[RunUpdate]:
    live = LiveRun("r1")
    heard: list[RunUpdate] = []

    async def listen() -> None:
        heard.extend([each async for each in live.listen()])

    async with asyncio.TaskGroup() as group:
        group.create_task(listen())
        await asyncio.sleep(0)
        await engine().with_observers(live.observe, live.say).run(TASK, pool, conductor, caps, run_id="r1")
        live.end()
    return heard


async def told_of(pool: Pool, *plans: Plan, live: bool = True, caps: Caps | None = None) -> list[ProgressUpdate]:
    teller = ProgressTracker(ProgressTerms((caps or Caps()).rounds, streamable_workers(pool), live))
    return [told for heard in await heard_of(pool, ScriptedConductor(plans), caps) for told in teller.hear(heard)]


def pieces(told: Sequence[ProgressUpdate]) -> list[str]:
    return [each.text for each in told if isinstance(each, AnswerPiece)]


async def test_the_last_step_of_the_last_plan_is_told_word_by_word() -> None:
    told = await told_of(pool_of(first=saying("a plan"), last=saying("so it is")), TWO)
    assert pieces(told) == ["so ", "it ", "is "]
    assert isinstance(told[-1], RunEnded)


def checked(on_fail: OnCheckFailure) -> Pool:
    return pool_of(member("only", saying("so it is"), OutputCheck(FixedCheck([CheckStatus.PASS]), on_fail)))


@pytest.mark.parametrize(
    ("pool", "plans", "live", "expected"),
    [
        (lambda: pool_of(only=saying("so it is")), (ONE,), False, ["so it is "]),
        (lambda: pool_of(only=saying("not yet", "so it is")), (ONE, ONE), True, ["so ", "it ", "is "]),
        (lambda: checked(OnCheckFailure.REDO), (ONE,), True, ["so it is "]),
        (lambda: checked(OnCheckFailure.PASS), (ONE,), True, ["so ", "it ", "is "]),
    ],
    ids=["whole", "first of two rounds", "a check", "a check that lets pass"],
)
async def test_what_could_be_taken_back_is_told_at_the_end(
    pool: Callable[[], Pool], plans: Sequence[Plan], *, live: bool, expected: list[str]
) -> None:
    assert pieces(await told_of(pool(), *plans, live=live)) == expected


async def test_where_no_further_round_is_allowed_the_plan_is_the_last() -> None:
    told = await told_of(pool_of(only=saying("so it is")), ONE, ONE, caps=Caps(rounds=1))
    assert pieces(told) == ["so ", "it ", "is "]


async def test_a_retry_that_goes_on_where_the_first_attempt_broke_off_is_one_answer() -> None:
    told = await told_of(pool_of(only=saying(cut("so it"), "so it is")), ONE)
    assert pieces(told) == ["so ", "it ", "is "]
    assert isinstance(told[-1], RunEnded)


async def test_a_retry_that_says_something_else_ends_the_telling() -> None:
    told = await told_of(pool_of(only=saying(cut("so it"), "no it is not")), ONE)
    assert pieces(told) == ["so ", "it "]
    assert told[-1] == AnswerReplaced()


async def test_a_retry_that_repeats_a_long_answer_copies_it_once() -> None:
    """Each piece was compared with all that was told, joined anew: minutes for an answer of megabytes."""
    text, joined = " ".join(["word"] * 500), 0

    def note(frame: FrameType, event: str, called: object) -> None:
        nonlocal joined
        here = event == "c_call" and frame.f_code.co_filename.endswith("run_progress.py")
        joined += here and getattr(called, "__name__", "") == "join"

    sys.setprofile(note)
    try:
        told = await told_of(pool_of(only=saying(cut(text), f"{text} more")), ONE)
    finally:
        sys.setprofile(None)
    assert "".join(pieces(told)) == f"{text} more "
    assert joined < 20


async def test_a_stand_in_whose_answer_is_shorter_is_not_taken_for_the_same() -> None:
    pool = pool_of(member("only", saying(cut("so it is")), attempts=1, fallback="other"), other=saying("so"))
    assert (await told_of(pool, ONE))[-1] == AnswerReplaced()


async def test_the_work_of_earlier_steps_is_told_in_lines() -> None:
    pool = pool_of(member("first", saying(cut("a")), attempts=1, fallback="last"), last=saying("so"))
    lines = [each.line for each in await told_of(pool, TWO) if isinstance(each, ProgressNote)]
    assert lines[0] == "round 1: 2 steps (first, last)"
    assert lines[1] == "step 1 of 2: first …"
    assert "step 1 of 2: first failed (reset)" in lines
    assert "step 1 of 2: last, instead of first (fallback) …" in lines
    assert not any("step 2" in line for line in lines)


async def test_a_client_that_comes_back_is_told_only_what_came_after() -> None:
    pool = pool_of(only=saying("so it is"))
    heard = await heard_of(pool, ScriptedConductor([ONE]))
    teller = ProgressTracker(ProgressTerms(8, streamable_workers(pool)), after=len(heard))
    assert [told for each in heard for told in teller.hear(each)] == []
