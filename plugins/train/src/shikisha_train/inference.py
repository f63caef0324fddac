"""A checkpoint that answers in this process by transformers: any causal model with a chat template, as a worker.

`conductors.language_model` asks it for plans as it asks an endpoint. What others wrote (question, answers,
descriptions) is tokenized apart from the template, special tokens switched off, so no text can close a turn.
Invariants: only safetensors are loaded, only from a folder, and no code of a checkpoint is run; decoding is greedy, so
the same request has the same answer. Deliberately absent: batches, several devices and held formats (a server such as
vLLM does that), and downloads.
"""

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast
from uuid import uuid4

import torch
from transformers import PreTrainedTokenizerFast

from shikisha.core.budget import Usage
from shikisha.core.call import Reply, Request
from shikisha.core.errors import ConfigError, FaultKind, WorkerError
from shikisha.core.messages import ChatMessage
from shikisha_train.checkpoint import CONFIG, hash_file
from shikisha_train.model_card import CARD_FILE
from shikisha_train.model_loader import LoadedModel, load_model

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_DTYPES = ("float32", "bfloat16", "float16")
_VERSION_DIGITS = 12
_DEFAULT_ROUNDS = 3  # of a model that was not trained to conduct


class CheckpointWorker:
    """Answers requests by a loaded model; `version` names its weights, `longest` is the most tokens of an answer."""

    def __init__(self, loaded: LoadedModel, version: str, longest: int) -> None:
        self._model, self._ends = loaded.model, end_tokens(loaded)
        self._full: Tokenizer = loaded.tokenizer
        self._bare: Tokenizer = type(self._full).from_str(self._full.to_str())
        self._bare.encode_special_tokens = True
        self._pad = loaded.pad
        options = {"tokenizer_object": loaded.tokenizer, "chat_template": loaded.template}
        self._chat = PreTrainedTokenizerFast(**options)  # type: ignore[no-untyped-call]
        self.version, self.longest = version, longest
        self._model.train(mode=False)

    async def perform(self, request: Request) -> Reply:
        """Return the likeliest answer to the request's turns; WorkerError where it does not fit or does not end."""
        return await asyncio.to_thread(self._answer, request.turns)

    def _answer(self, turns: Sequence[ChatMessage]) -> Reply:
        prompt = self.encode(turns)
        most = int(self._model.config.max_position_embeddings)
        if len(prompt) >= most:
            message = f"a prompt of {len(prompt)} tokens is more than the {most} that the model can read"
            raise WorkerError(FaultKind.BAD_REQUEST, message)
        given = torch.tensor([prompt], device=self._model.device)
        with torch.inference_mode():
            found = self._model.generate(  # type: ignore[operator]
                given,
                attention_mask=torch.ones_like(given),
                max_new_tokens=min(self.longest, most - len(prompt)),
                do_sample=False,
                eos_token_id=list(self._ends),
                pad_token_id=self._ends[0] if self._pad is None else self._pad,
            )
        tokens = [int(token) for token in found[0, len(prompt) :]]
        text: str = self._full.decode(tokens, skip_special_tokens=True)
        if tokens[-1] not in self._ends:
            raise WorkerError(FaultKind.TRUNCATED, f"broken off after {len(tokens)} tokens", partial=text)
        return Reply(text, Usage(len(prompt), len(tokens)), model=self.version)

    def encode(self, turns: Sequence[ChatMessage]) -> list[int]:
        """Return the chat's tokens up to where the model's turn begins."""
        marks = [uuid4().hex for _ in turns]
        shown = [{"role": str(turn.speaker), "content": mark} for turn, mark in zip(turns, marks, strict=True)]
        rest = cast("str", self._chat.apply_chat_template(shown, tokenize=False, add_generation_prompt=True))
        shown_once = [(mark, turn) for mark, turn in zip(marks, turns, strict=True) if mark in rest]
        if any(rest.count(mark) != 1 for mark in marks[-1:] + [mark for mark, _ in shown_once]):
            raise WorkerError(
                FaultKind.BAD_REQUEST, "the chat template does not show the last turn, or shows one twice"
            )
        tokens = list[int]()
        for mark, turn in shown_once:
            before, _, rest = rest.partition(mark)
            tokens += self._full.encode(before, add_special_tokens=False).ids
            tokens += self._bare.encode(turn.text, add_special_tokens=False).ids
        return [*tokens, *self._full.encode(rest, add_special_tokens=False).ids]


def open_checkpoint(folder: Path, longest: int) -> CheckpointWorker:
    """Open the checkpoint in a folder; ConfigError that says what is missing or cannot be used."""
    try:
        kept = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
        kept = kept.get("dtype") or kept.get("torch_dtype")
    except (OSError, ValueError, AttributeError) as error:
        raise ConfigError(f"{folder / CONFIG}: cannot be read: {error}") from None
    try:
        loaded = load_model(str(folder), kept if kept in _DTYPES else _DTYPES[0])
    except ConfigError as error:
        raise ConfigError(str(error).removeprefix("model.start: ")) from None
    if not loaded.template:
        raise ConfigError(f"{folder}: the model has no chat template; the compact prompt is no longer read")
    if not end_tokens(loaded):
        raise ConfigError(f"{folder / CONFIG}: eos_token_id: missing, so no token ends a text")
    if torch.cuda.is_available():
        torch.nn.Module.to(loaded.model, "cuda")
    weights = "".join(hash_file(path) for path in sorted(folder.glob("*.safetensors")))
    return CheckpointWorker(loaded, weights[:_VERSION_DIGITS], longest)


def trained_prompt(folder: Path) -> tuple[bool, int]:
    """Return whether a checkpoint was shown descriptions of workers, and how many rounds it was trained to plan."""
    try:
        settings = json.loads((folder / CARD_FILE).read_text(encoding="utf-8"))["settings"]
        return bool(settings["model"]["described"]), 2 if settings["second"]["share"] else 1
    except (OSError, ValueError, KeyError, TypeError):
        return True, _DEFAULT_ROUNDS


def end_tokens(loaded: LoadedModel) -> tuple[int, ...]:
    """Return the tokens that end a text, by tokenizer, model and generation settings."""
    generating = loaded.model.generation_config
    ends = [loaded.end, loaded.model.config.eos_token_id, None if generating is None else generating.eos_token_id]
    every = (token for one in ends for token in (one if isinstance(one, list) else [one]))
    return tuple(sorted({token for token in every if isinstance(token, int)}))
