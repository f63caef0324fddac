"""Fitting every rung on one set of tasks: the parts, and a dial over them for each rung.

Invariants: a dial's points are measured on tasks that were not in the fit (folds inside these tasks); folds hang on the
tasks' content, so that copies of a task are never on both sides; copies that filling in made are no more tasks, and
what was filled in is neither heard nor what costs are measured by. Deliberately absent: which rung to keep (`ladder`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256

import numpy as np

from shikisha.learn.absent import silent
from shikisha.learn.cascading import cascade
from shikisha.learn.hearing import listen
from shikisha.learn.inducing import Ground, Recipe, induce
from shikisha.learn.joining import imputed
from shikisha.learn.panel import Panel
from shikisha.learn.pools import area, pools
from shikisha.learn.routing import route
from shikisha.learn.tabling import Preference, tabulate
from shikisha.policy.arrays import Floats, Ints
from shikisha.policy.dial import Dial, Point, on_hull
from shikisha.policy.hearing import Hearing
from shikisha.policy.induction import Induction
from shikisha.policy.parts import Part

TABLE, ROUTER, CASCADE, POLICY = "table", "router", "cascade", "policy"
FOLDS = 5


@dataclass(frozen=True, slots=True)
class Wants:
    """What a user wants of learning: which folds, and what the rule prefers besides."""

    seed: int = 0
    preference: Preference | None = None
    recipe: Recipe = field(default_factory=Recipe)


@dataclass(frozen=True, slots=True)
class Tried:
    """A part, and what each of its settings came to on tasks that were not in the fit, [T, L]."""

    part: Part
    won: Floats
    cost: Floats


@dataclass(frozen=True, slots=True)
class Fit:
    """The parts, and the dial of each rung over them, from the simplest rung."""

    parts: tuple[Part, ...]
    dials: Mapping[str, Dial]
    hearing: Hearing | None = None


def fit(panel: Panel, wants: Wants, rungs: Sequence[str], filled: Panel | None = None) -> Fit:
    """Fit these rungs on all tasks of a panel, as it was `filled` in where workers joined late (`joining`)."""
    unit, best, recorded = panel.unit(), float(panel.means()[panel.best()]), panel
    panel = panel if filled is None else filled
    folds = folds_of(panel.hashes, f"fit {wants.seed}")
    scale = unit if filled is None else _scale(recorded, filled)
    made: dict[str, list[Tried]] = {}
    hearing: Hearing | None = None
    induced: list[Tried] = []
    if POLICY in rungs:
        ground = replace(Ground.of(panel, folds, wants.recipe), unit=scale)
        chosen = pools(ground)
        hearing, ground = _listening(ground, chosen[0], recorded)
        panel = ground.panel
        fitted = (induce(ground, pool) for pool in chosen)
        induced = [Tried(one.part, one.won, one.cost * (scale / unit)) for one in fitted]
    tabled = tabulate(silent(panel), folds, scale, wants.preference)
    made[TABLE] = [Tried(tabled.part, tabled.won, tabled.cost * (scale / unit))]
    if ROUTER in rungs:
        routed = route(panel, folds, scale, wants.preference.speed if wants.preference else 0.0)
        made[ROUTER] = [Tried(routed.part, routed.won, routed.cost * (scale / unit))]
    if CASCADE in rungs:
        cascaded = cascade(panel, folds, scale)
        made[CASCADE] = [Tried(cascaded.part, cascaded.won, cascaded.cost * (scale / unit))]
    if POLICY in rungs:
        made[POLICY] = [*induced, *made[TABLE]]  # not the cascade: its promises are the more hopeful ones
    dials = Dial((), unit if panel.paid.any() else 0.0, best)
    return replace(_trimmed(made, dials, len(panel) // len(recorded)), hearing=hearing)


def _scale(recorded: Panel, filled: Panel) -> float:
    """Return what one unit of cost is while fitting: the mean dollars of the best single worker, or of a newcomer.

    That is where one is thought better than the best and is dearer: prices in units of a cheap worker would bar it.
    """
    best, thought = recorded.best(), replace(filled, there=filled.there | imputed(filled))
    hoped = thought.best()
    paid = float(recorded.paid[:, best].sum() / max(1, recorded.there[:, best].sum()))
    return max(paid, float(thought.paid[:, hoped].sum() / max(1, thought.there[:, hoped].sum()))) or 1.0


def _listening(deaf: Ground, pool: Sequence[int], recorded: Panel) -> tuple[Hearing | None, Ground]:
    """Return a hearing, and what fits share with it; without one where the texts bring this pool nothing."""
    hearing, told = listen(recorded, deaf.folds[: len(recorded)])
    if hearing is None or told is None:
        return None, deaf
    tells = np.tile(told, (len(deaf.panel) // len(recorded), 1))
    ground = replace(Ground.of(replace(deaf.panel, tells=tells), deaf.folds, deaf.recipe), unit=deaf.unit)
    better = area(induce(ground, pool)) > area(induce(deaf, pool))
    return (hearing, ground) if better else (None, deaf)


def folds_of(hashes: Sequence[str], salt: str, count: int = FOLDS) -> Ints:
    """[T]: the fold of each task, by its content; every fold has tasks where there are enough."""
    keys = [sha256(f"{salt}\0{content}".encode()).digest() for content in hashes]
    ranks = {key: rank for rank, key in enumerate(sorted(set(keys)))}
    return np.array([ranks[key] % count for key in keys], np.int64)


def points_of(tried: Sequence[Tried], first: int = 0, copies: int = 1) -> list[Point]:
    """Return a point for each setting of each part, which are counted from `first`; tasks are there so many times."""
    found = []
    for place, one in enumerate(tried, first):
        errors = one.won.std(axis=0) / np.sqrt(max(1, len(one.won) // copies))
        for setting in range(one.won.shape[1]):
            cost, won = float(one.cost[:, setting].mean()), float(one.won[:, setting].mean())
            found.append(Point(place, setting, cost, won, float(errors[setting])))
    return found


def _trimmed(made: Mapping[str, list[Tried]], empty: Dial, copies: int) -> Fit:
    """Return the parts and settings that some dial stands on, and nothing else; dials are `empty` with points."""
    every: list[Tried] = []
    for tried in made.values():
        every += [one for one in tried if not any(one is other for other in every)]
    hulls = {}
    for rung, tried in made.items():
        places = [next(place for place, other in enumerate(every) if other is one) for one in tried]
        points = [point for one, place in zip(tried, places, strict=True) for point in points_of([one], place, copies)]
        hulls[rung] = on_hull(points)
    used = sorted({(point.part, point.setting) for hull in hulls.values() for point in hull})
    parts: list[Part] = []
    moved: dict[tuple[int, int], tuple[int, int]] = {}
    for place in sorted({part for part, _ in used}):
        settings = [setting for part, setting in used if part == place]
        held = every[place].part
        for index, setting in enumerate(settings):
            moved[place, setting] = (len(parts), index if isinstance(held, Induction) else setting)
        parts.append(held.taking(settings) if isinstance(held, Induction) else held)
    dials = {rung: replace(empty, points=tuple(_moved(point, moved) for point in hull)) for rung, hull in hulls.items()}
    return Fit(tuple(parts), dials)


def _moved(point: Point, moved: Mapping[tuple[int, int], tuple[int, int]]) -> Point:
    part, setting = moved[point.part, point.setting]
    return Point(part, setting, point.cost, point.accuracy, point.error)
