"""[teams.NAME]: roles that hand documents over to each other, and what is built from them.

Invariant: a team that can be built has a way to end, its roles exist, and the worker of each role can write what its
schema asks for; every error names the table and the key. Roles play under names of their own (`NAME/ROLE`), so that a
run's pool, its journal and its resumption know them as workers.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from pydantic import Field, JsonValue, model_validator

from shikisha.checks.opinion import OpinionCheck
from shikisha.conductors.fixed_conductors import ScriptedConductor
from shikisha.config.config_table import ConfigTable
from shikisha.core import toml
from shikisha.core.errors import ConfigError, UnknownName
from shikisha.core.json_schema import SchemaCheck
from shikisha.core.messages import Json, MediaKind
from shikisha.engine.conductor import ConductorKind, ConductorParts, TeamPlace
from shikisha.engine.pool import Member, OutputCheck
from shikisha.engine.worker import Card
from shikisha_role_teams.media_type import MediaTypeCheck
from shikisha_role_teams.role import TeamAnswer, ToolRole
from shikisha_role_teams.role_team import ANSWER_MEMBER, Role, RoleTeam, SendBack, TeamConductor
from shikisha_role_teams.tests_worker import REPORT_SCHEMA

_MAX_REPEATS = 50
_MAX_SCHEMA_BYTES = 1_000_000
CODE_TESTS = "tests"
# Kinds whose answer is a text of their own making, which no schema can change.
_TEXT_ONLY = frozenset({"embedding", "local", "replay", "vote"})
# Kinds that are called with what they are to do, and not told in words.
_TOOL_KINDS = frozenset({"http", "local", "mcp", "python", CODE_TESTS})


class SendBackTable(ConfigTable):
    """[teams.NAME.roles.ROLE.back]: to whom the work goes back, and how often."""

    to: str = Field(description="the earlier role that the work goes back to")
    until: str = Field(description="the boolean field of this role's own hand-over that must be true")
    most: int = Field(ge=1, le=_MAX_REPEATS, description="how often in one run the work may go back")
    then: str = Field(
        default="fail",
        pattern="^(fail|go-on)$",
        description="when that is used up: fail, the run has no answer; go-on, the next role takes what there is",
    )


class RoleTable(ConfigTable):
    """[teams.NAME.roles.ROLE]: one role; roles act in the order in which they are written."""

    worker: str | tuple[str, ...] | None = Field(
        default=None,
        description="the worker of [workers] that plays it; of several, the next where one hands over nothing",
    )
    skill: str | None = Field(
        default=None, description="instead of a worker: a skill; the workers that have it, the cheapest first"
    )
    prompt: str = Field(default="", description="what the role is told of its part; a tool gets it as its subtask")
    json_schema: dict[str, JsonValue] | None = Field(
        default=None, alias="schema", description="the JSON Schema of what it hands over; by default a text"
    )
    schema_file: Path | None = Field(
        default=None, description="a file that holds the JSON Schema, relative to this file"
    )
    sees: tuple[str, ...] | None = Field(
        default=None, description="the roles whose hand-overs it is shown; by default all"
    )
    asks: dict[str, int] = Field(
        default={}, description="how often in one run it may ask an earlier role back, as in { analyst = 2 }"
    )
    back: SendBackTable | None = Field(default=None, description="whether it may send the work back")

    @model_validator(mode="after")
    def _unambiguous(self) -> "RoleTable":
        if (self.worker is None) == (self.skill is None):
            raise ValueError("expected either worker or skill")
        if self.worker == ():
            raise ValueError("worker: expected at least one")
        if self.json_schema is not None and self.schema_file is not None:
            raise ValueError("expected either schema or schema_file")
        if wrong := [name for name, most in self.asks.items() if not 1 <= most <= _MAX_REPEATS]:
            raise ValueError(f"asks.{wrong[0]}: expected a number from 1 to {_MAX_REPEATS}")
        return self


class TeamTable(ConfigTable):
    """[teams.NAME]: a team, which conducts as `team:NAME`."""

    answer: str = Field(description="whose hand-over is the answer, and which field of it, as in programmer.code")
    conductor: str | None = Field(
        default=None, description="the conductor that says who does what; by default the roles act in their order"
    )
    casting: str | None = Field(
        default=None,
        description="the conductor that chooses which of several workers plays a role; by default the first",
    )
    roles: dict[str, RoleTable] = Field(description="the roles, in order")


def build_team(table: TeamTable, place: TeamPlace) -> "ConfiguredTeam":
    """Return the team of a table; ConfigError says what of it cannot work."""
    name, cards, rounds = place.name, place.cards, place.rounds
    with toml.error_location(f"{place.file}: teams.{name}"):
        if wrong := [each for each in (name, *table.roles) if not each.replace("-", "a").isidentifier()]:
            raise ConfigError(f"{wrong[0]!r}: a team and its roles are named by letters, digits, - and _")
        if ANSWER_MEMBER in table.roles:
            raise ConfigError(f"roles.{ANSWER_MEMBER}: the name is taken by what hands out the answer")
        roles = tuple(_role(each, role, place.folder, cards) for each, role in table.roles.items())
        role, _, field = table.answer.partition(".")
        team = RoleTeam(name, roles, role, field)
        if rounds < team.fewest_steps:
            raise ConfigError(
                f"there is no way to end within budgets.rounds = {rounds}: the team needs {team.fewest_steps} "
                f"when nothing is sent back, and {team.most_steps} at most"
            )
        asked = tuple(each for each in (table.conductor, table.casting) if each)
        return ConfiguredTeam(team, asked, place.guarded)


def _role(name: str, table: RoleTable, folder: Path, cards: Mapping[str, Card]) -> Role:
    where = f"roles.{name}"
    workers = _workers(where, table, cards)
    schema = _schema(where, table, folder)
    for worker in workers:
        kind = cards[worker].kind
        if kind == "conductor":
            raise ConfigError(f"{where}.worker: {worker!r} is a child run, whose workers are no members of the team")
        if kind == CODE_TESTS and schema is not None:
            raise ConfigError(
                f"{where}.schema: {worker!r} runs tests and hands over passed and report; expected no schema"
            )
        if schema is not None and kind in _TEXT_ONLY:
            raise ConfigError(
                f"{where}.schema: {worker!r} (kind {kind}) gives a text and cannot write JSON to a schema"
            )
    if any(cards[worker].kind == CODE_TESTS for worker in workers):
        if len(workers) > 1:
            raise ConfigError(f"{where}.worker: tests are run by one worker alone")
        schema = REPORT_SCHEMA
    back, to = table.back, None
    if back is not None:
        to = SendBack(back.to, back.until, back.most, back.then == "go-on")
    return Role(name, workers, table.prompt, schema, table.sees, table.asks, to)


def _workers(where: str, table: RoleTable, cards: Mapping[str, Card]) -> tuple[str, ...]:
    if table.skill is not None:
        able = [card for card in cards.values() if table.skill in card.skills]
        if not able:
            known = sorted({skill for card in cards.values() for skill in card.skills})
            raise ConfigError(f"{where}.skill: {UnknownName('skill of a worker', table.skill, known)}")
        return tuple(card.name for card in sorted(able, key=_dearness))
    named = (table.worker,) if isinstance(table.worker, str) else table.worker or ()
    for name in named:
        if name not in cards:
            raise ConfigError(f"{where}.worker: {UnknownName('worker', name, cards)}")
    if len(set(named)) < len(named):
        raise ConfigError(f"{where}.worker: a worker is named twice")
    return tuple(named)


def _dearness(card: Card) -> float:
    price = card.price
    return float("inf") if price is None else price.input + price.output + price.call


def _schema(where: str, table: RoleTable, folder: Path) -> Mapping[str, Json] | None:
    schema = table.json_schema
    if table.schema_file is not None:
        path = folder / table.schema_file
        try:
            with path.open("rb") as opened:
                schema = json.loads(opened.read(_MAX_SCHEMA_BYTES))
        except (OSError, ValueError, RecursionError) as error:
            raise ConfigError(f"{where}.schema_file: {table.schema_file}: {error}") from None
        if not isinstance(schema, dict):
            raise ConfigError(f"{where}.schema_file: {table.schema_file}: expected a JSON object")
    if schema is None:
        return None
    SchemaCheck(schema, f"{where}.schema")
    with toml.error_location(f"{where}.schema"):
        MediaTypeCheck(schema)
    if schema.get("type") != "object":
        raise ConfigError(f'{where}.schema: expected a schema of an object: type = "object"')
    return schema


@dataclass(frozen=True, slots=True)
class ConfiguredTeam:
    """A team with its place among the configured workers; `conductors` are those that plan for it or cast its roles."""

    roles: RoleTeam
    conductors: tuple[str, ...]
    guarded: tuple[str, ...]

    @property
    def member_names(self) -> tuple[str, ...]:
        """The names of the members of the pool, in order; the last one hands out the answer."""
        return self.roles.member_names

    def worker_of(self, name: str) -> str | None:
        """Return the worker that plays a member; None for what hands out the answer."""
        seat = self.member_names.index(name)
        return self.roles.members[seat][1] if seat < len(self.roles.members) else None

    def card(self, name: str, find: Callable[[str], Card]) -> Card:
        """Return the card of a member.

        What hands out the answer shows it to nobody but the run, so it may see data of every label.
        """
        worker = self.worker_of(name)
        if worker is None:
            return Card(name, "Hands out the team's answer.", kind="team", takes=tuple(MediaKind), sees=self.guarded)
        card, role = find(worker), self._role(name)
        described = " ".join(part for part in (role.prompt, card.description) if part)
        shared = card.limits or worker
        return replace(card, name=name, description=described, limits=shared, fallback=None, escalate=None)

    def member(self, name: str, find: Callable[[str], Member]) -> Member:
        """Return a member: a worker with the role's name, schema and checks."""
        card, worker = self.card(name, lambda one: find(one).card), self.worker_of(name)
        if worker is None:
            return Member(card, TeamAnswer(self.roles.answer_field))
        member, role = find(worker), self._role(name)
        for handoff in member.handoffs:
            if isinstance(handoff.check, OpinionCheck):
                raise ConfigError(
                    f"teams.{self.roles.name}.roles.{role.name}.worker: the check {handoff.check.name!r} asks a worker "
                    "for an opinion, and that one is no member of the team"
                )
        typed = MediaTypeCheck(role.schema) if role.schema is not None else None
        checks = (OutputCheck(typed), *member.handoffs) if typed is not None and typed.needed else member.handoffs
        tool = ToolRole(member.worker, role.prompt, self.roles.name) if card.kind in _TOOL_KINDS else member.worker
        return replace(member, card=card, worker=tool, handoffs=checks, schema=role.answer_schema)

    def _role(self, name: str) -> Role:
        return self.roles.roles[self.roles.members[self.member_names.index(name)][0]]


def build(table: TeamTable, parts: ConductorParts) -> TeamConductor:
    """Return the conductor of `team:NAME?conductor=lm:planner&casting=policy:FILE`."""
    if unknown := parts.options.keys() - {"conductor", "casting"}:
        raise ConfigError(f"{parts.name}: unknown option {min(unknown)!r}; known are conductor, casting")
    if not isinstance(parts.team, ConfiguredTeam):
        raise ConfigError(f"{parts.name}: expected a table [teams.NAME], and the conductor team:NAME")
    team, pool = parts.team.roles, parts.pool
    planner, casting = (
        parts.options.get(key, own) for key, own in (("conductor", table.conductor), ("casting", table.casting))
    )
    roles = None if pool is None or pool.names != team.member_names else pool.subset(pool.names[:-1])
    conductor = TeamConductor(
        parts.name,
        team,
        parts.conductor(planner, roles) if planner else None,
        parts.conductor(casting, None) if casting else None,
    )
    if pool is not None:
        conductor.check_cards(pool.cards)
    return conductor


KIND = ConductorKind(settings=TeamTable, build=build, double=lambda: ScriptedConductor(()), team=build_team)
