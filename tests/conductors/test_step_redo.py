"""After a round: a doubtful step is asked again, a dearer worker where it pays, and what is sure enough is shipped."""

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest

from shikisha import Caps, Card, Engine, Member, Plan, Pool, Reply, Step, Task
from shikisha.conductors.learned_conductor import LearnedConductor, StepRedo
from shikisha.core.budget import Price
from shikisha.core.errors import FaultKind, WorkerError
from shikisha.core.events import CheckStatus, GradeBasis
from shikisha.core.run import CheckVerdict, Result, RoundResult
from shikisha.core.task import OPERATOR, Scope
from shikisha.engine.conductor import Proposal, Situation
from shikisha.engine.recorder import MemoryRecorder
from shikisha.engine.worker import Request
from shikisha.learned.outcome_fit import LearningTerms, fit_outcomes
from shikisha.learned.outcome_model import OutcomeModel
from shikisha.learned.step_evidence import (
    RunEvidence,
    StepAnswer,
    StepUnit,
    known_statements,
    mask_wording,
    run_evidence,
    without_known,
)
from shikisha.retrieval.text_encoder import shipped_encoder

CHANCES = {"cheap": 0.55, "other": 0.6, "dear": 0.95}
PRICES = {"cheap": 0.0001, "other": 0.0001, "dear": 0.01}
CARDS = tuple(Card(name, "", price=Price(call=PRICES[name])) for name in CHANCES)
PLAN = Plan((Step("Which room is Ada in?", 0), Step("Who sits next to it?", 2, (0,))))


def round_of(plan: Plan, texts: Sequence[str | None], failed: Sequence[int] = ()) -> RoundResult:
    verdicts = {at: (CheckVerdict("check", CheckStatus.FAIL, "no"),) for at in failed}
    results = [
        Result(CARDS[step.worker].name, text, None, verdicts.get(at, ()))
        for at, (step, text) in enumerate(zip(plan.steps, texts, strict=True))
    ]
    return RoundResult(plan, tuple(results), "v1")


def redo_of(worth: float, plan: Plan = PLAN) -> StepRedo:
    return StepRedo(MODEL, Situation(Task("Who is next to Ada?"), CARDS), worth, plan)


def fitted() -> OutcomeModel:
    rng, runs = random.Random(0), []
    for number in range(300):
        name = rng.choice(list(CHANCES))
        text = rng.choice(("Which room is {} in?", "Who sits next to {}?")).format(rng.choice(("Ada", "it", "Bo")))
        good = rng.random() < CHANCES[name]
        answer = StepAnswer(name, (), planned=False, dollars=PRICES[name])
        unit = StepUnit(mask_wording(text), "", (answer,), 0)
        runs.append(RunEvidence(f"run-{number}", number, (unit,), good, GradeBasis.PERSON, OPERATOR))
    return replace(fit_outcomes(runs, LearningTerms(), OPERATOR, shipped_encoder().encode), version="v1")


MODEL = fitted()


def test_a_doubtful_step_is_asked_again_where_a_right_answer_is_worth_it() -> None:
    first = round_of(PLAN, ("E1", "Bo"))
    again = redo_of(1.0).decide([first])
    assert again.performs == (0,)
    assert again.plan.steps[0].worker != 0
    assert again.plan.steps[0].subtask == "Which room is Ada in?"
    little = redo_of(0.0001).decide([first])
    assert not little.plan.steps
    assert little.keeps == 0


def test_an_answer_that_is_confirmed_is_shipped_and_one_that_is_not_changes_what_follows() -> None:
    redo, first = redo_of(1.0), round_of(PLAN, ("E1", "Bo"))
    again = redo.decide([first])
    agreed = redo.decide([first, round_of(again.plan, ("E1",))])
    assert agreed.performs != (0,)
    rounds = [first, round_of(again.plan, ("E2",))]
    differs = redo.decide(rounds)
    if differs.performs == (0,):  # two differ: a third decides
        rounds.append(round_of(differs.plan, ("E2",)))
        differs = redo.decide(rounds)
    assert differs.performs == (1,)
    assert known_statements(differs.plan.steps[0].subtask) == [("Which room is Ada in?", "E2")]
    assert without_known(differs.plan.steps[0].subtask) == "Who sits next to it?"
    ends = redo.decide([*rounds, round_of(differs.plan, ("Cy",))])
    assert ends.plan.steps or ends.keeps == len(rounds)


def test_a_failed_check_moves_as_far_as_checks_were_right() -> None:
    alone = Plan((Step("Which room is Ada in?", 2),))
    failed = round_of(alone, ("E1",), failed=(0,))
    sound = StepRedo(replace(MODEL, verdicts=(0.01, 0.95)), Situation(Task("?"), CARDS), 0.002, alone)
    assert sound.decide([failed]).plan.steps
    blind = StepRedo(replace(MODEL, verdicts=(0.5, 0.5)), Situation(Task("?"), CARDS), 0.002, alone)
    assert not blind.decide([failed]).plan.steps


def test_a_worker_without_an_answer_is_replaced_and_no_round_is_without_end() -> None:
    first = round_of(PLAN, (None, None))
    again = redo_of(1.0).decide([first])
    assert again.performs == (0, 1)
    assert again.plan.steps[0].worker != 0
    assert again.plan.steps[1].access == (0,)
    rounds = [first]
    while (made := redo_of(1.0).decide(rounds)).plan.steps:
        rounds.append(round_of(made.plan, [f"never {len(rounds)} {at}" for at in range(len(made.plan))]))
        assert len(rounds) < 6


def test_what_was_asked_again_counts_where_no_further_round_is_left() -> None:
    two, alone = (CARDS[0], CARDS[2]), Plan((Step("Which room is Ada in?", 0),))
    rounds = [RoundResult(alone, (Result("cheap", "E1"),), "v1")]
    again = StepRedo(MODEL, Situation(Task("Who is next to Ada?"), two), 1.0, alone).decide(rounds)
    assert again.plan.steps[0].worker == 1
    rounds.append(RoundResult(again.plan, (Result("dear", "E2"),), "v1"))
    last = Situation(Task("Who is next to Ada?"), two, left=Caps(rounds=0, steps=0))
    made = StepRedo(MODEL, last, 1.0, alone).decide(rounds)
    assert (made.keeps, made.plan.steps) == (1, ())


@pytest.mark.parametrize("step", [Step("Check.", 0, (0,), each=0), Step('Say "it".', 0, (0,))])
def test_plans_that_it_cannot_judge_are_left_alone(step: Step) -> None:
    assert not redo_of(1.0, Plan((Step("List them.", 0), step))).judges


class Says:
    def __init__(self, name: str) -> None:
        self.name = name

    async def perform(self, request: Request) -> Reply:
        if self.name == "cheap":
            raise WorkerError(FaultKind.REFUSED, "away")
        return Reply("E2" if "E2" in request.subtask else "E1")


class Planned:
    """Plans once, and says so."""

    name = "planned"

    async def propose(self, situation: Situation) -> Proposal:
        if situation.rounds:
            return Proposal(Plan())
        return Proposal(Plan((Step("Which room is Ada in?", 0), Step("Who sits next to it?", 0, (0,)))), final=True)


async def test_a_run_asks_again_and_its_journal_teaches_of_both_answers() -> None:
    pool = Pool([Member(card, Says(card.name)) for card in CARDS])
    model = replace(
        MODEL, finds=0.0, keeps=0.5, scope=Scope("", frozenset()), learning=replace(MODEL.learning, acts=1.0)
    )
    conductor = LearnedConductor("learned", Planned(), lambda *_: model, LearningTerms(0.02, 0.0))
    run = await Engine(MemoryRecorder()).run(Task("Who is next to Ada?", tenant=""), pool, conductor, Caps())
    assert len(run.rounds) > 1
    sample = run_evidence(run, ())
    assert sample is not None
    twice = [unit for unit in sample.units if len(unit.answers) > 1]
    assert twice
    assert all(len({one.worker for one in unit.answers}) == len(unit.answers) for unit in twice)
    again = await Engine(MemoryRecorder()).run(Task("Who is next to Ada?", tenant=""), pool, conductor, Caps())
    assert (run.answer, len(run.rounds)) == (again.answer, len(again.rounds))
