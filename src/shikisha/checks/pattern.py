"""A check that an answer holds, or does not hold, a regular expression.

Invariant: no pattern on no answer takes longer than its time (`text_match`); what is still undecided then has not
passed. Deliberately absent: options that the pattern's own flags have, such as `(?i)`.
"""

from pydantic import BaseModel, ConfigDict, Field

from shikisha.core.events import CheckStatus
from shikisha.core.run import CheckVerdict
from shikisha.engine.checker import Inspection
from shikisha.evals.graders.text_match import compile_pattern, search_pattern


class Settings(BaseModel):
    """The pattern; whether it must cover the whole answer; whether it must not occur; the most seconds it may take."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    pattern: str = Field(description="a regular expression")
    whole: bool = Field(default=False, description="whether the pattern must match the whole answer")
    forbidden: bool = Field(default=False, description="whether the pattern must not occur")
    seconds: float = Field(default=1.0, gt=0, le=60, description="the most seconds to judge one answer")


def build(settings: Settings, name: str) -> "PatternCheck":
    """Return the check; ConfigError says where in the pattern the mistake is."""
    return PatternCheck(settings, name)


class PatternCheck:
    """Passes answers in which the pattern is found (or, forbidden, is not)."""

    def __init__(self, settings: Settings, name: str = "pattern") -> None:
        self.name = name
        self._settings = settings
        self._pattern = compile_pattern(settings.pattern, f"checks.{name}.pattern")

    async def inspect(self, inspection: Inspection) -> CheckVerdict:
        """Look for the pattern."""
        try:
            match = await search_pattern(
                self._pattern, inspection.text, self._settings.seconds, whole=self._settings.whole
            )
        except TimeoutError:
            reason = f"the pattern was still undecided after {self._settings.seconds:g} s"
            return CheckVerdict(self.name, CheckStatus.FAIL, reason)
        if (match is not None) is not self._settings.forbidden:
            return CheckVerdict(self.name, CheckStatus.PASS)
        wish = "must not hold" if self._settings.forbidden else "must be all" if self._settings.whole else "must hold"
        return CheckVerdict(self.name, CheckStatus.FAIL, f"the answer {wish} {self._settings.pattern}")
