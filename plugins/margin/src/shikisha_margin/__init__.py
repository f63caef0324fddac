"""Rate plans ([plans.NAME]): what requests of a key bring, and what share of that the server keeps.

`margins` keeps the accounts at a server, `report` is `shikisha margin`. They come to Shikisha through the entry point
groups `shikisha.admissions` and `shikisha.commands`.
"""

from typing import Literal

from pydantic import Field, model_validator

from shikisha.config.config_table import ConfigTable


class RateClassTable(ConfigTable):
    """[plans.NAME.classes.CLASS]: what differs for requests of one task domain."""

    revenue_per_1k: float | None = Field(
        default=None, gt=0, allow_inf_nan=False, description="US dollars that a thousand requests of it bring"
    )
    margin: float | None = Field(
        default=None, ge=0, lt=1, description="the share of what they bring that is to be left"
    )


class RatePlanTable(ConfigTable):
    """[plans.NAME]: what the requests of some keys bring, and what share of that is to be left.

    The server uses the first conductor that there is room for. The first plan that fits a key decides.
    """

    revenue_per_1k: float = Field(gt=0, allow_inf_nan=False, description="US dollars that a thousand requests bring")
    margin: float = Field(
        default=0.5, ge=0, lt=1, description="the share of what requests bring that is to be left after their cost"
    )
    conductors: tuple[str, ...] = Field(
        default=(),
        description="conductors for the model `shikisha`, the best first and the cheapest last; by default the "
        "configured one",
    )
    over: Literal["degrade", "refuse"] = Field(
        default="degrade",
        description="where even the last conductor costs more than is allowed: degrade uses it, refuse answers 402",
    )
    burst: int = Field(default=20, ge=1, le=10_000, description="how many requests' allowances can be saved")
    tenants: tuple[str, ...] = Field(default=(), description="the tenants whose keys have this plan")
    keys: tuple[str, ...] = Field(
        default=(), description="the keys that have this plan, by id; without keys and tenants, all have it"
    )
    classes: dict[str, RateClassTable] = Field(
        default={}, description="classes of tasks with an account of their own, by task domain"
    )

    @model_validator(mode="after")
    def _no_repeats(self) -> "RatePlanTable":
        if len(set(self.conductors)) < len(self.conductors):
            raise ValueError("conductors: expected each one once, the best first")
        if "" in self.classes:
            raise ValueError("classes: expected the name of a task domain, not an empty one")
        return self

    def allowances(self) -> dict[str, float]:
        """Return the dollars that a request may cost, by class; the empty name is for all that are not listed."""
        own = RateClassTable()
        return {
            name: (table.revenue_per_1k or self.revenue_per_1k)
            / 1000
            * (1 - (self.margin if table.margin is None else table.margin))
            for name, table in {"": own, **self.classes}.items()
        }

    def revenue(self, domain: str) -> float:
        """Return the dollars that a request of this class brings."""
        table = self.classes.get(domain)
        return (table.revenue_per_1k if table and table.revenue_per_1k else self.revenue_per_1k) / 1000
