"""What a wording is worth: the fit finds it where plain shares do not, and never fails."""

import numpy as np
import pytest

from shikisha_train.pointer.pointer_network import feature_counts, fit_wording_effects, said_features

LEVELS = np.array([0.95, 0.1, 0.85, 0.05], np.float32)
EFFECTS = np.array([-0.04, 0.3, -0.04])


def draw_counts(outcomes: int, seed: int, shares: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Return counts [K, 2^F] by kind and wording of a worker that wants the second of three features."""
    rng = np.random.default_rng(seed)
    said = said_features(3)
    chance = LEVELS[:, None] * np.exp(said @ EFFECTS - 0.3)
    cells = np.full(chance.shape, 1 / chance.size) if shares is None else shares
    tries = rng.multinomial(outcomes, cells.ravel()).reshape(chance.shape)
    return tries.astype(np.float32), rng.binomial(tries, chance).astype(np.float32)


def test_effects_are_found_where_what_was_said_depends_on_the_kind_of_work() -> None:
    said = said_features(3)
    # The wanted feature is mostly said where the worker is bad, so that it looks harmful.
    likely = np.array([0.15, 0.85, 0.15, 0.85])[:, None]
    shares = np.where(said[:, 1] > 0, likely, 1 - likely) / 16
    tries, right = draw_counts(4_000, 1, shares)
    told_tries, told_right = feature_counts(tries), feature_counts(right)
    plain = told_right / told_tries
    assert plain[1, 1] < plain[1, 0]
    fit = fit_wording_effects(tries, right)
    assert fit.effects == pytest.approx(EFFECTS, abs=0.08)
    assert (fit.errors < 0.06).all()


def test_more_outcomes_make_it_surer_and_a_crew_is_fitted_worker_by_worker() -> None:
    few, many = draw_counts(30, 2), draw_counts(300, 2)
    together = fit_wording_effects(np.stack([few[0], many[0]]), np.stack([few[1], many[1]]))
    alone = fit_wording_effects(*many)
    assert together.effects[1] == pytest.approx(alone.effects, abs=1e-4)
    assert (together.errors[1] < together.errors[0]).all()
    assert together.levels.shape == (2, 4)


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("outcomes", [0.0, 1e-3, 3.0, 1e6])
def test_any_counts_have_a_finite_fit(share: float, outcomes: float) -> None:
    tries = np.zeros((2, 8), np.float32)
    tries[:, 5] = outcomes  # always told the same
    fit = fit_wording_effects(tries, tries * np.float32(share))
    assert np.isfinite(fit.effects).all()
    assert np.isfinite(fit.levels).all()
    assert np.abs(fit.effects).max() < 0.5
    assert (fit.errors > 0).all()
    assert abs(fit.effects[1]) == pytest.approx(abs(fit.effects[0]), abs=1e-3)
