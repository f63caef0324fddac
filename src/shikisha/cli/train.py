"""`train`, which trains a conductor by reinforcement learning, and `export`, which makes a page of a policy.

Invariants: everything that can be checked is checked before anything is paid for; the same command with --resume
continues a run that was stopped or killed; progress goes to stderr, the folder of the conductor to stdout. With --json
stdout holds one JSON value.
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
    require_extra("train", "shikisha train", "numpy", "safetensors", "tokenizers", "torch", "transformers", "trl")
    with import_errors_name_extra("train"):  # torch takes seconds to import, for which `train --help` need not wait
        from shikisha.cli import train_session

    with train_session.distributed_training() as group:
        options = options if group.main else replace(options, quiet=True)
        return train_session.train_conductor(file, options, config, group, json=json)


@dataclass(frozen=True, slots=True)
class WebOptions:
    """What `--web` exports."""

    web: Annotated[bool, typer.Option("--web", help="Export a static page that decides on the device.")] = False
    device: Annotated[list[str] | None, typer.Option("--device", help="A worker on the device; may be repeated.")] = (
        None
    )
    server: Annotated[str, typer.Option("--server", help="The URL of the server; by default the page's own.")] = ""
    runtime: Annotated[Path, typer.Option("--runtime", metavar="DIST", help="The folder dist of onnxruntime-web.")] = (
        Path("node_modules/onnxruntime-web/dist")
    )


def export(
    policy: Annotated[Path, typer.Argument(metavar="POLICY", help="A policy whose table decides.")],
    to: Annotated[Path, typer.Option("--out", "-o", metavar="FOLDER", help="The page's new folder.")],
    web: WebOptions,
    config: ConfigOption = None,
    json: JsonOption = False,
) -> ExitCode:
    """Export a policy as a page that decides on the device.

    The pool of the configuration, its workers on the device or behind the server, works without a network.
    """
    if policy.is_dir() or not web.web:
        raise TaskError(
            "expected a policy and --web, as in `shikisha train export our.policy --web --out page`; a "
            "checkpoint is served by `vllm serve DIR`, or exported by `optimum-cli export onnx --model DIR OUT`"
        )
    if web.server and (not web.server.startswith(("http://", "https://")) or set(web.server) & set(" ;'\"<>")):
        raise TaskError("--server: expected a URL such as https://ai.example.com")
    require_extra("eval", "shikisha train export", "numpy")
    from shikisha.config.web_export import WebExport

    cards = load_config(config).cards()
    made = WebExport(policy, cards, frozenset(web.device or ()), web.runtime, web.server.rstrip("/"))
    written = made.write(to)
    if json:
        output.print_json({"written": str(to), "files": list(written)})
    output.print_note(
        f"written: {to}, {len(written)} files for any static host with HTTPS; workers.js is yours to edit"
    )
    return ExitCode.OK
