"""The value conductor: whom it gives a step to, what it never does, and what the journal says of its choice."""

import random
import re
from collections.abc import Iterable
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest

from shikisha import Caps, Card, Engine, Member, Plan, Pool, Reply, Step, Task
from shikisha.conductors.noted import NotedConductor
from shikisha.conductors.plan_search import StepTable, is_assignable
from shikisha.conductors.value_conductor import ValueConductor, value_conductor
from shikisha.core.budget import Price
from shikisha.core.errors import ConfigError, PlanError
from shikisha.core.run import RoundResult
from shikisha.core.task import OPERATOR, Scope
from shikisha.engine.conductor import Proposal, Situation
from shikisha.engine.recorder import MemoryRecorder
from shikisha.engine.worker import ApprovalMode, Request
from shikisha.learned.fit_step_value import fit_step_value
from shikisha.learned.learned_file import write_learned
from shikisha.learned.registered_file import check_registrable
from shikisha.learned.skills import plain_plan
from shikisha.learned.step_samples import (
    PLANNED,
    PLANNED_ACCESS,
    STANDS_BY,
    RunSample,
    StepAnswer,
    StepUnit,
    run_sample,
    split_merged,
)
from shikisha.learned.step_value import StepValue, split_phrases
from shikisha.learned.value_notes import ValueNotes
from shikisha.routing.policy_registry import ChangeAuthor, add_policy, read_registry, update_registry

ME = ChangeAuthor(who="me", at=1.0)
PRICE = Price(call=0.001)
CARDS = (
    Card("ann", "", price=PRICE),
    Card("bob", "", price=PRICE),
    Card("votes", "", "vote"),
    Card("eve", "", price=PRICE),
)


def learned_values() -> StepValue:
    """ann adds, bob knows days; both cost a tenth of a cent."""
    rng, runs = random.Random(0), []
    for number in range(200):
        kind, worker = rng.randrange(2), rng.choice(("ann", "bob"))
        text = f"Add {number} and 3." if kind == 0 else f"Which weekday is 2024-01-{number % 28 + 1:02}?"
        good = rng.random() < (0.9 if (worker == "ann") == (kind == 0) else 0.1)
        unit = StepUnit(text, (StepAnswer(worker, "x", 0.001, 0.1, False),), 0)
        runs.append(RunSample(f"run-{number}", str(number), (unit,), float(good), 0.001, OPERATOR))
    return replace(fit_step_value(runs), version="v1")


VALUES = learned_values()
PLANNED_PLAN = Plan((Step("Add 5 and 3.", 1), Step("Which weekday is 2024-01-08?", 0), Step("Answer both.", 2, (0, 1))))


class Plans:
    """Proposes a plan once, then ships; or fails."""

    def __init__(self, plan: Plan | None, name: str = "planner") -> None:
        self.plan, self.name = plan, name

    async def propose(self, situation: Situation) -> Proposal:
        if self.plan is None:
            raise PlanError("no plan", self.name)
        return Proposal(Plan() if situation.rounds else self.plan, note="planned")


ROOMY = Caps()


def situation(task: str = "What is it?", labels: tuple[str, ...] = (), caps: Caps = ROOMY) -> Situation:
    return Situation(Task(task, labels=labels), CARDS, left=caps)


async def test_each_step_goes_to_the_worker_that_is_likely_to_do_it_right() -> None:
    found = await ValueConductor("value", VALUES, (Plans(PLANNED_PLAN),)).propose(situation())
    assert [step.worker for step in found.plan.steps] == [0, 1, 2]  # a counter of votes keeps its step
    assert found.plan.steps[2].access == (0, 1)
    assert found.beside[PLANNED] == "1,0,2"
    assert found.note.startswith("planned; values v1: planner with other workers of 2 plans")
    assert found.propensity is None


async def test_what_is_planned_stays_where_nothing_is_better() -> None:
    plan = Plan((Step("Add 5 and 3.", 0),))
    found = await ValueConductor("value", VALUES, (Plans(plan),)).propose(situation())
    assert found.plan.steps[0].worker == 0


async def test_other_proposers_are_considered_and_one_that_fails_is_left_out() -> None:
    other = Plans(Plan((Step("Add 5 and 3.", 0),)), "other")
    conductor = ValueConductor("value", VALUES, (Plans(PLANNED_PLAN), Plans(None), other))
    found = await conductor.propose(situation())
    assert "other" in found.note
    assert len(found.plan) == 1
    with pytest.raises(PlanError):
        await replace(conductor, proposers=(Plans(None), other)).propose(situation())


async def test_labels_hold() -> None:
    secret = replace(VALUES, scope=Scope("", frozenset({"secret"})))
    conductor = ValueConductor("value", secret, (Plans(PLANNED_PLAN),))
    assert (await conductor.propose(situation())).plan == PLANNED_PLAN
    assert (await conductor.propose(situation(labels=("secret",)))).plan != PLANNED_PLAN


async def test_a_trial_leaves_a_share_of_the_tasks_to_what_is_in_force() -> None:
    conductor = ValueConductor("value", VALUES, (Plans(PLANNED_PLAN),), share=0.5)
    found = [await conductor.propose(situation(f"task {at}")) for at in range(100)]
    stood = [one for one in found if one.beside[PLANNED] == STANDS_BY]
    assert 30 < len(stood) < 70
    assert all(one.plan == PLANNED_PLAN and one.propensity == 0.5 for one in stood)
    again = [await conductor.propose(situation(f"task {at}")) for at in range(100)]
    assert again == found


async def test_exploration_draws_workers_with_known_chances_and_twins_where_there_is_room() -> None:
    conductor = ValueConductor("value", VALUES, (Plans(PLANNED_PLAN),), explore=1.0)
    found = [await conductor.propose(situation(f"task {at}")) for at in range(60)]
    assert len({tuple(step.worker for step in one.plan.steps) for one in found}) > 5
    assert all(one.propensity is not None and 0 < one.propensity < 1 for one in found)
    assert all(len(one.plan) == 5 for one in found)
    tight = [await conductor.propose(situation(f"task {at}", caps=Caps(steps=3))) for at in range(20)]
    assert all(len(one.plan) == 3 for one in tight)


async def test_checks_are_added_where_they_were_seen_to_help_and_fit() -> None:
    plan = Plan((Step("Add 5 and 3.", 1), Step("Which weekday is 2024-01-08?", 0, (0,))))
    checks = replace(VALUES, check_gain=0.9)
    found = (await ValueConductor("value", checks, (Plans(plan),), worth=1.0).propose(situation())).plan
    checked = [at for at, step in enumerate(found.steps) if step.subtask.startswith("Check this result")]
    assert checked
    assert all(at - 1 in found.steps[at].access for at in checked)
    without = ValueConductor("value", checks, (Plans(plan),), worth=1.0, forms=False)
    assert len((await without.propose(situation())).plan) == 2
    full = ValueConductor("value", checks, (Plans(plan),), worth=1.0)
    assert len((await full.propose(situation(caps=Caps(steps=2)))).plan) == 2


def test_people_tools_and_workers_that_need_approval_are_never_assigned() -> None:
    assert is_assignable(CARDS[0])
    for kind in ("human", "vote", "http", "mcp", "python", "conductor"):
        assert not is_assignable(Card("x", "", kind))
    assert not is_assignable(Card("x", "", approval=ApprovalMode.ALWAYS))


class Says:
    async def perform(self, _: object) -> Reply:
        return Reply("8")


async def test_a_run_tells_who_was_planned_and_who_did_it() -> None:
    recorder = MemoryRecorder()
    pool = Pool([Member(card, Says()) for card in CARDS])
    plan = Plan((Step("Add 5 and 3.", 1),))
    conductor = ValueConductor("value", VALUES, (Plans(plan),))
    run = await Engine(recorder).run(Task("What is it?"), pool, conductor, Caps())
    sample = run_sample(run)
    assert sample is not None
    assert sample.arm == "acts"
    assert sample.units[0].answers[0].worker == "ann"
    assert not sample.units[0].answers[0].proposed


async def test_a_file_says_whether_its_values_act_alone(tmp_path: Path) -> None:
    learned = VALUES.to_file((), None, 0.0)
    for trial, share in ((True, 0.5), (False, 1.0)):
        write_learned(tmp_path / "a.json", replace(learned, content={**learned.content, "trial": trial, "forms": True}))
        made = value_conductor("value", tmp_path / "a.json", (Plans(PLANNED_PLAN),), (), 0.05, 0.0, None)
        assert made.share == share
    (tmp_path / "a.json").write_text("{}")
    with pytest.raises(ConfigError):
        value_conductor("value", tmp_path / "a.json", (Plans(PLANNED_PLAN),), (), 0.05, 0.0, None)


async def test_a_registry_says_which_values_act_and_a_run_keeps_them(tmp_path: Path) -> None:
    learned = VALUES.to_file((), None, 0.0)
    for place, forms in enumerate((True, False)):
        write_learned(tmp_path / f"{place}.json", replace(learned, content={**learned.content, "forms": forms}))
        add_policy(tmp_path / "shelf", tmp_path / f"{place}.json", ME, check_registrable)
    live, other = (policy.version for policy in read_registry(tmp_path / "shelf").policies)
    made = value_conductor("value", tmp_path / "shelf", (Plans(PLANNED_PLAN),), (), 0.05, 0.0, 1.0)
    found = await made.propose(situation())
    assert (found.version, found.plan.steps[0].worker) == (live, 0)
    update_registry(tmp_path / "shelf", lambda shelf: shelf.with_live(other, ME))
    assert (await made.propose(situation())).version == other
    past = RoundResult(found.plan, (), live)
    later = replace(situation(), rounds=(past,))
    kept = value_conductor("value", tmp_path / "shelf", (PlansOn(PLANNED_PLAN),), (), 0.05, 0.0, 1.0)
    assert (await kept.propose(later)).version == live


class PlansOn(Plans):
    """Proposes its plan in every round."""

    async def propose(self, situation: Situation) -> Proposal:
        del situation
        return Proposal(PLANNED_PLAN)


async def test_step_values_speak_on_cards_as_notes_do() -> None:
    inner = Plans(PLANNED_PLAN)
    notes = ValueNotes(replace(VALUES, scope=Scope("", frozenset({"secret"}))))
    cards, _ = NotedConductor(inner, notes).noted_cards(Task("Add 5 and 3.", labels=("secret",)), CARDS)
    counts = [re.search(r"At work like 'Add 5 and 3\.?': right on (\d+) of (\d+)", card.description) for card in cards]
    assert counts[0] is not None
    assert counts[1] is not None
    assert int(counts[0][1]) >= 0.7 * int(counts[0][2])
    assert int(counts[1][1]) < 0.4 * int(counts[1][2])
    assert counts[3] is None  # nothing is known of eve
    plain, _ = NotedConductor(inner, notes).noted_cards(Task("Add 5 and 3."), CARDS)
    assert plain == CARDS


def asks_more(task: str = "Add 5 and 3. Then add 4 to that sum. Then add 2 to that sum.") -> Situation:
    return Situation(Task(task), CARDS)


CHAIN = Plan((Step("Add 5 and 3.", 1), Step("Add 4 to that.", 1, (0,)), Step("Add 2 to that.", 1, (1,))))


def plain_texts(texts: Iterable[str]) -> list[str]:
    return [split_phrases(text, VALUES.phrases)[0] for text in texts]


async def test_steps_of_one_chain_share_a_call_where_that_saves_more_than_it_loses() -> None:
    saves = replace(VALUES, merged_price=0.0)
    cheap = (await ValueConductor("value", saves, (Plans(CHAIN),), worth=0.002).propose(asks_more())).plan
    assert len(cheap) == 1
    assert plain_texts(split_merged(cheap.steps[0].subtask)) == [step.subtask for step in CHAIN.steps]
    costs = replace(VALUES, merged_price=1.0)
    dear = (await ValueConductor("value", costs, (Plans(CHAIN),), worth=5.0).propose(asks_more())).plan
    assert len(dear) == 3
    no_forms = ValueConductor("value", saves, (Plans(CHAIN),), worth=0.002, forms=False)
    assert len((await no_forms.propose(asks_more())).plan) == 3


async def test_what_others_need_is_never_inside_a_call() -> None:
    fork = Plan((*CHAIN.steps[:2], Step("Add both.", 1, (0, 1))))
    table = StepTable(VALUES, asks_more(), fork, [fork])
    assert not table.is_mergeable(fork, 0, 2)
    assert table.is_mergeable(fork, 0, 3)
    assert not table.is_mergeable(PLANNED_PLAN, 0, 2)  # the first step's result would be lost
    assert not table.is_mergeable(PLANNED_PLAN, 0, 3)  # a counter of votes keeps its step


async def test_the_search_finds_what_trying_everything_finds() -> None:
    rng = random.Random(1)
    for merged in (0.0, 0.6):
        model = replace(VALUES, merged_price=merged)
        table = StepTable(model, asks_more(), CHAIN, [CHAIN])
        worth = rng.choice((0.003, 0.01, 0.05))
        best = table.improved("x", CHAIN, worth, forms=True)[0].value(worth)
        every = []
        for cuts in product((False, True), repeat=2):
            starts = [0, *(at + 1 for at in range(2) if cuts[at])]
            ends = [*starts[1:], 3]
            for workers in product(table.able, repeat=len(starts)):
                chance, dollars = 1.0, 0.0
                for start, end, worker in zip(starts, ends, workers, strict=True):
                    texts = [step.subtask for step in CHAIN.steps[start:end]]
                    chance *= float(table.worker_chances(texts, helped=True)[worker])
                    dollars += table.price(worker, end - start)
                every.append(worth * chance - dollars)
        assert best == pytest.approx(max(every))


async def test_no_planner_is_asked_where_it_would_cost_more_than_it_brings() -> None:
    planner = Counted(CHAIN)
    model = replace(VALUES, planning=0.5)
    conductor = ValueConductor("value", model, (planner,), free=(Plans(Plan((Step("Answer the question.", 3),))),))
    found = await conductor.propose(asks_more())
    assert (len(found.plan), planner.asked) == (1, 0)
    assert found.plan.steps[0].worker == 0
    assert "not planned" in found.note
    assert (await replace(conductor, model=replace(VALUES, planning=0.0)).propose(asks_more())).plan.steps
    assert planner.asked == 1


class Counted(Plans):
    """Counts how often it is asked."""

    asked = 0

    async def propose(self, situation: Situation) -> Proposal:
        self.asked += 1
        return await super().propose(situation)


class SaysWhat:
    async def perform(self, request: Request) -> Reply:
        return Reply("8" if "5 and 3" in request.subtask else "x")


async def test_a_call_of_several_subtasks_teaches_of_each() -> None:
    pool = Pool([Member(card, SaysWhat()) for card in CARDS])
    conductor = ValueConductor("value", replace(VALUES, merged_price=0.0), (Plans(CHAIN),), worth=0.002)
    run = await Engine(MemoryRecorder()).run(Task("What is it?"), pool, conductor, Caps())
    sample = run_sample(run)
    assert sample is not None
    assert plain_texts(unit.subtask for unit in sample.units) == [step.subtask for step in CHAIN.steps]
    assert {unit.together for unit in sample.units} == {3}
    assert sum(one.dollars for unit in sample.units for one in unit.answers) == pytest.approx(run.charged.dollars)
    plan, beside = run.rounds[0].plan, run.rounds[0].proposed
    assert plan is not None
    assert beside is not None
    restored = plain_plan(plan, beside.beside[PLANNED_ACCESS])
    assert [(step.subtask, step.access) for step in restored.steps] == [
        (step.subtask, step.access) for step in CHAIN.steps
    ]
