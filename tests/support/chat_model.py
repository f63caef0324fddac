"""A folder as the hub has them, with a Qwen2 of a few thousand weights that reads chats; it is made here, not fetched.

The tokenizer is a byte-level BPE of the English briefing's own words, and whole plans are one token each, so that a
model which has learned nothing yet writes some.
"""

from pathlib import Path

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

from shikisha.core.plan import Plan, Step
from shikisha.core.prompts import planner_instructions, render_plan_lists

PAD, BEGIN, END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
TEMPLATE = (
    "{% for turn in messages %}<|im_start|>{{ turn.role }}\n{{ turn.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
_PHRASES = 400  # and three workers each: half of the tokens are plans


def chat_model(folder: Path, seed: int = 0) -> Path:
    """Save the model and its tokenizer there."""
    words = tokenizer()
    config = Qwen2Config(
        vocab_size=len(words),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        intermediate_size=64,
        max_position_embeddings=8192,
        tie_word_embeddings=False,
        eos_token_id=words.eos_token_id,
        pad_token_id=None,
    )
    torch.manual_seed(seed)
    Qwen2ForCausalLM(config).save_pretrained(folder)
    words.save_pretrained(folder)
    return folder


def tokenizer() -> PreTrainedTokenizerFast:
    bare = Tokenizer(models.BPE())
    bare.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bare.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=1200,
        special_tokens=[PAD, BEGIN, END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    bare.train_from_iterator([planner_instructions()], trainer)
    bare.add_tokens([AddedToken(plan, normalized=False) for plan in plans()])
    return PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=bare, pad_token=PAD, eos_token=END, chat_template=TEMPLATE, padding_side="left"
    )


def plans() -> list[str]:
    steps = [Step(f"answer the question, {number}", worker) for number in range(_PHRASES) for worker in range(3)]
    return [render_plan_lists(Plan((step,))) for step in steps]
