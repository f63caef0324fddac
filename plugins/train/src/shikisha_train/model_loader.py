"""Loading what training starts from: a folder of ours, or a model of the hub.

Invariants: what is loaded is complete (a weight that is missing, or has another shape, is an error and never random);
weights lie in memory of their own, so a model that was read continues like the one that was written, to the bit.
Deliberately absent: whether a model can be trained
(`preflight_checks`), and architectures other than those of `transformers`.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, cast

from shikisha.core.errors import ConfigError
from shikisha_train import model_card
from shikisha_train.checkpoint import CONFIG, TOKENIZER, WEIGHTS, hash_file

if TYPE_CHECKING:
    from collections.abc import Collection

    from tokenizers import Tokenizer
    from transformers import PreTrainedModel, PreTrainedTokenizerFast

    _Loaded = tuple[PreTrainedModel, Mapping[str, Collection[object]]]

CHAT_TEMPLATE = "chat_template.jinja"
# Stands in the folders of models that are not ours.
_TOKENIZER_CONFIG = "tokenizer_config.json"


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model, its tokenizer, its pad and end tokens (None: it has none), its chat template ("": none).

    `start` goes on the model card of what is trained from it.
    """

    model: "PreTrainedModel"
    tokenizer: "Tokenizer"
    pad: int | None
    end: int | None
    template: str = ""
    start: Mapping[str, object] = field(default_factory=dict)


def resolve_start(start: str, home: Path) -> str:
    """Return where a model is: the folder, relative to `home` or else to here, or else its name on the hub."""
    for folder in (home / start, Path(start)):  # a file names what is beside it, a command line what is here
        if folder.is_dir():
            return str(folder)
    if not _is_hub_name(start):
        raise ConfigError(
            f"model.start: {start}: expected a folder with a model, or a name on the hub (OWNER/NAME); there is no "
            f"folder {(home / start).absolute()}, and none of this name here"
        )
    return start


def _is_hub_name(start: str) -> bool:
    """Whether this can be a name on the hub."""
    return not start.startswith(("/", ".")) and start.count("/") == 1


def load_model(start: str, dtype: str = "float32") -> LoadedModel:
    """Load a model from a folder or the hub; ConfigError says what is missing or damaged."""
    folder = Path(start)
    if not folder.is_dir():
        if not _is_hub_name(start):
            raise ConfigError(
                f"model.start: {start}: expected a folder with a model, or a name on the hub (OWNER/NAME)"
            )
        return _load_foreign(start, dtype)
    names = (WEIGHTS, CONFIG, TOKENIZER)
    if (folder / _TOKENIZER_CONFIG).is_file() and not (
        folder / model_card.CARD_FILE
    ).is_file():  # ours are read as they were written
        return _load_foreign(start, dtype)
    if missing := [name for name in names if not (folder / name).is_file()]:
        raise ConfigError(f"model.start: {start}: expected {', '.join(names)} there; missing: {', '.join(missing)}")
    model = _load_weights(start, dtype)
    config = model.config
    template = folder / CHAT_TEMPLATE
    return LoadedModel(
        model,
        _load_tokenizer(folder / TOKENIZER),
        config.pad_token_id,
        config.eos_token_id,
        template.read_text(encoding="utf-8") if template.is_file() else "",
        _read_start_card(folder),
    )


def _read_start_card(folder: Path) -> dict[str, object]:
    """Return what a checkpoint's model card says; ConfigError where the card has another format."""
    start: dict[str, object] = {"folder": folder.name, "weights": hash_file(folder / WEIGHTS)}
    path = folder / model_card.CARD_FILE
    if not path.is_file():
        return start
    try:
        card = json.loads(path.read_text(encoding="utf-8"))
        form = card["format"]
    except (ValueError, KeyError, TypeError):
        raise ConfigError(f"model.start: {path}: not a model card of a conductor") from None
    if form != model_card.CARD_FORMAT:
        raise ConfigError(
            f"model.start: {path}: a card of format {form!r}; this version reads {model_card.CARD_FORMAT!r}"
        )
    return start | {name: card.get(name) for name in ("what", "licence", "data", "metrics", "date")}


def _load_foreign(start: str, dtype: str) -> LoadedModel:
    from transformers import AutoTokenizer

    try:
        found = cast("PreTrainedTokenizerFast", AutoTokenizer.from_pretrained(start))
    except (OSError, ValueError, KeyError) as error:
        raise ConfigError(f"model.start: {start}: its tokenizer cannot be loaded: {_first_line(error)}") from None
    template = found.chat_template if isinstance(found.chat_template, str) else ""
    model = _load_weights(start, dtype)
    return LoadedModel(
        model, found.backend_tokenizer, found.pad_token_id, found.eos_token_id, template, {"folder": start}
    )


def _load_weights(start: str, dtype: str) -> "PreTrainedModel":
    import torch
    from safetensors import SafetensorError
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    options = {"dtype": getattr(torch, dtype), "use_safetensors": True, "output_loading_info": True}
    try:
        model, report = cast("_Loaded", AutoModelForCausalLM.from_pretrained(start, **options))
    except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as error:
        raise ConfigError(f"model.start: {start}: its weights cannot be read: {_first_line(error)}") from None
    for what in ("missing_keys", "mismatched_keys", "unexpected_keys"):
        if report[what]:
            first = min(map(str, report[what]))
            raise ConfigError(
                f"model.start: {start}: weights and {CONFIG} do not fit: {what.partition('_')[0]} {first}"
            )
    for parameter in model.parameters():
        parameter.data = parameter.data.clone()
    model.tie_weights()
    return model


def _load_tokenizer(path: Path) -> "Tokenizer":
    from tokenizers import Tokenizer

    try:
        return Tokenizer.from_file(str(path))
    except Exception as error:  # noqa: BLE001 - other people's code, and the table says what it raised
        raise ConfigError(f"model.start: {path}: not a tokenizer: {_first_line(error)}") from None


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0][:300]
