"""Outcome logs in memory: read from a folder, checked whole, and looked up by (task, worker).

The folder holds `tasks`, `outcomes` and perhaps `responses` (each a table, see `table_files`), perhaps `workers.toml`
with prices, and for logs of journals `conducted`, a table of whole runs. Invariants: a pair without a record is
None, which is unknown and not wrong; the right answer to a task is never part of the Task. Numbers are packed, so that
a quarter of a million outcomes take 20 MB.
"""

import json
from array import array
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import lru_cache
from hashlib import file_digest, sha256
from math import isfinite, isnan, nan
from pathlib import Path

from pydantic import BaseModel, Field

from shikisha.core import toml
from shikisha.core.budget import Price, Usage
from shikisha.core.errors import ConfigError, UnknownName
from shikisha.core.fast_dataclass import dataclass
from shikisha.core.task import EVERYBODY, OPERATOR, Scope, Task, join_scopes, read_scope
from shikisha.outcomes.table_files import ColumnSpec, ColumnType, TableColumns, count_rows, names_of, read_columns

_TASKS = (
    ColumnSpec("task_id"),
    ColumnSpec("domain"),
    ColumnSpec("prompt"),
    ColumnSpec("answer", required=False, nullable=True),
    ColumnSpec("answer_kind", required=False, nullable=True),
)
_OUTCOMES = (
    ColumnSpec("task_id"),
    ColumnSpec("worker"),
    ColumnSpec("score", ColumnType.NUMBER, nullable=True),
    ColumnSpec("answer", required=False, nullable=True),
    ColumnSpec("input_tokens", ColumnType.WHOLE, required=False, nullable=True),
    ColumnSpec("output_tokens", ColumnType.WHOLE, required=False, nullable=True),
    ColumnSpec("cost_usd", ColumnType.NUMBER, required=False, nullable=True),
    ColumnSpec("cost_kind", required=False, nullable=True),
    ColumnSpec("latency_s", ColumnType.NUMBER, required=False, nullable=True),
    ColumnSpec("propensity", ColumnType.NUMBER, required=False, nullable=True),
    ColumnSpec("judged", ColumnType.NUMBER, required=False, nullable=True),
    ColumnSpec("turn", ColumnType.WHOLE, required=False, nullable=True),
    ColumnSpec("wording", required=False, nullable=True),
)
_RESPONSES = (ColumnSpec("task_id"), ColumnSpec("worker"), ColumnSpec("response", nullable=True))
_RUN_COLUMNS = (
    ColumnSpec("conductor"),
    ColumnSpec("task_id", nullable=True),
    ColumnSpec("parted", ColumnType.WHOLE),
    ColumnSpec("score", ColumnType.NUMBER, nullable=True),
    ColumnSpec("cost_usd", ColumnType.NUMBER, nullable=True),
)
SCOPES_FILE = "scopes.json"  # whose runs it was made of, where it was
_MAX_SCOPES = 2**20
RUNS_TABLE = "conducted"  # the table of runs, which logs of journals have
_OPENS, _CLOSES = "<answer>", "</answer>"
_OPTIONAL_COLUMNS = {
    "latency_s": None,
    "propensity": 1.0,
    "judged": 1.0,
    "turn": None,
}  # columns that most logs lack, and the most that may stand there
_STEMS = ("tasks", "outcomes", "responses")
_KNOWN = {"tasks": _TASKS, "outcomes": (*_OUTCOMES, ColumnSpec("samples")), "responses": _RESPONSES}


class _PriceTable(BaseModel):
    """[workers.NAME] of `workers.toml`: dollars per million tokens; other keys are for others."""

    price_in: float = Field(ge=0, allow_inf_nan=False)
    price_out: float = Field(ge=0, allow_inf_nan=False)


class _WorkersFile(BaseModel):
    """`workers.toml`; `judge` says which language model gave scores, and how often it agrees with others' grades."""

    judge: str = ""
    workers: dict[str, _PriceTable] = {}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one worker did with one task.

    `score` is in [0, 1] and None where it was not graded; `answer` None: none was found in what the worker wrote;
    `usage` and `dollars` None: not recorded. `cost_kind` says how the dollars came about (`derived`: from list prices).
    `seconds` is how long the call took, `propensity` the probability with which this worker was asked (given what came
    before), `judged` how far the score is a language model's word alone (0: not at all, or not recorded), `turn` which
    ask of the task this was, from 0 (None: unknown), `wording` what the worker was asked besides the task ("": nothing,
    or not recorded).
    """

    task_id: str
    worker: str
    score: float | None
    answer: str | None
    usage: Usage | None
    dollars: float | None
    cost_kind: str | None
    seconds: float | None = None
    propensity: float | None = None
    judged: float = 0.0
    turn: int | None = None
    wording: str = ""


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """A run as a whole: who conducted it, its task (None: one of which no worker's outcome is known) and its worth.

    `parted`: some step was not the task itself, so the run's result is its conductor's and no worker's.
    """

    conductor: str
    task_id: str | None
    parted: bool
    score: float | None
    dollars: float | None


@dataclass(frozen=True, slots=True)
class ReferenceAnswer:
    """The right answer to a task and how answers are compared (`choice`, `number`, `text`), as far as known."""

    answer: str | None
    kind: str | None


class OutcomeLog:
    """A log in memory: tasks and workers in the file's order, outcomes by (task, worker)."""

    def __init__(
        self, folder: Path, tasks: TableColumns, outcomes: TableColumns, prices: Mapping[str, Price], judge: str = ""
    ) -> None:
        self.folder = folder
        self.judge = judge
        self.prices = prices
        self._sampled: frozenset[str] | None = None
        places: dict[str, int] = {}
        for row, task_id in enumerate(tasks.text("task_id")):
            if places.setdefault(task_id, row) != row:
                raise tasks.error_at(row, "task_id", f"{task_id!r} is there twice")
        self._places = places
        self._tasks = tasks
        self._worker_places = {name: place for place, name in enumerate(dict.fromkeys(outcomes.text("worker")))}
        self._cells = _cells(outcomes, self._places, self._worker_places)
        self._size = outcomes.length
        self._scores = _pack_numbers(outcomes, "score", most=1.0)
        self._tokens = (_pack_numbers(outcomes, "input_tokens"), _pack_numbers(outcomes, "output_tokens"))
        self._dollars = _pack_numbers(outcomes, "cost_usd")
        self._answers = outcomes.texts["answer"]
        self._scores_only = not any(answer is not None for answer in self._answers)
        self._cost_kinds = outcomes.texts["cost_kind"]
        self._wordings = outcomes.texts["wording"]
        self._more = {name: _pack_optional(outcomes, name, most) for name, most in _OPTIONAL_COLUMNS.items()}

    @classmethod
    def read(cls, folder: Path, workers: Collection[str] = (), task_ids: frozenset[str] | None = None) -> "OutcomeLog":
        """Read and check a log, or the part of these workers and tasks.

        ConfigError names file, row and column of what is wrong; UnknownName for a worker that has no outcome.
        """
        of_tasks = {} if task_ids is None else {"task_id": task_ids}
        tasks = read_columns(folder, "tasks", _TASKS, of_tasks)
        of_workers = {"worker": set(workers)} if workers else {}
        outcomes = read_columns(folder, "outcomes", _OUTCOMES, {**of_tasks, **of_workers})
        for name in set(workers).difference(outcomes.text("worker")):
            known = read_columns(folder, "outcomes", (ColumnSpec("worker"),)).text("worker")
            raise UnknownName(f"worker in {folder}", name, set(known))
        file = folder / "workers.toml"
        listed = toml.validate_model(_WorkersFile, toml.read_toml(file), str(file)) if file.exists() else _WorkersFile()
        prices = {name: Price(table.price_in, table.price_out) for name, table in listed.workers.items()}
        log = cls(folder, tasks, outcomes, prices, listed.judge)
        log._sampled = task_ids
        return log

    def __len__(self) -> int:
        return self._size

    @property
    def task_ids(self) -> tuple[str, ...]:
        """The ids of all tasks."""
        return tuple(self._places)

    @property
    def workers(self) -> tuple[str, ...]:
        """The names of all workers that have an outcome."""
        return tuple(self._worker_places)

    def task(self, task_id: str) -> Task:
        """Return a task as workers are shown it; ConfigError when the log has none of this id."""
        place = self._place(task_id)
        prompt, domain = self._tasks.texts["prompt"][place], self._tasks.texts["domain"][place]
        return Task(prompt or "", id=task_id, domain=domain or "")

    def gold(self, task_id: str) -> ReferenceAnswer:
        """Return what the right answer to a task is, for graders only."""
        place = self._place(task_id)
        return ReferenceAnswer(self._tasks.texts["answer"][place], self._tasks.texts["answer_kind"][place])

    def wordings(self, workers: Collection[str] = ()) -> Counter[str]:
        """Return how many outcomes (of these workers) each wording has, the most frequent first."""
        named = {place for name, place in self._worker_places.items() if not workers or name in workers}
        width = len(self._worker_places)
        rows = (row for cell, row in enumerate(self._cells) if row >= 0 and cell % width in named)
        return Counter(dict(Counter(self._wordings[row] or "" for row in rows).most_common()))

    def find(self, task_id: str, worker: str) -> Outcome | None:
        """Return the outcome of this worker on this task, or None where there is none."""
        place, column = self._places.get(task_id), self._worker_places.get(worker)
        if place is None or column is None:
            return None
        row = self._cells[place * len(self._worker_places) + column]
        return None if row < 0 else self._outcome(row, task_id, worker)

    @property
    def judged_share(self) -> float:
        """The share of all scores that are a language model's word alone."""
        shares = self._more["judged"] or array("d", [nan]) * self._size
        found = [share for score, share in zip(self._scores, shares, strict=True) if not isnan(score)]
        return sum(0.0 if isnan(share) else share for share in found) / len(found) if found else 0.0

    @property
    def judge_notes(self) -> tuple[str, ...]:
        """What goes with each figure of scores that a model gave: how many, whose, and how far they were confirmed."""
        judge = self.judge or "agreement with other grades: not measured"
        share = self.judged_share
        return (f"{share:.0%} of the scores come from a language model alone: {judge}",) if share else ()

    def answer_text(self, outcome: Outcome) -> str | None:
        """Return the text that stands for what this worker answered; None where no answer was found in what it wrote.

        An answer without a visible character is shown in quotes. Where only the score is recorded (of all answers in
        the log, or of this one, which got points all the same) the text says whose answer it would be.
        """
        answer = outcome.answer
        if answer is None:
            return _stand_in(outcome.worker) if self._scores_only or outcome.score else None
        return answer if answer.strip() else f"'{answer}'"

    def response_text(self, outcome: Outcome, response: str | None) -> str | None:
        """Return what this worker wrote, if that is kept, and after it, marked, the answer that was found in it.

        None where no answer was found: what was written then is no answer.
        """
        said = self.answer_text(outcome)
        written = response and response.strip()
        return f"{response}\n\n{_OPENS}{said}{_CLOSES}" if said is not None and written else said

    def recorded_score(self, task_id: str, answer: str) -> float | None:
        """Return the recorded score of this answer to this task; None where it is not in the log or was not graded.

        Of a text that ends with a marked answer (`response_text`), that is the answer.
        """
        score = self._graded(task_id, answer)
        return self._graded(task_id, marked_answer(answer)) if score is None else score

    def _graded(self, task_id: str, answer: str) -> float | None:
        start = self._place(task_id) * len(self._worker_places)
        quoted = len(answer) > 1 and answer[0] == answer[-1] == "'"
        for column, worker in enumerate(self._worker_places):
            row = self._cells[start + column]
            if row < 0:
                continue
            said = self._answers[row]
            if said != answer and (quoted or (said is None and answer == _stand_in(worker))):
                said = self.answer_text(self._outcome(row, task_id, worker))
            score = _none_if_nan(self._scores[row]) if said == answer else None
            if score is not None:
                return score
        return None

    def outcomes_of(self, worker: str) -> Iterator[Outcome]:
        """Yield a worker's outcomes in the order of the tasks; UnknownName when it has none."""
        if worker not in self._worker_places:
            raise UnknownName(f"worker in {self.folder}", worker, self.workers)
        found = (self.find(task_id, worker) for task_id in self._places)
        return (outcome for outcome in found if outcome is not None)

    def responses(self, worker: str) -> Mapping[str, str | None]:
        """Read a worker's full texts by task id; this goes to the file each time."""
        of_tasks = {} if self._sampled is None else {"task_id": self._sampled}
        table = read_columns(self.folder, "responses", _RESPONSES, {"worker": (worker,), **of_tasks})
        found: dict[str, str | None] = {}
        for task_id, response in zip(table.text("task_id"), table.texts["response"], strict=True):
            if found.setdefault(task_id, response) != response:
                raise ConfigError(f"{table.file}: {task_id!r} by {worker!r} has two different responses")
        return found

    def _place(self, task_id: str) -> int:
        if task_id not in self._places:
            raise ConfigError(f"{self.folder}: among its {len(self._places):,} tasks there is no {task_id!r}")
        return self._places[task_id]

    def _outcome(self, row: int, task_id: str, worker: str) -> Outcome:
        tokens = [_none_if_nan(column[row]) for column in self._tokens]
        usage = None if None in tokens else Usage(*(int(count or 0) for count in tokens))
        score, dollars = _none_if_nan(self._scores[row]), _none_if_nan(self._dollars[row])
        seconds, propensity, judged, turn = (
            _none_if_nan(self._more[name][row]) if self._more[name] else None for name in _OPTIONAL_COLUMNS
        )
        kind = self._cost_kinds[row]
        more = (seconds, propensity, judged or 0.0, None if turn is None else int(turn), self._wordings[row] or "")
        return Outcome(task_id, worker, score, self._answers[row], usage, dollars, kind, *more)


def marked_answer(text: str) -> str:
    """Return the answer that a text ends with, marked (`response_text`); of a text that ends with none, all of it."""
    # An answer may hold marks of its own, so the last mark that opens a paragraph counts.
    mark = text.rfind(f"\n\n{_OPENS}") + 2
    start = mark if mark > 1 else text.rfind(_OPENS)
    return text[start + len(_OPENS) : -len(_CLOSES)] if start >= 0 and text.endswith(_CLOSES) else text


def text_before_mark(text: str) -> str:
    """Return a text without the answer that is marked at its end (`response_text`); all of it where none is."""
    start = text.rfind(f"\n\n{_OPENS}")
    return text[:start] if start >= 0 and text.endswith(_CLOSES) else text


@lru_cache(maxsize=4)
def open_log(folder: Path, workers: tuple[str, ...] = ()) -> OutcomeLog:
    """Return the log in this folder, or these workers' part of it, read once for all who ask."""
    return OutcomeLog.read(folder, workers)


def sample_tasks(folder: Path, max_outcomes: int, workers: Collection[str] = ()) -> tuple[frozenset[str], int] | None:
    """Return tasks that have about so many outcomes, and how many tasks there are; None where the log has no more.

    Tasks are drawn by a hash of their ids, so the same log gives the same sample, and a log that grows keeps most of
    it.
    """
    outcomes = count_rows(folder, "outcomes")
    if outcomes <= max_outcomes:
        return None
    if workers:
        outcomes = read_columns(folder, "outcomes", (ColumnSpec("worker"),), {"worker": set(workers)}).length
        if outcomes <= max_outcomes:
            return None
    ids = read_columns(folder, "tasks", (ColumnSpec("task_id"),)).text("task_id")
    drawn = sorted(ids, key=lambda task_id: sha256(task_id.encode(errors="surrogatepass")).digest())
    return frozenset(drawn[: max(1, len(ids) * max_outcomes // outcomes)]), len(ids)


def run_outcomes(folder: Path) -> tuple[RunOutcome, ...]:
    """Return the runs that a log was made of; none where it says nothing of runs."""
    if not names_of(folder, RUNS_TABLE):
        return ()
    table = read_columns(folder, RUNS_TABLE, _RUN_COLUMNS)
    scores, dollars = _pack_numbers(table, "score", most=1.0), _pack_numbers(table, "cost_usd")
    rows = zip(
        table.text("conductor"), table.texts["task_id"], _pack_numbers(table, "parted"), scores, dollars, strict=True
    )
    return tuple(
        RunOutcome(name, task, bool(parted), _none_if_nan(one), _none_if_nan(cost))
        for name, task, parted, one, cost in rows
    )


def log_scope(folder: Path) -> Scope:
    """Return for whose tasks a log may be learned from: any, unless it was made of runs; ConfigError for several."""
    file = folder / SCOPES_FILE
    if not file.exists():  # of runs, an earlier version wrote it
        return OPERATOR if names_of(folder, RUNS_TABLE) else EVERYBODY
    try:
        return join_scopes(read_scope(row) for row in json.loads(file.read_bytes()[:_MAX_SCOPES]))
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise ConfigError(f"{file}: {error}: import the runs of one tenant (`learn --from-journal --tenant`)") from None


def log_hash(folder: Path) -> str:
    """Return a hash of a log's files: another hash, another log, whatever its folder is called."""
    names = (*(f"{stem}.{kind}" for stem in (*_STEMS, RUNS_TABLE) for kind in ("parquet", "jsonl")), "workers.toml")
    there = [(folder / name, (folder / name).stat()) for name in names if (folder / name).exists()]
    return _hash_files(tuple((path, stat.st_mtime_ns, stat.st_size) for path, stat in there))


@lru_cache(maxsize=4)
def _hash_files(files: tuple[tuple[Path, int, int], ...]) -> str:
    """Hash these files, once for each time that one of them was written."""
    found = sha256()
    for path, _, _ in files:
        with path.open("rb") as file:
            found.update(f"{path.name}\0".encode() + file_digest(file, "sha256").digest())
    return found.hexdigest()[:12]


def ignored_columns(folder: Path) -> tuple[str, ...]:
    """Return the columns of a log that nothing reads, as `outcomes: color`; a misspelled one is among them."""
    known = {stem: {column.name for column in columns} for stem, columns in _KNOWN.items()}
    return tuple(f"{stem}: {name}" for stem in _STEMS for name in names_of(folder, stem) if name not in known[stem])


def has_responses(folder: Path) -> bool:
    """Whether a log keeps full texts."""
    return any((folder / f"responses.{ending}").exists() for ending in ("parquet", "jsonl"))


def _stand_in(worker: str) -> str:
    return f"(the answer of {worker}, of which only the score is recorded)"


def _none_if_nan(number: float) -> float | None:
    return None if isnan(number) else number


def _cells(outcomes: TableColumns, tasks: Mapping[str, int], workers: Mapping[str, int]) -> "array[int]":
    """Return the row of every (task, worker), tasks × workers, -1 where there is none; refuse contradictions."""
    cells = array("i", [-1]) * (len(tasks) * len(workers))
    for row, (task_id, worker) in enumerate(zip(outcomes.text("task_id"), outcomes.text("worker"), strict=True)):
        place = tasks.get(task_id)
        if place is None:
            raise outcomes.error_at(row, "task_id", f"{task_id!r} is not among the tasks")
        cell = place * len(workers) + workers[worker]
        if cells[cell] < 0:
            cells[cell] = row
        else:
            _check_same(outcomes, cells[cell], row)
    return cells


def _check_same(outcomes: TableColumns, earlier: int, row: int) -> None:
    columns: Mapping[str, Sequence[object]] = {"score": outcomes.numbers["score"], "answer": outcomes.texts["answer"]}
    for name, values in columns.items():
        if values[earlier] != values[row]:
            pair = f"{outcomes.texts['task_id'][row]!r} by {outcomes.texts['worker'][row]!r}"
            other = f"{values[earlier]!r} in row {earlier + outcomes.first}"
            raise outcomes.error_at(row, name, f"{pair} is recorded twice: {values[row]!r} here and {other}")


def _pack_numbers(outcomes: TableColumns, name: str, most: float | None = None) -> "array[float]":
    """Pack a column of numbers from 0 (to `most`); NaN stands for null."""
    values = outcomes.numbers[name]
    packed = array("d", (nan if value is None else value for value in values))
    for row, value in enumerate(values):
        if value is not None and not (isfinite(value) and value >= 0 and (most is None or value <= most)):
            raise outcomes.error_at(
                row, name, f"expected a number from 0{f' to {most:g}' if most else ''}, found {value!r}"
            )
    return packed


def _pack_optional(outcomes: TableColumns, name: str, most: float | None) -> "array[float]":
    """Pack a column that most logs lack; empty where nothing stands in it."""
    packed = _pack_numbers(outcomes, name, most)
    return packed if any(value is not None for value in outcomes.numbers[name]) else array("d")
