"""Outcome logs and the workers that replay them: what is read, what is refused, and where it says so."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from shikisha.conductors.fixed_conductors import ScriptedConductor
from shikisha.core.budget import Caps, Price, Usage
from shikisha.core.call import Card, Request
from shikisha.core.errors import ConfigError, FaultKind, UnknownName, WorkerError
from shikisha.core.events import RunStatus
from shikisha.core.secrets import SecretStore
from shikisha.core.task import Task
from shikisha.engine.pool import Member, Pool
from shikisha.outcomes.log_reader import Outcome, OutcomeLog, ReferenceAnswer, open_log, sample_tasks
from shikisha.outcomes.table_files import ColumnSpec, ColumnType, read_columns
from shikisha.workers import replay
from shikisha.workers.replay import ReplayWorker, replay_card
from support import engine, plan_of

Rows = list[dict[str, object]]
Write = Callable[[Path, str, Rows], None]

TASKS: Rows = [
    {"task_id": "t/0", "domain": "sums", "prompt": "1 + 1?", "answer": "2", "answer_kind": "number"},
    {"task_id": "t/1", "domain": "sums", "prompt": "2 + 2?", "answer": "4", "answer_kind": "number"},
]


def outcome(task: str, worker: str, answer: str | None, score: float | None = 1.0, **more: object) -> dict[str, object]:
    row = {"task_id": task, "worker": worker, "answer": answer, "score": score}
    return row | {"input_tokens": 10, "output_tokens": 5, "cost_usd": 0.001, "cost_kind": "derived"} | more


OUTCOMES: Rows = [
    outcome("t/0", "dear", "2"),
    outcome("t/1", "dear", "4", output_tokens=50, cost_usd=0.02),
    outcome("t/0", "cheap", None, 0.0, cost_usd=None),
]
PRICES = '[workers.dear]\nprice_in = 10\nprice_out = 20\nnote = "approximate"\n'


def write_lines(folder: Path, stem: str, rows: Rows) -> None:
    (folder / f"{stem}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def write_parquet(folder: Path, stem: str, rows: Rows) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.Table.from_pylist(rows), folder / f"{stem}.parquet")


WRITERS = pytest.mark.parametrize("write", [write_lines, write_parquet])


def written(folder: Path, write: Write, outcomes: Rows = OUTCOMES, tasks: Rows = TASKS) -> Path:
    write(folder, "tasks", tasks)
    write(folder, "outcomes", outcomes)
    (folder / "workers.toml").write_text(PRICES)
    return folder


def changed(rows: Rows, index: int, **values: object) -> Rows:
    return [row | values if place == index else row for place, row in enumerate(rows)]


@WRITERS
def test_a_log_is_read(tmp_path: Path, write: Write) -> None:
    log = OutcomeLog.read(written(tmp_path, write))
    assert (len(log), log.task_ids, log.workers) == (3, ("t/0", "t/1"), ("dear", "cheap"))
    assert log.task("t/1") == Task("2 + 2?", id="t/1", domain="sums")
    assert log.gold("t/1") == ReferenceAnswer("4", "number")
    assert log.find("t/1", "dear") == Outcome("t/1", "dear", 1.0, "4", Usage(10, 50), 0.02, "derived")
    assert log.find("t/0", "cheap") == Outcome("t/0", "cheap", 0.0, None, Usage(10, 5), None, "derived")
    assert dict(log.prices) == {"dear": Price(10, 20)}
    assert [outcome.task_id for outcome in log.outcomes_of("dear")] == ["t/0", "t/1"]


@WRITERS
def test_what_nobody_recorded_is_unknown(tmp_path: Path, write: Write) -> None:
    log = OutcomeLog.read(written(tmp_path, write))
    assert log.find("t/1", "cheap") is None
    assert log.find("t/9", "dear") is None
    with pytest.raises(UnknownName, match=r"unknown worker in .* 'cheep': .* did you mean 'cheap'"):
        log.outcomes_of("cheep")
    with pytest.raises(ConfigError, match="among its 2 tasks there is no 't/9'"):
        log.task("t/9")


@WRITERS
def test_optional_columns_may_be_missing(tmp_path: Path, write: Write) -> None:
    tasks: Rows = [{"task_id": "t/0", "domain": "d", "prompt": "?"}]
    log = OutcomeLog.read(written(tmp_path, write, [{"task_id": "t/0", "worker": "w", "score": None}], tasks))
    assert log.find("t/0", "w") == Outcome("t/0", "w", None, None, None, None, None)
    assert log.gold("t/0") == ReferenceAnswer(None, None)


def test_a_task_never_holds_its_answer(tmp_path: Path) -> None:
    task = OutcomeLog.read(written(tmp_path, write_lines)).task("t/1")
    assert "4" not in str(task)


@WRITERS
def test_an_outcome_recorded_twice_alike_is_one_outcome(tmp_path: Path, write: Write) -> None:
    log = OutcomeLog.read(written(tmp_path, write, [*OUTCOMES, OUTCOMES[0]]))
    assert len(list(log.outcomes_of("dear"))) == 2


@WRITERS
@pytest.mark.parametrize(
    ("outcomes", "where", "problem"),
    [
        ([*OUTCOMES, OUTCOMES[0] | {"score": 0.0}], 3, "score: 't/0' by 'dear' is recorded twice: 0.0 here and 1.0"),
        ([*OUTCOMES, OUTCOMES[0] | {"answer": "3"}], 3, "answer: 't/0' by 'dear' is recorded twice: '3' here and '2'"),
        (changed(OUTCOMES, 1, task_id="t/9"), 1, "task_id: 't/9' is not among the tasks"),
        (changed(OUTCOMES, 1, worker=None), 1, "worker: expected text, found null"),
        (changed(OUTCOMES, 2, score=1.5), 2, "score: expected a number from 0 to 1, found 1.5"),
        (changed(OUTCOMES, 2, score=-0.5), 2, "score: expected a number from 0 to 1, found -0.5"),
        (changed(OUTCOMES, 1, input_tokens=-1), 1, "input_tokens: expected a number from 0, found -1"),
        (changed(OUTCOMES, 1, cost_usd=float("inf")), 1, "cost_usd: expected a number from 0, found inf"),
    ],
)
def test_a_wrong_row_is_named(tmp_path: Path, write: Write, outcomes: Rows, where: int, problem: str) -> None:
    written(tmp_path, write, outcomes)
    place = f"outcomes.jsonl: line {where + 1}" if write is write_lines else f"outcomes.parquet: row {where}"
    with pytest.raises(ConfigError) as caught:
        OutcomeLog.read(tmp_path)
    assert f"{tmp_path}/{place}: {problem}" in str(caught.value)


def test_a_task_that_is_there_twice_is_named(tmp_path: Path) -> None:
    written(tmp_path, write_lines, tasks=[*TASKS, TASKS[0]])
    with pytest.raises(ConfigError, match=r"tasks\.jsonl: line 3: task_id: 't/0' is there twice"):
        OutcomeLog.read(tmp_path)


def without(rows: Rows, name: str) -> Rows:
    return [{key: value for key, value in row.items() if key != name} for row in rows]


def test_a_missing_column_is_named(tmp_path: Path) -> None:
    lines, parquet = tmp_path / "lines", tmp_path / "parquet"
    for folder, write in ((lines, write_lines), (parquet, write_parquet)):
        folder.mkdir()
        written(folder, write, without(OUTCOMES, "score"))
    with pytest.raises(ConfigError, match=r"outcomes\.jsonl: line 1: score: this column is missing"):
        OutcomeLog.read(lines)
    with pytest.raises(ConfigError, match=r"outcomes\.parquet: column score is missing; there are task_id, worker"):
        OutcomeLog.read(parquet)


def test_a_column_of_another_type_is_named(tmp_path: Path) -> None:
    rows = [row | {"score": "good"} for row in OUTCOMES]
    lines, parquet = tmp_path / "lines", tmp_path / "parquet"
    for folder, write in ((lines, write_lines), (parquet, write_parquet)):
        folder.mkdir()
        written(folder, write, rows)
    with pytest.raises(ConfigError, match=r"outcomes\.jsonl: line 1: score: expected a number, found 'good'"):
        OutcomeLog.read(lines)
    with pytest.raises(ConfigError, match=r"outcomes\.parquet: column score: expected a number, found (large_)?string"):
        OutcomeLog.read(parquet)


@pytest.mark.parametrize("value", [True, "1", 1.5, 2**63])
def test_a_whole_number_is_one_of_64_bits(tmp_path: Path, value: object) -> None:
    written(tmp_path, write_lines, changed(OUTCOMES, 0, input_tokens=value))
    with pytest.raises(ConfigError, match="line 1: input_tokens: expected a whole number"):
        OutcomeLog.read(tmp_path)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('{"task_id": ', "line 1: not JSON"),
        ("[1]\n", "line 1: expected a JSON object"),
        ("\n", "line 1: not JSON"),
        ("[" * 100_000, "line 1: not JSON"),
        ("\xff", "expected UTF-8 text"),
    ],
)
def test_lines_that_are_no_json_objects_are_named(tmp_path: Path, text: str, problem: str) -> None:
    (tmp_path / "tasks.jsonl").write_bytes(text.encode("latin-1"))
    with pytest.raises(ConfigError, match=rf"tasks\.jsonl: {problem}"):
        OutcomeLog.read(tmp_path)


def test_a_file_that_is_no_parquet_is_named(tmp_path: Path) -> None:
    (tmp_path / "tasks.parquet").write_bytes(b"PAR1 but not really")
    with pytest.raises(ConfigError, match=r"tasks\.parquet: not a parquet file"):
        OutcomeLog.read(tmp_path)


def test_texts_in_parquet_that_are_no_utf_8_are_named(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    written(tmp_path, write_parquet)
    raw = pa.array([b"t/0", b"\xca", b"t/1"], pa.binary())
    texts = pa.Array.from_buffers(pa.string(), 3, raw.buffers())  # which nobody looks through
    pq.write_table(
        pq.read_table(tmp_path / "outcomes.parquet").set_column(2, "answer", texts), tmp_path / "outcomes.parquet"
    )
    with pytest.raises(ConfigError, match=r"outcomes.parquet: not a parquet file that can be read: 'utf-8'"):
        OutcomeLog.read(tmp_path)


def test_a_folder_without_a_log_says_what_was_expected(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"expected tasks\.parquet or tasks\.jsonl there"):
        OutcomeLog.read(tmp_path)


def test_two_formats_side_by_side_are_refused(tmp_path: Path) -> None:
    write_lines(tmp_path, "tasks", TASKS)
    write_parquet(tmp_path, "tasks", TASKS)
    with pytest.raises(ConfigError, match="not both"):
        OutcomeLog.read(tmp_path)


def test_a_price_that_is_none_is_named(tmp_path: Path) -> None:
    written(tmp_path, write_lines)
    (tmp_path / "workers.toml").write_text("[workers.dear]\nprice_in = -1\nprice_out = 1\n")
    with pytest.raises(ConfigError, match=r"workers\.toml: workers\.dear\.price_in: expected"):
        OutcomeLog.read(tmp_path)


def test_equal_texts_are_kept_once(tmp_path: Path) -> None:
    write_lines(tmp_path, "t", [{"a": "some text " * 9}, {"a": "some text " * 9}, {"a": None}])
    one, other, none = read_columns(tmp_path, "t", [ColumnSpec("a", nullable=True)]).texts["a"]
    assert one is other
    assert none is None


def test_a_column_of_whole_numbers_takes_no_floats_in_parquet(tmp_path: Path) -> None:
    write_parquet(tmp_path, "t", [{"a": 1.0}])
    with pytest.raises(ConfigError, match="column a: expected a whole number, found double"):
        read_columns(tmp_path, "t", [ColumnSpec("a", ColumnType.WHOLE)])


def test_a_log_is_opened_once(tmp_path: Path) -> None:
    folder = written(tmp_path, write_lines)
    assert open_log(folder) is open_log(folder)


RESPONSES: Rows = [
    {"task_id": "t/0", "worker": "dear", "response": "It is 2."},
    {"task_id": "t/0", "worker": "cheap", "response": None},
]


@WRITERS
def test_responses_are_read_when_asked_for(tmp_path: Path, write: Write) -> None:
    log = OutcomeLog.read(written(tmp_path, write))
    with pytest.raises(ConfigError, match="responses"):
        log.responses("dear")
    write(tmp_path, "responses", RESPONSES)
    assert log.responses("dear") == {"t/0": "It is 2."}
    assert log.responses("cheap") == {"t/0": None}


def test_two_different_responses_are_refused(tmp_path: Path) -> None:
    log = OutcomeLog.read(written(tmp_path, write_lines))
    write_lines(tmp_path, "responses", [RESPONSES[0], RESPONSES[0] | {"response": "It is 3."}])
    with pytest.raises(ConfigError, match="'t/0' by 'dear' has two different responses"):
        log.responses("dear")


def of(task_id: str) -> Request:
    return Request(Task("1 + 1?", id=task_id), "Answer the question.")


def replayed(folder: Path, name: str, **settings: object) -> ReplayWorker:
    made = replay.ReplaySettings.model_validate({"log": folder, **settings})
    return replay.build(made, Card(name), SecretStore({}))


async def fault_of(worker: ReplayWorker, task_id: str) -> WorkerError:
    with pytest.raises(WorkerError) as caught:
        await worker.perform(of(task_id))
    return caught.value


async def test_replay_answers_as_recorded(tmp_path: Path) -> None:
    written(tmp_path, write_lines)
    reply = await replayed(tmp_path, "dear").perform(of("t/1"))
    assert (reply.text, reply.usage, reply.dollars, reply.model) == ("4", Usage(10, 50), 0.02, "dear")
    assert (await replayed(tmp_path, "another", worker="dear").perform(of("t/0"))).text == "2"


@pytest.mark.parametrize("task_id", ["t/9", "", "t/1"])
async def test_replay_without_a_record_is_a_typed_fault(tmp_path: Path, task_id: str) -> None:
    fault = (await fault_of(replayed(written(tmp_path, write_lines), "cheap"), task_id)).fault
    assert fault.kind is FaultKind.NO_RECORD
    assert f"'cheap' on task '{task_id}'" in fault.message


async def test_replay_of_a_worker_that_gave_no_answer_is_empty_and_costs_what_it_cost(tmp_path: Path) -> None:
    rows = [*OUTCOMES, outcome("t/1", "cheap", None, 0.0, cost_usd=0.5)]
    worker = replayed(written(tmp_path, write_lines, rows), "cheap")
    for task_id, dollars in (("t/0", None), ("t/1", 0.5)):
        fault = (await fault_of(worker, task_id)).fault
        assert (fault.kind, fault.tokens, fault.dollars) == (FaultKind.EMPTY, 15, dollars)


async def test_an_answer_without_a_visible_character_is_replayed_in_quotes_and_has_its_score(tmp_path: Path) -> None:
    rows = [*OUTCOMES, outcome("t/1", "cheap", " ", 1.0)]
    worker = replayed(written(tmp_path, write_lines, rows), "cheap")
    answer = (await worker.perform(of("t/1"))).text
    assert (answer, OutcomeLog.read(tmp_path).recorded_score("t/1", answer)) == ("' '", 1.0)


async def test_a_log_of_scores_alone_is_replayed_by_name_and_has_its_scores(tmp_path: Path) -> None:
    rows = [{"task_id": "t/0", "worker": name, "score": score} for name, score in (("cheap", 0.0), ("dear", 0.25))]
    written(tmp_path, write_lines, rows)
    answers = [(await replayed(tmp_path, name).perform(of("t/0"))).text for name in ("cheap", "dear")]
    log = OutcomeLog.read(tmp_path)
    assert [log.recorded_score("t/0", answer) for answer in answers] == [0.0, 0.25]
    assert log.recorded_score("t/0", "something else") is None


async def test_replay_may_reply_with_the_full_text(tmp_path: Path) -> None:
    written(tmp_path, write_lines)
    write_lines(tmp_path, "responses", RESPONSES)
    assert (await replayed(tmp_path, "dear", reply="response").perform(of("t/0"))).text == "It is 2."
    assert (await fault_of(replayed(tmp_path, "cheap", reply="response"), "t/0")).fault.kind is FaultKind.EMPTY
    assert (await fault_of(replayed(tmp_path, "dear", reply="response"), "t/1")).fault.kind is FaultKind.NO_RECORD


def test_replay_of_an_unknown_worker_lists_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match="known are cheap, dear"):
        replayed(written(tmp_path, write_lines), "deer")


def test_a_replay_card_bounds_every_recorded_call(tmp_path: Path) -> None:
    log = OutcomeLog.read(written(tmp_path, write_lines))
    card = replay_card(log, "dear")
    assert (card.kind, card.attempts, card.price) == ("replay", 1, Price(10, 20))
    assert card.max_output_tokens == 1_000  # 0.02 dollars at 20 dollars a million; more than the 60 tokens used
    assert replay_card(log, "cheap").price is None
    mine = replay.fit_card(replay.ReplaySettings(log=log.folder, worker="dear"), Card("mine", "the best"))
    assert (mine.name, mine.description, mine.max_output_tokens) == ("mine", "the best", 1_000)


def test_a_replay_card_of_a_worker_with_free_tokens_bounds_its_dollars_by_the_call(tmp_path: Path) -> None:
    folder = written(tmp_path, write_lines)
    (folder / "workers.toml").write_text("[workers.dear]\nprice_in = 0\nprice_out = 0\n")
    card = replay_card(OutcomeLog.read(folder), "dear")
    assert (card.price, card.max_output_tokens) == (Price(call=0.02), 60)


async def run_replay(log: OutcomeLog, name: str, caps: Caps) -> tuple[RunStatus, float | None]:
    pool = Pool([Member(replay_card(log, name), ReplayWorker(log, name))])
    run = await engine().run(log.task("t/1"), pool, ScriptedConductor([plan_of((0, ()))]), caps)
    return run.status, run.charged.dollars


@pytest.mark.parametrize(
    ("name", "dollars", "expected"),
    [
        ("dear", 1.0, (RunStatus.DONE, 0.02)),
        ("dear", 0.019, (RunStatus.CAPPED, 0.0)),
        ("cheap", 1.0, (RunStatus.CAPPED, 0.0)),
    ],
)
async def test_invariant_3_the_dollar_cap_holds_for_replayed_costs(
    tmp_path: Path, name: str, dollars: float, expected: tuple[RunStatus, float]
) -> None:
    log = OutcomeLog.read(written(tmp_path, write_lines))
    assert await run_replay(log, name, Caps(dollars=dollars)) == expected


@WRITERS
def test_a_log_may_be_read_for_some_workers_alone(tmp_path: Path, write: Write) -> None:
    log = OutcomeLog.read(written(tmp_path, write), ("dear",))
    assert log.workers == ("dear",)
    assert log.find("t/0", "dear") == OutcomeLog.read(tmp_path).find("t/0", "dear")
    with pytest.raises(UnknownName, match="known are cheap, dear"):
        OutcomeLog.read(tmp_path, ("dear", "nobody"))


@pytest.mark.parametrize("write", [write_lines, write_parquet])
def test_a_large_log_is_sampled_by_task_and_responses_follow(
    tmp_path: Path, write: Callable[[Path, str, Rows], None]
) -> None:
    tasks: Rows = [{"task_id": f"t{at}", "domain": "", "prompt": str(at)} for at in range(100)]
    cells = [(task["task_id"], worker) for task in tasks for worker in ("a", "b")]
    write(tmp_path, "tasks", tasks)
    write(tmp_path, "outcomes", [{"task_id": task, "worker": worker, "score": 1.0} for task, worker in cells])
    write(tmp_path, "responses", [{"task_id": task, "worker": worker, "response": "x"} for task, worker in cells])
    assert sample_tasks(tmp_path, 200) is None
    assert sample_tasks(tmp_path, 100, ["a"]) is None
    found = sample_tasks(tmp_path, 50)
    assert found is not None
    chosen, among = found
    assert (len(chosen), among) == (25, 100)
    assert sample_tasks(tmp_path, 50) == found
    larger = sample_tasks(tmp_path, 60)
    assert larger is not None
    assert chosen < larger[0]
    log = OutcomeLog.read(tmp_path, (), chosen)
    assert frozenset(log.task_ids) == frozenset(log.responses("b")) == chosen
    assert len(log) == 50
