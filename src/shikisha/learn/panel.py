"""Panels: an outcome log as arrays, with what a learner may know and what only a grader knows told apart.

T tasks, J workers. Invariants: a task's row says what the engine would see if it asked: the same text, the same
canonical form; what was not recorded is NaN (score, dollars, tokens) and never a zero; asking for a missing row costs
nothing and gives no answer. Deliberately absent: reading files (`outcomes`), and features (`policy`).
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from shikisha.errors import ConfigError
from shikisha.grade.canon import Form
from shikisha.outcomes import Outcome, OutcomeLog
from shikisha.policy.arrays import Flags, Floats, Ints
from shikisha.policy.batch import NOT_ASKED, NOTHING, Batch, Seen
from shikisha.policy.hearing import Hearing
from shikisha.policy.types import OPEN, Types, coded
from shikisha.policy.words import Words, spoken

UNKNOWN = -1  # which ask of its task a pair was
_FORMS = {"choice": Form.CHOICE, "number": Form.NUMBER, "text": Form.TEXT, "math": Form.MATH}


@dataclass(frozen=True)
class Panel:
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
    types: Types
    batch: Batch
    codes: Ints
    lengths: Ints
    tokens: Floats
    scores: Floats
    dollars: Floats
    seconds: Floats
    there: Flags
    propensities: Floats
    answers: bool = True
    texts: tuple[Words | None, ...] = ()
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

    def at(self, rows: Ints | Flags) -> "Panel":
        """Return these tasks."""
        places: Ints = np.arange(len(self))[rows]
        chosen = replace(
            self,
            ids=tuple(self.ids[place] for place in places),
            hashes=tuple(self.hashes[place] for place in places),
            batch=self.batch.at(places),
            texts=tuple(words and words.at(places) for words in self.texts),
        )
        return chosen._picked((places, slice(None)))

    def only(self, workers: Sequence[str]) -> "Panel":
        """Return the panel of these workers."""
        columns = [self.workers.index(worker) for worker in workers]
        texts = tuple(self.texts[column] for column in columns) if self.texts else ()
        return replace(self, workers=tuple(workers), texts=texts)._picked((slice(None), np.array(columns, np.int64)))

    def unrecorded(self, cells: Flags) -> "Panel":
        """Return the panel as if these pairs [T, J] had never been recorded."""
        return replace(
            self,
            codes=np.where(cells, NOTHING, self.codes),
            lengths=np.where(cells, 0, self.lengths),
            there=self.there & ~cells,
            tokens=np.where(cells, np.nan, self.tokens),
            scores=np.where(cells, np.nan, self.scores),
            dollars=np.where(cells, np.nan, self.dollars),
            seconds=np.where(cells, np.nan, self.seconds),
            propensities=np.where(cells, np.nan, self.propensities),
            turns=None if self.turns is None else np.where(cells, UNKNOWN, self.turns),
        )

    def _picked(self, cells: tuple[Ints | slice, Ints | slice]) -> "Panel":
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

    def seen(self, asked: Flags, may_ask: Flags | None = None) -> Seen:
        """Return the state in which these pairs [T, J] have been asked."""
        there = np.ones(len(self.workers), bool) if may_ask is None else may_ask
        codes = np.where(asked, self.codes, NOT_ASKED)
        return Seen(self.batch, codes, self.lengths, self.tokens, there, self.tells)

    def heard(self, hearing: Hearing | None) -> "Panel":
        """Return the panel as somebody with this hearing has it."""
        return replace(self, tells=None if hearing is None else hearing.tells(self.texts, self.batch.types))

    def best(self) -> int:
        """Return the worker with the highest mean score; one that did not even half as much as others is not known."""
        recorded = self.there.sum(axis=0)
        return int(np.where(2 * recorded >= recorded.max(initial=0), self.means(), -1.0).argmax())

    def means(self) -> Floats:
        """[J]: each worker's mean score over what is recorded; 0 where nothing is."""
        known = ~np.isnan(self.scores)
        means: Floats = self.won.sum(axis=0) / np.maximum(1, known.sum(axis=0))
        return means

    def unit(self) -> float:
        """Return what one unit of cost is: the mean dollars of the best single worker; 1.0 where nothing costs."""
        best = self.best()
        return float(self.paid[:, best].sum() / max(1, self.there[:, best].sum())) or 1.0


def panel_of(log: OutcomeLog, workers: Sequence[str] = (), types: Types | None = None, *, whole: bool = False) -> Panel:
    """Return the panel of a log, or of these workers of it; `types` are those of a policy, else the log's own.

    `whole`: what a worker says is all that it wrote with the answer marked in it, where the log has that, and not the
    answer alone.
    """
    names = tuple(workers) or log.workers
    tasks = [log.task(task_id) for task_id in log.task_ids]
    if not tasks:
        raise ConfigError(f"{log.folder}: there are no tasks to learn from")
    kinds = [log.gold(task.id).kind for task in tasks]
    known = types or types_of([task.domain for task in tasks], kinds)
    prompts = tuple(task.prompt for task in tasks)
    places = known.of([task.domain for task in tasks], prompts)
    shape = (len(tasks), len(names))
    table = {name: np.full(shape, np.nan) for name in ("tokens", "scores", "dollars", "seconds", "propensities")}
    codes, lengths, there = np.full(shape, NOTHING, np.int64), np.zeros(shape, np.int64), np.zeros(shape, bool)
    some, turns = False, np.full(shape, UNKNOWN, np.int64)
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
        codes[row] = coded([known.canonical(text, int(places[row])) for text in said], NOTHING)
        for column, (outcome, text) in enumerate(zip(found, said, strict=True)):
            if outcome is None:
                continue
            there[row, column], lengths[row, column] = True, len(text or "")
            some = some or outcome.answer is not None
            _fill(table, (row, column), outcome, log)
            turns[row, column] = UNKNOWN if outcome.turn is None else outcome.turn
            if text is None:
                table["tokens"][row, column] = np.nan  # a run does not show what a failed call wrote
    return Panel(
        tuple(task.id for task in tasks),
        tuple(task.content_hash for task in tasks),
        names,
        known,
        Batch(prompts, places),
        codes,
        lengths,
        there=there,
        answers=some,
        texts=tuple(spoken(texts) if kept else None for texts, kept in zip(shown, written, strict=True)),
        turns=turns if (turns != UNKNOWN).any() else None,
        **table,
    )


def types_of(domains: Sequence[str], kinds: Sequence[str | None]) -> Types:
    """Return the types of a log's own domains, each with the form that most of its tasks have."""
    names = tuple(sorted({domain for domain in domains if domain}))
    held: dict[str, Counter[str]] = {name: Counter() for name in names}
    overall: Counter[str] = Counter()
    for domain, kind in zip(domains, kinds, strict=True):
        form = str(_FORMS[kind]) if kind in _FORMS else OPEN
        overall[form] += 1
        if domain:
            held[domain][form] += 1
    forms = tuple(held[name].most_common(1)[0][0] for name in names)
    return Types(names, forms, overall.most_common(1)[0][0])


def _fill(table: dict[str, Floats], cell: tuple[int, int], outcome: Outcome, log: OutcomeLog) -> None:
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
