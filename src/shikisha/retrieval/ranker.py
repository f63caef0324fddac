"""A learned order of candidates: features of query and document, and boosted trees as plain arrays.

Invariants: a feature says how a query meets a document and never which document it is, so that a ranker serves tools
that it never saw; the same arrays give the same order on every machine; a ranker file is JSON, nothing in it is
executed, and one that does not fit is a ConfigError that says where. `tools.tool_judgments` fits the trees.
Deliberately absent: ids of documents, words of queries, and clicks of one person.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from shikisha.core.errors import ConfigError
from shikisha.core.fast_dataclass import asdict, dataclass
from shikisha.core.toml import first_invalid
from shikisha.retrieval.code_probe import check_probe, probe_code
from shikisha.retrieval.text_index import Candidates, Floats, IndexedText, Ints, TextIndex, split_clauses

FORMAT = 1
MAX_DEPTH = 6
_MAX_FILE_BYTES = 2**24
_MAX_TREES = 1_000
_FEATURES_BY_FIELD = 6
_OTHER_FEATURES = 30
_FIRST_TREES = 25
_KEPT = 40
_TOP_RANKS = 3
_NEAR_BEST = 0.8
_TINY = 1e-6


def num_features(fields: int) -> int:
    """Return how many features a candidate has in an index of so many fields."""
    return _OTHER_FEATURES + _FEATURES_BY_FIELD * fields


def candidate_features(index: TextIndex, found: Candidates) -> Floats:
    """Return [C, num_features]: how the query meets each candidate.

    In order: the whole query; its meaning; each field; the best clause; the candidate's group; the query.
    """
    count = len(found.positions)
    if not count:
        return np.zeros((0, num_features(len(found.matches))), np.float32)
    # Score and covered rarity, of the query's and of the best candidate's; the place by score.
    total, scores = _total(found), found.scores
    covered = found.matches.max(axis=0).astype(bool) @ found.rarity / total
    place = np.log1p(np.arange(len(scores)))
    relative = scores / (scores.max() + _TINY)
    whole_features = [scores / total, relative, place, covered, covered / (covered.max() + _TINY)]
    meaning = [found.fused, found.nearness]
    meaning += [np.log1p(_places(each)).astype(np.float32) for each in meaning]
    columns = [
        *(whole_features),
        *meaning,
        *_field_features(index, found),
        *_clause_features(index, found),
        *_group_features(index, found),
    ]
    terms, clauses = len(found.rarity), found.clause_scores.shape[1]
    query = (np.log1p(terms), clauses, found.scores[0] / _total(found))
    columns += [np.full(count, value) for value in query]
    return np.stack(columns, axis=1).astype(np.float32)


def _total(found: Candidates) -> float:
    return float(found.rarity.sum()) or 1.0


def _field_features(index: TextIndex, found: Candidates) -> list[Floats]:
    """For each field: what of the query is in it, what of it is in the query, its rarest match, its length."""
    total, rarity = _total(found), found.rarity
    weighted = (found.matches > 0) * rarity
    named = weighted.sum(axis=2)
    own = named / (index.mass[found.positions].T + _TINY)
    strength = found.matches @ rarity / total
    rarest = weighted.max(axis=2, initial=0.0) / rarity.max(initial=_TINY)
    lengths = np.log1p(index.lengths[found.positions].T)
    relative = own / (own.max(axis=1, keepdims=True) + _TINY)
    return [row for part in (named / total, own, strength, rarest, lengths, relative) for row in part]


def _clause_features(index: TextIndex, found: Candidates) -> list[Floats]:
    """The clause in which the candidate does best: its place, its score, what of it is covered and named."""
    scores, rows = found.clause_scores, np.arange(len(found.scores))
    member = (found.clause[:, None] == np.arange(scores.shape[1])) * found.rarity[:, None]
    mass = member.sum(axis=0) + _TINY
    places = _places(scores)
    relative = scores / (scores.max(axis=0) + _TINY)
    # Candidates without a match in a clause come after all others.
    best = np.argmin(places + (scores <= 0) * len(rows) - relative / 2, axis=1)
    name = (found.matches[0] > 0) @ member / (index.mass[found.positions, :1] + _TINY)
    covered = (found.matches.max(axis=0) > 0) @ member / mass
    return [
        np.log1p(places.min(axis=1)),
        relative.max(axis=1),
        scores[rows, best] / mass[best],
        mass[best] / mass.sum(),
        (places < _TOP_RANKS).sum(axis=1),
        (places < 1).sum(axis=1),
        name.max(axis=1),
        name[rows, best],
        covered[rows, best],
        covered.max(axis=1),
        relative.mean(axis=1),
    ]


def _group_features(index: TextIndex, found: Candidates) -> list[Floats]:
    """The candidate's group: its best and summed scores, its place, and the candidate's place within it."""
    scores, clause_scores = found.scores, found.clause_scores
    groups, member = np.unique(index.groups[found.positions], return_inverse=True)
    best = np.zeros(len(groups), np.float32)
    np.maximum.at(best, member, scores)
    sums, sizes = np.bincount(member, scores), np.bincount(member)
    by_clause = np.zeros((len(groups), clause_scores.shape[1]), np.float32)
    np.maximum.at(by_clause, member, clause_scores)
    near = (by_clause > _NEAR_BEST * (clause_scores.max(axis=0) + _TINY)).mean(axis=1)
    order = np.lexsort((-scores, member))
    firsts = np.searchsorted(member[order], np.arange(len(groups)))
    within = np.empty(len(scores), np.int64)
    within[order] = np.arange(len(scores)) - firsts[member[order]]
    return [
        best[member] / (scores.max() + _TINY),
        np.log1p(_places(best)[member]),
        np.log1p(within),
        np.log1p(sizes[member]),
        sums[member] / (sums.sum() + _TINY),
        near[member],
        scores / (best[member] + _TINY),
    ]


def _places(scores: Floats) -> Ints:
    """Return each row's place by score, per column: 0 is the best; equal ones keep their order."""
    order = np.argsort(-scores, axis=0, kind="stable")
    places = np.empty(order.shape, np.int64)
    steps = np.arange(len(scores)).reshape(-1, *[1] * (scores.ndim - 1))
    np.put_along_axis(places, order, np.broadcast_to(steps, order.shape), axis=0)
    return places


@dataclass(frozen=True, slots=True)
class RankerOrigin:
    """What a ranker was fitted on, in words, with counts of queries and of right documents."""

    source: str = ""
    queries: int = 0
    positives: int = 0


class Ranker:
    """Boosted trees over the features: K trees of M nodes each.

    `feature`, `left`, `right` [K, M] are whole numbers and `threshold`, `value` [K, M] reals; a leaf leads to itself.
    A value above the threshold goes right. The score is the sum of the leaves, in log odds.
    """

    def __init__(self, arrays: Mapping[str, Ints | Floats], fields: int, origin: RankerOrigin) -> None:
        self.arrays, self.fields, self.origin = dict(arrays), fields, origin
        trees, nodes = arrays["feature"].shape
        base = np.arange(trees, dtype=np.int64)[:, None] * nodes
        # One row of nodes for all trees, so that a level of all of them is one step.
        self._roots = base.ravel()
        self._feature = arrays["feature"].astype(np.int64).ravel()
        self._threshold = arrays["threshold"].astype(np.float32).ravel()
        self._value = arrays["value"].astype(np.float32).ravel()
        sides = [(arrays[side] + base).ravel() for side in ("left", "right")]
        self._next = np.stack(sides, axis=1).astype(np.int64).ravel()

    def log_odds(self, features: Floats) -> Floats:
        """Return [C]: how much the trees speak for each candidate."""
        scores = self._sum_leaves(features, self._roots[:_FIRST_TREES])
        if len(self._roots) > _FIRST_TREES:
            # What the first trees find hopeless stays behind all that the others look at.
            order = np.argsort(-scores, kind="stable")
            kept, left = order[:_KEPT], order[_KEPT:]
            scores[kept] += self._sum_leaves(features[kept], self._roots[_FIRST_TREES:])
            if len(left):
                scores[left] += min(0, float(scores[kept].min() - scores[left].max()))
        return scores

    def _sum_leaves(self, features: Floats, roots: Ints) -> Floats:
        count, width = features.shape
        flat = np.ascontiguousarray(features).ravel()
        rows = (np.arange(count) * width)[:, None]
        node = np.broadcast_to(roots, (count, len(roots)))
        for _ in range(MAX_DEPTH):
            above = flat.take(rows + self._feature.take(node)) > self._threshold.take(node)
            node = self._next.take(2 * node + above)
        return np.asarray(self._value.take(node).sum(axis=1), np.float32)

    @property
    def version(self) -> str:
        """The SHA-256 of the file's text."""
        return sha256(self.dump().encode()).hexdigest()

    def behavior(self) -> Iterator[Floats]:
        """Yield what it makes of a fixed index and query, which its file keeps (`code_probe`)."""
        texts = ("send a letter", "archive the shipment of a letter", "list harbours; send one", "unit of a price")
        fields = self.fields - 1
        documents = [IndexedText(f"g{at % 2}", (texts[at - 1], *[text] * fields)) for at, text in enumerate(texts)]
        index = TextIndex(documents, [1.0 + field for field in range(self.fields)])
        nearness = np.linspace(1, 0, len(texts), dtype=np.float32)
        found = index.search("Archive the letter. Then send the price of it.", nearness=nearness)
        features = candidate_features(index, found)
        yield from (features, self.log_odds(features))

    def dump(self) -> str:
        """Return the ranker as the text of its file."""
        probe = probe_code(self.behavior())
        arrays = {name: [[_short(value) for value in row] for row in rows] for name, rows in self.arrays.items()}
        document = {"format": FORMAT, "fields": self.fields, "origin": asdict(self.origin), "probe": probe, **arrays}
        return json.dumps(document, separators=(",", ":")) + "\n"


def _short(value: np.generic) -> int | float:
    """Return a number as JSON needs it; single precision takes nine digits at most."""
    return int(value) if isinstance(value, np.integer) else float(f"{float(value):.9g}")


_Numbers = Annotated[list[list[int]], Field(min_length=1, max_length=_MAX_TREES)]
_Reals = Annotated[list[list[float]], Field(min_length=1, max_length=_MAX_TREES)]


class _RankerFile(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

    format: Literal[1]
    fields: Annotated[int, Field(ge=1, le=16)]
    origin: dict[str, str | int]
    probe: str | None = None
    feature: _Numbers
    left: _Numbers
    right: _Numbers
    threshold: _Reals
    value: _Reals


def load_ranker(path: Path) -> Ranker:
    """Read a ranker file; ConfigError says what does not fit."""
    try:
        size = path.stat().st_size
        if size > _MAX_FILE_BYTES:
            raise ConfigError(f"{path}: {size:,} bytes; a ranker has at most {_MAX_FILE_BYTES:,}")
        return parse_ranker(path.read_bytes(), str(path))
    except OSError as error:
        raise ConfigError(f"{path}: expected a ranker file: {error.strerror}") from None


def parse_ranker(text: bytes, where: str, *, bound: bool = True) -> Ranker:
    """Return the ranker in a file's bytes; ConfigError says what does not fit, `bound`: with this code as well."""
    try:
        read = _RankerFile.model_validate_json(text)
        origin = RankerOrigin(**read.origin)  # type: ignore[arg-type]  # a wrong type shows in no decision
    except ValidationError as error:
        raise ConfigError(f"{where}: not a ranker: {first_invalid(error, 'the file')}") from None
    except TypeError as error:
        raise ConfigError(f"{where}: not a ranker: origin: {error}") from None
    shape = (len(read.feature), len(read.feature[0]))
    arrays: dict[str, Ints | Floats] = {}
    for name in ("feature", "left", "right", "threshold", "value"):
        rows: Sequence[Sequence[float]] = getattr(read, name)
        if len(rows) != shape[0] or any(len(row) != shape[1] for row in rows) or not shape[1]:
            raise ConfigError(f"{where}: not a ranker: {name}: expected {shape[0]} trees of {shape[1]} nodes")
        whole = name not in ("threshold", "value")
        arrays[name] = np.array(rows, np.int64) if whole else np.array(rows, np.float32)
    for name, most in (("feature", num_features(read.fields)), ("left", shape[1]), ("right", shape[1])):
        if arrays[name].min() < 0 or arrays[name].max() >= most:
            raise ConfigError(f"{where}: not a ranker: {name}: expected numbers from 0 to {most - 1}")
    ranker = Ranker(arrays, read.fields, origin)
    try:
        if bound:
            check_probe(read.probe, ranker.behavior())
    except ValueError as error:
        raise ConfigError(f"{where}: not a ranker: probe: {error}") from None
    return ranker


class DocumentSearch:
    """Documents by words, and by meaning: `vectors` [N, width] are theirs, and `encode` makes a query's."""

    def __init__(self, index: TextIndex, encode: Callable[[Sequence[str]], Floats], vectors: Floats) -> None:
        self.index, self._encode, self.vectors = index, encode, vectors

    def find(self, query: str) -> tuple[Candidates, float]:
        """Return candidates, near by words or to one of the query's clauses by meaning, and the highest cosine."""
        cosines = np.maximum(self.vectors @ self._encode(split_clauses(query) or [query]).T, 0)
        highest = cosines.max(axis=0, initial=_TINY)
        nearness = (cosines / highest).max(axis=1)
        return self.index.search(query, nearness=nearness), float(highest.max())

    def rank(self, ranker: Ranker | None, query: str, top: int) -> list[tuple[int, float]]:
        """Return the best documents with their scores, best first.

        A ranker's scores are log odds. Without one, half of a score is by words and half by meaning, each relative to
        the best document; times the highest cosine, so that scores of several searches can be compared.
        """
        found, highest = self.find(query)
        scores = found.fused * highest if ranker is None else ranker.log_odds(candidate_features(self.index, found))
        order = np.lexsort((np.arange(len(scores)), -scores))[:top]
        return [(int(found.positions[place]), float(scores[place])) for place in order]
