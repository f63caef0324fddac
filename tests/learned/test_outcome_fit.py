"""The outcome model: who is right at what is inferred from grades of whole runs, and every doubt is kept."""

import math
from dataclasses import replace
from pathlib import Path
from time import perf_counter

import numpy as np
import pytest
from learning_world import (
    KINDS,
    TERMS,
    WORKERS,
    chance,
    drawn_runs,
    evidence_of,
    fitted,
    graded,
    perform,
    world_pool,
    world_task,
)

from shikisha.conductors.fixed_conductors import ScriptedConductor
from shikisha.core.call import Card, Reply, Request
from shikisha.core.errors import ConfigError, FaultKind, WorkerError
from shikisha.core.events import GradeBasis
from shikisha.core.plan import Plan, Step
from shikisha.core.task import OPERATOR, Task
from shikisha.engine.pool import Member, Pool
from shikisha.learned.learned_file import read_learned, write_learned
from shikisha.learned.outcome_fit import LearningTerms, answer_states, choose_evidence, fit_outcomes
from shikisha.learned.outcome_model import KIND_PRECISION, OUTCOMES, TOLD, OutcomeModel, outcome_model_of, prior_model
from shikisha.learned.step_evidence import (
    RunEvidence,
    StepAnswer,
    StepUnit,
    mask_wording,
    run_evidence,
)
from shikisha.retrieval.text_encoder import shipped_encoder

RUNS = drawn_runs(240, parts=2)
BEST = {"sum": "adder", "letter": "writer", "law": "lawyer"}


def knows_best(model: OutcomeModel) -> int:
    return sum(max(WORKERS, key=lambda name: chance(model, name, kind)) == best for kind, best in BEST.items())


def test_run_grades_alone_say_who_does_which_part() -> None:
    model = fitted(RUNS)
    assert knows_best(model) == 3
    wrong = [chance(model, name, kind) for name in WORKERS for kind in KINDS if BEST[kind] != name]
    assert min(chance(model, name, kind) for kind, name in BEST.items()) > max(wrong)


def test_a_runs_grade_on_every_step_would_say_less_than_credit_shared_by_expectation() -> None:
    # In a wrong run of two parts the specialist is blamed less than whoever is wrong at such work elsewhere.
    model = fitted(RUNS)
    as_steps = [
        replace(run, units=(unit,)) for run in evidence_of(RUNS) for unit in run.units
    ]  # the run's grade on each step
    naive = fit_outcomes(as_steps, TERMS, OPERATOR, shipped_encoder().encode)
    kind, best = "sum", "adder"
    assert chance(model, best, kind) > chance(naive, best, kind) + 0.1


def test_the_order_of_fits_does_not_matter_and_the_same_runs_give_the_same_model() -> None:
    first, second = fitted(RUNS[:100]), fitted(RUNS[:100])
    for name in ("shared", "own", "root", "roots", "slopes"):
        assert np.array_equal(getattr(first, name), getattr(second, name))


@pytest.mark.parametrize("right", [True, False])
def test_all_right_or_all_wrong_is_learned_without_a_wild_number(right: bool) -> None:
    model = fitted([graded(run, right=right) for run in drawn_runs(60, seed=3)])
    chances = [chance(model, name, kind) for name in WORKERS for kind in KINDS]
    assert all(math.isfinite(one) for one in chances)
    assert min(chances) > 0.5 if right else max(chances) < 0.5


def test_one_worker_only_and_a_planner_that_always_says_the_same() -> None:
    units = (StepUnit("Do it .", "", (StepAnswer("one", (False,), planned=True),), 0),)
    runs = [RunEvidence(f"r{at}", at, units, at % 4 > 0, GradeBasis.PERSON, OPERATOR) for at in range(40)]
    model = fit_outcomes(runs, TERMS, OPERATOR, shipped_encoder().encode)
    assert 0.5 < chance(model, "one", "") < 0.9
    assert 0.2 < chance(model, "unknown", "") < 0.9


def test_without_runs_and_without_grades_the_model_is_the_prior() -> None:
    assert prior_model(TERMS.phrases, OPERATOR).workers == ()
    ungraded = [replace(run, right=None, basis=None) for run in evidence_of(RUNS[:80])]
    model = fit_outcomes(ungraded, TERMS, OPERATOR, shipped_encoder().encode)
    chances = [chance(model, name, kind) for name in WORKERS for kind in KINDS]
    assert max(chances) - min(chances) < 0.05


def test_draws_of_a_worker_that_joins_after_the_free_runs_spread_widest() -> None:
    model, rng = fitted(RUNS), np.random.default_rng(1)
    x = model.reader.place(np.zeros((1, len(model.reader.offset))), ["sum"])
    design = np.zeros(len(model.shared))
    design[0], design[4 + len(model.phrases) :] = 1.0, x[0]

    def spread(model: OutcomeModel, name: str) -> float:
        return float(np.std([float(design @ model.weights([name], rng)[0]) for _ in range(300)]))

    early = replace(model, learning=replace(model.learning, runs=100))
    assert spread(model, "newcomer") > 1.6 * spread(early, "newcomer") > 1.6 * spread(model, "adder") > 0


def test_a_worker_is_new_that_joined_after_the_free_runs_and_was_called_little() -> None:
    def run(at: int, worker: str) -> RunEvidence:
        unit = StepUnit("Do it .", "", (StepAnswer(worker, (), False, dollars=0.001),), 0)
        return RunEvidence(f"r{at:04}", at, (unit,), True, GradeBasis.PERSON, OPERATOR)

    first = [run(at, "rare" if at == 5 else "known") for at in range(200)]
    few, many = (
        fit_outcomes([*first, *(run(at, "late") for at in range(200, 200 + count))], LearningTerms(), OPERATOR, None)
        for count in (3, 60)
    )
    assert [few.is_new(name, 3) for name in ("rare", "known", "late", "unknown")] == [False, False, True, True]
    assert not many.is_new("late", 3)
    assert not fit_outcomes(first[:100], LearningTerms(), OPERATOR, None).is_new("unknown", 3)  # all runs are free yet


def test_who_was_right_at_near_texts_is_trusted_there_though_no_kind_is_named() -> None:
    def unit(text: str, worker: str) -> StepUnit:
        return StepUnit(text, "", (StepAnswer(worker, (), planned=False),), 0)

    def texts(first: int, count: int) -> list[tuple[str, str]]:
        goods = [f"{a} {b}" for a in ("oak", "tin", "wool", "silk", "salt") for b in ("boxes", "bales", "crates")]
        return [
            pair
            for good in goods[first : first + count]
            for pair in ((f"How much do {good} cost in all ?", "adder"), (f"Write a letter on the {good} .", "writer"))
        ]

    runs = [
        RunEvidence(f"r{at}", at, (unit(text, worker),), worker == best, GradeBasis.PERSON, OPERATOR)
        for at, (text, best, worker) in enumerate(
            (text, best, worker) for text, best in texts(0, 10) * 2 for worker in ("adder", "writer")
        )
    ]
    model = fit_outcomes(runs, LearningTerms(), OPERATOR, None)
    for text, best in texts(10, 5):
        x, weights = model.reader.read([text], [""]), model.weights(["adder", "writer"])
        logits = weights[:, 0] + weights[:, TOLD:] @ x[0]
        assert logits[("adder", "writer").index(best)] > logits.min() + 2


def test_how_far_workers_differ_by_subtask_is_learned() -> None:
    def runs(specialists: bool) -> list[RunEvidence]:
        rng, found = np.random.default_rng(3), []
        for at in range(600):
            worker, kind = int(rng.integers(6)), int(rng.integers(3))
            able = 0.9 if not specialists or worker % 3 == kind else 0.2
            right = bool(rng.random() < (able if specialists else (0.85, 0.5, 0.2)[kind]))
            unit = StepUnit(f"Work {kind} .", f"kind {kind}", (StepAnswer(f"w{worker}", (), False),), 0)
            found.append(RunEvidence(f"r{at:04}", at, (unit,), right, GradeBasis.PERSON, OPERATOR))
        return found

    alike, apart = (fit_outcomes(runs(specialists), LearningTerms(), OPERATOR, None) for specialists in (False, True))
    assert alike.kind_precision > 2 * max(KIND_PRECISION, apart.kind_precision)  # the runs move it from the prior
    assert chance(apart, "w0", "kind 0") > 0.8 > 0.4 > chance(apart, "w0", "kind 1")


@pytest.mark.parametrize("pays", [True, False])
def test_what_a_price_says_of_a_new_worker_is_learned_from_the_others(pays: bool) -> None:
    rng, runs = np.random.default_rng(4), []
    for at in range(500):
        worker = int(rng.integers(8))
        right = bool(rng.random() < (0.25 + 0.09 * worker if pays else 0.6))
        answer = StepAnswer(f"w{worker}", (), planned=False, dollars=0.0001 * 2**worker)
        unit = StepUnit("Do it .", "", (answer,), 0)
        runs.append(RunEvidence(f"r{at:04}", at, (unit,), right, GradeBasis.PERSON, OPERATOR))
    model = fit_outcomes(runs, LearningTerms(), OPERATOR, None)
    cheap, dear = model.weights(["new", "newer"], dollars=[0.0001, 0.0128])[:, 0]
    if pays:
        assert dear > cheap + 1
    else:
        assert abs(dear - cheap) < 0.6


def test_equal_answers_and_verdicts_speak_without_any_grade() -> None:
    def run(at: int, agrees: bool) -> RunEvidence:
        second = replace(StepAnswer("b", (False,), planned=False), same=0 if agrees else 1)
        unit = StepUnit("Do it .", "", (StepAnswer("a", (False,), planned=True), second), 0)
        return RunEvidence(f"r{at}", at, (unit,), None, None, OPERATOR)

    agreed = fit_outcomes([run(at, True) for at in range(40)], TERMS, OPERATOR, None)
    differed = fit_outcomes([run(at, False) for at in range(40)], TERMS, OPERATOR, None)
    assert chance(agreed, "b", "") > chance(differed, "b", "") + 0.2
    told = [
        RunEvidence(
            f"r{at}", at, (StepUnit("Do it .", "", (StepAnswer("a", (False,), True, verdict=at % 10 > 0),), 0),),
            None, None, OPERATOR,
        )
        for at in range(60)
    ]  # fmt: skip
    assert chance(fit_outcomes(told, TERMS, OPERATOR, None), "a", "") > 0.6


def test_a_worker_that_gives_no_answers_is_not_right() -> None:
    units = (StepUnit("Do it .", "", (StepAnswer("dead", (False,), True, fault=True),), None),)
    runs = [RunEvidence(f"r{at}", at, units, None, None, OPERATOR) for at in range(20)]
    assert chance(fit_outcomes(runs, TERMS, OPERATOR, None), "dead", "") < 0.2


@pytest.mark.parametrize("rises", [False, True])
def test_a_worker_that_fell_or_rose_is_another_one_since_then(rises: bool) -> None:
    before = drawn_runs(150, seed=5)
    worker = "writer" if rises else "adder"  # of sums

    def run(at: int) -> RunEvidence:
        unit = StepUnit("Add up the invoices of Name .", "sum", (StepAnswer(worker, (False,), planned=True),), 0)
        return RunEvidence(f"z{at}", 1_000 + at, (unit,), (at == 12) != rises, GradeBasis.PERSON, OPERATOR)

    evidence = [*evidence_of(before), *(run(at) for at in range(25))]
    model = fit_outcomes(evidence, TERMS, OPERATOR, shipped_encoder().encode)
    assert model.figures[worker].since in [one.run for one in evidence[140:]]
    assert (chance(model, worker, "sum") > 0.6) if rises else (chance(model, worker, "sum") < 0.4)
    assert not any(fitted(before).figures[name].since for name in WORKERS)  # nobody changed here


@pytest.mark.parametrize("how", ["for good", "alternates", "each time"])
def test_a_worker_whose_endpoint_names_another_model_for_good_is_a_new_one(how: str) -> None:
    def run(at: int) -> RunEvidence:
        model = "b" if at >= 200 and not (how == "alternates" and at % 2) else "a"
        model = f"m-{at}" if how == "each time" else model
        units = [
            StepUnit("Do it .", "", (StepAnswer("one", (), planned=False, dollars=0.001, model=model),), 0),
            StepUnit("Do that .", "", (StepAnswer("other", (), planned=False, dollars=0.001),), 0),
        ]
        return RunEvidence(f"r{at:03}", at, tuple(units[:1] if at % 2 else units), at >= 200, None, OPERATOR)

    model = fit_outcomes([run(at) for at in range(203)], LearningTerms(), OPERATOR, None)
    assert model.figures["one"].since == ("r200" if how == "for good" else "")
    assert model.is_new("one", 2) is (how == "for good")  # with its part of the free runs
    assert (chance(model, "one", "") > 0.3) is (how == "for good")
    assert not model.figures["other"].since


def test_what_acting_brought_is_compared_with_standing_by() -> None:
    unit = (StepUnit("Do it .", "", (StepAnswer("a", (False,), True),), 0),)

    def runs(acted: bool, right: float, count: int) -> list[RunEvidence]:
        return [
            RunEvidence(f"{acted}{at}", at, unit, at < right * count, GradeBasis.PERSON, OPERATOR, acted, paid=0.001)
            for at in range(count)
        ]

    better = fit_outcomes(runs(True, 0.8, 200) + runs(False, 0.4, 60), TERMS, OPERATOR, None).learning
    gain = better.gain()
    assert gain is not None
    assert gain.low > 0
    assert better.acts > 0.9
    for standing_by, acts in ((10, 0.93), (20, 0.5), (60, 0.07)):  # nothing, then equal arms, then a verdict
        worse = fit_outcomes(runs(True, 0.3, 200) + runs(False, 0.6, standing_by), TERMS, OPERATOR, None).learning
        assert worse.acts == acts


def test_a_model_comes_back_from_its_file_and_one_of_another_form_is_refused(tmp_path: Path) -> None:
    model, file = fitted(RUNS[:60]), tmp_path / "model.json"
    write_learned(file, model.to_file(["r1"], 1.0))
    back = outcome_model_of(read_learned(file, OUTCOMES), str(file), shipped_encoder().encode)
    assert back.figures == model.figures
    assert back.learning == model.learning
    assert chance(back, "adder", "sum") == pytest.approx(chance(model, "adder", "sum"), abs=1e-4)
    learned = read_learned(file)
    write_learned(file, replace(learned, content={**learned.content, "workers": ["adder"]}))
    with pytest.raises(ConfigError, match="shikisha learn"):
        outcome_model_of(read_learned(file, OUTCOMES), str(file), None)
    text = file.read_text()
    assert "invoices" not in text  # no word of a task
    write_learned(file, replace(learned, kind="step-value"))
    with pytest.raises(ConfigError, match="expected the format"):
        read_learned(file, OUTCOMES)


def test_evidence_is_bounded_and_keeps_what_is_new_and_what_is_rare() -> None:
    def run(at: int, worker: str) -> RunEvidence:
        unit = StepUnit("Do it .", "", (StepAnswer(worker, (), True),), 0)
        return RunEvidence(f"r{at:05}", at, (unit,), True, GradeBasis.PERSON, OPERATOR)

    runs = [run(at, "rare" if at < 5 else "common") for at in range(2_000)]
    kept = choose_evidence(runs, most=500)
    assert [one.run for one in kept][-500:] == [one.run for one in runs][-500:]
    assert sum(one.units[0].answers[0].worker == "rare" for one in kept) == 5
    assert len(kept) <= 1_000


def test_names_numbers_and_quotes_are_no_part_of_the_kind_of_work() -> None:
    assert mask_wording("Pay Ada 17.50 for “the red boat” by 2024-01-30") == mask_wording(
        'Pay Bo 23.10 for "another thing" by 2025-11-02'
    )


def test_a_second_of_two_wrong_answers_counts_little_and_a_third_that_agrees_much() -> None:
    alone = answer_states([("x", None, 0.6)], (0.03, 0.6))
    agreed = answer_states([("x", None, 0.6), ("x", None, 0.6)], (0.03, 0.6))
    failed = answer_states([("x", True, 0.6)], (0.03, 0.6))
    assert failed["x"] < alone["x"] < agreed["x"]
    assert sum(agreed.values()) == pytest.approx(1)


def test_a_thousand_runs_are_fitted_in_seconds_of_one_core() -> None:
    evidence = [replace(one, run=f"{turn}{one.run}") for turn in range(5) for one in evidence_of(RUNS)][:1_000]
    began = perf_counter()
    fit_outcomes(evidence, LearningTerms(phrases=TERMS.phrases), OPERATOR, shipped_encoder().encode)
    assert perf_counter() - began < 10  # a bound that a loaded machine keeps; benchmarks/learning.py measures
    assert world_task(1).prompt


class _Mute:
    async def perform(self, request: Request) -> Reply:
        """Give no answer to anything."""
        del request
        raise WorkerError(FaultKind.TOOL_ERROR, "not made for this")


async def test_a_step_that_nobody_answered_takes_the_blame_from_the_steps_beside_it() -> None:
    pool = Pool([*world_pool(), Member(Card("mute", "", "chat", attempts=1), _Mute())])
    adds, asks, joins = Step("Add up the invoices of Ada.", 0), Step("Cite the rule.", 3), Step("Join.", 1, (0, 1))
    run = graded(await perform(Task("Both."), ScriptedConductor([Plan((adds, asks, joins))]), pool), right=False)
    told = run_evidence(run, TERMS.phrases)
    assert told is not None
    assert [unit.used for unit in told.units] == [0, 0, 0]
    runs = [replace(told, run=f"r{at}", at=float(at)) for at in range(40)]
    model = fit_outcomes(runs, TERMS, OPERATOR, shipped_encoder().encode)
    assert chance(model, "adder", "") > 0.25 > chance(model, "mute", "")
