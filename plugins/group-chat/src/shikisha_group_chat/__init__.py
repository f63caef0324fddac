"""The kind of conductor `chat`: members of the pool speak in turn about the task (`chat:ORDER?workers=a,b&turns=6`).

`group_chat` is the conductor. It comes to Shikisha through the entry point group `shikisha.conductors`.
"""

from collections.abc import Mapping
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from shikisha.conductors.fixed_conductors import ScriptedConductor
from shikisha.config.config_table import ConfigTable
from shikisha.engine.conductor import ConductorKind, ConductorParts
from shikisha_group_chat.group_chat import ChatOptions, GroupChatConductor, SpeakerOrder


class GroupChatTable(ConfigTable):
    """[conductors.NAME] kind = "chat": members of the pool speak in turn about the task."""

    order: SpeakerOrder = Field(
        default=SpeakerOrder.ROUND_ROBIN,
        description="who speaks next: each in turn, whom the model of `by` names, or whom the policy of `by` chooses",
    )
    by: str | None = Field(
        default=None,
        description="with conductor: a worker of [workers] that names the speaker, and need not be in the pool; with "
        "policy: a conductor that chooses among the members, as in policy:FILE",
    )
    workers: tuple[str, ...] = Field(default=(), description="the members, in their order; by default the whole pool")
    roles: dict[str, str] = Field(default={}, description="what a member is told of its part, by worker")
    turns: int = Field(
        default=12, ge=1, le=1000, description="the most turns; each is a round and a step of the budget"
    )
    last: int = Field(default=8, ge=0, description="how many of the last turns a member sees")
    until: str = Field(default="", description="a text that ends the chat when a member says it; by default none does")
    agree: Literal[0] | Annotated[int, Field(ge=2, le=100)] = Field(
        default=0, description="how many members must give the same answer for the chat to end; 0: it is not looked at"
    )
    closer: str = Field(
        default="", description="the worker that has the last turn and gives the answer; by default none"
    )

    @model_validator(mode="after")
    def _has_chooser(self) -> Self:
        if (self.order is SpeakerOrder.ROUND_ROBIN) != (self.by is None):
            raise ValueError(
                'order = "conductor" needs `by`, the worker that names the speaker, and order = "policy" the conductor '
                "that chooses; round-robin has none"
            )
        if self.order is SpeakerOrder.POLICY and self.closer:
            raise ValueError('closer: with order = "policy" the policy says whose turn is the answer')
        return self


def build(table: GroupChatTable, parts: ConductorParts) -> GroupChatConductor:
    """Return the chat; ConfigError where its pool lacks a worker that the table names."""
    options = ChatOptions(table.workers, table.roles, table.turns, table.last, table.until, table.closer, table.agree)
    by_policy = table.order is SpeakerOrder.POLICY
    chooser = parts.member(table.by) if table.by and not by_policy else None
    policy = parts.conductor(table.by, None) if table.by and by_policy else None
    conductor = GroupChatConductor(parts.name, table.order, options, chooser, policy)
    if parts.pool is not None:
        conductor.seats(parts.pool.cards)
    return conductor


def _read(order: str, options: Mapping[str, str]) -> Mapping[str, object]:
    """Return the table of `chat:ORDER?workers=a,b&turns=6`."""
    return {**options, "order": order, "workers": [one for one in options.get("workers", "").split(",") if one]}


KIND = ConductorKind(settings=GroupChatTable, build=build, double=lambda: ScriptedConductor(()), read=_read)
