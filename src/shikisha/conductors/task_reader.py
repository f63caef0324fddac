"""Reading: a task's text becomes parts with kinds of work, and a card's text becomes the kinds that it claims.

A tagger (`part_tagger`) says of each word whether a sentence begins there and what it is part of. A linear model over
hashed words, pairs of words and runs of letters says what a whole stretch is for (a kind of work, a condition's branch,
a remark, how much is at stake), whether it is a piece of a sentence, and how many earlier results it uses. The text is
cut where the two together find it likeliest. Both are taught with sentences and cards whose meaning is known: language,
never what a worker can do.

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
from shikisha.conductors.part_tagger import END_MARKS, letters_of, score_words, token_features
from shikisha.routing.arrays import Floats32, Ints

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
_CALIBRATED = (0.73, 1.84, 0.59, 2.3)
_LEAST_CUT = -4.0  # log-odds below which no cut is tried
_MOST_CUTS = 60  # places of a text, the likeliest, where a cut is tried
_MAX_CUTS_WITHIN = 6  # such places within a sentence
# Weights of the stretch's model against the tagger, chosen on training authors who were left out of the lessons.
_AFTER_STOP, _BEFORE_STOP, _STOPS = 2.0, 2.0, ".?!"
_TAG_WEIGHT, _WHOLE_WEIGHT, _ROLE_WEIGHT = 0.25, 2.0, 2.0


@dataclass(frozen=True, slots=True)
class ReadTask:
    """A task as read: its parts, kinds [P, K] as shares, how likely each needs which [P, P], and what it is worth.

    `doubt` is the chance that the reading is wrong; `whole`: it was too large, so the task is one part.
    """

    parts: PartedTask
    kinds: Floats32
    needs: Floats32
    value: float
    doubt: float = 0.0
    whole: bool = False


@dataclass(frozen=True, eq=False)
class TaskReader:
    """Weights: `tagger` by name, `words` [WORDS_BUCKETS, roles + references + claims] and `bias` of the stretches."""

    kinds: tuple[str, ...]
    tagger: Mapping[str, Floats32]
    words: Floats32
    bias: Floats32

    def read(self, text: str) -> ReadTask:
        """Read a task."""
        sentences, roles, uses, right = self._cut(text[:MAX_CHARACTERS])
        read = replace(_compose(self.kinds, sentences, roles, uses), doubt=1 - right)
        return read if read.doubt <= DOUBTFUL or not len(read.parts) else _leave_whole(read, text)

    def _cut(self, text: str) -> tuple[list[str], Floats32, Floats32, float]:
        """Return the likeliest sentences of a text, each to the letter, with shares of their roles and references.

        Also returned is the chance that all of it is right.
        """
        spans = [match.span() for match in islice(_WORD.finditer(text), MAX_TEXT_WORDS)]
        roles = len(self.kinds) + len(OTHER_ROLES)
        if not spans:
            return [], np.zeros((0, roles), np.float32), np.zeros((0, len(REFERENCES)), np.float32), 1.0
        scores = score_words(self.tagger, token_features(text, spans))
        scores[:, 0] += _marked_odds([text[end - 1] for _, end in spans])
        begins = -np.logaddexp(0, -scores[:, 0])
        # Sums up to each word, so that a stretch's is a difference.
        goes_on = _sums(-np.logaddexp(0, scores[:, 0])[:, None])[:, 0]
        of_role = _sums(np.log(_softmax(scores[:, 1:roles])))
        of_uses = _sums(np.log(_softmax(scores[:, roles:])))
        places = [0, *_likely_cuts(scores[:, 0]), len(spans)]
        pairs = [
            (one, two)
            for two in range(1, len(places))
            for one in range(max(0, two - 1 - _MAX_CUTS_WITHIN), two)
            if one == two - 1 or places[two] - places[one] <= _MAX_WORDS
        ]
        texts = [text[spans[places[one]][0] : spans[places[two] - 1][1]] for one, two in pairs]
        linear = self._scores(texts)
        whole = np.log(_softmax(linear[:, :roles]).clip(1e-6))
        best, came = {0: 0.0}, dict[int, int]()
        found: dict[int, tuple[str, Floats32, Floats32]] = {}
        for row, (one, two) in enumerate(pairs):
            start, end = places[one], places[two]
            tagged = _TAG_WEIGHT * (of_role[end] - of_role[start])
            said = whole[row, :-1] - np.log1p(-min(0.999, float(np.exp(whole[row, -1]))))
            both = tagged + _ROLE_WEIGHT * said
            cut = float(begins[start]) if start else 0.0
            score = best[one] + cut + goes_on[end] - goes_on[start + 1] + float(both.max())
            score += _WHOLE_WEIGHT * float(np.log1p(-min(0.999, float(np.exp(whole[row, -1])))))
            if two not in best or score > best[two]:
                best[two], came[two] = score, one
                mean = (of_role[end] - of_role[start]) / (end - start) + said
                references = (of_uses[end] - of_uses[start]) / (end - start)
                references = references + np.log(_softmax(linear[row : row + 1, roles : roles + len(REFERENCES)])[0])
                found[two] = texts[row], mean, references
        chosen, at = list[tuple[str, Floats32, Floats32]](), len(places) - 1
        while at:
            chosen.append(found[at])
            at = came[at]
        chosen.reverse()
        shares = _softmax(np.stack([each[1] for each in chosen]))
        padded = np.concatenate([shares, np.zeros((len(chosen), 1))], 1).astype(np.float32)
        uses = _softmax(np.stack([each[2] for each in chosen])).astype(np.float32)
        alone = _softmax(self._scores([each[0] for each in chosen])[:, :roles])[:, :-1].max(1)
        cuts = float(np.logaddexp(0, -np.abs(scores[1:, 0])).sum())
        return [each[0] for each in chosen], padded, uses, _chance_right(float(shares.max(1).min()), cuts, alone.min())

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


def _chance_right(role: float, cuts: float, alone: float) -> float:
    """Return the chance that a reading is right.

    It falls with the least certain sentence, by both models and by the linear one alone, and with all cuts (minus the
    log of the likeliest choices' chance). A logistic regression on texts of training authors who had been left out.
    """
    role_weight, cut_weight, alone_weight, bias = _CALIBRATED
    odds = bias + role_weight * np.log(max(role, 1e-3)) - cut_weight * cuts + alone_weight * np.log(max(alone, 1e-3))
    return float(1 / (1 + np.exp(-odds)))


def _sums(rows: Floats32) -> Floats32:
    """Return the sums of the rows before each row, and of all."""
    found: Floats32 = np.concatenate([np.zeros((1, rows.shape[1])), rows.cumsum(0)]).astype(np.float32)
    return found


def _marked_odds(last: Sequence[str]) -> Floats32:
    """Return what full stops say of a beginning at each word: likely after one, unlikely within what one ends."""
    found = np.zeros(len(last), np.float32)
    marked = False
    for at in range(len(last) - 1, 0, -1):
        marked = marked or last[at] in _STOPS
        if last[at - 1] in _STOPS:
            found[at] = _AFTER_STOP
            marked = True
        elif last[at - 1] not in END_MARKS and marked:
            found[at] = -_BEFORE_STOP
    return found


def _likely_cuts(odds: Floats32) -> list[int]:
    """Return the places after the first where a sentence may well begin, the likeliest of them, in order."""
    places = [at for at in range(1, len(odds)) if odds[at] > _LEAST_CUT]
    return sorted(sorted(places, key=lambda at: -odds[at])[:_MOST_CUTS])


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
    return ReadTask(parted, shares / shares.sum(1, keepdims=True).clip(1e-6), needs, value)


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
