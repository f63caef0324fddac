"""Fitting routers: prompts that say who should be asked are heeded, and those that say nothing change nothing."""

from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest
from panels import POOL, Made, folds, missing, panel, scores_only, untyped

from shikisha.routing.arrays import Flags
from shikisha.routing.fit.fit_router import FittedRouter, fit_router, fit_shape_map, fit_type_map
from shikisha.routing.fit.fit_table import PRICES, fit_table
from shikisha.routing.fit.log_replay import replay
from shikisha.routing.fit.model_selection import ROUTER, TABLE, LearningOptions, fit_candidates, select_policy
from shikisha.routing.fit.outcome_matrix import OutcomeMatrix
from shikisha.routing.policy_data import COMBINED
from shikisha.routing.policy_file import load_policy, save_policy
from shikisha.routing.router_rule import RouterRule
from shikisha.routing.state import TaskBatch
from shikisha.routing.text_features import HashedWords

PAIR = {"poet": Made(0.5), "reckoner": Made(0.5)}
LEAST = 0  # the setting of the lowest price


def telling(tasks: int, seed: int, turned: bool = False) -> OutcomeMatrix:
    """A log with scores only whose prompts hold `verse` or `sum`, which says who is right 9 times in 10.

    `turned`: in the second type it is the other way round.
    """
    held, random = scores_only(panel(PAIR, tasks=tasks, seed=seed)), np.random.default_rng(seed)
    sums = random.random(tasks) < 0.5
    helped = sums ^ (held.batch.types == 1) if turned else sums
    return _scored(_worded(held, sums), np.stack([~helped, helped], axis=1), random)


def long_or_short(tasks: int, seed: int) -> OutcomeMatrix:
    """The same, where the length of the prompt says it."""
    held, random = scores_only(panel(PAIR, tasks=tasks, seed=seed)), np.random.default_rng(seed)
    long = random.random(tasks) < 0.5
    prompts = tuple(
        f"{prompt}\n{'more of it, ' * random.integers(30, 60)}" if much else prompt
        for prompt, much in zip(held.batch.prompts, long, strict=True)
    )
    return _scored(_prompted(held, prompts), np.stack([~long, long], axis=1), random)


def _worded(held: OutcomeMatrix, sums: Flags) -> OutcomeMatrix:
    words = np.where(sums, "sum", "verse")
    return _prompted(held, tuple(f"{word}: {prompt}" for word, prompt in zip(words, held.batch.prompts, strict=True)))


def _prompted(held: OutcomeMatrix, prompts: tuple[str, ...]) -> OutcomeMatrix:
    hashes = tuple(sha256(prompt.encode()).hexdigest() for prompt in prompts)
    return replace(held, hashes=hashes, batch=TaskBatch(prompts, held.batch.types))


def _scored(held: OutcomeMatrix, helped: Flags, random: np.random.Generator) -> OutcomeMatrix:
    scores = (random.random(helped.shape) < np.where(helped, 0.9, 0.3)).astype(float)
    return replace(held, scores=scores, dollars=np.zeros_like(held.dollars))


def won(found: FittedRouter, held: OutcomeMatrix) -> float:
    return float(replay(found.part, LEAST, held).won.mean())


@pytest.mark.parametrize("make", [telling, long_or_short])
def test_where_prompts_say_who_is_right_the_router_beats_the_rule(make: Callable[[int, int], OutcomeMatrix]) -> None:
    train, fresh = make(400, 1), make(400, 2)
    found, rule = fit_router(train, folds(train)), fit_table(train, folds(train))
    assert won(found, fresh) > replay(rule.part, LEAST, fresh).won.mean() + 0.15
    assert won(found, fresh) == pytest.approx(found.won[:, LEAST].mean(), abs=0.06)


def test_words_may_mean_the_opposite_in_another_type() -> None:
    train, fresh = telling(800, 1, turned=True), telling(400, 2, turned=True)
    found, rule = fit_router(train, folds(train)), fit_table(train, folds(train))
    assert won(found, fresh) > replay(rule.part, LEAST, fresh).won.mean() + 0.1


@pytest.mark.parametrize("seed", range(3))
def test_where_prompts_say_nothing_the_router_is_the_rule(seed: int) -> None:
    held = scores_only(panel(tasks=300, seed=seed))
    found, rule = fit_router(held, folds(held)), fit_table(held, folds(held))
    assert found.part.maps.maps == ()
    assert (found.won == rule.won).all()
    assert (found.cost == rule.cost).all()


@pytest.mark.parametrize(
    "held",
    [
        panel(tasks=3),
        untyped(panel(tasks=120)),
        scores_only(missing(panel(tasks=150), np.arange(150)[:, None] % 10 == np.arange(3))),
        _prompted(panel(tasks=120), ("",) * 120),
        panel({"only": Made()}, tasks=120),
        panel({name: replace(made, cost=0.0) for name, made in POOL.items()}, tasks=120),
        panel({"a": Made(1.0), "b": Made(1.0)}, tasks=120),
        panel({"a": Made(0.0), "b": Made(0.0)}, tasks=120),
        _prompted(telling(120, 0), ("the same",) * 120),
    ],
    ids=["three", "no types", "gaps", "empty", "one worker", "free", "always right", "never right", "all the same"],
)
def test_odd_logs_come_to_what_playing_on_them_comes_to(held: OutcomeMatrix) -> None:
    found = fit_router(held, folds(held))
    assert found.won.shape == found.cost.shape == (len(held), len(PRICES))
    for setting in range(0, len(PRICES), 20):
        assert (replay(found.part, setting, held).asked.sum(axis=1) == 1).all()
    assert np.isfinite(found.won).all()
    assert np.isfinite(found.cost).all()


def test_an_unknown_type_is_moved_by_what_all_tasks_say() -> None:
    train, fresh = telling(400, 1), telling(200, 2)
    lost = replace(fresh, batch=TaskBatch(fresh.batch.prompts, np.full(200, -1)))
    found = fit_router(train, folds(train))
    assert won(found, lost) > max(fresh.won.mean(axis=0)) + 0.15


def test_what_it_won_was_won_on_tasks_that_were_not_in_the_fit() -> None:
    held = telling(300, 3)
    fooled = replace(held, scores=np.where(folds(held)[:, None] == 0, 1 - held.scores, held.scores))
    rows = folds(held) == 0
    honest, other = fit_router(held, folds(held)), fit_router(fooled, folds(held))
    assert other.won[rows, LEAST].mean() < 0.5 < honest.won[rows, LEAST].mean()


def test_equal_logs_give_equal_routers() -> None:
    one, other = (fit_router(telling(150, 4), folds(telling(150, 4))).part.to_arrays() for _ in range(2))
    assert all((one[name] == other[name]).all() for name in one)


def test_too_few_tasks_tell_nothing() -> None:
    nothing = HashedWords(np.zeros(11, np.int64), np.zeros(0, np.int64), np.zeros(0))
    looks, left = np.random.default_rng(0).random((10, 45)), np.ones((10, 2))
    assert fit_shape_map(looks, left) is None
    assert fit_type_map(0, looks, nothing, left) is None


@pytest.mark.parametrize(("held", "helps"), [(telling(250, 5), True), (scores_only(panel(tasks=150)), False)])
def test_a_router_is_on_the_dial_where_it_helps_and_does_no_harm_elsewhere(held: OutcomeMatrix, helps: bool) -> None:
    policy = select_policy(held)
    assert [rung.name for rung in policy.rungs] == [TABLE, ROUTER, COMBINED]
    kinds = {policy.parts[point.part].kind for point in policy.rung().dial.points}
    table, kept = policy.rung(TABLE).evidence, policy.rung().evidence
    assert table is not None
    assert kept is not None
    assert kept.area > table.area + (0.02 if helps else -0.01)
    assert not helps or RouterRule.kind in kinds


def test_a_saved_router_decides_as_it_did(tmp_path: Path) -> None:
    held, fresh = telling(250, 5), telling(200, 6)
    policy = select_policy(held)
    save_policy(policy, tmp_path / "a.policy")
    read, _ = load_policy(tmp_path / "a.policy")
    point = policy.rung(ROUTER).dial.points[-1]
    seen = fresh.state_after(np.zeros(fresh.codes.shape, bool))
    asked = policy.act(seen, point.part, point.setting).ask
    assert (read.act(seen, point.part, point.setting).ask == asked).all()
    assert set(asked.tolist()) == {0, 1}


def test_a_panel_with_answers_is_routed_too_when_asked() -> None:
    held = replace(telling(200, 7), answers=True)
    assert set(fit_candidates(held, LearningOptions(), (TABLE, ROUTER)).dials) == {TABLE, ROUTER}
