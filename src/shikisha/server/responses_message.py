"""The message of one attempt at the answer, as a stream brings it.

Invariant: its events have fixed numbers from its first on (`base`): the item, its part, each place in its text, three
that end it; so a delta that was heard live and one that is sent again agree. A text that may have been heard and came
to nothing takes `JUMP` numbers, whatever was heard of it. Deliberately absent: whose it is (`responses_course`).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from shikisha.server.wire.responses_answer import AnswerMessage, AnswerText
from shikisha.server.wire.responses_request import AgentName, ItemStatus

JUMP = 2**18
_OPENING, _CLOSING = 2, 3  # events before and after the text
_MOST_HEARD = JUMP - _OPENING - _CLOSING


@dataclass(frozen=True, slots=True)
class Sent:
    """An event of the stream: its sequence number, its type, and what it holds besides."""

    number: int
    type: str
    fields: Mapping[str, object] = field(default_factory=dict)

    def beyond(self, after: int) -> "Sent | None":
        """Return what a listener misses of it who has the numbers up to `after`."""
        if self.number <= after:
            return None
        delta = self.fields.get("delta")
        if self.type != "response.output_text.delta" or not isinstance(delta, str) or self.number - len(delta) >= after:
            return self
        return Sent(self.number, self.type, {**self.fields, "delta": delta[after - self.number :]})


@dataclass(slots=True)
class Message:
    """A message; `known`: the listener has seen it begin; `heard`: its pieces may be passed on as they come.

    `shown` counts the characters that were; `text` is the whole once its call has ended.
    """

    id: str
    base: int
    index: int
    agent: AgentName | None = None
    attempt: int = -1
    known: bool = False
    heard: bool = False
    shown: int = 0
    text: str | None = None
    _open: bool = False

    @property
    def next(self) -> int:
        """The number that follows it when it is not the answer."""
        return self.base + (JUMP if self.text is None else _OPENING + len(self.text))

    def say(self, piece: str) -> Iterator[Sent]:
        """Show a piece that was heard."""
        self.heard = self.heard and self.text is None and self.shown + len(piece) <= _MOST_HEARD
        return self._show(piece) if self.heard else iter(())

    def whole(self, text: str) -> Iterator[Sent]:
        """Take the text that its call ended with; show the rest of it to whoever has seen it begin."""
        self.text = text
        return self._show(text[self.shown :]) if self.known else iter(())

    def close(self, text: str) -> Iterator[Sent]:
        """Show what is left of the answer, and its end."""
        self.text = text
        yield from self._show(text[self.shown :])
        number, part = self.next, AnswerText(text=text)
        yield self._sent(number, "output_text.done", text=text, logprobs=[])
        yield self._sent(number + 1, "content_part.done", part=part)
        yield self._item(number + 2, "done", self.item(text))

    def end(self) -> int:
        """Return the number that follows its end."""
        return self.next + _CLOSING

    def give_up(self, partial: str) -> Iterator[Sent]:
        """End it as incomplete, for whoever has seen it begin; the number is taken in any case."""
        if self.known:
            yield self._item(self.next, "done", self.item(partial, "incomplete"))

    def item(self, text: str | None, status: ItemStatus = "completed") -> AnswerMessage:
        """Return it as an item."""
        content = [] if text is None else [AnswerText(text=text)]
        return AnswerMessage(id=self.id, status=status, content=content, agent=self.agent)

    def _show(self, piece: str) -> Iterator[Sent]:
        if not self._open:
            self._open = self.known = True
            yield self._item(self.base, "added", self.item(None, "in_progress"))
            yield self._sent(self.base + 1, "content_part.added", part=AnswerText(text=""))
        if piece:
            self.shown += len(piece)
            yield self._sent(self.base + 1 + self.shown, "output_text.delta", delta=piece, logprobs=[])

    def _item(self, number: int, kind: str, item: AnswerMessage) -> Sent:
        fields = {"output_index": self.index, "item": item, **self._by()}
        return Sent(number, f"response.output_item.{kind}", fields)

    def _sent(self, number: int, kind: str, **fields: object) -> Sent:
        where = {"item_id": self.id, "output_index": self.index, "content_index": 0}
        return Sent(number, f"response.{kind}", {**where, **fields, **self._by()})

    def _by(self) -> Mapping[str, object]:
        return {} if self.agent is None else {"agent": self.agent}
