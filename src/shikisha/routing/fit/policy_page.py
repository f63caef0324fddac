"""The HTML page of a learned policy: one file that loads nothing else.

Invariants: log texts are cleaned and escaped where templates are rendered; the page runs no script but its own; every
figure in a plot is also in a table or text, and comes from the policy file.
"""

from collections.abc import Mapping

from shikisha.evals.entrant_metrics import ConfidenceInterval
from shikisha.evals.report_text import span
from shikisha.plots.charts import ChartSize
from shikisha.plots.page import page_environment, render_page
from shikisha.routing.fit import policy_report
from shikisha.routing.fit.cost_frontier import REPORTED_BUDGETS
from shikisha.routing.fit.policy_charts import (
    budget_checks,
    frontier_chart,
    setting_shares,
)
from shikisha.routing.fit.policy_figures import (
    ask_shares,
    best_single_worker,
    cost_to_reach,
    default_setting,
    fixed_cost_baselines,
    frontier_lines,
    is_overspent,
    usage_by_type,
    workers_with_few_outcomes,
)
from shikisha.routing.policy_data import Policy
from shikisha.routing.trade_off import TargetMetric

_WIDE, _NARROW = ChartSize(1200, 560, right=150), ChartSize(350, 420, 11, 19)


def render_policy_page(policy: Policy, version: str, uses: tuple[tuple[str, str], ...] = ()) -> str:
    """Return the page; MissingExtra when jinja2 is not installed."""
    environment = page_environment("shikisha.routing.fit")
    environment.filters["met_span"] = lambda met: span(ConfidenceInterval(met.low, met.high))
    environment.filters["gain_span"] = lambda gain: span(ConfidenceInterval(gain.low, gain.high), signed=True)
    values = {"policy": policy, "version": version, "uses": uses}
    evidence = policy.rung().evidence
    text_values = {
        "name": policy_report.log_name(policy.about),
        "best": best_single_worker(policy),
        "few": workers_with_few_outcomes(policy),
        "unit": policy.rung().dial.unit,
        "source": policy_report.describe_source(policy),
        "yardstick": policy_report.describe_best_single(policy),
        "reference": policy_report.cost_reference(policy),
        "headline": policy_report.describe_result(policy),
        "kept_word": policy_report.describe_promises(evidence) if evidence else "",
        "needs": {
            candidate.name: _format_needed(candidate.evidence.needs, len(policy.workers) * policy.about.tasks)
            for candidate in policy.rungs[1:]
            if candidate.evidence
        },
    }
    values |= {**(text_values), **_figure_values(policy), **_trade_off_values(policy)}
    return render_page(environment, "policy.html.jinja", values)


def _format_needed(outcomes: int | None, recorded: int) -> str:
    if outcomes is not None and outcomes > policy_report.MOST_NEEDED * recorded:
        return "too many to tell"
    return "unknown" if outcomes is None else f"about {outcomes:,}" if outcomes else "none"


def _figure_values(policy: Policy) -> Mapping[str, object]:
    measured = frontier_lines(policy)
    best = policy.rung().dial.best_single
    return {
        "budgets": REPORTED_BUDGETS,
        "rows": [(line, [(line.at(budget), budget) for budget in REPORTED_BUDGETS]) for line in measured],
        "overspent": is_overspent,
        "reached": {line.name: cost_to_reach(line.frontier, best) for line in measured},
        "marks": fixed_cost_baselines(policy),
        "wide": frontier_chart(policy, _WIDE),
        "narrow": frontier_chart(policy, _NARROW, named=False),
        "gains": [
            (candidate.name, gain)
            for candidate in policy.rungs
            if candidate.evidence
            for gain in candidate.evidence.gains
        ],
    }


def _trade_off_values(policy: Policy) -> Mapping[str, object]:
    candidate = policy.rung()
    budgets = budget_checks(candidate)
    mix, wish = default_setting(candidate)
    return {
        "kept": budgets,
        "shares": setting_shares(policy, candidate),
        "mix": mix,
        "setting": "its best setting"
        if wish.aim is TargetMetric.BEST
        else "the setting that is as good as the best single worker",
        "ways": usage_by_type(policy, mix),
        "asked": ask_shares(policy, mix) or {},
    }
