"""The page of a learned policy: one HTML file that needs nothing else, in the style of an evaluation's page.

Invariants: every text from a log is cleaned and escaped where the templates are rendered (`evaluate.page`); the page
loads nothing and runs no script but its own; every figure in a drawing also stands in a table or a text. Deliberately
absent: counting, and any figure that the policy file does not hold.
"""

from base64 import b64encode
from collections.abc import Mapping
from hashlib import sha256

from shikisha.evaluate.drawing import Scale, Tick, even_scale
from shikisha.evaluate.entries import Interval
from shikisha.evaluate.page import environment_of
from shikisha.evaluate.plots_cost import Size
from shikisha.evaluate.plots_interval import IntervalPlot
from shikisha.evaluate.plots_interval import Line as Place
from shikisha.evaluate.wording import points, span
from shikisha.learn import summary
from shikisha.learn.figures import best_single, hardly_known, lines, marks, overspent, reach, usual
from shikisha.learn.frontier import POINTS
from shikisha.learn.plots import frontier_plot
from shikisha.learn.plots_dial import accuracy_promises, asks, cost_promises, kept, stack
from shikisha.learn.ways import asked, ways
from shikisha.policy.dial import Aim
from shikisha.policy.policy import Gain, Policy

_WIDE, _NARROW = Size(1200, 560), Size(350, 420, 11, 19)
_EDGES = (8.0, 92.0)  # per cent of an axis' width


def render(policy: Policy, version: str, uses: tuple[tuple[str, str], ...] = ()) -> str:
    """Return the page; MissingExtra when jinja2 is not installed."""
    environment = environment_of("shikisha.learn", "shikisha.evaluate")
    environment.filters["met_span"] = lambda met: span(Interval(met.low, met.high))
    environment.filters["gain_span"] = lambda gain: span(Interval(gain.low, gain.high), signed=True)
    script = environment.get_template("page.js").render()
    digest = b64encode(sha256(script.encode()).digest()).decode()
    return environment.get_template("policy.html.jinja").render(
        {"policy": policy, "version": version, "uses": uses, "script_digest": digest}
        | {**_words(policy), **_figures(policy), **_dial(policy)}
    )


def _words(policy: Policy) -> Mapping[str, object]:
    evidence = policy.rung().evidence
    return {
        "name": summary.name(policy.about),
        "best": best_single(policy),
        "few": hardly_known(policy),
        "unit": policy.rung().dial.unit,
        "source": summary.source(policy),
        "yardstick": summary.yardstick(policy),
        "headline": summary.headline(policy),
        "kept_word": summary.kept_word(evidence) if evidence else "",
        "needs": {rung.name: _needed(rung.evidence.needs) for rung in policy.rungs[1:] if rung.evidence},
    }


def _needed(outcomes: int | None) -> str:
    return "nobody can say" if outcomes is None else f"about {outcomes:,}" if outcomes else "none"


def _figures(policy: Policy) -> Mapping[str, object]:
    measured = lines(policy)
    best = policy.rung().dial.best_single
    return {
        "budgets": POINTS,
        "rows": [(line, [(line.at(budget), budget) for budget in POINTS]) for line in measured],
        "overspent": overspent,
        "reached": {line.name: reach(line.frontier, best) for line in measured},
        "marks": marks(policy),
        "wide": frontier_plot(policy, _WIDE),
        "narrow": frontier_plot(policy, _NARROW, named=False),
        "gains": [(rung.name, gain) for rung in policy.rungs if rung.evidence for gain in rung.evidence.gains],
        "gain_axis": gain_axis(policy),
    }


def _dial(policy: Policy) -> Mapping[str, object]:
    rung = policy.rung()
    held = kept(rung)
    mix, wish = usual(rung)
    return {
        "kept": held,
        "accuracy_promises": accuracy_promises(held) if held else None,
        "cost_promises": cost_promises(held),
        "shares": asks(policy, rung),
        "wide_stack": stack(policy, rung, 760.0),
        "narrow_stack": stack(policy, rung, 350.0),
        "mix": mix,
        "setting": "its best setting"
        if wish.aim is Aim.BEST
        else "the setting that is as good as the best single worker",
        "ways": ways(policy, mix),
        "asked": asked(policy, mix) or {},
    }


def gain_axis(policy: Policy) -> IntervalPlot:
    """Return the gains of the rungs on one axis that holds 0, by `rung over other`; tick texts are points."""
    found = {
        f"{rung.name} over {gain.over}": gain
        for rung in policy.rungs
        if rung.evidence is not None
        for gain in rung.evidence.gains
    }
    scale = even_scale([0.0, *(end for gain in found.values() for end in (gain.low, gain.high))], _EDGES, 4)
    ticks = tuple(Tick(scale(value), points(value).removesuffix(".0") if value else "0") for value in scale.ticks(4))
    return IntervalPlot(ticks, scale(0.0), {name: _place(scale, gain) for name, gain in found.items()})


def _place(scale: Scale, gain: Gain) -> Place:
    low, mean, high = (round(scale(value), 2) for value in (gain.low, gain.mean, gain.high))
    return Place(low, mean, high)
