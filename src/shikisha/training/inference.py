"""A checkpoint that conducts in this process by transformers: one of ours, or any causal model with a chat template.

A model without a chat template, or one that was trained so, reads the compact prompt; any other gets a chat in English.
What others wrote (question, answers, descriptions) is tokenized apart from the template, special tokens switched off,
so no text can close a turn. Invariants: only safetensors are loaded, only from a folder, and no code of a checkpoint is
run; each token is computed once (KV cache). Deliberately absent: batches and several devices (a server such as vLLM
does that; see `conductors.lm`), and downloads.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast
from uuid import uuid4

import torch
from pydantic import ValidationError

from shikisha.conductors.onnx_checkpoint import (
    PLAN_TOKENS,
    TOKENIZER_FILE,
    BriefPromptModel,
    CheckpointFacts,
    checkpoint_version,
    file_hash,
    unknown_count,
    unknown_token,
)
from shikisha.conductors.plan_grammar import count_ordinals, read_token_pieces
from shikisha.conductors.trained_model import DecodingSession
from shikisha.core.errors import ConfigError
from shikisha.core.prompts import PromptStyle, planner_instructions, planner_message
from shikisha.engine.conductor import Situation
from shikisha.routing.arrays import Floats32
from shikisha.training.model_card import CARD_FILE
from shikisha.training.model_loader import LoadedModel, load_model
from shikisha.training.settings import TrainSettings

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from transformers import PreTrainedModel, PreTrainedTokenizerFast
    from transformers.cache_utils import Cache

_CONFIG_FILE, _TOKENIZER_CONFIG = "config.json", "tokenizer_config.json"
_DTYPES = ("float32", "bfloat16", "float16")
# Of a model that was not trained to conduct.
_DEFAULT_ROUNDS, _DEFAULT_LONGEST = 3, 1024


class TransformersModel:
    """A causal model of transformers, in the form that the plan decoder takes."""

    def __init__(self, model: "PreTrainedModel") -> None:
        self.longest = int(model.config.max_position_embeddings)
        self._model = model
        model.train(mode=False)

    def begin(self) -> DecodingSession:
        """Begin a text."""
        return _TransformersReading(self._model)


class _TransformersReading:
    """A text that the model has read, with its KV cache."""

    def __init__(self, model: "PreTrainedModel") -> None:
        self._model = model
        self._held: Cache | None = None

    @torch.inference_mode()
    def feed(self, tokens: Sequence[int]) -> Floats32:
        """Read on."""
        given = torch.tensor([list(tokens)], device=self._model.device)
        out = self._model(input_ids=given, past_key_values=self._held, use_cache=True, logits_to_keep=1)
        self._held = out.past_key_values
        last: Floats32 = out.logits[0, -1].float().cpu().numpy()
        return last


class ChatPlanner:
    """A model that reads a chat, in English, and writes plans."""

    def __init__(
        self,
        model: TransformersModel,
        chat: "PreTrainedTokenizerFast",
        facts: CheckpointFacts,
        where: str,
        style: PromptStyle,
    ) -> None:
        self.model, self._style = model, style
        self.ends = frozenset(facts.ends)
        self.version = checkpoint_version(facts.weights, facts.tokenizer)
        self.rounds, self.longest = facts.rounds, facts.longest
        self._chat = chat
        self._full: Tokenizer = chat.backend_tokenizer
        self._bare: Tokenizer = type(self._full).from_str(self._full.to_str())
        self._bare.encode_special_tokens = True
        silent = {*facts.ends, *facts.silent, *chat.all_special_ids}
        self.lexicon = read_token_pieces(self.encode, self.decode, len(chat), silent, where)
        self.ordinals = count_ordinals(self.encode, self.decode)
        self._unknown = unknown_token(self._bare)
        self.words = None if self._unknown is None else len(chat)
        self._rendered(["0", "1"])

    def prompt(self, situation: Situation) -> Sequence[int]:
        """Return the chat's tokens up to where the model's turn begins."""
        most = max(1, min(situation.left.plan_steps, situation.left.steps))
        shown = planner_message(situation.task, situation.cards, situation.rounds, self._style)
        said = (planner_instructions(most, self._style), shown)
        marks = [uuid4().hex for _ in said]
        rest, tokens = self._rendered(marks), list[int]()
        for mark, text in zip(marks, said, strict=True):
            before, _, rest = rest.partition(mark)
            tokens += self._full.encode(before, add_special_tokens=False).ids
            tokens += self.encode(text)
        return [*tokens, *self._full.encode(rest, add_special_tokens=False).ids]

    def encode(self, text: str) -> Sequence[int]:
        """Return a text's tokens, none of them special."""
        return self._bare.encode(text, add_special_tokens=False).ids

    def decode(self, tokens: Sequence[int]) -> str:
        """Return the text of these tokens."""
        return self._full.decode(list(tokens), skip_special_tokens=True)

    def unknown(self, text: str) -> tuple[int, int]:
        """Return how many of a text's tokens are unknown words, and how many there are."""
        return unknown_count(self.encode(text), self._unknown)

    def _rendered(self, marks: Sequence[str]) -> str:
        turns = [{"role": role, "content": mark} for role, mark in zip(("system", "user"), marks, strict=True)]
        text = self._chat.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)
        if not isinstance(text, str) or any(text.count(mark) != 1 for mark in marks):
            raise ConfigError("the chat template does not show a system turn and a user turn once each")
        return text


def open_checkpoint(folder: Path) -> BriefPromptModel | ChatPlanner:
    """Open the checkpoint in a folder; ConfigError that says what is missing or cannot be used."""
    loaded = load_checkpoint(folder)
    settings = read_card_settings(folder)
    if torch.cuda.is_available():
        torch.nn.Module.to(loaded.model, "cuda")
    model = TransformersModel(loaded.model)
    if settings.model.brief if settings else not loaded.template:
        return BriefPromptModel(model, loaded.tokenizer, checkpoint_facts(folder, loaded, settings), str(folder))
    if not loaded.template:
        raise ConfigError(f"{folder}: the model has no chat template, and was not trained to read the compact prompt")
    chat = _load_chat_tokenizer(folder, loaded)
    style = PromptStyle(described=settings.model.described) if settings else PromptStyle()
    return ChatPlanner(model, chat, checkpoint_facts(folder, loaded, settings), str(folder), style)


def load_checkpoint(folder: Path, dtype: str = "") -> LoadedModel:
    """Load a folder, by default in the precision that it is kept in; ConfigError where it is incomplete."""
    if not folder.is_dir():
        raise ConfigError(f"{folder}: there is no such folder")
    try:
        kept = json.loads((folder / _CONFIG_FILE).read_text(encoding="utf-8"))
        kept = kept.get("dtype") or kept.get("torch_dtype")
    except (OSError, ValueError, AttributeError) as error:
        raise ConfigError(f"{folder / _CONFIG_FILE}: cannot be read: {error}") from None
    try:
        return load_model(str(folder), dtype or (kept if kept in _DTYPES else _DTYPES[0]))
    except ConfigError as error:
        raise ConfigError(str(error).removeprefix("model.start: ")) from None


def read_card_settings(folder: Path) -> TrainSettings | None:
    """Return the settings on a checkpoint's card; None where it has none."""
    path = folder / CARD_FILE
    if not path.is_file():
        return None
    try:
        return TrainSettings.model_validate(json.loads(path.read_text(encoding="utf-8"))["settings"])
    except (ValueError, KeyError, TypeError, ValidationError) as error:
        said = str(error).splitlines()[0]
        raise ConfigError(f"{path}: settings of another version: {said}") from None


def checkpoint_facts(folder: Path, loaded: LoadedModel, settings: TrainSettings | None = None) -> CheckpointFacts:
    """Return the facts of a checkpoint; ConfigError where no file says which token ends a text."""
    ends = end_tokens(loaded)
    if not ends:
        raise ConfigError(f"{folder / _CONFIG_FILE}: eos_token_id: missing, so no token ends a text")
    plain = not loaded.template
    return CheckpointFacts(
        _hash_weights(folder),
        file_hash(folder / TOKENIZER_FILE),
        ends,
        () if loaded.pad is None else (loaded.pad,),
        rounds=(2 if settings.second.share else 1) if settings else 1 if plain else _DEFAULT_ROUNDS,
        longest=settings.grpo.longest if settings else PLAN_TOKENS if plain else _DEFAULT_LONGEST,
    )


def end_tokens(loaded: LoadedModel) -> tuple[int, ...]:
    """Return the tokens that end a text, by tokenizer, model and generation settings."""
    generating = loaded.model.generation_config
    ends = [loaded.end, loaded.model.config.eos_token_id, None if generating is None else generating.eos_token_id]
    every = (token for one in ends for token in (one if isinstance(one, list) else [one]))
    return tuple(sorted({token for token in every if isinstance(token, int)}))


def _load_chat_tokenizer(folder: Path, loaded: LoadedModel) -> "PreTrainedTokenizerFast":
    """Return what renders the chat template."""
    from transformers import AutoTokenizer, PreTrainedTokenizerFast

    if (folder / CARD_FILE).is_file() or not (folder / _TOKENIZER_CONFIG).is_file():
        made: object = PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
            tokenizer_object=loaded.tokenizer, chat_template=loaded.template
        )
        return cast("PreTrainedTokenizerFast", made)
    found = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    if not isinstance(found, PreTrainedTokenizerFast):
        raise ConfigError(f"{folder}: expected a {TOKENIZER_FILE}; this tokenizer has none")
    return found


def _hash_weights(folder: Path) -> str:
    """Return the hash of the weights: of the one file, or of the hashes of several."""
    hashes = [file_hash(path) for path in sorted(folder.glob("*.safetensors"))]
    return hashes[0] if len(hashes) == 1 else checkpoint_version(*hashes)
