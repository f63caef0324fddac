"""Access list → exactly what a worker sees; and which data it may see, by labels.

Invariant 2: a worker sees the task, its subtask, and exactly what its access list grants: nothing else. `grant_results`
is the only place where results become visible to a later step, and `request_messages` the only place where a request
becomes a chat. Granted answers are messages of their own, with the role of the assistant: there is no header in the
text that an answer could forge. A call is refused unless the worker is cleared for every guarded label of everything
that it would see. The labels of a step's answer are those of what its worker read and those that the worker adds (a
store of confidential files adds "confidential"); so a label follows the data through steps, rounds, checks and child
runs, and nothing that a model writes can take one off (5). Labels that are not guarded are names for rules, and hinder
no call. Deliberately absent: summaries, any cutting of long results (a limit is a refusal, not a silent loss), and
levels of labels (give a worker several).
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from operator import is_
from typing import TYPE_CHECKING, cast

from shikisha.core.budget import Amount, byte_length, upper_bound
from shikisha.core.call import NO_CLIENT_OPTIONS, Card, ClientOptions, GrantedStep, Request
from shikisha.core.errors import FaultKind, WorkerError
from shikisha.core.fast_dataclass import dataclass, field, replace
from shikisha.core.messages import (
    Attachment,
    ChatMessage,
    Json,
    Speaker,
    ToolExchange,
    dump_json,
    dump_records,
    exchange_messages,
    forced_tools,
    object_schema,
    tool_name,
)
from shikisha.core.plan import Plan
from shikisha.core.run import Result

if TYPE_CHECKING:
    from hashlib import _Hash

PART_NOW = "Your part now:\n"  # before a subtask


def grant_results(plan: Plan, index: int, results: Sequence[Result | None]) -> tuple[GrantedStep, ...]:
    """Return what step `index` may see of the earlier steps: its access list's entries, no more and no fewer."""
    return tuple([_granted_step(plan, seen, results[seen]) for seen in plan.steps[index].access])


def _granted_step(plan: Plan, index: int, result: Result | None) -> GrantedStep:
    subtask = plan.steps[index].subtask
    if result is None:
        raise ValueError(f"step {index} is granted before it has a result")
    if result.fault is not None:
        return GrantedStep(index, subtask, None, str(result.fault.kind), result.labels)
    return GrantedStep(index, subtask, result.text, labels=result.labels)


def grant_item(
    granted: Sequence[GrantedStep], each: int, item: str, number: int, count: int
) -> tuple[GrantedStep, ...]:
    """Return what the call for one item of a map step may see: this item instead of the list of step `each`."""
    place = f"Item {number + 1} of the {count} in the list:"
    return tuple(
        replace(step, subtask=f"{step.subtask}\n\n{place}", text=item) if step.index == each else step
        for step in granted
    )


def request_messages(request: Request) -> tuple[ChatMessage, ...]:
    """Return the chat that shows a worker its request; without a conversation before it, user and assistant alternate.

    Calls of the client's tools are messages of their own to a worker that is offered tools, plain words to others.
    """
    if request.turns:
        return request.turns
    task, own = request.task, request.own_words
    said = [*_spell_out_tool_calls(task.history, request)] if task.history else []
    pending, attached = [_question(request)], task.attachments
    for earlier in request.granted:
        pending.append(earlier.subtask)
        said.append(ChatMessage(Speaker.USER, "\n\n".join(pending), attachments=attached))
        said.append(ChatMessage(Speaker.ASSISTANT, _answer(earlier)))
        pending, attached = [], ()
    if request.subtask != task.prompt and not own:
        pending.append(f"{PART_NOW}{request.subtask.removeprefix(PART_NOW)}")
    elif not pending:
        pending.append("Answer this.")
    # OpenAI's JSON mode refuses a chat that does not mention JSON; a client's own chat is left as it is.
    if request.schema is not None and not (request.held and (own or dict(request.schema) != {"type": "object"})):
        pending.append(_JSON_ANSWER_RULE + dump_json(request.schema))
    if request.forced:
        call = "a tool, or final_answer once you know the answer" if FINAL_ANSWER in request.forced else "a tool now"
        form = _CALL_FORM if len(request.forced) > 1 else "the arguments of its call as one JSON object"
        offered = "\n".join([dump_json(tool["function"]) for tool in request.forced])
        pending.append(f"Call {call}: write {form}, and nothing else. What can be called:\n{offered}")
    pending += [f"An earlier answer of yours was not accepted: {remark}" for remark in request.remarks]
    said.append(ChatMessage(Speaker.USER, "\n\n".join(pending), attachments=attached))
    if request.exchanges:
        said += _spell_out_tool_calls([turn for each in request.exchanges for turn in exchange_messages(each)], request)
    return tuple(said)


_JSON_ANSWER_RULE = (
    "Your answer must be one JSON document that fits this JSON Schema, and nothing else: no fence, no word before or "
    "after it.\n"
)
FINAL_ANSWER: Mapping[str, Json] = {
    "type": "function",
    "function": {"name": "final_answer", "parameters": object_schema(text={"type": "string"})},
}  # what an agent calls whose endpoint takes no tools
_CALL_FORM = '{"call": {"name": ..., "arguments": {...}}} as one JSON object'


def _call_schema(tools: Sequence[Mapping[str, Json]]) -> Mapping[str, Json]:
    """Return the JSON Schema of one tool's arguments; of several, that of a call with its name and arguments."""
    found = [cast("Mapping[str, Json]", tool["function"]).get("parameters") for tool in tools]
    schemas = [{**(given if isinstance(given, Mapping) else {}), "type": "object"} for given in found]
    if len(schemas) == 1:
        return schemas[0]
    calls, defs = list[Json](), dict[str, Json]()
    for place, (tool, schema) in enumerate(zip(tools, schemas, strict=True)):
        root = f"#/$defs/{place}"
        defs[str(place)] = json.loads(dump_json(schema).replace('"$ref":"#', f'"$ref":"{root}'))  # it stands there now
        calls.append(object_schema(name={"type": "string", "enum": [tool_name(tool)]}, arguments={"$ref": root}))
    return {**object_schema(call={"anyOf": calls}), "$defs": defs}


def _question(request: Request) -> str:
    task = request.task
    return f"{task.prompt}\n\nContext:\n{task.context}" if task.context else task.prompt


def _answer(granted: GrantedStep) -> str:
    return f"(no answer: {granted.fault})" if granted.text is None else granted.text


def _spell_out_tool_calls(said: Sequence[ChatMessage], request: Request) -> Iterator[ChatMessage]:
    """Yield the turns as the worker can read them: it knows the form of calls only if it is offered tools."""
    if request.client_options.tools:
        yield from said
        return
    names = {call.id: call.name for turn in said for call in turn.calls}
    for turn in said:
        if turn.speaker is Speaker.TOOL:
            yield ChatMessage(Speaker.USER, f"What {names.get(turn.answers, 'a tool')} came to:\n{turn.text}")
        elif turn.calls:
            told = [f"(calls {call.name}: {call.arguments})" for call in turn.calls]
            yield ChatMessage(turn.speaker, "\n\n".join([turn.text, *told] if turn.text else told))
        else:
            yield turn


def adapt_request(card: Card, request: Request) -> Request:
    """Return the request as this worker can be given it: tools are offered to those only that can call them.

    Of a forced call, a worker without tools is asked for the arguments where its endpoint can be held to their schema;
    the client is streamed none of that JSON. The client's own request is sent on only where the worker gets nothing
    else. WorkerError (BAD_REQUEST) when it would see an attachment that it cannot take (none is left out), or is no
    model that can complete a text.
    """
    forced = (
        ()
        if card.tools or not card.schemas
        else forced_tools(request.client_options.tools, request.client_options.tool_choice)
    )
    if forced:
        request = ask_by_schema(request, forced)
    if card.schemas and request.schema is not None and not request.held and request.schema.get("type") != "array":
        request = replace(request, held=True)  # OpenAI's schemas are of objects: for a list, the prompt asks
    if request.client_options.as_sent and not _can_send_on(card, request):
        if "prompt" in request.client_options.as_sent:
            what = "a text to complete needs a plan of one step that only passes it on"
            raise WorkerError(FaultKind.BAD_REQUEST, f"{what}, and a worker of kind chat: not {card.name}")
        request = replace(request, client_options=replace(request.client_options, as_sent={}))
    if request.task.bare and not (request.turns or request.client_options.tools):
        return request
    lacking = {each.kind for turn in request_messages(request) for each in turn.attachments}.difference(card.takes)
    if lacking:
        kinds = ", ".join(sorted(lacking))
        raise WorkerError(FaultKind.BAD_REQUEST, f"{card.name} takes no attachment of kind {kinds}")
    if card.tools or not request.client_options.tools:
        return request
    return replace(
        request, client_options=replace(request.client_options, tools=(), parallel_tool_calls=None, tool_choice="")
    )


def ask_by_schema(request: Request, tools: tuple[Mapping[str, Json], ...]) -> Request:
    """Return the request for one call of these tools, as JSON that fits their schema."""
    client_options = replace(request.client_options, tools=(), parallel_tool_calls=None, tool_choice="", as_sent={})
    schema = _call_schema(tools)
    return replace(request, client_options=client_options, forced=tools, schema=schema, held=True, on_text=None)


def _can_send_on(card: Card, request: Request) -> bool:
    """Whether the client's own request says what this worker is to see, in a form that it can read."""
    if not (card.passthrough and request.own_words) or request.task.context:
        return False
    if request.schema is not None and not request.held:
        return False
    calls = request.client_options.tools or any(turn.calls or turn.answers for turn in request.task.history)
    return card.tools or not (calls or request.exchanges)


def output_limit(card: Card, client_options: ClientOptions) -> int:
    """Return the most tokens that the answer may have: the card's limit, or the client's narrower one."""
    wished = client_options.options.get("max_completion_tokens")
    return min(wished, card.max_output_tokens) if isinstance(wished, int) else card.max_output_tokens


def max_usage(
    shown: Sequence[ChatMessage],
    card: Card,
    client_options: ClientOptions = NO_CLIENT_OPTIONS,
    *,
    by_context: bool = True,
) -> Amount:
    """Return what a call with this view can use at most; not `by_context`: whatever the model's context holds."""
    texts, more = [], 0
    for turn in shown:
        own, attached = _turn_texts(turn)
        texts += own
        more += attached
    if client_options.tools:
        texts += [dump_json(tool) for tool in client_options.tools]
    if client_options.as_sent:  # what the turns do not hold: names, fields of an endpoint's own
        envelopes = [turn.envelope for turn in shown if turn.envelope]
        more += max(
            0, _count_bytes(client_options.as_sent) - sum(map(byte_length, texts)) + sum(map(byte_length, envelopes))
        )
    context = card.context_tokens if by_context else None
    return upper_bound(texts, output_limit(card, client_options), card.price, context, more)


def _turn_texts(turn: ChatMessage) -> tuple[list[str], int]:
    """Return the texts of a turn, and the tokens of what is no text."""
    if turn.plain:
        return [turn.text], 0
    texts = [turn.text, *[text for call in turn.calls for text in (call.id, call.name, call.arguments)]]
    texts += [turn.envelope] if turn.envelope else []
    return texts, sum([attached.tokens for attached in turn.attachments])


@dataclass(slots=True)
class ShownTurns:
    """What a worker is shown from call to call of one step: no turn is measured or hashed a second time.

    Without this an agent would pay for its whole conversation in each of its turns.
    """

    _beginning: tuple[object, ...] = ()
    _exchanges: tuple[ToolExchange, ...] = ()
    _tokens: int = 0
    _hash: "_Hash" = field(default_factory=sha256)

    def measure(self, request: Request, card: Card) -> tuple[Amount, str]:
        """Return what a call with this view can use at most, and its `view_hash`."""
        client_options, exchanges, known = request.client_options, request.exchanges, self._exchanges
        if not (exchanges and client_options.tools) or client_options.as_sent or request.turns:
            shown = request_messages(request)
            return max_usage(shown, card, client_options), view_hash(shown, client_options)
        beginning = (request.task, request.subtask, request.granted, request.schema, request.held, request.remarks)
        grown = len(known) <= len(exchanges) and all(map(is_, exchanges, known))
        if not (self._beginning and grown and all(map(is_, beginning, self._beginning))):
            self._beginning, known, self._tokens, self._hash = beginning, (), 0, sha256()
            self._add(request_messages(replace(request, exchanges=())))
        for exchange in exchanges[len(known) :]:
            self._add(exchange_messages(exchange))
        self._exchanges, whole = exchanges, self._hash.copy()
        whole.update(_framed_wishes(client_options).encode())
        tools = [dump_json(tool) for tool in client_options.tools]
        need = upper_bound(tools, output_limit(card, client_options), card.price, card.context_tokens, self._tokens)
        return need, whole.hexdigest()

    def _add(self, turns: Iterable[ChatMessage]) -> None:
        for turn in turns:
            texts, more = _turn_texts(turn)
            self._tokens += upper_bound(texts, 0, None, more=more).tokens
            self._hash.update(_framed_turn(turn).encode())


def _count_bytes(value: Json) -> int:
    """Return the bytes of all texts in a JSON value, apart from attached data, which counts as attachments do."""
    if isinstance(value, str):
        return 0 if value.startswith("data:") else len(value.encode())
    if isinstance(value, Mapping):
        inner = (part for name, part in value.items() if name not in ("data", "file_data"))
        return sum(len(name) for name in value) + sum(map(_count_bytes, inner))
    return sum(map(_count_bytes, value)) if isinstance(value, Sequence) else 1


def view_hash(shown: Sequence[ChatMessage], client_options: ClientOptions = NO_CLIENT_OPTIONS) -> str:
    """Return the SHA-256 (hex) of everything that a worker sees; the journal keeps it as evidence."""
    return sha256("".join([*map(_framed_turn, shown), _framed_wishes(client_options)]).encode()).hexdigest()


def _framed_turn(turn: ChatMessage) -> str:
    if turn.plain:
        return _framed(turn.speaker, turn.text)
    if turn.attachments:
        turn = replace(turn, attachments=tuple([_hash_data(each) for each in turn.attachments]))
    return _framed("turn", dump_records([turn]))


def _framed_wishes(client_options: ClientOptions) -> str:
    if client_options is NO_CLIENT_OPTIONS or client_options == NO_CLIENT_OPTIONS:
        return ""
    told: list[Json] = [client_options.tools, client_options.parallel_tool_calls, client_options.options]
    told += [client_options.tool_choice] if client_options.tool_choice or client_options.as_sent else []
    return _framed("wishes", dump_json([*told, client_options.as_sent] if client_options.as_sent else told))


def _hash_data(attachment: Attachment) -> Attachment:
    """Return the attachment with its data's hash for its data, which may be megabytes."""
    data = attachment.data
    return replace(attachment, data=sha256(data.encode()).hexdigest()) if data else attachment


def _framed(name: str, text: str) -> str:
    return f"{name}:{len(text)}:{text}"


Labels = frozenset[str]
NO_LABELS: Labels = frozenset()


def join_labels(*labels: Iterable[str]) -> Labels:
    """Return all labels of these data together."""
    return NO_LABELS.union(*labels) if any(labels) else NO_LABELS


def is_cleared(card: Card, labels: Iterable[str], guarded: Labels) -> bool:
    """Whether the worker may see data with these labels."""
    return not missing_clearances(card, labels, guarded)


def missing_clearances(card: Card, labels: Iterable[str], guarded: Labels) -> tuple[str, ...]:
    """Return the guarded labels that the worker is not cleared for, in order."""
    return tuple(sorted(guarded.intersection(labels).difference(card.sees)))


def check_clearance(card: Card, labels: Iterable[str], guarded: Labels) -> None:
    """Let the worker see data with these labels; WorkerError (NOT_CLEARED) names those that it may not see."""
    if lacking := missing_clearances(card, labels, guarded):
        raise WorkerError(FaultKind.NOT_CLEARED, f"{card.name} may not see what is labelled {', '.join(lacking)}")
