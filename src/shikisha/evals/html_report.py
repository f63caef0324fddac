"""The page of an evaluation: one HTML file that needs nothing else, for a browser, a printer or an archive.

Invariants: every text from the evaluation is cleaned of control characters and escaped at one place (`environment_of`),
whatever the templates do with it; the page may load nothing and runs no script but its own, which it says itself in a
content security policy; every figure in a drawing also stands in a table or in a text alternative. Deliberately absent:
a plotting library (an image of this would know neither dark mode nor a telephone), and counting.

Tables of shares, row by row: accuracies by domain and difficulty, workers' shares by domain.

Invariants: a cell that nobody filled is None and not 0; a worker's columns add up to the row's steps, since those
beyond the most used stand together under `others`. Deliberately absent: colours (the page's style reads the share).
"""

from base64 import b64encode
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING

from shikisha.core.budget import format_dollars
from shikisha.core.errors import MissingExtra
from shikisha.core.text import clean_text
from shikisha.evals import report_text
from shikisha.evals.entrant_metrics import EntrantFigures, EvaluationReport, TaskGroup
from shikisha.evals.report_text import (
    abbreviate_names,
    best_single_entry,
    caveat_sentences,
    headline_sentences,
    reading_order,
)
from shikisha.evals.samples import EntrantRole
from shikisha.plots.eval_charts import (
    ChartSize,
    TopologyGraph,
    accuracy_intervals,
    cost_chart,
    difference_intervals,
    reliability_diagram,
    router_charts,
    topology_graph,
)

OTHERS = "others"
_MOST_WORKERS = 16


@dataclass(frozen=True, slots=True)
class ShareRow:
    """A row's name, how many tasks are in it (None: not said), and a share for each column (None: not known)."""

    name: str
    tasks: int | None
    cells: tuple[float | None, ...]


@dataclass(frozen=True, slots=True)
class ShareMatrix:
    """A table of shares."""

    columns: tuple[str, ...]
    rows: tuple[ShareRow, ...]


def accuracy_matrix(entries: Sequence[EntrantFigures], *, by_difficulty: bool = False) -> ShareMatrix:
    """Return accuracies, a row a domain (or difficulty) and a column an entrant; tasks are the most of any entrant."""
    groups = [entry.difficulties if by_difficulty else entry.domains for entry in entries]
    names = dict.fromkeys(name for group in groups for name in group)
    if set(names) == {""}:  # a set without domains
        return ShareMatrix((), ())
    rows = tuple(_accuracies(name, groups) for name in names)
    return ShareMatrix(tuple(entry.name for entry in entries), rows)


def share_matrix(entry: EntrantFigures) -> ShareMatrix:
    """Return the workers' shares of an entrant's steps: over all tasks, then by domain."""
    workers = _most_used(entry)
    rows = [ShareRow("all tasks", entry.tasks, _worker_shares(entry.workers, workers))]
    if set(entry.domains) != {""}:
        rows += [
            ShareRow(name, group.tasks, _worker_shares(group.workers, workers)) for name, group in entry.domains.items()
        ]
    return ShareMatrix(workers, tuple(rows))


def failure_matrix(entries: Iterable[EntrantFigures]) -> ShareMatrix:
    """Return how many runs of an entrant ended without an answer for which fault; those without any are left out."""
    failed = [entry for entry in entries if any(entry.failures.values())]
    kinds: Counter[str] = Counter()
    for entry in failed:
        kinds.update(entry.failures)
    columns = tuple(kind for kind, count in kinds.most_common() if count)
    rows = (
        ShareRow(entry.name, entry.tasks, tuple(entry.failures.get(kind, 0) for kind in columns)) for entry in failed
    )
    return ShareMatrix(columns, tuple(rows))


def _accuracies(name: str, groups: Sequence[Mapping[str, TaskGroup]]) -> ShareRow:
    found = [group.get(name) for group in groups]
    tasks = max(each.tasks for each in found if each is not None)
    return ShareRow(name or "(none)", tasks, tuple(each.accuracy if each else None for each in found))


def _most_used(entry: EntrantFigures) -> tuple[str, ...]:
    peaks = dict(entry.workers)
    for group in entry.domains.values():
        for worker, share in group.workers.items():
            peaks[worker] = max(share, peaks.get(worker, 0.0))
    ranked = sorted((worker for worker, peak in peaks.items() if peak > 0), key=lambda worker: -peaks[worker])
    shown = set(ranked) if len(ranked) <= _MOST_WORKERS else set(ranked[: _MOST_WORKERS - 1])
    listed = sorted(shown, key=lambda worker: -entry.workers.get(worker, 0.0))
    return (*listed, OTHERS) if len(shown) < len(ranked) else tuple(listed)


def _worker_shares(shares: Mapping[str, float], workers: Sequence[str]) -> tuple[float | None, ...]:
    known = {worker: shares.get(worker, 0.0) for worker in workers if worker != OTHERS}
    rest = max(0.0, sum(shares.values()) - sum(known.values()))
    return tuple((known.get(worker, rest) or None) for worker in workers)


if TYPE_CHECKING:
    from jinja2 import Environment

_WIDE, _NARROW = ChartSize(1200, 600), ChartSize(350, 500, 11, 19, 22)
_MOST_GRAPHS = 6
_TEMPLATES_PACKAGE = "shikisha.evals"
_LONGEST = 2_000
_FILTERS = (
    report_text.percent,
    report_text.points,
    report_text.span,
    format_dollars,
    report_text.total_dollars,
    report_text.samples,
    report_text.seconds,
    report_text.count,
    report_text.compact,
    report_text.plural,
    report_text.verdict,
)


def render_html_report(report: EvaluationReport) -> str:
    """Return the page; MissingExtra when jinja2 is not installed."""
    report, whole = abbreviate_names(report)
    environment = page_environment(_TEMPLATES_PACKAGE)
    script = environment.get_template("page.js").render()
    digest = b64encode(sha256(script.encode()).digest()).decode()
    return environment.get_template("page.html.jinja").render(
        {"report": report, "whole": whole, "parts": report_text.PARTS, "script_digest": digest}
        | {**_page_texts(report), **_page_charts(report)}
    )


def _page_texts(report: EvaluationReport) -> Mapping[str, object]:
    shown = reading_order(report)
    return {
        "entries": shown,
        "single": best_single_entry(report),
        "headline": headline_sentences(report),
        "caveats": caveat_sentences(report),
        "by_domain": accuracy_matrix(shown),
        "by_difficulty": accuracy_matrix(shown, by_difficulty=True),
        "failures": failure_matrix(shown),
        "shares": [(entry, share_matrix(entry)) for entry in shown if len(entry.workers) > 1],
        "second": [entry for entry in shown if entry.second_round and entry.second_round.runs],
    }


def _page_charts(report: EvaluationReport) -> Mapping[str, object]:
    shown = reading_order(report)
    planned = [entry for entry in shown if entry.part not in (EntrantRole.SINGLE, EntrantRole.ORACLE)]
    return {
        "wide_cost": cost_chart(report, shown, _WIDE),
        "narrow_cost": cost_chart(report, shown, _NARROW),
        "accuracy_axis": accuracy_intervals(shown),
        "forests": [
            (part, difference_intervals(part)) for part in _forest_groups(shown) if any(entry.against for entry in part)
        ],
        "reliabilities": [(entry, reliability_diagram(entry.calibration)) for entry in shown if entry.calibration],
        "routers": router_charts(report.curves),
        "topologies": [(entry, _topology_graphs(entry)) for entry in planned if entry.topologies],
    }


def _forest_groups(entries: Sequence[EntrantFigures]) -> tuple[list[EntrantFigures], list[EntrantFigures]]:
    """Part the entrants into those worth a close look, near the best single worker, and the rest, far from it."""
    close = (EntrantRole.ASKED, EntrantRole.FIXED, EntrantRole.CONSISTENCY)
    return [entry for entry in entries if entry.part in close], [entry for entry in entries if entry.part not in close]


def _topology_graphs(entry: EntrantFigures) -> list[tuple[TopologyGraph, int]]:
    most = sorted(entry.graphs, key=lambda pair: -pair[1])[:_MOST_GRAPHS]
    return [(topology_graph(access), count) for access, count in most if access]


def page_environment(*packages: str) -> "Environment":
    """Return what renders the templates in these packages' `pages`, the first that has one of a name."""
    try:
        from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
    except ImportError:
        raise MissingExtra("eval", "the HTML page") from None
    environment = Environment(
        loader=ChoiceLoader([PackageLoader(package, "pages") for package in packages]),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_clean_value,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update({each.__name__: each for each in _FILTERS})
    return environment


def _clean_value(value: object) -> object:
    """Clean a text that is about to be escaped, and keep per cent signs at their numbers; markup is left as it is."""
    if not isinstance(value, str) or hasattr(value, "__html__"):
        return value
    return clean_text(value[:_LONGEST]).replace("\n", " ").replace(" %", "\u00a0%")
