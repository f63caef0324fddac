"""A worker that is a person: the answer comes through the engine's approver.

Invariant: this module asks nobody. It raises WAITING with the text to show; the engine asks its `Approver` under the
hash of the exact call and journals the answer, so a person is asked once, whatever dies meanwhile. Deliberately absent:
how people are reached (see `engine.approvals`), and any time limit on them.
"""

from pydantic import Field

from shikisha.core.errors import FaultKind, WorkerError
from shikisha.core.messages import dump_json
from shikisha.core.secrets import SecretStore
from shikisha.core.toml import Table
from shikisha.engine.worker import Card, Reply, Request, WorkerKind


class HumanSettings(Table):
    """The text before the subtask, if any."""

    instruction: str = Field(default="", description="what the person reads before the subtask")


Settings = HumanSettings  # the name that `config.kinds` looks up


def build(settings: HumanSettings, card: Card, secret_store: SecretStore) -> "HumanWorker":  # noqa: ARG001 - every adapter's signature
    """Return a worker whose every call waits for a person."""
    return HumanWorker(settings.instruction)


KIND = WorkerKind(settings=HumanSettings, build=build, uncalled="it is a person")


class HumanWorker:
    """Waits for a person on every call."""

    def __init__(self, instruction: str = "") -> None:
        self._instruction = instruction

    async def perform(self, request: Request) -> Reply:
        """Raise WAITING with the text for the person: the question, granted results, the subtask."""
        raise WorkerError(FaultKind.WAITING, "\n\n".join(self._shown(request)))

    def _shown(self, request: Request) -> list[str]:
        task = request.task
        said = [f"{turn.speaker}: {turn.text}" for turn in task.history if turn.text]
        shown = [
            self._instruction,
            "\n".join(["The conversation so far:", *said]) if said else "",
            task.prompt,
            task.context,
        ]
        for granted in request.granted:
            answer = f"(no answer: {granted.fault})" if granted.text is None else granted.text
            shown.append(f"Earlier: {granted.subtask}\n{answer}")
        if request.subtask != task.prompt:
            shown.append(f"Your part: {request.subtask}")
        if request.schema is not None:  # it is checked for people, too
            shown.append(
                f"Your answer must be one JSON document that fits this JSON Schema: {dump_json(request.schema)}"
            )
        shown += [f"An earlier answer was not accepted: {remark}" for remark in request.remarks]
        return [part for part in shown if part]
