"""What an empty plan keeps, by what chance a plan was drawn, what others would have done: performed and journaled."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import nan

import pytest

from shikisha.core.errors import FaultKind, WorkerError
from shikisha.core.events import Event, PlanProposed, RunStatus
from shikisha.core.plan import Plan
from shikisha.core.run import Run
from shikisha.engine.conductor import Proposal, Situation
from shikisha.engine.pool import Pool
from shikisha.engine.recorder import MemoryRecorder
from shikisha.journal.codec import decode_event, encode_event
from support import TASK, engine, plan_of, pool_of

ASKS_FIRST, ASKS_SECOND = plan_of((0, ())), plan_of((1, ()))
BESIDE = {"v2": "asks 'b'"}


@dataclass(frozen=True)
class Proposing:
    """A conductor that makes these proposals, one a round, and keeps what it was told of the rounds before."""

    proposals: Sequence[Proposal]
    name: str = "test"

    async def propose(self, situation: Situation) -> Proposal:
        return self.proposals[len(situation.rounds)]


def pool() -> Pool:
    return pool_of(a="the first answer", b="the second answer", down=WorkerError(FaultKind.REFUSED))


async def conducted(*proposals: Proposal) -> tuple[Run, tuple[Event, ...]]:
    recorder = MemoryRecorder()
    run = await engine(recorder).run(TASK, pool(), Proposing(proposals))
    return run, await recorder.read(run.id)


def two_then(last: Proposal) -> tuple[Proposal, ...]:
    return Proposal(ASKS_FIRST), Proposal(ASKS_SECOND), last


@pytest.mark.parametrize(
    ("keeps", "answer"), [(None, "the second answer"), (0, "the first answer"), (1, "the second answer")]
)
async def test_an_empty_plan_ships_the_answer_that_it_keeps(keeps: int | None, answer: str) -> None:
    run, _ = await conducted(*two_then(Proposal(Plan(), keeps=keeps)))
    assert (run.status, run.answer) == (RunStatus.DONE, answer)
    assert run.finished is not None
    assert (run.finished.round, run.finished.step) == (1 if keeps is None else keeps, 0)


async def test_the_kept_answer_is_shipped_after_a_resume_at_every_event() -> None:
    proposals = two_then(Proposal(Plan(), keeps=0))
    whole, events = await conducted(*proposals)
    for cut in range(1, len(events)):
        recorder = MemoryRecorder()
        for event in events[:cut]:
            recorder.add(event)
        run = await engine(recorder).resume(whole.id, pool(), Proposing(proposals))
        assert (run.status, run.answer) == (RunStatus.DONE, "the first answer"), f"cut after {events[cut - 1].kind}"
        assert [turn.plan for turn in run.rounds] == [turn.plan for turn in whole.rounds]


@pytest.mark.parametrize("keeps", [-1, 2, 7, True, 0.0])
async def test_a_round_that_cannot_be_kept_is_no_plan_and_the_run_keeps_what_it_has(keeps: int) -> None:
    run, _ = await conducted(*two_then(Proposal(Plan(), keeps=keeps)))
    (rejected,) = run.rounds[2].rejected
    assert (rejected.where, rejected.what) == (
        "keeps",
        f"expected an empty plan and a round with an answer, found {keeps!r}",
    )
    assert (run.status, run.answer) == (RunStatus.DONE, "the second answer")
    assert run.finished is not None
    assert run.finished.fault is FaultKind.NO_PLAN


async def test_a_round_without_an_answer_cannot_be_kept() -> None:
    failed = Proposal(plan_of((2, ())))
    run, _ = await conducted(Proposal(ASKS_FIRST), failed, Proposal(Plan(), keeps=1))
    assert (run.rounds[2].rejected[0].where, run.answer) == ("keeps", "the first answer")


async def test_a_plan_with_steps_keeps_nothing_and_neither_does_the_first_round() -> None:
    for proposals in ([Proposal(Plan(), keeps=0)], [Proposal(ASKS_FIRST), Proposal(ASKS_SECOND, keeps=0)]):
        run, _ = await conducted(*proposals)
        assert [rejected.where for turn in run.rounds for rejected in turn.rejected] == ["keeps"]


@pytest.mark.parametrize("chance", [0, -0.5, 1.5, nan])
async def test_what_is_no_probability_makes_no_plan(chance: float) -> None:
    run, _ = await conducted(Proposal(ASKS_FIRST, propensity=chance))
    assert (run.status, run.rounds[0].rejected[0].where) == (RunStatus.FAILED, "propensity")


async def test_the_journal_says_by_what_chance_a_plan_was_drawn_and_what_others_would_have_done() -> None:
    first = Proposal(ASKS_FIRST, propensity=0.25, beside=BESIDE, version="v1")
    run, events = await conducted(first, Proposal(Plan(), keeps=0))
    drawn, kept = (event for event in events if isinstance(event, PlanProposed))
    assert (drawn.propensity, drawn.beside, drawn.keeps) == (0.25, BESIDE, None)
    assert (kept.propensity, kept.beside, kept.keeps) == (None, {}, 0)
    assert run.rounds[0].proposed == drawn


async def test_a_conductor_is_told_which_version_planned_a_round_also_after_a_resume() -> None:
    told: list[str] = []

    @dataclass(frozen=True)
    class Listening(Proposing):
        async def propose(self, situation: Situation) -> Proposal:
            told.extend(past.version for past in situation.rounds)
            return await super().propose(situation)

    recorder, conductor = MemoryRecorder(), Listening([Proposal(ASKS_FIRST, version="v1"), Proposal(Plan())])
    whole = await engine(recorder).run(TASK, pool(), conductor)
    again = MemoryRecorder()
    for event in (await recorder.read(whole.id))[:-2]:
        again.add(event)
    await engine(again).resume(whole.id, pool(), conductor)
    assert told == ["v1", "v1"]


def stored(event: Event) -> tuple[dict[str, object], Event]:
    """An event as it is stored, and as it is read back."""
    entry = encode_event(event)
    texts = {key: body.decode() for key, body in entry.bodies}
    return json.loads(entry.data), decode_event(entry.kind, entry.run, entry.at, entry.data, texts)


@pytest.mark.parametrize(
    "more", [{}, {"keeps": 0}, {"propensity": 0.5}, {"beside": BESIDE}, {"keeps": 1, "propensity": 1.0}]
)
def test_the_new_fields_are_stored_where_they_say_something_and_come_back(more: Mapping[str, object]) -> None:
    bare = PlanProposed(run="r", at=1.0, round=2, conductor="c", plan=Plan().dumps())
    event = replace(bare, **more)  # type: ignore[arg-type]  # each is of its field's type
    data, again = stored(event)
    assert again == event
    names = {name.removesuffix("#") for name in data}  # a text stands by its hash
    assert names == {"round", "conductor", "plan", *more}


def test_a_journal_from_before_the_new_fields_reads_as_before() -> None:
    old = decode_event("plan.proposed", "r", 1.0, '{"round":0,"conductor":"c","plan":"0"}', {"0": Plan().dumps()})
    assert isinstance(old, PlanProposed)
    assert (old.keeps, old.propensity, old.beside) == (None, None, {})
