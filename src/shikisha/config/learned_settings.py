"""Tables of the configuration for what is learned from runs: [notes], [learned], [memory], and `value` conductors.

Each thing learned has a file that a command wrote and a switch here; without a file nothing learned is used.
"""

from pathlib import Path
from typing import Literal

from pydantic import Field

from shikisha.config.config_table import ConfigTable


class NotesTable(ConfigTable):
    """[notes]: what outcomes say about workers, shown to conductors next to the cards."""

    file: Path | None = Field(
        default=None,
        description="notes that `shikisha notes --out FILE` wrote, or step values of `learn`; relative to this file",
    )
    explore: float = Field(
        default=0.0, ge=0, le=1, description="the share of tasks that name the worker that was tried least"
    )
    forget: bool = Field(
        default=True,
        description="whether `shikisha notes` forgets what a worker did before its runs went worse than notes foretold",
    )


class LearnedTable(ConfigTable):
    """[learned]: what else was learned from runs, and what of it is used."""

    prompt: Path | None = Field(
        default=None, description="advice for planners that `shikisha tune --out FILE` wrote; relative to this file"
    )
    lessons: Path | None = Field(
        default=None, description="lessons that `shikisha memory learn --out FILE` wrote; relative to this file"
    )
    skills: Path | None = Field(
        default=None, description="the folder of skills that `shikisha skills mine` filled; relative to this file"
    )
    share: float = Field(
        default=0.5, ge=0, le=1, description="the share of the tasks that are shown lessons which are still on trial"
    )
    use: tuple[Literal["notes", "values", "prompt", "lessons", "skills"], ...] = Field(
        default=("notes", "values", "prompt", "lessons", "skills"),
        description="what is used; leave one out to switch it off and keep its file",
    )

    switches: Path = Field(
        default=Path("learned-switches.json"),
        description="where the page and `shikisha learned --off` write what is switched off; relative to this file",
    )

    @property
    def files(self) -> tuple[tuple[str, Path | None], ...]:
        """What planners are shown, by its name in `use`."""
        return ("prompt", self.prompt), ("lessons", self.lessons)


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


class ValueTable(ConfigTable):
    """[conductors.NAME] kind = "value": plans are weighed by step values that `shikisha learn` wrote."""

    kind: Literal["value"] = Field(description="step values that `shikisha learn steps` or `learn plans` wrote choose")
    file: Path = Field(description="the file of step values; relative to this file")
    over: str = Field(description="the conductor in force: it proposes first, and plans alone where values stand by")
    also: tuple[str, ...] = Field(
        default=(),
        description="further conductors whose plans are considered; a fixed one's also before `over` is asked",
    )
    worth: float = Field(
        default=0.05, gt=0, allow_inf_nan=False, description="US dollars that a right answer is worth: the dial of cost"
    )
    explore: float = Field(
        default=0.05, ge=0, le=1, description="the share of the tasks on which workers are drawn, to learn of them"
    )
    share: float | None = Field(
        default=None,
        ge=0,
        le=1,
        description="the share of the tasks on which values act; by default all if they were shown to gain, else half",
    )
