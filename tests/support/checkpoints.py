"""What tests of checkpoints share: folders with small models whose weights are random, exported or not.

Random weights write anything at all, so whatever keeps their texts to plans is what is tested.
"""

import json
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

from shikisha.core.plan import Plan, Step
from shikisha.core.prompts import compact_prompt
from shikisha.core.run import Result, RoundResult
from shikisha.engine.conductor import Situation
from shikisha.simulation.task_generator import SimulatedTask, generate_tasks
from shikisha.simulation.vocabulary import WordingSplit
from shikisha.training.model_card import CARD_FILE, CARD_FORMAT
from shikisha.training.model_loader import Qwen2Size, new_qwen2
from shikisha.training.onnx_export import export_onnx
from shikisha.training.settings import TrainSettings
from shikisha.training.sft_data import plan_pieces, word_tokenizer

SIZE = Qwen2Size(layers=2, width=32, heads=2, inner=48, longest=400)
PHRASES = ("answer the question", "take the most common result", "look up the fact")
TASKS: list[SimulatedTask] = list(generate_tasks(WordingSplit.DEV, 3, count=12))
END = "<|im_end|>"
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "<|im_start|>assistant\n"
)


def situation(number: int = 0, *rounds: RoundResult) -> Situation:
    """A task with its pool, after these rounds."""
    item = TASKS[number]
    return Situation(item.task, item.pool.cards, rounds)


def first_round() -> RoundResult:
    """A plan that had an answer."""
    return RoundResult(Plan((Step("answer the question", 0),)), (Result("a", "42"),))


def words() -> Tokenizer:
    """A word-level tokenizer, as our models have."""
    return word_tokenizer([compact_prompt(item.task, item.pool.cards) for item in TASKS], plan_pieces(PHRASES), least=1)


def save(model: Qwen2ForCausalLM, tokenizer: Tokenizer, folder: Path) -> Path:
    """A checkpoint's folder as training leaves it."""
    model.save_pretrained(folder)
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


def random(folder: Path, seed: int = 0) -> Path:
    """A model that has learned nothing, with the tokenizer of words."""
    tokenizer = words()
    model = new_qwen2(tokenizer.get_vocab_size(), SIZE, seed)
    for weight in model.parameters():
        weight.data.mul_(4.0)  # far from even distributions
    return save(model, tokenizer, folder)


def exported(folder: Path, seed: int = 0) -> Path:
    """The same, exported."""
    export_onnx(random(folder, seed), prompts=["ask what is it\n0 $4 looks up\nplan\n"])
    return folder


def shared_heads(vocabulary: int) -> Qwen2ForCausalLM:
    """A model in which two heads share a key, and whose logits have weights of their own."""
    config = new_qwen2(vocabulary, Qwen2Size(2, 48, 4, 32, 128)).config.to_dict()
    return Qwen2ForCausalLM(Qwen2Config(**{**config, "num_key_value_heads": 2, "tie_word_embeddings": False}))


def chatting(folder: Path, *, template: str = TEMPLATE, bare: bool = False) -> Path:
    """A model that is addressed as a chat; `bare` as training leaves it, with the template in a file of its own."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    special = [AddedToken(text, special=True) for text in ("<|pad|>", END, "<|im_start|>")]
    trainer = trainers.BpeTrainer(
        vocab_size=330,
        special_tokens=special,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(["the model of the question and the answer of this step"], trainer)
    save(new_qwen2(tokenizer.get_vocab_size(), Qwen2Size(1, 16, 2, 16, 9000)), tokenizer, folder)
    settings = TrainSettings.model_validate({"model": {"brief": False}, "grpo": {"longest": 400}})
    (folder / CARD_FILE).write_text(json.dumps({"format": CARD_FORMAT, "settings": settings.model_dump(mode="json")}))
    if bare:
        (folder / "chat_template.jinja").write_text(template)
    else:
        options = {"tokenizer_object": tokenizer, "eos_token": END, "chat_template": template}
        chat: PreTrainedTokenizerFast = PreTrainedTokenizerFast(**options)  # type: ignore[no-untyped-call]
        chat.save_pretrained(folder)
    return folder
