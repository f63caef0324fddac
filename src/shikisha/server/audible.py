"""Whether a worker's growing answer may be passed on before it stands. The same for every API.

Invariant: only where nothing can take it back: no schema that the answer has to follow, no person who is to see it
first, no handoff check that may want another one. Deliberately absent: which step's answer it is (`telling`).
"""

from collections.abc import Callable

from shikisha.conductor import Conductor
from shikisha.events import OnFail
from shikisha.oversight import Autonomy, Mode, Oversight
from shikisha.pool import Pool
from shikisha.task import Task


def hears_all(task: Task, conductor: Conductor, oversight: Oversight) -> bool:
    """Whether nobody and nothing looks at the answer of such a run before its client does."""
    if task.answer_schema is not None:
        return False
    return not looked_at(oversight.of(task, conductor.name))


def looked_at(autonomy: Autonomy) -> bool:
    """Whether a person may be shown an answer of this class before its client is."""
    if autonomy.mode is not Mode.ESCALATE:
        return autonomy.mode is not Mode.AUTONOMOUS
    rules = autonomy.rules
    asks = rules.check or rules.substitution or rules.disagreement
    return asks or rules.dollars is not None or rules.confidence is not None


def conclusive(pool: Pool) -> Callable[[str], bool]:
    """Return what says of a worker whether none of its checks can refuse an answer."""
    return lambda worker: all(handoff.on_fail is OnFail.PASS for handoff in pool.named(worker).handoffs)
