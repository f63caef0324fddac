"""Several processes on one evaluation: what is printed is no sample, nobody is left behind, nothing is paid twice."""

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from time import monotonic, sleep

import pytest
from evaluated import ROWS, SPLIT, TWO, Evaluated, accuracies

TALKATIVE = "def grade(answer, prompt, gold):\n    print('grading', answer)\n    return '4' in answer\n"


@pytest.mark.parametrize("processes", ["1", "2"])
def test_what_a_users_function_prints_is_no_part_of_the_report(tmp_path: Path, processes: str) -> None:
    (tmp_path / "talkative_grading.py").write_text(TALKATIVE)
    rows = [{**row, "checker": "entry_point", "function": "talkative_grading:grade"} for row in SPLIT]
    evaluated = Evaluated(tmp_path, rows=[{k: v for k, v in row.items() if k != "answer"} for row in rows])
    line = evaluated.line("--json", "-", "--processes", processes)
    environ = {**os.environ, "PYTHONPATH": str(tmp_path)}
    command = [sys.executable, "-m", "shikisha", *line]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)  # noqa: S603 - our own
    assert done.returncode == 0, done.stderr
    found = {entry["name"]: entry for entry in json.loads(done.stdout)["entries"]}
    assert accuracies(found, "wise", "rash") == [1.0, 0.0]
    assert "grading It is 4." in done.stderr


@pytest.mark.full
@pytest.mark.parametrize(("first", "then"), [("2", "3"), ("3", "1")])
def test_another_number_of_processes_finds_every_reply(tmp_path: Path, first: str, then: str) -> None:
    evaluated = Evaluated(tmp_path)
    asked = ("--conductor", "three=fixed:vote?workers=wise&n=3&join=vote")
    before = evaluated.entries("--processes", first, *asked)
    calls, samples = evaluated.calls, tmp_path / "kept" / "samples.jsonl"
    samples.unlink()  # every run has to be played again
    after = evaluated.entries("--processes", then, *asked)
    assert evaluated.calls == calls
    assert [(name, each["accuracy"], each["dollars"]) for name, each in after.items()] == [
        (name, each["accuracy"], each["dollars"]) for name, each in before.items()
    ]


@pytest.mark.full
def test_torn_lines_in_several_files_cost_the_torn_replies_alone(tmp_path: Path) -> None:
    evaluated = Evaluated(tmp_path)
    before = evaluated.entries("--processes", "2")
    calls = evaluated.calls
    for path in (tmp_path / "kept").glob("*.jsonl"):
        path.write_bytes(path.read_bytes()[:-7])
    after = evaluated.entries("--processes", "2")
    keys = Counter(
        json.loads(line)["key"]
        for path in (tmp_path / "kept").glob("calls-*.jsonl")
        for line in path.read_text().splitlines()
    )
    assert (sum(keys.values()) <= calls, max(keys.values())) == (True, 1)
    assert accuracies(after, *before) == accuracies(before, *before)


def _children(process: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{process}/task/{process}/children").read_text().split()]


def _runs(process: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{process}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_no_process_is_left_behind_when_the_first_one_ends(tmp_path: Path, how: signal.Signals) -> None:
    slow = TWO.replace("price = { call = 0.25 }", "price = { call = 0.25 }\nseconds = [300]\ntimeout = 300")
    evaluated = Evaluated(tmp_path, slow, ROWS)
    command = [sys.executable, "-m", "shikisha", *evaluated.line("--processes", "2")]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:  # noqa: S603 - our own
        deadline = monotonic() + 60
        while len(_children(process.pid)) < 2 or not list((tmp_path / "kept").glob("calls-[12].jsonl")):
            assert monotonic() < deadline, "two processes should play"
            sleep(0.05)
        children = _children(process.pid)
        process.send_signal(how)
        process.wait(60)
    while any(map(_runs, children)):
        assert monotonic() < deadline + 30, "they should have ended with the one that started them"
        sleep(0.05)
