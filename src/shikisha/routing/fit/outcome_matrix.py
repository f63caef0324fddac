"""Panels: an outcome log as arrays, with what a learner may know and what only a grader knows told apart.

T tasks, J workers. Invariants: a task's row says what the engine would see if it asked: the same text, the same
canonical form; what was not recorded is NaN (score, dollars, tokens) and never a zero; asking for a missing row costs
nothing and gives no answer. Deliberately absent: reading files (`outcomes`), and features (`policy`).

Absent outcomes: workers of a full log that were not asked for a good part of some type of tasks.

What they would have said there is not known, and nothing is made up: they are taken to have no answer, which is what
playing a policy on those tasks finds. Invariant: a rule is fitted to what it will be measured by, so that it does not
send a type to a worker whose record there is a small and lucky part. Deliberately absent: workers of whom little is
known at all (`joining`), and logs in which few were asked (`coverage`).

Turns: which asks of a task were drawn in ignorance of its answers, and which only after some had been given.

A policy that decides step by step asks a second worker because of what the first one said. The first ask hangs on the
task alone: its outcomes, each over its probability, stand for all tasks (Horvitz and Thompson 1952), so they and no
others tell what a worker is worth alone. Over its own probability a later outcome stands for the tasks on which the
run came so far, and answers picked those; over the product of the probabilities up to it, it stands for all tasks, but
only as a part of that very sequence of asks (Precup, Sutton and Singh 2000), which is how policies that ask several are
judged (`offpolicy`). No weight turns it into an outcome of the worker alone: that takes the probability of being asked
after answers that were never given, and no journal has it. Besides, later outcomes are what models of success are
fitted on (`partial`), since these need not stand for all tasks: how the fitted policy is judged has to be unbiased.

Invariants: a sequence begins at turn 0, and counts as far as each turn has one ask with a probability; what a task has
beyond that (a stand-in, another run's answers) is outside of it. A panel without turns is returned as it is.
Deliberately absent: guessing the order of asks where nobody wrote it down.

What waiting costs: a second's worth in dollars, put on top of what was paid.

Invariants: a pair whose seconds nobody recorded waits for nothing, which is said; where nothing was recorded at all,
the wish is refused. Deliberately absent: workers that are asked at the same time (a policy asks one after another).
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from shikisha.core.errors import ConfigError
from shikisha.evals.graders.canonical_form import AnswerForm
from shikisha.evals.report_text import plural
from shikisha.outcomes.log_reader import Outcome, OutcomeLog
from shikisha.routing.arrays import Flags, Floats, Ints
from shikisha.routing.state import NO_ANSWER, NOT_ASKED, OPEN_FORM, DecisionState, TaskBatch, TaskTypes, encode_answers
from shikisha.routing.text_features import HashedWords, ResponseModel, hash_responses

UNKNOWN_TURN = -1  # which ask of its task a pair was
_FORMS = {"choice": AnswerForm.CHOICE, "number": AnswerForm.NUMBER, "text": AnswerForm.TEXT, "math": AnswerForm.MATH}


@dataclass(frozen=True)
class OutcomeMatrix:
    """A log as arrays: [T, J] unless said otherwise.

    `codes` say which answers agree, NOTHING for none; `scores` in [0, 1], NaN unknown; `dollars`, NaN unknown;
    `tokens` of output; `lengths` of answers in characters; `there`: whether the pair is recorded; `propensities` with
    which it came to be recorded (NaN: not known; 1 where every worker was asked). `hashes` [T] are of the content.
    `texts` are the words of what each worker wrote, where that is kept, and `tells` how sure it sounds (`hearing`).
    `turns` say which ask of its task a pair was, the first is 0, and -1 stands where nobody knows; None: of no pair.
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
    texts: tuple[HashedWords | None, ...] = ()
    tells: Floats | None = None
    turns: Ints | None = None

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def won(self) -> Floats:
        """[T, J]: what shipping this worker's answer brings, 0 where there is none."""
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
            ids=tuple(self.ids[place] for place in places),
            hashes=tuple(self.hashes[place] for place in places),
            batch=self.batch.at(places),
            texts=tuple(words and words.at(places) for words in self.texts),
        )
        return chosen._select_cells((places, slice(None)))

    def select_workers(self, workers: Sequence[str]) -> "OutcomeMatrix":
        """Return the panel of these workers."""
        columns = [self.workers.index(worker) for worker in workers]
        texts = tuple(self.texts[column] for column in columns) if self.texts else ()
        return replace(self, workers=tuple(workers), texts=texts)._select_cells(
            (slice(None), np.array(columns, np.int64))
        )

    def without_outcomes(self, cells: Flags) -> "OutcomeMatrix":
        """Return the panel as if these pairs [T, J] had never been recorded."""
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
        )

    def _select_cells(self, cells: tuple[Ints | slice, Ints | slice]) -> "OutcomeMatrix":
        """Return the panel with these cells of each of its [T, J] arrays."""
        return replace(
            self,
            codes=self.codes[cells],
            lengths=self.lengths[cells],
            tokens=self.tokens[cells],
            scores=self.scores[cells],
            dollars=self.dollars[cells],
            seconds=self.seconds[cells],
            there=self.there[cells],
            propensities=self.propensities[cells],
            tells=None if self.tells is None else self.tells[cells],
            turns=None if self.turns is None else self.turns[cells],
        )

    def state_after(self, asked: Flags, may_ask: Flags | None = None) -> DecisionState:
        """Return the state in which these pairs [T, J] have been asked."""
        there = np.ones(len(self.workers), bool) if may_ask is None else may_ask
        codes = np.where(asked, self.codes, NOT_ASKED)
        return DecisionState(self.batch, codes, self.lengths, self.tokens, there, self.tells)

    def with_response_model(self, hearing: ResponseModel | None) -> "OutcomeMatrix":
        """Return the panel as somebody with this hearing has it."""
        return replace(self, tells=None if hearing is None else hearing.log_odds(self.texts, self.batch.types))

    def best_worker(self) -> int:
        """Return the worker with the highest mean score; one that did not even half as much as others is not known."""
        recorded = self.there.sum(axis=0)
        return int(np.where(2 * recorded >= recorded.max(initial=0), self.mean_scores(), -1.0).argmax())

    def mean_scores(self) -> Floats:
        """[J]: each worker's mean score over what is recorded; 0 where nothing is."""
        known = ~np.isnan(self.scores)
        means: Floats = self.won.sum(axis=0) / np.maximum(1, known.sum(axis=0))
        return means

    def cost_unit(self) -> float:
        """Return what one unit of cost is: the mean dollars of the best single worker; 1.0 where nothing costs."""
        best = self.best_worker()
        return float(self.paid[:, best].sum() / max(1, self.there[:, best].sum())) or 1.0


def build_outcome_matrix(
    log: OutcomeLog, workers: Sequence[str] = (), types: TaskTypes | None = None, *, whole: bool = False
) -> OutcomeMatrix:
    """Return the panel of a log, or of these workers of it; `types` are those of a policy, else the log's own.

    `whole`: what a worker says is all that it wrote with the answer marked in it, where the log has that, and not the
    answer alone.
    """
    names = tuple(workers) or log.workers
    tasks = [log.task(task_id) for task_id in log.task_ids]
    if not tasks:
        raise ConfigError(f"{log.folder}: there are no tasks to learn from")
    kinds = [log.gold(task.id).kind for task in tasks]
    known = types or infer_task_types([task.domain for task in tasks], kinds)
    prompts = tuple(task.prompt for task in tasks)
    places = known.of([task.domain for task in tasks], prompts)
    shape = (len(tasks), len(names))
    table = {name: np.full(shape, np.nan) for name in ("tokens", "scores", "dollars", "seconds", "propensities")}
    codes, lengths, there = np.full(shape, NO_ANSWER, np.int64), np.zeros(shape, np.int64), np.zeros(shape, bool)
    some, turns = False, np.full(shape, UNKNOWN_TURN, np.int64)
    written = [log.responses(name) if whole else {} for name in names]
    shown: list[list[str | None]] = [[] for _ in names]
    for row, task in enumerate(tasks):
        found = [log.find(task.id, name) for name in names]
        said = [
            None if outcome is None else log.shown(outcome, kept.get(task.id))
            for outcome, kept in zip(found, written, strict=True)
        ]
        for texts, text in zip(shown, said, strict=True):
            texts.append(text)
        codes[row] = encode_answers([known.canonical(text, int(places[row])) for text in said], NO_ANSWER)
        for column, (outcome, text) in enumerate(zip(found, said, strict=True)):
            if outcome is None:
                continue
            there[row, column], lengths[row, column] = True, len(text or "")
            some = some or outcome.answer is not None
            _fill_outcome(table, (row, column), outcome, log)
            turns[row, column] = UNKNOWN_TURN if outcome.turn is None else outcome.turn
            if text is None:
                table["tokens"][row, column] = np.nan  # a run does not show what a failed call wrote
    return OutcomeMatrix(
        tuple(task.id for task in tasks),
        tuple(task.content_hash for task in tasks),
        names,
        known,
        TaskBatch(prompts, places),
        codes,
        lengths,
        there=there,
        answers=some,
        texts=tuple(hash_responses(texts) if kept else None for texts, kept in zip(shown, written, strict=True)),
        turns=turns if (turns != UNKNOWN_TURN).any() else None,
        **table,
    )


def infer_task_types(domains: Sequence[str], kinds: Sequence[str | None]) -> TaskTypes:
    """Return the types of a log's own domains, each with the form that most of its tasks have."""
    names = tuple(sorted({domain for domain in domains if domain}))
    held: dict[str, Counter[str]] = {name: Counter() for name in names}
    overall: Counter[str] = Counter()
    for domain, kind in zip(domains, kinds, strict=True):
        form = str(_FORMS[kind]) if kind in _FORMS else OPEN_FORM
        overall[form] += 1
        if domain:
            held[domain][form] += 1
    forms = tuple(held[name].most_common(1)[0][0] for name in names)
    return TaskTypes(names, forms, overall.most_common(1)[0][0])


def _fill_outcome(table: dict[str, Floats], cell: tuple[int, int], outcome: Outcome, log: OutcomeLog) -> None:
    price = log.prices.get(outcome.worker)
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


MISSING_SHARE = 0.2  # share of a type's tasks; what is lacking below that is taken for accidents


def missing_shares(panel: OutcomeMatrix) -> Floats:
    """[D, J]: the share of each type's tasks for which nothing is known of a worker; 0 where there are no tasks."""
    unknown = _missing_outcomes(panel)
    rows = [unknown[panel.batch.types == kind] for kind in range(len(panel.types.names))]
    return np.array([row.mean(axis=0) if len(row) else np.zeros(row.shape[1]) for row in rows]).reshape(
        len(rows), len(panel.workers)
    )


def fill_missing_as_silent(panel: OutcomeMatrix) -> OutcomeMatrix:
    """Return the panel with a score of 0, for nothing, wherever a worker lacks MUCH of a type."""
    much = np.vstack([missing_shares(panel) > MISSING_SHARE, np.zeros((1, len(panel.workers)), bool)])
    cells = _missing_outcomes(panel) & much[panel.batch.types]
    if not cells.any():
        return panel
    return replace(
        panel,
        there=panel.there | cells,
        scores=np.where(cells, 0.0, panel.scores),
        dollars=np.where(cells, 0.0, panel.dollars),
    )


def _missing_outcomes(panel: OutcomeMatrix) -> Flags:
    unknown: Flags = ~panel.there & np.isnan(panel.scores)
    return unknown


def has_turns(panel: OutcomeMatrix) -> bool:
    """Whether the log says of some ask which one of its task it was."""
    return panel.turns is not None and bool((panel.turns[panel.there] >= 0).any())


def known_first_asks(panel: OutcomeMatrix) -> Flags:
    """[T]: tasks of which it is known how their first ask came about.

    Those that hold later ones only count among them: their first was of a worker that is not looked at.
    """
    turns, told = _ask_turns(panel), panel.propensities > 0
    first, later = panel.there & (turns == 0), panel.there & (turns > 0)
    alone = (first.sum(axis=1) == 1) & (first & told).any(axis=1)
    found: Flags = np.where(first.any(axis=1), alone, later.any(axis=1))
    return found


def ordered_asks(panel: OutcomeMatrix) -> OutcomeMatrix:
    """Return the panel with what belongs to each task's sequence of asks, and nothing else."""
    if not has_turns(panel):
        return panel
    turns, kept = _ask_turns(panel), np.zeros(panel.there.shape, bool)
    goes_on = np.ones(len(panel), bool)
    for turn in range(len(panel.workers)):
        asked = panel.there & (turns == turn)
        goes_on &= (asked.sum(axis=1) == 1) & (asked & (panel.propensities > 0)).any(axis=1)
        kept |= asked & goes_on[:, None]
    return replace(panel, turns=turns).without_outcomes(~kept)


def first_asks(panel: OutcomeMatrix) -> OutcomeMatrix:
    """Return the panel with the first ask of each task alone."""
    return panel.without_outcomes(_ask_turns(panel) != 0) if has_turns(panel) else panel


def _ask_turns(panel: OutcomeMatrix) -> Ints:
    """[T, J]: the turns; whoever was asked alone was asked first."""
    if panel.turns is None:
        return np.full(panel.there.shape, -1, np.int64)
    alone = (panel.there.sum(axis=1) == 1)[:, None] & panel.there & (panel.turns < 0)
    return np.where(alone, 0, panel.turns)


def add_latency_cost(panel: OutcomeMatrix, second: float) -> tuple[OutcomeMatrix, tuple[str, ...]]:
    """Return the panel whose dollars hold what its seconds are worth, and what must be said of that."""
    if not second:
        return panel, ()
    unknown = int((panel.there & np.isnan(panel.seconds)).sum())
    if unknown == panel.there.sum():
        raise ConfigError("--second: the log has no latencies (column latency_s), so nothing is known of waiting")
    waits = second * np.nan_to_num(panel.seconds)
    notes = [f"costs hold ${second:g} for every second of waiting"]
    if unknown:
        notes.append(f"{plural(unknown, 'outcome')} without a latency, which count as instant")
    return replace(panel, dollars=np.where(panel.there, panel.paid + waits, panel.dollars)), tuple(notes)
