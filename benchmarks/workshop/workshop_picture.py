"""The picture of the workshop: how often each way is right, for how many CPU seconds, and where conducting pays.

`workshop_cut.py --picture FILE` draws it. Its colors follow the reader's: light or dark.
"""

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

from workshop_controls import Outcome, interval
from workshop_tasks import WorkshopTask

Row = tuple[Sequence[WorkshopTask], Sequence[Outcome]]
_LEFT, _RIGHT, _WIDTH, _STEP = 270.0, 610.0, 860, 24.0
_STYLE = (
    ".page{fill:#fff}text{fill:#1f2328}.dim{fill:#59636e}.grid{stroke:#d8dee4}.zero{stroke:#59636e}"
    ".other{stroke:#6e7781;fill:#6e7781}.own{stroke:#0072b2;fill:#0072b2}text.own{stroke:none;font-weight:bold}"
    "@media(prefers-color-scheme:dark){.page{fill:#0d1117}text{fill:#e6edf3}.dim{fill:#9198a1}.grid{stroke:#30363d}"
    ".zero{stroke:#9198a1}.other{stroke:#9198a1;fill:#9198a1}.own{stroke:#56b4e9;fill:#56b4e9}}"
)


def write_picture(file: Path, rows: Mapping[str, Row], own: str, gains: Mapping[str, Row], over: Row) -> None:
    """Draw shares of right answers by way, and below what `own` gains over one agent on the tasks of each kind."""
    parts = ['<text x="14" y="24" font-size="15">Right on held-out tasks, CPU seconds a task at one thread</text>']
    parts.append(
        _text(14, 43, "real local models and tools, public items, replayed from recorded answers; 95 %", "dim")
    )
    top, drawn = 66.0, []
    for name, (tasks, outcomes) in rows.items():
        values = [float(each.right) for each in outcomes]
        seconds = sum(each.seconds for each in outcomes) / len(outcomes)
        mean = sum(values) / len(values)
        note = f"{mean:.3f}".lstrip("0") + f", {seconds:.1f} s, {len(tasks)} tasks"
        drawn.append((name, mean, *interval(values, tasks), note, "own" if name == own else "other"))
    parts += _panel(drawn, top, (0.0, 0.8), {0.0: "0", 0.2: ".2", 0.4: ".4", 0.6: ".6", 0.8: ".8"})
    top += _STEP * len(drawn) + 62
    parts.append(f'<text x="14" y="{top - 24:g}" font-size="15">Points that the learned cut and choice gain</text>')
    parts.append(
        _text(14, top - 5, "over the 1.5B agent with Python, on the same tasks; blue: the interval excludes 0", "dim")
    )
    single, drawn = dict(zip((task.name for task in over[0]), over[1], strict=True)), []
    for name, (tasks, outcomes) in gains.items():
        differences = [
            100.0 * (each.right - single[task.name].right)
            for task, each in zip(tasks, outcomes, strict=True)
            if task.name in single
        ]
        shared = [task for task in tasks if task.name in single]
        low, high = interval(differences, shared)
        mean = sum(differences) / len(differences)
        note = f"{mean:+.0f} [{low:+.0f}, {high:+.0f}], {len(shared)} tasks"
        drawn.append((name, mean, low, high, note, "own" if low > 0 else "other"))
    top += 18
    parts += _panel(
        drawn, top, (-20.0, 80.0), {at: f"{at:+g}" if at else "0" for at in (-20.0, 0.0, 20.0, 40.0, 60.0, 80.0)}
    )
    height = top + _STEP * len(drawn) + 14
    title = "Where conducting pays: real models on public tasks"
    file.write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height:g}" font-family="sans-serif" '
        f'font-size="12" role="img"><title>{title}</title><style>{_STYLE}</style>'
        f'<rect class="page" width="100%" height="100%"/>{"".join(parts)}</svg>\n',
        encoding="utf-8",
    )


def _panel(
    rows: Sequence[tuple[str, float, float, float, str, str]],
    top: float,
    ends: tuple[float, float],
    ticks: Mapping[float, str],
) -> list[str]:
    def across(value: float) -> float:
        share = (min(max(value, ends[0]), ends[1]) - ends[0]) / (ends[1] - ends[0])
        return _LEFT + (_RIGHT - _LEFT) * share

    parts: list[str] = []
    for value, words in ticks.items():
        parts.append(_text(across(value), top + 4, words, "dim", "middle"))
        bottom = top + 12 + _STEP * len(rows)
        parts.append(f'<path class="{"grid" if value else "zero"}" d="M{across(value):.1f} {top + 10:g}V{bottom:g}"/>')
    for place, (name, mean, low, high, note, look) in enumerate(rows):
        y = top + 26 + _STEP * place
        parts.append(_text(_LEFT - 14, y + 4, name, look if look == "own" else "", "end"))
        parts.append(f'<path class="{look}" stroke-width="2" d="M{across(low):.1f} {y:g}H{across(high):.1f}"/>')
        parts.append(f'<circle class="{look}" cx="{across(mean):.1f}" cy="{y:g}" r="4"/>')
        parts.append(_text(_RIGHT + 18, y + 4, note, "dim"))
    return parts


def _text(x: float, y: float, words: str, look: str, anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:g}" class="{look}" text-anchor="{anchor}">{escape(words)}</text>'
