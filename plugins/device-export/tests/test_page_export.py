"""The page that decides on a device: what is written, what is refused, and that it decides as the package does."""

import json
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnxruntime  # type: ignore[import-untyped]
import pytest
from policies import policy
from typer.testing import CliRunner

from shikisha.cli import app
from shikisha.config.container import load_config
from shikisha.core.errors import ConfigError
from shikisha.routing.policy_file import load_policy, save_policy
from shikisha.routing.state import TaskBatch
from shikisha.routing.text_features import PROMPT_BUCKETS, hash_prompts
from shikisha_device_export.page_export import PAGE_FOLDER, RUNTIME_FILES, WebExport, policy_graph

pytest.importorskip("onnx", reason="needs the extra train")
NODE = shutil.which("node")
PROMPTS = ("What is 2 + 2?", "Wie viele Äpfel? 12 Äpfel, ２ Birnen!", "naïve café_x\n\n9.5 x", "", "a b cc dd cc dd")


@pytest.fixture
def runtime(tmp_path: Path) -> Path:
    folder = tmp_path / "dist"
    folder.mkdir()
    for name in RUNTIME_FILES:
        (folder / name).write_text("of onnxruntime-web")
    return folder


def exported(folder: Path, runtime: Path, *device: str) -> WebExport:
    file = folder / "shikisha.toml"
    file.write_text("".join(f'[workers.{name}]\nkind = "scripted"\n' for name in ("arithmetic", "large")))
    save_policy(policy(), folder / "our.policy")
    return WebExport(folder / "our.policy", load_config(file, {}).cards(), frozenset(device), runtime)


def test_the_page_has_all_that_it_needs_and_names_it_for_the_time_without_a_network(
    tmp_path: Path, runtime: Path
) -> None:
    written = set(exported(tmp_path, runtime, "arithmetic").write(tmp_path / "web"))
    assert {"index.html", "device.js", "workers.js", "policy.onnx", "pool.json"} <= written
    assert set(RUNTIME_FILES) <= written
    listed = (tmp_path / "web" / "sw.js").read_text().splitlines()[0]
    assert all(json.dumps(name) in listed for name in written - {"sw.js"})
    pool = json.loads((tmp_path / "web" / "pool.json").read_text())
    assert [each["name"] for each in pool["workers"] if each["device"]] == ["arithmetic"]
    assert "SERVER" not in (tmp_path / "web" / "index.html").read_text()


def test_what_is_missing_is_said_and_nothing_is_written(tmp_path: Path, runtime: Path) -> None:
    for made, said in (
        (exported(tmp_path, runtime, "nobody"), "'nobody' is no worker of the pool"),
        (exported(tmp_path, tmp_path / "nowhere"), "npm pack onnxruntime-web"),
    ):
        with pytest.raises(ConfigError, match=said):
            made.write(tmp_path / "web")
        assert not (tmp_path / "web").exists()
    with pytest.raises(ConfigError, match="something already"):
        exported(tmp_path, runtime).write(runtime)
    told = CliRunner().invoke(
        app, ["device-export", "our.policy", "--out", "x", "--server", "https://x'; script-src *"]
    )
    assert told.exit_code == 2
    told = CliRunner().invoke(app, ["export", str(tmp_path), "--out", "x"])
    assert (told.exit_code, "optimum-cli export onnx" in told.stderr) == (2, True)
    told = CliRunner().invoke(app, ["train", "export", str(tmp_path), "--web", "--out", "x"])
    assert (told.exit_code, "pip install shikisha-device-export" in told.stderr) == (3, True)


@pytest.mark.parametrize("clusters", [False, True])
def test_the_table_of_a_policy_decides_on_the_device_as_here(tmp_path: Path, clusters: bool) -> None:
    made = policy()
    if clusters:
        rows, centres = hash_prompts(PROMPTS * len(made.types.names)), np.zeros((len(made.types.names), PROMPT_BUCKETS))
        for place in range(len(centres)):
            row = rows.at(np.array([place], np.int64))
            centres[place, row.places] = row.weights
        made = replace(made, types=replace(made.types, centres=centres))
    save_policy(made, tmp_path / "our.policy")
    held, version = load_policy(tmp_path / "our.policy")
    graph, told = policy_graph(tmp_path / "our.policy")
    assert told["version"] == version
    session = onnxruntime.InferenceSession(graph)
    for place, name in enumerate([*held.types.names, "unknown"]):
        prompt = PROMPTS[place % len(PROMPTS)]
        batch = TaskBatch((prompt,), held.types.of((name,), (prompt,)))
        point = held.rung("table").dial.points[-1]
        rule = held.parts[point.part]
        words = np.zeros((1, PROMPT_BUCKETS), np.float32)
        row = hash_prompts([prompt])
        words[0, row.places] = row.weights
        known = np.array([min(place, len(held.types.names))], np.int64)
        feed = {"words": words} if clusters else {"type": known}
        available = np.array([[0.0 if place % 2 else -1e30, *[0.0] * (len(held.workers) - 1)]], np.float32)
        worth = session.run(["worth"], {**feed, "available": available})[0]
        here = rule.choose(batch, point.setting, available[0] == 0)  # type: ignore[attr-defined]  # a table
        assert worth[0].argmax() == here[0]


@pytest.mark.skipif(NODE is None, reason="needs node")
def test_the_page_hashes_and_calculates_as_the_package_does(tmp_path: Path) -> None:
    for file in ("device.js", "workers.js"):
        shutil.copyfile(PAGE_FOLDER / file, tmp_path / file)
    (tmp_path / "package.json").write_text('{"type": "module"}')
    (tmp_path / "ort.wasm.min.mjs").write_text("export const env = { wasm: {} };")
    sums = ["12 * (30 + 4)", "2 - -3", "7 / 0", "alert(1)", "(1", "1 2"]
    (tmp_path / "run.js").write_text(
        "import { hashedWords } from './device.js'; import { calculate } from './workers.js';\n"
        "const sum = text => { try { return calculate(text); } catch { return null; } };\n"
        f"const told = {json.dumps({'prompts': PROMPTS, 'sums': sums})};\n"
        f"console.log(JSON.stringify({{ words: told.prompts.map(each => [...hashedWords(each, {PROMPT_BUCKETS})]"
        ".map((each, place) => [place, each]).filter(each => each[1])),"
        "sums: told.sums.map(sum) }));\n"
    )
    done = subprocess.run([str(NODE), "run.js"], cwd=tmp_path, capture_output=True, text=True, check=True)  # noqa: S603
    found = json.loads(done.stdout)
    for prompt, words in zip(PROMPTS, found["words"], strict=True):
        row = hash_prompts([prompt])
        own = np.zeros(PROMPT_BUCKETS)
        np.add.at(own, row.places, row.weights)
        assert {place for place, _ in words} == set(np.flatnonzero(own)), prompt
        assert all(abs(own[place] - weight) < 1e-5 for place, weight in words)
    assert found["sums"] == ["408", "5", None, None, None, None]
