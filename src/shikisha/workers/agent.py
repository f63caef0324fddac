"""A worker that is an agent: a chat worker with tools, which the engine asks until it needs none any more.

Workers of the configuration are tools under their names: an `http` or `mcp` worker takes the arguments that its schema
says, a `python` worker code, the calculator an expression, any other a subtask in words. Invariants: a tool is a
worker that the configuration names for this agent (1); what a call may cost and who may see its results is what the
endpoint's card and the tools' cards say. Deliberately absent: the loop (`engine.agent_loop`), and `build`: `config`
knows the other workers.
"""

import asyncio
import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Protocol, runtime_checkable

from pydantic import Field

from shikisha.core.call import Card
from shikisha.core.errors import ConfigError, UnknownName
from shikisha.core.fast_dataclass import dataclass, field, replace
from shikisha.core.messages import object_schema
from shikisha.core.toml import Table
from shikisha.core.tools import FIND_TOOLS, Tool, ToolEffect, catalogue_sha256
from shikisha.engine.pool import Member
from shikisha.engine.worker import Json, Worker, WorkerKind

_UNFIT = re.compile(r"[^a-zA-Z0-9_-]")


def _text(description: str) -> Mapping[str, Json]:
    return {"type": "string", "description": description}


_CODE = object_schema(code=_text("a Python program; what it prints is the result"))
_EXPRESSION = object_schema(expression=_text("what to calculate, as in 12 * (3 + 4) ** 2"))
_SUBTASK = object_schema(subtask=_text("what to do, with everything needed to do it"))


class AgentSettings(Table):
    """The model that decides, its tools, and the bounds of its loop."""

    endpoint: Annotated[str, Field(min_length=1)] = Field(
        description="a chat worker with tools = true, or structured_output = true: it decides which tools are called"
    )
    tools: tuple[str, ...] = Field(
        default=(), description="workers that the agent may call as tools, and catalogues as in @crm"
    )
    turns: int = Field(default=12, ge=1, le=1_000, description="how often the model is asked in one step at most")
    offer: int = Field(
        default=15, ge=1, le=128, description="how many tools are offered at once; more can be searched with find_tools"
    )
    parallel: bool = Field(default=True, description="whether several tools may be called at once")


KIND = WorkerKind(settings=AgentSettings, uncalled="its tools may change something")


def agent_card(card: Card, endpoint: Card, given: frozenset[str]) -> Card:
    """Return the agent's card: what it does not say itself (`given` are the keys that it does) is its endpoint's.

    ConfigError for an endpoint that can call no tools, not by schema either, and for labels that only the agent would
    be cleared for.
    """
    if not (endpoint.tools or endpoint.schemas):
        expected = "expected a chat worker with tools = true, or structured_output = true"
        raise ConfigError(f"endpoint: {endpoint.name!r} cannot call tools; {expected}")
    if beyond := set(card.sees) - set(endpoint.sees):
        raise ConfigError(f"sees: {', '.join(sorted(beyond))}: the endpoint {endpoint.name!r} is not cleared for that")
    shared = {} if given & {"concurrency", "rate"} else {"limits": endpoint.limits or endpoint.name}
    inherited = {key: getattr(endpoint, key) for key in _INHERITED if key not in given} | shared
    adds = tuple(sorted({*card.adds, *endpoint.adds}))
    return replace(card, adds=adds, takes=endpoint.takes, tools=endpoint.tools, schemas=endpoint.schemas, **inherited)


_INHERITED = (
    "price",
    "max_output_tokens",
    "context_tokens",
    "concurrency",
    "rate",
    "timeout",
    "attempts",
    "sees",
)


@runtime_checkable
class _TakesArguments(Protocol):
    """A worker whose tool has a schema in the configuration."""

    @property
    def argument_schema(self) -> Mapping[str, Json]:
        """The JSON Schema of its arguments."""
        ...


class _ServerTool(Protocol):
    description: str
    schema: Mapping[str, Json]


@runtime_checkable
class _DescribedByServer(Protocol):
    """A worker whose tool is described by its server."""

    async def describe(self) -> _ServerTool:
        """Return the description that the server gives now."""
        ...


@dataclass(frozen=True, slots=True)
class WorkerTool:
    """A worker that is a tool, and what is known of its effects.

    `described_by`: the worker itself, where the member's is wrapped and does not show its arguments.
    """

    member: Member
    effect: ToolEffect
    idempotent: bool = False
    described_by: Worker | None = None


@dataclass(slots=True)
class WorkerTools:
    """Workers as the tools of an agent: all are offered, and each is described when it is first needed."""

    workers: Sequence[WorkerTool]
    name: str = "workers"
    _tools: dict[str, tuple[Tool, Member]] = field(default_factory=dict)
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def pin(self) -> str:
        """Return the hash of all descriptions."""
        return catalogue_sha256([tool for tool, _ in (await self._described()).values()])

    async def count(self) -> int:
        """Return how many there are; they were named one by one, so that none of them has to be searched."""
        return 0

    async def search(self, query: str, limit: int) -> Sequence[Tool]:  # noqa: ARG002 - the port's signature
        """Return all of them, in the order in which they are named."""
        return [tool for tool, _ in (await self._described()).values()]

    async def find(self, name: str) -> Tool | None:
        """Return the tool of exactly this name."""
        found = (await self._described()).get(name)
        return None if found is None else found[0]

    async def member(self, tool: Tool) -> Member:
        """Return the worker behind a tool."""
        described = await self._described()
        if tool.name not in described:
            raise UnknownName("tool", tool.name, described)
        return described[tool.name][1]

    async def _described(self) -> dict[str, tuple[Tool, Member]]:
        async with self._lock:
            if len(self._tools) < len(self.workers):
                tools = [(await _describe(each), each.member) for each in self.workers]
                self._tools = {tool.name: (tool, member) for tool, member in tools}
            return self._tools


def tool_names(workers: Sequence[str]) -> tuple[str, ...]:
    """Return the names under which workers are offered as tools; ConfigError when two would have one name."""
    names = tuple(_tool_name(name) for name in workers)
    for place, name in enumerate(names):
        if name in names[:place] or name == FIND_TOOLS:
            raise ConfigError(f"tools[{place}]: {workers[place]!r} would be the second tool called {name!r}")
    return names


def _tool_name(worker: str) -> str:
    return _UNFIT.sub("_", worker)[:64]


async def _describe(each: WorkerTool) -> Tool:
    member = each.member
    card, worker = member.card, each.described_by or member.worker
    description, schema, argument = card.description, _SUBTASK, "subtask"
    if isinstance(worker, _TakesArguments):
        schema, argument = worker.argument_schema, ""
    elif isinstance(worker, _DescribedByServer):
        told = await worker.describe()
        description, schema, argument = description or told.description, told.schema, ""
    elif card.kind == "python":
        schema, argument = _CODE, "code"
    elif card.kind == "local" and getattr(worker, "tool", None) == "calculator":
        schema, argument = _EXPRESSION, "expression"
    return Tool(
        _tool_name(card.name),
        description,
        schema,
        card.name,
        card.adds,
        card.price,
        each.effect,
        each.idempotent,
        argument,
    )


def default_effect(kind: str, worker_method: str = "") -> ToolEffect:
    """Return what a call of such a worker does where the configuration does not say."""
    reads = kind in {"chat", "python", "vote", "replay", "scripted"} or (kind == "http" and worker_method == "GET")
    return ToolEffect.READ if reads else ToolEffect.UNKNOWN
