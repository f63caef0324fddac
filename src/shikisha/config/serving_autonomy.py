"""[autonomy]: how much runs may do on their own, by class of task.

Invariant: a class that cannot be kept as it is written is an error, never a class that asks less: `escalate` has a
rule, rules belong to `escalate`, and a class that fits every task is the last one. Deliberately absent: what the modes
come to (`oversight`, `closing`), and who may answer (the server's keys, or whoever has the terminal).
"""

from typing import Self

from pydantic import Field, model_validator

from shikisha.call import Ask
from shikisha.config.table import Table
from shikisha.oversight import Autonomy, Mode, OnFailure, Oversight, Rules


class ClassTable(Table):
    """[[autonomy.classes]]: a class of tasks and its mode; the first class that fits a task decides."""

    name: str = Field(default="", max_length=100, description="what the people who are asked are told")
    domain: str | tuple[str, ...] = Field(default=(), description="task domains, any of them; by default all")
    labels: tuple[str, ...] = Field(default=(), description="labels that are all on the task (a key adds its own)")
    conductor: str | tuple[str, ...] = Field(default=(), description="conductors, any of them; by default all")
    mode: Mode
    workers: tuple[str, ...] = Field(default=(), description="workers whose every call a person approves")
    check: bool = Field(default=False, description="escalate: a check on the answer did not pass, or a step failed")
    substitution: bool = Field(default=False, description="escalate: another worker or conductor stood in")
    disagreement: bool = Field(default=False, description="escalate: workers asked the same answered differently")
    dollars: float | None = Field(default=None, ge=0, allow_inf_nan=False, description="escalate: it cost more")
    confidence: float | None = Field(default=None, gt=0, le=1, description="escalate: a plan was drawn with less")
    expires: float | None = Field(default=None, gt=0, allow_inf_nan=False, description="seconds that a question waits")
    on_failure: OnFailure = Field(default=OnFailure.KEEP, description="rollback: a run without an answer is undone")

    @model_validator(mode="after")
    def _complete(self) -> Self:
        rules = [name for name in _RULES if name in self.model_fields_set]
        if self.mode is Mode.ESCALATE and not (rules or self.workers):
            raise ValueError(f'mode "escalate" needs a rule: one of {", ".join(_RULES)} or workers')
        if self.mode is not Mode.ESCALATE and rules:
            raise ValueError(f'{", ".join(rules)}: a rule is for mode "escalate"; this class is {self.mode}')
        if self.mode is Mode.AUTONOMOUS and self.workers:
            raise ValueError('workers: nobody is asked in mode "autonomous"; choose "escalate"')
        return self

    @property
    def under(self) -> tuple[str, ...]:
        """The conductors."""
        return _several(self.conductor)

    def autonomy(self, expires: float | None) -> Autonomy:
        """Return it as the engine's value; `expires` is for classes that do not say it."""
        return Autonomy(
            name=self.name,
            mode=self.mode,
            domains=_several(self.domain),
            labels=self.labels,
            conductors=self.under,
            rules=Rules(self.check, self.substitution, self.disagreement, self.dollars, self.confidence, self.workers),
            expires=expires if self.expires is None else self.expires,
            on_failure=self.on_failure,
        )

    @property
    def fits_all(self) -> bool:
        """Whether every task is of this class."""
        return not (self.domain or self.labels or self.conductor)


_RULES = ("check", "substitution", "disagreement", "dollars", "confidence")


def _several(names: str | tuple[str, ...]) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else names


class AutonomyTable(Table):
    """[autonomy]: `approval` for workers that do not say themselves whether a person approves their calls; classes."""

    approval: Ask = Ask.NEVER
    expires: float | None = Field(default=None, gt=0, allow_inf_nan=False, description="seconds that questions wait")
    classes: tuple[ClassTable, ...] = Field(default=(), description="the first class that fits a task decides")

    @model_validator(mode="after")
    def _reachable(self) -> Self:
        for place, table in enumerate(self.classes[:-1]):
            if table.fits_all:
                raise ValueError(f"classes[{place}] fits every task, so that none after it is ever looked at")
        return self

    def oversight(self, expires: float | None = None) -> Oversight:
        """Return it as the engine's value; `expires` holds where neither table says how long questions wait."""
        general = expires if self.expires is None else self.expires
        return Oversight(tuple([table.autonomy(general) for table in self.classes]), Autonomy(expires=general))
