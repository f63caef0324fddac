"""A checkpoint that conducts in this process by transformers: one of ours, or any causal model with a chat template.

A model without a chat template, or one that was trained so, reads briefings of few words; any other is addressed in
English (`prompt`) as a chat. What others wrote (question, answers, descriptions) is tokenised apart from the template,
with the special tokens switched off, so no text can close a turn. Invariants: only safetensors are loaded, only from a
folder, and no code of a checkpoint is run; each token is computed once (keys and values are kept). Deliberately absent:
batches and several devices (a server such as vLLM does that; see `conductors.lm`), and downloads.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast
from uuid import uuid4

import torch
from pydantic import ValidationError

from shikisha.conductor import Situation
from shikisha.conductors.decoding import Reading
from shikisha.conductors.exported import (
    PLAN_TOKENS,
    TOKENIZER,
    Briefed,
    Facts,
    file_hash,
    unknown_count,
    unknown_token,
    version_of,
)
from shikisha.conductors.lexicon import lexicon_of, ordinals_of
from shikisha.errors import ConfigError
from shikisha.policy.arrays import Lean
from shikisha.prompt import Style, briefing, instructions
from shikisha.train.card import CARD
from shikisha.train.opening import Begun, opened
from shikisha.train.settings import TrainSettings

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from transformers import PreTrainedModel, PreTrainedTokenizerFast
    from transformers.cache_utils import Cache

_CONFIG, _OF_OTHERS = "config.json", "tokenizer_config.json"
_DTYPES = ("float32", "bfloat16", "float16")
_ROUNDS, _LONGEST = 3, 1024  # of a model that was not trained to conduct


class TorchModel:
    """A causal model of transformers (`decoding.Model`)."""

    def __init__(self, model: "PreTrainedModel") -> None:
        self.longest = int(model.config.max_position_embeddings)
        self._model = model
        model.train(mode=False)

    def begin(self) -> Reading:
        """Begin a text."""
        return _TorchReading(self._model)


class _TorchReading:
    """A text as the model has read it."""

    def __init__(self, model: "PreTrainedModel") -> None:
        self._model = model
        self._held: Cache | None = None

    @torch.inference_mode()
    def feed(self, tokens: Sequence[int]) -> Lean:
        """Read on."""
        given = torch.tensor([list(tokens)], device=self._model.device)
        out = self._model(input_ids=given, past_key_values=self._held, use_cache=True, logits_to_keep=1)
        self._held = out.past_key_values
        last: Lean = out.logits[0, -1].float().cpu().numpy()
        return last


class Chat:
    """A model that is addressed as a chat, in English: an author of plans (`conductors.trained.Author`)."""

    def __init__(
        self, model: TorchModel, chat: "PreTrainedTokenizerFast", facts: Facts, where: str, style: Style
    ) -> None:
        self.model, self._style = model, style
        self.ends = frozenset(facts.ends)
        self.version = version_of(facts.weights, facts.tokenizer)
        self.rounds, self.longest = facts.rounds, facts.longest
        self._chat = chat
        self._whole: Tokenizer = chat.backend_tokenizer
        self._bare: Tokenizer = type(self._whole).from_str(self._whole.to_str())
        self._bare.encode_special_tokens = True
        silent = {*facts.ends, *facts.silent, *chat.all_special_ids}
        self.lexicon = lexicon_of(self.encode, self.decode, len(chat), silent, where)
        self.ordinals = ordinals_of(self.encode, self.decode)
        self._unknown = unknown_token(self._bare)
        self.words = None if self._unknown is None else len(chat)
        self._rendered(["0", "1"])

    def prompt(self, situation: Situation) -> Sequence[int]:
        """Return the chat's tokens up to where the model's turn begins."""
        most = max(1, min(situation.left.plan_steps, situation.left.steps))
        shown = briefing(situation.task, situation.cards, situation.rounds, self._style)
        said = (instructions(most, self._style), shown)
        marks = [uuid4().hex for _ in said]
        rest, tokens = self._rendered(marks), list[int]()
        for mark, text in zip(marks, said, strict=True):
            before, _, rest = rest.partition(mark)
            tokens += self._whole.encode(before, add_special_tokens=False).ids
            tokens += self.encode(text)
        return [*tokens, *self._whole.encode(rest, add_special_tokens=False).ids]

    def encode(self, text: str) -> Sequence[int]:
        """Return a text's tokens, none of them special."""
        return self._bare.encode(text, add_special_tokens=False).ids

    def decode(self, tokens: Sequence[int]) -> str:
        """Return the text of these tokens."""
        return self._whole.decode(list(tokens), skip_special_tokens=True)

    def unknown(self, text: str) -> tuple[int, int]:
        """Return how many of a text's tokens stand for what it does not know, and how many there are."""
        return unknown_count(self.encode(text), self._unknown)

    def _rendered(self, marks: Sequence[str]) -> str:
        turns = [{"role": role, "content": mark} for role, mark in zip(("system", "user"), marks, strict=True)]
        text = self._chat.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)
        if not isinstance(text, str) or any(text.count(mark) != 1 for mark in marks):
            raise ConfigError("the chat template does not show a system turn and a user turn once each")
        return text


def open_served(folder: Path) -> Briefed | Chat:
    """Return the checkpoint in a folder; ConfigError that says what is missing or cannot be used."""
    begun = read(folder)
    settings = settings_of(folder)
    if torch.cuda.is_available():
        torch.nn.Module.to(begun.model, "cuda")
    model = TorchModel(begun.model)
    if settings.model.brief if settings else not begun.template:
        return Briefed(model, begun.tokenizer, facts_of(folder, begun, settings), str(folder))
    if not begun.template:
        raise ConfigError(f"{folder}: the model has no chat template, and was not trained to read short briefings")
    chat = _chat(folder, begun)
    style = Style(described=settings.model.described) if settings else Style()
    return Chat(model, chat, facts_of(folder, begun, settings), str(folder), style)


def read(folder: Path, dtype: str = "") -> Begun:
    """Return what is in a folder, by default in the precision that it is kept in; ConfigError where it is not whole."""
    if not folder.is_dir():
        raise ConfigError(f"{folder}: there is no such folder")
    try:
        kept = json.loads((folder / _CONFIG).read_text(encoding="utf-8"))
        kept = kept.get("dtype") or kept.get("torch_dtype")
    except (OSError, ValueError, AttributeError) as error:
        raise ConfigError(f"{folder / _CONFIG}: cannot be read: {error}") from None
    try:
        return opened(str(folder), dtype or (kept if kept in _DTYPES else _DTYPES[0]))
    except ConfigError as error:
        raise ConfigError(str(error).removeprefix("model.start: ")) from None


def settings_of(folder: Path) -> TrainSettings | None:
    """Return what a checkpoint was trained with, by its card; None where it has none."""
    path = folder / CARD
    if not path.is_file():
        return None
    try:
        return TrainSettings.model_validate(json.loads(path.read_text(encoding="utf-8"))["settings"])
    except (ValueError, KeyError, TypeError, ValidationError) as error:
        said = str(error).splitlines()[0]
        raise ConfigError(f"{path}: settings of another version: {said}") from None


def facts_of(folder: Path, begun: Begun, settings: TrainSettings | None = None) -> Facts:
    """Return the facts of a checkpoint; ConfigError where nobody says which token ends a text."""
    ends = ends_of(begun)
    if not ends:
        raise ConfigError(f"{folder / _CONFIG}: eos_token_id: nobody says which token ends a text")
    plain = not begun.template
    return Facts(
        _weights(folder),
        file_hash(folder / TOKENIZER),
        ends,
        () if begun.pad is None else (begun.pad,),
        rounds=(2 if settings.second.share else 1) if settings else 1 if plain else _ROUNDS,
        longest=settings.grpo.longest if settings else PLAN_TOKENS if plain else _LONGEST,
    )


def ends_of(begun: Begun) -> tuple[int, ...]:
    """Return the tokens that end a text, by the tokenizer, the model, and how it is told to generate."""
    generating = begun.model.generation_config
    told = [begun.end, begun.model.config.eos_token_id, None if generating is None else generating.eos_token_id]
    every = (token for one in told for token in (one if isinstance(one, list) else [one]))
    return tuple(sorted({token for token in every if isinstance(token, int)}))


def _chat(folder: Path, begun: Begun) -> "PreTrainedTokenizerFast":
    """Return what renders the chat template."""
    from transformers import AutoTokenizer, PreTrainedTokenizerFast

    if (folder / CARD).is_file() or not (folder / _OF_OTHERS).is_file():
        made: object = PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
            tokenizer_object=begun.tokenizer, chat_template=begun.template
        )
        return cast("PreTrainedTokenizerFast", made)
    found = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    if not isinstance(found, PreTrainedTokenizerFast):
        raise ConfigError(f"{folder}: expected a {TOKENIZER}; this tokenizer has none")
    return found


def _weights(folder: Path) -> str:
    """Return the hash of the weights: of the one file, or of the hashes of several."""
    hashes = [file_hash(path) for path in sorted(folder.glob("*.safetensors"))]
    return hashes[0] if len(hashes) == 1 else version_of(*hashes)
