"""Reading: a task's text becomes parts with kinds of work, and a card's text becomes the kinds that it claims.

A linear model over hashed words, pairs of words and runs of letters does it, in three steps: where a sentence begins,
what it is for (a kind of work, a condition's branch, a remark, how much is at stake), and whether it uses an earlier
result. It is taught with sentences and cards whose meaning is known: language, never what a worker can do.

Invariants: reading takes bounded time for any text; the same text is read alike on every machine (CRC-32, not `hash`);
a part's sentence is in the text to the letter; a text without a part that can be told is one part. Deliberately absent:
workers, outcomes.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import islice
from zlib import crc32

import numpy as np

from shikisha.conductors.part_plans import PartCondition, PartedTask
from shikisha.routing.arrays import Floats32, Ints

WORDS_BUCKETS, PLACE_BUCKETS = 2**14, 2**13
MAX_CHARACTERS, MAX_TEXT_WORDS, MAX_PARTS, MAX_CARD_CHARACTERS = 6_000, 600, 12, 4_000
_MAX_WORDS = 80  # of a sentence
# Roles beside the kinds of work, in the order of the reader's scores.
REMARK, IF_ABOVE, IF_NOT, HIGH_STAKES, LOW_STAKES = "remark", "if above", "if not", "high stakes", "low stakes"
BROKEN = "broken"  # a piece of a sentence, or more than one
OTHER_ROLES = (REMARK, IF_ABOVE, IF_NOT, HIGH_STAKES, LOW_STAKES, BROKEN)
STAKES: Mapping[str, float] = {HIGH_STAKES: 2.5, LOW_STAKES: 0.4}
REFERENCES = ("none", "one", "two")  # how many earlier results a sentence uses
CLAIM_ALL, CLAIM_NONE = "all", "none"
_WORD = re.compile(r"\S+")
_TOKEN = re.compile(r"[^\W\d_]+|\d+|[^\w\s]")
_NUMBER = re.compile(r"\d{1,12}")
_SENTENCE = re.compile(r"(?<=[.!?])\s+")
_SURE = 0.75  # from which on a sentence is taken to use no earlier result
# Doubt above which a task is left whole. Of an author who was kept out of the lessons, readings below it were right in
# three of four texts, and above it in one of five.
DOUBTFUL = 0.8
_STOPS, _END_MARKS = ".?!", ".?!:;"
_MARKED_DOUBT = 2.0  # in a stretch that ends with a full stop, a cut elsewhere is less likely
_WHOLE_WEIGHT = 2.0  # of how whole sentences look, against the words around cuts
_LEAST_CUT = -4.0  # log-odds below which no cut is tried
_MAX_SENTENCE = 30  # words, where nothing marks an end


@dataclass(frozen=True, slots=True)
class ReadTask:
    """A task as read: its parts, kinds [P, K] as shares, how likely each needs which [P, P], and what it is worth.

    `doubt` (0 to 1) is that of the least certain sentence; `whole`: it was too large, so the task is one part.
    """

    parts: PartedTask
    kinds: Floats32
    needs: Floats32
    value: float
    doubt: float = 0.0
    whole: bool = False


@dataclass(frozen=True, eq=False)
class TaskReader:
    """Weights: `starts` [PLACE_BUCKETS], `words` [WORDS_BUCKETS, roles + references + claims], and a bias of each."""

    kinds: tuple[str, ...]
    starts: Floats32
    starts_bias: float
    words: Floats32
    bias: Floats32

    def split(self, text: str) -> list[str]:
        """Return the sentences of a text in order, each to the letter: the likeliest way to cut it.

        A full stop always ends a sentence. Elsewhere a cut is scored by the words around it, and a sentence by how
        unlikely it is to be a piece of one, or two in one.
        """
        text = text[:MAX_CHARACTERS]
        spans = [match.span() for match in islice(_WORD.finditer(text), MAX_TEXT_WORDS)]
        places = place_features(text, spans)
        found: list[str] = []
        start = 0
        for at in range(1, len(spans) + 1):
            before = text[spans[at - 1][1] - 1]
            if at < len(spans) and before not in _STOPS and at - start < _MAX_WORDS:
                continue
            cuts = self._cut([text[one:two] for one, two in spans[start:at]], places[start:at])
            found += [text[spans[start + one][0] : spans[start + two - 1][1]] for one, two in cuts]
            start = at
        return found

    def _cut(self, words: Sequence[str], places: Sequence[Sequence[int]]) -> list[tuple[int, int]]:
        """Return where the sentences in a stretch of words begin and end."""
        count = len(words)
        marked = words[-1][-1] in _STOPS
        doubt = [_MARKED_DOUBT if marked and word[-1] not in _END_MARKS else 0.0 for word in words]
        cut = [0.0] + [
            float(self.starts[list(each)].sum() + self.starts_bias) - less
            for each, less in zip(places[1:], doubt, strict=False)
        ]
        broken = len(self.kinds) + len(OTHER_ROLES) - 1
        places_to_cut = [at for at in range(count) if not at or cut[at] > _LEAST_CUT]
        best, came = {0: 0.0}, dict[int, int]()
        for end in [*places_to_cut[1:], count]:
            begins = [at for at in places_to_cut if at < end]
            begins = [at for at in begins if end - at <= _MAX_SENTENCE] or begins[-1:]
            whole = [0.0] * len(begins)
            if len(places_to_cut) > 1:
                roles = _softmax(self._scores([" ".join(words[at:end]) for at in begins])[:, : broken + 1])
                whole = (_WHOLE_WEIGHT * np.log((1 - roles[:, broken]).clip(1e-4))).tolist()
            best[end], came[end] = max(
                (best[at] + score + (cut[at] if at else 0.0), at) for at, score in zip(begins, whole, strict=True)
            )
        found, end = list[tuple[int, int]](), count
        while end:
            found.append((came[end], end))
            end = came[end]
        return found[::-1]

    def read(self, text: str) -> ReadTask:
        """Read a task."""
        sentences = self.split(text)
        scores = self._scores(sentences)
        roles = scores[:, : len(self.kinds) + len(OTHER_ROLES)]
        uses = scores[:, roles.shape[1] : roles.shape[1] + len(REFERENCES)]
        read = _compose(self.kinds, sentences, _softmax(roles), _softmax(uses))
        return read if read.doubt <= DOUBTFUL or not len(read.parts) else _leave_whole(read, text)

    def kind_shares(self, texts: Sequence[str]) -> Floats32:
        """Return the kinds of work that single subtasks are of, as shares [N, K]."""
        return _softmax(self._scores(texts)[:, : len(self.kinds)])

    def claims(self, card: str) -> Floats32:
        """Return how surely a card claims each kind of work (0 to 1)."""
        pieces = [piece for piece in _SENTENCE.split(card[:MAX_CARD_CHARACTERS]) if piece.strip()]
        if not pieces:
            return np.zeros(len(self.kinds), np.float32)
        first = len(self.kinds) + len(OTHER_ROLES) + len(REFERENCES)
        shares = _softmax(self._scores(pieces)[:, first:])
        kinds = shares[:, : len(self.kinds)] + shares[:, len(self.kinds), None]
        found: Floats32 = kinds.max(0)
        return found

    def _scores(self, texts: Sequence[str]) -> Floats32:
        if not texts:
            return np.zeros((0, len(self.bias)), np.float32)
        rows = [self.words[word_features(text)] for text in texts]
        found: Floats32 = np.stack([row.sum(0) / max(1, len(row)) ** 0.5 for row in rows]) + self.bias
        return found


def _leave_whole(read: ReadTask, text: str) -> ReadTask:
    """Return the task as one part of all kinds of work that were read: one worker gets all of it."""
    kinds = read.kinds.mean(0, keepdims=True)
    one = PartedTask((text[:MAX_CHARACTERS].strip(),), ((),))
    return replace(read, parts=one, kinds=kinds, needs=np.zeros((1, 1), np.float32), whole=True)


def _compose(kinds: tuple[str, ...], sentences: Sequence[str], roles: Floats32, uses: Floats32) -> ReadTask:
    others = roles[:, len(kinds) :]
    best = np.where(roles.argmax(1) == roles.shape[1] - 1, roles[:, :-1].argmax(1), roles.argmax(1))
    lead, parts, branches, threshold, value = "", list[int](), dict[str, int](), None, 1.0
    for at, sentence in enumerate(sentences):
        role = (*kinds, *OTHER_ROLES)[best[at]]
        if role in STAKES:
            value = STAKES[role]
        elif role in (IF_ABOVE, IF_NOT):
            lead = role
            if role == IF_ABOVE and (found := _NUMBER.findall(sentence)):
                threshold = int(found[-1])
        elif role != REMARK and len(parts) < MAX_PARTS:
            if lead and parts and lead not in branches:
                branches[lead] = len(parts)
            lead = ""
            parts.append(at)
    if not parts:  # nothing is known for a part: the likeliest sentence is one
        parts = [int((1 - others.sum(1)).argmax())] if len(sentences) else []
    condition = None
    if threshold is not None and 0 < branches.get(IF_ABOVE, 0) < branches.get(IF_NOT, 0):
        condition = PartCondition(branches[IF_ABOVE] - 1, threshold, branches[IF_ABOVE], branches[IF_NOT])
    shares = roles[parts][:, : len(kinds)] if parts else np.zeros((0, len(kinds)), np.float32)
    used = _uses(uses[parts] if parts else uses[:0], condition)
    parted = PartedTask(tuple(sentences[at] for at in parts), tuple(used), condition)
    needs = np.zeros((len(parts), len(parts)), np.float32)
    for part in range(len(parts)):
        if part and uses[parts[part], 0] < _SURE:  # it may well use what is just known, however it was read
            needs[part, part - 1] = 1.0
        needs[part, list(parted.needs(part))] = 1.0
    whole = roles[:, :-1].max(1) if len(roles) else np.zeros(1, np.float32)
    return ReadTask(parted, shares / shares.sum(1, keepdims=True).clip(1e-6), needs, value, float(1 - whole.min()))


def _uses(shares: Floats32, condition: PartCondition | None) -> list[tuple[int, ...]]:
    """Return which earlier parts each part uses: the one before, or the ends of the last two arms."""
    starts = {0} if condition is None else {0, condition.first_then, condition.first_else}
    found: list[tuple[int, ...]] = []
    arm = 0
    for part, share in enumerate(shares):
        many = 0 if part in starts else int(share.argmax())
        if many == 0:
            arm = part
            found.append(())
        elif many == 2 and arm > 0:
            found.append((arm - 1, part - 1))
        else:
            found.append((part - 1,))
    return found


def _softmax(scores: Floats32) -> Floats32:
    raised = np.exp(scores - scores.max(1, keepdims=True)) if len(scores) else scores
    found: Floats32 = raised / raised.sum(1, keepdims=True) if len(scores) else raised
    return found


def normal_word(word: str, *, opens: bool = False) -> str:
    """Return a word as features know it: digits as 0, a name as its shape, else in lower case."""
    if any(sign.isdigit() for sign in word):
        return re.sub(r"\d+", "0", word.lower())
    return "Name" if word[:1].isupper() and not opens and not word.isupper() else word.lower()


def letters_of(word: str) -> str:
    """Return a word's first letter and its others in order of the alphabet: the same after two letters were swapped."""
    return word if not word.isalpha() else word[0] + "".join(sorted(word[1:20]))


def word_features(text: str) -> Ints:
    """Return the buckets of a sentence's words, pairs of words, and runs of three and four letters."""
    words = [
        normal_word(word, opens=at == 0) for at, word in enumerate(_TOKEN.findall(text[:MAX_CHARACTERS])[:_MAX_WORDS])
    ]
    names, codes = words.count("Name"), words.count("0")
    words += [f"names={min(names, 3)}", f"codes={min(codes, 5)}", f"anchored={min(2, names + codes)}"]
    places = [bucket for word in words for bucket in _word_buckets(word)]
    places += [
        crc32(f"{one} {two}".encode()) % WORDS_BUCKETS for one, two in zip(["^", *words], [*words, "$"], strict=True)
    ]
    return np.array(places, np.int64)


@lru_cache(maxsize=20_000)
def _word_buckets(word: str) -> tuple[int, ...]:
    whole = f"<{word[:20]}>"
    runs = [f"~{letters_of(word)}"] if word.isalpha() else []
    runs += [whole[at : at + size] for size in (3, 4) for at in range(len(whole) - size + 1)] if word.isalpha() else []
    return tuple(crc32(run.encode()) % WORDS_BUCKETS for run in (whole, *runs))


def place_features(text: str, spans: Sequence[tuple[int, int]]) -> list[list[int]]:
    """Return, for each word, the buckets of what stands around its beginning."""
    words = [text[start:end] for start, end in spans]
    normal = [
        "^",
        "^",
        *(letters_of(normal_word(word.strip(_END_MARKS + ",\"'()") or word)) for word in words),
        "$",
        "$",
    ]
    found = []
    for at, word in enumerate(words):
        before = words[at - 1] if at else "^"
        mark = before[-1] if before[-1] in _END_MARKS + "," else "-"
        newline = at > 0 and "\n" in text[spans[at - 1][1] : spans[at][0]]
        shape = f"{mark}{newline:d}{word[:1].isupper():d}"
        two_before, one_before, own, after, two_after = normal[at : at + 5]
        said = [
            f"shape {shape}", f"mark {mark}", f"own {own}", f"before {one_before}", f"after {after}",
            f"before2 {two_before}", f"after2 {two_after}", f"pair {one_before} {own}", f"next {own} {after}",
            f"{mark} own {own}", f"last {two_before} {one_before}", f"mark before {mark} {one_before}",
        ]  # fmt: skip
        found.append([crc32(one.encode()) % PLACE_BUCKETS for one in said])
    return found
