"""`export`: a checkpoint that conducts without torch, held against transformers before it is written.

Invariants: progress goes to stderr, the folder to stdout; with --json stdout holds one JSON value; a folder in which
anything else lies is left alone. Deliberately absent: what is exported and how it is compared (`train.export`).
"""

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shikisha.cli import out
from shikisha.cli.exits import Exit
from shikisha.cli.options import JsonOption
from shikisha.errors import ConfigError, MissingExtra

if TYPE_CHECKING:
    from shikisha.train.export import Proof

_LIBRARIES = ("numpy", "onnx", "onnxruntime", "safetensors", "tokenizers", "torch", "transformers")
_MB = 1_000_000
Folder = Annotated[Path, typer.Argument(metavar="DIR", help="A checkpoint: `final`, or any other that `train` wrote.")]
To = Annotated[
    Path | None,
    typer.Option("--out", "-o", metavar="FOLDER", help="A folder of its own, without weights; by default DIR itself."),
]


def export(folder: Folder, to: To = None, json: JsonOption = False) -> Exit:
    """Export a checkpoint: it then conducts without torch, as lm:DIR.

    Writes model.onnx beside the weights, or with --out all that conducting takes into a folder of its own: model.onnx,
    tokenizer.json, config.json, card.json, README.md. Nothing is written unless ONNX Runtime and transformers write
    the same tokens.
    """
    for library in _LIBRARIES:
        if find_spec(library) is None:
            raise MissingExtra("train", "an export to ONNX")
    from shikisha.train.cores import one_core
    from shikisha.train.export import export as exported
    from shikisha.train.export import ship

    one_core()
    try:
        proof = exported(folder) if to is None else ship(folder, to)
    except OSError as error:
        raise ConfigError(f"{to or folder}: cannot be written: {error.strerror}") from None
    sizes = _sizes(proof)
    if json:
        compared = {"prompts": proof.prompts, "tokens": proof.tokens, "apart": proof.apart}
        out.value({"folder": str(proof.file.parent), "bytes": sizes, **compared})
        return Exit.OK
    _tell(proof, sizes)
    out.line(str(proof.file.parent))
    return Exit.OK


def _sizes(proof: "Proof") -> dict[str, int]:
    from shikisha.train.export import SHIPPED

    paths = (proof.file.parent / name for name in SHIPPED)
    return {path.name: path.stat().st_size for path in paths if path.is_file()}


def _tell(proof: "Proof", sizes: dict[str, int]) -> None:
    from shikisha.train.card import CARD

    out.note(
        f"ONNX Runtime and transformers write the same {proof.tokens:,} tokens after {proof.prompts} prompts; their "
        f"logits are {proof.apart:.1e} apart at most"
    )
    for name, size in sizes.items():
        out.note(f"  {name:<15}{size / _MB:8.3f} MB")
    out.note(f"  {'together':<15}{sum(sizes.values()) / _MB:8.3f} MB, all that conducting takes")
    if CARD not in sizes:
        out.note(
            f"it has no {CARD}: nobody can see what it learned from, and how many rounds it plans is taken to be 1"
        )
