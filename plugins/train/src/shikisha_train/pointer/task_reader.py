"""Reading: a task's text becomes parts with kinds of work, and a card's text becomes the kinds that it claims.

A tagger (`part_tagger`) says of each word whether a sentence begins there, and of a stretch of words what it is for (a
kind of work, a condition's branch, a remark, how much is at stake), whether it is a piece of a sentence, and how many
earlier results it uses. So does a linear model over the stretch's hashed words, pairs of words and runs of letters,
which sees nothing around it. The text is cut where the two together find it likeliest. Both are taught with sentences
and cards whose meaning is known: language, never what a worker can do.

Where a reading range (`reading_range`) was fitted, a text that is unlike those of the lessons is left whole too.

Invariants: reading takes bounded time for any text; the same text is read alike on every machine (CRC-32, not `hash`);
a part's sentence is in the text to the letter; a text without a part that can be told is one part. Deliberately absent:
workers, outcomes.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from zlib import crc32

import numpy as np

from shikisha.core.fast_dataclass import dataclass, replace
from shikisha.routing.arrays import Floats32, Ints
from shikisha_train.pointer.part_plans import PartCondition, PartedTask
from shikisha_train.pointer.part_tagger import (
    encode_words,
    letters_of,
    score_begins,
    score_stretches,
    token_features,
)
from shikisha_train.pointer.reading_range import ReadingRange

WORDS_BUCKETS = 2**14
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
DOUBTFUL = 0.5  # doubt (1 less the chance that a reading is right) above which a task is left whole
_CALIBRATED = (2.27, 1.48, 0.83, 3.46)
_LEAST_CUT = -4.0  # log-odds below which no cut is tried
_MOST_CUTS = 60  # places of a text, the likeliest, where a cut is tried
_MAX_CUTS_WITHIN = 6  # such places within a sentence
# Weights of the tagger's and the linear model's word on a stretch, chosen on authors who were left out of the lessons.
_TAGGED, _SAID = 1.0, 2.0


_PROBE = "Who leads Ada Abbot's team? It matters. Add 17 to the extension of that person. If it is above 40, in words."


@dataclass(frozen=True, slots=True)
class ReadTask:
    """A task as read: its parts, kinds [P, K] as shares, how likely each needs which [P, P], and what it is worth.

    `doubt` is the chance that the reading is wrong; `whole`: it was too large, so the task is one part; `foreign`: the
    text is unlike what was taught, so it is whole too.
    """

    parts: PartedTask
    kinds: Floats32
    needs: Floats32
    value: float
    doubt: float = 0.0
    whole: bool = False
    foreign: bool = False


@dataclass(frozen=True, eq=False)
class TaskReader:
    """Weights: `tagger` by name, `words` [WORDS_BUCKETS, roles + references + claims] and `bias` of the stretches.

    `known` measures how much a text is like those that were taught; None: not measured.
    """

    kinds: tuple[str, ...]
    tagger: Mapping[str, Floats32]
    words: Floats32
    bias: Floats32
    known: ReadingRange | None = None

    def read(self, text: str) -> ReadTask:
        """Read a task."""
        sentences, roles, uses, right = self._cut(text[:MAX_CHARACTERS])
        foreign = self.unlike(text) is not None
        kinds = self.kinds
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
        read = ReadTask(parted, shares / shares.sum(1, keepdims=True).clip(1e-6), needs, value)
        read = replace(read, doubt=1.0 if foreign else 1 - right, foreign=foreign)
        if not (read.doubt <= DOUBTFUL or not len(read.parts)):
            # The task as one part of all kinds of work that were read: one worker gets all of it
            kinds = read.kinds.mean(0, keepdims=True)
            one = PartedTask((text[:MAX_CHARACTERS].strip(),), ((),))
            return replace(read, parts=one, kinds=kinds, needs=np.zeros((1, 1), np.float32), whole=True)
        return read

    def unlike(self, text: str) -> str | None:
        """Return why a text is too unlike those of the lessons; None if it is not."""
        if self.known is None or (found := self.known.familiarity(text)) >= self.known.threshold:
            return None
        least = f"familiarity {found:.1f}, least {self.known.threshold:.1f}"
        return f"the question is unlike those that the model was taught to read ({least})"

    def _cut(self, text: str) -> tuple[list[str], Floats32, Floats32, float]:
        """Return the likeliest sentences of a text, each to the letter, with shares of their roles and references.

        Also returned is the chance that all of it is right.
        """
        spans = [match.span() for match in islice(_WORD.finditer(text), MAX_TEXT_WORDS)]
        roles = len(self.kinds) + len(OTHER_ROLES)
        if not spans:
            return [], np.zeros((0, roles), np.float32), np.zeros((0, len(REFERENCES)), np.float32), 1.0
        h = encode_words(self.tagger, token_features(text, spans))
        odds = score_begins(self.tagger, h)
        begins = -np.logaddexp(0, -odds)
        goes_on = np.concatenate([[0.0], -np.logaddexp(0, odds).cumsum()])  # sums up to each word
        places = [0, *_likely_cuts(odds), len(spans)]
        pairs = [
            (one, two)
            for two in range(1, len(places))
            for one in range(max(0, two - 1 - _MAX_CUTS_WITHIN), two)
            if one == two - 1 or places[two] - places[one] <= _MAX_WORDS
        ]
        starts, ends = (np.array([places[pair[at]] for pair in pairs]) for at in (0, 1))
        texts = [text[spans[start][0] : spans[end - 1][1]] for start, end in zip(starts, ends, strict=True)]
        tagged, linear = score_stretches(self.tagger, h, starts, ends), self._scores(texts)
        said = _log_shares(linear[:, :roles])
        role = (_TAGGED * _log_shares(tagged[:, :roles]) + _SAID * said)[:, :-1]
        uses = _log_shares(tagged[:, roles:]) + _log_shares(linear[:, roles : roles + len(REFERENCES)])
        cuts = np.where(starts > 0, begins[starts], 0.0) + goes_on[ends] - goes_on[starts + 1]
        best, every, came = {0: 0.0}, {0: 0.0}, dict[int, int]()
        for row, (one, two) in enumerate(pairs):
            score = best[one] + float(cuts[row] + role[row].max())
            share = every[one] + float(cuts[row] + np.logaddexp.reduce(role[row]))
            if two not in best or score > best[two]:
                best[two], came[two] = score, row
            every[two] = share if two not in every else float(np.logaddexp(every[two], share))
        chosen, at = list[int](), len(places) - 1
        while at:
            chosen.append(came[at])
            at = pairs[came[at]][0]
        chosen.reverse()
        shares = _softmax(role[chosen])
        padded = np.concatenate([shares, np.zeros((len(chosen), 1))], 1).astype(np.float32)
        last = len(places) - 1
        right = _chance_right(shares.max(1).min(), best[last] - every[last], said[chosen, :-1].max(1).min())
        return [texts[row] for row in chosen], padded, _softmax(uses[chosen]).astype(np.float32), right

    def behavior(self) -> Iterator[Floats32]:
        """Yield what it reads in a fixed text, which a file of weights keeps (`retrieval.code_probe`)."""
        sentences, roles, uses, certain = self._cut(_PROBE)
        yield from (roles, uses, np.array([len(sentences), certain], np.float32), self.kind_shares(_PROBE.split(". ")))
        yield self.claims("Adds numbers, converts units and knows who works where.")

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


def _chance_right(role: float, reading: float, alone: float) -> float:
    """Return the chance that a reading is right.

    It falls with the share of the least certain sentence, with that of the whole reading among all others (its log),
    and with the least certain sentence by the linear model alone (its log). A logistic regression on texts of training
    authors who had been left out.
    """
    role_weight, reading_weight, alone_weight, bias = _CALIBRATED
    odds = bias + role_weight * np.log(max(role, 1e-3)) + reading_weight * reading + alone_weight * max(alone, -7.0)
    return float(1 / (1 + np.exp(-odds)))


def _likely_cuts(odds: Floats32) -> list[int]:
    """Return the places after the first where a sentence may well begin, the likeliest of them, in order."""
    places = [at for at in range(1, len(odds)) if odds[at] > _LEAST_CUT]
    return sorted(sorted(places, key=lambda at: -odds[at])[:_MOST_CUTS])


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


def _log_shares(scores: Floats32) -> Floats32:
    found: Floats32 = scores - np.logaddexp.reduce(scores, 1, keepdims=True)
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
