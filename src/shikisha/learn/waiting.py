"""What waiting costs: a second's worth in dollars, put on top of what was paid.

Invariants: a pair whose seconds nobody recorded waits for nothing, which is said; where nothing was recorded at all,
the wish is refused. Deliberately absent: workers that are asked at the same time (a policy asks one after another).
"""

from dataclasses import replace

import numpy as np

from shikisha.errors import ConfigError
from shikisha.evaluate.wording import plural
from shikisha.learn.panel import Panel


def waited(panel: Panel, second: float) -> tuple[Panel, tuple[str, ...]]:
    """Return the panel whose dollars hold what its seconds are worth, and what must be said of that."""
    if not second:
        return panel, ()
    unknown = int((panel.there & np.isnan(panel.seconds)).sum())
    if unknown == panel.there.sum():
        raise ConfigError("--second: the log has no latencies (column latency_s), so nothing is known of waiting")
    waits = second * np.nan_to_num(panel.seconds)
    notes = [f"costs hold ${second:g} for every second of waiting"]
    if unknown:
        notes.append(f"{plural(unknown, 'outcome')} without a latency, which count as instant")
    return replace(panel, dollars=np.where(panel.there, panel.paid + waits, panel.dollars)), tuple(notes)
