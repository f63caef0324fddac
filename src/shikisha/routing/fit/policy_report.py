"""Reports on a learned policy: sentences, plain values for JSON, and tables for the terminal.

Invariants: a result is called better only where its interval excludes 0; every figure is of held-out tasks, and where
none could be held out the report says so; unknown is null in JSON and a dash in tables; log texts are cleaned and
printed without markup; a table row is one line in 80 columns, with unique short names.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

from shikisha.core.budget import format_dollars
from shikisha.core.task import scope_as_json
from shikisha.core.text import one_line
from shikisha.evals.entrant_metrics import ConfidenceInterval
from shikisha.evals.report_text import span
from shikisha.outcomes.log_reader import has_responses
from shikisha.plots.format import UNKNOWN, percent, plural, points, shorten_middle
from shikisha.routing.fit.policy_figures import (
    CONSOLE_BUDGETS,
    FrontierLine,
    TypeUsage,
    ask_shares,
    fixed_cost_baselines,
    frontier_lines,
    gain_over_simplest,
    is_overspent,
    supported_candidate,
    trade_off_settings,
    usage_by_type,
    workers_with_few_outcomes,
)
from shikisha.routing.policy_data import (
    Candidate,
    FrontierPoint,
    HeldOutEvidence,
    Policy,
    PolicyOrigin,
    VerdictKind,
)
from shikisha.routing.trade_off import OperatingMix

# The page has all rows; the terminal shows these many.
_MAX_WORKERS, _MAX_TYPES, _MAX_NOTES = 13, 15, 2
# A larger pool shows its most asked workers.
_ROWS_OF_LARGE_POOL = 10
# Column widths that fit 80 columns.
_NAME_CELLS, _TYPE_CELLS = 16, 14
_MAX_LINE = 2_000
_Z = 1.96


def log_name(about: PolicyOrigin) -> str:
    """Return the name of the log: the last part of its path."""
    return about.log.rstrip("/").rpartition("/")[2] or about.log or "outcomes"


def describe_source(policy: Policy) -> str:
    """Describe what the policy was learned from."""
    about = policy.about
    kinds = f" of {plural(len(policy.types.names), 'type')}" if policy.types.names else ""
    return f"{plural(about.tasks, 'task')}{kinds}, {plural(len(policy.workers), 'worker')}; {describe_costs(about)}"


def describe_costs(about: PolicyOrigin) -> str:
    """Describe the origin of costs."""
    return {
        "recorded": "costs as recorded",
        "derived": "costs derived from list prices",
        "": "the origin of its costs is unknown",
    }.get(about.cost_kind, f"costs {about.cost_kind}")


def describe_best_single(policy: Policy) -> str:
    """Describe the worker that costs and qualities are relative to."""
    best, trade_off = policy.best_single, policy.rung().dial
    if trade_off.unit <= 0:
        return f"Best single worker: {best.name}, {percent(best.score)}. No cost in this log is known, or all are 0."
    price = f"{format_dollars(1000 * trade_off.unit)} for 1,000 tasks"
    if best.dollars <= 0:
        reference = cost_reference(policy)
        return f"Best single worker: {best.name}, {percent(best.score)}, free. A cost of 100 % is {reference}, {price}."
    return f"Best single worker: {best.name}, {percent(best.score)} at {price}, which is a cost of 100 %."


def cost_reference(policy: Policy, own: str = "the best single worker's cost") -> str:
    """Say whose cost is 100 %: in `own` words the best single worker's, or the most expensive one's if that is free."""
    best = policy.best_single
    if best.dollars > 0 or policy.rung().dial.unit <= 0:
        return own
    return f"{max(policy.workers, key=lambda worker: worker.dollars).name}'s cost"


def describe_few_outcomes(policy: Policy) -> str:
    """Name the workers with few outcomes; empty if there are none."""
    named = [f"{worker.name} {worker.tasks:,}" for worker in workers_with_few_outcomes(policy)]
    return f"Few outcomes: {', '.join(named)}." if named else ""


def describe_verdict(policy: Policy) -> str:
    """Return what to do, in one sentence that may be obeyed; what it says of a file of an earlier version."""
    verdict = policy.about.verdict
    return verdict.text if verdict else policy.about.advice or "this file has no verdict: learn again for one"


def describe_result(policy: Policy) -> tuple[str, ...]:
    """Return what to do, then why the selected candidate is selected."""
    return (describe_verdict(policy), *describe_selection(policy))


def describe_selection(policy: Policy) -> tuple[str, ...]:
    """Say which candidate is selected, with its gain over the simplest one, and whether somebody asked for it."""
    gain, kept, sentences = gain_over_simplest(policy), policy.kept, []
    if gain is not None:
        interval = span(ConfidenceInterval(gain.low, gain.high), signed=True)
        sentences.append(
            f"The {kept} is selected: {points(gain.mean)} points ({interval}) of area over the {gain.over}."
        )
    if kept != (by_evidence := supported_candidate(policy)):
        sentences.append(f"The {kept} is selected by request; the evidence would select the {by_evidence}.")
    return tuple(sentences)


def describe_promises(evidence: HeldOutEvidence) -> str:
    """Say how far promises were from results; empty where that was not measured."""
    accuracy, cost = evidence.promised
    if not any(evidence.promised):
        return ""
    return (
        f"Promised and measured results differ by {100 * accuracy:.1f} points of accuracy and {percent(cost)} of "
        "cost, on average over budgets."
    )


def usage_commands(
    policy: Policy, file: str, log: str = "", workers: tuple[str, ...] = ()
) -> tuple[tuple[str, str], ...]:
    """Return commands that use a policy file, and the purpose of each; the first one does what the verdict says."""
    verdict = policy.about.verdict
    option = f"?{verdict.option}" if verdict and verdict.option else ""
    conductor = quote(f"policy:{file}{option}")
    commands = [(f"shikisha policy show {quote(file)}", "whom it asks, and when")]
    if verdict is None or verdict.kind is VerdictKind.POLICY:
        commands.insert(0, (f'shikisha run "..." --conductor {conductor}', "as advised" if verdict else "its best"))
    if log:
        pool = f" --workers {quote(','.join(workers))}" if workers else ""
        texts = " --reply both" if policy.reads_answers and has_responses(Path(log)) else ""
        commands.append(
            (f"shikisha eval --log {quote(log)}{pool}{texts} --conductor {conductor}", "through the engine")
        )
    return tuple(commands)


def short_labels(names: Iterable[str], longest: int) -> Mapping[str, str]:
    """Return a distinct name of at most `longest` characters for each: a long one is cut in its middle, or numbered."""
    labels: dict[str, str] = {}
    for name in names:
        short = unique = shorten_middle(one_line(name), longest)
        number = 2
        while unique in labels.values():
            ending = f"#{number}"
            unique, number = short[: longest - len(ending)] + ending, number + 1
        labels[name] = unique
    return labels


def policy_as_json(policy: Policy, version: str) -> Mapping[str, object]:
    """Return what is known of a policy: source, pool, candidates with evidence and trade-offs, baselines."""
    best = policy.best_single
    return {
        "version": version,
        "about": asdict(policy.about) | {"scope": scope_as_json(policy.about.scope)},
        "best_single": {"name": best.name, "accuracy": best.score, "dollars": best.dollars},
        "workers": [asdict(worker) for worker in policy.workers],
        "few_outcomes": [worker.name for worker in workers_with_few_outcomes(policy)],
        "types": [{"name": name, "form": policy.types.form_of(index)} for index, name in enumerate(policy.types.names)],
        "kept": policy.kept,
        "defended": supported_candidate(policy),
        "verdict": asdict(policy.about.verdict) if policy.about.verdict else None,
        "said": list(describe_result(policy)),
        "rungs": [_candidate_as_json(policy, candidate) for candidate in policy.rungs],
        "yardsticks": [asdict(yardstick) for yardstick in policy.yardsticks],
    }


def _candidate_as_json(policy: Policy, candidate: Candidate) -> Mapping[str, object]:
    return {
        "name": candidate.name,
        "unit_dollars": candidate.dial.unit,
        "best_single": candidate.dial.best_single,
        "evidence": asdict(candidate.evidence) if candidate.evidence else None,
        "dial": [{"name": name, **_mix_as_json(policy, candidate, mix)} for name, mix in trade_off_settings(candidate)],
    }


def _mix_as_json(policy: Policy, candidate: Candidate, mix: OperatingMix) -> Mapping[str, object]:
    counted = ask_shares(policy, mix)
    return {
        "cost": mix.cost,
        "accuracy": mix.accuracy,
        "error": max(mix.low.error, mix.high.error) or None,
        "dollars_per_1k": 1000 * mix.cost * candidate.dial.unit if candidate.dial.unit > 0 else None,
        "asks": None if counted is None else sum(counted.values()),
        "asked": counted,
    }


def setting_as_json(policy: Policy, version: str, at: tuple[Candidate, OperatingMix, str]) -> Mapping[str, object]:
    """Return the same with one setting of one candidate in full: whom it asks, by type."""
    candidate, mix, called = at
    usage = [asdict(way) for way in usage_by_type(policy, mix)]
    return {
        **policy_as_json(policy, version),
        "shown": {"rung": candidate.name, "at": called, **_mix_as_json(policy, candidate, mix)},
        "ways": usage,
    }


if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table


def print_selection(policy: Policy, console: "Console") -> None:
    """Print the verdict, every candidate's accuracy at its budgets, which one is selected, and why."""
    _print_line(console, describe_verdict(policy), "bold")
    _print_line(console, f"{one_line(log_name(policy.about))}: {describe_source(policy)}")
    _print_line(console, describe_best_single(policy))
    if text := describe_few_outcomes(policy):
        _print_line(console, text, "yellow")
    measured = frontier_lines(policy)
    priced = policy.rung().dial.unit > 0
    if measured:
        console.print()
        at = ", at a mean cost of" if priced else ""
        _print_line(console, f"Accuracy on held-out tasks, % ± half the 95 % interval{at}", "dim")
        console.print(_selection_table(measured, console.width, CONSOLE_BUDGETS if priced else CONSOLE_BUDGETS[-1:]))
        if any(
            (met := line.at(budget)) and is_overspent(met, budget) for line in measured for budget in CONSOLE_BUDGETS
        ):
            _print_line(console, "! It spent clearly more than that budget.", "dim")
        for name, met in fixed_cost_baselines(policy):
            at = f" at a cost of {percent(met.spent)}" if priced else ""
            _print_line(console, f"{one_line(name)}: {percent(met.accuracy)}{at}")
    console.print()
    for sentence in describe_selection(policy):
        _print_line(console, sentence)
    evidence = policy.rung().evidence
    if evidence is not None and (text := describe_promises(evidence)):
        _print_line(console, text)
    for note in dict.fromkeys(line.note for line in measured if line.rung and line.note):
        _print_line(console, f"{', '.join(line.name for line in measured if line.note == note)}: {note}")


def _selection_table(measured: Sequence[FrontierLine], width: int, budgets: Sequence[float]) -> "Table":
    from rich.text import Text

    short = short_labels([line.name for line in measured], max(10, width - 62))
    table = _plain_table(1)
    table.add_column("", no_wrap=True, overflow="ellipsis")
    for head in (*(f"{100 * budget:g} % " if len(budgets) > 1 else "" for budget in budgets), "area"):
        table.add_column(head, justify="right", no_wrap=True)
    for index, line in enumerate(measured):
        if not line.rung and index and measured[index - 1].rung:
            table.add_row(Text("for comparison", "dim italic"))
        style = "bold" if line.kept else ""
        cells = [_format_point(line.at(budget), budget) for budget in budgets]
        table.add_row(
            Text(short[line.name], style), *(Text(cell, style) for cell in (*cells, f"{100 * line.area:.2f}"))
        )
    return table


def _format_point(met: FrontierPoint | None, budget: float) -> str:
    if met is None:
        return UNKNOWN
    return f"{100 * met.accuracy:.1f} ±{50 * (met.high - met.low):.1f}{'!' if is_overspent(met, budget) else ' '}"


def print_verdict(policy: Policy, console: "Console") -> None:
    """Print what to do: the last line of a command."""
    _print_line(console, describe_verdict(policy), "bold")


def print_policy(policy: Policy, version: str, shown: tuple[Candidate, OperatingMix, str], console: "Console") -> None:
    """Print a policy on one screen: source, pool, trade-off, and whom it asks for each type of task.

    `shown` are the candidate, the mix whose usage is shown, and the name of that mix.
    """
    from rich.table import Table

    candidate, mix, called = shown
    about = policy.about
    _print_line(console, f"policy {version} from {one_line(log_name(about))} ({about.log_hash}), {about.made}", "bold")
    _print_line(console, f"{describe_source(policy)}. {describe_best_single(policy)}")
    for sentence in describe_selection(policy) or (f"The {policy.kept} is the only candidate.",):
        _print_line(console, sentence)
    if candidate.name != policy.kept:
        _print_line(console, f"This is the {candidate.name}, which is not the selected candidate.", "yellow")
    console.print()
    tables = Table.grid(padding=(0, 3, 0, 0))
    tables.add_row(_worker_table(policy, mix), _trade_off_table(policy, candidate))
    console.print(tables)
    if text := describe_few_outcomes(policy):
        _print_line(console, f"* {text}", "yellow")
    console.print()
    _print_line(
        console, f"{candidate.name} at {called}: {_format_promise(mix, candidate, cost_reference(policy))}", "bold"
    )
    usage = usage_by_type(policy, mix)
    if usage:
        console.print(_usage_table(usage, policy.names))
    else:
        _print_line(console, "This file has no usage statistics.")
    for note in about.notes[:_MAX_NOTES]:
        _print_line(console, f"! {note}", "yellow")
    if len(about.notes) > _MAX_NOTES:
        _print_line(
            console, f"! and {plural(len(about.notes) - _MAX_NOTES, 'more note')}: --json has them all", "yellow"
        )


def _format_promise(mix: OperatingMix, candidate: Candidate, reference: str) -> str:
    price = (
        f" ({format_dollars(1000 * mix.cost * candidate.dial.unit)} for 1,000 tasks)" if candidate.dial.unit > 0 else ""
    )
    if candidate.evidence is None:
        return f"{percent(mix.accuracy)} recorded where workers were asked, which promises nothing"
    if candidate.dial.unit <= 0:
        return f"{percent(mix.accuracy)} expected"
    return f"{percent(mix.accuracy)} expected for {percent(mix.cost)} of {reference}{price}"


def _worker_table(policy: Policy, mix: OperatingMix) -> "Table":
    from rich.text import Text

    candidate, shares, names = policy.rung(), ask_shares(policy, mix), short_labels(policy.names, _NAME_CELLS)
    best, few = policy.best_single.name, [worker.name for worker in workers_with_few_outcomes(policy)]
    table = _plain_table()
    for head in ("worker", "right", "$/1,000", "asked"):
        table.add_column(head, justify="left" if head == "worker" else "right", no_wrap=True)
    ranked = sorted(policy.workers, key=lambda worker: (-(shares or {}).get(worker.name, 0.0), -worker.score))
    rows = len(ranked) if len(ranked) <= _MAX_WORKERS else _ROWS_OF_LARGE_POOL
    for worker in ranked[:rows]:
        style = "bold" if worker.name == best else ""
        share = "" if shares is None else _format_share(shares[worker.name])
        mark = "*" if worker.name in few else " " * bool(few)
        cells = (
            names[worker.name],
            percent(worker.score) + mark,
            format_dollars(1000 * worker.dollars).removeprefix("$") if candidate.dial.unit > 0 else UNKNOWN,
            share,
        )
        table.add_row(*(Text(cell, style) for cell in cells))
    if len(ranked) > rows:
        table.add_row(Text(f"and {len(ranked) - rows} more", "dim"))
    return table


def _trade_off_table(policy: Policy, candidate: Candidate) -> "Table":
    table = _plain_table()
    for head in ("cost", "accuracy", "$/1,000", "asks"):
        table.add_column(head, justify="right", no_wrap=True)
    for _, mix in trade_off_settings(candidate):
        counted = ask_shares(policy, mix)
        error = _Z * max(mix.low.error, mix.high.error)
        table.add_row(
            f"{100 * mix.cost:.3g} %",
            f"{100 * mix.accuracy:.1f}" + (f" ±{100 * error:.1f}" if error else ""),
            format_dollars(1000 * mix.cost * candidate.dial.unit).removeprefix("$")
            if candidate.dial.unit > 0
            else UNKNOWN,
            UNKNOWN if counted is None else f"{sum(counted.values()):.2f}",
        )
    return table


def _usage_table(usage: Sequence[TypeUsage], workers: Sequence[str]) -> "Table":
    from rich.text import Text

    names, kinds = short_labels(workers, _NAME_CELLS), short_labels([way.kind for way in usage], _TYPE_CELLS)
    table = _plain_table(1)
    for index, head in enumerate(("task type", "asked first", "in", "asked second", "in", "asks")):
        table.add_column(head, justify="left" if index in (0, 1, 3) else "right", no_wrap=True, overflow="ellipsis")
    for way in usage[:_MAX_TYPES]:
        second, more = names[way.second] if way.second else UNKNOWN, _format_share(way.more)
        cells = (kinds[way.kind], names[way.first], _format_share(way.share), second, more, f"{way.asks:.2f}")
        table.add_row(*map(Text, cells))
    if len(usage) > _MAX_TYPES:
        table.add_row(Text(f"and {plural(len(usage) - _MAX_TYPES, 'more type')}", "dim"))
    return table


def _format_share(share: float) -> str:
    return f"{100 * share:.0f} %"


def _plain_table(gap: int = 2) -> "Table":
    from rich.table import Table

    return Table(box=None, padding=(0, 0, 0, gap), collapse_padding=True, pad_edge=False, header_style="dim")


def _print_line(console: "Console", text: str, style: str = "") -> None:
    """Print a cleaned text, wrapped at words, with indented continuation lines."""
    from rich.text import Text

    for index, line in enumerate(Text(one_line(text, _MAX_LINE), style).wrap(console, max(20, console.width - 2))):
        line.rstrip()
        console.print(Text("  " if index else "").append_text(line), soft_wrap=True)
