"""A check on how long an answer is, in characters and in words (what white space parts).

Deliberately absent: tokens, which nobody but a model's own tokenizer can count.
"""

from pydantic import BaseModel, ConfigDict, Field, model_validator

from shikisha.core.events import CheckStatus
from shikisha.core.run import CheckVerdict
from shikisha.engine.checker import Inspection


class Settings(BaseModel):
    """The least and the most, both included."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    min_characters: int = Field(default=0, ge=0, description="the least characters of an answer")
    max_characters: int | None = Field(default=None, ge=0, description="the most characters of an answer")
    min_words: int = Field(default=0, ge=0, description="the least words of an answer")
    max_words: int | None = Field(default=None, ge=0, description="the most words of an answer")

    @model_validator(mode="after")
    def _in_order(self) -> "Settings":
        pairs = ((self.min_characters, self.max_characters), (self.min_words, self.max_words))
        if any(most is not None and most < least for least, most in pairs):
            raise ValueError("a maximum is below its minimum: no answer could pass")
        return self


def build(settings: Settings, name: str) -> "LengthCheck":
    """Return the check."""
    return LengthCheck(settings, name)


class LengthCheck:
    """Passes answers whose length is within bounds."""

    def __init__(self, settings: Settings, name: str = "length") -> None:
        self.name = name
        self._settings = settings

    async def inspect(self, inspection: Inspection) -> CheckVerdict:
        """Count, and name the first bound that does not hold."""
        bounds = self._settings
        counts = (
            ("characters", len(inspection.text), bounds.min_characters, bounds.max_characters),
            ("words", len(inspection.text.split()), bounds.min_words, bounds.max_words),
        )
        for unit, count, least, most in counts:
            if count < least or (most is not None and count > most):
                bound = f"at least {least}" if count < least else f"at most {most}"
                return CheckVerdict(
                    self.name, CheckStatus.FAIL, f"the answer has {count} {unit}, {bound} are asked for"
                )
        return CheckVerdict(self.name, CheckStatus.PASS)
