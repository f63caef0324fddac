"""What may be written next, so that only plans can be written: the three lists for one pool, after a free thought.

A `Grammar` says of a text so far (a state) and a piece of text whether they begin a plan that `parse_plan` takes: a
thought of any words, `model_id = [` at the beginning of a line, ordinals of the pool, as many subtasks in quotes, as
many access lists of earlier steps, and nothing after the last bracket; or, where there is an answer to keep, three
empty lists. A thought can hold no list of those names and no JSON, so the lists at the end are the ones that count. It
is about text, so it fits every tokenizer (`lexicon` tries which pieces keep to it). Invariants: what comes to an end in
it parses, for its pool and cap; there are few states, whatever was written before. Deliberately absent: what is worth
writing, and texts that parse but are written in another way.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import TypeAlias

OPENING, MIDDLE, LAST, END = "model_id = [", "]\nsubtasks = [", "]\naccess_list = [", "]"
_NAMES = ("model_id", "subtasks", "access_list")
_FORBIDDEN = re.compile(r'(?:model_id|subtasks|access_list)\s*=|\{\s*"')  # a list of a plan, or a plan in JSON
_INSIDE = re.compile(r'(?:[^"\\\x00-\x1f\x7f-\x9f\u2028\u2029]|\\["\\nt])*')  # of a string in quotes
_SAYS = re.compile(r'(?:\s|\\[nt])*(?:[^\s\\]|\\["\\])')


@dataclass(frozen=True, slots=True)
class Thought:
    """In a thought; `tail` is its end, as far as it could be the beginning of something that counts."""

    tail: str = ""


@dataclass(frozen=True, slots=True)
class Ordinals:
    """After so many ordinals."""

    count: int


@dataclass(frozen=True, slots=True)
class Inside:
    """Inside the quotes of a subtask: which, of how many, whether it says anything yet, whether half an escape came."""

    place: int
    count: int
    says: bool = False
    half: bool = False

    @property
    def seat(self) -> tuple[int, int]:
        """Which of how many."""
        return self.place, self.count


@dataclass(frozen=True, slots=True)
class Access:
    """After so many access lists, of how many."""

    place: int
    count: int


@dataclass(frozen=True, slots=True)
class Done:
    """After the last bracket."""


Node: TypeAlias = Thought | Ordinals | Inside | Access | Done
Branch: TypeAlias = tuple[str, Node]  # this text comes first, then what the node says
State: TypeAlias = frozenset[Branch]

COMPLETE: State = frozenset([("", Done())])


@dataclass(frozen=True, slots=True)
class Grammar:
    """Plans for a pool of `workers`, of at most `steps` steps; `keeps`: three empty lists are a plan too."""

    workers: int
    steps: int
    keeps: bool = False

    def begin(self) -> State:
        """Return the state of an empty text."""
        return frozenset([("", Thought()), (OPENING, Ordinals(0))])

    def after(self, state: State, piece: str, *, hurried: bool = False) -> State:
        """Return the state after this piece, empty where no plan goes on like that.

        `hurried`: where it does not bring the end nearer either, and without the branches that do not.
        """
        found = frozenset(branch for before in state for branch in self._went(before, piece))
        return _hurried(state, found) if hurried else found

    def longest_end(self) -> str:
        """Return the longest text that may have to be written when a thought is broken off."""
        ordinals = ", ".join([str(self.workers - 1)] * self.steps)
        access = ", ".join(f"[{', '.join(map(str, range(step)))}]" for step in range(self.steps))
        subtasks = ", ".join(['"a"'] * self.steps)
        return f"\n{OPENING}{ordinals}{MIDDLE}{subtasks}{LAST}{access}{END}"

    def _went(self, branch: Branch, piece: str) -> Iterator[Branch]:
        """Yield where a branch leads by this piece."""
        rest, node = branch
        if len(piece) < len(rest):
            if rest.startswith(piece):
                yield rest[len(piece) :], node
        elif piece.startswith(rest):
            yield from self._within(node, piece[len(rest) :])

    def _within(self, node: Node, text: str) -> Iterator[Branch]:
        """Yield where this text leads in a node that is reached."""
        match node:
            case Thought():
                yield from self._thought(node.tail, text)
            case Inside() if text:
                yield from self._inside(node, text)
            case Inside() | Done():
                if not text:
                    yield "", node
            case Ordinals() | Access():
                for way in self._ways(node):
                    yield from self._went(way, text)

    def _thought(self, tail: str, text: str) -> Iterator[Branch]:
        """A thought goes on; wherever a line begins, so may the lists."""
        whole = tail + text
        broken = _FORBIDDEN.search(whole)
        until = broken.end() - len(tail) if broken else len(text)
        for line in re.finditer("\n", text[:until]):
            yield from self._went((OPENING, Ordinals(0)), text[line.end() :])
        if not broken:
            yield "", Thought(_tail(whole))

    def _inside(self, node: Inside, text: str) -> Iterator[Branch]:
        whole = "\\" + text if node.half else text
        matched = _INSIDE.match(whole)
        body = matched[0] if matched else ""
        rest = whole[len(body) :]
        says = node.says or _SAYS.match(body) is not None
        if rest in ("", "\\"):
            yield "", Inside(node.place, node.count, says, half=bool(rest))
        elif rest[0] == '"' and says:
            last = node.place + 1 == node.count
            way = (LAST, Access(0, node.count)) if last else (', "', Inside(node.place + 1, node.count))
            yield from self._went(way, rest[1:])

    def _ways(self, node: Ordinals | Access) -> Iterator[Branch]:
        """Yield what may come next in a list of ordinals or access lists."""
        if isinstance(node, Access):
            last = node.place + 1 == node.count
            for access in _access_lists(node.place):
                yield (access + END, Done()) if last else (f"{access}, ", Access(node.place + 1, node.count))
            return
        if self.keeps and not node.count:
            yield MIDDLE + LAST + END, Done()
        for ordinal in range(self.workers):
            yield f'{ordinal}{MIDDLE}"', Inside(0, node.count + 1)
            if node.count + 1 < self.steps:
                yield f"{ordinal}, ", Ordinals(node.count + 1)


def _access_lists(place: int) -> Iterator[str]:
    """Yield every access list that the step at this place may have."""
    for size in range(place + 1):
        for steps in combinations(range(place), size):
            yield str(list(steps))
    if place:
        yield '["all"]'


def _hurried(before: State, after: State) -> State:
    """Return the branches that bring the end nearer: no further thought, word or, if it can be helped, step."""
    inside = {node.seat: node for rest, node in before if not rest and isinstance(node, Inside)}
    kept = {(rest, node) for rest, node in after if rest or not _lingers(node, inside)}
    ending = {branch for branch in kept if not isinstance(branch[1], Ordinals) or not branch[1].count}
    return frozenset(ending or kept)


def _lingers(node: Node, inside: Mapping[tuple[int, int], Inside]) -> bool:
    """Whether a thought goes on, or quotes that could be closed, or that say nothing yet and still do not."""
    if not isinstance(node, Inside):
        return isinstance(node, Thought)
    begun = inside.get(node.seat)
    return begun is not None and not begun.half and (begun.says or node.half or not node.says)


def _tail(text: str) -> str:
    """Return the end of a thought as far as it could be the beginning of a list's name and `=`, or of JSON."""
    words = text.rstrip()
    gap = " " if len(words) < len(text) else ""
    for mark in (*_NAMES, "{"):
        if words.endswith(mark):
            return mark + gap
    if not gap:
        for length in range(min(len(words), len(_NAMES[-1])), 0, -1):
            if any(name.startswith(words[-length:]) for name in _NAMES):
                return words[-length:]
    return ""
