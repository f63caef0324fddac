"""Makes outcome logs: gathers answers from a source into the tables that `log_reader` reads.

Invariants: a task is its prompt and its right answer, so where a source uses one id for two of them the second is kept
apart as `ID~HASH`. A log has one row for each task and worker. A second answer is an error that names both places, or
in sources with repeated samples it is merged: scores, tokens, dollars and seconds become means over the samples that
have them, the texts are those of the first graded sample (else of the first that has any), and `samples` counts them;
turn and propensity are those of the sample that was asked first. Whatever is left out is counted under its reason;
unknown values are null. A log has these columns only where some row fills them: `latency_s`, `propensity` (the
probability with which the worker was chosen, given what came before), `judged` (the share of the row's graded samples
that only a language model graded), `turn` (which ask of the task this was, from 0), `wording` (what the worker was
asked besides the task) and `samples`. Answers to other words are never merged: models react to words.
"""

import json
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from hashlib import sha256
from math import isfinite
from pathlib import Path

from shikisha.core.budget import Price
from shikisha.core.errors import ConfigError
from shikisha.core.fast_dataclass import dataclass, field, replace
from shikisha.core.task import Scope, Task, scope_as_json, storage_problem
from shikisha.outcomes.log_reader import RUNS_TABLE, SCOPES_FILE, ReferenceAnswer, RunOutcome
from shikisha.outcomes.table_files import ColumnType, TableLine, save_table

_STEMS = ("tasks", "outcomes", "responses")
_UNKNOWN = ReferenceAnswer(None, None)
OTHER_WORDS = "further answers to a task that was put in other words"
# The largest value of a parquet column of 64-bit integers.
_MOST = 2**63 - 1
_SURROGATES = re.compile("[\ud800-\udfff]")  # of surrogate pairs
_TASKS = dict.fromkeys(("task_id", "domain", "prompt", "answer", "answer_kind"), ColumnType.TEXT)
_RESPONSES = dict.fromkeys(("task_id", "worker", "response"), ColumnType.TEXT)
_RUNS = {
    "conductor": ColumnType.TEXT,
    "task_id": ColumnType.TEXT,
    "parted": ColumnType.WHOLE,
    "score": ColumnType.NUMBER,
    "cost_usd": ColumnType.NUMBER,
}
_OUTCOMES = {
    **dict.fromkeys(("task_id", "worker", "answer"), ColumnType.TEXT),
    "score": ColumnType.NUMBER,
    "input_tokens": ColumnType.WHOLE,
    "output_tokens": ColumnType.WHOLE,
    "cost_usd": ColumnType.NUMBER,
    "cost_kind": ColumnType.TEXT,
}


class CostKind(StrEnum):
    """How dollars came about."""

    RECORDED = "recorded"  # the source says what the call cost
    DERIVED = "derived"  # from tokens and a price list
    ABSENT = "absent"  # unknown


class RepeatPolicy(StrEnum):
    """What a second answer of the same worker to the same task is."""

    REFUSED = "refused"  # a contradiction, unless it says the same
    MERGED = "merged"  # another sample


@dataclass(frozen=True, slots=True)
class LoggedTask:
    """A task (without an id: its content names it) and its right answer, as far as known."""

    task: Task
    gold: ReferenceAnswer = _UNKNOWN


@dataclass(frozen=True, slots=True)
class LoggedAnswer:
    """One answer of one worker, and where the source has it.

    `answer` is what was extracted from the `response`. Dollars are recorded ones unless `cost` says otherwise. `judged`
    is 1 where the score is a language model's word alone. `wording` is what the worker was asked besides the task; ""
    where the task came in the client's own words. `call` is the source's id of this very call: a call that stands there
    twice is one.
    """

    worker: str
    where: str
    score: float | None = None
    answer: str | None = None
    response: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    dollars: float | None = None
    cost: CostKind = CostKind.RECORDED
    seconds: float | None = None
    propensity: float | None = None
    judged: float | None = None
    turn: int | None = None
    wording: str = ""
    call: str = ""


@dataclass(frozen=True, slots=True)
class LogSummary:
    """What a log that was written holds: counts; `graded` outcomes have a score.

    `merged` samples went into rows together with others, `same` rows said again what another said, `apart` tasks share
    their source's id with another. `left` counts what was left out by reason, `remarks` what else a reader should know.
    """

    tasks: int
    workers: int
    outcomes: int
    graded: int
    responses: int
    merged: int = 0
    same: int = 0
    apart: int = 0
    left: Mapping[str, int] = field(default_factory=dict)
    remarks: Mapping[str, int] = field(default_factory=dict)


class RowError(ConfigError):
    """A row that is none: where rows are many it is left out, counted and named, and the others are taken."""


class LogBuilder:
    """Gathers a log in memory; `prefix` begins the ids of tasks whose source has none.

    `reading` is a kind of answer and what finds one in a response that nobody has read.
    """

    def __init__(
        self,
        prefix: str,
        repeats: RepeatPolicy = RepeatPolicy.REFUSED,
        reading: tuple[str, Callable[[str], str | None]] | None = None,
    ) -> None:
        self.scopes = set[Scope]()  # of the runs that it is made of
        self._reading = reading
        self._left: Counter[str] = Counter()
        self._remarks: Counter[str] = Counter()
        self.judge = ""  # which language model gave scores, and how often it agrees with others' grades
        self._prefix = prefix
        self._repeats = repeats
        self._tasks: dict[str, LoggedTask] = {}
        self._answers: dict[tuple[str, str], list[LoggedAnswer]] = {}
        self._prices: dict[str, Price] = {}
        self._same = 0
        self._calls = set[str]()
        self._apart: set[str] = set()
        self._runs: list[tuple[LoggedTask, RunOutcome]] = []

    def add(self, asked: LoggedTask, *samples: LoggedAnswer) -> None:
        """Take a worker's answer to a task, or several samples of it at once.

        ConfigError when it contradicts what was added before, or cannot be stored.
        """
        # Refuse what no log can hold; prompt, context and id were looked at as the task was made.
        where = samples[0].where
        for name, text in (("domain", asked.task.domain), ("answer", asked.gold.answer), ("kind", asked.gold.kind)):
            if text is not None and (problem := storage_problem(text)):
                raise ConfigError(f"{where}: the {name} holds {problem}")
        if self._reading is not None:
            asked, samples = _read_answers(asked, samples, *self._reading)
        samples = tuple(self._storable(sample) for sample in samples if self._is_new(sample.call))
        if not samples:
            return
        kept = self._answers.setdefault((self._place(asked), samples[0].worker), [])
        if kept and self._repeats is RepeatPolicy.REFUSED:
            _check_same(kept, samples)
            self._same += len(samples)
            return
        for sample in samples:
            if kept and sample.wording != kept[0].wording:  # they are answers to other words
                self.skip(OTHER_WORDS)
                continue
            better = any(_rank(one) >= _rank(sample) for one in kept)
            # Only the best sample's texts are written, so the others' are not held in memory.
            kept.append(replace(sample, answer=None, response=None) if better else sample)

    def _is_new(self, call: str) -> bool:
        if call and call in self._calls:
            self.skip("calls that stand there twice")
            return False
        self._calls.add(call)
        return True

    def __len__(self) -> int:
        return len(self._answers)

    @property
    def typed(self) -> bool:
        """Whether any task has a type."""
        return any(asked.task.domain for asked in self._tasks.values())

    def add_run(self, asked: LoggedTask, run: RunOutcome) -> None:
        """Take a run as a whole; the log has its task's id where some worker's outcome at the task is in it."""
        self._runs.append((asked, run))

    def skip(self, reason: str, count: int = 1) -> None:
        """Count something that is left out."""
        self._left[reason] += count

    def remark(self, what: str, count: int = 1) -> None:
        """Count something that a reader of the log should know; a `count` of 0 is named alone."""
        self._remarks[what] += count

    def price(self, worker: str, price: Price) -> None:
        """Keep a worker's price for `workers.toml`; ConfigError where its name cannot be written."""
        if problem := storage_problem(worker):
            raise ConfigError(f"the price of a worker whose name holds {problem}")
        self._prices[worker] = price

    def write(self, folder: Path, *, as_lines: bool = False) -> LogSummary:
        """Write the log, in the place of one that is there; as parquet, or as JSONL if asked or without pyarrow."""
        if not self._answers:
            problem = "; ".join(f"{reason}: {count:,}" for reason, count in self._left.items())
            raise ConfigError(f"there is no outcome in what was read{f' (left out: {problem})' if problem else ''}")
        every = self._answers.items()
        columns = _OUTCOMES | dict(_optional(self._answers.values()))
        outcomes = (_outcome(pair, samples, columns) for pair, samples in every)
        tables = [("tasks", _TASKS, self._task_lines()), ("outcomes", columns, outcomes)]
        responses = sum(_best_sample(samples).response is not None for samples in self._answers.values())
        if responses:
            tables.append(("responses", _RESPONSES, (line for each in every for line in _responses(*each))))
        if self._runs:
            tables.append((RUNS_TABLE, _RUNS, (self._run_line(*each) for each in self._runs)))
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=folder, prefix=".") as fresh:
                for stem, held, lines in tables:
                    save_table(Path(fresh), stem, held, lines, as_lines=as_lines)
                if self._prices or self.judge:
                    judge = f"judge = {_quoted(self.judge)}\n" if self.judge else ""
                    (Path(fresh) / "workers.toml").write_text(judge + _prices_toml(self._prices), encoding="utf-8")
                if self.scopes:
                    rows = sorted((scope_as_json(scope) for scope in self.scopes), key=json.dumps)
                    (Path(fresh) / SCOPES_FILE).write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
                _replace_log(folder, Path(fresh))
        except OSError as error:
            raise ConfigError(f"{folder}: cannot be written: {error.strerror}") from None
        return self._written(responses)

    def _storable(self, sample: LoggedAnswer) -> LoggedAnswer:
        """Return the sample with texts that UTF-8 can hold; models' answers are cut anywhere, names are not."""
        problem = storage_problem(sample.worker) or (None if sample.worker.strip() else "nothing")
        if problem:
            raise ConfigError(f"{sample.where}: worker: expected a name, found {problem}")
        for name in ("score", "dollars", "seconds", "propensity"):
            if (value := getattr(sample, name)) is not None and not isfinite(value):
                raise ConfigError(f"{sample.where}: {name}: expected a number, found {value}")
        answer, response = (text and _SURROGATES.sub("\ufffd", text) for text in (sample.answer, sample.response))
        if (answer, response) == (sample.answer, sample.response):
            return sample
        self.remark("answers with half a character in them, for which U+FFFD is written")
        return replace(sample, answer=answer, response=response)

    def _place(self, asked: LoggedTask) -> str:
        """Return the id under which the task is kept."""
        task, gold = asked.task, asked.gold
        own = task.id or f"{self._prefix}/{task.content_hash[:16]}"
        known = self._tasks.setdefault(own, asked)
        if known is asked:
            return own
        if known.task.content_hash == task.content_hash:
            if gold.answer is None or gold == known.gold:
                if known.gold == _UNKNOWN:
                    self._tasks[own] = replace(known, gold=gold)
                return own
            if known.gold.answer is None:
                self._tasks[own] = replace(known, gold=gold)
                return own
        apart = f"{own}~{sha256(f'{task.content_hash}{gold.answer}'.encode()).hexdigest()[:8]}"
        self._tasks.setdefault(apart, asked)
        self._apart.add(apart)
        return apart

    def _run_line(self, asked: LoggedTask, run: RunOutcome) -> TableLine:
        own = asked.task.id or f"{self._prefix}/{asked.task.content_hash[:16]}"
        known = self._tasks.get(own)
        there = known is not None and known.task.content_hash == asked.task.content_hash
        line: TableLine = {"conductor": run.conductor, "task_id": own if there else None, "parted": int(run.parted)}
        return line | {"score": run.score, "cost_usd": run.dollars}

    def _task_lines(self) -> Iterator[TableLine]:
        for task_id, asked in self._tasks.items():
            task, gold = asked.task, asked.gold
            prompt = f"{task.prompt}\n\n{task.context}" if task.context else task.prompt
            line: TableLine = {"task_id": task_id, "domain": task.domain, "prompt": prompt}
            yield line | {"answer": gold.answer, "answer_kind": gold.kind}

    def _written(self, responses: int) -> LogSummary:
        every = self._answers.values()
        return LogSummary(
            tasks=len(self._tasks),
            workers=len({worker for _, worker in self._answers}),
            outcomes=len(self._answers),
            graded=sum(any(one.score is not None for one in samples) for samples in every),
            responses=responses,
            merged=sum(len(samples) for samples in every if len(samples) > 1),
            same=self._same,
            apart=len(self._apart),
            left=dict(self._left),
            remarks=dict(self._remarks),
        )


def _read_answers(
    asked: LoggedTask, samples: tuple[LoggedAnswer, ...], kind: str, extract: Callable[[str], str | None]
) -> tuple[LoggedTask, tuple[LoggedAnswer, ...]]:
    """Return the task with this kind of answer, and the samples with the answers found in their responses."""
    gold = asked.gold if asked.gold.kind else replace(asked.gold, kind=kind)
    read = tuple(
        replace(one, answer=extract(one.response)) if one.answer is None and one.response else one for one in samples
    )
    return replace(asked, gold=gold), read


def check_folder_empty(folder: Path) -> None:
    """Raise ConfigError when something is in the folder already, or it is none."""
    try:
        occupied = folder.exists() and any(folder.iterdir())
    except OSError as error:
        raise ConfigError(f"{folder}: expected a folder: {error.strerror}") from None
    if occupied:
        raise ConfigError(f"{folder}: expected an empty folder, or none (--force replaces the log that is in it)")


def _check_same(kept: Sequence[LoggedAnswer], samples: Sequence[LoggedAnswer]) -> None:
    first, second = kept[0], samples[0]
    if len(kept) != len(samples):
        problem = f"{first.worker!r} answered this task twice: {len(samples)} samples here"
        raise ConfigError(f"{second.where}: {problem}, {len(kept)} in {first.where}")
    for one, other in zip(kept, samples, strict=True):
        for name in ("score", "answer", "response", "input_tokens", "output_tokens", "dollars"):
            old, new = getattr(one, name), getattr(other, name)
            if old != new:
                problem = f"{first.worker!r} answered this task twice: {name} {str(new)[:60]!r} here"
                raise ConfigError(f"{second.where}: {problem}, {str(old)[:60]!r} in {first.where}")


def _rank(sample: LoggedAnswer) -> tuple[bool, bool]:
    return sample.score is not None, sample.response is not None or sample.answer is not None


def _best_sample(samples: Sequence[LoggedAnswer]) -> LoggedAnswer:
    return max(samples, key=_rank)  # the first of the best


def _outcome(pair: tuple[str, str], samples: Sequence[LoggedAnswer], columns: Iterable[str]) -> TableLine:
    priced = next((one for one in samples if one.dollars is not None), None)
    turn = min((one.turn for one in samples if one.turn is not None), default=None)
    line: TableLine = {
        "task_id": pair[0],
        "worker": pair[1],
        "answer": _best_sample(samples).answer,
        "score": _mean(samples, lambda one: one.score),
        "input_tokens": _whole(_mean(samples, lambda one: one.input_tokens)),
        "output_tokens": _whole(_mean(samples, lambda one: one.output_tokens)),
        "cost_usd": _mean(samples, lambda one: one.dollars),
        "cost_kind": str(CostKind.ABSENT if priced is None else priced.cost),
        "latency_s": _mean(samples, lambda one: one.seconds),
        "propensity": _mean(samples, lambda one: one.propensity if one.turn == turn else None),
        "judged": _mean(samples, lambda one: one.judged),
        "turn": turn,
        "wording": samples[0].wording,
        "samples": len(samples),
    }
    return {name: line[name] for name in columns}


def _mean(samples: Sequence[LoggedAnswer], of: Callable[[LoggedAnswer], float | None]) -> float | None:
    known = [value for one in samples if (value := of(one)) is not None]
    if not known:
        return None
    mean = known[0] if len(known) == 1 else sum(known) / len(known)
    return mean if isfinite(mean) else sum(value / len(known) for value in known)  # their sum is beyond any number


def _whole(number: float | None) -> int | None:
    return None if number is None else min(round(number), _MOST)  # a mean is rounded, up too


def _responses(pair: tuple[str, str], samples: Sequence[LoggedAnswer]) -> Iterator[TableLine]:
    response = _best_sample(samples).response
    if response is not None:
        yield {"task_id": pair[0], "worker": pair[1], "response": response}


def _optional(every: Collection[Sequence[LoggedAnswer]]) -> Iterator[tuple[str, ColumnType]]:
    """Yield the further columns in which something is known."""
    if any(one.seconds is not None for samples in every for one in samples):
        yield "latency_s", ColumnType.NUMBER
    if any(one.propensity is not None for samples in every for one in samples):
        yield "propensity", ColumnType.NUMBER
    if any(one.judged for samples in every for one in samples):
        yield "judged", ColumnType.NUMBER
    if any(one.turn is not None for samples in every for one in samples):
        yield "turn", ColumnType.WHOLE
    if any(samples[0].wording for samples in every):
        yield "wording", ColumnType.TEXT
    if any(len(samples) > 1 for samples in every):
        yield "samples", ColumnType.WHOLE


def _replace_log(folder: Path, fresh: Path) -> None:
    """Move the new files in; a log that was there goes, even where it had files that the new one has not."""
    stems = (*_STEMS, RUNS_TABLE)
    for name in (
        "workers.toml",
        SCOPES_FILE,
        *(f"{stem}{suffix}" for stem in stems for suffix in (".parquet", ".jsonl")),
    ):
        (folder / name).unlink(missing_ok=True)
    for file in sorted(fresh.iterdir()):
        file.replace(folder / file.name)


def _prices_toml(prices: Mapping[str, Price]) -> str:
    tables = [
        f"[workers.{_quoted(worker)}]\nprice_in = {float(price.input)!r}\nprice_out = {float(price.output)!r}\n"
        for worker, price in prices.items()
    ]
    return "# US dollars per million tokens\n" + "\n".join(tables)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
