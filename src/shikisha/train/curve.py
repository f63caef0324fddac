"""The curve of a training for a terminal: how often it was right, step by step, beside what others come to.

`●` is what the likeliest plans came to on tasks that it does not learn from; the fine line is what was sampled in
training, where tasks near a 50 % success rate come more often, so it is no measure of ability. Invariants: no line is
wider than the width; figures at points and levels are what was counted, whatever the row they fall into. Deliberately
absent: other figures (`screen` and `page` have them).
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from shikisha.clean import one_line
from shikisha.train import figures
from shikisha.train.progress import Judged, Step

if TYPE_CHECKING:
    from rich.text import Text

_ROWS = 13  # from 0 to 100 %, both ends included
_AXIS = 7  # columns before the drawing
_NARROWEST, _WIDEST = 20, 90  # columns of the drawing
_NAMED = 24  # characters of what stands beside a level
_BRAILLE, _DOTS = 0x2800, ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))  # by column, then from the top
_APART = 5  # columns between points that each have their figure
_SMOOTHED = 9  # steps

Cells = dict[tuple[int, int], tuple[str, str]]  # (row from the top, column) → character and style


def curve(steps: Sequence[Step], width: int) -> list["Text"]:
    """Return the drawing's lines, for a terminal of this width; none where there are no steps."""
    from rich.text import Text

    if not steps:
        return []
    judged = figures.judged(steps)
    beside = _beside(judged)
    named = {row: text for _, row, text in beside}
    room = max(_NARROWEST, min(_WIDEST, width - _AXIS - max(map(len, named.values()), default=0) - 1))
    cells: Cells = {(row, column): ("┄", "dim") for row, _, _ in beside for column in range(room)}
    cells |= _sampled(steps, room)
    cells |= _points(judged, steps[-1].of, room)
    lines = [Text(line, "bold") for line in _title(judged)]
    for row in range(_ROWS):
        share = round(100 * (1 - row / (_ROWS - 1)))
        line = Text(f"{share:>3} % ┤" if row % 3 == 0 else f"{'│':>{_AXIS}}", "dim")
        for column in range(room):
            line.append(*cells.get((row, column), (" ", "")))
        lines.append(line.append(f" {named[row]}" if row in named else "", "dim"))
    lines.append(Text(f"{'└':>{_AXIS}}{'─' * room}", "dim"))
    lines.append(Text(f"{'step 1':>{_AXIS + 5}}{steps[-1].of:>{room - 5},}", "dim"))
    for line in lines:
        line.truncate(width, overflow="ellipsis")
    return lines


def _title(judged: Sequence[tuple[int, Judged]]) -> Iterator[str]:
    if judged:
        yield f"● right on {judged[-1][1].count:,} tasks that it does not learn from, the likeliest plan of each"
    yield "⠒ right of what is sampled in training, where tasks near 50 % come more often"


def _beside(judged: Sequence[tuple[int, Judged]]) -> list[tuple[int, int, str]]:
    """Return what others come to, best first: its row, the row beside which it is named, and its name and figure."""
    found = sorted(judged[-1][1].beside.items(), key=lambda pair: -pair[1]) if judged else []
    told: list[tuple[int, int, str]] = []
    free = 0
    for place, (name, share) in enumerate(found):
        named = min(max(free, _row(share)), _ROWS - (len(found) - place))
        told.append((_row(share), named, f"{one_line(name, _NAMED)} {100 * share:.0f} %"))
        free = named + 1
    return told[:_ROWS]


def _row(share: float, rows: int = _ROWS) -> int:
    return round((1 - min(1.0, max(0.0, share))) * (rows - 1))


def _column(number: int, of: int, columns: int) -> int:
    return round((min(number, of) - 1) / max(1, of - 1) * (columns - 1))


def _sampled(steps: Sequence[Step], room: int) -> Cells:
    """Draw what was sampled, two columns and four rows of dots to a character."""
    dots: dict[tuple[int, int], int] = {}
    shares = figures.smoothed([step.right for step in steps], _SMOOTHED)
    for step, share in zip(steps, shares, strict=True):
        if share is not None:
            x, y = _column(step.number, step.of, 2 * room), _row(share, 4 * _ROWS)
            place = (y // 4, x // 2)
            dots[place] = dots.get(place, 0) | _DOTS[x % 2][y % 4]
    return {place: (chr(_BRAILLE + held), "cyan") for place, held in dots.items()}


def _points(judged: Sequence[tuple[int, Judged]], of: int, room: int) -> Cells:
    """Draw a point for each judgement, with its figure above it where the one before leaves room."""
    cells: Cells = {}
    free = 0
    for place, (number, found) in enumerate(judged):
        row, column = _row(found.right), _column(number, of, room)
        cells[row, column] = ("●", "bold green")
        figure = f"{100 * found.right:.0f}"
        begin = min(column, room - len(figure))
        if (begin >= free and row) or place == len(judged) - 1:
            above = row - 1 if row else row + 1
            cells |= {(above, begin + at): (digit, "green") for at, digit in enumerate(figure)}
            free = begin + _APART
    return cells
