"""Absent outcomes: workers of a full log that were not asked for a good part of some type of tasks.

What they would have said there is not known, and nothing is made up: they are taken to have no answer, which is what
playing a policy on those tasks finds. Invariant: a rule is fitted to what it will be measured by, so that it does not
send a type to a worker whose record there is a small and lucky part. Deliberately absent: workers of whom little is
known at all (`joining`), and logs in which few were asked (`coverage`).
"""

from dataclasses import replace

import numpy as np

from shikisha.learn.panel import Panel
from shikisha.policy.arrays import Flags, Floats

MUCH = 0.2  # share of a type's tasks; what is lacking below that is taken for accidents


def lacking(panel: Panel) -> Floats:
    """[D, J]: the share of each type's tasks for which nothing is known of a worker; 0 where there are no tasks."""
    unknown = _unknown(panel)
    rows = [unknown[panel.batch.types == kind] for kind in range(len(panel.types.names))]
    return np.array([row.mean(axis=0) if len(row) else np.zeros(row.shape[1]) for row in rows]).reshape(
        len(rows), len(panel.workers)
    )


def silent(panel: Panel) -> Panel:
    """Return the panel with a score of 0, for nothing, wherever a worker lacks MUCH of a type."""
    much = np.vstack([lacking(panel) > MUCH, np.zeros((1, len(panel.workers)), bool)])
    cells = _unknown(panel) & much[panel.batch.types]
    if not cells.any():
        return panel
    return replace(
        panel,
        there=panel.there | cells,
        scores=np.where(cells, 0.0, panel.scores),
        dollars=np.where(cells, 0.0, panel.dollars),
    )


def _unknown(panel: Panel) -> Flags:
    unknown: Flags = ~panel.there & np.isnan(panel.scores)
    return unknown
