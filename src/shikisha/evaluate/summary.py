"""An evaluation in words: the headline, and what must be said before anybody believes a figure.

Invariants: nothing is called better or worse unless its interval excludes 0; the oracle, which was reckoned and never
run, is never the headline; what weakens a figure is said, whoever is favoured by it. Deliberately absent: advice.
"""

from collections.abc import Iterator

from shikisha.budget import format_dollars
from shikisha.evaluate.entries import Difference, Entry, Report
from shikisha.evaluate.samples import Part
from shikisha.evaluate.wording import (
    PARTS,
    percent,
    plural,
    points,
    samples,
    span,
    verdict,
)

_NOT_RUN = (Part.SINGLE, Part.ORACLE)


def ordered(report: Report) -> tuple[Entry, ...]:
    """Return the entries as they are read: those asked for first, in each part the most accurate first."""
    order = list(PARTS)
    return tuple(sorted(report.entries, key=lambda entry: (order.index(entry.part), -entry.accuracy)))


def best_single(report: Report) -> Entry | None:
    """Return the entry that all are compared with."""
    return next((entry for entry in report.entries if entry.name == report.best_single), None)


def contenders(report: Report) -> tuple[Entry, ...]:
    """Return the conductors that were asked for, best first; the other baselines that ran where none was."""
    ran = [entry for entry in ordered(report) if entry.part not in _NOT_RUN]
    asked = [entry for entry in ran if entry.part is Part.ASKED]
    return tuple(sorted(asked or ran, key=lambda entry: -entry.accuracy))


def headline(report: Report) -> tuple[str, ...]:
    """Say in a few sentences how the best contender stands against the best single worker, then how the others do."""
    single, found = best_single(report), contenders(report)
    if not found:
        return (_single_only(single) if single else "No sample was graded: there is nothing to report.",)
    if single is None:
        return tuple(f"{_reached(entry)} No single worker was graded to compare it with." for entry in found)
    return (_lead(found, single), *_cost(found[0], single), *(_other(entry) for entry in found[1:]))


def caveats(report: Report) -> tuple[str, ...]:
    """Return the evaluation's notes and what its figures themselves give cause to say."""
    return tuple(dict.fromkeys((*_incomplete(report), *report.notes, *_from_figures(report))))


def _single_only(single: Entry) -> str:
    return f"The best single worker: {_reached(single)} No conductor was evaluated."


def _reached(entry: Entry) -> str:
    interval = f"95 % interval {span(entry.interval)}"
    return f"“{entry.name}” reached {percent(entry.accuracy)} ({interval}) on {plural(entry.tasks, 'task')}."


def _lead(found: tuple[Entry, ...], single: Entry) -> str:
    lead = found[0]
    against = f"The best single worker, “{single.name}”, reached {percent(single.accuracy)}."
    compared = f" {_compared(lead.against)}" if lead.against else ""
    picked = f" It is the best of {len(found)}, picked by these same figures, which flatters it."
    return f"{_reached(lead)} {against}{compared}{picked if len(found) > 1 else ''}"


def _compared(difference: Difference) -> str:
    common = f"Difference over the {plural(difference.tasks, 'task')} that both did: {points(difference.mean)} points"
    return f"{common} (95 % paired interval {span(difference.interval, signed=True)}); {verdict(difference)}."


def _cost(lead: Entry, single: Entry) -> Iterator[str]:
    ours, theirs = lead.dollars_a_task, single.dollars_a_task
    if ours is not None and theirs:
        other = f"{ours / theirs:.2f} times the best single worker's" if ours else "the best single worker"
        yield f"It cost {format_dollars(ours)} a task, {other} {format_dollars(theirs)}."


def _other(entry: Entry) -> str:
    if entry.against is None:
        return _reached(entry)
    interval = span(entry.against.interval, signed=True)
    return f"“{entry.name}”: {points(entry.against.mean)} points ({interval}); {verdict(entry.against)}."


def _incomplete(report: Report) -> Iterator[str]:
    if not report.complete:
        yield f"This evaluation is not complete{f': {report.why}' if report.why else ''}. Figures are of what was done."


def _from_figures(report: Report) -> Iterator[str]:
    yield from _judged(report)
    yield from _ungraded(report)


def _judged(report: Report) -> Iterator[str]:
    judged, graded = (sum(counts) for counts in ([e.judged for e in report.entries], [e.tasks for e in report.entries]))
    if judged:
        yield f"{judged:,} of {graded:,} grades were given by a language model, not by an executed check."


def _ungraded(report: Report) -> Iterator[str]:
    if found := [entry for entry in report.entries if entry.ungraded]:
        total, worst = sum(entry.ungraded for entry in found), max(found, key=lambda entry: entry.ungraded)
        yield (
            f"{plural(total, 'sample')} could not be graded and count neither as right nor as wrong; "
            f"most of “{worst.name}”: {worst.ungraded:,} of {samples(worst):,}."
        )
