"""A/B traffic without propensities: judged where assignment was random, refused where tasks show that it was not."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from panels import POOL, Made, panel
from partial_logs import asked, each_apart, one_each, step_by_step
from policies import write
from typer.testing import CliRunner

from shikisha.cli import app
from shikisha.core.errors import ConfigError
from shikisha.routing.arrays import Flags
from shikisha.routing.fit.model_selection import TABLE
from shikisha.routing.fit.outcome_matrix import OutcomeMatrix
from shikisha.routing.fit.partial_logs import fit_partial_log
from shikisha.routing.fit.random_assignment import estimate_propensities

WHOLE = panel(POOL, 1_500)
EVEN = np.full(3, 1 / 3)


def untold(held: OutcomeMatrix) -> OutcomeMatrix:
    return replace(held, propensities=np.full(held.there.shape, np.nan))


def chosen(there: Flags) -> OutcomeMatrix:
    return untold(asked(WHOLE, there, np.ones(there.shape)))


def test_shares_by_type_are_the_chances_that_nobody_wrote_down() -> None:
    chances = np.where(WHOLE.batch.types[:, None] == 0, (0.5, 0.3, 0.2), (0.2, 0.2, 0.6))
    log = one_each(WHOLE, chances)
    found, notes = estimate_propensities(untold(log))
    assert found.propensities[log.there] == pytest.approx(log.propensities[log.there], abs=0.05)
    assert np.isnan(found.propensities[~log.there]).all()
    assert "you say that workers were drawn without regard to the task" in notes[0]


def test_what_is_promised_is_what_every_worker_asked_would_have_shown() -> None:
    found, _ = estimate_propensities(untold(one_each(WHOLE, EVEN)))
    fitted = fit_partial_log(found, singles_only=True)
    assert fitted.scores is not None
    assert fitted.policy.kept == TABLE
    best = fitted.policy.rung().dial.points[-1]
    by_type = [WHOLE.won[WHOLE.batch.types == kind].mean(axis=0).max() for kind in (0, 1)]
    assert best.accuracy == pytest.approx(float(np.mean(by_type)), abs=0.06)
    assert any(
        "how probably two workers are asked for the same task is unknown" in one for one in fitted.policy.about.notes
    )


def test_overlapping_prompts_count_by_how_many_were_asked() -> None:
    there = each_apart(WHOLE, np.array([0.8, 0.5, 0.3]), seed=1).there
    there[~there.any(axis=1), 0] = True
    found, _ = estimate_propensities(chosen(there))
    count = there.sum(axis=1)
    assert (found.propensities[count == 3] == 1.0).all()
    alone = (count == 1) & there[:, 0]
    assert found.propensities[alone, 0] == pytest.approx(there[count == 1, 0].mean(), abs=0.1)


WORDY = np.array(["A. mathsa" in one or "A. mathsb" in one or "about lawa" in one for one in WHOLE.batch.prompts])


@pytest.mark.parametrize(
    ("there", "says"),
    [
        (np.stack([WORDY, ~WORDY], axis=1), "prompts"),
        (
            np.stack([np.ones(1_500, bool), (WHOLE.won[:, 0] < 0.5) | (np.arange(1_500) % 4 == 0)], axis=1),
            "where cheap is wrong, more workers were asked",
        ),
    ],
    ids=["by a word", "by another's failure"],
)
def test_assignment_that_looks_at_the_task_is_refused_by_what_differs(there: Flags, says: str) -> None:
    with pytest.raises(ConfigError, match=says) as refused:
        estimate_propensities(chosen(np.pad(there, ((0, 0), (0, 1)))))
    assert "cannot be compared" in str(refused.value)


def test_random_assignment_is_hardly_ever_refused() -> None:
    few, refused = panel({"a": Made(0.7, 0.1), "b": Made(0.8, 1.0)}, 400), 0
    for seed in range(60):
        try:
            estimate_propensities(untold(one_each(few, np.array([0.5, 0.5]), seed)))
        except ConfigError:
            refused += 1
    assert refused <= 3


@pytest.mark.parametrize(
    ("log", "says"),
    [(one_each(WHOLE, EVEN), "leave the option out"), (untold(step_by_step(WHOLE, EVEN)), "turns")],
)
def test_a_log_that_says_how_workers_were_asked_needs_no_word(log: OutcomeMatrix, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        estimate_propensities(log)


def test_learn_judges_such_a_log_only_if_told(tmp_path: Path) -> None:
    write(untold(one_each(WHOLE.at(np.arange(600)), EVEN)), tmp_path / "log")
    options = ["learn", str(tmp_path / "log"), "--out", str(tmp_path / "our.policy")]
    plain = CliRunner().invoke(app, options)
    assert plain.exit_code == 0, plain.output
    assert "--random-assignment" in plain.stderr
    told = CliRunner().invoke(app, [*options, "--random-assignment"])
    assert told.exit_code == 0, told.output
    assert "nothing could be evaluated" not in told.stderr
