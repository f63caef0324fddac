"""What an MCP client can ask for: `run`, `explain`, `runs`, `approvals` and `approve`, each for keys that may.

Invariants: a tool does what the HTTP API does for the same key, within the same budgets, and no more; a tool that a key
may not use is not listed and not called. What goes wrong is a result that says so (`isError`), so that the model that
called the tool can read it; nothing of it holds a key.
"""

import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from typing import Annotated, Literal

from pydantic import Field, JsonValue

from shikisha.core.errors import ShikishaError
from shikisha.core.events import RunStatus
from shikisha.core.fast_dataclass import dataclass, field
from shikisha.core.run import Run
from shikisha.core.task import Task
from shikisha.engine.approvals import Decision
from shikisha.explain import MOST_EVIDENCE, explain, explain_text, track_record
from shikisha.server.chat.completion import CompletionEnd, CompletionRequest
from shikisha.server.http.api_errors import ApiError
from shikisha.server.http.request import RequestModel, RequestOptions, validate_as
from shikisha.server.http.run_result import api_error_of
from shikisha.server.keys.key import KeyScope, Principal
from shikisha.server.lifecycle.authorization import Api, AuthorizedRun, RequestedRun, check_schemas
from shikisha.server.lifecycle.questions import answer_question, find_question, list_questions
from shikisha.server.lifecycle.run_progress import visible_family
from shikisha.server.lifecycle.service import RunService, root_run_id, start_once
from shikisha.server.runs.review_routes import approval_info
from shikisha.server.runs.routes import check_run_access, run_list_entry
from shikisha.server.store import RunFilter

Fields = dict[str, object]
_MAX_RUNS = 50


class RunArguments(RequestModel):
    """What `run` takes."""

    prompt: Annotated[str, Field(min_length=1, description="The task, in plain words, with all that it needs.")]
    context: Annotated[str, Field(description="Further text that every worker may see.")] = ""
    model: Annotated[str, Field(max_length=200, description="Who conducts; see /v1/models.")] = "shikisha"
    dollars: Annotated[float, Field(ge=0, le=10**6, description="The most that it may cost.")] | None = None
    workers: (
        Annotated[list[str], Field(min_length=1, max_length=256, description="The workers that may be used.")] | None
    ) = None
    domain: Annotated[str, Field(max_length=200, description="The task's type.")] = ""
    answer_schema: Annotated[dict[str, JsonValue], Field(description="A JSON Schema for the answer.")] | None = None


class ExplainArguments(RequestModel):
    """What `explain` takes."""

    run: Annotated[str, Field(min_length=1, max_length=256, description="The run's id.")]


class RunsArguments(RequestModel):
    """What `runs` takes."""

    text: Annotated[str, Field(max_length=256, description="Words of the task.")] = ""
    status: Annotated[str, Field(max_length=32, description="done, failed, capped, suspended, running, ...")] | None = (
        None
    )
    limit: Annotated[int, Field(ge=1, le=_MAX_RUNS, description="How many at most.")] = 10


class ApprovalsArguments(RequestModel):
    """What `approvals` takes: nothing."""


class ApproveArguments(RequestModel):
    """What `approve` takes."""

    approval: Annotated[str, Field(min_length=1, max_length=300, description="The question's id, from `approvals`.")]
    approved: Annotated[bool, Field(description="Yes or no.")]
    text: Annotated[str, Field(max_length=100_000, description="An answer in the place of the shown one.")] = ""
    remark: Annotated[str, Field(max_length=2_000, description="Why; kept in the audit.")] = ""


@dataclass(frozen=True, slots=True)
class ToolCaller:
    """Who calls, of which service, and how notes on progress reach them (None: they want none)."""

    service: RunService
    by: Principal
    progress: Callable[[str], Fields] | None = None


@dataclass(frozen=True, slots=True)
class McpTool:
    """A tool: who may call it, and what it says of itself."""

    name: str
    description: str
    arguments: type[RequestModel]
    scopes: tuple[KeyScope, ...]
    read_only: bool = True
    call: "Callable[[ToolCaller, Mapping[str, object]], Awaitable[Fields]] | None" = field(default=None, repr=False)

    def may(self, by: Principal) -> bool:
        """Whether a key may call it."""
        return any(by.may(scope) for scope in self.scopes)

    def fields(self) -> Fields:
        """Return it as `tools/list` has it."""
        schema = self.arguments.model_json_schema()
        told: Fields = {
            "name": self.name,
            "description": self.description,
            "inputSchema": {name: part for name, part in schema.items() if name not in ("title", "description")},
            "annotations": {"readOnlyHint": self.read_only, "destructiveHint": False, "openWorldHint": True},
        }
        return told if self.call is not None else told | {"execution": {"taskSupport": "optional"}}


def text_result(text: str, told: Fields | None = None, *, error: bool = False) -> Fields:
    """Return the result of a tool."""
    result: Fields = {"content": [{"type": "text", "text": text}], "isError": error}
    return result if told is None else result | {"structuredContent": told}


def error_result(problem: ApiError, run: str | None = None) -> Fields:
    """Return an error as a result that a model can read."""
    told: Fields = {"code": problem.code, "message": problem.message}
    return text_result(problem.message, told if run is None else {**told, "run": run}, error=True)


async def caught(making: Awaitable[Fields]) -> Fields:
    """Return a result, or the error in its place."""
    try:
        return await making
    except ApiError as problem:
        return error_result(problem)
    except ShikishaError as error:
        return error_result(api_error_of(error))


async def _explain(caller: ToolCaller, given: Mapping[str, object]) -> Fields:
    asked = validate_as(given, ExplainArguments)
    await check_run_access(caller.service, caller.by, asked.run)
    family = await visible_family(caller.service, caller.by, asked.run)
    run = family[asked.run]
    graded = await caller.service.journal.graded(run.started.domain, run.started.tenant, MOST_EVIDENCE)
    record = track_record(run, graded)
    return text_result(explain_text(explain(run, family.values()), record), _run_fields(run))


async def _runs(caller: ToolCaller, given: Mapping[str, object]) -> Fields:
    asked = validate_as(given, RunsArguments)
    known = [str(status) for status in RunStatus]
    if asked.status is not None and asked.status not in known:
        raise ApiError(400, f"status: expected one of {', '.join(known)}", "invalid_value", param="status")
    tenant = None if KeyScope.ADMIN in caller.by.scopes else caller.by.tenant
    statuses = () if asked.status is None else (RunStatus(asked.status),)
    found = await caller.service.store.search(RunFilter(tenant, statuses=statuses, text=asked.text, limit=asked.limit))
    entries = [run_list_entry(run).model_dump(mode="json") for run in found.runs]
    return text_result(json.dumps(entries, ensure_ascii=False), {"runs": entries})


async def _approvals(caller: ToolCaller, given: Mapping[str, object]) -> Fields:
    validate_as(given, ApprovalsArguments)
    page = await list_questions(caller.service, caller.by)
    entries = [approval_info(caller.service, each).model_dump(mode="json") for each in page.found]
    return text_result(json.dumps(entries, ensure_ascii=False), {"approvals": entries})


async def _approve(caller: ToolCaller, given: Mapping[str, object]) -> Fields:
    asked = validate_as(given, ApproveArguments)
    service, by = caller.service, caller.by
    decision = Decision(asked.approved, by.name, asked.text, "mcp", asked.remark)
    await answer_question(service, by, await find_question(service, by, asked.approval), decision)
    told = approval_info(service, await find_question(service, by, asked.approval)).model_dump(mode="json")
    return text_result(f"{asked.approval}: {'approved' if asked.approved else 'refused'}", told)


RUN_TOOL = McpTool(
    "run",
    "Performs a task on a pool of AI workers within a budget, and returns the answer with its cost and the run's id. "
    "A conductor plans which workers do which part. It may take minutes; call it as a task then.",
    RunArguments,
    (KeyScope.RUN,),
    read_only=False,
)
TOOLS: Mapping[str, McpTool] = {
    tool.name: tool
    for tool in (
        RUN_TOOL,
        McpTool(
            "explain",
            "Explains a run: its plan, who did what, what each worker saw, what it cost and why it ended.",
            ExplainArguments,
            (KeyScope.RUN, KeyScope.READ),
            call=_explain,
        ),
        McpTool("runs", "Lists runs, newest first.", RunsArguments, (KeyScope.RUN, KeyScope.READ), call=_runs),
        McpTool(
            "approvals",
            "Lists the calls and answers that wait for a person's yes, with exactly what each would do.",
            ApprovalsArguments,
            (KeyScope.APPROVE,),
            call=_approvals,
        ),
        McpTool(
            "approve",
            "Answers such a question in the name of this key. Ask your user first: it is their decision.",
            ApproveArguments,
            (KeyScope.APPROVE,),
            read_only=False,
            call=_approve,
        ),
    )
}


async def _requested_run(caller: ToolCaller, given: Mapping[str, object]) -> RequestedRun:
    asked = validate_as(given, RunArguments)
    task = Task(asked.prompt, asked.context, domain=asked.domain, answer_schema=asked.answer_schema)
    await check_schemas(task, Api.RUNS)
    caps = {} if asked.dollars is None else {"dollars": asked.dollars}
    workers = None if asked.workers is None else tuple(asked.workers)
    options = RequestOptions(caps, workers, domain=asked.domain, progress=caller.progress is not None)
    return RequestedRun(asked.model, task, Api.MCP, options)


async def run_task(caller: ToolCaller, given: Mapping[str, object]) -> AsyncGenerator[Fields]:
    """Yield notes on progress, if they are wanted, and last the result of `run`."""
    try:
        requested = await _requested_run(caller, given)
        completion = await CompletionRequest(
            caller.service, caller.by, requested.model, requested.task, requested.options, Api.MCP, stream=True
        ).start()
    except ApiError as problem:
        yield error_result(problem)
        return
    except ShikishaError as error:
        yield error_result(api_error_of(error))
        return
    try:
        async for told in completion.stream(_ResultWriter(completion.run, caller.progress)):
            yield json.loads(told)
    finally:
        if not completion.done:
            await completion.on_disconnect()


async def begin_task(caller: ToolCaller, given: Mapping[str, object]) -> str:
    """Begin a run that goes on without its client, and return its id; ApiError when it may not begin."""
    requested = await _requested_run(caller, given)
    detached = RequestedRun(requested.model, requested.task, Api.MCP, requested.options, detached=True)
    order: AuthorizedRun = caller.service.authorizer.authorize(detached, caller.by)
    return (await start_once(caller.service, order)).run


def ended_task(run: Run) -> Fields:
    """Return the result of a run that has ended."""
    told = _run_fields(run)
    if run.answer is None:
        why = run.finished.why if run.finished else str(run.status)
        return text_result(f"run {run.id}: {why}", told, error=True)
    return text_result(run.answer, told)


async def visible_task(caller: ToolCaller, name: str) -> Run:
    """Return a run that was begun as a task, as this key may see it; ApiError (404) when there is none."""
    await check_run_access(caller.service, caller.by, name)
    return (await visible_family(caller.service, caller.by, root_run_id(name)))[root_run_id(name)]


def _run_fields(run: Run) -> Fields:
    charged = run.charged
    told: Fields = {
        "run": run.id,
        "status": str(run.status),
        "answer": run.answer,
        "why": run.why,
        "tokens": charged.tokens,
        "dollars": charged.dollars,
    }
    waits = [{"id": f"{run.id}_{asked.question}", "asks": str(asked.asks)} for asked in run.open_questions]
    return told | {"waits_for": waits} if waits else told


class _ResultWriter:
    """Writes a completion as progress and a result, each as JSON."""

    def __init__(self, run: str, progress: Callable[[str], Fields] | None) -> None:
        self._run, self._progress = run, progress
        self._pieces: list[str] = []

    def begin(self) -> Iterable[bytes]:
        return ()

    def text(self, piece: str) -> Iterable[bytes]:
        self._pieces.append(piece)
        return ()

    def note(self, line: str) -> Iterable[bytes]:
        return () if self._progress is None else (json.dumps(self._progress(line)).encode(),)

    def end(self, ended: CompletionEnd) -> Iterable[bytes]:
        text = "".join(self._pieces)
        told: Fields = {
            "run": self._run,
            "status": "done",
            "answer": text,
            "tokens": ended.usage.tokens,
            "dollars": ended.usage.dollars,
        }
        return (json.dumps(text_result(text, told)).encode(),)

    def error(self, problem: ApiError) -> Iterable[bytes]:
        return (json.dumps(error_result(problem, self._run)).encode(),)


McpStatus = Literal["working", "input_required", "completed", "failed", "cancelled"]
