"""Access list → exactly what a worker sees.

Invariant 2: a worker sees the task, its subtask, and exactly what its access list grants: nothing else. `grant` is the
only place where results become visible to a later step, and `turns` the only place where a request becomes a chat.
Granted answers are turns of their own, said by the assistant: there is no header in the text that an answer could
forge. Deliberately absent: summaries, and any cutting of long results (a limit is a refusal, not a silent loss).
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from hashlib import sha256

from shikisha.budget import Amount, upper_bound
from shikisha.call import NO_WISHES, Card, Granted, Request, Wishes
from shikisha.errors import FaultKind, WorkerError
from shikisha.plan import Plan
from shikisha.run import Result
from shikisha.turn import Attachment, Speaker, Turn, exchanged, written, written_json


def grant(plan: Plan, index: int, results: Sequence[Result | None]) -> tuple[Granted, ...]:
    """Return what step `index` may see of the earlier steps: its access list's entries, no more and no fewer."""
    return tuple(_granted(plan, seen, results[seen]) for seen in plan.steps[index].access)


def _granted(plan: Plan, index: int, result: Result | None) -> Granted:
    subtask = plan.steps[index].subtask
    if result is None:
        raise ValueError(f"step {index} is granted before it has a result")
    if result.fault is not None:
        return Granted(index, subtask, None, str(result.fault.kind), result.labels)
    return Granted(index, subtask, result.text, labels=result.labels)


def turns(request: Request) -> tuple[Turn, ...]:
    """Return the chat that shows a worker its request; without a conversation before it, user and assistant alternate.

    Calls of the client's tools are turns of their own for a worker that is offered tools, and told in words to others.
    """
    if request.turns:
        return request.turns
    task = request.task
    said = [*_in_words(task.history, request)] if task.history else []
    pending, attached = [_question(request)], task.attachments
    for earlier in request.granted:
        pending.append(earlier.subtask)
        said.append(Turn(Speaker.USER, "\n\n".join(pending), attachments=attached))
        said.append(Turn(Speaker.ASSISTANT, _answer(earlier)))
        pending, attached = [], ()
    if request.subtask != task.prompt:
        pending.append(f"Your part now:\n{request.subtask}")
    elif not (pending and (task.history or request.wishes.tools)):  # a chat goes on in the client's own words
        pending.append("Answer this.")
    if request.schema is not None:
        pending.append(_FORM + written_json(request.schema))
    pending += [f"An earlier answer of yours was not accepted: {remark}" for remark in request.remarks]
    said.append(Turn(Speaker.USER, "\n\n".join(pending), attachments=attached))
    if request.exchanges:
        said += _in_words([turn for each in request.exchanges for turn in exchanged(each)], request)
    return tuple(said)


_FORM = (
    "Your answer must be one JSON document that fits this JSON Schema, and nothing else: no fence, no word before or "
    "after it.\n"
)


def _question(request: Request) -> str:
    task = request.task
    return f"{task.prompt}\n\nContext:\n{task.context}" if task.context else task.prompt


def _answer(granted: Granted) -> str:
    return f"(no answer: {granted.fault})" if granted.text is None else granted.text


def _in_words(said: Sequence[Turn], request: Request) -> Iterator[Turn]:
    """Yield the turns as the worker can read them: it knows the form of calls only if it is offered tools."""
    if request.wishes.tools:
        yield from said
        return
    names = {call.id: call.name for turn in said for call in turn.calls}
    for turn in said:
        if turn.speaker is Speaker.TOOL:
            yield Turn(Speaker.USER, f"What {names.get(turn.answers, 'a tool')} came to:\n{turn.text}")
        elif turn.calls:
            told = [f"(calls {call.name}: {call.arguments})" for call in turn.calls]
            yield Turn(turn.speaker, "\n\n".join([turn.text, *told] if turn.text else told))
        else:
            yield turn


def fitting(card: Card, request: Request) -> Request:
    """Return the request as this worker can be given it: tools are offered to those only that can call them.

    WorkerError (BAD_REQUEST) when it would be shown an attachment that it cannot take: none is left out.
    """
    if request.task.bare and not (request.turns or request.wishes.tools):
        return request
    lacking = {each.kind for turn in turns(request) for each in turn.attachments}.difference(card.takes)
    if lacking:
        kinds = ", ".join(sorted(lacking))
        raise WorkerError(FaultKind.BAD_REQUEST, f"{card.name} takes no attachment of kind {kinds}")
    if card.tools or not request.wishes.tools:
        return request
    return replace(request, wishes=replace(request.wishes, tools=(), parallel_tool_calls=None))


def most_output(card: Card, wishes: Wishes) -> int:
    """Return the most tokens that the answer may have: the card's limit, or the client's narrower one."""
    wished = wishes.options.get("max_completion_tokens")
    return min(wished, card.max_output_tokens) if isinstance(wished, int) else card.max_output_tokens


def bound(shown: Sequence[Turn], card: Card, wishes: Wishes = NO_WISHES) -> Amount:
    """Return what a call with this view can use at most."""
    texts = [turn.text for turn in shown]
    texts += [text for turn in shown for call in turn.calls for text in (call.id, call.name, call.arguments)]
    texts += [written_json(tool) for tool in wishes.tools]
    more = sum([attached.tokens for turn in shown for attached in turn.attachments])
    return upper_bound(texts, most_output(card, wishes), card.price, card.context_tokens, more)


def view_hash(shown: Sequence[Turn], wishes: Wishes = NO_WISHES) -> str:
    """Return the SHA-256 (hex) of everything that a worker is shown; it stands in the journal as evidence."""
    digest = sha256()
    for turn in shown:
        if turn.plain:
            digest.update(f"{turn.speaker}:{len(turn.text)}:{turn.text}".encode())
        else:
            attached = tuple([_hashed(each) for each in turn.attachments])
            digest.update(_apart("turn", written([replace(turn, attachments=attached)])))
    if wishes is not NO_WISHES and wishes != NO_WISHES:
        digest.update(_apart("wishes", written_json([wishes.tools, wishes.parallel_tool_calls, wishes.options])))
    return digest.hexdigest()


def _hashed(attachment: Attachment) -> Attachment:
    """Return the attachment with its data's hash for its data, which may be megabytes."""
    data = attachment.data
    return replace(attachment, data=sha256(data.encode()).hexdigest()) if data else attachment


def _apart(name: str, text: str) -> bytes:
    return f"{name}:{len(text)}:{text}".encode()
