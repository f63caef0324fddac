"""Tables of the configuration for what runs teach: [learning], the learner's switch, and [memory]."""

from pathlib import Path
from typing import Literal

from pydantic import Field

from shikisha.config.config_table import ConfigTable


class LearningTable(ConfigTable):
    """[learning]: one switch. The learner then chooses workers, wordings, joins and checks of the plans it is given."""

    on: bool = Field(default=False, description="whether runs teach who does what, and later runs use it")
    dollars_share: float = Field(
        default=0.1, ge=0, le=1, description="the share of dollars for trying what is not known well; more at first"
    )
    worth: float = Field(
        default=0.05, gt=0, allow_inf_nan=False, description="US dollars that a right answer is worth: the dial of cost"
    )
    phrases: tuple[str, ...] = Field(
        default=("Reply with the result only.", "Go over your result twice."),
        max_length=8,
        description="sentences that may be added to a subtask, for the workers that they are seen to help",
    )
    folder: Path = Field(default=Path("learning"), description="where models are kept; relative to this file")


class MemoryTable(ConfigTable):
    """[memory]: notes of finished runs, found again by `shikisha memory search` and `GET /memory`."""

    file: Path | None = Field(
        default=None, description="the index over the journal, made and kept by searches; relative to this file"
    )
    half_life_days: float | None = Field(
        default=None, gt=0, description="the age in days at which a note counts half; by default age does not count"
    )
    share: Literal["tenant", "all"] = Field(
        default="tenant",
        description="whose notes a key finds: those of its tenant, or all without data labels it lacks",
    )
