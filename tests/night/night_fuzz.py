"""Coverage-guided fuzzing of all that reads foreign input: plans, streams, policies, importers, tasksets, configs.

    python tests/night/night_fuzz.py [--minutes 60] [--targets plan,sse] [--keep FOLDER] [--json]
    python tests/night/night_fuzz.py --replay TARGET FILE

Each target has a process of its own, in which atheris (libFuzzer) guides mutations by the edges of our code that they
reach; JSON and JSON Lines are mutated as values besides. The property of every target: what is no input of its kind is
one of the errors that its caller handles, within 1 second of processor time and 200 MB of memory. Whatever else comes
about is kept under FOLDER/findings and is told again without instrumentation before it counts. Deliberately absent:
fuzzing over HTTP (`tests/server/test_hostile_requests.py`).
"""

import argparse
import base64
import gzip
import json
import random
import re
import resource
import subprocess
import sys
import tempfile
import time
import traceback
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # what the readers import is imported where it is instrumented
    from pydantic import JsonValue

    from shikisha.core.messages import Json

ROOT = Path(__file__).parents[2]
# Where inputs to begin with are.
SEEDS = (
    "benchmarks",
    "tests/support",
    "tests/outcomes",
    "tests/evals",
    "plugins/code/tests",
    "plugins/published/tests",
)
sys.path += [str(ROOT / folder) for folder in SEEDS]

MOST_SECONDS = 1.0  # of processor time that an input may take
MOST_MEMORY = 200 * 2**20  # bytes that it may add
_LONGEST = 65_536  # bytes of an input
_STUCK = 20  # seconds after which libFuzzer gives an input up
_RESTARTS = 50  # of a target whose process ends
_ROUNDS, _ROUND = 3, 20  # how often each target has its turn, and seconds that a turn is worth
PART = b"\x1e\x1e\x1e"  # begins each file of an input that is several: its name, a line end, its content


@dataclass(frozen=True)
class Target:
    """A reader: how it is called, what it may raise, and inputs to begin with."""

    read: Callable[[bytes], object]
    seeds: Sequence[bytes]
    typed: tuple[type[BaseException], ...]


Open = Callable[[Path], Target]  # imports what it reads, so that only a target's own code is instrumented
TARGETS: dict[str, Open] = {}


def target(opened: Open) -> Open:
    """Register a target by its function's name."""
    TARGETS[opened.__name__.replace("_", "-")] = opened
    return opened


# Inputs of several files


def packed(files: Mapping[str, bytes]) -> bytes:
    """Return these files as one input."""
    return b"".join(PART + name.encode() + b"\n" + content for name, content in files.items())


def unpacked(data: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield the files of an input."""
    for part in data.split(PART)[1:]:
        name, _, content = part.partition(b"\n")
        yield name.decode("ascii", "replace"), content


def written(folder: Path, data: bytes, names: Sequence[str]) -> list[Path]:
    """Write those files of an input that may be called so into an emptied folder."""
    folder.mkdir(exist_ok=True)
    for old in folder.iterdir():
        old.unlink()
    found = []
    for name, content in unpacked(data):
        if name in names:
            (folder / name).write_bytes(content)
            found.append(folder / name)
    return list(dict.fromkeys(found))


def lines(*rows: object) -> bytes:
    """Return JSON Lines."""
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


# Targets


@target
def plan(_: Path) -> Target:
    """The plan parser, in both formats."""
    from shikisha.core.errors import PlanError
    from shikisha.core.plan_parser import parse_plan

    seeds = [
        b'model_id = [2, 0]\nsubtasks = ["find the year", "add 3 to it"]\naccess_list = [[], ["all"]]',
        b'{"steps": 1}\n</think>\n```python\nmodel_id = [0]  # one\nsubtasks = ["a\\n\\x41"]\naccess_list = [[]]\n```',
        b'{"reasoning": "", "steps": [{"worker": 2, "subtask": "x", "access": []}]}',
        b'{"steps": [{"worker": 0, "subtask": "y", "access": []}, {"worker": 1, "subtask": "z", "access": [0]}]}',
        b"model_id = []\nsubtasks = []\naccess_list = []",
        b"subtasks = ['''a'b''', \"\"\"c\"\"\"]; access_list = [[], [0,],]; model_id = [1, 1]",
    ]
    return Target(lambda data: parse_plan(data.decode("utf-8", "surrogatepass"), 4), seeds, (PlanError, UnicodeError))


@target
def sse(_: Path) -> Target:
    """The reader of event streams, and what a chat worker makes of the events, wherever the parts are cut."""
    from shikisha.core.call import Card
    from shikisha.core.errors import WorkerError
    from shikisha.workers.chat_reply import ChatReply, EventStreamParser
    from shikisha.workers.chat_usage import read_cost, stated_usage

    card = Card("w", kind="chat", max_output_tokens=100)

    def heard(data: bytes, size: int) -> tuple[str, str | None, object]:
        events, hearing = EventStreamParser(), ChatReply()
        for at in range(0, len(data), size):
            for each in events.take(data[at : at + size]):
                if each.startswith("[DONE]"):
                    hearing.ended = True
                    break
                if hearing.take(each) is not None:
                    return "error", None, None
        hearing.ended = hearing.ended or any(each.startswith("[DONE]") for each in events.take(b"\n\n"))
        usage = stated_usage(hearing.usage, (), card)
        if usage is not None:
            read_cost(hearing.usage, usage, card)
        objection = hearing.objection()
        return hearing.text, None if objection is None else str(objection), usage

    def read(data: bytes) -> None:
        step = data[0] % 7 + 1 if data else 1
        found = []
        for size in (len(data) or 1, step):
            try:
                found.append(heard(data, size))
            except (ValueError, RecursionError, WorkerError):
                found.append(("error", None, None))
        if len(data) < 4_096 and b"[DONE]" not in data:  # what follows the end marker in one part is read to its end
            assert found[0][:2] == found[1][:2], f"cut every {step} bytes it is {found[1]}, else {found[0]}"

    chunk = {"id": "x", "model": "m", "choices": [{"index": 0, "delta": {"content": "Hi"}, "finish_reason": None}]}
    call = {"index": 0, "id": "c", "function": {"name": "look", "arguments": "{}"}}
    called = {"choices": [{"delta": {"tool_calls": [call]}, "finish_reason": "tool_calls"}]}
    usage = {"prompt_tokens": 3, "completion_tokens": 2, "cost": 0.1, "prompt_tokens_details": {"cached_tokens": 1}}
    seeds = [
        b"".join(b"data: " + json.dumps(each).encode() + b"\n\n" for each in events) + b"data: [DONE]\n\n"
        for events in ([chunk, called], [chunk, {"choices": [], "usage": usage}], [{"error": {"code": 429}}])
    ]
    return Target(read, [*seeds, b"\xef\xbb\xbfdata: {}\r\n\r\n: x\r\rdata:1\ndata:2\n\n"], (ValueError, WorkerError))


@target
def policy(place: Path) -> Target:
    """The reader of policy files: members of a good file replaced one by one, or another archive altogether."""
    from shikisha.core.errors import ConfigError
    from shikisha.routing.policy_file import parse_policy, serialize_policy

    base = place / "base.policy"
    if not base.exists():
        from panels import panel
        from policies import of_every_kind

        base.write_bytes(serialize_policy(of_every_kind(panel(tasks=60))))
    with zipfile.ZipFile(base) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    members["policy.json"] = json.dumps(json.loads(members["policy.json"])).encode()

    def read(data: bytes) -> None:
        if not data.startswith(PART):
            parse_policy(data, "here")
            return
        buffer = BytesIO()
        with zipfile.ZipFile(buffer, "w") as archive:
            changed = dict(unpacked(data))
            for name, content in {**members, **changed}.items():
                if content:
                    archive.writestr(name.replace("\0", "") or "x", content)
        serialize_policy(parse_policy(buffer.getvalue(), "here"))

    seeds = [packed({name: content}) for name, content in members.items() if len(content) < 8_192]
    return Target(read, [*seeds, base.read_bytes()[:_LONGEST]], (ConfigError,))


@target
def policy_shelf(place: Path) -> Target:
    """What says which policy of a shelf acts."""
    from shikisha.core.errors import ConfigError
    from shikisha.routing import policy_registry
    from shikisha.routing.policy_registry import ChangeAuthor, PolicyRegistry, RegisteredPolicy

    shelf = PolicyRegistry().with_policy(
        RegisteredPolicy(version="0123456789ab", name="a.policy"), ChangeAuthor(who="us", at=1.0, why="tried")
    )
    folder = place / "shelf"

    def read(data: bytes) -> None:
        folder.mkdir(exist_ok=True)
        (folder / policy_registry.REGISTRY_FILE).unlink(missing_ok=True)
        (folder / policy_registry.REGISTRY_FILE).write_bytes(data)
        policy_registry.read_registry(folder)

    return Target(read, [shelf.model_dump_json().encode()], (ConfigError,))


def importer(kind: str, seeds: Callable[[], Sequence[Mapping[str, bytes]]], score: str | None = None) -> None:
    """Register the importer of this kind; the log that it writes must be one that can be read."""

    def opened(place: Path) -> Target:
        from shikisha.core.errors import ShikishaError
        from shikisha.outcomes.importers.importer_registry import import_outcomes
        from shikisha.outcomes.importers.source_files import Sources
        from shikisha.outcomes.log_reader import OutcomeLog

        names = [f"{name}{suffix}" for name in "ab" for suffix in (".jsonl", ".json", ".csv", ".zip", ".parquet")]

        def read(data: bytes) -> None:
            files = written(place / "in", data, names)
            named = score if data.endswith(b" ") else None
            import_outcomes(
                kind, Sources([str(file) for file in files], named), place / "log", as_lines=True, replace=True
            )
            try:
                OutcomeLog.read(place / "log")
            except ShikishaError as error:
                raise AssertionError(f"the log that was written cannot be read: {error}") from error

        return Target(read, [packed(files) for files in seeds()], (ShikishaError,))

    TARGETS[f"import-{kind}"] = opened


def _csv(rows: Sequence[Mapping[str, object]]) -> bytes:
    import csv
    import io

    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, list(rows[0]))
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode()


def _parquet(rows: Sequence[Mapping[str, object]]) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    buffer = BytesIO()
    pq.write_table(pa.Table.from_pylist([dict(row) for row in rows]), buffer, compression="none")
    return buffer.getvalue()


def _zip(name: str, content: bytes) -> bytes:
    buffer = BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(name, content)
    return buffer.getvalue()


def _routellm() -> list[dict[str, bytes]]:
    from test_importers_files import BATTLE
    from test_published_importers import verdicts

    rows = [verdicts("Q", True, False), verdicts('Q "2"', "False", 1)]
    battle = {**BATTLE, "prompt": '["Hi", "More?"]', "response_a": '["Ho", null]', "response_b": "x", "winner_tie": 0}
    return [{"a.csv": _csv(rows)}, {"a.jsonl": lines({**battle, "winner_model_b": 0})}]


def _routerbench() -> list[dict[str, bytes]]:
    from test_published_importers import WIDE

    return [{"a.csv": _csv(WIDE)}, {"a.parquet": _parquet(WIDE)}]


def _llmrouter() -> list[dict[str, bytes]]:
    from test_published_importers import CANDIDATES, ROUTED

    scores = {"question": "Q", "scores": {"a": 1.0, "b": 0.25}}
    code = {"metric": "code_eval", "choices": "['assert f() == 1']", "ground_truth": ["assert f() == 1"]}
    worked = {"metric": "GSM8K", "choices": "", "gt": "2 + 2 = <<2+2=4>>4\n#### 4", "ground_truth": None}
    return [
        {"a.jsonl": lines(ROUTED, ROUTED | code), "b.json": json.dumps(CANDIDATES).encode()},
        {"a.json": json.dumps([scores]).encode()},
        {"a.csv": _csv([ROUTED | worked])},
    ]


def _mmlu_pro() -> list[dict[str, bytes]]:
    from test_published_importers import asked

    rows = json.dumps([asked(70, "B"), asked(71, None)]).encode()
    return [{"a.json": rows}, {"a.zip": _zip("two.json", rows)}]


def _zeroeval() -> list[dict[str, bytes]]:
    from test_published_importers import said

    rows = [
        {"id": 4, "question": "Q?", "answer": right, "dataset": dataset, "output": [output]}
        for dataset, right, output in (
            ("gsm", "# 18", said('"$18.00 a day"')),
            ("math-l5", "\\frac{1}{2}", "So it is $\\boxed{7}$."),
            ("crux", "[1]", said("[1]")),
        )
    ]
    choices = {"id": "r", "question": "Q?", "choices": ["x", "y"], "correct_answer": "y", "dataset": "mmlu-redux"}
    grid = {"id": "lgp-1", "puzzle": "There are 2 services.", "dataset": "zebra-grid", "output": [said('"x"')]}
    more = [choices | {"output": [said('"B) y"'), said('"A"')]}, grid]
    return [{"a.json": json.dumps([row]).encode()} for row in (*rows, *more)]


def _litellm() -> list[dict[str, bytes]]:
    from test_importers_usage import spent

    request = json.dumps({"system": "Be brief.", "messages": [{"role": "user", "content": "Hi?"}]})
    cells = {name: json.dumps(value) if isinstance(value, dict | list) else value for name, value in spent().items()}
    return [
        {"a.jsonl": lines(spent(), spent(response={"output": [{"type": "message", "content": "Ho"}]}))},
        {"a.json": json.dumps([spent(messages="{}", proxy_server_request=request)]).encode()},
        {"a.csv": _csv([cells | {"request_duration_ms": 250}])},
        {"a.jsonl": lines(spent(startTime=0, endTime=1.0)) + b" "},
    ]


def _otel() -> list[dict[str, bytes]]:
    from test_importers_usage import ASKED, CHAT, FULL, TOLD, evaluation, export, happened, logs, span

    older = happened("gen_ai.user.message", content="Weather?")
    prompts = {"gen_ai.prompt.0.role": "user", "gen_ai.prompt.0.content": "Weather?", "gen_ai.completion": "Rain."}
    record = {"traceId": "t", "spanId": "s1", **evaluation(1.0), "eventName": "gen_ai.evaluation.result"}
    return [
        {"a.jsonl": lines(export(span(FULL, evaluation(0.75))))},
        {"a.json": json.dumps(export(span(CHAT | {"gen_ai.input.messages": ASKED} | prompts, older))).encode()},
        {"a.jsonl": lines(logs(record)), "b.jsonl": lines(export(span(CHAT | {"gen_ai.output.messages": TOLD})))},
    ]


def _openinference() -> list[dict[str, bytes]]:
    from test_importers_named import ASKED, FLAT, SAID
    from test_importers_usage import export, span

    row = {"span_kind": "LLM", "start_time": "2026-11-01T12:00:00Z", "end_time": 1.9e18, "status_code": "OK"}
    column = {"attributes.llm.model_name": "m", "attributes.llm.input_messages": ASKED, "eval.Right.score": 1.0}
    nested = {"llm": {"model_name": "m", "output_messages": SAID}, "input": {"value": '{"messages": "Hi"}'}}
    return [
        {"a.jsonl": lines(row | {"end_time": None} | column)},
        {"a.json": json.dumps([{"attributes": FLAT}, {"attributes": nested, "status": {"code": 2}}]).encode()},
        {"a.parquet": _parquet([row | column])},
        {"a.jsonl": lines(export(span(FLAT))) + b" "},
    ]


def _table() -> list[dict[str, bytes]]:
    row = {"prompt": "Q", "model": "m", "score": 1, "response": "four", "reference": "4", "id": "a", "cost": 0.5}
    return [{"a.csv": _csv([row])}, {"a.jsonl": lines(row, {**row, "model": "n"})}, {"a.parquet": _parquet([row])}]


importer("routellm", _routellm)
importer("table", _table, "score")
importer("routerbench", _routerbench)
importer("llmrouter", _llmrouter)
importer("mmlu-pro", _mmlu_pro)
importer("zeroeval", _zeroeval)
importer("litellm", _litellm, "metadata.feedback.thumbs")
importer("otel", _otel, "Correctness")
importer("openinference", _openinference, "Right")


@target
def import_journal(place: Path) -> Target:
    """Journals as others hand them over: any cell of any row changed, any byte of the file."""
    import asyncio
    import sqlite3

    from shikisha.core.errors import ShikishaError
    from shikisha.outcomes.importers.importer_registry import import_outcomes
    from shikisha.outcomes.importers.source_files import Sources

    base = place / "base.db"
    if not base.exists():
        asyncio.run(_journal(base))
        with sqlite3.connect(base) as opened:
            opened.execute("PRAGMA journal_mode = DELETE")
        opened.close()
    held = base.read_bytes()
    with sqlite3.connect(base) as opened:
        tables = [name for (name,) in opened.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        columns = {name: [row[1] for row in opened.execute(f"PRAGMA table_info({name})")] for name in tables}
        cells = [
            ["cell", table, column, row, value]
            for table in tables
            if not table.startswith(("sqlite", "run_words"))  # the word index is SQLite's own business
            for column in columns[table]
            for row, value in opened.execute(f"SELECT rowid, {column} FROM {table} LIMIT 12")  # noqa: S608 - our own names
            if isinstance(value, str | int | float | None)
        ]
    opened.close()

    def read(data: bytes) -> None:
        file = place / "in.db"
        for suffix in ("", "-wal", "-shm"):
            file.with_name(f"in.db{suffix}").unlink(missing_ok=True)
        content = bytearray(held)
        try:
            edits = [json.loads(line) for line in data.splitlines()]
        except (ValueError, RecursionError):
            return
        for edit in edits:
            if isinstance(edit, list) and len(edit) == 3 and edit[0] == "byte":
                with suppress(TypeError, ValueError, IndexError):
                    content[edit[1] % len(content)] = edit[2] % 256
        file.write_bytes(content)
        with suppress(sqlite3.Error, OverflowError, TypeError), sqlite3.connect(file) as changing:
            for edit in edits:
                if isinstance(edit, list) and len(edit) == 5 and edit[1] in columns and edit[2] in columns[edit[1]]:
                    value = json.dumps(edit[4]) if isinstance(edit[4], dict | list) else edit[4]
                    changing.execute(f"UPDATE {edit[1]} SET {edit[2]} = ? WHERE rowid = ?", (value, edit[3]))  # noqa: S608 - our own names
        with suppress(NameError):
            changing.close()
        import_outcomes("journal", Sources([str(file)]), place / "log", as_lines=True, replace=True)

    seeds = [lines(cell) for cell in cells] + [lines(["byte", at, 255]) for at in (90, 5000, 9000, 20000)]
    return Target(read, seeds, (ShikishaError,))


async def _journal(path: Path) -> None:
    from shikisha.conductors.fixed_conductors import ScriptedConductor
    from shikisha.core.task import Task
    from shikisha.journal import open_journal
    from support import engine, plan_of, pool_of

    async with open_journal(str(path)) as journal:
        for number in range(2):
            await engine(journal).run(
                Task(f"What is {number}?"), pool_of(a="42"), ScriptedConductor([plan_of((0, ()))])
            )


def taskset(known: str, rows: Callable[[], Sequence[Mapping[str, object]]]) -> None:
    """Register a taskset: its items must have graders that can be built and prompts that can be shown."""

    def opened(place: Path) -> Target:
        from shikisha.core.errors import ShikishaError
        from shikisha.evals.graders import GraderTools
        from shikisha.evals.tasksets.taskset_loader import load_taskset
        from shikisha.sandbox import ScriptedSandbox

        names = [f"test{suffix}" for suffix in (".jsonl", ".json", ".csv", ".jsonl.gz", ".parquet")]
        tools = GraderTools(sandbox=ScriptedSandbox([]))

        def read(data: bytes) -> None:
            for file in written(place / "in", data, names)[:1]:
                for item in load_taskset(f"{known}:{file}", tools=tools):
                    assert item.task.prompt

        said = rows()
        seeds = [packed({"test.jsonl": lines(row)}) for row in said]
        if known in ("gsm8k", "own"):  # the files' formats are everybody's
            plain = [row for row in said if all(isinstance(value, str) for value in row.values())]
            seeds += [packed({"test.parquet": _parquet(plain[:1])}), packed({"test.csv": _csv(plain[:1])})]
            seeds.append(packed({"test.jsonl.gz": gzip.compress(lines(said[0]), mtime=0)}))
        return Target(read, seeds, (ShikishaError,))

    TARGETS[f"taskset-{known}"] = opened


def _own() -> list[dict[str, object]]:
    answers = {"number": "4", "choice": "B", "math": "\\frac{1}{2}", "text": "Paris"}
    told: list[dict[str, object]] = [
        {"checker": kind, "answer": answer, "id": kind} for kind, answer in answers.items()
    ]
    told += [
        {"checker": "json_schema", "schema": SCHEMA, "labels": ["a"], "context": "x"},
        {"checker": "pattern", "check": {"pattern": "^a+$"}, "split": "test"},
        {"checker": "code", "check": {"style": "asserts", "asserts": ["assert f(1) == 2"]}},
    ]
    return [{"prompt": "What?", **each} for each in told]


def register_tasksets() -> None:
    """Register every set, with the row that its own tests read."""
    from shikisha.evals.tasksets.taskset_loader import LAYOUTS

    for known in (known for known, layout in LAYOUTS.items() if layout.make_item):

        def rows(known: str = known) -> list[Mapping[str, object]]:
            import test_code_layouts
            import test_published_layouts

            prose = [each.row for each in test_published_layouts.PROSE if each.name == known]
            return prose + [each.row for each in test_code_layouts.SETS if each.name == known]

        taskset(known, rows)
    taskset("own", _own)


@target
def taskset_swebench(place: Path) -> Target:
    """Predictions and the harness's reports."""
    from shikisha.core.errors import ShikishaError
    from shikisha_code import swebench

    names = ("predictions.jsonl", "preds.json", "m.run.json", "report.json")

    def read(data: bytes) -> None:
        written(place / "in", data, names)
        len(swebench.swebench_taskset(place / "in"))

    row = {"instance_id": "a__b-1", "model_patch": "diff --git", "model_name_or_path": "m"}
    told = {"resolved_ids": ["a__b-1"], "unresolved_ids": [], "total_instances": 1}
    return Target(
        read,
        [
            packed({"predictions.jsonl": lines(row), "m.run.json": json.dumps(told).encode()}),
            packed({"preds.json": json.dumps({"a__b-1": row}).encode()}),
        ],
        (ShikishaError,),
    )


@target
def outcome_log(place: Path) -> Target:
    """Outcome logs: tasks, outcomes, responses, prices."""
    from test_outcomes import OUTCOMES, PRICES, TASKS

    from shikisha.core.errors import ShikishaError
    from shikisha.outcomes.log_reader import OutcomeLog

    names = ("tasks.jsonl", "outcomes.jsonl", "responses.jsonl", "workers.toml", "tasks.parquet", "outcomes.parquet")

    def read(data: bytes) -> None:
        written(place / "in", data, names)
        log = OutcomeLog.read(place / "in")
        for worker in log.workers:
            list(log.outcomes_of(worker))
            log.responses(worker)
        for task in log.task_ids:
            log.task(task), log.gold(task)

    response = {"task_id": "t/0", "worker": "dear", "response": "2"}
    tables = {"tasks.jsonl": lines(*TASKS), "outcomes.jsonl": lines(*OUTCOMES), "responses.jsonl": lines(response)}
    columns = {"tasks.parquet": _parquet(TASKS), "outcomes.parquet": _parquet(OUTCOMES)}
    return Target(
        read,
        [packed({**tables, "workers.toml": PRICES.encode()}), packed({**columns, "responses.jsonl": lines(response)})],
        (ShikishaError,),
    )


@target
def config(place: Path) -> Target:
    """`shikisha.toml`: as TOML, and as the values that a TOML file can hold (an input that is JSON)."""
    from shikisha.config.container import load_config
    from shikisha.config.template import TEMPLATE
    from shikisha.core.errors import ShikishaError

    whole = re.sub(r"(?m)^#(?=[\w\[])", "", TEMPLATE)
    file = place / "shikisha.toml"

    def read(data: bytes) -> None:
        if data.startswith(b"{"):
            with suppress(ValueError, RecursionError):
                data = as_toml(json.loads(data)).encode("utf-8", "replace")
        file.write_bytes(data)
        load_config(file, {"OPENAI_API_KEY": "k"})

    import tomllib

    return Target(
        read,
        [json.dumps(tomllib.loads(whole), default=str).encode(), whole.encode(), TEMPLATE.encode()],
        (ShikishaError,),
    )


def as_toml(value: object, depth: int = 0) -> str:
    """Return a value as TOML; null, which TOML lacks, is an empty text."""
    match value:
        case dict() if depth == 0:
            return "".join(f"{json.dumps(str(key))} = {as_toml(each, 1)}\n" for key, each in value.items())
        case dict():
            return "{" + ", ".join(f"{json.dumps(str(key))} = {as_toml(each, 1)}" for key, each in value.items()) + "}"
        case list():
            return "[" + ", ".join(as_toml(each, 1) for each in value) + "]"
        case bool() | str():
            return json.dumps(value)
        case int() | float():
            return str(value)
        case _:
            return '""'


@target
def config_litellm(place: Path) -> Target:
    """A LiteLLM proxy's model_list, in YAML and JSON, and that the workers made of it are TOML of ours."""
    import tomllib

    from shikisha.config.litellm import import_models, load_yaml
    from shikisha.core.errors import ShikishaError

    def read(data: bytes) -> None:
        file = place / ("config.json" if data.startswith(b"{") else "config.yaml")
        file.write_bytes(data)
        tomllib.loads(import_models(load_yaml(file)).toml())

    entry = {
        "model_name": "gpt",
        "litellm_params": {"model": "openai/gpt-5", "api_key": "os.environ/MY_KEY", "temperature": 0.2, "rpm": 120},
        "model_info": {"input_cost_per_token": 1.25e-6, "output_cost_per_token": 1e-5, "max_input_tokens": 128000},
    }
    said = {"model_list": [entry], "router_settings": {"fallbacks": [{"gpt": ["gpt"]}]}}
    yaml = "model_list:\n- &a\n  model_name: x\n  litellm_params: {model: ollama/x, api_base: 'http://h:1'}\n- *a\n"
    return Target(read, [json.dumps(said).encode(), yaml.encode()], (ShikishaError,))


@target
def chat_request(_: Path) -> Target:
    """The body of `/v1/chat/completions`, up to the task that is made of it."""
    from shikisha.core.errors import ShikishaError
    from shikisha.server.chat.conversation import task_from_chat
    from shikisha.server.chat.schema import ChatRequest, check_supported
    from shikisha.server.http.api_errors import ApiError
    from shikisha.server.http.request import parse_json, validate_as

    def read(data: bytes) -> None:
        raw = parse_json(data)
        check_supported(raw)
        task_from_chat(validate_as(raw, ChatRequest))

    tool = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}, "strict": True}}
    call = {"id": "c", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    schema = {"type": "json_schema", "json_schema": {"name": "a", "schema": SCHEMA, "strict": True}}
    seeds: list[dict[str, object]] = [
        {"messages": [{"role": "user", "content": "What?"}], "stream": True, "stream_options": {"include_usage": True}},
        {
            "messages": [
                {"role": "system", "content": "Be brief."},
                {"role": "user", "content": [{"type": "text", "text": "x"}, {"type": "image_url", "image_url": IMAGE}]},
                {"role": "assistant", "tool_calls": [call]},
                {"role": "tool", "content": "42", "tool_call_id": "c"},
            ],
            "tools": [tool],
            "tool_choice": "auto",
            "temperature": 0.5,
            "stop": ["x"],
            "metadata": {"a": "b"},
        },
        {"messages": [{"role": "user", "content": "What?"}], "response_format": schema, "seed": 7, "max_tokens": 9},
    ]
    return Target(
        read, [json.dumps({"model": "shikisha", **seed}).encode() for seed in seeds], (ApiError, ShikishaError)
    )


IMAGE = {"url": "data:image/png;base64,aGVsbG8=", "detail": "low"}
SCHEMA: dict[str, object] = {
    "type": "object",
    "properties": {"a": {"$ref": "#/$defs/b"}, "c": {"type": "array", "items": {"enum": [1, "x"]}, "minItems": 1}},
    "required": ["a"],
    "additionalProperties": False,
    "$defs": {"b": {"type": ["string", "null"], "pattern": "^a+$", "maxLength": 9}},
}


@target
def schema(_: Path) -> Target:
    """The door for foreign schemas, and what an answer is found to be by one that was let in."""
    import asyncio

    from shikisha.core.errors import ShikishaError
    from shikisha.core.json_schema import SchemaCheck, parse_json

    async def judged(schema: "Mapping[str, Json]", documents: "Sequence[JsonValue]") -> None:
        check = await SchemaCheck.create(schema, "here")
        for document in documents:
            await check.problem(document)

    def read(data: bytes) -> None:
        try:
            first, *documents = [parse_json(line.decode()) for line in data.splitlines()] or [None]
        except (ValueError, RecursionError):
            return
        if isinstance(first, dict):
            with suppress(TimeoutError):
                asyncio.run(judged(first, documents[:4]))

    doubled = {f"d{at}": {"allOf": [{"$ref": f"#/$defs/d{at + 1}"}] * 2} for at in range(6)}
    seeds: list[dict[str, object]] = [
        SCHEMA,
        {"$ref": "#/$defs/d0", "$defs": {**doubled, "d6": {"type": "object", "minProperties": 1}}},
        {"$defs": {"a": {"not": {"$ref": "#/$defs/a"}}}, "anyOf": [{"const": 1}, {"$ref": "#/$defs/a"}]},
        {"if": {"required": ["a"]}, "then": {"dependentRequired": {"a": ["b"]}}, "unevaluatedProperties": False},
        {"$id": "http://x/y", "$anchor": "z", "$dynamicRef": "#z", "prefixItems": [True], "contains": {"minimum": 1}},
        {"patternProperties": {"^(a+)+$": {"multipleOf": 0.1}}, "propertyNames": {"maxLength": 3}, "uniqueItems": True},
    ]
    documents: tuple[object, ...] = ({"a": "aaa", "c": [1]}, [1, 1.0, True], "x" * 40 + "!")
    return Target(read, [lines(seed, *documents) for seed in seeds], (ShikishaError,))


@target
def responses_request(_: Path) -> Target:
    """The body of `/v1/responses`, up to the task that is made of it."""
    from shikisha.core.errors import ShikishaError
    from shikisha.server.http.api_errors import ApiError
    from shikisha.server.http.request import parse_json, validate_as
    from shikisha.server.responses.input_conversation import task_from_response
    from shikisha.server.responses.schema import ResponseRequest

    seeds: list[dict[str, object]] = [
        {"input": "What?", "instructions": "Be brief.", "text": {"format": {"type": "text"}}, "background": False},
        {
            "input": [
                {"role": "user", "content": [{"type": "input_text", "text": "x"}]},
                {"type": "function_call", "call_id": "c", "name": "look", "arguments": "{}"},
                {"type": "function_call_output", "call_id": "c", "output": "42"},
                {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "y"}]},
                {"role": "user", "content": [{"type": "input_image", "image_url": IMAGE["url"]}]},
            ],
            "tools": [{"type": "function", "name": "look", "parameters": {"type": "object"}}],
            "reasoning": {"effort": "low", "summary": "auto"},
            "text": {"format": {"type": "json_schema", "name": "a", "schema": SCHEMA}, "verbosity": "low"},
            "include": ["reasoning.encrypted_content"],
            "metadata": {"a": "b"},
        },
    ]
    return Target(
        lambda data: task_from_response(validate_as(parse_json(data), ResponseRequest)),
        [json.dumps({"model": "shikisha", **seed}).encode() for seed in seeds],
        (ApiError, ShikishaError),
    )


@target
def run_request(_: Path) -> Target:
    """The bodies of our own routes."""
    from shikisha.core.errors import ShikishaError
    from shikisha.server.http.api_errors import ApiError
    from shikisha.server.http.request import parse_json, validate_as
    from shikisha.server.runs.schema import DecisionRequest, RunRequest

    def read(data: bytes) -> None:
        raw = parse_json(data)
        for model in (RunRequest, DecisionRequest):
            with suppress(ApiError):
                validate_as(raw, model)

    seeds: list[object] = [
        {"prompt": "What?", "answer_schema": SCHEMA, "conductor": "x", "budgets": {"dollars": 1.0, "seconds": 2}},
        {"prompt": "What?", "context": "x", "labels": ["a"], "pool": ["a"], "metadata": {"a": "b"}},
        {"approved": True, "text": "42", "remark": "yes"},
    ]
    return Target(read, [json.dumps(seed).encode() for seed in seeds], (ApiError, ShikishaError))


@target
def checkpoint(place: Path) -> Target:
    """A checkpoint of training: manifest, facts, tensors, card."""
    import torch
    from safetensors.torch import save

    from shikisha.core.errors import ShikishaError
    from shikisha_train import checkpoint, model_card, model_loader

    names = ("tensors.safetensors", "facts.json", "card.json", "model.safetensors")
    folder = place / "steps" / "step-000001"

    def read(data: bytes) -> None:
        (folder / "state").mkdir(parents=True, exist_ok=True)
        files = {"facts.json": b"{}", "tensors.safetensors": save({}), **dict(unpacked(data))}
        hashes = {}
        for name in names:
            at = folder / (name if name in ("card.json", "model.safetensors") else f"state/{name}")
            at.write_bytes(files.get(name, b""))
            hashes[str(at.relative_to(folder))] = checkpoint.hash_file(at)
        manifest = files.get(
            "manifest.json", json.dumps({"format": checkpoint.CHECKPOINT_FORMAT, "files": hashes}).encode()
        )
        (folder / "state" / "manifest.json").write_bytes(manifest)
        checkpoint.CheckpointStore(place / "steps", 3, lambda _: None).read(checkpoint.CheckpointName(1))
        if "card.json" in files:
            model_loader._read_start_card(folder)

    told = {"format": model_card.CARD_FORMAT, "what": "x", "metrics": {"a": 1}}
    seeds = [
        packed(
            {"tensors.safetensors": save({"a": torch.zeros(2, 3), "b": torch.ones(1)}), "facts.json": b'{"step": 1}'}
        ),
        packed({"card.json": json.dumps(told).encode()}),
        packed({"manifest.json": json.dumps({"format": 1, "files": {"card.json": "0"}}).encode()}),
    ]
    return Target(read, seeds, (ShikishaError,))


# Mutations of values

_JUNK: Sequence[object] = (
    None, True, False, 0, -1, 1, 2, 0.5, -0.0, 1e308, 1e-320, float("nan"), float("inf"), 2**31, 2**53 + 1, 2**63,
    2**64, 10**400, "", " ", "0", "-1", "1e999", "NaN", "null", "true", "\x00", "\ud800", "\ud83d\ude00", "é", "[",
    "{}", "[[]]", "a" * 300, "9" * 5000, "2025-03-01T12:00:00Z", "0001-01-01T00:00:00+14:00",
    "9999-12-31T23:59:59-14:00", [], {}, [[]], [None], {"": None}, {"a": {"a": {}}}, [1, "a"], "²", "१", "#### ",
    "\\boxed{", "'", '"', "A. ", "(((", "a|b", "../x",
)  # fmt: skip


def mutated(data: bytes, room: int, seed: int, plainly: Callable[[bytes, int], bytes]) -> bytes:
    """Mutate a JSON value somewhere in the input, or the bytes plainly."""
    rng = random.Random(seed)
    pieces = re.split(b"(\x1e\x1e\x1e|\n)", data)
    places = [at for at, piece in enumerate(pieces) if piece[:1] in (b"{", b"[")]
    if not places or rng.random() < 0.25:
        return plainly(data, room)
    at = rng.choice(places)
    try:
        value = json.loads(pieces[at])
    except (ValueError, RecursionError):
        return plainly(data, room)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        value = _changed(value, rng, plainly)
    try:
        pieces[at] = json.dumps(value).encode()
    except (ValueError, RecursionError):
        return plainly(data, room)
    if rng.random() < 0.1:
        pieces.insert(at, pieces[at] + b"\n")
    made = b"".join(pieces)
    return made if len(made) <= room else plainly(data, room)


def _changed(value: object, rng: random.Random, plainly: Callable[[bytes, int], bytes]) -> object:
    """Change one place of a value, the deeper ones as likely as those above."""
    match value:
        case dict() if value and rng.random() < 0.85:
            key = rng.choice(list(value))
            match rng.randrange(12):
                case 0:
                    return {name: each for name, each in value.items() if name != key}
                case 1:
                    return {
                        (rng.choice(list(value)) + "x" if name == key else name): each for name, each in value.items()
                    }
                case 2:
                    return {**value, key: value[rng.choice(list(value))]}
                case 3:
                    return {**value, str(rng.choice(_JUNK))[:40]: rng.choice(_JUNK)}
                case _:
                    return {**value, key: _changed(value[key], rng, plainly)}
        case list() if value and rng.random() < 0.85:
            at = rng.randrange(len(value))
            match rng.randrange(8):
                case 0:
                    return value[:at] + value[at + 1 :]
                case 1:
                    return value[:at] + [value[at]] * rng.choice((2, 2, 20)) + value[at:]
                case 2:
                    return rng.sample(value, len(value))
                case _:
                    return [*value[:at], _changed(value[at], rng, plainly), *value[at + 1 :]]
        case str() if rng.random() < 0.6:
            return _changed_text(value, rng, plainly)
        case int() | float() if rng.random() < 0.4 and not isinstance(value, bool):
            return rng.choice((-value, value + 1, value * 10, value / 2 if abs(value) < 2**60 else 0))
    found = rng.choice(_JUNK)
    for _ in range(rng.choice((0, 0, 0, 0, 1, 80))):
        found = [found] if rng.random() < 0.5 else {"a": found}
    return found


def _changed_text(text: str, rng: random.Random, plainly: Callable[[bytes, int], bytes]) -> str:
    with suppress(ValueError, RecursionError):
        inner = json.loads(text)
        if isinstance(inner, dict | list) and rng.random() < 0.7:
            return json.dumps(_changed(inner, rng, plainly))
    if len(text) > 40 and rng.random() < 0.5:
        with suppress(ValueError, zlib.error):  # LiveCodeBench's private tests: a compressed text in base64
            inside = zlib.decompressobj().decompress(base64.b64decode(text, validate=True), 2**20)
            return base64.b64encode(zlib.compress(plainly(inside, len(inside) + 64))).decode()
    held = text.encode("utf-8", "surrogatepass")
    return plainly(held, len(held) + 32).decode("utf-8", "surrogateescape" if rng.random() < 0.2 else "replace")


# One target in a process


@dataclass
class Watch:
    """Runs inputs and keeps what breaks the property, once for each place in the code."""

    name: str
    target: Target
    folder: Path
    seen: Counter[str] = field(default_factory=Counter)

    def one(self, data: bytes) -> str | None:
        """Read an input and return what was found, if anything."""
        before, begun = _peak(), time.process_time()
        found = None
        try:
            self.target.read(data)
        except self.target.typed:
            pass
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 - whatever nobody foresaw is what is looked for
            found = _place_of(error)
        seconds, grown = time.process_time() - begun, _peak() - before
        if found is None and seconds > MOST_SECONDS:
            found = f"slow: {seconds:.1f} s of processor time"
        if found is None and grown > MOST_MEMORY:
            found = f"large: {grown / 2**20:.0f} MB"
        if found is not None:
            self._keep(found, data)
        return found

    def _keep(self, found: str, data: bytes) -> None:
        key = re.sub(r"[\d.]+ ", "", found) if found.startswith(("slow", "large")) else found.partition(" | ")[0]
        self.seen[key] += 1
        name = f"{self.name}-{sha256(key.encode()).hexdigest()[:10]}"
        kept = self.folder / f"{name}.input"
        if not kept.exists() or len(data) < kept.stat().st_size:
            kept.write_bytes(data)
            (self.folder / f"{name}.json").write_text(json.dumps({"target": self.name, "what": found, "key": key}))


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _place_of(error: BaseException) -> str:
    """Return an error's type and the innermost places, ours and whoever's."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if "/shikisha/" in frame.filename]
    place = next((f"{Path(f.filename).name}:{f.name}" for f in reversed(ours)), "?")
    last = f"{Path(frames[-1].filename).name}:{frames[-1].name}" if frames else "?"
    return f"{type(error).__name__} in {place} ({last}) | {str(error)[:200]}"


def fuzz_here(name: str, folder: Path, arguments: Sequence[str]) -> None:
    """Fuzz one target in this process, instrumented; libFuzzer ends it."""
    import atheris

    with atheris.instrument_imports(include=["shikisha", "tomllib", "zipfile", "pickletools", "csv"]):
        place = folder / "work" / name
        place.mkdir(parents=True, exist_ok=True)
        register_tasksets()
        watch = Watch(name, TARGETS[name](place), folder / "findings")
    corpus, seeds = folder / "corpus" / name, folder / "seeds" / name
    for each in (corpus, seeds, watch.folder):
        each.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(watch.target.seeds):
        (seeds / f"{number:03}").write_bytes(seed)
        watch.one(seed)  # whatever is imported or cached at the first call is no input's fault

    def run(data: bytes) -> None:
        watch.one(data)

    def mutate(data: bytes, room: int, seed: int) -> bytes:
        made: bytes = mutated(data, room, seed, atheris.Mutate)
        return made

    resource.setrlimit(resource.RLIMIT_AS, (6 * 2**30, 6 * 2**30))
    prefix = f"-artifact_prefix={watch.folder}/{name}-"
    fixed = [f"-max_len={_LONGEST}", f"-timeout={_STUCK}", "-rss_limit_mb=3000", "-print_final_stats=1", prefix]
    atheris.Setup([sys.argv[0], str(corpus), str(seeds), *fixed, *arguments], run, custom_mutator=mutate)
    atheris.Fuzz()


def replay(name: str, data: bytes) -> str | None:
    """Run one input in this process without instrumentation and return what was found, if anything."""
    with tempfile.TemporaryDirectory() as folder:
        register_tasksets()
        place = Path(folder) / "work"
        place.mkdir()
        watch = Watch(name, TARGETS[name](place), Path(folder))
        for seed in watch.target.seeds:
            watch.one(seed)
        resource.setrlimit(resource.RLIMIT_AS, (6 * 2**30, 6 * 2**30))
        return watch.one(data)


# All targets, one after another


@dataclass
class Tally:
    """What one target came to."""

    runs: int = 0
    edges: int = 0
    seconds: float = 0.0
    restarts: int = 0


def fuzz(names: Sequence[str], seconds: float, folder: Path, say: Callable[[str], None]) -> dict[str, Tally]:
    """Fuzz these targets, so many seconds together, in processes of their own; corpora stay in the folder.

    In rounds: a corpus that one round leaves is what the next begins with.
    """
    tallies = {name: Tally() for name in names}
    rounds = max(1, min(_ROUNDS, round(seconds / len(names) / _ROUND)))
    turns = [name for _ in range(rounds) for name in names]
    begun = time.monotonic()
    for number, name in enumerate(turns):
        left = seconds - (time.monotonic() - begun)
        tally, share = tallies[name], max(1.0, left / (len(turns) - number))
        _fuzz_one(name, share, folder, tally)
        told = f"{tally.runs:,} inputs, {tally.edges:,} edges, {tally.seconds:.0f} s, {tally.restarts} restarts"
        say(f"round {number // len(names) + 1} of {rounds}: {name}: {told}")
    return tallies


def _fuzz_one(name: str, seconds: float, folder: Path, tally: Tally) -> None:
    begun = time.monotonic()
    while tally.restarts < _RESTARTS and (left := seconds - (time.monotonic() - begun)) > 1:
        command = [sys.executable, __file__, "--fuzz-here", name, "--keep", str(folder)]
        given = subprocess.run([*command, f"-max_total_time={max(1, round(left))}"], capture_output=True, check=False)  # noqa: S603 - our own script
        said = given.stderr.decode(errors="replace")
        tally.runs += sum(map(int, re.findall(r"number_of_executed_units: (\d+)", said)[-1:]))
        tally.edges = max([tally.edges, *map(int, re.findall(r"cov: (\d+)", said))])
        (folder / f"{name}.log").write_text(said[-100_000:])
        if given.returncode == 0:
            break
        tally.restarts += 1
    tally.seconds += time.monotonic() - begun


def confirmed(folder: Path) -> list[str]:
    """Return each finding that comes about without instrumentation too, in a process of its own."""
    found = []
    for kept in sorted((folder / "findings").iterdir()):
        name = next((each for each in sorted(TARGETS, key=len, reverse=True) if kept.name.startswith(f"{each}-")), None)
        if kept.suffix == ".json" or name is None:
            continue
        command = [sys.executable, __file__, "--replay", name, str(kept)]
        try:
            again = subprocess.run(command, capture_output=True, timeout=120, check=False)  # noqa: S603 - our own script
            if again.returncode != 0:
                told = again.stdout.decode(errors="replace").strip() or f"the process ended with {again.returncode}"
                found.append(f"{name}: {told} ({kept})")
        except subprocess.TimeoutExpired:
            found.append(f"{name}: no end within 120 s ({kept})")
    return found


def main() -> int:
    """Fuzz, confirm, report; 1 where something was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--targets", default="")
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--fuzz-here", metavar="TARGET")
    parser.add_argument("--replay", nargs=2, metavar=("TARGET", "FILE"))
    parser.add_argument("--list", action="store_true")
    options, rest = parser.parse_known_args()
    if options.replay:
        found = replay(options.replay[0], Path(options.replay[1]).read_bytes())
        print(found or "nothing found")
        return int(found is not None)
    if options.fuzz_here:
        fuzz_here(options.fuzz_here, options.keep, [each for each in rest if each.startswith("-max_total_time")])
        return 0
    register_tasksets()
    if options.list:
        print("\n".join(TARGETS))
        return 0
    names = options.targets.split(",") if options.targets else list(TARGETS)
    with tempfile.TemporaryDirectory() as scratch:
        return night(names, 60 * options.minutes, options.keep or Path(scratch))


def night(names: Sequence[str], seconds: float, folder: Path) -> int:
    """Fuzz these targets and print what came of it; how many findings there are."""
    from common import Figure, report

    folder.mkdir(parents=True, exist_ok=True)
    begun = time.monotonic()
    tallies = fuzz(names, seconds, folder, lambda said: print(said, flush=True))
    found = confirmed(folder)
    for each in found:
        print(f"FOUND {each}")
    figures = [
        Figure("targets", len(tallies), ""),
        Figure("inputs", sum(each.runs for each in tallies.values()), ""),
        Figure("edges of our code reached, summed over targets", sum(each.edges for each in tallies.values()), ""),
        Figure("minutes", (time.monotonic() - begun) / 60, "min"),
        Figure("findings", len(found), "", 0),
    ]
    report("coverage-guided fuzzing", figures)
    return len(found)


if __name__ == "__main__":
    sys.exit(min(1, main()))
