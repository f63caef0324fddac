"""What an agent is shown and what is heard of it: results cut to its window, text held until it is the answer.

Invariants: what is cut is the oldest first, and the journal names the calls whose results are no longer whole; nothing
else that an agent is shown is ever cut. Text beside calls of tools is never passed on as a piece of the answer, unless
it is longer than any such text should be. Deliberately absent: summaries by a model (they would cost a call, and lose
what nobody can name).
"""

from collections.abc import Callable, Iterable, Mapping
from time import time

from shikisha.core.budget import Usage, byte_length
from shikisha.core.call import Card, ClientOptions, Request
from shikisha.core.events import ToolResultsCut
from shikisha.core.fast_dataclass import dataclass, field, replace
from shikisha.core.messages import ToolExchange, ToolResult, dump_json
from shikisha.core.visibility import output_limit
from shikisha.engine.run_context import StepCalls

HELD_CHARACTERS = 1_000  # of a reply that may still turn out to call tools; longer ones are passed on as they come
_TOKENS_PER_BYTE = 1 / 3  # of English, code and JSON, rounded up; the agent's own bills replace it
_FILL = 0.75  # of the window that is used again after a cut, so that not every turn cuts, and caches hold
_KEPT_BYTES = 200  # of a result that is cut
_NOTE_BYTES = 200  # what says that it is cut, and more: a result that is hardly longer stays whole
_MARGIN = 1.1  # above what the last bill says of tokens per byte: the next results may be denser
_LEAST_TOKENS_PER_BYTE = 1 / 8


@dataclass(slots=True)
class HeldText:
    """A listener that holds what an agent says until it is clear that it is the answer.

    `attempt` returns the number of the attempt that is being made: what an earlier one said is dropped.
    """

    say: Callable[[str], None]
    attempt: Callable[[], int]
    held: bool = True
    _number: int = -1
    _pieces: list[str] = field(default_factory=list)
    _count: int = 0

    def hear(self, piece: str) -> None:
        """Take a piece."""
        if not self.held:
            self.say(piece)
            return
        if self._number != (number := self.attempt()):
            self._number, self._pieces, self._count = number, [], 0
        self._pieces.append(piece)
        self._count += len(piece)
        if self._count > HELD_CHARACTERS:
            self.release()

    def release(self) -> None:
        """Pass on what was held, and all that follows."""
        self.held = False
        text, self._pieces = "".join(self._pieces), []
        if text:
            self.say(text)


@dataclass(slots=True)
class AgentWindow:
    """What an agent is shown of its calls' results. `assumed` is what it can read where its card does not say."""

    card: Card
    assumed: int
    shown: tuple[ToolExchange, ...] = ()
    _tokens_per_byte: float = _TOKENS_PER_BYTE
    _bytes: int = 0
    _results: int = 0  # bytes of what is shown of results
    _calls: int = 0  # bytes of all that models said besides

    def fit(
        self, calls: StepCalls, request: Request, client_options: ClientOptions, places: Mapping[str, str]
    ) -> Request:
        """Return the request with the oldest results cut, where all of them are more than the agent can read.

        `places` has the place of each call in the step, by its id. What was cut stays cut.
        """
        further = request.exchanges[len(self.shown) :]
        self.shown = (*self.shown, *further)
        self._results += _result_bytes(further)
        texts = [
            text for each in further for text in (each.text, each.envelope, *[call.arguments for call in each.calls])
        ]
        self._calls += sum(map(byte_length, texts))
        room = (self.card.context_tokens or self.assumed) - output_limit(self.card, client_options)
        # The size of everything that does not grow from turn to turn
        task = request.task
        said = [task.prompt, task.context, request.subtask, *(turn.text for turn in task.history)]
        said += [text for earlier in request.granted for text in (earlier.subtask, earlier.text or "")]
        said += [dump_json(tool) for tool in client_options.tools]
        fixed = sum([byte_length(text) for text in said]) + self._calls
        before = self._bytes = fixed + self._results
        if before * self._tokens_per_byte > room and self.shown:
            self.shown, cut = _cut_results(self.shown, int(room * _FILL / self._tokens_per_byte) - fixed)
            self._results = _result_bytes(self.shown)
            self._bytes = fixed + self._results
            if cut and calls.journaled() is None:  # otherwise it was cut before the run was resumed
                named = tuple(places.get(name, name) for name in cut)
                calls.context.recorder.add(self._event(calls, named, before, room))
        return replace(request, exchanges=self.shown)

    def learn(self, usage: Usage) -> None:
        """Take from a bill how many tokens the agent makes of a byte."""
        if usage.input_tokens and self._bytes:
            self._tokens_per_byte = max(_LEAST_TOKENS_PER_BYTE, _MARGIN * usage.input_tokens / self._bytes)

    def _event(self, calls: StepCalls, cut: tuple[str, ...], before: int, room: int) -> ToolResultsCut:
        return ToolResultsCut(
            run=calls.context.run,
            at=time(),
            round=calls.round,
            step=calls.step or 0,
            turn=calls.replies,
            calls=cut,
            before=round(before * self._tokens_per_byte),
            after=round(self._bytes * self._tokens_per_byte),
            window=max(0, room),
        )


def _cut_results(exchanges: tuple[ToolExchange, ...], room: int) -> tuple[tuple[ToolExchange, ...], list[str]]:
    """Return the exchanges with results cut until they have so many bytes, the oldest first, and whose results are cut.

    Each is cut to its beginning; where the latest exchange alone is too much, its results share the room.
    """
    size, cut, made = _result_bytes(exchanges), [], list(exchanges)
    for place, exchange in enumerate(exchanges):
        last = place == len(exchanges) - 1
        kept = max(_KEPT_BYTES, room // max(1, len(exchange.results))) if last else _KEPT_BYTES
        names = {call.id: call.name for call in exchange.calls}
        results = []
        for result in exchange.results:
            shorter = result
            if size > room:
                shorter = _cut_result(result, names.get(result.tool_call_id, "the tool"), kept)
            if shorter is not result:
                size -= byte_length(result.content) - byte_length(shorter.content)
                cut.append(result.tool_call_id)
            results.append(shorter)
        made[place] = replace(exchange, results=tuple(results))
    return tuple(made), cut


def _cut_result(result: ToolResult, tool: str, kept: int) -> ToolResult:
    content = result.content
    if byte_length(content) <= kept + _NOTE_BYTES:
        return result
    head = content.encode("utf-8", "surrogatepass")[:kept].decode(errors="ignore")
    left = len(content) - len(head)
    return replace(result, content=f"{head}\n({left:,} more characters of what {tool} returned are cut here)")


def _result_bytes(exchanges: Iterable[ToolExchange]) -> int:
    return sum([byte_length(result.content) for each in exchanges for result in each.results])
