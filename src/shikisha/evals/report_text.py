"""An evaluation in words: figures as text, the headline, the caveats, and short names of entrants.

Invariants: a total from which costs are missing says that it is at least that much; nothing is called better or worse
unless its interval excludes 0; the oracle, which is computed and never run, is never the headline; a caveat is reported
whomever it favors; two entrants never get the same short name, and a short name stays as it is.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from shikisha.core.budget import format_dollars
from shikisha.core.text import one_line
from shikisha.evals.entrant_metrics import (
    ConfidenceInterval,
    DimensionGroup,
    EntrantFigures,
    EqualDollars,
    EvaluationReport,
    PairedDifference,
    SpecificationCliff,
)
from shikisha.evals.samples import EntrantRole
from shikisha.evals.taskset import TaskSpecification
from shikisha.plots.format import MINUS, percent, plural, points, shorten_middle

_LONGEST_NAME = 36
_ALMOST_0 = 0.0005  # percentage points
PARTS = {  # in the order in which they are read
    EntrantRole.ASKED: "asked for",
    EntrantRole.REFERENCE: "for reference",
    EntrantRole.FIXED: "fixed topology",
    EntrantRole.CONSISTENCY: "self-consistency",
    EntrantRole.ONE_AGENT: "one agent",
    EntrantRole.RANDOM: "random plans",
    EntrantRole.SINGLE: "single worker",
    EntrantRole.ORACLE: "oracle",
}


def span(interval: ConfidenceInterval, *, signed: bool = False) -> str:
    """Return an interval of shares: `71.4 to 73.3`, or of differences: `+1.5 to +2.7`.

    An end that is near 0 gets the digits that show on which side of it it is.
    """
    low, high = 100 * interval.low, 100 * interval.high
    if not signed:
        return f"{low:.1f} to {high:.1f}"
    near = min(abs(low), abs(high))
    places = 3 if _ALMOST_0 <= near < 0.005 else 2 if 0.005 <= near < 0.05 else 1
    return f"{low:+.{places}f} to {high:+.{places}f}".replace("-", MINUS)


def total_dollars(entry: EntrantFigures) -> str:
    """Return what all of an entrant's samples cost, `≥` where some have no known cost."""
    if entry.unpriced >= samples(entry):
        return format_dollars(None)
    return ("≥ " if entry.unpriced else "") + format_dollars(entry.dollars)


def samples(entry: EntrantFigures) -> int:
    """Return how many samples an entrant has, ungraded ones among them."""
    return entry.tasks + entry.ungraded


def verdict(difference: PairedDifference) -> str:
    """Say what a paired difference allows to be claimed."""
    if not difference.significant:
        return "the interval includes 0: no difference can be claimed"
    return "better: the interval excludes 0" if difference.mean > 0 else "worse: the interval excludes 0"


_NOT_RUN = (EntrantRole.SINGLE, EntrantRole.ORACLE, EntrantRole.REFERENCE)


def reading_order(report: EvaluationReport) -> tuple[EntrantFigures, ...]:
    """Return the entries as they are read: those asked for first, in each part the most accurate first."""
    order = list(PARTS)
    return tuple(sorted(report.entries, key=lambda entry: (order.index(entry.part), -entry.accuracy)))


def best_single_entry(report: EvaluationReport) -> EntrantFigures | None:
    """Return the entry that all are compared with."""
    return next((entry for entry in report.entries if entry.name == report.best_single), None)


def leading_entries(report: EvaluationReport) -> tuple[EntrantFigures, ...]:
    """Return the conductors that were asked for, best first; the other baselines that ran where none was.

    What plays for reference is no contender: it may be told what nobody else is.
    """
    ran = [entry for entry in reading_order(report) if entry.part not in _NOT_RUN]
    asked = [entry for entry in ran if entry.part is EntrantRole.ASKED]
    return tuple(sorted(asked or ran, key=lambda entry: -entry.accuracy))


def headline_sentences(report: EvaluationReport) -> tuple[str, ...]:
    """Say in a few sentences how the best contender stands against the best single worker, then how the others do."""
    single, found = best_single_entry(report), leading_entries(report)
    if not found:
        return (
            (f"The best single worker: {_accuracy_sentence(single)} No conductor was evaluated.")
            if single
            else "No sample was graded: there is nothing to report.",
        )
    if single is None:
        return tuple(f"{_accuracy_sentence(entry)} No single worker was graded to compare it with." for entry in found)
    lead = found[0]
    against = f"The best single worker, “{single.name}”, reached {percent(single.accuracy)}."
    compared = f" {_difference_sentence(lead.against)}" if lead.against else ""
    picked = f" It is the best of {len(found)}, picked by these same figures, which flatters it."
    lead_sentence = f"{_accuracy_sentence(lead)} {against}{compared}{picked if len(found) > 1 else ''}"
    return (
        (lead_sentence),
        *_cost_sentences(found[0], single),
        *_equal_dollars_sentences(found[0]),
        *(_other_sentence(entry) for entry in found[1:]),
        *(_other_sentence(entry) for entry in reading_order(report) if entry.part is EntrantRole.REFERENCE),
    )


def dimension_sentences(report: EvaluationReport) -> Iterator[str]:
    """Say where the tasks stand in each dimension, and how the leading entries and the best single worker do there."""
    entries = [*leading_entries(report), *filter(None, [best_single_entry(report)])]
    places = {name: tuple(dict.fromkeys(values)) for name, values in report.dimensions.items() if name != "goal"}
    if alike := [f"{name} {found[0]}" for name, found in places.items() if len(found) == 1]:
        yield f"all tasks: {', '.join(alike)}"
    for entry in entries:
        for name, groups in entry.dimensions.items():
            if len(groups) > 1:
                parts = "; ".join(f"{place} {_group_figures(group)}" for place, group in groups.items())
                yield f"{one_line(entry.name, 80)} by {name}: {parts}"
        if entry.cliff is not None:
            yield f"{one_line(entry.name, 80)}: {_cliff_sentence(entry.cliff)}"


def _group_figures(group: DimensionGroup) -> str:
    cost = ""
    if group.dollars is not None and group.dollars_interval is not None:
        low, high = group.dollars_interval.low, group.dollars_interval.high
        cost = f", {format_dollars(group.dollars)} ({format_dollars(low)} to {format_dollars(high)}) a task"
    return f"{percent(group.accuracy)} ({span(group.interval)}){cost}, {plural(group.tasks, 'task')}"


def _cliff_sentence(cliff: SpecificationCliff) -> str:
    """Say what is lost where the same goals are wanted without their steps."""
    lost = cliff.lost
    cost = " to ".join(format_dollars(each) for each in cliff.dollars)
    goal = "an open goal" if cliff.to == TaskSpecification.OPEN else "the goal alone"
    change = f"{points(-lost.mean)} points, steps less goal {span(lost.interval, signed=True)}"
    return (
        f"from given steps to {goal}, {plural(lost.tasks, 'goal')}: {percent(cliff.steps)} to {percent(cliff.other)} "
        f"({change}), {cost} a task"
    )


def caveat_sentences(report: EvaluationReport) -> tuple[str, ...]:
    """Return the evaluation's notes and what its figures themselves give cause to say."""
    return tuple(dict.fromkeys((*_incomplete_sentences(report), *report.notes, *_figure_sentences(report))))


def _accuracy_sentence(entry: EntrantFigures) -> str:
    interval = f"95 % interval {span(entry.interval)}"
    return f"“{entry.name}” reached {percent(entry.accuracy)} ({interval}) on {plural(entry.tasks, 'task')}."


def _difference_sentence(difference: PairedDifference) -> str:
    common = f"Difference over the {plural(difference.tasks, 'task')} that both did: {points(difference.mean)} points"
    return f"{common} (95 % paired interval {span(difference.interval, signed=True)}); {verdict(difference)}."


def _cost_sentences(lead: EntrantFigures, single: EntrantFigures) -> Iterator[str]:
    ours, theirs = lead.dollars_a_task, single.dollars_a_task
    if ours is not None and theirs:
        other = f"{ours / theirs:.2f} times the best single worker's" if ours else "the best single worker"
        yield f"It cost {format_dollars(ours)} a task, {other} {format_dollars(theirs)}."


def _equal_dollars_sentences(entry: EntrantFigures) -> Iterator[str]:
    """Say how an entrant stands against the baselines at its dollars."""
    found = entry.at_equal_dollars
    if found is None:
        return
    difference = f"{points(found.difference.mean)} points ({span(found.difference.interval, signed=True)})"
    yield f"{_mix_sentence(found)} Difference: {difference}; {verdict(found.difference)}."


def _mix_sentence(found: EqualDollars) -> str:
    reached = f"reached {percent(found.accuracy)}"
    if 0 < found.share < 1:
        mix = f"“{found.high}” for {percent(found.share)} of the tasks, else “{found.low}”"
        return f"At equal dollars the best mix of the baselines ({mix}) {reached}."
    if found.dollars > found.spent:
        return f"No baseline is as cheap: the cheapest, “{found.low}”, {reached} for {format_dollars(found.dollars)}."
    return f"At equal dollars the best of the baselines, “{found.low}” for {format_dollars(found.dollars)}, {reached}."


def _other_sentence(entry: EntrantFigures) -> str:
    if entry.against is None:
        return _accuracy_sentence(entry)
    equal = entry.at_equal_dollars
    more = (
        f" Against the baselines at equal dollars: {points(equal.difference.mean)} points "
        f"({span(equal.difference.interval, signed=True)})."
        if equal
        else ""
    )
    interval = span(entry.against.interval, signed=True)
    return f"“{entry.name}”: {points(entry.against.mean)} points ({interval}); {verdict(entry.against)}.{more}"


def _incomplete_sentences(report: EvaluationReport) -> Iterator[str]:
    if not report.complete:
        yield f"This evaluation is not complete{f': {report.why}' if report.why else ''}. Figures are of what was done."


def _figure_sentences(report: EvaluationReport) -> Iterator[str]:
    judged, graded = (sum(counts) for counts in ([e.judged for e in report.entries], [e.tasks for e in report.entries]))
    if judged:
        yield f"{judged:,} of {graded:,} grades were given by a language model, not by an executed check."
    if found := [entry for entry in report.entries if entry.ungraded]:
        total, worst = sum(entry.ungraded for entry in found), max(found, key=lambda entry: entry.ungraded)
        yield (
            f"{plural(total, 'sample')} could not be graded and count neither as right nor as wrong; "
            f"most of “{worst.name}”: {worst.ungraded:,} of {samples(worst):,}."
        )


def abbreviate_names(report: EvaluationReport) -> tuple[EvaluationReport, Mapping[str, str]]:
    """Return the report with short names, in its notes too, and the whole names that were shortened, by short name."""
    names = short_names(entry.name for entry in report.entries)
    changed = {name: short for name, short in names.items() if short != name}
    short = replace(
        report,
        entries=tuple(_with_short_name(entry, names) for entry in report.entries),
        best_single=names.get(report.best_single or "", report.best_single),
        pgr={names.get(name, name): share for name, share in report.pgr.items()},
        notes=tuple(_with_names(note, changed) for note in report.notes),
    )
    return short, {short: name for name, short in changed.items()}


def _with_short_name(entry: EntrantFigures, names: Mapping[str, str]) -> EntrantFigures:
    against = entry.against and replace(entry.against, to=names.get(entry.against.to, entry.against.to))
    equal = entry.at_equal_dollars
    if equal is not None:
        equal = replace(equal, low=names.get(equal.low, equal.low), high=names.get(equal.high, equal.high))
    return replace(entry, name=names[entry.name], against=against, at_equal_dollars=equal)


def _with_names(note: str, changed: Mapping[str, str]) -> str:
    """Put short names into a note, the longest first since one whole name may be part of another."""
    for name in sorted(changed, key=len, reverse=True):
        note = note.replace(name, changed[name])
    return note


def short_names(names: Iterable[str], longest: int = _LONGEST_NAME) -> Mapping[str, str]:
    """Return a short name for each name: without its options, numbered where several would be the same."""
    bases = {name: _base(name, longest) for name in names}
    times = Counter(bases.values())
    found = {name: name for name, base in bases.items() if name == base}
    for name, base in bases.items():
        number, short = 1, base
        while name not in found and ((times[base] > 1 and short == base) or short in found.values()):
            short = f"{base} #{number}"
            number += 1
        found.setdefault(name, short)
    return {name: found[name] for name in bases}


def _base(name: str, longest: int) -> str:
    line = one_line(name)
    if len(line) <= longest:
        return line
    head, options, _ = line.partition("?")
    if options and len(head) < longest - 1:
        return f"{head}…{')' * head.count('(')}"
    return shorten_middle(line, longest)
