"""Second rounds for lessons: a first plan is played, what came of it is read, then a new plan, or none, is written.

    came ok+cannot+lack
    model_id = []
    ...

`came` says of each step whether it gave a result, the same one as an earlier step, could not do its part, or lacked
something, and of a vote whether two readings at least agreed with it or it was torn; that is reading. Whether the
answer is then kept or another plan written is drawn by lot. Invariant: what the prompt shows was really done by the
workers of the pool, by their own rules. Deliberately absent: whether the answer was right, which nobody knows then.
"""

import random

from shikisha.brief import repeated
from shikisha.call import Granted, Request
from shikisha.orchestra.instructions import PHRASES, Verb
from shikisha.orchestra.players import Player
from shikisha.orchestra.scene import CANNOT, LACK
from shikisha.plan import Plan
from shikisha.pool import Pool
from shikisha.prompt import render_lists
from shikisha.run import Performed, Result
from shikisha.task import Task

KEPT = render_lists(Plan())
_CAME = "came "
_OK, _SAME, _AGREED, _TORN, _CANNOT, _LACK = "ok", "same", "agreed", "torn", "cannot", "lack"
PIECES = (_CAME, _OK, _SAME, _AGREED, _TORN, _CANNOT, _LACK)
_VOTE = PHRASES[Verb.VOTE][0]
_ENOUGH = 2  # readings that agree with a vote


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
    return f"{_CAME}{'+'.join(_read(performed, place) for place in range(len(performed.results)))}\n"


def _read(performed: Performed, place: int) -> str:
    results = performed.results
    text = results[place].text or ""
    if text.startswith(CANNOT):
        return _CANNOT
    if text.startswith(LACK):
        return _LACK
    first = repeated(results, place)
    if performed.plan.steps[place].subtask == _VOTE:
        alike = sum(first in (at, repeated(results, at)) for at in range(place)) if first is not None else 0
        return _AGREED if alike >= _ENOUGH else _TORN
    return _OK if first is None else _SAME
