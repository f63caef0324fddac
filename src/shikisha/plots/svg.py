"""Scales, ticks and label placement: pure functions of numbers.

Invariants: ticks are round numbers inside their scale; a scale never maps two different values to one place, so a range
of no width is widened first; the same marks give the same labels on every machine, inside the frame where they fit at
all. Text is not measured (its width is estimated from its letters). Where more marks stand together than there is room
for, labels overlap as little as possible: a descent over a fixed ring of candidates around each mark.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil, floor, hypot, isclose, log10
from unicodedata import east_asian_width

_ROUND_STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)


@dataclass(frozen=True, slots=True)
class Rect:
    """A rectangle in pixels, y downwards."""

    left: float
    top: float
    right: float
    bottom: float

    def overlap(self, other: "Rect") -> float:
        """Return the area that both cover."""
        width = min(self.right, other.right) - max(self.left, other.left)
        height = min(self.bottom, other.bottom) - max(self.top, other.top)
        return width * height if width > 0 and height > 0 else 0.0

    def holds(self, x: float, y: float) -> bool:
        """Return whether a point is inside."""
        return self.left <= x <= self.right and self.top <= y <= self.bottom

    def touches(self, other: "Rect") -> bool:
        """Return whether the two have a point in common."""
        return (
            self.left <= other.right
            and other.left <= self.right
            and self.top <= other.bottom
            and other.top <= self.bottom
        )

    def beyond(self, frame: "Rect") -> float:
        """Return how far it reaches out of a frame, in pixels, all sides together."""
        outs = (frame.left - self.left, frame.top - self.top, self.right - frame.right, self.bottom - frame.bottom)
        return sum(max(0.0, out) for out in outs)


@dataclass(frozen=True, slots=True)
class AxisScale:
    """Maps values from `low` to `high` onto `start` to `stop`, evenly or (`log`) by their logarithms."""

    low: float
    high: float
    start: float = 0.0
    stop: float = 100.0
    log: bool = False

    def __call__(self, value: float) -> float:
        """Return the place of a value."""
        return self.start + self._share(value) * (self.stop - self.start)

    def _share(self, value: float) -> float:
        if self.log:
            return log10(value / self.low) / log10(self.high / self.low)
        return (value - self.low) / (self.high - self.low)

    def ticks(self, about: int = 5) -> tuple[float, ...]:
        """Return about so many round values inside, ascending."""
        return _log_ticks(self.low, self.high, about) if self.log else _even_ticks(self.low, self.high, about)


def even_scale(values: Iterable[float], place: tuple[float, float] = (0.0, 100.0), about: int = 5) -> AxisScale:
    """Return the even scale, from round value to round value, that holds all values."""
    held = list(values) or [0.0, 1.0]
    low, high = min(held), max(held)
    if isclose(low, high, rel_tol=1e-9, abs_tol=1e-12):
        margin = abs(low) / 10 or 1.0
        low, high = low - margin, high + margin
    step = _tick_step(low, high, about)
    return AxisScale(step * floor(low / step + 1e-9), step * ceil(high / step - 1e-9), *place)


def cost_scale(values: Iterable[float], place: tuple[float, float]) -> AxisScale:
    """Return a scale for costs >= 0: logarithmic where the highest is 20 times the lowest, else even and from 0.

    A cost of 0 has no place on a scale by logarithm; `None` ones are for the caller to leave out.
    """
    held = list(values)
    paid = [value for value in held if value > 0]
    if not paid:
        return AxisScale(0.0, 1.0, *place)
    if max(paid) < 20 * min(paid):
        return even_scale([0.0, *held], place)
    return AxisScale(min(paid) / 1.5, max(paid) * 1.5, *place, log=True)


def interpolate_line(points: Sequence[tuple[float, float]], pieces: int = 24) -> list[tuple[float, float]]:
    """Return points along straight lines between the given ones: straight in values, so bent on a logarithmic scale."""
    if not points:
        return []
    found = [points[0]]
    for (x0, y0), (x1, y1) in pairwise(points):
        shares = [piece / pieces for piece in range(1, pieces + 1)]
        found += [(x0 + share * (x1 - x0), y0 + share * (y1 - y0)) for share in shares]
    return found


def svg_path(points: Iterable[tuple[float, float]]) -> str:
    """Return the points as the path of a line through them, to a tenth of a pixel."""
    return "".join(f"{'L' if index else 'M'}{x:.1f} {y:.1f}" for index, (x, y) in enumerate(points))


def _tick_step(low: float, high: float, about: int) -> float:
    rough = (high - low) / about
    size = 10.0 ** floor(log10(rough))
    return min((factor * size for factor in _ROUND_STEPS), key=lambda step: abs(log10(step / rough)))


def _even_ticks(low: float, high: float, about: int) -> tuple[float, ...]:
    step = _tick_step(low, high, about)
    first, last = ceil(low / step - 1e-9), floor(high / step + 1e-9)
    return tuple(round(index * step, 12) for index in range(first, last + 1))


def _log_ticks(low: float, high: float, about: int) -> tuple[float, ...]:
    """Return 1, 2 and 5 times the powers of ten inside, or the powers alone where those are enough."""
    powers = range(floor(log10(low)), ceil(log10(high)) + 1)
    for factors in ((1.0,), (1.0, 3.0), (1.0, 2.0, 5.0)):
        found = tuple(factor * 10.0**power for power in powers for factor in factors)
        inside = tuple(value for value in found if low <= value <= high)
        if len(inside) >= about - 1:
            break
    return inside


@dataclass(frozen=True, slots=True)
class Tick:
    """A place on an axis and what is written there."""

    place: float
    text: str


Point = tuple[float, float]

_RADII = (0.0, 5.0, 11.0, 18.0, 28.0, 40.0, 56.0, 76.0, 100.0)
_DIRECTIONS = ((1, 0), (-1, 0), (0, -1), (0, 1), (1, -1), (-1, -1), (1, 1), (-1, 1))  # preferred first
_MOST_PASSES = 8
_GAP = 7.0  # from the middle of a mark to a label at its side
_LEADER_FROM = 12.0
# A candidate that is worse than the best one by so much is dropped: this keeps the descent quick.
_HOPELESS = 600.0


@dataclass(frozen=True, slots=True)
class LabelTarget:
    """A mark in pixels with the text that belongs to it, and the box it fills itself (its interval's line included)."""

    x: float
    y: float
    text: str
    body: Rect


@dataclass(frozen=True, slots=True)
class PlacedLabel:
    """A placed label: its box; where its text is anchored, by which end; the line to its mark, unless that is near."""

    box: Rect
    x: float
    y: float
    anchor: str
    leader: str = ""


@dataclass(frozen=True, slots=True)
class _Candidate:
    """Where a label could go, its leader's points and what both span, and how bad that is in square pixels or so."""

    box: Rect
    leading: tuple[Point, ...]
    reach: Rect
    badness: float

    def clash(self, other: "_Candidate") -> float:
        """Return how bad it is to have both."""
        if not self.reach.touches(other.reach):
            return 0.0
        crossed = sum(other.box.holds(*point) for point in self.leading)
        crossed += sum(self.box.holds(*point) for point in other.leading)
        crossed += bool(self.leading and other.leading and _cross(self.leading, other.leading))
        return 4 * self.box.overlap(other.box) + 150 * crossed


def _cross(one: Sequence[Point], other: Sequence[Point]) -> bool:
    """Return whether two straight lines cross: each has the other's ends on different sides."""
    return _parts(one, other) and _parts(other, one)


def _parts(line: Sequence[Point], ends: Sequence[Point]) -> bool:
    (x0, y0), (x1, y1) = line[0], line[-1]
    sides = [(x1 - x0) * (y - y0) - (y1 - y0) * (x - x0) for x, y in (ends[0], ends[-1])]
    return sides[0] * sides[1] < 0


def text_width(text: str, size: float) -> float:
    """Return about how wide a text is in a proportional font; wide (East Asian) letters count in full."""
    widths = (1.0 if east_asian_width(letter) in "WF" else 0.68 if letter.isupper() else 0.56 for letter in text)
    return size * sum(widths)


def spaced_ticks(ticks: Iterable[Tick], size: float = 12.0) -> tuple[Tick, ...]:
    """Return the ticks, in order, without those whose text would touch the one before."""
    kept: list[Tick] = []
    for tick in ticks:
        half = text_width(tick.text, size) / 2
        if not kept or tick.place - half > kept[-1].place + text_width(kept[-1].text, size) / 2 + size / 2:
            kept.append(tick)
    return tuple(kept)


def place_labels(
    spots: Sequence[LabelTarget], frame: Rect, size: float = 12.0, obstacles: Sequence[Rect] = ()
) -> list[PlacedLabel]:
    """Return a label for every mark, in their order; `obstacles` should not be covered either."""
    taken = [*(spot.body for spot in spots), *obstacles]
    ring = [_worth_a_look(_places(spot, frame, size, taken)) for spot in spots]
    forwards = range(len(spots))
    found = min((_descend(ring, order) for order in (forwards, forwards[::-1])), key=_total)
    return [_label(spot, place.box, size) for spot, place in zip(spots, found, strict=True)]


def _descend(ring: Sequence[Sequence[_Candidate]], order: Iterable[int]) -> list[_Candidate]:
    """Give each mark in turn the best place, given the others', until nothing changes."""
    chosen = [places[0] for places in ring]
    for _ in range(_MOST_PASSES):
        before = list(chosen)
        for index in order:
            others = [place for at, place in enumerate(chosen) if at != index]
            chosen[index] = min(ring[index], key=lambda place: place.badness + sum(map(place.clash, others)))
        if chosen == before:
            break
    return chosen


def _total(chosen: Sequence[_Candidate]) -> float:
    clashes = sum(one.clash(other) for index, one in enumerate(chosen) for other in chosen[:index])
    return clashes + sum(place.badness for place in chosen)


def _worth_a_look(places: Iterable[_Candidate]) -> list[_Candidate]:
    ranked = sorted(places, key=lambda place: place.badness)
    return [place for place in ranked if place.badness <= ranked[0].badness + _HOPELESS]


def _places(spot: LabelTarget, frame: Rect, size: float, taken: Sequence[Rect]) -> Iterator[_Candidate]:
    for box in _ring(spot, size):
        covered = 3 * sum(map(box.overlap, taken))
        reach = Rect(min(box.left, spot.x), min(box.top, spot.y), max(box.right, spot.x), max(box.bottom, spot.y))
        yield _Candidate(
            box, _leading(box, spot), reach, covered + 500 * box.beyond(frame) + 2.5 * _distance(box, spot)
        )


def _ring(spot: LabelTarget, size: float) -> Iterator[Rect]:
    width, height = text_width(spot.text, size), 1.15 * size
    for radius in _RADII:
        for across, down in _DIRECTIONS:
            middle_x = spot.x + across * (_GAP + radius + width / 2)
            middle_y = spot.y + down * (_GAP + radius + height / 2)
            yield Rect(middle_x - width / 2, middle_y - height / 2, middle_x + width / 2, middle_y + height / 2)


def _leading(box: Rect, spot: LabelTarget) -> tuple[Point, ...]:
    """Return points along the line that would lead from the label to its mark; none where they are near."""
    if _distance(box, spot) <= _LEADER_FROM:
        return ()
    x, y = _nearest(box, spot)
    return tuple((x + step * (spot.x - x) / 8, y + step * (spot.y - y) / 8) for step in range(1, 9))


def _distance(box: Rect, spot: LabelTarget) -> float:
    x, y = _nearest(box, spot)
    return hypot(x - spot.x, y - spot.y)


def _nearest(box: Rect, spot: LabelTarget) -> Point:
    """Return the point of a box that is nearest to a mark."""
    return min(max(spot.x, box.left), box.right), min(max(spot.y, box.top), box.bottom)


def _label(spot: LabelTarget, box: Rect, size: float) -> PlacedLabel:
    near_x, near_y = _nearest(box, spot)
    far = _distance(box, spot) > _LEADER_FROM
    leader = f"M{spot.x:.1f} {spot.y:.1f}L{near_x:.1f} {near_y:.1f}" if far else ""
    anchor, x = ("start", box.left) if near_x == box.left else ("end", box.right)
    if box.left < spot.x < box.right:
        anchor, x = "middle", (box.left + box.right) / 2
    return PlacedLabel(box, x, box.bottom - 0.3 * size, anchor, leader)
