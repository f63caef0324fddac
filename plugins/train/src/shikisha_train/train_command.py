"""`train`, which trains a conductor by reinforcement learning.

Invariants: everything that can be checked is checked before anything is paid for; the same command with --resume
continues a run that was stopped or killed; progress goes to stderr, the folder of the conductor to stdout. With --json
stdout holds one JSON value.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer

from shikisha.cli.exit_codes import ExitCode
from shikisha.cli.options import ConfigOption, JsonOption, import_errors_name_extra
from shikisha.config.adapters import require_extra

SettingsFile = Annotated[
    Path, typer.Argument(metavar="FILE.toml", help="The settings of the training: see `shikisha_train.settings`.")
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

    FILE.toml names the language model, its tasks and workers.
    The engine performs every sampled plan, and the plan is rewarded by its outcome. The run's folder holds checkpoints,
    steps.jsonl, and at the end the conductor in `final`. Exit codes: 1 the loss is not a number (the last good
    checkpoint stays), 3 the settings are refused before anything is paid for, 4 the dollars are spent (continue with
    more of them and --resume), 130 and 143 stopped (continue with --resume).
    """
    require_extra("train", "shikisha train", "numpy", "safetensors", "tokenizers", "torch", "transformers", "trl")
    with import_errors_name_extra("train"):  # torch takes seconds to import, for which `train --help` need not wait
        from shikisha_train import train_session

    with train_session.distributed_training() as group:
        options = options if group.main else replace(options, quiet=True)
        return train_session.train_conductor(file, options, config, group, json=json)
