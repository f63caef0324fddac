"""A pointer network over workers: for each part of a task, who does it, how it is worded, checked, and what it sees.

It points at workers by what is known of them (`PointerInput`): what a card claims, tries and right answers at this kind
of work and over all, whether the worker's claims held where it was tried, price and family. Nothing in it belongs to
one worker, so that a pool may have any size and members that training never met. Wordings are scored by their own
outcomes in the same way, so that their number may grow.

The forward pass is written once, in operations that numpy and torch share: training differentiates the very code that
decides. Shapes: B tasks, P parts, W workers, K kinds, F wording features, G samples of a task.

Invariant: a worker, part or wording feature that is masked has probability 0. Deliberately absent: names of workers.

What each sentence of a wording is worth to a worker, from single outcomes: an additive fit over kinds and sentences.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Protocol, TypeAlias

import numpy as np

from shikisha.core.fast_dataclass import dataclass
from shikisha.routing.arrays import Flags, Floats32, Ints
from shikisha_train.pointer.part_plans import DOLLAR_WEIGHT, TreatmentKind

_STEPS, _RIDGE, _PRIOR_TRIES = 5, 12.0, 1.0
_LEAST, _MOST = -7.0, -0.05  # logs of chances
_LARGEST_STEP = 0.7


def said_features(features: int) -> Floats32:
    """Return [2^F, F]: which features each wording says (1) or not (0); the bits of its number."""
    found: Floats32 = ((np.arange(2**features)[:, None] >> np.arange(features)) & 1).astype(np.float32)
    return found


def feature_counts(by_wording: Floats32) -> Floats32:
    """Return [..., F, 2] counts without and with each feature, from counts by kind and wording [..., K, 2^F]."""
    said = said_features(by_wording.shape[-1].bit_length() - 1)
    told = by_wording.sum(-2)
    found: Floats32 = np.stack([told @ (1 - said), told @ said], -1)
    return found


@dataclass(frozen=True)
class WordingEffects:
    """The fit: `levels` [..., K], logs of the chance halfway between said and not; `effects` [..., F], what saying a
    feature adds to them; `errors` [..., F], their standard errors."""

    levels: Floats32
    effects: Floats32
    errors: Floats32


def fit_wording_effects(tries: Floats32, right: Floats32) -> WordingEffects:
    """Fit counts by kind and wording [..., K, 2^F]."""
    x = said_features(tries.shape[-1].bit_length() - 1) - np.float32(0.5)
    count, features = x.shape
    outer = (x[:, :, None] * x[:, None]).reshape(count, -1)
    usual = (right.sum((-2, -1)) + 1) / (tries.sum((-2, -1)) + 3)
    more = np.float32(_PRIOR_TRIES / count)
    tries, right = tries + more, right + more * usual[..., None, None].astype(np.float32)
    level = np.log(right.sum(-1) / tries.sum(-1)).clip(_LEAST, _MOST)
    effect = np.zeros((*tries.shape[:-2], features), np.float32)
    ridge = np.eye(features, dtype=np.float32) * np.float32(_RIDGE)
    left = ridge
    for _ in range(_STEPS):
        chance = np.exp((level[..., None] + (effect @ x.T)[..., None, :]).clip(_LEAST, _MOST))
        odds = 1 / (1 - chance)
        weight, slope = tries * chance * odds, (right - tries * chance) * odds
        of_level, cross = weight.sum(-1), weight @ x
        pull = slope.sum(-1) / of_level
        whole = (weight.sum(-2) @ outer).reshape(*effect.shape, features) + ridge
        left = whole - np.swapaxes(cross, -1, -2) @ (cross / of_level[..., None])
        wanted = slope.sum(-2) @ x - _RIDGE * effect - (pull[..., None, :] @ cross)[..., 0, :]
        step = np.linalg.solve(left, wanted[..., None])[..., 0].clip(-_LARGEST_STEP, _LARGEST_STEP)
        level = (level + pull - (cross @ step[..., None])[..., 0] / of_level).clip(_LEAST, _MOST)
        effect = effect + step
    error = np.sqrt(np.diagonal(np.linalg.inv(left), axis1=-2, axis2=-1))
    return WordingEffects(*(each.astype(np.float32) for each in (level, effect, error)))


HIDDEN, SMALL_HIDDEN = 64, 16
_MASKED = -1e9
TREATMENTS = tuple(TreatmentKind)
_PRICE_UNIT = 0.001  # dollars of a cheap call
# numpy's arrays where a conductor decides, torch's where it is trained: only operations that both have are used.
Tensor: TypeAlias = Floats32


class ArrayLibrary(Protocol):
    """The functions of numpy that torch has too, under the same names."""

    def concatenate(self, arrays: Sequence[Tensor], axis: int) -> Tensor:
        """Join arrays along an axis."""
        ...

    def broadcast_to(self, array: Tensor, shape: tuple[int, ...]) -> Tensor:
        """Repeat an array to a shape."""
        ...

    def amax(self, array: Tensor, axis: int) -> Tensor:
        """Return the largest along an axis."""
        ...

    def where(self, condition: Flags, one: Tensor | float, other: Tensor | float) -> Tensor:
        """Choose by a condition."""
        ...


@dataclass(frozen=True)
class PointerInput:
    """What a pointer network decides from.

    kinds [B, P, K] are the shares of kinds of work as read; parts [B, P] and workers [B, W] say which places are used;
    claims [B, W, K] (0 to 1) what cards claim; tries, right [B, W, K] what notes say; told_tries, told_right
    [B, W, K, 2^F] the same by kind and wording, whose bits say which features it has; prices [B, W] dollars a call;
    family [B, W] a number for each family; value [B] what a right answer is worth; joinable [B, P]: part p may be asked
    together with p - 1; needs [B, P, P]: how likely part p needs the result of part q, as read.
    """

    kinds: Floats32
    parts: Flags
    workers: Flags
    claims: Floats32
    tries: Floats32
    right: Floats32
    told_tries: Floats32
    told_right: Floats32
    prices: Floats32
    family: Ints
    value: Floats32
    joinable: Flags
    needs: Floats32


@dataclass(frozen=True)
class PointerChoices:
    """Choices for B tasks and G samples: `join` [B, G, P] (with the part before, in one call), `mode`, `workers`
    [B, G, P, 3], `told` [B, G, P, 3, F], `shown` [B, G, P, P]."""

    join: Flags
    mode: Ints
    workers: Ints
    told: Flags
    shown: Flags


@dataclass(frozen=True)
class PointerOutcomes:
    """What came of it: whether each part was right given right inputs, its dollars (a call's at its first part), and
    whether the run went on with another result than its first worker's."""

    right: Flags
    dollars: Floats32
    replaced: Flags | None = None


@dataclass(frozen=True)
class PointerFeatures:
    """Features as numbers of moderate size.

    x [B, P, W, X] of a worker at a part, c [B, P, C] of a part, y [B, W, F, Y] of a wording feature for a worker,
    a [B, P, P, A] of an earlier result for a part, pairs [B, W, W, 2] same family and same worker, and the masks.
    """

    x: Tensor
    c: Tensor
    y: Tensor
    a: Tensor
    pairs: Tensor
    parts: Flags
    workers: Flags


def pointer_features(given: PointerInput) -> PointerFeatures:
    """Return the features of an input."""
    kinds, tries, right = given.kinds, given.tries, given.right
    fit = fit_wording_effects(given.told_tries, given.told_right)
    gained = np.abs(fit.effects).sum(-1)
    fitted = np.einsum("bpk,bwk->bpw", kinds, np.exp(fit.levels))
    at_kind = np.einsum("bpk,bwk->bpw", kinds, tries)
    right_at = np.einsum("bpk,bwk->bpw", kinds, right)
    claim = np.einsum("bpk,bwk->bpw", kinds, given.claims)
    all_tries, all_right = tries.sum(-1), right.sum(-1)
    claimed_tries, claimed_right = (given.claims * tries).sum(-1), (given.claims * right).sum(-1)
    other_tries, other_right = all_tries - claimed_tries, all_right - claimed_right
    means = (right + 0.5) / (tries + 1.5)
    worth = given.prices * DOLLAR_WEIGHT
    usual = (all_right.sum(-1, keepdims=True) + 1) / (all_tries.sum(-1, keepdims=True) + 3)
    shrunk = (right_at + 2 * 0.3) / (at_kind + 2)
    of_worker = [
        given.claims.sum(-1) / given.claims.shape[-1],
        (given.claims.max(-1) < 0.5).astype(np.float32),
        np.log1p(all_tries) / 5,
        (all_right + 1) / (all_tries + 3),
        _mean(claimed_right, claimed_tries),
        np.log1p(claimed_tries) / 5,
        _mean(other_right, other_tries),
        np.log1p(other_tries) / 5,
        means.max(-1),
        means.min(-1),
        np.log(np.maximum(given.prices, 1e-7) / _PRICE_UNIT) / 2,
        worth * 4,
        worth / given.value[:, None] * 4,
        np.broadcast_to(usual, all_tries.shape),
        gained,
    ]
    per_part = [
        claim,
        np.log1p(at_kind) / 4,
        _mean(right_at, at_kind),
        shrunk,
        1 / np.sqrt(at_kind + 1),
        fitted,
        fitted * np.exp(gained / 2)[:, None],
        (shrunk - worth[:, None] / given.value[:, None, None]),
        shrunk - np.where(given.workers[:, None], shrunk, -1).max(-1, keepdims=True),
    ]
    parts = kinds.shape[1]
    x = np.stack(
        [*(np.broadcast_to(one[:, None], at_kind.shape) for one in of_worker), *per_part], axis=-1, dtype=np.float32
    )
    best = np.where(given.workers[:, None], fitted * np.exp(gained / 2)[:, None], 0).max(-1).clip(0.01, 1)
    logs = np.where(given.parts, np.log(best), 0)
    rest = logs.sum(-1, keepdims=True) - logs  # how likely the other parts are right
    count = given.parts.sum(-1, keepdims=True)
    place = np.broadcast_to(np.arange(parts)[None], given.parts.shape)
    c = np.concatenate(
        [
            kinds,
            np.stack(
                [
                    np.broadcast_to(np.log(given.value)[:, None], given.parts.shape),
                    np.broadcast_to(count / 6, given.parts.shape),
                    (count - place) / 6,
                    np.broadcast_to(given.workers.sum(-1)[:, None] / 6, given.parts.shape),
                    rest / 2,
                    np.exp(rest),
                    np.exp(rest) * given.value[:, None],
                    np.log(best),
                ],
                axis=-1,
            ),
        ],
        axis=-1,
        dtype=np.float32,
    )
    return PointerFeatures(
        x, c, _wording_features(given, fit), _access_features(given), _pair_features(given), given.parts,
        given.workers,
    )  # fmt: skip


def _mean(right: Floats32, tries: Floats32) -> Floats32:
    found: Floats32 = (right + 0.5) / (tries + 1.5)
    return found


def _wording_features(given: PointerInput, fit: WordingEffects) -> Floats32:
    # What is known grows with the number of outcomes: odds are about linear in these two.
    known, evidence = 1 / fit.errors**2, fit.effects / fit.errors**2
    effects, z = fit.effects, fit.effects / fit.errors
    found: Floats32 = np.stack(
        [
            known / 100,
            evidence / 20,
            _largest_other(evidence) / 20,
            effects * 2,
            z / 2,
            np.log(fit.errors),
            _largest_other(effects) * 2,
            _largest_other(z) / 2,
            (z.sum(-1, keepdims=True) - z) / 6,
            np.broadcast_to(np.log1p(given.told_tries.sum((-2, -1)))[..., None] / 5, z.shape),
            np.broadcast_to(np.log(given.value)[:, None, None], z.shape),
        ],
        axis=-1,
        dtype=np.float32,
    )
    return found


def _largest_other(values: Floats32) -> Floats32:
    """Return for each place of the last axis the largest value at another place."""
    own = np.eye(values.shape[-1], dtype=bool)
    found: Floats32 = np.where(own, _MASKED, values[..., None, :]).max(-1)
    return found


def _access_features(given: PointerInput) -> Floats32:
    parts = given.kinds.shape[1]
    before = np.arange(parts)[:, None] - np.arange(parts)[None]
    found: Floats32 = np.stack(
        [
            given.needs,
            np.broadcast_to((before == 1).astype(np.float32), given.needs.shape),
            np.broadcast_to(before / 6, given.needs.shape),
        ],
        axis=-1,
        dtype=np.float32,
    )
    return found


def _pair_features(given: PointerInput) -> Floats32:
    workers = given.family.shape[1]
    known = (given.family >= 0)[:, :, None] & (given.family >= 0)[:, None]
    same = (given.family[:, :, None] == given.family[:, None]) & known
    itself = np.broadcast_to(np.eye(workers, dtype=bool)[None], same.shape)
    found: Floats32 = np.stack([same, itself], axis=-1).astype(np.float32)
    return found


def layer_sizes(kinds: int) -> dict[str, tuple[int, ...]]:
    """Return each weight's shape for so many kinds of work."""
    x, c, y, a, pairs, modes = 24, kinds + 8, 11, 3, 2, len(TREATMENTS)
    g = 2 * HIDDEN
    shapes: dict[str, tuple[int, ...]] = {}

    def layer(name: str, *sizes: int) -> None:
        for at, (wide, narrow) in enumerate(pairwise(sizes)):
            shapes[f"{name}.{at}.weight"] = (wide, narrow)
            shapes[f"{name}.{at}.bias"] = (narrow,)

    layer("worker", x + c, HIDDEN, HIDDEN, HIDDEN)
    layer("first", HIDDEN + g, HIDDEN, 1)
    layer("mode", HIDDEN + g + c, HIDDEN, modes)
    layer("join", 2 * HIDDEN + g + c, HIDDEN, 1)
    for name in ("second", "third"):
        layer(f"{name}_own", HIDDEN, HIDDEN)
        layer(f"{name}_past", HIDDEN + (HIDDEN if name == "third" else 0) + modes + c, HIDDEN)
        layer(f"{name}_pair", pairs * (2 if name == "third" else 1), HIDDEN)
        layer(f"{name}_out", HIDDEN, 1)
    layer("wording", y, SMALL_HIDDEN, 1)
    layer("access", a, SMALL_HIDDEN, 1)
    return shapes


def first_weights(kinds: int, seed: int) -> dict[str, Floats32]:
    """Return weights before training: small at random, and an access list as it was read."""
    rng = np.random.default_rng(seed)
    weights = {}
    for name, shape in layer_sizes(kinds).items():
        scale = 0.0 if name.endswith("bias") else (2.0 / shape[0]) ** 0.5
        if "_out" in name or (name.split(".")[1] == "1" and not name.startswith("worker")):
            scale *= 0.1
        weights[name] = (rng.standard_normal(shape) * scale).astype(np.float32)
    return weights


def join_with_next(join: Flags) -> Flags:
    """Return [..., P]: whether the next part is asked for in the same call."""
    found: Flags = np.concatenate([join[..., 1:], np.zeros_like(join[..., :1])], -1)
    return found


@dataclass(frozen=True)
class EncodedPool:
    """What the network has seen: workers at parts [B, P, W, H], the pool at each part [B, P, 2H], and the features."""

    workers: Tensor
    pool: Tensor
    given: PointerFeatures


@dataclass(frozen=True)
class PointerNetwork:
    """The network's scores (unnormalized log-probabilities) under `weights`, in numpy or torch."""

    weights: Mapping[str, Tensor]
    xp: ArrayLibrary

    def encode(self, given: PointerFeatures) -> EncodedPool:
        """Read the features."""
        xp, shape = self.xp, tuple(given.x.shape)
        c = xp.broadcast_to(given.c[:, :, None], (*shape[:3], given.c.shape[-1]))
        h = self._dense("worker", xp.concatenate([given.x, c], -1)).clip(0)
        for at in (1, 2):
            h = self._dense("worker", h, at).clip(0)
        used = given.workers[:, None, :, None]
        masked = h * used
        mean = masked.sum(2) / used.sum(2).clip(1)
        pool = xp.concatenate([mean, xp.amax(masked, 2)], -1)
        return EncodedPool(h, pool, given)

    def score_first(self, seen: EncodedPool) -> Tensor:
        """Return scores [B, P, W] of each worker to do a part first."""
        pool = self.xp.broadcast_to(seen.pool[:, :, None], (*seen.workers.shape[:3], seen.pool.shape[-1]))
        scores = self._mlp("first", self.xp.concatenate([seen.workers, pool], -1))[..., 0]
        return self._hide(scores, seen.given.workers[:, None])

    def score_wordings(self, seen: EncodedPool) -> Tensor:
        """Return scores [B, W, F] of saying each feature to a worker, against saying nothing of it."""
        return self._mlp("wording", seen.given.y)[..., 0]

    def score_access(self, seen: EncodedPool) -> Tensor:
        """Return scores [B, P, P] of granting part p the result of part q, against withholding it."""
        return self._mlp("access", seen.given.a)[..., 0]

    def score_modes(self, seen: EncodedPool, tasks: Ints, parts: Ints, first: Ints) -> Tensor:
        """Return scores [N, modes] of how part `parts[i]` of task `tasks[i]` is done after its first worker."""
        own = seen.workers[tasks, parts, first]
        return self._mlp("mode", self.xp.concatenate([own, seen.pool[tasks, parts], seen.given.c[tasks, parts]], -1))

    def score_join(self, seen: EncodedPool, tasks: Ints, parts: Ints, running: Ints) -> Tensor:
        """Return scores [N] of asking the worker of the part before for this part too, in the same call."""
        both = [seen.workers[tasks, parts, running], seen.workers[tasks, parts - 1, running]]
        given = self.xp.concatenate([*both, seen.pool[tasks, parts], seen.given.c[tasks, parts]], -1)
        return self._mlp("join", given)[..., 0]

    def score_second(self, seen: EncodedPool, tasks: Ints, parts: Ints, first: Ints, mode: Tensor) -> Tensor:
        """Return scores [N, W] of the second worker; `mode` [N, modes] is one-hot."""
        past = self.xp.concatenate([seen.workers[tasks, parts, first], mode, seen.given.c[tasks, parts]], -1)
        pair = seen.given.pairs[tasks, first]
        return self._score_more("second", seen, tasks, parts, past, pair)

    def score_third(
        self, seen: EncodedPool, tasks: Ints, parts: Ints, first: Ints, second: Ints, mode: Tensor
    ) -> Tensor:
        """Return scores [N, W] of the third worker."""
        both = [seen.workers[tasks, parts, first], seen.workers[tasks, parts, second]]
        past = self.xp.concatenate([*both, mode, seen.given.c[tasks, parts]], -1)
        pair = self.xp.concatenate([seen.given.pairs[tasks, first], seen.given.pairs[tasks, second]], -1)
        return self._score_more("third", seen, tasks, parts, past, pair)

    def _score_more(self, name: str, seen: EncodedPool, tasks: Ints, parts: Ints, past: Tensor, pair: Tensor) -> Tensor:
        own = self._dense(f"{name}_own", seen.workers)[tasks, parts]
        hidden = own + self._dense(f"{name}_past", past)[:, None] + self._dense(f"{name}_pair", pair)
        return self._hide(self._dense(f"{name}_out", hidden.clip(0))[..., 0], seen.given.workers[tasks])

    def _hide(self, scores: Tensor, used: Flags) -> Tensor:
        return self.xp.where(used, scores, _MASKED)

    def _dense(self, name: str, x: Tensor, at: int = 0) -> Tensor:
        found: Tensor = x @ self.weights[f"{name}.{at}.weight"] + self.weights[f"{name}.{at}.bias"]
        return found

    def _mlp(self, name: str, x: Tensor) -> Tensor:
        return self._dense(name, self._dense(name, x).clip(0), 1)
