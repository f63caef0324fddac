"""The outcome matrix: an outcome log as arrays of tasks by workers, and transformations of it.

T tasks, J workers. Invariants: a row holds what the engine would see if it asked, in the same text and canonical form;
what was not recorded is NaN (score, dollars, tokens), never zero; asking for a missing outcome costs nothing and gives
no answer.

Turns say which ask of its task an outcome was. Only first asks are independent of the answers, so only they, weighted
by the inverse of their probabilities (Horvitz and Thompson 1952), say what a worker is worth alone. The order of asks
is never guessed.
"""

from collections import Counter
from collections.abc import Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from shikisha.core.budget import Price
from shikisha.core.errors import ConfigError
from shikisha.core.fast_dataclass import dataclass, replace
from shikisha.evals.graders.canonical_form import AnswerForm
from shikisha.outcomes.log_reader import Outcome, OutcomeLog
from shikisha.plots.format import plural
from shikisha.routing.answer_evidence import (
    NEVER_MENTIONED,
    NUM_LOOKS,
    AnswerEvidence,
    TaskEvidence,
    read_candidates,
    stack_evidence,
)
from shikisha.routing.arrays import Flags, Floats, Ints
from shikisha.routing.state import (
    NO_ANSWER,
    NOT_ASKED,
    OPEN_FORM,
    UNKNOWN_TYPE,
    DecisionState,
    TaskBatch,
    TaskTypes,
    encode_answers,
)

_N = TypeVar("_N", np.float64, np.int64, np.bool_)
# The turn of an outcome is unknown.
UNKNOWN_TURN = -1
_FORMS = {"choice": AnswerForm.CHOICE, "number": AnswerForm.NUMBER, "text": AnswerForm.TEXT, "math": AnswerForm.MATH}
# A worker that lacks a smaller share of a type's tasks lacks them by accident.
MISSING_SHARE = 0.2
# A worker with a smaller share of the outcomes that others have joined late.
LATE_SHARE = 0.5
# Right answers of a type that are looked at, and the share of them that its form may not read.
_MAX_READ, _UNREAD_SHARE = 500, 0.02


@dataclass(frozen=True)
class OutcomeMatrix:
    """A log as arrays: [T, J] unless said otherwise.

    `codes` say which answers agree, NO_ANSWER for none; `scores` in [0, 1], NaN unknown; `dollars`, NaN unknown;
    `tokens` of output; `lengths` of answers in characters; `there`: whether the outcome is recorded; `propensities` of
    being recorded (NaN: unknown; 1 where every worker was asked). `hashes` [T] are of the content. `turns` number the
    asks of a task from 0, -1 if unknown; None: no outcome has one. Where grades are missing (`partial_logs`),
    `scores` hold draws for those, and `graded` says which were graded. `evidence` is about the candidate answers.
    `priced` is how many outcomes without a cost or price have that of their tokens at their worker's other calls' rate.
    """

    ids: tuple[str, ...]
    hashes: tuple[str, ...]
    workers: tuple[str, ...]
    types: TaskTypes
    batch: TaskBatch
    codes: Ints
    lengths: Ints
    tokens: Floats
    scores: Floats
    dollars: Floats
    seconds: Floats
    there: Flags
    propensities: Floats
    answers: bool = True
    turns: Ints | None = None
    graded: Flags | None = None
    evidence: AnswerEvidence | None = None
    priced: int = 0

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def won(self) -> Floats:
        """[T, J]: the score of shipping this worker's answer, 0 where there is none."""
        return np.nan_to_num(self.scores)

    @property
    def paid(self) -> Floats:
        """[T, J]: dollars, 0 where nothing was recorded."""
        return np.nan_to_num(self.dollars)

    def at(self, rows: Ints | Flags) -> "OutcomeMatrix":
        """Return these tasks."""
        places: Ints = np.arange(len(self))[rows]
        chosen = replace(
            self,
            ids=tuple(self.ids[index] for index in places),
            hashes=tuple(self.hashes[index] for index in places),
            batch=self.batch.at(places),
            evidence=self.evidence and self.evidence.at(places),
        )
        return chosen._select_cells((places, slice(None)))

    def select_workers(self, workers: Sequence[str]) -> "OutcomeMatrix":
        """Return the matrix of these workers."""
        columns = [self.workers.index(worker) for worker in workers]
        places = np.array(columns, np.int64)
        evidence = self.evidence and self.evidence.select_workers(places)
        return replace(self, workers=tuple(workers), evidence=evidence)._select_cells((slice(None), places))

    def without_outcomes(self, cells: Flags) -> "OutcomeMatrix":
        """Return the matrix without these outcomes [T, J]."""
        return replace(
            self,
            codes=np.where(cells, NO_ANSWER, self.codes),
            lengths=np.where(cells, 0, self.lengths),
            there=self.there & ~cells,
            tokens=np.where(cells, np.nan, self.tokens),
            scores=np.where(cells, np.nan, self.scores),
            dollars=np.where(cells, np.nan, self.dollars),
            seconds=np.where(cells, np.nan, self.seconds),
            propensities=np.where(cells, np.nan, self.propensities),
            turns=None if self.turns is None else np.where(cells, UNKNOWN_TURN, self.turns),
            evidence=self.evidence and self.evidence.without_texts(cells),
        )

    def _select_cells(self, cells: tuple[Ints | slice, Ints | slice]) -> "OutcomeMatrix":
        """Return the matrix with these cells of each of its [T, J] arrays.

        All keep one memory layout: sums over tasks, such as the unit of cost, then agree to the bit.
        """

        def chosen(array: NDArray[_N]) -> NDArray[_N]:
            return np.ascontiguousarray(array[cells])

        return replace(
            self,
            codes=chosen(self.codes),
            lengths=chosen(self.lengths),
            tokens=chosen(self.tokens),
            scores=chosen(self.scores),
            dollars=chosen(self.dollars),
            seconds=chosen(self.seconds),
            there=chosen(self.there),
            propensities=chosen(self.propensities),
            turns=None if self.turns is None else chosen(self.turns),
            graded=None if self.graded is None else chosen(self.graded),
        )

    @property
    def graded_share(self) -> float:
        """The share of recorded outcomes that were graded; 1 where nothing had to be completed."""
        return 1.0 if self.graded is None else float(self.graded.sum() / max(1, self.there.sum()))

    def state_after(self, asked: Flags, may_ask: Flags | None = None) -> DecisionState:
        """Return the state after these workers [T, J] were asked."""
        there = np.ones(len(self.workers), bool) if may_ask is None else may_ask
        codes = np.where(asked, self.codes, NOT_ASKED)
        return DecisionState(self.batch, codes, self.lengths, self.tokens, there, evidence=self.evidence)

    def best_worker(self) -> int:
        """Return the worker with the highest mean score among those with at least half as many outcomes as others."""
        recorded = self.there.sum(axis=0)
        return int(np.where(2 * recorded >= recorded.max(initial=0), self.mean_scores(), -1.0).argmax())

    def mean_scores(self) -> Floats:
        """Return [J]: each worker's mean recorded score; 0 where there is none."""
        known = ~np.isnan(self.scores)
        means: Floats = self.won.sum(axis=0) / np.maximum(1, known.sum(axis=0))
        return means

    def cost_unit(self) -> float:
        """Return the unit of cost: mean dollars of the best single worker, or of the most expensive if that is free.

        1.0 where nothing costs anything.
        """
        means = self.paid.sum(axis=0) / np.maximum(1, self.there.sum(axis=0))
        return float(means[self.best_worker()]) or float(means.max(initial=0.0)) or 1.0


def build_outcome_matrix(
    log: OutcomeLog,
    workers: Sequence[str] = (),
    types: TaskTypes | None = None,
    *,
    whole: bool = False,
    most_read: int | None = None,
) -> OutcomeMatrix:
    """Return the matrix of a log, or of these workers of it; `types` are a policy's, else the log's own.

    Of outcomes in several wordings, those in the most frequent one are taken: answers to other words are another
    worker's. `whole`: compare complete responses with the answer marked in them, where the log has those, not the
    answer alone. Evidence about candidate answers is read of at most `most_read` tasks, drawn by content.
    """
    names = tuple(workers) or log.workers
    wording = next(iter(log.wordings(names)), "")
    tasks = [log.task(task_id) for task_id in log.task_ids]
    if not tasks:
        raise ConfigError(f"{log.folder}: there are no tasks to learn from")
    task_types = types or _readable_types(log, names)
    prompts = tuple(task.prompt for task in tasks)
    places = task_types.of([task.domain for task in tasks], prompts)
    shape = (len(tasks), len(names))
    table = {name: np.full(shape, np.nan) for name in ("tokens", "scores", "dollars", "seconds", "propensities")}
    codes, lengths, there = np.full(shape, NO_ANSWER, np.int64), np.zeros(shape, np.int64), np.zeros(shape, bool)
    any_answer, turns = False, np.full(shape, UNKNOWN_TURN, np.int64)
    responses = [log.responses(name) if whole else {} for name in names]
    prices, priced = dict[str, Price | None](log.prices), 0
    hashes = [task.content_hash for task in tasks]
    read = set(np.argsort(np.array(hashes), kind="stable")[:most_read].tolist())
    evidence: list[TaskEvidence] = []
    for row, task in enumerate(tasks):
        found = [log.find(task.id, name) for name in names]
        outcomes = [each if each is None or each.wording == wording else None for each in found]
        texts_said = [
            None if outcome is None else log.response_text(outcome, kept.get(task.id))
            for outcome, kept in zip(outcomes, responses, strict=True)
        ]
        answers = [task_types.canonical(text, int(places[row])) for text in texts_said]
        codes[row] = encode_answers(answers, NO_ANSWER)
        evidence.append(read_candidates(task.prompt, answers, texts_said) if row in read else _unread(answers))
        for column, (outcome, text) in enumerate(zip(outcomes, texts_said, strict=True)):
            if outcome is None:
                continue
            there[row, column], lengths[row, column] = True, len(text or "")
            any_answer = any_answer or outcome.answer is not None
            stated = outcome.dollars is not None or outcome.worker in log.prices
            if not stated and outcome.worker not in prices:  # only then: it reads all of the worker's outcomes
                prices[outcome.worker] = _own_price(log, outcome.worker)
            _fill_outcome(table, (row, column), outcome, prices.get(outcome.worker))
            priced += not stated and not np.isnan(table["dollars"][row, column])
            turns[row, column] = UNKNOWN_TURN if outcome.turn is None else outcome.turn
            if text is None:
                table["tokens"][row, column] = np.nan  # a run does not show the tokens of a failed call
    return OutcomeMatrix(
        tuple(task.id for task in tasks),
        tuple(hashes),
        names,
        task_types,
        TaskBatch(prompts, places),
        codes,
        lengths,
        there=there,
        answers=any_answer,
        turns=turns if (turns != UNKNOWN_TURN).any() else None,
        evidence=stack_evidence(evidence) if any_answer else None,
        priced=priced,
        **table,
    )


def _unread(answers: Sequence[str | None]) -> TaskEvidence:
    """Return the evidence of a task whose answers nobody reads."""
    candidates = len({answer for answer in answers if answer is not None})
    looks = [[0.0] * NUM_LOOKS] * candidates
    return TaskEvidence(looks, [[(0.0, NEVER_MENTIONED, 0.0)] * candidates] * len(answers), [0.0] * len(answers))


def _readable_types(log: OutcomeLog, workers: Sequence[str]) -> TaskTypes:
    """Return the types of a log's own domains, in forms in which its right answers can be read.

    Where tasks of a type have answers of several kinds, the form of most would take right answers of the others for
    none; there, answers are compared as text.
    """
    tasks = [log.task(task_id) for task_id in log.task_ids]
    types = infer_task_types([task.domain for task in tasks], [log.gold(task.id).kind for task in tasks])
    right: dict[int, list[str]] = {}
    for task, kind in zip(tasks, types.of([task.domain for task in tasks], ()).tolist(), strict=True):
        told = right.setdefault(kind, [])
        if len(told) < _MAX_READ:
            found = (log.find(task.id, name) for name in workers)
            texts = (log.answer_text(one) for one in found if one is not None and (one.score or 0.0) > 0.5)
            told += [text for text in texts if text is not None]
    mixed = {
        kind
        for kind, texts in right.items()
        if sum(types.canonical(text, kind) is None for text in texts) > _UNREAD_SHARE * len(texts)
    }
    forms = tuple(str(AnswerForm.TEXT) if kind in mixed else form for kind, form in enumerate(types.forms))
    return replace(types, forms=forms, form=str(AnswerForm.TEXT) if UNKNOWN_TYPE in mixed else types.form)


def infer_task_types(domains: Sequence[str], kinds: Sequence[str | None]) -> TaskTypes:
    """Return the types of a log's own domains, each with the form of most of its tasks."""
    names = tuple(sorted({domain for domain in domains if domain}))
    counts: dict[str, Counter[str]] = {name: Counter() for name in names}
    overall: Counter[str] = Counter()
    for domain, kind in zip(domains, kinds, strict=True):
        form = str(_FORMS[kind]) if kind in _FORMS else OPEN_FORM
        overall[form] += 1
        if domain:
            counts[domain][form] += 1
    forms = tuple(counts[name].most_common(1)[0][0] for name in names)
    return TaskTypes(names, forms, overall.most_common(1)[0][0])


def _own_price(log: OutcomeLog, worker: str) -> Price | None:
    """Return the dollars for a token that a worker's outcomes with both show; None where none has both.

    A call without a cost, because it was cut off or failed, keeps the tokens that it cost.
    """
    both = [
        (one.usage.input_tokens, one.usage.output_tokens, one.dollars)
        for one in log.outcomes_of(worker)
        if one.usage is not None and one.dollars is not None
    ]
    if not both:
        return None
    tokens, dollars = np.array(both, float)[:, :2], np.array(both, float)[:, 2]
    rates = np.linalg.lstsq(tokens, dollars, rcond=None)[0]
    if (rates < 0).any() or np.linalg.matrix_rank(tokens) < 2:  # one rate for both kinds
        rates = np.full(2, dollars.sum() / max(1.0, tokens.sum()))
    return Price(*(1e6 * rates).tolist())


def _fill_outcome(table: dict[str, Floats], cell: tuple[int, int], outcome: Outcome, price: Price | None) -> None:
    dollars = outcome.dollars
    if dollars is None and outcome.usage is not None and price is not None:
        dollars = price.of(outcome.usage)
    known = {
        "scores": outcome.score,
        "dollars": dollars,
        "tokens": outcome.usage.output_tokens if outcome.usage else None,
        "seconds": outcome.seconds,
        "propensities": outcome.propensity,
    }
    for name, value in known.items():
        if value is not None:
            table[name][cell] = value


def complete_costs(matrix: OutcomeMatrix) -> tuple[OutcomeMatrix, tuple[str, ...]]:
    """Return the matrix in which an outcome without a cost has its worker's mean cost, and notes on costs not stated.

    ConfigError for a worker of which no cost is known where others' are: what is unknown is not free.
    """
    unknown = matrix.there & np.isnan(matrix.dollars)
    known = matrix.there & ~unknown
    whole = f"of {int(matrix.there.sum()):,} outcomes have no cost:"
    rated = f"{matrix.priced:,} {whole} computed from tokens at the rates of the same worker's other calls"
    notes = (rated,) if matrix.priced else ()
    if not unknown.any() or not known.any():
        return matrix, notes
    dark = [matrix.workers[worker] for worker in np.flatnonzero(unknown.any(axis=0) & ~known.any(axis=0))]
    if dark:
        raise ConfigError(
            f"no cost of {', '.join(dark)} is known, while others' are: add `[workers.{dark[0]}]` with price_in and "
            "price_out (dollars per million tokens; 0 if it is free) to the log's workers.toml, or leave it out "
            "(--workers)"
        )
    means = matrix.paid.sum(axis=0) / np.maximum(1, known.sum(axis=0))
    note = f"{int(unknown.sum()):,} {whole} the same worker's mean is taken"
    return replace(matrix, dollars=np.where(unknown, means, matrix.dollars)), (*notes, note)


def scores_by_answer(matrix: OutcomeMatrix, known: Flags | None = None) -> Floats:
    """Return [T, K]: the mean score of those who gave a candidate answer; NaN where none of them has a `known` one."""
    count = max(1, int(matrix.codes.max(initial=0)) + 1)
    total, given = np.zeros((len(matrix), count)), np.zeros((len(matrix), count))
    rows, columns = np.nonzero((matrix.codes >= 0) & (~np.isnan(matrix.scores) if known is None else known))
    np.add.at(total, (rows, matrix.codes[rows, columns]), matrix.scores[rows, columns])
    np.add.at(given, (rows, matrix.codes[rows, columns]), 1.0)
    return np.divide(total, given, out=np.full_like(total, np.nan), where=given > 0)


def propagate_scores(matrix: OutcomeMatrix) -> OutcomeMatrix:
    """Return the matrix with scores copied to equal answers of the same task."""
    unscored = np.isnan(matrix.scores) & (matrix.codes > NO_ANSWER)
    if not (matrix.there & unscored).any():
        return matrix
    told = np.take_along_axis(scores_by_answer(matrix), np.maximum(0, matrix.codes), axis=1)
    return replace(matrix, scores=np.where(unscored, told, matrix.scores))


def missing_shares(matrix: OutcomeMatrix) -> Floats:
    """Return [D, J]: the share of each type's tasks without an outcome of a worker; 0 where there are no tasks."""
    unknown = _missing_outcomes(matrix)
    rows = [unknown[matrix.batch.types == kind] for kind in range(len(matrix.types.names))]
    return np.array([row.mean(axis=0) if len(row) else np.zeros(row.shape[1]) for row in rows]).reshape(
        len(rows), len(matrix.workers)
    )


def fill_missing_as_silent(matrix: OutcomeMatrix) -> OutcomeMatrix:
    """Return the matrix with a free score of 0 wherever a worker lacks MISSING_SHARE of a type.

    Replaying a policy on such tasks finds no answer, so fitting must expect the same: it must not send a type to a
    worker whose record there is a small and lucky part.
    """
    much = np.vstack([missing_shares(matrix) > MISSING_SHARE, np.zeros((1, len(matrix.workers)), bool)])
    cells = _missing_outcomes(matrix) & much[matrix.batch.types]
    if not cells.any():
        return matrix
    return replace(
        matrix,
        there=matrix.there | cells,
        scores=np.where(cells, 0.0, matrix.scores),
        dollars=np.where(cells, 0.0, matrix.dollars),
    )


def _missing_outcomes(matrix: OutcomeMatrix) -> Flags:
    missing: Flags = ~matrix.there & np.isnan(matrix.scores)
    return missing


def has_turns(matrix: OutcomeMatrix) -> bool:
    """Return whether the log numbers the asks of any task."""
    return matrix.turns is not None and bool((matrix.turns[matrix.there] >= 0).any())


def known_first_asks(matrix: OutcomeMatrix) -> Flags:
    """Return [T]: tasks whose first ask has a known probability.

    Tasks with later asks only count too: their first ask was of a worker that is left out here.
    """
    turns, known = _ask_turns(matrix), matrix.propensities > 0
    first, later = matrix.there & (turns == 0), matrix.there & (turns > 0)
    alone = (first.sum(axis=1) == 1) & (first & known).any(axis=1)
    valid: Flags = np.where(first.any(axis=1), alone, later.any(axis=1))
    return valid


def first_asks(matrix: OutcomeMatrix) -> OutcomeMatrix:
    """Return the matrix with the first ask of each task alone."""
    if not has_turns(matrix):
        return matrix
    return matrix.without_outcomes((_ask_turns(matrix) != 0) | ~known_first_asks(matrix)[:, None])


def _ask_turns(matrix: OutcomeMatrix) -> Ints:
    """Return [T, J]: the turns; a worker that was asked alone was asked first."""
    if matrix.turns is None:
        return np.full(matrix.there.shape, -1, np.int64)
    alone = (matrix.there.sum(axis=1) == 1)[:, None] & matrix.there & (matrix.turns < 0)
    return np.where(alone, 0, matrix.turns)


def add_latency_cost(matrix: OutcomeMatrix, second: float) -> tuple[OutcomeMatrix, tuple[str, ...]]:
    """Return the matrix with the cost of waiting added to its dollars, and notes about it.

    Outcomes without seconds count as instant; a log without any is refused.
    """
    if not second:
        return matrix, ()
    unknown = int((matrix.there & np.isnan(matrix.seconds)).sum())
    if unknown == matrix.there.sum():
        raise ConfigError("--second: the log has no latencies (column latency_s), so the cost of waiting is unknown")
    latency_dollars = second * np.nan_to_num(matrix.seconds)
    notes = [f"costs include ${second:g} per second of waiting"]
    if unknown:
        notes.append(f"{plural(unknown, 'outcome')} without a latency, which count as instant")
    return replace(matrix, dollars=np.where(matrix.there, matrix.paid + latency_dollars, matrix.dollars)), tuple(notes)


def late_workers(matrix: OutcomeMatrix) -> Flags:
    """Return [J]: the workers that joined late, where at least two others did not."""
    graded, asked = (matrix.there & ~np.isnan(matrix.scores)).sum(axis=0), matrix.there.sum(axis=0)
    late: Flags = (graded < LATE_SHARE * graded.max(initial=0)) & (asked < LATE_SHARE * asked.max(initial=0))
    return late if (~late).sum() > 1 else np.zeros_like(late)


def without_late_workers(matrix: OutcomeMatrix) -> tuple[OutcomeMatrix, tuple[str, ...]]:
    """Return the matrix without workers that have less than half as many graded outcomes as others, and notes.

    What they would have answered to the other tasks is unknown, and nothing stands in for it.
    """
    late, graded = late_workers(matrix), (matrix.there & ~np.isnan(matrix.scores)).sum(axis=0)
    if not late.any():
        return matrix, ()
    most = int(LATE_SHARE * graded.max())
    named = ", ".join(f"{matrix.workers[worker]} ({graded[worker]:,})" for worker in np.flatnonzero(late))
    note = f"left out for too few graded outcomes: {named}; with {most:,} of the same tasks a worker is learned, too"
    return matrix.select_workers([matrix.workers[worker] for worker in np.flatnonzero(~late)]), (note,)
