"""How long `learn` takes: real pools, and a large one of recorded workers with noisy copies.

    python benchmarks/learn_speed.py [--workers 124] [--tasks 500]
    python benchmarks/learn_speed.py --large 32000 [--large 250000]     # the command `learn` on a log of so many tasks
    python benchmarks/learn_speed.py --curve                            # what more tasks bring

A large log has MP13's 13 workers; its tasks are recorded ones with a number behind the prompt, so that each counts as
a task of its own (simulated copies: what is learned is not a result, the time and memory are). The curve fits the
combined dial on 1,000, 2,000, 4,000 and all but a fifth of MP13's tasks and evaluates on the fifth, paired by task.

Needs `../shared/recorded` and the extra `learn`. The large pool has the 31 recorded workers of MMLU-Pro and copies of
them that give another worker's answer on a fifth of the tasks (simulated copies). Processor seconds of the whole
selection and of the baselines, on one core.
"""

import argparse
import resource
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from shutil import copy
from tempfile import TemporaryDirectory
from time import perf_counter, process_time

import numpy as np

from common import machine
from recorded_pools import MP13
from routers_sets import FOLDER, SETS
from shikisha.outcomes.log_reader import OutcomeLog
from shikisha.outcomes.table_files import ColumnSpec, ColumnType, TableLine, read_columns, save_table
from shikisha.routing.fit.baselines import measure_baselines
from shikisha.routing.fit.cost_frontier import BUDGETS, paired_gain
from shikisha.routing.fit.model_selection import (
    LearningOptions,
    assign_folds,
    candidate_names,
    fit_candidates,
    replay_settings,
    select_policy,
    single_threaded_blas,
)
from shikisha.routing.fit.outcome_matrix import OutcomeMatrix, build_outcome_matrix
from shikisha.routing.policy_data import COMBINED

SPOILT = 0.2
_TASK_COLUMNS = ("task_id", "domain", "prompt", "answer", "answer_kind")
_TEXTS = tuple((name, ColumnType.TEXT) for name in ("task_id", "worker", "answer", "cost_kind"))
_NUMBERS = (
    ("score", ColumnType.NUMBER),
    ("input_tokens", ColumnType.WHOLE),
    ("output_tokens", ColumnType.WHOLE),
    ("cost_usd", ColumnType.NUMBER),
)


def enlarged(panel: OutcomeMatrix, workers: int) -> OutcomeMatrix:
    """Return the panel with noisy copies of its workers, in turn, until there are so many."""
    random, own = np.random.default_rng(0), len(panel.workers)
    columns = np.arange(workers) % own
    names = tuple(f"{panel.workers[place]} #{number // own}" for number, place in enumerate(columns))
    wide = replace(panel.select_workers([panel.workers[place] for place in columns]), workers=names)
    other = random.integers(0, own, (len(panel), workers))
    spoilt = (random.random((len(panel), workers)) < SPOILT) & (np.arange(workers) >= own)
    rows = np.arange(len(panel))[:, None]
    codes, scores = (np.where(spoilt, table[rows, other], getattr(wide, name)) for name, table in _answers(panel))
    return replace(wide, codes=codes, scores=scores)


def _answers(panel: OutcomeMatrix) -> tuple[tuple[str, np.ndarray], tuple[str, np.ndarray]]:
    return ("codes", panel.codes), ("scores", panel.scores)


def write_large(folder: Path, tasks: int) -> None:
    """Write a log of so many tasks: those of MP13 in turn, as copies with a number of their own."""
    source = FOLDER / SETS["MP13"]
    texts = read_columns(source, "tasks", [ColumnSpec(name) for name in _TASK_COLUMNS])
    columns = (*_TEXTS, *_NUMBERS)
    specs = [ColumnSpec(name, kind, nullable=True) for name, kind in columns]
    table = read_columns(source, "outcomes", specs, {"worker": set(MP13)})
    rows: dict[str, list[TableLine]] = {}
    for place, task_id in enumerate(table.text("task_id")):
        row: TableLine = {
            name: (table.texts if name in table.texts else table.numbers)[name][place] for name, _ in columns
        }
        rows.setdefault(task_id, []).append(row)
    ids = texts.text("task_id")

    def copies() -> Iterator[tuple[int, str]]:
        return ((number, ids[number % len(ids)]) for number in range(tasks))

    def task_lines() -> Iterator[TableLine]:
        for number, _ in copies():
            line = {name: texts.texts[name][number % len(ids)] for name in _TASK_COLUMNS}
            yield {**line, "task_id": f"{line['task_id']}#{number}", "prompt": f"{line['prompt']}\n\n({number})"}

    def outcome_lines() -> Iterator[TableLine]:
        for number, task_id in copies():
            yield from ({**row, "task_id": f"{task_id}#{number}"} for row in rows.get(task_id, ()))

    save_table(folder, "tasks", dict.fromkeys(_TASK_COLUMNS, ColumnType.TEXT), task_lines())
    save_table(folder, "outcomes", dict(columns), outcome_lines())
    copy(source / "workers.toml", folder)


def large(tasks: int, options: Sequence[str]) -> None:
    """Run `shikisha learn` on a large log in a process of its own; print its CPU seconds and peak of memory."""
    with TemporaryDirectory() as made:
        folder = Path(made)
        (folder / "log").mkdir()
        write_large(folder / "log", tasks)
        command = [sys.executable, "-m", "shikisha", "learn", str(folder / "log"), "--out", str(folder / "o.policy")]
        begun = perf_counter()
        ended = subprocess.run([*command, *options], capture_output=True, text=True, check=False)  # noqa: S603  our own
        took = perf_counter() - begun
    if ended.returncode:
        sys.exit(ended.stderr)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(
        f"learn, {len(MP13)} workers x {tasks:,} tasks: {used.ru_utime + used.ru_stime:.0f} s of processor time, "
        f"{took:.0f} s by the clock, peak {used.ru_maxrss / 2**20:.2f} GB",
        flush=True,
    )


def curve() -> None:
    """Print what the combined dial brings on a fifth of MP13's tasks, by the number of tasks that it was fitted on."""
    panel = build_outcome_matrix(OutcomeLog.read(FOLDER / SETS["MP13"], MP13), MP13)
    folds = assign_folds(panel.hashes, "curve")
    test, rest = panel.at(np.flatnonzero(folds == 0)), np.flatnonzero(folds != 0)
    order = rest[np.argsort([panel.hashes[row] for row in rest], kind="stable")]
    unit = panel.cost_unit()
    fronts = {}
    for tasks in (1_000, 2_000, 4_000, len(order)):
        begun = process_time()
        with single_threaded_blas():
            train = panel.at(np.sort(order[:tasks]))
            fitted = fit_candidates(train, LearningOptions(), candidate_names(train)[0])
        dial = fitted.dials[COMBINED]
        outcomes = replay_settings(fitted, dial.points, test, unit)
        fronts[tasks] = outcomes.frontier(outcomes.corrected(dial), BUDGETS)
        print(f"{tasks:,} tasks: area {fronts[tasks].area:.4f}, {process_time() - begun:.0f} s", flush=True)
    most = max(fronts)
    for tasks in sorted(fronts)[:-1]:
        gain = paired_gain("", fronts[most], fronts[tasks], test.hashes)
        print(f"{most:,} over {tasks:,} tasks: {gain.mean:+.4f} [{gain.low:+.4f}, {gain.high:+.4f}]")


def main() -> None:
    """Print the seconds."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--workers", type=int, default=124)
    parser.add_argument("--tasks", type=int, default=500)
    parser.add_argument("--large", type=int, action="append", metavar="TASKS")
    parser.add_argument("--curve", action="store_true")
    parser.add_argument("options", nargs="*", help="options of learn, behind --")
    arguments = parser.parse_args()
    if arguments.curve:
        curve()
    for tasks in arguments.large or ():
        large(tasks, arguments.options)
    if arguments.curve or arguments.large:
        return
    panel = build_outcome_matrix(OutcomeLog.read(FOLDER / SETS["MP13"]), whole=True)
    rows = np.sort(np.argsort(np.array(panel.hashes), kind="stable")[: arguments.tasks])
    held = enlarged(panel.at(rows), arguments.workers)
    print(f"Learning from {len(held):,} tasks of {len(held.workers)} workers ({machine()})")
    begun, wall = process_time(), perf_counter()

    def progress(what: str) -> None:
        print(f"  {process_time() - begun:6.1f} s: {what}", flush=True)

    policy = select_policy(held, report=progress)
    progress(f"selected: {policy.kept}")
    measure_baselines(held, 0, progress)
    progress(f"baselines measured; wall time {perf_counter() - wall:.0f} s")


if __name__ == "__main__":
    main()
