"""Access list → exactly what a worker sees.

Invariant 2: a worker sees the task, its subtask, and exactly what its access list grants: nothing else. `grant` is the
only place where results become visible to a later step, and `turns` the only place where a request becomes a chat.
Granted answers are turns of their own, said by the assistant: there is no header in the text that an answer could
forge. Deliberately absent: summaries, and any cutting of long results (a limit is a refusal, not a silent loss).
"""

from collections.abc import Sequence
from hashlib import sha256

from shikisha.call import Granted, Request
from shikisha.plan import Plan
from shikisha.run import Result
from shikisha.turn import Speaker, Turn


def grant(plan: Plan, index: int, results: Sequence[Result | None]) -> tuple[Granted, ...]:
    """Return what step `index` may see of the earlier steps: its access list's entries, no more and no fewer."""
    return tuple(_granted(plan, seen, results[seen]) for seen in plan.steps[index].access)


def _granted(plan: Plan, index: int, result: Result | None) -> Granted:
    subtask = plan.steps[index].subtask
    if result is None:
        raise ValueError(f"step {index} is granted before it has a result")
    if result.fault is not None:
        return Granted(index, subtask, None, str(result.fault.kind), result.labels)
    return Granted(index, subtask, result.text, labels=result.labels)


def turns(request: Request) -> tuple[Turn, ...]:
    """Return the chat that shows a worker its request: user and assistant turns in strict alternation."""
    if request.turns:
        return request.turns
    said: list[Turn] = []
    pending = [_question(request)]
    for earlier in request.granted:
        pending.append(earlier.subtask)
        said.append(Turn(Speaker.USER, "\n\n".join(pending)))
        said.append(Turn(Speaker.ASSISTANT, _answer(earlier)))
        pending = []
    pending.append(f"Your part now:\n{request.subtask}" if request.subtask != request.task.prompt else "Answer this.")
    pending += [f"An earlier answer of yours was not accepted: {remark}" for remark in request.remarks]
    said.append(Turn(Speaker.USER, "\n\n".join(pending)))
    return tuple(said)


def _question(request: Request) -> str:
    task = request.task
    return f"{task.prompt}\n\nContext:\n{task.context}" if task.context else task.prompt


def _answer(granted: Granted) -> str:
    return f"(no answer: {granted.fault})" if granted.text is None else granted.text


def view_hash(shown: Sequence[Turn]) -> str:
    """Return the SHA-256 (hex) of everything that a worker is shown; it stands in the journal as evidence."""
    digest = sha256()
    for turn in shown:
        digest.update(f"{turn.speaker}:{len(turn.text)}:{turn.text}".encode())
    return digest.hexdigest()
