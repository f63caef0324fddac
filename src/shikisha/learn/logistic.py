"""Logistic regression by Newton's method, with a quadratic penalty of its own for each weight.

Invariant: every penalty is above 0, so the loss has one least point, and equal data give equal weights. Labels may be
anything from 0 to 1. Deliberately absent: sparse features (scikit-learn has those).
"""

import numpy as np

from shikisha.policy.arrays import Floats
from shikisha.policy.cascade import chance

_ROUNDS, _HALVINGS = 30, 20
_NEAR = 1e-4  # a step as short as this leaves an error of about its square


def fit_logistic(features: Floats, labels: Floats, penalty: Floats, start: Floats | None = None) -> Floats:
    """Return the weights [p] of features [T, p] for labels [T] in [0, 1]; `start` is where to begin."""
    weights = np.zeros(features.shape[1]) if start is None else start
    loss = _loss(features, labels, penalty, weights)
    for _ in range(_ROUNDS):
        found = chance(features, weights)
        slope = features.T @ (found - labels) + penalty * weights
        bent = features * np.sqrt(found * (1 - found))[:, None]
        step = np.asarray(np.linalg.solve(bent.T @ bent + np.diag(penalty), slope), np.float64)
        weights, loss = _nearer(features, labels, penalty, (weights, step, loss))
        if np.abs(step).max() < _NEAR:
            break
    return weights


def _nearer(
    features: Floats, labels: Floats, penalty: Floats, at: tuple[Floats, Floats, float]
) -> tuple[Floats, float]:
    """Return the weights after a step, or as much of it as makes the loss less; a whole step may go too far."""
    weights, step, loss = at
    for halvings in range(_HALVINGS):
        tried = weights - step / 2**halvings
        found = _loss(features, labels, penalty, tried)
        if found <= loss:
            return tried, found
    return weights, loss


def _loss(features: Floats, labels: Floats, penalty: Floats, weights: Floats) -> float:
    odds = features @ weights
    return float((np.logaddexp(0, odds) - labels * odds).sum() + 0.5 * (penalty * weights**2).sum())
