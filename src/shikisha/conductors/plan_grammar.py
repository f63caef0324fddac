"""Constrained decoding: which token may come next, so that only plans can be written after a free thought.

`PlanGrammar` decides for a text so far (a state) and a further piece of text whether they begin a plan that
`parse_plan` accepts: any thought, then `model_id = [` at the start of a line, ordinals of the pool, as many quoted
subtasks, as many access lists of earlier steps, and nothing after the last bracket. Where there is an answer to keep,
three empty lists are a plan too. A thought may contain neither these names with `=` nor JSON, so the last lists count.
The grammar works on text, so it fits every tokenizer: `TokenPieces` tries which tokens keep a text within it. Most
tokens of a large vocabulary are plain words that are allowed without a look; the others are tried once per state.

Invariants: what the grammar completes parses, for its pool and cap; the number of states does not grow with the text; a
token without text is never allowed; several threads may share a `TokenPieces`.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from typing import TypeAlias

import numpy as np

from shikisha.core.errors import ConfigError
from shikisha.routing.arrays import Flags

MODEL_ID_OPENING, SUBTASKS_OPENING, ACCESS_OPENING, LIST_END = (
    "model_id = [",
    "]\nsubtasks = [",
    "]\naccess_list = [",
    "]",
)
_LIST_NAMES = ("model_id", "subtasks", "access_list")
# A list of a plan, or a plan in JSON.
_FORBIDDEN = re.compile(r'(?:model_id|subtasks|access_list)\s*=|\{\s*"')
_QUOTED_TEXT = re.compile(r'(?:[^"\\\x00-\x1f\x7f-\x9f\u2028\u2029]|\\["\\nt])*')  # of a string in quotes
_NONBLANK = re.compile(r'(?:\s|\\[nt])*(?:[^\s\\]|\\["\\])')


@dataclass(frozen=True, slots=True)
class ThoughtState:
    """In a thought; `tail` is its end, as far as it may begin a list or JSON."""

    tail: str = ""


@dataclass(frozen=True, slots=True)
class OrdinalsState:
    """After so many ordinals."""

    count: int


@dataclass(frozen=True, slots=True)
class SubtaskState:
    """Inside a quoted subtask: which, of how many, whether it has a word yet, whether it is in an escape."""

    place: int
    count: int
    says: bool = False
    half: bool = False

    @property
    def seat(self) -> tuple[int, int]:
        """Which of how many."""
        return self.place, self.count


@dataclass(frozen=True, slots=True)
class AccessState:
    """After so many access lists, of how many."""

    place: int
    count: int


@dataclass(frozen=True, slots=True)
class DoneState:
    """After the last bracket."""


GrammarNode: TypeAlias = ThoughtState | OrdinalsState | SubtaskState | AccessState | DoneState
# This text comes first, then what the node says.
GrammarBranch: TypeAlias = tuple[str, GrammarNode]
GrammarState: TypeAlias = frozenset[GrammarBranch]

COMPLETE_STATE: GrammarState = frozenset([("", DoneState())])


@dataclass(frozen=True, slots=True)
class PlanGrammar:
    """Plans for a pool of `workers`, of at most `steps` steps; `keeps`: three empty lists are a plan too."""

    workers: int
    steps: int
    keeps: bool = False

    def begin(self) -> GrammarState:
        """Return the state of an empty text."""
        return frozenset([("", ThoughtState()), (MODEL_ID_OPENING, OrdinalsState(0))])

    def after(self, state: GrammarState, piece: str, *, hurried: bool = False) -> GrammarState:
        """Return the state after this piece, empty where no plan continues like that.

        `hurried`: only branches that bring the end nearer.
        """
        found = frozenset(branch for before in state for branch in self._went(before, piece))
        return _ending_branches(state, found) if hurried else found

    def longest_end(self) -> str:
        """Return the longest text that may be needed to finish after an interrupted thought."""
        ordinals = ", ".join([str(self.workers - 1)] * self.steps)
        access = ", ".join(f"[{', '.join(map(str, range(step)))}]" for step in range(self.steps))
        subtasks = ", ".join(['"a"'] * self.steps)
        return f"\n{MODEL_ID_OPENING}{ordinals}{SUBTASKS_OPENING}{subtasks}{ACCESS_OPENING}{access}{LIST_END}"

    def _went(self, branch: GrammarBranch, piece: str) -> Iterator[GrammarBranch]:
        """Yield the branches after this piece."""
        rest, node = branch
        if len(piece) < len(rest):
            if rest.startswith(piece):
                yield rest[len(piece) :], node
        elif piece.startswith(rest):
            yield from self._within(node, piece[len(rest) :])

    def _within(self, node: GrammarNode, text: str) -> Iterator[GrammarBranch]:
        """Yield the branches after this text from a node that is reached."""
        match node:
            case ThoughtState():
                yield from self._thought(node.tail, text)
            case SubtaskState() if text:
                yield from self._inside(node, text)
            case SubtaskState() | DoneState():
                if not text:
                    yield "", node
            case OrdinalsState() | AccessState():
                for way in self._ways(node):
                    yield from self._went(way, text)

    def _thought(self, tail: str, text: str) -> Iterator[GrammarBranch]:
        """A thought continues; at every start of a line the lists may begin."""
        whole = tail + text
        broken = _FORBIDDEN.search(whole)
        until = broken.end() - len(tail) if broken else len(text)
        for line in re.finditer("\n", text[:until]):
            yield from self._went((MODEL_ID_OPENING, OrdinalsState(0)), text[line.end() :])
        if not broken:
            yield "", ThoughtState(_thought_tail(whole))

    def _inside(self, node: SubtaskState, text: str) -> Iterator[GrammarBranch]:
        whole = "\\" + text if node.half else text
        matched = _QUOTED_TEXT.match(whole)
        body = matched[0] if matched else ""
        rest = whole[len(body) :]
        says = node.says or _NONBLANK.match(body) is not None
        if rest in ("", "\\"):
            yield "", SubtaskState(node.place, node.count, says, half=bool(rest))
        elif rest[0] == '"' and says:
            last = node.place + 1 == node.count
            way = (
                (ACCESS_OPENING, AccessState(0, node.count))
                if last
                else (', "', SubtaskState(node.place + 1, node.count))
            )
            yield from self._went(way, rest[1:])

    def _ways(self, node: OrdinalsState | AccessState) -> Iterator[GrammarBranch]:
        """Yield what may come next in a list of ordinals or access lists."""
        if isinstance(node, AccessState):
            last = node.place + 1 == node.count
            for access in _access_lists(node.place):
                yield (
                    (access + LIST_END, DoneState())
                    if last
                    else (f"{access}, ", AccessState(node.place + 1, node.count))
                )
            return
        if self.keeps and not node.count:
            yield SUBTASKS_OPENING + ACCESS_OPENING + LIST_END, DoneState()
        for ordinal in range(self.workers):
            yield f'{ordinal}{SUBTASKS_OPENING}"', SubtaskState(0, node.count + 1)
            if node.count + 1 < self.steps:
                yield f"{ordinal}, ", OrdinalsState(node.count + 1)


def _access_lists(place: int) -> Iterator[str]:
    """Yield every access list that the step at this place may have."""
    for size in range(place + 1):
        for steps in combinations(range(place), size):
            yield str(list(steps))
    if place:
        yield '["all"]'


def _ending_branches(before: GrammarState, after: GrammarState) -> GrammarState:
    """Return the branches that bring the end nearer: no further thought, word or, where possible, step."""
    inside = {node.seat: node for rest, node in before if not rest and isinstance(node, SubtaskState)}
    kept = {(rest, node) for rest, node in after if rest or not _prolongs(node, inside)}
    ending = {branch for branch in kept if not isinstance(branch[1], OrdinalsState) or not branch[1].count}
    return frozenset(ending or kept)


def _prolongs(node: GrammarNode, inside: Mapping[tuple[int, int], SubtaskState]) -> bool:
    """Whether a thought continues, or a subtask that could be closed, or one that gained no word."""
    if not isinstance(node, SubtaskState):
        return isinstance(node, ThoughtState)
    begun = inside.get(node.seat)
    return begun is not None and not begun.half and (begun.says or node.half or not node.says)


def _thought_tail(text: str) -> str:
    """Return the end of a thought as far as it could be the beginning of a list's name and `=`, or of JSON."""
    words = text.rstrip()
    gap = " " if len(words) < len(text) else ""
    for mark in (*_LIST_NAMES, "{"):
        if words.endswith(mark):
            return mark + gap
    if not gap:
        for length in range(min(len(words), len(_LIST_NAMES[-1])), 0, -1):
            if any(name.startswith(words[-length:]) for name in _LIST_NAMES):
                return words[-length:]
    return ""


_PLAIN_THOUGHT = re.compile(r'[^"=]+')  # cannot end a thought
_PLAIN_QUOTED = re.compile(r'[^"\\\x00-\x1f\x7f-\x9f\u2028\u2029]+')  # stays inside quotes
_ESCAPED = '"\\nt'
_CACHE_BYTES = 1 << 25  # bytes
_CACHED_STATES = 100_000
_QUOTED = re.compile(r'"[^"\\\n]*\w[^"\\\n]*"')
_FRAME = "model_id = []\nsubtasks = []\naccess_list = []"
_MAX_ORDINALS = 100  # ordinals beyond any real pool

DecodeTokens = Callable[[Sequence[int]], str]
EncodeText = Callable[[str], Sequence[int]]


class TokenPieces:
    """The text of each token; empty for a token that must never be written."""

    def __init__(self, pieces: Sequence[str]) -> None:
        self.pieces = tuple(pieces)
        self._allowed: dict[tuple[PlanGrammar, GrammarState, bool], Flags] = {}
        self._ending: dict[tuple[PlanGrammar, GrammarState], bool] = {}

    def allowed(self, grammar: PlanGrammar, state: GrammarState, *, hurried: bool = False) -> Flags:
        """Return which tokens [V] may come next."""
        key = (grammar, state, hurried)
        found = self._allowed.get(key)
        if found is None:
            found = self._tried(grammar, state, hurried=hurried)
            if (len(self._allowed) + 1) * len(self.pieces) > _CACHE_BYTES:
                self._allowed = {}
            self._allowed[key] = found
        return found

    def after(self, grammar: PlanGrammar, state: GrammarState, token: int, *, hurried: bool = False) -> GrammarState:
        """Return the state after a token; empty where it is not allowed."""
        after = self._after(grammar, state, token, hurried=hurried)
        return after if after and self._ends(grammar, after) else frozenset()

    def _after(self, grammar: PlanGrammar, state: GrammarState, token: int, *, hurried: bool) -> GrammarState:
        piece = self.pieces[token] if token < len(self.pieces) else ""
        return grammar.after(state, piece, hurried=hurried) if piece else frozenset()

    def _ends(self, grammar: PlanGrammar, state: GrammarState) -> bool:
        """Say whether these tokens can complete a plan from here: a tokenizer may lack part of a word.

        In a hurry every piece brings the end nearer, so this depth-first search ends.
        """
        if len(self._ending) > _CACHED_STATES:
            self._ending = {}
        known, way = self._ending, [(state, self._hasty(grammar, state))]
        known[grammar, COMPLETE_STATE] = True
        while way and (grammar, state) not in known:
            at, nexts = way[-1]
            one = next(nexts, None)
            if one is None:
                known[grammar, at] = False
                way.pop()
            elif known.get((grammar, one)):
                known.update({(grammar, passed): True for passed, _ in way})
            elif (grammar, one) not in known:
                way.append((one, self._hasty(grammar, one)))
        return known[grammar, state]

    def _hasty(self, grammar: PlanGrammar, state: GrammarState) -> Iterator[GrammarState]:
        """Yield the states that one token leads to in a hurry."""
        for token in self._near(state, hurried=True):
            if after := self._after(grammar, state, token, hurried=True):
                yield after

    def _tried(self, grammar: PlanGrammar, state: GrammarState, *, hurried: bool) -> Flags:
        found = np.zeros(len(self.pieces), np.bool_)
        within = None if hurried else _open_node(state)
        if isinstance(within, ThoughtState) and self._ends(grammar, frozenset([("", ThoughtState())])):
            found |= self._calm
        if isinstance(within, SubtaskState) and self._ends(grammar, frozenset([("", replace(within, says=True))])):
            found |= self._plain
        for token in self._near(state, hurried=hurried):
            found[token] = bool(self.after(grammar, state, token, hurried=hurried))
        return found

    def _near(self, state: GrammarState, *, hurried: bool) -> Iterable[int]:
        """Return the tokens that need to be tried one by one; the result of all others is known."""
        within = _open_node(state)
        if within is None:
            return self._beginning({rest[0] for rest, _ in state if rest} or set(_ESCAPED))
        if not hurried:
            return np.flatnonzero(~(self._calm if isinstance(within, ThoughtState) else self._plain)).tolist()
        if isinstance(within, SubtaskState):
            return self._quoted if within.says else range(len(self.pieces))
        return {*self._broken, *self._beginning({rest[0] for rest, _ in state if rest})}

    def _beginning(self, letters: set[str]) -> list[int]:
        return [token for letter in sorted(letters) for token in self._by_first.get(letter, ())]

    @cached_property
    def _calm(self) -> Flags:
        return np.array([_PLAIN_THOUGHT.fullmatch(piece) is not None for piece in self.pieces])

    @cached_property
    def _plain(self) -> Flags:
        return np.array([_PLAIN_QUOTED.fullmatch(piece) is not None for piece in self.pieces])

    @cached_property
    def _by_first(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for token, piece in enumerate(self.pieces):
            if piece:
                found.setdefault(piece[0], []).append(token)
        return found

    @cached_property
    def _quoted(self) -> list[int]:
        return [token for token, piece in enumerate(self.pieces) if '"' in piece]

    @cached_property
    def _broken(self) -> list[int]:
        return [token for token, piece in enumerate(self.pieces) if "\n" in piece]


def _open_node(state: GrammarState) -> ThoughtState | SubtaskState | None:
    """Return the thought or subtask that may continue; None where every character is prescribed."""
    for rest, node in state:
        if not rest and (isinstance(node, ThoughtState) or (isinstance(node, SubtaskState) and not node.half)):
            return node
    return None


class GrammarConstraint:
    """A `TokenConstraint` for one text: within the grammar, and hurried once `reserve` tokens are left."""

    def __init__(self, lexicon: TokenPieces, grammar: PlanGrammar, reserve: int) -> None:
        self._lexicon = lexicon
        self._grammar = grammar
        self._reserve = reserve
        self._state = grammar.begin()
        self._hurried = False

    def allows(self, token: int) -> bool:
        """Say whether this token may come next."""
        return bool(self._after(token))

    def allowed(self) -> Flags:
        """Return which tokens [V] may come next."""
        return self._lexicon.allowed(self._grammar, self._state, hurried=self._hurried)

    def take(self, token: int, left: int) -> bool:
        """Record that this token was written; say whether the plan is complete."""
        self._state = self._after(token)
        self._hurried = left <= self._reserve
        return self._state == COMPLETE_STATE

    def _after(self, token: int) -> GrammarState:
        return self._lexicon.after(self._grammar, self._state, token, hurried=self._hurried)


def read_token_pieces(
    encode: EncodeText, decode: DecodeTokens, size: int, silent: Collection[int], where: str
) -> TokenPieces:
    """Return the pieces of a tokenizer of `size` tokens; the `silent` ones must never be written.

    ConfigError where it cannot write plans: names and brackets of the lists, an ordinal, a subtask in quotes.
    """
    back, zero, quoted = decode(encode(_FRAME)), encode("0"), '"a"'
    if back != _FRAME or not zero:
        raise ConfigError(f"{where}: the tokenizer cannot write plans: of {_FRAME!r} it makes {back!r}")
    lexicon = TokenPieces(list(_token_texts(decode, size, silent, zero[-1])))
    if decode(encode(quoted)) != quoted and not any(_QUOTED.fullmatch(one) for one in lexicon.pieces):
        raise ConfigError(f"{where}: the tokenizer cannot write plans: it has no words in quotes")
    return lexicon


def _token_texts(decode: DecodeTokens, size: int, silent: Collection[int], anchor: int) -> Iterator[str]:
    """Yield the text that each token adds after another, the anchor.

    After another, because some tokenizers write a text's first token without the blank that it stands for.
    """
    begun = decode([anchor])
    for token in range(size):
        whole = "" if token in silent else decode([anchor, token])
        yield whole.removeprefix(begun) if whole.startswith(begun) else ""


def count_ordinals(encode: EncodeText, decode: DecodeTokens) -> int:
    """Return how many ordinals, from 0 on, this tokenizer can write; at most `_MAX_ORDINALS`."""
    written = (decode(encode(str(ordinal))).strip() == str(ordinal) for ordinal in range(_MAX_ORDINALS))
    return next((count for count, well in enumerate(written) if not well), _MAX_ORDINALS)
