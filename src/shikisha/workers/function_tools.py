"""Python functions as the tools of an agent: name, description and schema come from the signature and the docstring.

    async def pay(order: int, amount: float) -> str:
        "Pay an order."

    Agent((function_tools([pay, reads(look_up)]),))

Invariants: arguments are validated before the function is called, by the schema that the model was shown and by the
function's own types; whatever it raises is a fault of that call. A parameter called `idempotency_key` is not shown to
the model: it gets the call's key, and such a function is taken to have one effect a key. Deliberately absent: a
sandbox. The functions are the program's own and run in its process; those that are not async run in a thread.
"""

import asyncio
import inspect
import json
from collections.abc import Callable, Sequence
from typing import TypeVar, overload

from pydantic import BaseModel, ConfigDict, ValidationError, create_model
from pydantic_core import PydanticSerializationError, to_json

from shikisha.core.call import ApprovalMode
from shikisha.core.errors import ConfigError, FaultKind, WorkerError, describe_error
from shikisha.core.fast_dataclass import dataclass
from shikisha.core.toml import first_invalid
from shikisha.core.tools import Tool, ToolEffect
from shikisha.engine.guards import Guard
from shikisha.engine.pool import Member, ToolList
from shikisha.engine.worker import Card, Json, Reply, Request

ToolFunction = Callable[..., object]
F = TypeVar("F", bound=ToolFunction)
_KEY = "idempotency_key"
_READS = "_shikisha_reads"
_DESCRIPTION = "_shikisha_description"


def reads(function: F) -> F:
    """Mark a function as one that changes nothing: a call of it may be repeated, and needs no guard."""
    setattr(function, _READS, True)
    return function


@overload
def worker(function: F) -> F: ...
@overload
def worker(*, description: str = "", reads: bool = False) -> Callable[[F], F]: ...
def worker(function: F | None = None, *, description: str = "", reads: bool = False) -> F | Callable[[F], F]:
    """Mark a function as a worker or tool, which stays the function that it is.

    `description` replaces its docstring for models; `reads`: it changes nothing (as `@reads` says).
    """

    def mark(marked: F) -> F:
        setattr(marked, _DESCRIPTION, description)
        if reads:
            setattr(marked, _READS, True)
        return marked

    return mark if function is None else mark(function)


def function_tools(
    functions: Sequence[ToolFunction],
    name: str = "functions",
    *,
    approval: ApprovalMode = ApprovalMode.NEVER,
    guards: Sequence[Guard] = (),
) -> ToolList:
    """Return the functions as tools; ConfigError for a parameter without a type, or one that JSON cannot carry.

    `approval` says for which of them a person is asked; `guards` decide on each call of those that may write.
    """
    return ToolList([_function_tool(function, name, approval, tuple(guards)) for function in functions], name)


def _function_tool(
    function: ToolFunction, source: str, approval: ApprovalMode, guards: tuple[Guard, ...]
) -> tuple[Tool, Member]:
    name = getattr(function, "__name__", "")
    effect = ToolEffect.READ if getattr(function, _READS, False) else ToolEffect.WRITE
    model, keyed = _arguments_model(function, name)
    description = getattr(function, _DESCRIPTION, "") or inspect.getdoc(function) or ""
    tool = Tool(name, description, _schema(model, name), source, effect=effect, idempotent=keyed)
    card = Card(name, description, kind="function", approval=approval)
    return tool, Member(card, FunctionWorker(function, model, keyed), guards=guards if tool.writes else ())


def _arguments_model(function: ToolFunction, name: str) -> tuple[type[BaseModel], bool]:
    fields: dict[str, tuple[object, object]] = {}
    parameters = dict(inspect.signature(function, eval_str=True).parameters)
    keyed = parameters.pop(_KEY, None) is not None
    for parameter in parameters.values():
        where = f"function {name}: parameter {parameter.name}"
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise ConfigError(f"{where}: expected one that can be given by name")
        if parameter.annotation is parameter.empty:
            raise ConfigError(f"{where}: expected a type")
        fields[parameter.name] = (
            parameter.annotation,
            ... if parameter.default is parameter.empty else parameter.default,
        )
    config = ConfigDict(extra="forbid", arbitrary_types_allowed=False)
    try:
        return create_model(name or "arguments", __config__=config, **fields), keyed  # type: ignore[call-overload]
    except Exception as error:  # noqa: BLE001 - pydantic has several errors for types that it cannot take
        raise ConfigError(f"function {name}: {describe_error(error)}") from None


def _schema(model: type[BaseModel], name: str) -> dict[str, Json]:
    try:
        schema = model.model_json_schema()
    except Exception as error:  # noqa: BLE001 - as above
        raise ConfigError(f"function {name}: {describe_error(error)}") from None
    return {key: value for key, value in schema.items() if key != "title"}


@dataclass(frozen=True, slots=True)
class FunctionWorker:
    """Calls one function with the arguments in its subtask."""

    function: ToolFunction
    model: type[BaseModel]
    keyed: bool

    async def perform(self, request: Request) -> Reply:
        """Return what the function returns, as text: a text as it is, anything else as JSON."""
        try:
            arguments = dict(self.model.model_validate(json.loads(request.subtask)))
        except (ValueError, RecursionError) as error:
            said = "expected the arguments as a JSON object"
            said = first_invalid(error) if isinstance(error, ValidationError) else f"{said}: {error}"
            raise WorkerError(FaultKind.BAD_ARGUMENTS, said) from None
        if self.keyed:
            arguments[_KEY] = request.key
        try:
            if inspect.iscoroutinefunction(self.function):
                value = await self.function(**arguments)
            else:
                value = await asyncio.to_thread(self.function, **arguments)
        except WorkerError:
            raise
        except Exception as error:  # noqa: BLE001 - a tool that fails says so, and its agent goes on
            raise WorkerError(FaultKind.TOOL_ERROR, describe_error(error)) from None
        return Reply(_text(value))


def _text(value: object) -> str:
    if isinstance(value, str):
        return value
    try:
        return to_json(value).decode()
    except (PydanticSerializationError, ValueError) as error:
        raise WorkerError(FaultKind.BAD_REPLY, f"what the function returned is no JSON: {error}") from None
