"""Recipes for 7B on GPUs, in miniature: the same files with a tiny model of the hub's kind; what else can be told."""

import json
import re
import shlex
from importlib.util import find_spec
from pathlib import Path

import pytest
from accelerate.commands.config.config_args import (  # type: ignore[import-untyped]
    ClusterConfig,
    load_config_from_file,
)
from accelerate.commands.launch import launch_command_parser  # type: ignore[import-untyped]
from chat_model import TEMPLATE, chat_model
from paths import ROOT
from safetensors.torch import load_file
from test_process_group import launched
from test_train_cli import ROWS, WORKERS
from trl.scripts.vllm_serve import ScriptArguments, build_command
from typer.testing import CliRunner

from shikisha.cli import app
from shikisha_train.checkpoint import WEIGHTS
from shikisha_train.metrics import StepMetrics
from shikisha_train.settings import GrpoTable, load_settings

RECIPES = ROOT / "recipes"
SIZE = [
    *("--steps", "2", "--set", "grpo.tasks=2", "--set", "grpo.group=4", "--set", "grpo.longest=2"),
    *("--set", "trl.rows=2", "--set", 'trl.vllm=""', "--set", "tasks.judged=3", "--set", "tasks.every=2"),
    *("--set", "tasks.least=2", "--set", "tasks.most=3"),
]
NAMES = ("conductor-7b", "conductor-7b-lora")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    chat_model(tmp_path / "tiny")
    (tmp_path / "shikisha.toml").write_text(WORKERS)
    (tmp_path / "tasks.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return tmp_path


def command(folder: Path, name: str) -> list[str]:
    start = f"model.start={json.dumps(str(folder / 'tiny'))}"
    return ["train", str(RECIPES / f"{name}.toml"), "--out", "run", "--quiet", "--set", start, *SIZE]


@pytest.mark.parametrize("name", [NAMES[0], pytest.param(NAMES[1], marks=pytest.mark.slow)])
def test_the_recipe_itself_runs_in_miniature(folder: Path, name: str) -> None:
    done = CliRunner().invoke(app, command(folder, name))
    assert done.exit_code == 0, (done.output, done.stderr)
    told(folder, name)


def told(folder: Path, name: str) -> None:
    """What there has to be after a run."""
    steps = [StepMetrics.loads(line) for line in (folder / "run" / "steps.jsonl").read_text().splitlines()]
    assert [step.number for step in steps] == [1, 2]
    assert all(0 < step.valid < 1 and step.gradient > 0 and step.entropy > 0 for step in steps)
    assert steps[-1].judged is not None
    assert steps[-1].judged.count == 3
    card = json.loads((folder / "run" / "final" / "card.json").read_text())
    whole = load_settings(RECIPES / f"{name}.toml").model_dump(mode="json")
    changed = {
        f"{table}.{key}"
        for table, held in whole.items()
        if isinstance(held, dict)
        for key, value in held.items()
        if card["settings"][table][key] != value
    }
    assert changed == {
        *("model.start", "tasks.judged", "tasks.every", "tasks.least", "tasks.most", "trl.rows", "trl.vllm"),
        *("grpo.steps", "grpo.tasks", "grpo.group", "grpo.longest"),
    }
    before, after = (load_file(folder / each / WEIGHTS) for each in ("tiny", "run/final"))
    assert before.keys() == after.keys()
    assert any(not before[key].equal(each.to(before[key].dtype)) for key, each in after.items())
    assert (folder / "run" / "final" / "chat_template.jinja").read_text() == TEMPLATE


@pytest.mark.skipif(find_spec("vllm") is not None, reason="vLLM is here")
def test_without_vllm_the_recipe_says_what_is_missing_before_anything_is_opened(tmp_path: Path) -> None:
    file = str(RECIPES / "conductor-7b.toml")
    done = CliRunner().invoke(app, ["train", file, "--out", str(tmp_path / "run")])
    assert (done.exit_code, done.stderr.partition(":")[0]) == (3, "shikisha")
    assert 'trl.vllm: vLLM is not installed: pip install vllm, or expected ""' in done.stderr
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_the_recipe_with_adapters_runs_in_two_processes(folder: Path) -> None:
    launched(folder, "-m", "shikisha", *command(folder, "conductor-7b-lora"))
    told(folder, "conductor-7b-lora")


@pytest.mark.parametrize("name", NAMES)
def test_the_recipe_is_the_papers_setting(name: str) -> None:
    settings = load_settings(RECIPES / f"{name}.toml")
    assert settings.grpo == GrpoTable(rate=settings.grpo.rate)
    assert settings.grpo.rate == {"conductor-7b": GrpoTable().rate, "conductor-7b-lora": 1e-5}[name]
    assert (settings.trl.vllm, settings.model.start) == ("server", "Qwen/Qwen2.5-7B-Instruct")
    weights = settings.reward.weights()
    assert (weights.format, weights.correct, weights.cost) == (1.0, 0.0, 0.0)


@pytest.mark.parametrize(
    ("name", "kind", "processes"),
    [("ddp-cpu", "MULTI_GPU", 2), ("ddp", "MULTI_GPU", 2), ("fsdp2", "FSDP", 4), ("deepspeed-zero3", "DEEPSPEED", 4)],
)
def test_accelerate_reads_the_configuration_and_knows_all_of_it(name: str, kind: str, processes: int) -> None:
    config = load_config_from_file(str(RECIPES / "accelerate" / f"{name}.yaml"))
    assert isinstance(config, ClusterConfig)
    assert (config.distributed_type, config.num_processes, config.num_machines) == (kind, processes, 1)
    known = {action.dest for action in launch_command_parser()._actions}
    assert {*(config.fsdp_config or {}), *(config.deepspeed_config or {})} <= known
    assert load_settings(RECIPES / "conductor-7b.toml").grpo.tasks % processes == 0


def test_the_page_starts_vllm_as_trl_does_and_names_what_is_there() -> None:
    page = (ROOT / "docs" / "how-to" / "train-large.md").read_text()
    words = build_command(ScriptArguments(model="Qwen/Qwen2.5-7B-Instruct"))
    for flag in ("--weight-transfer-config", "--logprobs-mode", "--max-logprobs"):
        assert shlex.join(words[words.index(flag) :][:2]) in page
    named = re.findall(r"`((?:recipes|examples|tests|docs)/[\w./-]+)`", page)
    assert len(named) >= 8
    assert [name for name in named if not (ROOT / name).exists()] == []
