"""[conductors.NAME]: one table for each kind of conductor that a configuration may name."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, Tag, model_validator

from shikisha.conductors.topologies import TOPOLOGIES
from shikisha.config.config_table import ConfigTable, PluggedTable, own_or_plugged
from shikisha.core.prompts import PlanFormat, RepeatedTask

OWN_CONDUCTORS = ("lm", "fixed", "rules", "policy")
REMOVED_KINDS = {  # kinds of conductors that left, and what to write
    "value": "value conductors were removed: write [learning] on = true, or learned:CONDUCTOR",
    "pointer": "pointer conductors were removed: write [learning] on = true, learned:CONDUCTOR, or head:shipped",
}


class LmTable(ConfigTable):
    """[conductors.NAME] kind = "lm": a chat endpoint writes the plans."""

    kind: Literal["lm"] = Field(description="a language model behind a chat endpoint writes the plans")
    endpoint: str = Field(description="a worker of [workers] that writes the plans; it need not be in the pool")
    fallback: str = Field(
        default="fixed:single",
        description="the conductor that plans when this one writes no valid plan; by default one worker gets the task",
    )
    form: PlanFormat | None = Field(
        default=None, description="how plans are written; by default json where the endpoint has structured_output"
    )
    described: bool = Field(
        default=True, description="whether the prompt shows descriptions and prices of workers, or only their ordinals"
    )
    examples: bool = Field(default=True, description="whether the prompt shows example plans")
    rounds: int = Field(default=3, ge=1, description="the most rounds it plans: the first plan, and revisions")
    shown: int = Field(
        default=40,
        ge=1,
        description="the most workers that the prompt describes; of a larger pool those whose cards fit the task best",
    )
    repeats: RepeatedTask = Field(
        default=RepeatedTask.TELL,
        description="what to do with a first plan that only repeats the task for the first worker: tell it in the "
        "plan's note, or let the fallback plan",
    )


class FixedTable(ConfigTable):
    """[conductors.NAME] kind = "fixed": a fixed topology with named workers."""

    kind: Literal["fixed"] = Field(description="the same topology for every task")
    topology: str = Field(description="the name of the topology: single, vote, cascade, chain, ...")
    workers: tuple[str, ...] = Field(
        default=(), description="the workers that perform its steps; by default chosen by price"
    )
    n: int | None = Field(
        default=None, ge=1, description="how many workers answer at once, where the topology allows it"
    )
    roles: dict[str, str] = Field(
        default={}, description="the worker for a named role of the topology, as in { join = NAME }"
    )

    @model_validator(mode="before")
    @classmethod
    def _tells_roles(cls, given: object) -> object:
        topology = given.get("topology") if isinstance(given, dict) else None
        roles = TOPOLOGIES[topology].roles if isinstance(topology, str) and topology in TOPOLOGIES else ()
        if isinstance(given, dict) and (wrong := [role for role in roles if role in given]):
            raise ValueError(f"{wrong[0]} is a role: expected roles = {{ {wrong[0]} = NAME }}")
        return given


class RulesTable(ConfigTable):
    """[conductors.NAME] kind = "rules": hand-written rules."""

    kind: Literal["rules"] = Field(description="hand-written rules choose the plan")
    file: str = Field(description="a TOML file of rules, relative to this file")


class PolicyTable(ConfigTable):
    """[conductors.NAME] kind = "policy": a learned policy, or a policy registry, at one operating point."""

    kind: Literal["policy"] = Field(description="a policy that `shikisha learn` fitted")
    file: Path = Field(description="a policy file, or the folder of a policy registry; relative to this file")
    quality: float | None = Field(
        default=None, ge=0, description="accuracy to reach at the least cost, as a share of the best single worker's"
    )
    max_cost: float | None = Field(
        default=None, ge=0, description="the average cost to stay below, as a share of the best single worker's"
    )
    budget_per_1k: float | None = Field(default=None, ge=0, description="US dollars for a thousand tasks")
    price: float | None = Field(
        default=None, ge=0, description="lambda: the accuracy that one more unit of cost must bring"
    )
    rung: str = Field(default="", description="a simpler candidate policy of the file, instead of the selected one")
    explore: float | None = Field(
        default=None, ge=0, le=1, description="the share of the cost spent on workers with few outcomes"
    )

    def query(self) -> str:
        """Return the options as they stand in a conductor's name."""
        given = {
            "quality": self.quality,
            "max_cost": self.max_cost,
            "budget_per_1k": self.budget_per_1k,
            "lambda": self.price,
            "rung": self.rung or None,
            "explore": self.explore,
        }
        return "&".join(f"{name}={value}" for name, value in given.items() if value is not None)


ConductorTable = Annotated[
    Annotated[LmTable, Tag("lm")]
    | Annotated[FixedTable, Tag("fixed")]
    | Annotated[RulesTable, Tag("rules")]
    | Annotated[PolicyTable, Tag("policy")]
    | Annotated[PluggedTable, Tag("plugged")],
    own_or_plugged(*OWN_CONDUCTORS),
]
