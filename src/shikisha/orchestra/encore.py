"""Second rounds for lessons: a first plan is played, what came of it is read, then a new plan, or none, is written.

    came ok+cannot+lack
    model_id = []
    ...

`came` says of each step whether it gave a result, could not do its part, or lacked something; that is reading. Whether
the answer is then kept or another plan written is drawn by lot. Invariant: what the prompt shows was really done by the
workers of the pool, by their own rules. Deliberately absent: whether the answer was right, which nobody knows then.
"""

import random

from shikisha.call import Granted, Request
from shikisha.orchestra.players import Player
from shikisha.orchestra.scene import CANNOT, LACK
from shikisha.plan import Plan
from shikisha.pool import Pool
from shikisha.prompt import render_lists
from shikisha.run import Performed, Result
from shikisha.task import Task

KEPT = render_lists(Plan())
_CAME = "came "
_OK, _CANNOT, _LACK = "ok", "cannot", "lack"
PIECES = (_CAME, _OK, _CANNOT, _LACK)


def played(plan: Plan, task: Task, pool: Pool, draw: random.Random) -> Performed:
    """Let the pool's workers do the plan, one step after another."""
    said: list[str] = []
    salt = draw.random()
    for index, step in enumerate(plan.steps):
        player = pool[step.worker].worker
        if not isinstance(player, Player):
            raise TypeError(f"expected a worker of the embedded orchestra, not {player!r}")
        granted = tuple(Granted(seen, plan.steps[seen].subtask, said[seen]) for seen in step.access)
        said.append(player.answer(Request(task, step.subtask, granted, key=f"{salt}-{index}")))
    names = [pool[step.worker].card.name for step in plan.steps]
    return Performed(plan, tuple(Result(name, text) for name, text in zip(names, said, strict=True)))


def came(performed: Performed) -> str:
    """Return the line that says what each step came to."""
    return f"{_CAME}{'+'.join(_read(result.text or '') for result in performed.results)}\n"


def _read(text: str) -> str:
    if text.startswith(CANNOT):
        return _CANNOT
    return _LACK if text.startswith(LACK) else _OK
