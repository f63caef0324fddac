"""A session: runs whose requests named it, as the conversation with which a further request goes on.

With `X-Shikisha-Session` a client sends its new message alone; the server has the earlier turns. Of a group chat it
gives what each member said. Invariants: a session is one key's; a turn that has not ended, or whose answer was refused,
is no part of it; a new turn bears the labels of everything that it repeats, those that workers added included (so no
label is lost by asking again). Deliberately absent: two turns at once.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from shikisha.core.errors import ConfigError
from shikisha.core.events import Event
from shikisha.core.messages import ChatMessage, Speaker
from shikisha.core.run import Run
from shikisha.core.visibility import join_labels
from shikisha.engine.conductor import SpeakingConductor
from shikisha.journal.run_index import SESSION_NAMES
from shikisha.server.http.api_errors import ApiError
from shikisha.server.keys.key import Principal
from shikisha.server.lifecycle.authorization import RequestedRun
from shikisha.server.lifecycle.run_progress import visible_run
from shikisha.server.lifecycle.service import RunService
from shikisha.server.store import RunFilter, RunOrder, ServedRun, ServedState

_MAX_TURNS = 20
_MAX_CHARACTERS = 200_000
_HEADER = "X-Shikisha-Session"


class SpokenTurn(NamedTuple):
    """What a member of a group chat said in a run; None: nothing yet, or nothing at all."""

    speaker: str
    text: str | None


def _session_metadata(metadata: Mapping[str, str], name: str) -> Mapping[str, str]:
    """Return a run's metadata with its session; ApiError (400) where they name another one."""
    for field in SESSION_NAMES:
        if metadata.get(field, name) != name:
            said = f"the metadata name another session in {field!r}"
            raise ApiError(400, f"{_HEADER}: {said}", "invalid_value", param=f"metadata.{field}")
    return {**metadata, SESSION_NAMES[0]: name}


async def continue_session(service: RunService, by: Principal, requested: RequestedRun) -> RequestedRun:
    """Return a requested run as a further turn of the session that its options name.

    ApiError (400) where the request brings earlier turns itself, (409) while a turn of the session goes on. A request
    that is repeated under its idempotency key is the same turn again.
    """
    name, task, idempotency = requested.options.session, requested.task, requested.idempotency
    if task.exchanges or any(turn.speaker is not Speaker.SYSTEM for turn in task.history):
        said = "the session has the earlier turns: expected the new message alone, with system messages at most"
        raise ApiError(400, f"{_HEADER}: {said}", "invalid_value", param="messages")
    wanted = RunFilter(tenant=by.tenant, key=by.key, session=name, order=RunOrder.BEGAN, limit=2 * _MAX_TURNS)
    runs = list((await service.store.search(wanted)).runs)
    same = next((place for place, each in enumerate(runs) if idempotency and each.idempotency == idempotency), -1)
    runs = runs[same + 1 :]
    going = next((each for each in runs if each.state in (ServedState.OPEN, ServedState.WAITING)), None)
    if going is not None:
        what = "waits for a person" if going.state is ServedState.WAITING else "goes on"
        raise ApiError(409, f"{_HEADER}: the session's last turn {what}: run {going.run}", "session_busy")
    found: list[tuple[ChatMessage, ChatMessage]] = []
    labels, room = join_labels(task.labels), _MAX_CHARACTERS
    for each in runs:
        if each.erased is not None or len(found) == _MAX_TURNS:
            continue
        events = await service.journal.read(each.run)
        run = Run.fold(events)
        if run.answer is None:
            continue
        said = _transcript(run, spoken_turns(service, each, events))
        room -= len(run.task.prompt) + len(said)
        if room < 0:
            break
        labels = join_labels(labels, run.scope.labels)
        found.append((ChatMessage(Speaker.USER, run.task.prompt), ChatMessage(Speaker.ASSISTANT, said)))
    history = tuple(message for pair in reversed(found) for message in pair)
    return replace(
        requested,
        task=replace(task, history=(*task.history, *history), labels=tuple(sorted(labels)), as_sent={}),
        options=replace(requested.options, session=""),
        metadata=_session_metadata(requested.metadata, name),
    )


def _transcript(run: Run, spoken: Sequence[SpokenTurn]) -> str:
    """Return what a finished run said: its answer, or the turns of its group chat as lines of JSON, the answer last."""
    answer = run.answer or ""
    if not spoken:
        return answer
    turns = [turn for turn in spoken if turn.text is not None]
    if turns and turns[-1].text != answer:  # somebody changed it in review, or an earlier turn was kept
        turns = [*turns[:-1], SpokenTurn(turns[-1].speaker, answer)]
    lines = [json.dumps({"speaker": turn.speaker, "says": turn.text}, ensure_ascii=False) for turn in turns]
    return "\n".join(lines[-_MAX_TURNS:])


def spoken_turns(service: RunService, served: ServedRun, events: Sequence[Event]) -> tuple[SpokenTurn, ...]:
    """Return who said what in a run; none of one that was no group chat. What readers may not see yet is withheld."""
    whole = Run.fold(events)
    try:
        _, conductor = service.cast(served.conductor, whole.started.pool)
    except ConfigError:  # of a configuration that is gone
        return ()
    if not isinstance(conductor, SpeakingConductor):
        return ()
    run = visible_run(whole, events, service.container.autonomy_policy())
    return tuple(_spoken_turns(run))


def _spoken_turns(run: Run) -> Iterator[SpokenTurn]:
    for each in run.rounds:
        if each.plan is not None and each.plan.steps:
            result = each.results[-1] if each.results else None
            yield SpokenTurn(run.started.pool[each.plan.steps[-1].worker], result.text if result else None)
