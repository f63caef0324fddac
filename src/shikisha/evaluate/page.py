"""The page of an evaluation: one HTML file that needs nothing else, for a browser, a printer or an archive.

Invariants: every text from the evaluation is cleaned of control characters and escaped at one place (`environment_of`),
whatever the templates do with it; the page may load nothing and runs no script but its own, which it says itself in a
content security policy; every figure in a drawing also stands in a table or in a text alternative. Deliberately absent:
a plotting library (an image of this would know neither dark mode nor a telephone), and counting.
"""

from base64 import b64encode
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING

from shikisha.budget import format_dollars
from shikisha.clean import clean
from shikisha.errors import MissingExtra
from shikisha.evaluate import wording
from shikisha.evaluate.entries import Entry, Report
from shikisha.evaluate.matrices import accuracy_matrix, failure_matrix, share_matrix
from shikisha.evaluate.names import abbreviated
from shikisha.evaluate.plots_calibration import reliability
from shikisha.evaluate.plots_cost import Size, cost_plot
from shikisha.evaluate.plots_graph import Graph, graph
from shikisha.evaluate.plots_interval import accuracies, differences
from shikisha.evaluate.plots_router import router_plots
from shikisha.evaluate.samples import Part
from shikisha.evaluate.summary import best_single, caveats, headline, ordered

if TYPE_CHECKING:
    from jinja2 import Environment

_WIDE, _NARROW = Size(1200, 600), Size(350, 500, 11, 19, 22)
_MOST_GRAPHS = 6
_HOME = "shikisha.evaluate"
_LONGEST = 2_000
_FILTERS = (
    wording.percent,
    wording.points,
    wording.span,
    format_dollars,
    wording.total_dollars,
    wording.samples,
    wording.seconds,
    wording.count,
    wording.compact,
    wording.plural,
    wording.verdict,
)


def render(report: Report) -> str:
    """Return the page; MissingExtra when jinja2 is not installed."""
    report, whole = abbreviated(report)
    environment = environment_of(_HOME)
    script = environment.get_template("page.js").render()
    digest = b64encode(sha256(script.encode()).digest()).decode()
    return environment.get_template("page.html.jinja").render(
        {"report": report, "whole": whole, "parts": wording.PARTS, "script_digest": digest}
        | {**_words(report), **_drawings(report)}
    )


def _words(report: Report) -> Mapping[str, object]:
    shown = ordered(report)
    return {
        "entries": shown,
        "single": best_single(report),
        "headline": headline(report),
        "caveats": caveats(report),
        "by_domain": accuracy_matrix(shown),
        "by_difficulty": accuracy_matrix(shown, by_difficulty=True),
        "failures": failure_matrix(shown),
        "shares": [(entry, share_matrix(entry)) for entry in shown if len(entry.workers) > 1],
        "second": [entry for entry in shown if entry.second_round and entry.second_round.runs],
    }


def _drawings(report: Report) -> Mapping[str, object]:
    shown = ordered(report)
    planned = [entry for entry in shown if entry.part not in (Part.SINGLE, Part.ORACLE)]
    return {
        "wide_cost": cost_plot(report, shown, _WIDE),
        "narrow_cost": cost_plot(report, shown, _NARROW),
        "accuracy_axis": accuracies(shown),
        "forests": [(part, differences(part)) for part in _camps(shown) if any(entry.against for entry in part)],
        "reliabilities": [(entry, reliability(entry.calibration)) for entry in shown if entry.calibration],
        "routers": router_plots(report.curves),
        "topologies": [(entry, _graphs(entry)) for entry in planned if entry.topologies],
    }


def _camps(entries: Sequence[Entry]) -> tuple[list[Entry], list[Entry]]:
    """Part the entrants into those worth a close look, near the best single worker, and the rest, far from it."""
    close = (Part.ASKED, Part.FIXED, Part.CONSISTENCY)
    return [entry for entry in entries if entry.part in close], [entry for entry in entries if entry.part not in close]


def _graphs(entry: Entry) -> list[tuple[Graph, int]]:
    most = sorted(entry.graphs, key=lambda pair: -pair[1])[:_MOST_GRAPHS]
    return [(graph(access), count) for access, count in most if access]


def environment_of(*packages: str) -> "Environment":
    """Return what renders the templates in these packages' `pages`, the first that has one of a name."""
    try:
        from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
    except ImportError:
        raise MissingExtra("eval", "the HTML page") from None
    environment = Environment(
        loader=ChoiceLoader([PackageLoader(package, "pages") for package in packages]),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_cleaned,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update({each.__name__: each for each in _FILTERS})
    return environment


def _cleaned(value: object) -> object:
    """Clean a text that is about to be escaped, and keep per cent signs at their numbers; markup is left as it is."""
    if not isinstance(value, str) or hasattr(value, "__html__"):
        return value
    return clean(value[:_LONGEST]).replace("\n", " ").replace(" %", "\u00a0%")
