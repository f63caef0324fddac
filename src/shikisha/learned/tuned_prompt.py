"""Advice for a planner as a learned file: what `tune` found, what it brought, and on which tasks.

Invariant: advice is text, never code; it is shown to the planner as quoted lines and cannot pass for its instructions.
"""

from collections.abc import Sequence
from pathlib import Path

from shikisha.core.errors import ConfigError
from shikisha.core.task import Scope
from shikisha.learned.learned_file import LearnedFile, LearnedGain, read_learned

PROMPT = "prompt"
MAX_ADVICE = 4_000  # characters


def prompt_file(
    advice: str, evidence: Sequence[str], scope: Scope, gain: LearnedGain | None, made: float
) -> LearnedFile:
    """Return advice as a learned file."""
    return LearnedFile(PROMPT, {"advice": advice}, tuple(evidence), scope, gain, made)


def load_advice(file: Path) -> LearnedFile:
    """Read advice; ConfigError where there is none, it was changed, or it is too long."""
    learned = read_learned(file, PROMPT)
    advice_of(learned, str(file))
    return learned


def advice_of(learned: LearnedFile, name: str) -> str:
    """Return the advice in a learned file; ConfigError where there is none, or it is too long."""
    advice = learned.content.get("advice")
    if not isinstance(advice, str) or len(advice) > MAX_ADVICE:
        raise ConfigError(f"{name}: advice: expected a text of at most {MAX_ADVICE:,} characters")
    return advice
