"""The check that asks a worker of the pool whether an answer meets a criterion.

Invariants: the worker is asked inside the run's budget and journal; only a reply that begins with yes or pass has
passed, and one that begins with neither yes, pass, no nor fail is no answer. What is judged stands in the question as a
JSON string, so that it cannot end and speak for us. Deliberately absent: scores, and asking twice.
"""

import json
import re

from pydantic import BaseModel, ConfigDict, Field

from shikisha.core.errors import UnknownName
from shikisha.core.events import CheckStatus
from shikisha.core.kinds import Kind
from shikisha.core.run import CheckVerdict
from shikisha.engine.checker import Inspection

_VERDICT = re.compile(r"[^\w]*(yes|no|pass|passed|fail|failed)\b", re.IGNORECASE)
_LONGEST_REASON = 500  # characters: reasons are sent to the worker that is asked again


class OpinionCheckSettings(BaseModel):
    """The worker that is asked, by name, and what the answer must be."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    worker: str = Field(description="the worker that judges the answer")
    criterion: str = Field(
        default="The answer does what the subtask asks, and nothing in it is wrong.",
        description="what must hold of the answer",
    )


def build_opinion(settings: OpinionCheckSettings, name: str) -> "OpinionCheck":
    """Return the check."""
    return OpinionCheck(settings, name)


OPINION = Kind(settings=OpinionCheckSettings, build=build_opinion)


class OpinionCheck:
    """Passes answers of which another worker says yes."""

    def __init__(self, settings: OpinionCheckSettings, name: str = "opinion") -> None:
        self.name = name
        self._settings = settings

    async def inspect(self, inspection: Inspection) -> CheckVerdict:
        """Ask, and read the first word of the reply; WorkerError when the worker gives none."""
        if inspection.ask is None:
            return CheckVerdict(self.name, CheckStatus.NO_ANSWER, "no worker can be asked here")
        try:
            reply = (await inspection.ask(self._settings.worker, self._question(inspection))).strip()
        except UnknownName as error:  # a child run's pool may be without it
            return CheckVerdict(self.name, CheckStatus.NO_ANSWER, str(error))
        verdict = _VERDICT.match(reply)
        if verdict is None:
            reason = f"{self._settings.worker} said neither yes nor no: {reply}"
            return CheckVerdict(self.name, CheckStatus.NO_ANSWER, reason[:_LONGEST_REASON])
        passed = verdict[1].lower().startswith(("yes", "pass"))
        reason = reply[verdict.end() :].lstrip(" \t\r\n.,:;!*_-")[:_LONGEST_REASON]
        return CheckVerdict(self.name, CheckStatus.PASS if passed else CheckStatus.FAIL, reason)

    def _question(self, inspection: Inspection) -> str:
        return "\n\n".join(
            (
                "Judge an answer that somebody else gave to a part of the question.",
                f"That part, as a JSON string:\n{json.dumps(inspection.subtask, ensure_ascii=False)}",
                f"The answer, as a JSON string:\n{json.dumps(inspection.text, ensure_ascii=False)}",
                f"The criterion: {self._settings.criterion}",
                "Does the answer meet it? Begin with yes or no, then say why in one sentence.",
            )
        )
