"""An index of documents with fields: candidates by BM25F, for a whole query and for each of its clauses.

A document is a group (a tool's server, a memory's run, a file's folder) and a text for each field. The score is BM25F
(Robertson, Zaragoza and Taylor 2004): term frequencies are normalized per field, weighted, added and saturated once.
Invariants: building and searching take time linear in the texts and the postings, whatever the texts say; equal scores
are ordered by position, so that a search gives the same on every machine. Why no library: the ranker needs the match of
each term in each field of each candidate, and scores by clause, which `bm25s` does not give.

Words of texts as terms: identifiers are split, plurals and endings are cut, and a long query is cut into clauses.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

MAX_QUERY_CHARACTERS = 8_000
MAX_CLAUSES = 8
_WORD = re.compile(r"[^\W_]+")
_PART = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|\d+|[^\W\d_A-Za-z]+")
_UNSPACED = re.compile("[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
_CLAUSE = re.compile(
    r"[.?!;:\n]+(?:\s|$)|,?\s+(?:and then|and also|as well as|additionally|also|then|finally)\b", re.IGNORECASE
)
_MIN_CLAUSE_WORDS = 3
_LONGEST_WORD = 64
_STOP_WORDS = frozenset(
    re.findall(
        r"\w+",
        "a about all also am an and any are as at be been being but by can could did do does doing for from "
        "had has have having he her here hers him his how i if in into is it its just let like may me might "
        "mine more most my need of on or our out please provide she should so some such that the their them "
        "then there these they this those to too us using very want was we were what when where which while "
        "who whom why will with would you your ll ve re s t d give tell help additionally furthermore lastly "
        "able im id",
    )
)
# Longest first; what is left must keep a vowel and three letters.
_ENDINGS = (
    ("ational", "ate"),
    ("ization", "ize"),
    ("isation", "ize"),
    ("fulness", "ful"),
    ("ations", "ate"),
    ("ation", "ate"),
    ("ments", "ment"),
    ("ities", "ity"),
    ("ings", ""),
    ("ing", ""),
    ("ies", "y"),
    ("sses", "ss"),
    ("ied", "y"),
    ("ers", "er"),
    ("ed", ""),
    ("ly", ""),
    ("xes", "x"),
    ("ches", "ch"),
    ("shes", "sh"),
    ("es", "e"),
    ("ss", "ss"),
    ("us", "us"),
    ("s", ""),
)
_VOWEL = re.compile("[aeiouy]")


def stem_word(word: str) -> str:
    """Return a lower-case word without its ending; two words of one stem count as one term."""
    for ending, instead in _ENDINGS:
        if word.endswith(ending):
            stem = word[: len(word) - len(ending)]
            if len(stem) >= 3 and _VOWEL.search(stem):
                word = stem + instead
            break
    if len(word) > 3 and word[-1] == word[-2] and word[-1] not in "lsz":
        word = word[:-1]
    return word[:-1] if len(word) > 4 and word[-1] == "e" else word


def split_word(word: str) -> tuple[str, ...]:
    """Return the terms of one run of letters and digits: its parts by capitals and digits, stemmed; no stop words."""
    terms = []
    for part in _PART.findall(word[:_LONGEST_WORD]):
        lower = part.lower()
        if _UNSPACED.search(lower):
            terms += [lower[place : place + 2] for place in range(max(1, len(lower) - 1))]
        elif lower not in _STOP_WORDS:
            terms.append(stem_word(lower))
    return tuple(terms)


class Vocabulary:
    """Terms by number. Words that were split before are remembered: reading a catalogue is three times faster so."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}
        self._words: dict[str, tuple[int, ...]] = {}

    def add_text(self, text: str) -> list[int]:
        """Return the numbers of a text's terms in order; new terms get the next numbers."""
        found: list[int] = []
        for word in _WORD.findall(text):
            terms = self._words.get(word)
            if terms is None:
                numbers = self.numbers
                terms = tuple(numbers.setdefault(term, len(numbers)) for term in split_word(word))
                self._words[word] = terms
            found += terms
        return found

    def find_text(self, text: str) -> list[int]:
        """Return the numbers of the known terms of a text, in order; nothing is added."""
        found: list[int] = []
        for word in _WORD.findall(text):
            terms = self._words.get(word)
            if terms is None:
                found += [self.numbers[term] for term in split_word(word) if term in self.numbers]
            else:
                found += terms
        return found


def split_clauses(query: str) -> Sequence[str]:
    """Return the clauses of a query in order, at most MAX_CLAUSES; very short ones stay with the one before."""
    clauses: list[str] = []
    for piece in _CLAUSE.split(query[:MAX_QUERY_CHARACTERS]):
        if clauses and len(piece.split()) < _MIN_CLAUSE_WORDS:
            clauses[-1] += f" {piece}"
        elif piece.strip():
            clauses.append(piece)
    if len(clauses) > MAX_CLAUSES:
        clauses[MAX_CLAUSES - 1 :] = [" ".join(clauses[MAX_CLAUSES - 1 :])]
    return clauses


Floats: TypeAlias = NDArray[np.float32]
Ints: TypeAlias = NDArray[np.int64]

_SATURATION = 1.2  # k1
_LENGTH_WEIGHT = 0.6  # b
# Of a field; more of a long description says little and costs memory.
MAX_FIELD_CHARACTERS = 4_000
_MAX_CANDIDATES = 100
_MAX_CANDIDATES_PER_CLAUSE = 25
_MAX_QUERY_TERMS = 96
_MAX_NEAREST = 25
_KEPT = ("groups", "lengths", "mass", "_weights", "_rarity", "_starts", "_documents", "_scores", "_parts")
# Of the best score, tried in this order to find enough candidates.
_SHARES = (0.5, 0.3, 0.15, 0.0)


@dataclass(frozen=True, slots=True)
class IndexedText:
    """A document: what it belongs to, and its text by field, in the order of the index's weights."""

    group: str
    fields: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Candidates:
    """What a search found, best first: C candidates for a query of T terms in L clauses, by F fields.

    `positions` [C] are places in the index and `scores` [C] theirs for the whole query; `matches` [F, C, T] are
    saturated term frequencies; `rarity` [T] is inverse document frequency; `clause` [T] is where each term
    stands first; `clause_scores` [C, L] are the scores for each clause alone.
    """

    positions: Ints
    scores: Floats
    matches: Floats
    rarity: Floats
    clause: Ints
    clause_scores: Floats
    nearness: Floats

    @property
    def fused(self) -> Floats:
        """[C]: half by words, relative to the best document, and half by meaning."""
        best = np.float32(max(float(self.scores.max(initial=0.0)), 1e-6))
        fused: Floats = (self.scores / best + self.nearness) / np.float32(2)
        return fused


class TextIndex:
    """An index in memory. A change of the documents is a new index.

    `groups` [N] number the documents' groups; `lengths` [N, F] count terms; `mass` [N, F] is the sum of the rarity of
    each field's own terms, so that a ranker can tell how much of a name a query says.
    """

    def __init__(self, documents: Sequence[IndexedText], weights: Sequence[float]) -> None:
        self._vocabulary = Vocabulary()
        self._weights: Floats = np.array(weights, np.float32)
        self._size = len(documents)
        groups: dict[str, int] = {}
        self.groups: Ints = np.array([groups.setdefault(each.group, len(groups)) for each in documents], np.int64)
        numbers: list[int] = []
        lengths: Ints = np.zeros((len(weights), self._size), np.int64)
        for field in range(len(weights)):
            for position, document in enumerate(documents):
                found = self._vocabulary.add_text(document.fields[field][:MAX_FIELD_CHARACTERS])
                numbers += found
                lengths[field, position] = len(found)
        self.lengths: Floats = lengths.T.astype(np.float32)
        self._add_postings(np.array(numbers, np.int64), lengths)

    def __len__(self) -> int:
        return self._size

    def arrays(self) -> Mapping[str, NDArray[np.generic]]:
        """Return all that the index holds, so that a file can keep it."""
        terms = np.frombuffer("\n".join(self._vocabulary.numbers).encode(), np.uint8)
        return {"terms": terms, **{name: getattr(self, name) for name in _KEPT}}

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> "TextIndex":
        """Return the index that `arrays` came from."""
        index = cls.__new__(cls)
        terms = arrays["terms"].tobytes().decode()
        index._vocabulary = Vocabulary()
        index._vocabulary.numbers = {term: number for number, term in enumerate(terms.split("\n") if terms else ())}
        for name in _KEPT:
            setattr(index, name, arrays[name])
        index._size = len(index.groups)
        return index

    def _add_postings(self, numbers: Ints, lengths: Ints) -> None:
        """Sort the terms of all texts: for each term the documents that have it, and how often in which field."""
        fields, size = lengths.shape
        rows = np.repeat(np.tile(np.arange(size), fields), lengths.ravel())
        columns = np.repeat(np.repeat(np.arange(fields), size), lengths.ravel())
        keys, counts = np.unique((numbers * size + rows) * fields + columns, return_counts=True)
        pairs, entries = np.unique(keys // fields, return_inverse=True)
        documents, terms = pairs % max(1, size), pairs // max(1, size)
        lengths_of_mean = lengths / np.maximum(lengths.sum(axis=1) / max(1, size), 1e-9)[:, None]
        penalty = 1 - _LENGTH_WEIGHT + _LENGTH_WEIGHT * lengths_of_mean
        columns = keys % fields
        parts = np.zeros((len(pairs), fields), np.float32)
        parts[entries, columns] = counts / penalty[columns, documents[entries]]
        frequency = np.bincount(terms, minlength=len(self._vocabulary.numbers))
        rarity = np.log1p((size - frequency + 0.5) / (frequency + 0.5)).astype(np.float32)
        weighted = parts @ self._weights
        self._rarity: Floats = rarity
        self._starts: Ints = np.concatenate([[0], np.cumsum(frequency)]).astype(np.int64)
        self._documents: NDArray[np.int32] = documents.astype(np.int32)
        self._scores: Floats = weighted / (weighted + _SATURATION) * rarity[terms]
        self._parts: Floats = parts / (parts + _SATURATION)
        own = [np.bincount(documents, (parts[:, field] > 0) * rarity[terms], size) for field in range(fields)]
        self.mass: Floats = np.stack(own, axis=1).astype(np.float32)

    def search(self, query: str, limit: int = _MAX_CANDIDATES, nearness: Floats | None = None) -> Candidates:
        """Return the best `limit` documents of the whole query, and the best of each clause, without scores of 0.

        `nearness` [N] says how near in meaning each document is, the nearest at 1; the best of it are candidates too.
        """
        near = np.zeros(self._size, np.float32) if nearness is None else nearness
        terms, clause = self._read_query(query)
        starts, sizes = self._starts[terms], self._starts[terms + 1] - self._starts[terms]
        spans = [slice(start, start + size) for start, size in zip(starts, sizes, strict=True)]
        documents = np.concatenate([self._documents[:0], *(self._documents[span] for span in spans)])
        weights = np.concatenate([self._scores[:0], *(self._scores[span] for span in spans)])
        clauses = int(clause.max()) + 1 if len(clause) else 1
        slots = np.repeat(clause * self._size, sizes) + documents
        by_clause = np.bincount(slots, weights, clauses * self._size).reshape(clauses, self._size)
        whole = by_clause.sum(axis=0)
        several = by_clause if clauses > 1 else by_clause[:0]
        best = [_best_positions(row, _MAX_CANDIDATES_PER_CLAUSE) for row in several]
        best += [_best_positions(near, _MAX_NEAREST)]
        positions = np.unique(np.concatenate([_best_positions(whole, limit), *best]))
        positions = positions[np.lexsort((positions, -whole[positions]))]
        row_of = np.full(self._size, -1, np.int32)
        row_of[positions] = np.arange(len(positions))
        rows = row_of[documents]
        kept = np.flatnonzero(rows >= 0)
        owners = np.repeat(np.arange(len(terms)), sizes)[kept]
        # Where the span of a term begins in the postings, less where it begins in what was read.
        entries = kept + (starts - np.cumsum(sizes) + sizes)[owners]
        matches = np.zeros((len(self._weights), len(positions), len(terms)), np.float32)
        matches[:, rows[kept], owners] = self._parts[entries].T
        clause_scores = by_clause[:, positions].T.astype(np.float32)
        scores = whole[positions].astype(np.float32)
        return Candidates(positions, scores, matches, self._rarity[terms], clause, clause_scores, near[positions])

    def _read_query(self, query: str) -> tuple[Ints, Ints]:
        """Return the known terms of a query, each once, and the clause in which each stands first."""
        known: dict[int, int] = {}
        for place, clause in enumerate(split_clauses(query)):
            for number in self._vocabulary.find_text(clause):
                known.setdefault(number, place)
        rarest = sorted(known, key=lambda number: (-self._rarity[number], number))[:_MAX_QUERY_TERMS]
        terms = sorted(rarest)
        return np.array(terms, np.int64), np.array([known[number] for number in terms], np.int64)


def _best_positions(scores: NDArray[np.float64] | Floats, limit: int) -> Ints:
    """Return the positions of the best scores above 0, in any order; where the last ones tie, whichever are first."""
    highest = scores.max(initial=0.0)
    above: Ints = np.zeros(0, np.int64)
    # Most scores are low: those near the best are sorted, and the others only where these are too few.
    for share in _SHARES if highest > 0 else ():
        above = np.flatnonzero(scores > share * highest)
        if len(above) >= limit:
            break
    if len(above) <= limit:
        return above
    return above[np.argsort(-scores[above], kind="stable")[:limit]]
