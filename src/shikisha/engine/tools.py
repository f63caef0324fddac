"""Where an agent's tools come from, behind one port, and who performs a call.

Invariant 1 holds for tools: the engine calls what a source finds under exactly this name, and nothing else, whatever a
model writes; a source is closed when the run begins, and its pin names what is in it. A call is performed by a Member
like any other: a card with limits, price, labels and approval, and a worker that is handed the arguments as subtask.
Deliberately absent: the loop (`agent_loop`), retrieval and catalogues' formats (they are behind the port). The shipped
fake is `ToolList`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from shikisha.core.errors import ConfigError, UnknownName
from shikisha.core.json_schema import SchemaCheck, parse_json, storable_reason
from shikisha.core.messages import Json
from shikisha.core.tools import FIND_TOOLS, Tool, catalogue_sha256
from shikisha.engine.pool import Member


class ToolSource(Protocol):
    """A closed set of tools: a catalogue, or a list of workers."""

    @property
    def name(self) -> str:
        """The name that journals carry (`@crm`)."""
        ...

    async def pin(self) -> str:
        """Return the SHA-256 of everything in it; WorkerError when it cannot be had or is not what was pinned."""
        ...

    async def count(self) -> int:
        """Return how many tools there are."""
        ...

    async def search(self, query: str, limit: int) -> Sequence[Tool]:
        """Return the tools that fit best, the best first, no more than `limit`; all of them where there are no more."""
        ...

    async def find(self, name: str) -> Tool | None:
        """Return the tool of exactly this name; None where there is none."""
        ...

    async def member(self, tool: Tool) -> Member:
        """Return who performs a call of this tool: its worker gets the arguments as JSON in `Request.subtask`."""
        ...


class ToolList:
    """Tools given one by one, each with who performs it."""

    def __init__(self, pairs: Sequence[tuple[Tool, Member]], name: str = "tools") -> None:
        self._name = name
        self._tools = {tool.name: (tool, member) for tool, member in pairs}
        if len(self._tools) < len(pairs) or FIND_TOOLS in self._tools:
            names = [tool.name for tool, _ in pairs]
            twice = sorted({each for each in names if names.count(each) > 1 or each == FIND_TOOLS})
            raise ConfigError(f"{name}: names of tools must be unique, and none is {FIND_TOOLS}: {', '.join(twice)}")

    @property
    def name(self) -> str:
        """The name that journals carry."""
        return self._name

    @property
    def members(self) -> tuple[Member, ...]:
        """Who performs the tools, in order."""
        return tuple(member for _, member in self._tools.values())

    async def pin(self) -> str:
        """Return the SHA-256 of everything in it."""
        return catalogue_sha256([tool for tool, _ in self._tools.values()])

    async def count(self) -> int:
        """Return how many tools there are."""
        return len(self._tools)

    async def search(self, query: str, limit: int) -> Sequence[Tool]:
        """Return the tools in order; where there are more than `limit`, those first that share most words with it."""
        tools = [tool for tool, _ in self._tools.values()]
        if len(tools) > limit:
            words = set(query.casefold().split())
            tools.sort(key=lambda tool: -len(words.intersection(f"{tool.name} {tool.description}".casefold().split())))
        return tools[:limit]

    async def find(self, name: str) -> Tool | None:
        """Return the tool of exactly this name."""
        return self._tools[name][0] if name in self._tools else None

    async def member(self, tool: Tool) -> Member:
        """Return who performs a call of this tool."""
        if tool.name not in self._tools:
            raise UnknownName(f"tool of {self._name}", tool.name, self._tools)
        return self._tools[tool.name][1]


class ArgumentChecks:
    """Reads the arguments that models write, against the schemas of tools; each schema is compiled once."""

    _MOST = 1_000  # schemas that are kept compiled: a catalogue may have very many

    def __init__(self) -> None:
        self._compiled: dict[str, SchemaCheck] = {}

    async def read(self, tool: Tool, text: str) -> Mapping[str, Json] | str:
        """Return the arguments, or what is wrong with them, and where."""
        arguments = self.parse(text)
        if not isinstance(arguments, dict):
            return arguments if isinstance(arguments, str) else "expected a JSON object"
        try:
            problem = await (await self._check(tool)).problem(arguments)
        except ConfigError as error:
            problem = f"the tool cannot be called: {error}"
        except TimeoutError as error:
            problem = f"whether they fit the tool's schema is {error}"
        return arguments if problem is None else storable_reason(problem)

    async def schema_problem(self, tool: Tool) -> str | None:
        """Return why no arguments can be checked against the tool's schema; None where they can be."""
        if tool.schema.get("type", "object") != "object":
            return f"its schema is of type {tool.schema['type']!r}: expected an object"[:200]
        try:
            await self._check(tool)
        except ConfigError as error:
            return storable_reason(str(error))
        return None

    @staticmethod
    def parse(text: str) -> "Json":
        """Return the JSON object in this text, or what is wrong with it as a text; no text stands for no arguments."""
        try:
            value = parse_json(text or "{}")
        except (ValueError, RecursionError) as error:
            return storable_reason(f"no JSON: {error}")
        return value if isinstance(value, dict) else f"expected a JSON object, not {type(value).__name__}"

    async def _check(self, tool: Tool) -> SchemaCheck:
        check = self._compiled.get(tool.sha256)
        if check is None:
            check = await SchemaCheck.create(tool.schema, f"tool {tool.name!r}: schema")
            if len(self._compiled) >= self._MOST:
                self._compiled.clear()
            self._compiled[tool.sha256] = check
        return check


@dataclass(frozen=True, slots=True)
class Agent:
    """What makes a worker an agent: the sources of its tools, and the bounds of its loop.

    `turns` is how often it is asked in one step; in the last turn it is offered no tools. `offer` is how many tools it
    is offered at once; where the sources hold more, it may search them. `parallel`: several calls at once. `window` is
    what it is assumed to read where its card does not say, in tokens.
    """

    sources: tuple[ToolSource, ...]
    turns: int = 12
    offer: int = 15
    parallel: bool = True
    window: int = 128_000
    checks: ArgumentChecks = field(default_factory=ArgumentChecks, compare=False, repr=False)
