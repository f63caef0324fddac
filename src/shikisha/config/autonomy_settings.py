"""The tables [autonomy] and [[autonomy.classes]]: how much runs may do on their own, by class of task.

Invariant: a class that cannot be kept as written, or that no task reaches, is an error, never one that asks less often.
"""

from dataclasses import replace
from pathlib import Path
from typing import Self

from pydantic import Field, model_validator

from shikisha.config.config_table import ConfigTable
from shikisha.core.call import ApprovalMode
from shikisha.engine.autonomy import AutonomyClass, AutonomyMode, AutonomyPolicy, EscalationRules, OnFailure

_ESCALATION_RULES = ("check", "substitution", "disagreement", "dollars", "confidence")


class AutonomyClassTable(ConfigTable):
    """[[autonomy.classes]]: a class of tasks and its mode; the first class that fits a task decides.

    A class that cannot be kept as written is an error, never a class that asks less often.
    """

    name: str = Field(default="", max_length=100, description="the name that people see when they are asked")
    domain: str | tuple[str, ...] = Field(default=(), description="task domains, any of them; by default all")
    labels: tuple[str, ...] = Field(
        default=(), description="labels that a task must all carry; those of the caller's key count"
    )
    conductor: str | tuple[str, ...] = Field(default=(), description="conductors, any of them; by default all")
    mode: AutonomyMode = Field(description="how much runs of this class may do on their own")
    workers: tuple[str, ...] = Field(default=(), description="workers of which a person approves every call")
    check: bool = Field(default=False, description="escalate: ask a person when a check on the answer or a step failed")
    substitution: bool = Field(
        default=False, description="escalate: ask a person when another worker or conductor was substituted"
    )
    disagreement: bool = Field(
        default=False, description="escalate: ask a person when workers with the same subtask gave different answers"
    )
    dollars: float | None = Field(
        default=None, ge=0, allow_inf_nan=False, description="escalate: ask a person when a run cost more US dollars"
    )
    confidence: float | None = Field(
        default=None, gt=0, le=1, description="escalate: ask a person when the plan's probability is lower"
    )
    expires: float | None = Field(
        default=None, gt=0, allow_inf_nan=False, description="seconds after which an open question counts as a no"
    )
    on_failure: OnFailure = Field(
        default=OnFailure.KEEP, description="whether the effects of a run without an answer are rolled back"
    )

    @model_validator(mode="after")
    def _complete(self) -> Self:
        rules = [name for name in _ESCALATION_RULES if name in self.model_fields_set]
        if self.mode is AutonomyMode.ESCALATE and not (rules or self.workers):
            raise ValueError(f'mode "escalate" needs a rule: one of {", ".join(_ESCALATION_RULES)} or workers')
        if self.mode is not AutonomyMode.ESCALATE and rules:
            raise ValueError(f'{", ".join(rules)}: a rule is for mode "escalate"; this class is {self.mode}')
        if self.mode is AutonomyMode.AUTONOMOUS and self.workers:
            raise ValueError('workers: mode "autonomous" asks no person; choose "escalate"')
        return self

    @property
    def conductors(self) -> tuple[str, ...]:
        """The conductors of the class; none: all."""
        return _as_tuple(self.conductor)

    @property
    def fits_all(self) -> bool:
        """Whether every task is of this class."""
        return not (self.domain or self.labels or self.conductor)

    def autonomy_class(self, expires: float | None) -> AutonomyClass:
        """Return the class as the engine's value; `expires` applies where the class has none."""
        return AutonomyClass(
            name=self.name,
            mode=self.mode,
            domains=_as_tuple(self.domain),
            labels=self.labels,
            conductors=self.conductors,
            rules=EscalationRules(
                self.check, self.substitution, self.disagreement, self.dollars, self.confidence, self.workers
            ),
            expires=expires if self.expires is None else self.expires,
            on_failure=self.on_failure,
        )


def _as_tuple(names: str | tuple[str, ...]) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else names


class AutonomyTable(ConfigTable):
    """[autonomy]: how much runs may do on their own, by class of task."""

    approval: ApprovalMode = Field(
        default=ApprovalMode.NEVER,
        description="whether a person must approve each call to a worker that does not say so itself",
    )
    expires: float | None = Field(
        default=None, gt=0, allow_inf_nan=False, description="seconds after which an open question counts as a no"
    )
    classes: tuple[AutonomyClassTable, ...] = Field(
        default=(), description="classes of tasks; the first class that fits a task decides"
    )
    proposed: Path | None = Field(
        default=None,
        description="classes that `shikisha classes propose --out FILE` wrote: those that a person confirmed follow "
        "the ones written here; relative to this file",
    )

    @model_validator(mode="after")
    def _reachable(self) -> Self:
        last = len(self.classes) - (self.proposed is None)
        for place, table in enumerate(self.classes[:last]):
            if table.fits_all:
                raise ValueError(f"classes[{place}] fits every task, so that none after it is ever looked at")
        return self

    def autonomy_policy(
        self, expires: float | None = None, confirmed: tuple[AutonomyClass, ...] = ()
    ) -> AutonomyPolicy:
        """Return the table as the engine's value; `expires` applies where neither table has one.

        `confirmed` are the classes of `proposed` that a person confirmed.
        """
        general = expires if self.expires is None else self.expires
        own = [table.autonomy_class(general) for table in self.classes]
        later = [replace(each, expires=general) for each in confirmed]
        return AutonomyPolicy((*own, *later), AutonomyClass(expires=general))
