"""`train`, which trains a conductor by reinforcement learning, and `export`, which makes it run without torch.

Invariants: everything that can be checked is checked before anything is paid for; the same command with --resume
continues a run that was stopped or killed; progress goes to stderr, the folder of the conductor to stdout. With --json
stdout holds one JSON value. A folder that holds other files is never exported into.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer

from shikisha.cli import output
from shikisha.cli.exit_codes import ExitCode
from shikisha.cli.options import ConfigOption, JsonOption, import_errors_name_extra
from shikisha.config.adapters import require_extra
from shikisha.config.container import load_config
from shikisha.core.errors import TaskError

SettingsFile = Annotated[
    Path, typer.Argument(metavar="FILE.toml", help="The settings of the training: see `shikisha.training.settings`.")
]
CheckpointFolder = Annotated[
    Path, typer.Argument(metavar="DIR", help="A checkpoint: `final`, or any other that `train` wrote.")
]
ExportFolder = Annotated[
    Path | None,
    typer.Option("--out", "-o", metavar="FOLDER", help="A new folder without the weights; by default DIR itself."),
]


@dataclass(frozen=True, slots=True)
class TrainOptions:
    """Where a run is kept, and what replaces settings of the file."""

    to: Annotated[Path | None, typer.Option("--out", "-o", help="The folder of the run; by default training/FILE.")] = (
        None
    )
    resume: Annotated[bool, typer.Option("--resume", help="Continue from the last good checkpoint there.")] = False
    steps: Annotated[int | None, typer.Option("--steps", min=1, help="GRPO steps, instead of the file's.")] = None
    seed: Annotated[int | None, typer.Option("--seed", help="The seed, instead of the file's.")] = None
    put: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Replace a setting, as in grpo.group=4; may be repeated."),
    ] = None
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")] = False


def train(file: SettingsFile, options: TrainOptions, config: ConfigOption = None, json: JsonOption = False) -> ExitCode:
    """Train a conductor by reinforcement learning.

    FILE.toml trains a language model; `shikisha train pointer` trains a pointer conductor, and needs no file.
    The engine performs every sampled plan, and the plan is rewarded by its outcome. The run's folder holds checkpoints,
    steps.jsonl, and at the end the conductor in `final`. Exit codes: 1 the loss is not a number (the last good
    checkpoint stays), 3 the settings are refused before anything is paid for, 4 the dollars are spent (continue with
    more of them and --resume), 130 and 143 stopped (continue with --resume).
    """
    require_extra("train", "shikisha train", "numpy", "safetensors", "tokenizers", "torch", "transformers")
    with import_errors_name_extra("train"):  # torch takes seconds to import, for which `train --help` need not wait
        from shikisha.cli import train_session

    with train_session.distributed_training() as group:
        options = options if group.main else replace(options, quiet=True)
        return train_session.train_conductor(file, options, config, group, json=json)


@dataclass(frozen=True, slots=True)
class WebOptions:
    """What `--web` exports."""

    web: Annotated[bool, typer.Option("--web", help="Export a static page that decides on the device.")] = False
    device: Annotated[
        list[str] | None, typer.Option("--device", help="With --web: a worker on the device; may be repeated.")
    ] = None
    policy: Annotated[
        Path | None, typer.Option("--policy", help="With --web: a policy whose table decides what else comes.")
    ] = None
    server: Annotated[
        str, typer.Option("--server", help="With --web: the URL of the server; by default the page's own.")
    ] = ""
    runtime: Annotated[
        Path, typer.Option("--runtime", metavar="DIST", help="With --web: the folder dist of onnxruntime-web.")
    ] = Path("node_modules/onnxruntime-web/dist")


def export(
    folder: CheckpointFolder,
    web: WebOptions,
    to: ExportFolder = None,
    config: ConfigOption = None,
    json: JsonOption = False,
) -> ExitCode:
    """Export a checkpoint to ONNX, to conduct without torch.

    The folder conducts as lm:DIR. Writes model.onnx next to the weights. With --out it writes all that conducting takes
    into a new folder: model.onnx, tokenizer.json, config.json, card.json, README.md. Nothing is written unless ONNX
    Runtime and transformers generate the same tokens. With --web it becomes a page that decides on the device: DIR may
    be `shipped`, and --out names the page's folder: the pool of the configuration, its workers on the device or behind
    the server, works without a network.
    """
    if web.web:
        return _export_web(folder, web, to, config, json=json)
    require_extra("train", "shikisha train export")
    with import_errors_name_extra("train export"):
        from shikisha.cli import train_session
    return train_session.export_checkpoint(folder, to, json=json)


def _export_web(folder: Path, web: WebOptions, to: Path | None, config: Path | None, *, json: bool) -> ExitCode:
    if to is None:
        raise TaskError("--out: expected the folder of the page")
    if web.server and (not web.server.startswith(("http://", "https://")) or set(web.server) & set(" ;'\"<>")):
        raise TaskError("--server: expected a URL such as https://ai.example.com")
    require_extra("edge", "shikisha train export --web", "numpy", "onnxruntime", "tokenizers")
    with import_errors_name_extra("train export"):
        from shikisha.conductors.onnx_checkpoint import SHIPPED, shipped_checkpoint
        from shikisha.config.web_export import WebExport
    composition = load_config(config)
    cards = composition.cards()
    checkpoint = shipped_checkpoint() if str(folder) == SHIPPED else folder
    made = WebExport(checkpoint, cards, frozenset(web.device or ()), web.runtime, web.policy, web.server.rstrip("/"))
    written = made.write(to)
    if json:
        output.print_json({"written": str(to), "files": list(written)})
    output.print_note(
        f"written: {to}, {len(written)} files for any static host with HTTPS; workers.js is yours to edit"
    )
    return ExitCode.OK
