"""The recipe for verl, as far as it goes without verl: rows are written and read back, plans are worth 0, 0.5 or 1."""

import inspect
import json
import re
import subprocess
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import cast

import pytest
from paths import ROOT
from pyarrow import parquet
from test_train_cli import ROWS, WORKERS

from shikisha.core.errors import CapReached, ConfigError
from shikisha.core.plan import Plan, Step
from shikisha.core.prompts import render_plan_lists
from shikisha.core.task import Task
from shikisha.evals.taskset import content_key
from shikisha_train.settings import load_settings

HERE = ROOT
VERL = HERE / "examples" / "verl"
TRAINING = """
[model]
start = "Qwen/Qwen2.5-7B-Instruct"
brief = false
[tasks]
set = "turns.jsonl"
judged = 2
"""
Row = dict[str, dict[str, object]]
Scores = Callable[..., Awaitable[dict[str, float]]]


def loaded(name: str) -> ModuleType:
    """The file as verl loads it."""
    spec = spec_from_file_location(f"verl_{name}", VERL / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "turns.toml").write_text(TRAINING)
    (tmp_path / "turns.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    (tmp_path / "shikisha.toml").write_text(WORKERS)
    monkeypatch.setenv("SHIKISHA_TRAINING", str(tmp_path / "turns.toml"))
    monkeypatch.setenv("SHIKISHA_REWARDS", str(tmp_path / "rewards"))
    return tmp_path


async def rows(folder: Path, count: int = 6) -> list[Row]:
    dataset = loaded("dataset")
    files = dataset.written(*await dataset.tasks(folder / "turns.toml", count), folder / "data")
    assert [file.name for file in files] == ["train.parquet", "val.parquet"]
    return [cast("Row", row) for file in files for row in parquet.read_table(file).to_pylist()]


def asking(row: Row, worker: str) -> str:
    """A plan that asks one worker of the row's pool."""
    pool = cast("list[str]", row["extra_info"]["pool"])
    return f"I think so.\n{render_plan_lists(Plan((Step('say it', pool.index(worker)),)))}"


async def score(reward: ModuleType, row: Row, text: str) -> dict[str, float]:
    """What verl does with a completion."""
    call = partial(cast("Scores", reward.compute_score))
    assert inspect.iscoroutinefunction(call)
    truth = row["reward_model"]["ground_truth"]
    extra = {**row["extra_info"], "num_turns": None, "rollout_reward_scores": {}}
    return await call(data_source=row["data_source"], solution_str=text, ground_truth=truth, extra_info=extra)


async def test_a_row_shows_what_training_shows(folder: Path) -> None:
    found = await rows(folder)
    assert [row["extra_info"]["split"] for row in found] == ["train"] * 6 + ["val"] * 2
    assert [row["extra_info"]["index"] for row in found] == [*range(6), 0, 1]
    for row in found:
        system, user = cast("list[dict[str, str]]", row["prompt"])
        assert (system["role"], user["role"], str(row["data_source"])) == ("system", "user", "shikisha/turns")
        assert "model_id" in system["content"]
        assert user["content"].count("\nModel ") == len(cast("list[str]", row["extra_info"]["pool"]))
    assert len({str(row["reward_model"]["ground_truth"]) for row in found}) == 8


async def test_a_right_plan_a_wrong_one_and_none_are_worth_1_a_half_and_0(folder: Path) -> None:
    found, reward = await rows(folder), loaded("reward")
    for row in found:
        pool = cast("list[str]", row["extra_info"]["pool"])
        gold = next(str(each["answer"]) for each in ROWS if each["id"] == row["extra_info"]["task"])
        for worker in pool:
            told = await score(reward, row, asking(row, worker))
            assert told == {**told, "score": 1.0 if worker == gold else 0.5, "acc": worker == gold, "valid": 1.0}
            assert told["dollars"] == pytest.approx({"left": 0.01, "right": 0.02, "other": 0.08}[worker])
        for broken in (
            "",
            "model_id = [0]\nsubtasks = ['x']",
            asking(row, pool[-1]).replace(f"[{len(pool) - 1}]", "[9]"),
        ):
            assert (await score(reward, row, broken))["score"] == 0
    await reward.shared().aclose()


async def test_rows_of_another_file_are_refused(folder: Path) -> None:
    row, *_ = await rows(folder)
    (folder / "turns.toml").write_text(f"seed = 7\n{TRAINING}")
    reward = loaded("reward")
    with pytest.raises(ConfigError, match="row train 0: another task or pool than its prompt showed"):
        await score(reward, row, "")
    await reward.shared().aclose()


async def test_processes_keep_replies_apart_and_share_the_dollars(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "turns.toml").write_text(f"{TRAINING}[spend]\ndollars = 0.1\n")
    monkeypatch.setenv("SHIKISHA_REWARD_WORKERS", "2")
    found = [row for row in await rows(folder, 30) if "other" in cast("list[str]", row["extra_info"]["pool"])]
    cheap = next(name for name in cast("list[str]", found[0]["extra_info"]["pool"]) if name != "other")
    for reward in (processes := [loaded("reward"), loaded("reward")]):
        await score(reward, found[0], asking(found[0], cheap))
        with pytest.raises(CapReached, match=r"the \$0\.05 that training may cost"):  # 0.08 a call
            await score(reward, found[0], asking(found[0], "other"))
    for reward in processes:
        await reward.shared().aclose()
    kept = [folder / "rewards" / name / "calls-0.jsonl" for name in "01"]
    assert [len(path.read_text().splitlines()) for path in kept] == [1, 1]


@pytest.mark.parametrize(("times", "score_then", "spoilt"), [(1, 1.0, 0.0), (9, 0.5, 1.0)])
async def test_a_worker_that_fails_is_asked_anew_and_in_the_end_counted(
    folder: Path, times: int, score_then: float, spoilt: float
) -> None:
    broken = WORKERS.replace('answers = "left"', f'answers = "left"\nfaults = {["auth"] * times}')
    (folder / "shikisha.toml").write_text(broken)
    found, reward = await rows(folder), loaded("reward")
    row = next(each for each in found if shows(each, "left"))
    told = await score(reward, row, asking(row, "left"))
    assert (told["score"], told["spoilt"]) == (score_then, spoilt)
    await reward.shared().aclose()


def shows(row: Row, worker: str) -> bool:
    """Whether the worker is the right one, and in the row's pool."""
    task, pool = row["extra_info"]["task"], cast("list[str]", row["extra_info"]["pool"])
    return worker in pool and {"id": task, "answer": worker}.items() <= next(r for r in ROWS if r["id"] == task).items()


@pytest.mark.full
def test_rows_of_a_recipe_by_the_command_line(tmp_path: Path) -> None:
    recipe = HERE / "recipes" / "conductor-7b.toml"
    (tmp_path / "tasks.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    (tmp_path / "shikisha.toml").write_text(WORKERS)
    own = tmp_path / "own.toml"
    own.write_text(recipe.read_text().replace("judged = 200", "judged = 2"))
    command = [sys.executable, str(VERL / "dataset.py"), str(own), "--count", "4", "--out", "data"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=100)  # noqa: S603 - our own
    assert (done.returncode, done.stdout.split()) == (0, ["data/train.parquet", "data/val.parquet"]), done.stderr
    found = parquet.read_table(tmp_path / "data" / "train.parquet").to_pylist()
    known = {content_key(Task(str(row["prompt"]))) for row in ROWS if row["split"] == "train"}
    assert {row["reward_model"]["ground_truth"] for row in found} < known
    command[2] = "nothing.toml"
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=100)  # noqa: S603 - our own
    assert (done.returncode, done.stderr.strip()) == (
        1,
        "dataset.py: nothing.toml: cannot be read: No such file or directory",
    )


def test_what_the_script_says_is_what_the_recipe_says() -> None:
    script, table = (VERL / "train.sh").read_text(), load_settings(HERE / "recipes" / "conductor-7b.toml").grpo
    told = dict(re.findall(r"^ +([\w.]+)=(\S+) \\$", script, re.M))
    assert float(told["actor_rollout_ref.actor.optim.lr"]) == table.rate
    assert told["actor_rollout_ref.actor.optim.lr_scheduler_type"] == table.schedule
    assert float(told["actor_rollout_ref.actor.optim.lr_warmup_steps_ratio"]) == table.warmup
    assert float(told["actor_rollout_ref.actor.clip_ratio_high"]) == table.clip
    assert int(told["actor_rollout_ref.rollout.n"]) == table.group
    assert float(told["actor_rollout_ref.rollout.temperature"]) == table.temperature
    assert int(told["data.train_batch_size"]) == table.tasks
    assert int(told["data.max_response_length"]) == table.longest
    assert int(told["trainer.total_training_steps"]) == table.steps
    assert f"--count {table.steps * table.tasks} " in script
