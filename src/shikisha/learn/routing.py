"""Fitting the router: the rule by type, and maps of prompts that are trusted as far as held-back tasks bear them out.

Three sources (words of every task, looks of every task, and the types' own maps) are fitted on four folds of five and
tried on the fifth; how far each is trusted is the non-negative combination that tells the held-back scores best
(stacking, Breiman 1996), or not at all where it does not tell them clearly better than the rule does. Invariant: what
a router is said to have won was won on tasks that neither its maps nor its trust have seen. Deliberately absent:
load limits (`tabling` keeps them), and costs by prompt.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from shikisha.errors import MissingExtra
from shikisha.learn.mapping import MOST, lexicon_of, looks_map, type_map, words_of
from shikisha.learn.panel import Panel
from shikisha.learn.tabling import PRICES, Preference, strength_of, table_of
from shikisha.policy.arrays import Flags, Floats, Ints
from shikisha.policy.batch import NOTHING, Batch
from shikisha.policy.maps import Lexicon, Map, Maps, unmoved
from shikisha.policy.router import Router
from shikisha.policy.table import Table

_CLEARLY = 2.0  # standard errors by which held-back scores must be told better


@dataclass(frozen=True, slots=True)
class Routed:
    """A router, and what it came to on tasks that were not in the fit: won and cost (units), [T, L]."""

    part: Router
    won: Floats
    cost: Floats


def route(panel: Panel, folds: Ints, unit: float = 0.0, speed: float = 0.0) -> Routed:
    """Fit the router; `unit` is one unit of cost in dollars (0: the panel's own), `speed` is as in `Preference`."""
    read(panel)
    scheme = _Scheme(unit or panel.unit(), strength_of(panel, folds), Preference(speed))
    told, left, tables = np.zeros((3, *panel.codes.shape)), np.zeros(panel.codes.shape), []
    for fold in range(int(folds.max()) + 1):
        rows = np.flatnonzero(folds == fold)
        held, fitted = panel.at(rows), _Sources.of(panel.at(folds != fold), scheme)
        told[:, rows], left[rows] = fitted.tell(held.batch), _left(held, fitted.table)
        tables.append(fitted.table)
    won, cost = np.zeros((len(panel), len(PRICES))), np.zeros((len(panel), len(PRICES)))
    for fold, table in enumerate(tables):
        rows, rest = np.flatnonzero(folds == fold), folds != fold
        moved = np.tensordot(_trust(told[:, rest], left[rest]), told[:, rows], 1)
        won[rows], cost[rows] = _come_to(table, moved, panel.at(rows), scheme.unit)
    return Routed(_Sources.of(panel, scheme).trusted(_trust(told, left)), won, cost)


def read(panel: Panel) -> None:
    """Read all prompts; what is taken of this panel from now on knows what was read."""
    _ = panel.batch.looks, panel.batch.grams


@dataclass(frozen=True, slots=True)
class _Scheme:
    """What does not change from fold to fold: the unit of cost, how the rule shrinks, and what it prefers."""

    unit: float
    strength: float
    preference: Preference


@dataclass(frozen=True, slots=True)
class _Sources:
    """The rule and what is told besides, each source as if it were trusted in full."""

    table: Table
    lexicon: Lexicon
    weights: Floats
    every: tuple[Map, ...]
    own: tuple[Map, ...]

    @classmethod
    def of(cls, panel: Panel, scheme: _Scheme) -> "_Sources":
        table = table_of(panel, scheme.unit, scheme.strength, scheme.preference)
        lexicon = lexicon_of(panel.batch)
        left, read = _left(panel, table), lexicon.read(panel.batch.grams)
        looks, words, own = panel.batch.looks, lexicon.bucketed(read), []
        for kind in range(len(panel.types.names)):
            rows = np.flatnonzero(panel.batch.types == kind)[:MOST]
            own.append(type_map(kind, looks[rows], words.at(rows), left[rows]))
        weights = words_of(read, len(lexicon.places), left)
        return cls(table, lexicon, weights, _some([looks_map(looks, left)]), _some(own))

    def tell(self, batch: Batch) -> Floats:
        """Return [3, T, J], what each source tells."""
        return np.stack([self._maps(trust).of(batch) for trust in np.eye(3)])

    def trusted(self, trust: Floats) -> Router:
        return Router(self.table, self._maps(trust))

    def _maps(self, trust: Sequence[float] | Floats) -> Maps:
        words, looks, own = trust
        maps = [one.times(looks) for one in self.every if looks] + [one.times(own) for one in self.own if own]
        return Maps(self.lexicon, words * self.weights, tuple(maps)) if words or maps else unmoved(len(self.weights.T))


def _some(maps: Sequence[Map | None]) -> tuple[Map, ...]:
    return tuple(one for one in maps if one is not None)


def _left(panel: Panel, table: Table) -> Floats:
    """[T, J]: what the rule leaves to explain of the differences between workers; 0 for what is not recorded."""
    known = ~np.isnan(panel.scores)
    left = (panel.won - table.success[panel.batch.types]) * known
    middle = left.sum(axis=1) / np.maximum(1, known.sum(axis=1))
    return np.asarray((left - middle[:, None]) * known, np.float64)


def _trust(told: Floats, left: Floats) -> Floats:
    """[3]: how far each source is trusted, by what it told of held-back tasks."""
    try:
        from scipy.optimize import nnls
    except ImportError:
        raise MissingExtra("learn", "a router that reads prompts") from None
    found = np.asarray(nnls(told.reshape(len(told), -1).T, left.ravel())[0], np.float64)
    better = (left**2 - (left - np.tensordot(found, told, 1)) ** 2).sum(axis=1)
    error = float(better.std()) / np.sqrt(max(1, len(better)))
    return found if better.mean() > _CLEARLY * error else np.zeros_like(found)


def _come_to(table: Table, moved: Floats, panel: Panel, unit: float) -> tuple[Floats, Floats]:
    """Return [T, L] what each price wins and costs (units), with the worth of workers moved so."""
    types, rows = panel.batch.types, np.arange(len(panel))[:, None]
    best = np.stack([(table.worth(price)[types] + moved).argmax(axis=1) for price in range(table.settings)], axis=1)
    shipped: Flags = panel.codes > NOTHING
    return np.where(shipped, panel.won, 0.0)[rows, best], panel.paid[rows, best] / unit
