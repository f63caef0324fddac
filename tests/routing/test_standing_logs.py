"""Logs that nobody here wrote, in a bounded form: the verdict is safe to obey, and a null log says so at once.

The whole runs are `benchmarks/strangers.py`. Recorded logs lie beside the repository, or are absent, and then skipped.
"""

from dataclasses import replace
from functools import cache
from hashlib import sha256

import numpy as np
import pytest
from panels import replay_mix
from paths import ROOT

from shikisha.outcomes.log_reader import OutcomeLog
from shikisha.routing.fit.model_selection import select_policy
from shikisha.routing.fit.outcome_matrix import OutcomeMatrix, build_outcome_matrix
from shikisha.routing.fit.verdict import TOLERANCE
from shikisha.routing.policy_data import VerdictKind
from shikisha.routing.trade_off import OperatingTarget, TargetMetric

RECORDED = ROOT.parent / "shared" / "recorded"
LOGS = {"llmrouter": 2_000, "routellm-mmlu": 3_000, "zeroeval": 800}
pytestmark = pytest.mark.recorded


@cache
def halves(name: str) -> tuple[OutcomeMatrix, OutcomeMatrix]:
    """Two halves by content of a sample of a log, of at most eight workers that did nearly all tasks."""
    if not (RECORDED / name).is_dir():
        pytest.skip(f"{RECORDED / name}: the recorded answers are not here")
    log = OutcomeLog.read(RECORDED / name)
    whole = [one for one in log.workers if len(list(log.outcomes_of(one))) >= 0.99 * len(log.task_ids)]
    matrix = build_outcome_matrix(log, whole[:: max(1, len(whole) // 8)], most_read=0)
    matrix = matrix.at(np.sort(np.argsort(np.array(matrix.hashes), kind="stable")[: LOGS[name]]))
    first = np.array([sha256(f"half\0{content}".encode()).digest()[0] < 128 for content in matrix.hashes])
    return matrix.at(first), matrix.at(~first)


@pytest.mark.parametrize("name", LOGS)
def test_a_verdict_that_is_obeyed_does_not_lose_more_than_is_tolerated(name: str) -> None:
    train, test = halves(name)
    policy = select_policy(train).policy
    verdict = policy.about.verdict
    assert verdict is not None
    if verdict.kind is VerdictKind.UNTOLD or verdict.gain is None:
        return  # it advises no change
    _, _, quality = verdict.option.partition("=")
    target = OperatingTarget(TargetMetric.QUALITY, float(quality)) if quality else OperatingTarget()
    played = replay_mix(policy.parts, policy.mix(target), test)
    gain = played.won - test.won[:, train.best_worker()]
    assert gain.mean() + 1.65 * gain.std() / len(gain) ** 0.5 > -TOLERANCE
    assert played.paid.mean() < 1.1 * test.paid[:, train.best_worker()].mean() or gain.mean() > 0


@pytest.mark.parametrize("name", ["llmrouter", "routellm-mmlu"])
def test_a_log_whose_scores_say_nothing_of_tasks_is_not_routed(name: str) -> None:
    train, _ = halves(name)
    random = np.random.default_rng(0)
    scores = np.stack([random.permutation(column) for column in train.scores.T], axis=1)
    null = replace(train, scores=scores, answers=False, evidence=None)
    verdict = select_policy(null).policy.about.verdict
    assert verdict is not None
    assert verdict.kind is not VerdictKind.POLICY
    assert verdict.text.startswith(("ask ", "not enough evidence"))
