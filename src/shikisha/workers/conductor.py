"""A worker that is a conductor: it answers its subtask with a child run.

Invariants: the child's task is the subtask, and its context exactly what this step may see (the parent's question and
the granted results), so nothing is seen below that was withheld above (2). The engine bounds depth, pool and budget in
`Request.spawn` (1, 3). Deliberately absent: `build`; `config` knows the conductors and creates this worker itself.
"""

from collections.abc import Sequence

from shikisha.core.budget import Caps
from shikisha.core.call import GrantedStep, Reply, Request
from shikisha.core.errors import FaultKind, WorkerError
from shikisha.core.task import Task
from shikisha.engine.conductor import Conductor


class ConductorWorker:
    """Starts a child run under this conductor, with these workers of the parent's pool, within these caps."""

    def __init__(self, conductor: Conductor, pool_names: Sequence[str], caps: Caps | None = None) -> None:
        self._conductor = conductor
        self._names = tuple(pool_names)
        self._caps = caps or Caps()

    async def perform(self, request: Request) -> Reply:
        """Return the child's answer; CAP where no child may be started, NO_ANSWER when it ends without one."""
        if request.spawn is None:
            raise WorkerError(FaultKind.CAP, "no child run can be started from here")
        child = await request.spawn(child_task(request), self._conductor, self._names, self._caps)
        if child.answer is None:
            message = f"child run {child.run} has no answer: {child.why}"
            raise WorkerError(
                FaultKind.NO_ANSWER,
                message,
                tokens=child.usage.total,
                dollars=child.dollars,
                uncertain_tokens=child.uncertain.tokens,
                uncertain_dollars=child.uncertain.dollars,
            )
        used, name = (child.usage, child.dollars), self._conductor.name
        return Reply(child.answer, *used, model=name, prepaid=True, uncertain=child.uncertain)


def child_task(request: Request) -> Task:
    """Return the child's task; it keeps the record's id, type and labels, which replay and rules use.

    The client's output options apply to the child's answer; its tools stay with this run.
    """
    task = request.task
    known = [f"The question that this is a part of:\n{task.prompt}"]
    if task.context:
        known.append(f"Its context:\n{task.context}")
    known += [_earlier_result(granted) for granted in request.granted]
    known += [f"An earlier answer was not accepted: {remark}" for remark in request.remarks]
    labels = tuple(dict.fromkeys((*task.labels, *sorted(request.labels))))
    return Task(
        request.subtask,
        "\n\n".join(known),
        task.id,
        task.domain,
        labels,
        history=task.history,
        attachments=task.attachments,
        exchanges=request.exchanges,
        answer_schema=request.schema,
        options=request.client_options.options,
        tenant=task.tenant,
    )


def _earlier_result(granted: GrantedStep) -> str:
    answer = f"(no answer: {granted.fault})" if granted.text is None else granted.text
    return f"Already done: {granted.subtask}\n{answer}"
