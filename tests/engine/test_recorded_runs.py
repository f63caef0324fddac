"""Recorded answers of real models, through the engine: it must come to what pandas computes, to the task.

The files are described in `../shared/recorded/README.md` and are no part of the project; without them these tests skip.
"""

import json
import subprocess
import sys

import pytest
from paths import ROOT

from shikisha.core.call import Request
from shikisha.core.errors import FaultKind, WorkerError
from shikisha.outcomes.log_reader import OutcomeLog, open_log
from shikisha.workers.replay import ReplayWorker, replay_card

FOLDER = ROOT.parent / "shared" / "recorded"
SETS = ("mmlu-pro", "zeroeval", "llmrouter", "routellm-mmlu")

pytestmark = [
    pytest.mark.recorded,
    pytest.mark.skipif(not FOLDER.is_dir(), reason=f"no recorded answers in {FOLDER}"),
]


@pytest.fixture(scope="module")
def lines() -> list[dict[str, object]]:
    """What the benchmark prints for 500 tasks of each set."""
    command = [sys.executable, str(ROOT / "benchmarks" / "recorded.py"), "--json", "--folder", str(FOLDER)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)  # noqa: S603 - our own script
    assert ended.returncode == 0, ended.stderr
    found: list[dict[str, object]] = json.loads(ended.stdout)
    return found


@pytest.mark.full
@pytest.mark.parametrize("topology", ["single", "vote", "fan-out-join", "cascade"])
@pytest.mark.parametrize("name", ["mmlu-pro", "zeroeval"])
def test_the_engine_comes_to_what_pandas_computes(lines: list[dict[str, object]], name: str, topology: str) -> None:
    mine = [line for line in lines if line["set"] == name and str(line["topology"]).startswith(f"{topology}?")]
    assert mine
    for line in mine:
        assert (line["tasks"], line["differs"]) == (500, 0)
        assert line["engine"] == line["pandas"]


def test_the_tasks_and_their_scores_are_the_ones_we_know(lines: list[dict[str, object]]) -> None:
    """Numbers counted once by hand in the files, so that engine and pandas cannot agree on something else."""
    right = {line["topology"]: line["engine"] for line in lines}
    assert right["single?worker=gpt4o@hist"] == 371
    assert right["single?worker=gpt-4o-2024-08-06"] == 421


@pytest.mark.parametrize(
    ("name", "outcomes", "workers", "tasks"),
    [
        ("mmlu-pro", 258_918, 31, 8_398),
        ("zeroeval", 57_304, 29, 1_976),
        ("llmrouter", 37_728, 9, 4_192),
        ("routellm-mmlu", 19_528, 2, 9_764),
    ],
)
def test_every_recorded_set_is_read(name: str, outcomes: int, workers: int, tasks: int) -> None:
    log = open_log(FOLDER / name)
    assert (len(log), len(log.workers), len(log.task_ids)) == (outcomes, workers, tasks)


def bound_by(log: OutcomeLog, worker: str) -> bool:
    card = replay_card(log, worker)
    dollars = card.max_output_tokens * card.price.output / 1e6 if card.price else 0.0
    return all(
        (outcome.usage is None or outcome.usage.total <= card.max_output_tokens) and (outcome.dollars or 0.0) <= dollars
        for outcome in log.outcomes_of(worker)
    )


@pytest.mark.full
@pytest.mark.parametrize("name", [pytest.param("mmlu-pro", marks=pytest.mark.slow), "zeroeval"])
def test_replay_cards_bound_every_call_that_was_recorded(name: str) -> None:
    log = open_log(FOLDER / name)
    assert all(replay_card(log, worker).price is not None for worker in log.workers)
    assert all(bound_by(log, worker) for worker in log.workers)


async def test_what_a_worker_was_never_asked_is_unknown_and_not_wrong() -> None:
    log = open_log(FOLDER / "mmlu-pro")
    worker = ReplayWorker(log, "DeepSeek-Coder-V2")
    kinds: list[FaultKind | None] = []
    for task_id in log.task_ids:
        try:
            await worker.perform(Request(log.task(task_id), "Answer the question."))
            kinds.append(None)
        except WorkerError as error:
            kinds.append(error.fault.kind)
    assert kinds.count(FaultKind.NO_RECORD) == 8_398 - 7_230
    assert kinds.count(FaultKind.EMPTY) == 46
