"""Whether a policy that was read fits together: every array the shape that its workers and types ask for.

Invariant: what has no flaw can be asked to act on any task without an error of numpy's. Deliberately absent: whether a
policy is any good, and reading it (`file`).
"""

from collections.abc import Iterable, Iterator
from math import isfinite

import numpy as np

from shikisha.grade.canon import Form
from shikisha.policy.arrays import Flags, Floats, Ints
from shikisha.policy.cascade import Cascade
from shikisha.policy.dial import Dial
from shikisha.policy.features import LIGHT, LIGHT_AT_FIRST, Scales
from shikisha.policy.hearing import Hearing
from shikisha.policy.induction import Induction
from shikisha.policy.maps import ALL, BUCKETS, Maps
from shikisha.policy.parts import Part
from shikisha.policy.policy import Policy
from shikisha.policy.router import Router
from shikisha.policy.shapes import SHAPES
from shikisha.policy.table import Table
from shikisha.policy.types import OPEN, Types
from shikisha.policy.words import HEARD, SIZE

_SHAPE = 4  # numbers that say what a prompt is like, before a state's types
_OF_A_WORKER = 7  # numbers that a state has for each worker that was asked
_FORMS = {*map(str, Form), OPEN}


def flaws(policy: Policy) -> Iterator[str]:
    """Yield what does not fit, in words; nothing where all does."""
    workers, kinds = len(policy.workers), len(policy.types.names)
    if not workers or len(set(policy.names)) < workers:
        yield "workers: expected some, each with a name of its own"
    yield from _of_types(policy.types)
    found = [flaw for place, part in enumerate(policy.parts) for flaw in _of_part(place, part, kinds, workers)]
    yield from found
    if policy.kept not in [rung.name for rung in policy.rungs]:
        yield f"kept: {policy.kept!r} is none of its rungs"
    for rung in policy.rungs if not found else ():
        yield from (f"rung {rung.name!r}: {flaw}" for flaw in _of_dial(rung.dial, policy.parts))
    if policy.hearing is not None:
        yield from (f"hearing: {flaw}" for flaw in _of_hearing(policy.hearing, kinds, workers))
    if policy.habits is not None and policy.habits.scored.shape != (kinds + 1, workers):
        yield f"habits: {_other('scored', policy.habits.scored, (kinds + 1, workers))}"


def _of_types(types: Types) -> Iterator[str]:
    if len(types.forms) != len(types.names):
        yield f"forms: {len(types.forms)} of them for {len(types.names)} types"
    for form in {*types.forms, types.form} - _FORMS:
        yield f"forms: {form!r} is none that is known: {', '.join(sorted(_FORMS))}"
    if types.centres.size and types.centres.shape != (len(types.names), SIZE):
        yield _other("centres", types.centres, (len(types.names), SIZE))


def _of_dial(dial: Dial, parts: tuple[Part, ...]) -> Iterator[str]:
    if not dial.points:
        yield "its dial has no point"
    if not (isfinite(dial.unit) and isfinite(dial.best_single)):
        yield "its dial's unit or best single worker is no number"
    for point in dial.points:
        if not 0 <= point.part < len(parts) or not 0 <= point.setting < parts[point.part].settings:
            yield f"there is no setting {point.setting} of a part {point.part}"
        if not (isfinite(point.cost) and isfinite(point.accuracy)):
            yield f"setting {point.setting} of part {point.part}: cost or accuracy is no number"


def _of_hearing(held: Hearing, kinds: int, workers: int) -> Iterator[str]:
    yield from _shaped(("weights", held.weights, (workers, HEARD)), ("rarity", held.rarity, (HEARD,)))
    yield from _shaped(("usual", held.usual, (kinds + 1, workers)), ("heard", held.heard, (workers,)))


def _of_part(place: int, part: Part, kinds: int, workers: int) -> Iterator[str]:
    found: Iterable[str] = ()
    match part:
        case Table():
            found = _of_table(part, kinds, workers)
        case Router():
            found = (*_of_table(part.table, kinds, workers), *_of_maps(part.maps, kinds, workers))
        case Cascade():
            found = _of_cascade(part, kinds, workers)
        case Induction():
            found = _of_induction(part, kinds, workers)
    return (f"part {place} ({part.kind}): {flaw}" for flaw in found)


def _of_table(part: Table, kinds: int, workers: int) -> Iterator[str]:
    cells, settings = (kinds + 1, workers), part.prices.size
    yield from _shaped(
        ("success", part.success, cells), ("cost", part.cost, cells), ("prices", part.prices, (settings,))
    )
    yield from _shaped(("bonus", part.bonus, (settings, workers)))


def _of_maps(held: Maps, kinds: int, workers: int) -> Iterator[str]:
    places, size = held.lexicon.places, held.lexicon.places.size
    yield from _shaped(("places", places, (size,)), ("rarity", held.lexicon.rarity, (size,)))
    yield from _shaped(("weights", held.weights, (size, workers)))
    if (np.diff(places.ravel()) <= 0).any() or (places < 0).any():
        yield "places: expected ascending numbers from 0"
    for one in held.maps:
        yield from _shaped(("middles", one.scale.middle, (SHAPES,)), ("inverses", one.scale.inverse, (SHAPES,)))
        yield from _shaped(("lines", one.lines, (SHAPES, workers)), ("squares", one.squares, (workers, SHAPES, SHAPES)))
        yield from _shaped(("words", one.words, (BUCKETS, workers)), ("shifts", one.shift, (workers,)))
        if not ALL <= one.kind < kinds:
            yield f"kinds: there is no type {one.kind}"


def _of_cascade(part: Cascade, kinds: int, workers: int) -> Iterator[str]:
    steps = part.orders.shape[-1] if part.orders.ndim else 0
    cells = (part.orders.shape[0] if part.orders.ndim else 0, kinds + 1, steps)
    yield from _shaped(("orders", part.orders, cells), ("thresholds", part.thresholds, cells))
    yield from _of_scales(part.scales, kinds, workers)
    yield from _among("orders", part.orders, range(-1, workers))
    yield from _shaped(("spares", part.spares, (workers,)))
    yield from _among("spares", part.spares, range(workers))
    for asked, weights in part.confidences.items():
        if not asked or not set(asked) <= set(range(workers)):
            yield f"confidence: {asked} is no sequence of its workers"
        size = 3 + kinds + max(0, len(asked) - 1) * (2 + kinds)
        yield from _shaped((f"confidence {asked}", weights, (size,)))


def _of_induction(part: Induction, kinds: int, workers: int) -> Iterator[str]:
    scorer, pool = part.scorer, part.workers
    yield from _shaped(("none", scorer.none, (kinds + 1,)), ("support", scorer.support, (kinds + 1, workers)))
    yield from _shaped(("pairs", scorer.pairs, (workers, workers)), ("sound", scorer.sound, (workers,)))
    yield from _of_scales(part.scales, kinds, workers)
    if () not in part.gains or tuple(sorted({*pool} & {*range(workers)})) != pool:
        yield "gains: expected those of asking first, for workers in ascending order"
        return
    settings = part.gains[()].shape[-1] if part.gains[()].ndim else 0
    for asked, gains in part.gains.items():
        if tuple(sorted({*asked} & {*pool})) != asked:
            yield f"gains: {asked} are no workers of its own in ascending order"
        looks = LIGHT + _SHAPE + 2 * kinds + _OF_A_WORKER * len(asked) if asked else LIGHT_AT_FIRST + kinds
        yield from _shaped((f"gains {asked}", gains, (looks, len(pool) - len(asked), settings)))


def _of_scales(scales: Scales, kinds: int, workers: int) -> Iterator[str]:
    yield from _shaped(("written", scales.written, (kinds + 1, workers)), ("spread", scales.spread, (workers,)))
    if not (scales.spread > 0).all():
        yield "spread: expected numbers above 0"


def _shaped(*arrays: tuple[str, Floats | Ints | Flags, tuple[int, ...]]) -> Iterator[str]:
    return (_other(name, array, shape) for name, array, shape in arrays if array.shape != shape)


def _among(name: str, places: Ints, known: range) -> Iterator[str]:
    if not np.isin(places, list(known)).all():
        yield f"{name}: a worker's place is from {known.start} to {known.stop - 1}"


def _other(name: str, array: Floats | Ints | Flags, shape: tuple[int, ...]) -> str:
    return f"{name}: expected the shape {shape}, found {array.shape}"
