"""A tokenizer's pieces, and which of them keep a text within a grammar.

A token is allowed where its piece of text leads the grammar to a state. Most pieces of a large vocabulary are plain
words, which a thought or the inside of quotes takes without a look at them; the others are tried, and what was found is
remembered by state. Invariants: a token without text (padding, the end, half a character that decodes to nothing) is
never allowed; a lexicon may be used by several threads. Deliberately absent: tokenizers themselves.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np

from shikisha.conductors.grammar import COMPLETE, Grammar, Inside, State, Thought
from shikisha.errors import ConfigError
from shikisha.policy.arrays import Flags

_CALM = re.compile(r'[^"=]+')  # makes nothing but a thought of a thought
_PLAIN = re.compile(r'[^"\\\x00-\x1f\x7f-\x9f\u2028\u2029]+')  # stays inside quotes
_ESCAPED = '"\\nt'
_MEMORY = 1 << 25  # bytes
_STATES = 100_000
_QUOTED = re.compile(r'"[^"\\\n]*\w[^"\\\n]*"')
_FRAME = "model_id = []\nsubtasks = []\naccess_list = []"
_MOST = 100  # workers that anybody looks for ordinals of

Decode = Callable[[Sequence[int]], str]
Encode = Callable[[str], Sequence[int]]


class Lexicon:
    """The pieces by token; an empty one for a token that is never to be written."""

    def __init__(self, pieces: Sequence[str]) -> None:
        self.pieces = tuple(pieces)
        self._allowed: dict[tuple[Grammar, State, bool], Flags] = {}
        self._ending: dict[tuple[Grammar, State], bool] = {}

    def allowed(self, grammar: Grammar, state: State, *, hurried: bool = False) -> Flags:
        """Return which tokens [V] may come next."""
        key = (grammar, state, hurried)
        found = self._allowed.get(key)
        if found is None:
            found = self._tried(grammar, state, hurried=hurried)
            if (len(self._allowed) + 1) * len(self.pieces) > _MEMORY:
                self._allowed = {}
            self._allowed[key] = found
        return found

    def after(self, grammar: Grammar, state: State, token: int, *, hurried: bool = False) -> State:
        """Return the state after a token; empty where it is not allowed."""
        after = self._after(grammar, state, token, hurried=hurried)
        return after if after and self._ends(grammar, after) else frozenset()

    def _after(self, grammar: Grammar, state: State, token: int, *, hurried: bool) -> State:
        piece = self.pieces[token] if token < len(self.pieces) else ""
        return grammar.after(state, piece, hurried=hurried) if piece else frozenset()

    def _ends(self, grammar: Grammar, state: State) -> bool:
        """Say whether these pieces can bring a plan to its end from here: a tokenizer may lack a part of a word.

        In a hurry every piece brings the end nearer, so the search, depth first, is over at some time.
        """
        if len(self._ending) > _STATES:
            self._ending = {}
        known, way = self._ending, [(state, self._hasty(grammar, state))]
        known[grammar, COMPLETE] = True
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

    def _hasty(self, grammar: Grammar, state: State) -> Iterator[State]:
        """Yield the states that one token leads to in a hurry."""
        for token in self._near(state, hurried=True):
            if after := self._after(grammar, state, token, hurried=True):
                yield after

    def _tried(self, grammar: Grammar, state: State, *, hurried: bool) -> Flags:
        found = np.zeros(len(self.pieces), np.bool_)
        within = None if hurried else _within(state)
        if isinstance(within, Thought) and self._ends(grammar, frozenset([("", Thought())])):
            found |= self._calm
        if isinstance(within, Inside) and self._ends(grammar, frozenset([("", replace(within, says=True))])):
            found |= self._plain
        for token in self._near(state, hurried=hurried):
            found[token] = bool(self.after(grammar, state, token, hurried=hurried))
        return found

    def _near(self, state: State, *, hurried: bool) -> Iterable[int]:
        """Return the tokens that have to be tried one by one: what all others come to is known."""
        within = _within(state)
        if within is None:
            return self._beginning({rest[0] for rest, _ in state if rest} or set(_ESCAPED))
        if not hurried:
            return np.flatnonzero(~(self._calm if isinstance(within, Thought) else self._plain)).tolist()
        if isinstance(within, Inside):
            return self._quoted if within.says else range(len(self.pieces))
        return {*self._broken, *self._beginning({rest[0] for rest, _ in state if rest})}

    def _beginning(self, letters: set[str]) -> list[int]:
        return [token for letter in sorted(letters) for token in self._by_first.get(letter, ())]

    @cached_property
    def _calm(self) -> Flags:
        return np.array([_CALM.fullmatch(piece) is not None for piece in self.pieces])

    @cached_property
    def _plain(self) -> Flags:
        return np.array([_PLAIN.fullmatch(piece) is not None for piece in self.pieces])

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


def _within(state: State) -> Thought | Inside | None:
    """Return the thought, or the inside of quotes, that may go on; None where all is prescribed."""
    for rest, node in state:
        if not rest and (isinstance(node, Thought) or (isinstance(node, Inside) and not node.half)):
            return node
    return None


class Held:
    """Limits (`decoding`) of one text: within the grammar, and hurried once `reserve` tokens are left."""

    def __init__(self, lexicon: Lexicon, grammar: Grammar, reserve: int) -> None:
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
        """Note that this token was written; say whether the plan is complete."""
        self._state = self._after(token)
        self._hurried = left <= self._reserve
        return self._state == COMPLETE

    def _after(self, token: int) -> State:
        return self._lexicon.after(self._grammar, self._state, token, hurried=self._hurried)


def lexicon_of(encode: Encode, decode: Decode, size: int, silent: Collection[int], where: str) -> Lexicon:
    """Return the lexicon of a tokenizer of `size` tokens, of which the `silent` ones are never to be written.

    ConfigError where it cannot write plans: names and brackets of the lists, an ordinal, a subtask in quotes.
    """
    back, zero, quoted = decode(encode(_FRAME)), encode("0"), '"a"'
    if back != _FRAME or not zero:
        raise ConfigError(f"{where}: the tokenizer cannot write plans: of {_FRAME!r} it makes {back!r}")
    lexicon = Lexicon(list(_pieces(decode, size, silent, zero[-1])))
    if decode(encode(quoted)) != quoted and not any(_QUOTED.fullmatch(one) for one in lexicon.pieces):
        raise ConfigError(f"{where}: the tokenizer cannot write plans: it has no words in quotes")
    return lexicon


def _pieces(decode: Decode, size: int, silent: Collection[int], anchor: int) -> Iterator[str]:
    """Yield the text that each token adds after another, the anchor.

    After another, because some tokenizers write a text's first token without the blank that it stands for.
    """
    begun = decode([anchor])
    for token in range(size):
        whole = "" if token in silent else decode([anchor, token])
        yield whole.removeprefix(begun) if whole.startswith(begun) else ""


def ordinals_of(encode: Encode, decode: Decode) -> int:
    """Return how many ordinals, from 0 on, this tokenizer can write; `_MOST` at most."""
    written = (decode(encode(str(ordinal))).strip() == str(ordinal) for ordinal in range(_MOST))
    return next((count for count, well in enumerate(written) if not well), _MOST)
