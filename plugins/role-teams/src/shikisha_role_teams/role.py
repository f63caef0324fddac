"""What plays a role of a team without being told in words: tools as members of a team, and what hands out the answer.

Invariant: a tool gets the role's prompt as its subtask and the hand-overs that the role sees as granted results, each
with the line that says whose it is; which field is handed out is read from the configuration, and the hand-over from
the conductor's last lines. Deliberately absent: models and people, which read the same text as it is.
"""

import json
from dataclasses import replace

from shikisha.core.call import GrantedStep, Reply, Request
from shikisha.core.errors import FaultKind, WorkerError
from shikisha.engine.worker import Worker
from shikisha_role_teams.hand_over import role_line, shown_hand_overs


class ToolRole:
    """A tool in a role."""

    def __init__(self, tool: Worker, prompt: str, team: str) -> None:
        self._tool = tool
        self._prompt = prompt
        self._team = team

    async def perform(self, request: Request) -> Reply:
        """Call the tool with the hand-overs as results."""
        shown = tuple(
            GrantedStep(place, role_line(given.role, self._team), _text(given.document))
            for place, given in enumerate(shown_hand_overs(request.subtask))
        )
        subtask = self._prompt or request.task.prompt
        return await self._tool.perform(replace(request, subtask=subtask, granted=(*shown, *request.granted)))


class TeamAnswer:
    """Hands out the answer: one field of the one hand-over that it is shown, or all of it."""

    def __init__(self, answer_field: str) -> None:
        self._field = answer_field

    async def perform(self, request: Request) -> Reply:
        """Return the field; a text as it is, anything else as JSON."""
        given = shown_hand_overs(request.subtask)
        if len(given) != 1:
            raise WorkerError(FaultKind.BAD_REQUEST, f"expected one hand-over, there are {len(given)}")
        document = given[0].document
        if self._field:
            if not isinstance(document, dict) or self._field not in document:
                raise WorkerError(FaultKind.BAD_REQUEST, f"the hand-over has no field {self._field!r}")
            document = document[self._field]
        return Reply(_text(document))


def _text(document: object) -> str:
    return document if isinstance(document, str) else json.dumps(document, ensure_ascii=False)
