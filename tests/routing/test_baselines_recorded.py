"""The best single worker, the rule and the oracle on MMLU-Pro come to what pandas computes from the same files."""

from functools import cache

import numpy as np
import pandas as pd
import pytest
from paths import ROOT

from recorded_pools import MP13
from shikisha.outcomes.log_reader import OutcomeLog
from shikisha.routing.fit.baselines import fit_best_single, fit_oracle
from shikisha.routing.fit.fit_table import PRICES, build_table
from shikisha.routing.fit.log_replay import replay
from shikisha.routing.fit.outcome_matrix import OutcomeMatrix, build_outcome_matrix

RECORDED = ROOT.parent / "shared" / "recorded"
SHRINK = 20.0
pytestmark = [
    pytest.mark.recorded,
    pytest.mark.skipif(not RECORDED.is_dir(), reason=f"no recorded answers in {RECORDED}"),
]


@cache
def panels() -> tuple[OutcomeMatrix, OutcomeMatrix]:
    """MP13 in two parts: every fifth task is held out."""
    whole = build_outcome_matrix(OutcomeLog.read(RECORDED / "mmlu-pro"), MP13)
    held = np.arange(len(whole)) % 5 == 0
    return whole.at(~held), whole.at(held)


@cache
def tables() -> tuple[pd.DataFrame, pd.DataFrame]:
    """The rows of the file for the two parts, with each task's domain."""
    rows = pd.read_parquet(RECORDED / "mmlu-pro" / "outcomes.parquet")
    domains = pd.read_parquet(RECORDED / "mmlu-pro" / "tasks.parquet").set_index("task_id").domain
    rows = rows[rows.worker.isin(MP13)].assign(domain=lambda table: table.task_id.map(domains))
    train, held = (set(panel.ids) for panel in panels())
    return rows[rows.task_id.isin(train)], rows[rows.task_id.isin(held)]


def test_the_best_single_worker() -> None:
    (train, held), (learnt, rest) = panels(), tables()
    best = learnt.groupby("worker").score.mean().idxmax()
    own = rest[rest.worker == best].set_index("task_id").reindex(held.ids)
    came = fit_best_single(train)(held)
    assert came.won[:, 0].tolist() == own.score.fillna(0.0).tolist()
    assert came.paid[:, 0] == pytest.approx(own.cost_usd.fillna(0.0).to_numpy())
    assert train.cost_unit() == pytest.approx(learnt[learnt.worker == best].cost_usd.mean())


def test_the_oracle() -> None:
    (train, held), (_, rest) = panels(), tables()
    came = fit_oracle(train)(held)
    grades = rest.pivot(index="task_id", columns="worker", values="score").reindex(held.ids)
    costs = rest.pivot(index="task_id", columns="worker", values="cost_usd").reindex(held.ids).fillna(0.0)
    right = grades == 1
    least = costs.where(right).min(axis=1).fillna(costs.min(axis=1))
    assert came.won[:, 0].tolist() == right.any(axis=1).astype(float).tolist()
    assert came.paid[:, 0] == pytest.approx(least.to_numpy())


@pytest.mark.parametrize("setting", [0, 20, 30, 40, 59])
def test_the_rule(setting: int) -> None:
    (train, held), (learnt, rest) = panels(), tables()
    unit = train.cost_unit()
    worth = shrunk(learnt, "score") - PRICES[setting] * shrunk(learnt, "cost_usd") / unit
    chosen = worth.unstack("worker").idxmax(axis=1)
    own = rest[rest.worker == rest.domain.map(chosen)].set_index("task_id").reindex(held.ids)
    came = replay(build_table(train, unit, SHRINK), setting, held)
    assert came.won.tolist() == own.score.fillna(0.0).tolist()
    assert came.paid == pytest.approx(own.cost_usd.fillna(0.0).to_numpy())


def shrunk(rows: pd.DataFrame, column: str) -> pd.Series:
    """A column's means by domain and worker, with so many tasks at the worker's own mean beside them."""
    groups = rows.groupby(["domain", "worker"])[column]
    means = rows.groupby("worker")[column].mean().reindex(groups.sum().index.get_level_values("worker")).to_numpy()
    return (groups.sum() + SHRINK * means) / (groups.count() + SHRINK)
