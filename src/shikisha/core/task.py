"""What a user wants done.

A Task holds what a client asked: prompt, context, the conversation before it and what is attached to it, which every
worker may see; the labels that rules route by; and what holds for the last step alone (the client's tools, the schema
of the answer, sampling options). Its content hash names it in results. Invariant: whatever is in it can be kept in a
journal. Deliberately absent: the right answer. A gold answer lives with the taskset's grader, so that no worker and no
conductor can be shown it by accident.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from hashlib import sha256
from typing import Literal, TypeAlias, TypedDict, get_args

from shikisha.core.errors import TaskError
from shikisha.core.fast_dataclass import dataclass, field, replace
from shikisha.core.messages import (
    REQUIRED_TOOL,
    Attachment,
    ChatMessage,
    Json,
    ToolExchange,
    chosen_tool,
    dump_json,
    dump_records,
    load_attachments,
    load_exchanges,
    load_messages,
    tool_name,
)

SAMPLING_OPTIONS = frozenset(
    {"temperature", "top_p", "stop", "seed", "max_completion_tokens", "reasoning_effort", "verbosity"}
    | {"presence_penalty", "frequency_penalty", "top_k", "min_p", "repetition_penalty", "repeat_penalty"}
    | {"chat_template_kwargs", "enable_thinking", "reasoning", "thinking", "thinking_budget"}
)  # sampling options by their names in the chat API, and providers' own switches of thoughts


def storage_problem(text: str) -> str | None:
    """Say why this text cannot be kept in a journal and shown to a worker; None when it can."""
    if "\x00" in text:
        return "a NUL character"
    try:
        text.encode()
    except UnicodeEncodeError:
        return "half of a surrogate pair, which is no character"
    return None


def _json_storage_problem(body: str) -> str | None:
    """Say why a JSON text, or a text in it, cannot be kept."""
    found = [json.loads(body)] if "\\u0000" in body else []
    while found:
        value = found.pop()
        if isinstance(value, str) and (problem := storage_problem(value)):
            return problem
        found += [*value, *value.values()] if isinstance(value, dict) else value if isinstance(value, list) else ()
    return storage_problem(body)


TaskPart: TypeAlias = Literal["history", "attachments", "exchanges", "tools", "answer_schema", "options", "as_sent"]
TASK_PARTS: tuple[TaskPart, ...] = get_args(TaskPart)


class TaskBodies(TypedDict):
    """The parts of a task that a journal keeps as JSON texts; "" where there is none."""

    history: str
    attachments: str
    exchanges: str
    tools: str
    answer_schema: str
    options: str
    as_sent: str


@dataclass(frozen=True, slots=True)
class Scope:
    """Whose data this is, or was derived from: a tenant ("": the operator, who needs no key), and the data's labels.

    `tenant` None: not known, so that it is shown to nobody. `shared`: a person made it for every tenant, of no tenant's
    runs.
    """

    tenant: str | None
    labels: frozenset[str]
    shared: bool = False

    def admits(self, reader: "Scope") -> bool:
        """Whether a task of this scope may be shown it: of the same tenant, with all of the labels."""
        same = self.tenant is not None and self.tenant == reader.tenant
        return (same or self.shared) and self.labels <= reader.labels


OPERATOR = Scope("", frozenset())
EVERYBODY = Scope("", frozenset(), shared=True)  # what no run taught, such as a log that a person brought


def scope_as_json(scope: Scope) -> dict[str, Json]:
    """Return a scope as files of what was learned keep it."""
    return {"tenant": scope.tenant, "labels": sorted(scope.labels), "shared": scope.shared}


def read_scope(given: object) -> Scope:
    """Return the scope that `scope_as_json` wrote; ValueError for anything else."""
    match given:
        case {"tenant": str(tenant), "labels": list(labels), "shared": bool(shared)}:
            if all(isinstance(label, str) for label in labels):
                return Scope(tenant, frozenset(map(str, labels)), shared)
    raise ValueError(f"scope: expected tenant, labels and shared, found {given!r:.80}")


def join_scopes(scopes: Iterable[Scope]) -> Scope:
    """Return the scope of what is derived from all of these; ValueError where they are of several tenants."""
    found = list(scopes)
    owners = {scope.tenant for scope in found if not scope.shared}
    if len(owners) > 1:
        raise ValueError(f"one tenant's data is never learned from together with another's: {owners}")
    labels = frozenset[str]().union(*(scope.labels for scope in found))
    return Scope(next(iter(owners), ""), labels, shared=bool(found) and not owners)


@dataclass(frozen=True)
class Task:
    """A prompt with optional context; `id` names a record, `domain` a task type, `labels` anything rules match on.

    `tenant` says whose it is, as in `Scope`.

    `history` is the conversation before the prompt; `attachments` belong to the prompt; `exchanges` are calls of the
    client's tools that were made and answered since. For the last step alone: `tools` (function tools as the chat API
    has them), `parallel_tool_calls`, `tool_choice` ("" leaves it to the model; `REQUIRED_TOOL`, or a named tool as
    `name_tool_choice` writes it), `answer_schema` (a JSON Schema) and `options` (see `OPTIONS`).

    `as_sent` holds the fields of the client's request that the other parts do not give back to the letter, by their
    names in the API: `messages`, `tools`, `tool_choice`, `response_format` and `stop` of a chat, `prompt`, `suffix` and
    `echo` of a text to complete. A step that only passes the task on sends these (`Request.own_words`).
    """

    prompt: str
    context: str = ""
    id: str = ""
    domain: str = ""
    labels: tuple[str, ...] = ()
    history: tuple[ChatMessage, ...] = ()
    attachments: tuple[Attachment, ...] = ()
    exchanges: tuple[ToolExchange, ...] = ()
    tools: tuple[Mapping[str, Json], ...] = field(default=(), hash=False)
    parallel_tool_calls: bool | None = None
    answer_schema: Mapping[str, Json] | None = field(default=None, hash=False)
    options: Mapping[str, Json] = field(default_factory=dict, hash=False)
    tool_choice: str = ""
    as_sent: Mapping[str, Json] = field(default_factory=dict, hash=False)
    tenant: str | None = ""

    def __post_init__(self) -> None:
        if not self.prompt.strip():
            raise TaskError("the prompt is empty")
        for name, text in (("prompt", self.prompt), ("context", self.context), ("id", self.id)):
            if problem := storage_problem(text):
                raise TaskError(f"the {name} holds {problem}")
        if not self.bare:
            self._check_parts()

    @property
    def bare(self) -> bool:
        """Whether there is nothing but prompt, context and labels."""
        said = self.history or self.attachments or self.exchanges or self.tools or self.options or self.tool_choice
        return not (said or self.as_sent) and self.answer_schema is None and self.parallel_tool_calls is None

    @property
    def scope(self) -> Scope:
        """Whose data it is, and the labels of what is known of it before it is performed."""
        return Scope(self.tenant, frozenset(self.labels))

    @cached_property
    def content_hash(self) -> str:
        """SHA-256 (hex) of what is asked: the same wherever the task came from, whatever its options."""
        text = f"{len(self.prompt)}:{self.prompt}{self.context}"
        if self.history or self.attachments or self.exchanges or self.tools or self.answer_schema is not None:
            bodies = self.bodies()
            text += "\0" + "\0".join(bodies[part] for part in TASK_PARTS if part not in ("options", "as_sent"))
        if self.completes:
            text += "\0" + self._bodies["as_sent"]
        return sha256(text.encode()).hexdigest()

    @property
    def completes(self) -> bool:
        """Whether the prompt is a text to complete, and no question."""
        return "prompt" in self.as_sent

    @property
    def tool_names(self) -> tuple[str, ...]:
        """The names of the client's tools, in order."""
        return tuple(tool_name(tool) for tool in self.tools)

    def shown(self) -> "Task":
        """Return the task as every worker may see it: without what holds for the last step alone."""
        return self._shown

    @cached_property
    def _shown(self) -> "Task":
        own = self.tools or self.options or self.as_sent or self.parallel_tool_calls is not None
        if not own and self.answer_schema is None:
            return self
        return replace(
            self, tools=(), options={}, answer_schema=None, parallel_tool_calls=None, tool_choice="", as_sent={}
        )

    def bodies(self) -> TaskBodies:
        """Return the parts that are more than a text, as a journal keeps them."""
        return self._bodies.copy()

    @cached_property
    def _bodies(self) -> TaskBodies:  # an attachment may have megabytes
        return TaskBodies(
            history=dump_records(self.history),
            attachments=dump_records(self.attachments),
            exchanges=dump_records(self.exchanges),
            tools=dump_json(self.tools) if self.tools else "",
            answer_schema="" if self.answer_schema is None else dump_json(self.answer_schema),
            options=dump_json(self.options) if self.options else "",
            as_sent=dump_json(self.as_sent) if self.as_sent else "",
        )

    def with_bodies(
        self, bodies: TaskBodies, *, parallel_tool_calls: bool | None = None, tool_choice: str = ""
    ) -> "Task":
        """Return the task with these parts, as `bodies` wrote them."""
        if parallel_tool_calls is None and not tool_choice and not any(bodies.values()):
            return self
        return replace(
            self,
            history=load_messages(bodies["history"]),
            attachments=load_attachments(bodies["attachments"]),
            exchanges=load_exchanges(bodies["exchanges"]),
            tools=tuple(json.loads(bodies["tools"] or "[]")),
            parallel_tool_calls=parallel_tool_calls,
            answer_schema=json.loads(bodies["answer_schema"] or "null"),
            options=json.loads(bodies["options"] or "{}"),
            as_sent=json.loads(bodies["as_sent"] or "{}"),
            tool_choice=tool_choice,
        )

    def scrubbed(self, scrub: Callable[[str], str]) -> "Task":
        """Return the task with every text in it scrubbed; TaskError when that makes something else of it."""
        labels = tuple([scrub(label) for label in self.labels])
        prompt, context, name, domain = [
            text and scrub(text) for text in (self.prompt, self.context, self.id, self.domain)
        ]
        own = (self.prompt, self.context, self.id, self.domain, self.labels)
        if self.bare and (prompt, context, name, domain, labels) == own:
            return self
        task = Task(prompt, context, name, domain, labels, tenant=self.tenant)
        if self.bare:
            return task
        bodies = self.bodies()
        for part in TASK_PARTS:
            if bodies[part]:
                bodies[part] = dump_json(_map_texts(json.loads(bodies[part]), scrub))
        return task.with_bodies(bodies, parallel_tool_calls=self.parallel_tool_calls, tool_choice=self.tool_choice)

    def _check_parts(self) -> None:
        try:
            for name, text in self.bodies().items():
                if problem := _json_storage_problem(str(text)):
                    raise TaskError(f"the {name} holds {problem}")
        except (TypeError, ValueError, RecursionError) as error:
            raise TaskError(f"not JSON that can be kept: {error}") from None
        for place, tool in enumerate(self.tools):
            if not tool_name(tool):
                raise TaskError(f"tools[{place}]: expected a function tool with a name")
        if len(set(self.tool_names)) < len(self.tools):
            raise TaskError("tools: two have the same name")
        if self.tool_choice not in ("", REQUIRED_TOOL) and chosen_tool(self.tool_choice) not in self.tool_names:
            known = ", ".join(self.tool_names)
            raise TaskError(f"tool_choice: expected {REQUIRED_TOOL!r} or one of the tools ({known})")
        if self.tool_choice and not self.tools:
            raise TaskError("tool_choice: a call is required, and there are no tools")
        if unknown := sorted(self.options.keys() - SAMPLING_OPTIONS):
            raise TaskError(f"options: {', '.join(unknown)}: expected some of {', '.join(sorted(SAMPLING_OPTIONS))}")
        most = self.options.get("max_completion_tokens", 1)
        if type(most) is not int or most < 1:
            raise TaskError(f"options: max_completion_tokens: expected a whole number from 1, not {most!r}")
        for exchange in self.exchanges:
            answered = [result.tool_call_id for result in exchange.results]
            if not exchange.calls or answered != [call.id for call in exchange.calls]:
                raise TaskError("exchanges: expected one result for each call, in the calls' order")


def _map_texts(value: Json, scrub: Callable[[str], str]) -> Json:
    if isinstance(value, str):
        return scrub(value)
    if isinstance(value, Mapping):
        return {scrub(name): _map_texts(part, scrub) for name, part in value.items()}
    return [_map_texts(part, scrub) for part in value] if isinstance(value, Sequence) else value
