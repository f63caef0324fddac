"""The same evaluation over a local Ray cluster of two nodes comes to the samples of one process."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

CONFIG = """
[workers.wise]
kind = "scripted"
answers = "It is 4."
price = { call = 0.25 }
[workers.rash]
kind = "scripted"
answers = "It must be 5."
price = { call = 0.01 }
"""
CLUSTER = """
import subprocess, sys, warnings
warnings.simplefilter("ignore")
from ray.cluster_utils import Cluster
cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
cluster.add_node(num_cpus=1)
assert len(cluster.list_all_nodes()) == 2
command = [sys.executable, "-m", "shikisha", *sys.argv[1:], "--ray", cluster.address]
done = subprocess.run(command, capture_output=True, text=True)
cluster.shutdown()
sys.stderr.write(done.stderr)
sys.stdout.write(done.stdout)
sys.exit(done.returncode)
"""

pytestmark = pytest.mark.slow


def evaluation(folder: Path, name: str) -> list[str]:
    rows = [{"id": f"t{n}", "prompt": f"{n}: 2 + 2?", "checker": "number", "answer": "4"} for n in range(300)]
    (folder / "tasks.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "shikisha.toml").write_text(CONFIG)
    line = ["eval", "--config", str(folder / "shikisha.toml"), "--taskset", str(folder / "tasks.jsonl")]
    line += ["--keep", str(folder / name), "--json", str(folder / f"{name}.json")]
    return [
        *line,
        "--conductor",
        "fixed:chain?workers=rash,wise",
        "--conductor",
        "fixed:vote?workers=wise&n=3&join=vote",
    ]


def samples(folder: Path, name: str) -> dict[tuple[str, str], dict[str, object]]:
    found = [json.loads(line) for line in (folder / name / "samples.jsonl").read_text().splitlines()]
    timed = {"seconds", "paid"}
    return {(s["entrant"], s["task_id"]): {k: v for k, v in s.items() if k not in timed} for s in found}


def run(*command: str, folder: Path | None = None) -> None:
    quiet = {**os.environ, "RAY_DISABLE_IMPORT_WARNING": "1", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
    line = [sys.executable, *command]
    done = subprocess.run(line, capture_output=True, text=True, env=quiet, check=False, cwd=folder)  # noqa: S603 - our own
    assert done.returncode == 0, done.stderr


def test_a_cluster_of_two_nodes_comes_to_the_samples_of_one_process(tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="needs the extra ray")
    run("-m", "shikisha", *evaluation(tmp_path, "alone"))
    run("-c", CLUSTER, *evaluation(tmp_path, "cluster"))
    assert samples(tmp_path, "cluster") == samples(tmp_path, "alone")
    parts = sorted(path.name for path in (tmp_path / "cluster").glob("calls-ray-*.jsonl"))
    assert parts == ["calls-ray-0.jsonl", "calls-ray-1.jsonl"]  # both worked
    assert all((tmp_path / "cluster" / part).read_text() for part in parts)


def test_paths_on_a_cluster_begin_where_the_command_was_given(tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="needs the extra ray")
    line = [word.removeprefix(f"{tmp_path}/") for word in evaluation(tmp_path, "cluster")]
    run("-c", CLUSTER, *line, folder=tmp_path)
    parts = sorted(path.name for path in (tmp_path / "cluster").glob("calls-ray-*.jsonl"))
    assert parts == ["calls-ray-0.jsonl", "calls-ray-1.jsonl"]
