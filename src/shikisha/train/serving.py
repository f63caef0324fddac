"""A checkpoint that conducts in this process by transformers: one of ours, or any causal model with a chat template.

One of ours (a bare `tokenizer.json`) reads briefings of few words; any other is addressed in English (`prompt`) as a
chat. What others wrote (question, answers, descriptions) is tokenised apart from the template, with the special tokens
switched off, so no text can close a turn. Invariants: only safetensors are loaded, only from a folder, and no code of a
checkpoint is run; each token is computed once (keys and values are kept). Deliberately absent: batches and several
devices (a server such as vLLM does that; see `conductors.lm`), and downloads.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import torch

from shikisha.conductor import Situation
from shikisha.conductors.decoding import Reading
from shikisha.conductors.exported import TOKENIZER, Briefed, Facts, file_hash, read_tokenizer, version_of
from shikisha.conductors.lexicon import lexicon_of, ordinals_of
from shikisha.errors import ConfigError
from shikisha.policy.arrays import Lean
from shikisha.prompt import briefing, instructions

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from transformers import PreTrainedModel, PreTrainedTokenizerFast
    from transformers.cache_utils import Cache

_SETTINGS = "tokenizer_config.json"


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

    longest = 1024  # tokens of reasoning and plan
    rounds = 3

    def __init__(
        self, model: TorchModel, tokenizer: "PreTrainedTokenizerFast", ends: Sequence[int], where: Path
    ) -> None:
        if not tokenizer.chat_template:
            raise ConfigError(f"{where}: no chat template: expected `chat_template` in {_SETTINGS}")
        if not ends:
            raise ConfigError(f"{where}: nobody says which token ends a text (eos_token)")
        self.model = model
        self.ends = frozenset(ends)
        self.version = _version(where)
        self._chat = tokenizer
        self._whole: Tokenizer = tokenizer.backend_tokenizer
        self._bare: Tokenizer = type(self._whole).from_str(self._whole.to_str())
        self._bare.encode_special_tokens = True
        silent = {*ends, *tokenizer.all_special_ids}
        self.lexicon = lexicon_of(self.encode, self.decode, len(tokenizer), silent, str(where))
        self.ordinals = ordinals_of(self.encode, self.decode)

    def prompt(self, situation: Situation) -> Sequence[int]:
        """Return the chat's tokens up to where the model's turn begins."""
        most = max(1, min(situation.left.plan_steps, situation.left.steps))
        said = (instructions(most), briefing(situation.task, situation.cards, situation.rounds))
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

    def _rendered(self, marks: Sequence[str]) -> str:
        turns = [{"role": role, "content": mark} for role, mark in zip(("system", "user"), marks, strict=True)]
        text = self._chat.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)
        if not isinstance(text, str) or any(text.count(mark) != 1 for mark in marks):
            raise ConfigError("the chat template does not show a system turn and a user turn once each")
        return text


def open_served(folder: Path) -> Briefed | Chat:
    """Return the checkpoint in a folder; ConfigError that says what is missing or cannot be used."""
    import transformers
    from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerFast

    transformers.utils.logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        model = AutoModelForCausalLM.from_pretrained(folder, local_files_only=True, use_safetensors=True, dtype="auto")
        torch.nn.Module.to(model, "cuda" if torch.cuda.is_available() else "cpu")
        served = TorchModel(model)
        if not (folder / _SETTINGS).is_file():
            return _ours(folder, served, model)
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    except (OSError, ValueError, KeyError) as error:
        raise ConfigError(f"{folder}: cannot be loaded: {str(error).splitlines()[0]}") from None
    if not isinstance(tokenizer, PreTrainedTokenizerFast):
        raise ConfigError(f"{folder}: expected a {TOKENIZER}; this tokenizer has none")
    return Chat(served, tokenizer, _ends(model, tokenizer), folder)


def facts_of(folder: Path, model: "PreTrainedModel", rounds: int = 1) -> Facts:
    """Return the facts of a checkpoint of ours; ConfigError where its configuration names no end."""
    end, pad = model.config.eos_token_id, model.config.pad_token_id
    if not isinstance(end, int):
        raise ConfigError(f"{folder}/config.json: eos_token_id: expected one token, found {end!r}")
    silent = (pad,) if isinstance(pad, int) else ()
    return Facts(_weights(folder), file_hash(folder / TOKENIZER), end, silent, rounds)


def _ours(folder: Path, served: TorchModel, model: "PreTrainedModel") -> Briefed:
    tokenizer, _ = read_tokenizer(folder / TOKENIZER)
    return Briefed(served, tokenizer, facts_of(folder, model), str(folder))


def _ends(model: "PreTrainedModel", tokenizer: "PreTrainedTokenizerFast") -> list[int]:
    settings = model.generation_config
    told = None if settings is None else settings.eos_token_id
    found = {*(told if isinstance(told, list) else [told]), tokenizer.eos_token_id}
    return sorted(token for token in found if isinstance(token, int))


def _version(folder: Path) -> str:
    return version_of(_weights(folder), file_hash(folder / TOKENIZER))


def _weights(folder: Path) -> str:
    """Return the hash of the weights: of the one file, or of the hashes of several."""
    hashes = [file_hash(path) for path in sorted(folder.glob("*.safetensors"))]
    return hashes[0] if len(hashes) == 1 else version_of(*hashes)
