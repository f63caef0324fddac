"""Makers of policies and of logs on disk, for what people see of learning; equal calls, equal policies.

`policy` fits a table and an induction on a small panel and states its evidence by hand; `write` is a panel as a log.
"""

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from math import isnan
from pathlib import Path

import numpy as np
from panels import CHOICES, Made, folds, panel

from shikisha.routing.arrays import Floats
from shikisha.routing.fit.fit_stopping_rule import StoppingConfig, StoppingData, fit_stopping
from shikisha.routing.fit.fit_table import fit_table
from shikisha.routing.fit.log_replay import count_usage
from shikisha.routing.fit.model_selection import POLICY, TABLE, LearningOptions, fit_candidates
from shikisha.routing.fit.model_selection import known_workers as workers_of
from shikisha.routing.fit.outcome_matrix import OutcomeMatrix
from shikisha.routing.policy_data import (
    AreaGain,
    Baseline,
    Candidate,
    FrontierPoint,
    HeldOutEvidence,
    KnownWorker,
    Policy,
    PolicyOrigin,
)
from shikisha.routing.policy_file import CascadeRule
from shikisha.routing.state import DecisionRule, LengthScales
from shikisha.routing.trade_off import OperatingPoint, TradeOff, upper_hull

RUNGS = (TABLE, POLICY)
BUDGETS = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0)


def points(part: int, won: Floats, cost: Floats) -> list[OperatingPoint]:
    """A point for each setting of a part, from what it came to."""
    error = won.std(axis=0) / np.sqrt(len(won))
    figures = zip(cost.mean(axis=0), won.mean(axis=0), error, strict=True)
    return [OperatingPoint(part, place, *map(float, each)) for place, each in enumerate(figures)]


def frontier(dial: TradeOff, off: float = 0.0) -> tuple[FrontierPoint, ...]:
    """What a dial promises as if it had been found, and by so much less."""
    found = []
    for budget in BUDGETS:
        mix = dial.for_cost(max(budget, dial.points[0].cost))
        accuracy = mix.accuracy - off
        found.append(FrontierPoint(budget, mix.cost, accuracy, accuracy - 0.02, accuracy + 0.02))
    return tuple(found)


def known(held: OutcomeMatrix) -> tuple[KnownWorker, ...]:
    """The workers as the panel knows them."""
    means, dollars = held.mean_scores().tolist(), held.paid.mean(axis=0).tolist()
    return tuple(KnownWorker(*each, len(held)) for each in zip(held.workers, means, dollars, strict=True))


@cache
def policy(kept: str = "policy", gain: float = 0.02) -> Policy:
    """A policy of two rungs; the second gained so much over the first, give or take a point."""
    held = panel(tasks=200)
    parts = folds(held)
    tabled, induced = fit_table(held, parts), fit_stopping(StoppingData.of(held, parts), range(3))
    every: dict[str, tuple[DecisionRule, list[OperatingPoint]]] = {
        "table": (tabled.part, points(0, tabled.won, tabled.cost)),
        "policy": (induced.part, points(1, induced.won, induced.cost)),
    }
    dials = {
        name: TradeOff(upper_hull(each), held.cost_unit(), float(held.mean_scores().max()))
        for name, (_, each) in every.items()
    }
    gains = (AreaGain("table", gain, gain - 0.01, gain + 0.01),)
    rungs = (
        Candidate("table", dials["table"], HeldOutEvidence(0.70, frontier(dials["table"]))),
        Candidate(
            "policy",
            dials["policy"],
            HeldOutEvidence(0.70 + gain, frontier(dials["policy"]), gains, (0.01, 0.02)),
        ),
    )
    made = Policy(
        PolicyOrigin(
            "logs/made-up", "0123456789ab", len(held), "2026-11-22", "recorded", 0, ("a note for the reader",)
        ),
        known(held),
        held.types,
        tuple(part for part, _ in every.values()),
        rungs,
        kept,
        yardsticks(),
    )
    return replace(made, habits=count_usage(held, made))


@cache
def broad() -> Policy:
    """A policy as big as those of real logs: thirteen workers with long names, fourteen types."""
    names = [f"Some-Maker-{size}B-Instruct-v{size % 3}" for size in range(1, 13)] + [
        "a-name-that-is-really@" + 9 * "long"
    ]
    workers = {name: Made(0.3 + 0.04 * place, 0.01 * 1.6**place) for place, name in enumerate(names)}
    held = panel(workers, 280, tuple(f"science of {letter}" for letter in "ABCDEFGHIJKLMN"))
    parts = folds(held)
    induced = fit_stopping(StoppingData.of(held, parts), (3, 8, 12))
    dial = TradeOff(upper_hull(points(0, induced.won, induced.cost)), held.cost_unit(), float(held.mean_scores().max()))
    gains = (AreaGain("cascade", 0.01, 0.002, 0.018), AreaGain("table", 0.012, 0.004, 0.02))
    middle = HeldOutEvidence(0.69, frontier(dial, 0.01), (AreaGain("table", 0.001, -0.003, 0.005),))
    rungs = (
        Candidate("table", dial, HeldOutEvidence(0.68, frontier(dial, 0.02))),
        Candidate("cascade", dial, middle),
        Candidate("policy", dial, HeldOutEvidence(0.7, frontier(dial), gains, (0.004, 0.01))),
    )
    about = PolicyOrigin("/data/logs/a-log", "0123456789ab", len(held), "2026-11-22", "derived")
    made = Policy(about, known(held), held.types, (induced.part,), rungs, "policy")
    return replace(made, habits=count_usage(held, made))


def yardsticks() -> tuple[Baseline, ...]:
    """One with a curve, one that costs the same whatever the budget, one beyond all others."""
    return (
        Baseline(
            "majority", 0.66, tuple(FrontierPoint(b, b, 0.6 + 0.05 * b, 0.55, 0.75) for b in BUDGETS), "a vote of all"
        ),
        Baseline("best single worker", 0.7, tuple(FrontierPoint(b, 1.0, 0.7, 0.68, 0.72) for b in BUDGETS)),
        Baseline("oracle", 0.97, tuple(FrontierPoint(b, b, 0.97, 0.96, 0.98) for b in BUDGETS)),
    )


def write(held: OutcomeMatrix, folder: Path, *, kind: str | None = "choice", cost_kind: str = "recorded") -> Path:
    """Write a panel as a log of JSON Lines, answers of this kind; return its folder."""
    folder.mkdir(parents=True, exist_ok=True)
    domains = [held.types.names[place] if place >= 0 else "" for place in held.batch.types.tolist()]
    tasks = [
        {"task_id": task, "domain": domain, "prompt": prompt, "answer": None, "answer_kind": kind}
        for task, domain, prompt in zip(held.ids, domains, held.batch.prompts, strict=True)
    ]
    rows = [
        {
            "task_id": task,
            "worker": worker,
            "score": _known(held.scores[row, column]),
            "answer": CHOICES[held.codes[row, column]] if held.codes[row, column] >= 0 and held.answers else None,
            "input_tokens": 10,
            "output_tokens": 20,
            "cost_usd": _known(held.dollars[row, column]),
            "cost_kind": cost_kind,
            "latency_s": _known(held.seconds[row, column]),
        }
        for row, task in enumerate(held.ids)
        for column, worker in enumerate(held.workers)
        if held.there[row, column]
    ]
    lines(folder / "tasks.jsonl", tasks)
    lines(folder / "outcomes.jsonl", rows)
    return folder


def lines(file: Path, rows: Sequence[object]) -> None:
    """Write one JSON value a line."""
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))


def _known(value: float) -> float | None:
    return None if isnan(value) else float(value)


def of_every_kind(held: OutcomeMatrix) -> Policy:
    """A policy with every kind of part that a file may hold, and some evidence."""
    recipe = StoppingConfig(prices=np.array([0.01, 0.05, 0.3, 2.0, 20.0]))
    made = fit_candidates(held, LearningOptions(config=recipe), RUNGS)
    kinds, workers = len(held.types.names), len(held.workers)
    orders = np.tile(np.arange(workers), (1, kinds + 1, 1))
    scales = LengthScales(np.zeros((kinds + 1, workers)), np.ones(workers))
    sure = {(0,): np.zeros(3 + kinds), (0, 1): np.zeros(3 + kinds + 2 + kinds)}
    cascade = CascadeRule(orders, np.full(orders.shape, 0.5), sure, scales, np.arange(workers))
    dial = replace(made.dials[TABLE], points=(OperatingPoint(len(made.parts), 0, 1.0, 0.5),))
    rungs = tuple(Candidate(name, each, HeldOutEvidence(0.7)) for name, each in {**made.dials, "cascade": dial}.items())
    parts = (*made.parts, cascade)
    return Policy(PolicyOrigin("log", "hash", len(held)), workers_of(held), held.types, parts, rungs, POLICY)
