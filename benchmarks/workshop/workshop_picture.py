"""Draw the workshop's figures: how often each way is right, for how many CPU seconds, and what cut and choice gain.

    python benchmarks/workshop/workshop_picture.py [--out docs/images/where-conducting-pays.svg]

It takes rows by name from the tables of docs/results/workshop.md, so that the picture says what the page says. Colors
follow the reader's light or dark mode.
"""

import argparse
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

ROOT = Path(__file__).parents[2]
_WAYS = {  # the name in the picture: section and name of the row
    "one 1.5B agent, whole task": ("The cut", "1.5B agent, whole task"),
    "one 1.5B agent with Python, whole task": ("The cut", "1.5B agent with Python, whole task"),
    "true cut, the 1.5B for every part": ("Controls", "1.5B in one wording, cut"),
    "learned cut, learned choice": ("The cut", "learned cut, learned choice"),
    "true cut, learned choice": ("The cut", "true cut, learned choice"),
    "true cut, oracle over the treatments": ("Controls", "oracle over the treatments, cut"),
}
_GAINS = {
    "true cut alone, over the agent with Python": ("Controls", "the same over the 1.5B with Python and the whole task"),
    "who does each part (table, told the family)": (
        "Controls",
        "who does each part: the second table over the 1.5B in one wording, both cut",
    ),
    "learned cut and choice, over that agent": (
        "The cut",
        "learned cut and choice over the 1.5B with Python and the whole task",
    ),
}
_OWN = ("learned cut, learned choice", "learned cut and choice, over that agent")
_ROW = re.compile(
    r"\| (?P<name>[^|]+) \| (?P<mean>\S+) \[(?P<low>\S+), (?P<high>\S+)\] \|(?: (?P<s>\S+) \|)? (?P<n>\d+) \|"
)
_LEFT, _RIGHT, _WIDTH, _STEP = 290.0, 600.0, 860, 24.0
_STYLE = (
    ".page{fill:#fff}text{fill:#1f2328}.dim{fill:#59636e}.grid{stroke:#d8dee4}.zero{stroke:#59636e}"
    ".other{stroke:#6e7781;fill:#6e7781}.own{stroke:#0072b2;fill:#0072b2}text.own{stroke:none;font-weight:bold}"
    "@media(prefers-color-scheme:dark){.page{fill:#0d1117}text{fill:#e6edf3}.dim{fill:#9198a1}.grid{stroke:#30363d}"
    ".zero{stroke:#9198a1}.other{stroke:#9198a1;fill:#9198a1}.own{stroke:#56b4e9;fill:#56b4e9}}"
)


@dataclass(frozen=True, slots=True)
class Figure:
    """A row of a table: its name in the picture, a mean with its 95 % interval, and all its numbers in words."""

    name: str
    mean: float
    low: float
    high: float
    note: str


def figure(page: str, shown: str, section: str, name: str) -> Figure:
    """Return a row by the section and the name that stand on the page."""
    text = page.partition(f"\n## {section}\n")[2].partition("\n## ")[0].replace("**", "")
    for row in _ROW.finditer(text):
        if row["name"] == name:
            seconds = f", {row['s']} s" if row["s"] else ""
            mean, low, high = (float(row[key].replace("−", "-")) for key in ("mean", "low", "high"))
            spread = "" if row["s"] else f" [{row['low']}, {row['high']}]"
            return Figure(shown, mean, low, high, f"{row['mean']}{spread}{seconds}, {row['n']} tasks")
    sys.exit(f'docs/results/workshop.md, "{section}": no row "{name}" of the form | name | mean [low, high] | ... |')


def _text(x: float, y: float, words: str, look: str = "", anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:g}" class="{look}" text-anchor="{anchor}">{escape(words)}</text>'


def _panel(title: str, more: str, rows: Sequence[Figure], top: float, ticks: Sequence[str]) -> list[str]:
    ends = float(ticks[0]), float(ticks[-1])

    def across(value: float) -> float:
        return _LEFT + (_RIGHT - _LEFT) * (value - ends[0]) / (ends[1] - ends[0])

    parts = [f'<text x="14" y="{top:g}" font-size="15">{title}</text>', _text(14, top + 19, more, "dim")]
    top += 42
    for tick in ticks:
        x, look = across(float(tick)), "grid" if float(tick) else "zero"
        parts.append(_text(x, top, tick, "dim", "middle"))
        parts.append(f'<path class="{look}" d="M{x:.1f} {top + 6:g}V{top + 12 + _STEP * len(rows):g}"/>')
    for place, row in enumerate(rows):
        y, look = top + 22 + _STEP * place, "own" if row.name in _OWN else "other"
        parts.append(_text(_LEFT - 14, y + 4, row.name, "own" if look == "own" else "", "end"))
        parts.append(f'<path class="{look}" stroke-width="2" d="M{across(row.low):.1f} {y:g}H{across(row.high):.1f}"/>')
        parts.append(f'<circle class="{look}" cx="{across(row.mean):.1f}" cy="{y:g}" r="4"/>')
        parts.append(_text(_RIGHT + 18, y + 4, row.note, "dim"))
    return parts


def main() -> None:
    """Write the picture."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "docs/images/where-conducting-pays.svg")
    chosen = parser.parse_args()
    page = (ROOT / "docs/results/workshop.md").read_text(encoding="utf-8")
    ways, gains = ([figure(page, name, *row) for name, row in kind.items()] for kind in (_WAYS, _GAINS))
    more = "two local models and exact tools, held-out tasks of public items, real answers replayed; 95 % intervals"
    parts = _panel("Share right, and CPU seconds a task", more, ways, 24, ("0", ".2", ".4", ".6", ".8"))
    more, top = (
        "difference of the share right on the same tasks, paired; 95 % intervals over parts",
        66 + _STEP * len(ways) + 44,
    )
    parts += _panel(
        "What the cut and the choice of workers gain", more, gains, top, ("-.1", "0", "+.1", "+.2", "+.3", "+.4", "+.5")
    )
    height = top + 42 + _STEP * len(gains) + 24
    chosen.out.write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height:g}" font-family="sans-serif" '
        f'font-size="12" role="img"><title>Where conducting pays: real models on public tasks</title>'
        f'<style>{_STYLE}</style><rect class="page" width="100%" height="100%"/>{"".join(parts)}</svg>\n',
        encoding="utf-8",
    )


if __name__ == "__main__":
    main()
