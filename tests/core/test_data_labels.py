"""Which data a worker may see: labels joined along the plan, and the refusal where a worker is not cleared."""

from collections.abc import Mapping

import pytest

from shikisha.conductors.fixed_conductors import ScriptedConductor
from shikisha.core.call import Card, Request
from shikisha.core.errors import FaultKind, WorkerError
from shikisha.core.events import CheckStatus, OnCheckFailure
from shikisha.core.plan import Plan, Step
from shikisha.core.run import CheckVerdict, Run
from shikisha.core.task import Task
from shikisha.core.visibility import check_clearance, is_cleared, join_labels, missing_clearances
from shikisha.engine.conductor import Proposal, Situation
from shikisha.engine.engine import Engine
from shikisha.engine.pool import Inspection, Member, OutputCheck, Pool
from shikisha.engine.recorder import MemoryRecorder
from shikisha.engine.worker import Reply

GUARDED = frozenset({"confidential", "personal"})


class Echo:
    """A worker that says which steps it was shown."""

    def __init__(self) -> None:
        self.shown: list[Request] = []

    async def perform(self, request: Request) -> Reply:
        self.shown.append(request)
        return Reply("heard " + " ".join(str(granted.index) for granted in request.granted), dollars=0.0)


async def performed(plan: Plan, cards: Mapping[str, Card], labels: tuple[str, ...] = ()) -> tuple[Run, dict[str, Echo]]:
    """Perform one plan by workers with these cards; return the run and its workers."""
    workers = {name: Echo() for name in cards}
    pool = Pool([Member(card, workers[name]) for name, card in cards.items()])
    engine = Engine(MemoryRecorder(), guarded_labels=GUARDED)
    return await engine.run(Task("what?", labels=labels), pool, ScriptedConductor([plan])), workers


def test_labels_are_joined_and_only_guarded_ones_hinder() -> None:
    card = Card("ann", sees=("personal",))
    assert join_labels(["a"], ["b"], ["a"]) == {"a", "b"}
    assert is_cleared(card, ["personal", "urgent"], GUARDED)
    assert not is_cleared(card, ["confidential"], GUARDED)
    with pytest.raises(WorkerError, match="ann may not see what is labelled confidential") as caught:
        check_clearance(card, ["confidential", "urgent"], GUARDED)
    assert caught.value.fault.kind is FaultKind.NOT_CLEARED


def test_every_missing_label_is_named_and_each_alone_is_enough_to_refuse() -> None:
    assert missing_clearances(Card("ann"), ["personal", "urgent", "confidential"], GUARDED) == (
        "confidential",
        "personal",
    )
    assert missing_clearances(Card("ann", sees=("confidential",)), ["confidential", "personal"], GUARDED) == (
        "personal",
    )
    assert missing_clearances(Card("ann", sees=("personal",)), ["confidential", "personal"], GUARDED) == (
        "confidential",
    )


async def test_a_worker_that_is_not_cleared_for_the_task_is_never_called() -> None:
    run, workers = await performed(Plan((Step("do it", 0),)), {"open": Card("open")}, ("confidential",))
    assert workers["open"].shown == []
    assert run.rounds[0].steps[0].finished is not None
    assert run.rounds[0].steps[0].finished.fault is FaultKind.NOT_CLEARED


async def test_an_answer_bears_what_its_worker_read_and_adds_and_takes_it_along() -> None:
    cards = {
        "files": Card("files", adds=("confidential",)),
        "open": Card("open"),
        "own": Card("own", sees=("confidential",)),
    }
    steps = (Step("look up", 0), Step("go on", 2, (0,)), Step("publish", 1, (1,)))
    run, workers = await performed(Plan(steps), cards)
    ends = [run.rounds[0].steps[index].finished for index in range(3)]
    assert [end.labels for end in ends if end] == [("confidential",)] * 3
    assert workers["open"].shown == []  # two steps away, and still
    assert len(workers["own"].shown) == 1


async def test_a_fallback_that_is_cleared_stands_in() -> None:
    cards = {"open": Card("open", fallback="own"), "own": Card("own", sees=("confidential",))}
    run, workers = await performed(Plan((Step("do it", 0),)), cards, ("confidential",))
    assert run.answer == "heard "
    assert [len(each.shown) for each in workers.values()] == [0, 1]


async def test_what_a_conductor_saw_in_one_round_is_not_told_to_everyone_in_the_next() -> None:
    cards = {"files": Card("files", adds=("confidential",)), "open": Card("open")}
    workers = {name: Echo() for name in cards}
    pool = Pool([Member(card, workers[name]) for name, card in cards.items()])
    plans = [Plan((Step("look up", 0),)), Plan((Step("publish this: what was found", 1),))]
    run = await Engine(MemoryRecorder(), guarded_labels=GUARDED).run(Task("what?"), pool, ScriptedConductor(plans))
    assert workers["open"].shown == []
    second = run.rounds[1].steps[0].finished
    assert second is not None
    assert second.fault is FaultKind.NOT_CLEARED


class Unlike:
    """A check that quotes the answer which it refuses."""

    name = "unlike"

    async def inspect(self, inspection: Inspection) -> CheckVerdict:
        return CheckVerdict(self.name, CheckStatus.FAIL, f"not {inspection.text!r}")


async def test_a_remark_that_quotes_an_answer_goes_to_nobody_who_may_not_see_the_answer() -> None:
    files, open_to_all = Echo(), Echo()
    card = Card("files", adds=("confidential",), escalate="open")
    handoff = OutputCheck(Unlike(), OnCheckFailure.REDO, 1)
    pool = Pool([Member(card, files, (handoff,)), Member(Card("open"), open_to_all)])
    engine = Engine(MemoryRecorder(), guarded_labels=GUARDED)
    run = await engine.run(Task("what?"), pool, ScriptedConductor([Plan((Step("look up", 0),))]))
    assert [shown.remarks for shown in files.shown] == [(), ("not 'heard '",)]  # its own words it may see
    assert open_to_all.shown == []
    assert run.answer is None


class AsksItsModel:
    """A conductor that asks a model of its own for every plan."""

    name = "lm:planner"

    def __init__(self, planner: Member, plans: list[Plan]) -> None:
        self._planner, self._plans = planner, plans

    async def propose(self, situation: Situation) -> Proposal:
        assert situation.ask is not None
        await situation.ask(self._planner, Request(situation.task, "what next?"))
        return Proposal(self._plans[len(situation.rounds)])


@pytest.mark.parametrize(("sees", "asked"), [((), 1), (("confidential",), 2)])
async def test_a_conductors_model_is_not_asked_once_the_conductor_saw_what_the_model_may_not_see(
    sees: tuple[str, ...], asked: int
) -> None:
    planner, files = Echo(), Echo()
    pool = Pool([Member(Card("files", adds=("confidential",)), files)])
    once = Plan((Step("look up", 0),))
    conductor = AsksItsModel(Member(Card("planner", sees=sees), planner), [once, Plan(())])
    run = await Engine(MemoryRecorder(), guarded_labels=GUARDED).run(Task("what?"), pool, conductor)
    assert (len(planner.shown), len(files.shown)) == (asked, 1)
    assert run.finished is not None
    assert ("planner may not see" in run.finished.why) is (asked == 1)
