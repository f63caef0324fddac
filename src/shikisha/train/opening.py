"""Opening what training begins with: a folder of ours, a model of the hub, or weights from scratch.

Invariants: what is opened is whole (a weight that is missing, or of another shape, is an error and never drawn by lot);
weights lie in memory of their own, so that a model that was read goes on like the one that was written, to the bit.
Deliberately absent: whether it can be trained (`refusals`).
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, cast

from shikisha.errors import ConfigError
from shikisha.train import card
from shikisha.train.keeping import CONFIG, TOKENIZER, WEIGHTS, hash_of

if TYPE_CHECKING:
    from collections.abc import Collection

    from tokenizers import Tokenizer
    from transformers import PreTrainedModel, PreTrainedTokenizerFast

    _Loaded = tuple[PreTrainedModel, Mapping[str, Collection[object]]]

TEMPLATE = "chat_template.jinja"
_OF_OTHERS = "tokenizer_config.json"  # stands in the folders of models that are not ours


@dataclass(frozen=True, slots=True)
class Begun:
    """A model, its tokenizer, which tokens pad and end (None: it has none), its chat template ("": none).

    `start` says on its card what it was.
    """

    model: "PreTrainedModel"
    tokenizer: "Tokenizer"
    pad: int | None
    end: int | None
    template: str = ""
    start: Mapping[str, object] = field(default_factory=dict)


def located(start: str, home: Path) -> str:
    """Return where a model is: the folder, its relative path beginning at `home`, or else its name on the hub."""
    folder = home / start
    if folder.is_dir():
        return str(folder)
    if not _named(start):
        raise ConfigError(
            f"model.start: {start}: expected a folder with a model, or a name on the hub (OWNER/NAME); there is no "
            f"folder {folder.absolute()}"
        )
    return start


def _named(start: str) -> bool:
    """Whether this can be a name on the hub."""
    return not start.startswith(("/", ".")) and start.count("/") == 1


def opened(start: str, dtype: str = "float32") -> Begun:
    """Return what a folder or a name on the hub holds; ConfigError says what is missing or damaged."""
    folder = Path(start)
    if not folder.is_dir():
        if not _named(start):
            raise ConfigError(
                f"model.start: {start}: expected a folder with a model, or a name on the hub (OWNER/NAME)"
            )
        return _others(start, dtype)
    names = (WEIGHTS, CONFIG, TOKENIZER)
    if (folder / _OF_OTHERS).is_file() and not (folder / card.CARD).is_file():  # ours are read as they are written
        return _others(start, dtype)
    if missing := [name for name in names if not (folder / name).is_file()]:
        raise ConfigError(f"model.start: {start}: expected {', '.join(names)} there; missing: {', '.join(missing)}")
    model = _model(start, dtype)
    config = model.config
    template = folder / TEMPLATE
    return Begun(
        model,
        _tokenizer(folder / TOKENIZER),
        config.pad_token_id,
        config.eos_token_id,
        template.read_text(encoding="utf-8") if template.is_file() else "",
        _started(folder),
    )


def _started(folder: Path) -> dict[str, object]:
    """Return what a checkpoint's card says it was; ConfigError where it is a card of another format."""
    found: dict[str, object] = {"folder": folder.name, "weights": hash_of(folder / WEIGHTS)}
    path = folder / card.CARD
    if not path.is_file():
        return found
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
        form = told["format"]
    except (ValueError, KeyError, TypeError):
        raise ConfigError(f"model.start: {path}: not a card of a conductor") from None
    if form != card.FORMAT:
        raise ConfigError(f"model.start: {path}: a card of format {form!r}; this version reads {card.FORMAT!r}")
    return found | {name: told.get(name) for name in ("what", "licence", "data", "metrics", "date")}


def _others(start: str, dtype: str) -> Begun:
    from transformers import AutoTokenizer

    try:
        found = cast("PreTrainedTokenizerFast", AutoTokenizer.from_pretrained(start))
    except (OSError, ValueError, KeyError) as error:
        raise ConfigError(f"model.start: {start}: its tokenizer cannot be had: {_first_line(error)}") from None
    template = found.chat_template if isinstance(found.chat_template, str) else ""
    model = _model(start, dtype)
    return Begun(model, found.backend_tokenizer, found.pad_token_id, found.eos_token_id, template, {"folder": start})


def _model(start: str, dtype: str) -> "PreTrainedModel":
    import torch
    from safetensors import SafetensorError
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    options = {"dtype": getattr(torch, dtype), "use_safetensors": True, "output_loading_info": True}
    try:
        model, told = cast("_Loaded", AutoModelForCausalLM.from_pretrained(start, **options))
    except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as error:
        raise ConfigError(f"model.start: {start}: its weights cannot be read: {_first_line(error)}") from None
    for what in ("missing_keys", "mismatched_keys", "unexpected_keys"):
        if told[what]:
            first = min(map(str, told[what]))
            raise ConfigError(
                f"model.start: {start}: weights and {CONFIG} do not fit: {what.partition('_')[0]} {first}"
            )
    for parameter in model.parameters():
        parameter.data = parameter.data.clone()
    model.tie_weights()
    return model


def _tokenizer(path: Path) -> "Tokenizer":
    from tokenizers import Tokenizer

    try:
        return Tokenizer.from_file(str(path))
    except Exception as error:  # noqa: BLE001 - the library raises nothing more specific
        raise ConfigError(f"model.start: {path}: not a tokenizer: {_first_line(error)}") from None


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0][:300]
