"""The shipped fake: verdicts given beforehand, whatever the answer says.

Deliberately absent: any look at the answer. It keeps what it was shown, for tests.
"""

from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict, Field

from shikisha.core.events import CheckStatus
from shikisha.core.run import CheckVerdict
from shikisha.engine.checker import Inspection


class Settings(BaseModel):
    """Verdicts in turn (the last one stays) and the reason they carry."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    verdicts: tuple[CheckStatus, ...] = Field(
        default=(CheckStatus.PASS,), min_length=1, description="verdicts in turn; the last one repeats"
    )
    reason: str = Field(default="", description="the reason that the verdicts carry")


def build(settings: Settings, name: str) -> "FixedCheck":
    """Return the fake."""
    return FixedCheck(settings.verdicts, name, settings.reason)


class FixedCheck:
    """Gives its verdicts in turn, the last one for ever."""

    def __init__(self, verdicts: Sequence[CheckStatus], name: str = "fixed", reason: str = "") -> None:
        self.name = name
        self.seen: list[Inspection] = []
        self._verdicts = tuple(verdicts)
        self._reason = reason

    async def inspect(self, inspection: Inspection) -> CheckVerdict:
        """Give the next verdict."""
        verdict = self._verdicts[min(len(self.seen), len(self._verdicts) - 1)]
        self.seen.append(inspection)
        return CheckVerdict(self.name, verdict, self._reason)
