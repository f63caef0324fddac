"""What must be said of a log before anybody learns from it: scores that are all the same, no costs, open answers.

Invariants: nothing is mended here, only said, with counts; what nothing can be learned from is refused. Deliberately
absent: what is malformed (the reader of logs refuses that with file and row), what a log in which few were asked
supports (`coverage`), and logs that are too small (`ladder`).
"""

from collections.abc import Iterator, Sequence

import numpy as np

from shikisha.errors import ConfigError
from shikisha.evaluate.wording import percent, plural
from shikisha.learn.absent import MUCH, lacking
from shikisha.learn.joining import kept_away, newcomers
from shikisha.learn.panel import Panel
from shikisha.policy.exploring import ENOUGH
from shikisha.policy.types import OPEN

_NAMED = 3  # types that a sentence lists


def caveats(panel: Panel) -> tuple[str, ...]:
    """Return sentences about a panel; ConfigError when none of its outcomes is graded."""
    known = ~np.isnan(panel.scores)
    if not known.any():
        outcomes = plural(int(panel.there.sum()), "outcome")
        raise ConfigError(f"none of the {outcomes} has a score: there is nothing to learn from")
    return (*_scores(panel), *_costs(panel), *_open(panel))


def _scores(panel: Panel) -> Iterator[str]:
    known = panel.scores[~np.isnan(panel.scores)]
    if (known == known[0]).all():
        yield f"every outcome has the score {known[0]:g}: nothing tells one worker from another but its cost"


def _costs(panel: Panel) -> Iterator[str]:
    there = int(panel.there.sum())
    unknown = int((panel.there & np.isnan(panel.dollars)).sum())
    if unknown == there:
        yield "the log has no costs, so no budget can be kept and the dial has one end: accuracy"
    elif not panel.paid.any():
        yield "every cost is 0, so no budget can be kept and the dial has one end: accuracy"
    elif unknown:
        yield f"{plural(unknown, 'outcome')} of {there:,} without a cost, which count as free"


def _open(panel: Panel) -> Iterator[str]:
    forms = np.array([*panel.types.forms, panel.types.form])
    tasks = int((forms[panel.batch.types] == OPEN).sum())
    if tasks and panel.answers:
        yield (
            f"the answers to {plural(tasks, 'task')} ({percent(tasks / len(panel))}) have no canonical form: two of "
            "them agree only to the letter, so there only checks, judges and feedback count"
        )


def gaps(panel: Panel) -> tuple[str, ...]:
    """Return sentences about what a full log lacks here and there, and what that counts as."""
    missing, pairs = int((~panel.there).sum()), panel.there.size
    ungraded = int((panel.there & np.isnan(panel.scores)).sum())
    found = []
    if missing:
        found.append(f"{percent(missing / pairs)} of all pairs of task and worker are not in the log: no answer there")
    found += _unasked(panel)
    if ungraded:
        found.append(f"{plural(ungraded, 'outcome')} without a score, which count as not right")
    return tuple(found)


def _unasked(panel: Panel) -> Iterator[str]:
    """Yield who lacks a good part of some types: there it is taken to say nothing, for nothing."""
    for worker, lacks in zip(panel.workers, lacking(panel).T.tolist(), strict=True):
        ranked = sorted(zip(lacks, panel.types.names, strict=True), reverse=True)
        much = [f"{100 * share:.0f} % of {name}" for share, name in ranked if share > MUCH]
        if much:
            some = _listed([*much[:_NAMED], *(["other types"] if len(much) > _NAMED else [])])
            yield f"{worker} lacks {some}: silent there"


def joined_late(panel: Panel) -> tuple[str, ...]:
    """Return sentences about workers that joined late: what was filled in, and what is to be done about that."""
    late = newcomers(panel)
    if not late:
        return ()
    counts = (panel.there & ~np.isnan(panel.scores)).sum(axis=0)
    named = _listed([f"{panel.workers[worker]} ({plural(int(counts[worker]), 'outcome')})" for worker in late])
    explore = counts[list(late)].min() < ENOUGH
    filled = (
        f"new in the pool: {named}; what other tasks would have brought was filled in by likeness to those that are "
        "known, and the dial and what is asked are of all workers"
    )
    next_step = (
        "what was measured on held-back tasks is of the known workers alone: before newcomers are relied on, try this "
        "policy as a canary or a shadow (`policy add`, `policy trial`)"
        + (f", or gather {ENOUGH} outcomes of each with ?explore=5%" if explore else "")
    )
    return (filled, next_step, *_kept_away(panel))


def _kept_away(panel: Panel) -> Iterator[str]:
    for worker in newcomers(panel):
        kinds = [panel.types.names[kind] for kind in kept_away(panel, worker).tolist()]
        if kinds:
            yield f"{panel.workers[worker]} was never asked for {_listed(kinds)}: it is taken to have no answer there"


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
