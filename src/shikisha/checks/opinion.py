"""The check that asks a worker of the pool whether an answer meets a criterion.

Invariants: the worker is asked inside the run's budget and journal, for the judge's bounded verdict. Only "right" has
passed, or a person's yes or pass. A worker that cannot tell, or says anything else, has given no answer: that is no
pass, and `on_fail` follows. What is judged stands in the question as a JSON string, so that it cannot end and speak for
us. Deliberately absent: scores, and asking twice.
"""

import json
import re

from pydantic import Field

from shikisha.core.errors import UnknownName
from shikisha.core.events import CheckStatus
from shikisha.core.kinds import Kind
from shikisha.core.run import CheckVerdict
from shikisha.core.toml import Table
from shikisha.engine.pool import Inspection
from shikisha.evals.graders.judge import Verdict, parse_verdict, verdict_schema

_FIRST_WORD = re.compile(r"[^\w]*(yes|no|pass|passed|fail|failed)\b", re.IGNORECASE)
_LONGEST_REASON = 500  # characters: reasons are sent to the worker that is asked again
_FORM = """\
Does the answer meet it? Reply with one JSON object and nothing else: "reason" says why in one sentence; "verdict" is \
"right" where it does, "wrong" where it does not, or "cannot tell".
For example, to the part "How many are 3 times 4?" and the answer "15":
{"reason": "3 times 4 is 12.", "verdict": "wrong"}"""


class OpinionCheckSettings(Table):
    """The worker that is asked, by name, and what the answer must be."""

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
    """Passes answers that another worker finds right."""

    def __init__(self, settings: OpinionCheckSettings, name: str = "opinion") -> None:
        self.name = name
        self._settings = settings

    async def inspect(self, inspection: Inspection) -> CheckVerdict:
        """Ask, and read the verdict that ends the reply, or its first word; WorkerError when the worker gives none."""
        if inspection.ask is None:
            return CheckVerdict(self.name, CheckStatus.NO_ANSWER, "no worker can be asked here")
        try:
            reply = await inspection.ask(self._settings.worker, self._question(inspection), verdict_schema(1))
        except UnknownName as error:  # a child run's pool may be without it
            return CheckVerdict(self.name, CheckStatus.NO_ANSWER, str(error))
        verdict, word = parse_verdict(reply), _FIRST_WORD.match(reply)
        if verdict is None and word is not None:
            reason = reply[word.end() :].lstrip(" \t\r\n.,:;!*_-").rstrip()
            verdict = Verdict(float(word[1].lower().startswith(("yes", "pass"))), reason)
        if verdict is None or verdict.score is None:
            reason = f"gave no verdict: {reply.strip()}" if verdict is None else f"cannot tell: {verdict.reason}"
            reason = f"{self._settings.worker} {reason}"[:_LONGEST_REASON]
            return CheckVerdict(self.name, CheckStatus.NO_ANSWER, reason)
        status = CheckStatus.PASS if verdict.score else CheckStatus.FAIL
        return CheckVerdict(self.name, status, verdict.reason[:_LONGEST_REASON])

    def _question(self, inspection: Inspection) -> str:
        return "\n\n".join(
            (
                "Judge an answer that somebody else gave to a part of the question.",
                f"That part, as a JSON string:\n{json.dumps(inspection.subtask, ensure_ascii=False)}",
                f"The answer, as a JSON string:\n{json.dumps(inspection.text, ensure_ascii=False)}",
                f"The criterion: {self._settings.criterion}",
                _FORM,
            )
        )
