"""`export`: a checkpoint that conducts without torch, held against transformers before it is written.

Invariants: progress goes to stderr, the folder to stdout; with --json stdout holds one JSON value; a folder in which
anything else lies is left alone. Deliberately absent: what is exported and how it is compared (`train.export`).
"""

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shikisha.cli import output
from shikisha.cli.exit_codes import ExitCode
from shikisha.cli.options import JsonOption
from shikisha.core.errors import ConfigError, MissingExtra

if TYPE_CHECKING:
    from shikisha.training.onnx_export import ExportReport

_LIBRARIES = ("numpy", "onnx", "onnxruntime", "safetensors", "tokenizers", "torch", "transformers")
_MB = 1_000_000
Folder = Annotated[Path, typer.Argument(metavar="DIR", help="A checkpoint: `final`, or any other that `train` wrote.")]
To = Annotated[
    Path | None,
    typer.Option("--out", "-o", metavar="FOLDER", help="A folder of its own, without weights; by default DIR itself."),
]


def export(folder: Folder, to: To = None, json: JsonOption = False) -> ExitCode:
    """Export a checkpoint: it then conducts without torch, as lm:DIR.

    Writes model.onnx beside the weights, or with --out all that conducting takes into a folder of its own: model.onnx,
    tokenizer.json, config.json, card.json, README.md. Nothing is written unless ONNX Runtime and transformers write
    the same tokens.
    """
    for library in _LIBRARIES:
        if find_spec(library) is None:
            raise MissingExtra("train", "an export to ONNX")
    from shikisha.training.onnx_export import export_folder
    from shikisha.training.onnx_export import export_onnx as exported
    from shikisha.training.process_group import use_one_core

    use_one_core()
    try:
        proof = exported(folder) if to is None else export_folder(folder, to)
    except OSError as error:
        raise ConfigError(f"{to or folder}: cannot be written: {error.strerror}") from None
    sizes = _file_sizes(proof)
    if json:
        compared = {"prompts": proof.prompts, "tokens": proof.tokens, "apart": proof.max_difference}
        output.print_json({"folder": str(proof.file.parent), "bytes": sizes, **compared})
        return ExitCode.OK
    _print_proof(proof, sizes)
    output.print_line(str(proof.file.parent))
    return ExitCode.OK


def _file_sizes(proof: "ExportReport") -> dict[str, int]:
    from shikisha.training.onnx_export import EXPORTED_FILES

    paths = (proof.file.parent / name for name in EXPORTED_FILES)
    return {path.name: path.stat().st_size for path in paths if path.is_file()}


def _print_proof(proof: "ExportReport", sizes: dict[str, int]) -> None:
    from shikisha.training.model_card import CARD_FILE

    output.print_note(
        f"ONNX Runtime and transformers write the same {proof.tokens:,} tokens after {proof.prompts} prompts; their "
        f"logits are {proof.max_difference:.1e} apart at most"
    )
    for name, size in sizes.items():
        output.print_note(f"  {name:<15}{size / _MB:8.3f} MB")
    output.print_note(f"  {'together':<15}{sum(sizes.values()) / _MB:8.3f} MB, all that conducting takes")
    if CARD_FILE not in sizes:
        output.print_note(
            f"it has no {CARD_FILE}: nobody can see what it learned from, and how many rounds it plans is taken to be 1"
        )
