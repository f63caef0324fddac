"""Where a learned policy pays on recorded answers of real models.

The conductor is the dial that `shikisha learn` fits (`model_selection`; without `--trees` no trees that read the
answers), fitted on two thirds of the tasks and played on the last, each third in turn, at three budgets: shares of the
mean cost of the best single worker. Controls, chosen on the same two thirds: single workers (mixed by lot where that is
better), and majority votes over sets of workers (the fixed topology). Each worker answered once, so self-consistency of
one cannot be replayed, and an agent with everything is not in the records. Dimensions: budget, and how reliable the
best single worker is on the task's type.
"""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from pays_settings import Cell, Setting, compare, mixed
from routers_sets import SETS, Split, outer, recorded
from shikisha.routing.fit.baselines import FittedBaseline, fit_majority_vote, fit_single_mix
from shikisha.routing.fit.cost_frontier import mix_for_budget
from shikisha.routing.fit.model_selection import (
    LearningOptions,
    candidate_names,
    fit_candidates,
    replay_settings,
    single_threaded_blas,
)
from shikisha.routing.fit.outcome_matrix import OutcomeMatrix
from shikisha.routing.policy_data import COMBINED

Controls = dict[str, tuple[dict[str, Setting], dict[str, Setting]]]  # by control: reported, for choosing
SHARES = (0.1, 0.3, 1.0)
FOLDS = 3


@single_threaded_blas()
def play_fold(split: Split, *, trees: bool) -> tuple[dict[float, Setting], Controls]:
    """Return by budget what the policy came to, and by control its settings (reported, for choosing)."""
    names = candidate_names(split.train)[0]
    options = LearningOptions()
    if not trees:
        options = replace(options, config=replace(options.config, boosting=None))
    fitted, unit = fit_candidates(split.train, options, names), split.train.cost_unit()
    name = COMBINED if COMBINED in fitted.dials else names[-1]
    dial = fitted.dials[name]
    came = replay_settings(fitted, dial.points, split.held, unit)
    ours = dict[float, Setting]()
    for share in SHARES:
        mix = mix_for_budget(dial, share)
        low, high = (came.places.index((point.part, point.setting)) for point in (mix.low, mix.high))
        ours[share] = Setting(
            (1 - mix.share) * came.won[:, low] + mix.share * came.won[:, high],
            (1 - mix.share) * came.cost[:, low] + mix.share * came.cost[:, high],
        )
    found = {"best single worker": _settings(fit_single_mix(split.train), split, unit)}
    if split.train.answers:
        found["fixed topology"] = _settings(fit_majority_vote(split.train), split, unit)
    return ours, found


def _settings(fitted: FittedBaseline, split: Split, unit: float) -> tuple[dict[str, Setting], dict[str, Setting]]:
    def of(matrix: OutcomeMatrix) -> dict[str, Setting]:
        came = fitted(matrix)
        return {str(at): Setting(came.won[:, at], came.paid[:, at] / unit) for at in range(came.won.shape[1])}

    return of(split.held), of(split.train)


def reliability_of(split: Split) -> Callable[[OutcomeMatrix], np.ndarray]:
    """Return the level of each task: how often the best single worker is right on its type, in training."""
    best, types = split.train.best_worker(), split.train.batch.types
    shares = {kind: float(np.nanmean(split.train.scores[types == kind, best])) for kind in set(types.tolist())}

    def level(matrix: OutcomeMatrix) -> np.ndarray:
        found = np.array([shares.get(kind, np.nan) for kind in matrix.batch.types.tolist()])
        return np.where(found < 0.6, "below .60", np.where(found < 0.8, ".60 to .80", ".80 or more"))

    return level


@dataclass(frozen=True)
class PlayedFold:
    """A fold: what the policy came to by budget, every control's settings, and each task's level of reliability."""

    split: Split
    policy: dict[float, Setting]
    controls: Controls
    held_levels: np.ndarray
    train_levels: np.ndarray


def recorded_cells(folder: Path, *, trees: bool = False) -> list[Cell]:
    """Return the cells of every set: by budget, and at a third of the cost by reliability of the best worker."""
    found = list[Cell]()
    for name in SETS:
        folds = list[PlayedFold]()
        for split in outer(recorded(name, folder).panel, FOLDS):
            level = reliability_of(split)
            folds.append(PlayedFold(split, *play_fold(split, trees=trees), level(split.held), level(split.train)))
        for share in SHARES:
            title = f"{name}, recorded: budget, of the best worker's cost"
            found.append(_over_folds(title, f"{share:.0%}", share, folds))
        for only in sorted({str(one) for fold in folds for one in set(fold.held_levels)}):
            title = f"{name}, recorded: best worker right on the type, at 30 %"
            found.append(_over_folds(title, only, SHARES[1], folds, only))
    return found


def _over_folds(dimension: str, level: str, share: float, folds: list[PlayedFold], only: str | None = None) -> Cell:
    """Compare in each fold with the settings chosen in it, and over all folds together."""
    ours, held = list[Setting](), defaultdict[str, list[tuple[Setting, float]]](list)
    for fold in folds:
        rows = np.full(len(fold.held_levels), True) if only is None else fold.held_levels == only
        there = np.full(len(fold.train_levels), True) if only is None else fold.train_levels == only
        if not rows.any() or not there.any():
            continue
        mine = fold.policy[share].at(rows)
        ours.append(mine)
        for control, (settings, choice) in fold.controls.items():
            here = {key: one.at(rows) for key, one in settings.items()}
            chosen = {key: one.at(there) for key, one in choice.items()}
            held[control].append(mixed(here, chosen, float(mine.dollars.mean())))
    sizes = [len(one.right) for one in ours]
    mixes = {name: {"mix": _joined([mix for mix, _ in each])} for name, each in held.items()}
    # What each control promised on the tasks for choosing says which is the strongest.
    promised = {
        name: {"mix": Setting(np.array([np.average([right for _, right in each], weights=sizes)]), np.ones(1))}
        for name, each in held.items()
    }
    return compare(dimension, level, _joined(ours), mixes, promised)


def _joined(many: list[Setting]) -> Setting:
    return Setting(np.concatenate([one.right for one in many]), np.concatenate([one.dollars for one in many]))
