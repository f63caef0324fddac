"""What a GPU makes of training: a 7B configuration with random weights, and a small model in three precisions.

    python benchmarks/train_gpu.py lora [--tasks 1] [--group 64] [--longest 1024] [--rows 4] [--steps 1]
    python benchmarks/train_gpu.py full ...          # all weights, in bfloat16 (see docs/how-to/train-large.md)
    python benchmarks/train_gpu.py own ...           # our own sampler, which reads a prompt once for a whole group
    python benchmarks/train_gpu.py small             # a model of 25 M parameters: lessons and samples
    --size tiny                                      # the same in miniature, on a processor too

`lora` and `full` take the recipe's own steps (`recipes/conductor-7b*.toml`) by the trainer itself, sampled by our
reader or (--sampler transformers) by that: prompts of the embedded orchestra in the English briefing, plans performed
by the engine, rewards, backward pass, optimizer. Weights are random, in the layout and size of Qwen2.5-7B, so plans
are no plans and every completion is as long as it may be: the costliest case. Deliberately absent: vLLM, several
GPUs, and any learning.
"""

import argparse
import asyncio
import json
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

import torch
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

from common import machine
from shikisha.config.training_environment import open_environment
from shikisha.training.environment import TaskCurriculum
from shikisha.training.model_loader import Qwen2Size, new_qwen2
from shikisha.training.plan_reward import PlanScorer
from shikisha.training.process_group import default_device
from shikisha.training.rollout import sample
from shikisha.training.settings import TrainSettings, load_settings
from shikisha.training.sft import sft_optimizer

ROOT = Path(__file__).parent.parent
LAYOUT = {  # Qwen2.5-7B's, by its config.json
    "hidden_size": 3584,
    "num_hidden_layers": 28,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "intermediate_size": 18944,
    "vocab_size": 152064,
    "max_position_embeddings": 32768,
    "tie_word_embeddings": False,
}
TINY = {**LAYOUT, "hidden_size": 56, "num_hidden_layers": 2, "intermediate_size": 64, "vocab_size": 2400}
MIDDLE = Qwen2Size(layers=8, width=512, heads=8, inner=1408, longest=1024)
PRECISIONS = ("float32", "tf32", "bfloat16")


def words() -> PreTrainedTokenizerFast:
    """Return a tokenizer that reads the briefing: the tests', made of the briefing's own words."""
    sys.path.insert(0, str(ROOT / "tests"))
    from chat_model import tokenizer

    return tokenizer()


def random_model(layout: Mapping[str, object], end: int | None, pad: int | None) -> Qwen2ForCausalLM:
    """Return a model of this layout with random weights in bfloat16, where it is to compute."""
    config = Qwen2Config.from_dict({**layout, "eos_token_id": end, "pad_token_id": pad})
    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    try:
        with default_device():
            return Qwen2ForCausalLM(config)
    finally:
        torch.set_default_dtype(default)


def chosen(given: argparse.Namespace) -> TrainSettings:
    """Return the recipe's settings, in the given sizes."""
    name = "conductor-7b-lora" if given.what == "lora" else "conductor-7b"
    table = load_settings(ROOT / "recipes" / f"{name}.toml").model_dump(mode="json")
    table["grpo"] |= {"tasks": given.tasks, "group": given.group, "longest": given.longest, "steps": given.steps}
    table["model"] |= {"dtype": "bfloat16"}
    table["tasks"] |= {"judged": 0}
    table["trl"] = {"rows": given.rows}
    return TrainSettings.model_validate(table)


async def stepped(given: argparse.Namespace) -> dict[str, object]:
    """Take steps of TRL's and return what they took."""
    from shikisha.training.trl import TrlLoop

    settings, chats = chosen(given), words()
    model = random_model(TINY if given.size == "tiny" else LAYOUT, chats.eos_token_id, chats.pad_token_id)
    with TemporaryDirectory() as folder:
        async with open_environment(settings, Path(folder), None) as ground:
            source = TaskCurriculum(ground.stream, settings.seed, near_half=False)
            loop = TrlLoop(model, chats, source, PlanScorer(settings.reward.weights(), ground.caps), settings)
            if given.sampler == "transformers":
                loop.trainer.rollout_func = None
            found: list[dict[str, float]] = []
            for _ in range(given.steps):
                _begin_peak()
                step = await loop.advance()
                prompt = len(loop.trainer.current.groups[0].prompt)
                found.append({**step.seconds, "tokens": step.tokens, "prompt": prompt, "peak GiB": _peak()})
    sizes = [(each.numel(), each.requires_grad) for each in loop.trainer.accelerator.unwrap_model(model).parameters()]
    weights, learned = sum(size for size, _ in sizes), sum(size for size, moves in sizes if moves)
    rows = settings.grpo.tasks * settings.grpo.group
    for one in found:
        read = one["tokens"] + rows * one["prompt"]
        one["sampled tokens/s"] = one["tokens"] / one["sample and perform"]
        one["learned tokens/s"] = read / one["learn"]
        one["TFLOP/s while learning"] = _flops(weights, learned) * read / one["learn"] / 1e12
    return {"weights": weights, "learned": learned, "completions": rows, "steps": found}


def _flops(weights: int, learned: int) -> float:
    """Return the operations that learning takes a token: forward twice (checkpoints), backward, gradients."""
    return 2.0 * weights * 3 + 2.0 * learned


def own(given: argparse.Namespace) -> dict[str, object]:
    """Sample by our own reader, prompts once a group."""
    chats = words()
    model = random_model(TINY if given.size == "tiny" else LAYOUT, chats.eos_token_id, chats.pad_token_id)
    model.train(mode=False)
    prompt = torch.randint(3, 1000, (given.tasks, given.prompt), generator=torch.Generator().manual_seed(0)).tolist()
    _begin_peak()
    sample(model, prompt, given.group, 4, torch.Generator().manual_seed(1))
    begun = perf_counter()
    drawn = sample(model, prompt, given.group, given.longest, torch.Generator().manual_seed(1))
    seconds = perf_counter() - begun
    count = int(drawn.mask.sum())
    return {"tokens": count, "seconds": seconds, "sampled tokens/s": count / seconds, "peak GiB": _peak()}


def small(given: argparse.Namespace) -> dict[str, object]:
    """Take lessons and samples with a small model in three precisions."""
    device, found = default_device(), dict[str, object]()
    size = Qwen2Size(2, 32, 2, 48, 1024) if given.size == "tiny" else MIDDLE
    for precision in PRECISIONS:
        torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
        model = new_qwen2(800, size, 1).to(device)  # type: ignore[arg-type]
        found["parameters"] = sum(each.numel() for each in model.parameters())
        found[f"{precision}: lessons"] = _taught(model, precision, given)
        found[f"{precision}: samples"] = _sampled(model, precision, given)
    return found


def _taught(model: Qwen2ForCausalLM, precision: str, given: argparse.Namespace) -> dict[str, float]:
    optimizer = sft_optimizer(model, TrainSettings().warm)
    tokens = torch.randint(3, 800, (given.batch, given.prompt), device=model.device)
    model.train()
    _begin_peak()
    for number in range(3 + given.lessons):
        if number == 3:
            begun = _now()
        with torch.autocast(model.device.type, torch.bfloat16, enabled=precision == "bfloat16"):
            logits = model(input_ids=tokens).logits
        loss = torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1).float(), tokens[:, 1:].flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    each = (_now() - begun) / given.lessons
    model.train(mode=False)
    return {"seconds a step": each, "tokens/s": tokens.numel() / each, "peak GiB": _peak()}


def _sampled(model: Qwen2ForCausalLM, precision: str, given: argparse.Namespace) -> dict[str, float]:
    prompts = torch.randint(3, 800, (16, given.prompt), generator=torch.Generator().manual_seed(0)).tolist()
    with ExitStack() as stack:
        stack.enter_context(torch.autocast(model.device.type, torch.bfloat16, enabled=precision == "bfloat16"))
        for _ in range(2):
            begun = _now()
            drawn = sample(model, prompts, 32, 96, torch.Generator().manual_seed(1))
            seconds = _now() - begun
    return {"seconds": seconds, "tokens/s": int(drawn.mask.sum()) / seconds}


def _now() -> float:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return perf_counter()


def _begin_peak() -> None:
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()


def _peak() -> float:
    return torch.cuda.max_memory_allocated() / 2**30 if torch.cuda.is_available() else 0.0


def main() -> None:
    """Measure and print, as JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("what", choices=("lora", "full", "own", "small"))
    parser.add_argument("--size", choices=("7b", "tiny"), default="7b")
    parser.add_argument("--sampler", choices=("ours", "transformers"), default="ours")
    for name, least in (("tasks", 1), ("group", 64), ("longest", 1024), ("rows", 4), ("steps", 1)):
        parser.add_argument(f"--{name}", type=int, default=least)
    for name, least in (("prompt", 1200), ("batch", 64), ("lessons", 20)):
        parser.add_argument(f"--{name}", type=int, default=least)
    given = parser.parse_args()
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "processor"
    found = {"own": own, "small": small}[given.what](given) if given.what in ("own", "small") else None
    found = asyncio.run(stepped(given)) if found is None else found
    about = {"machine": machine(), "device": device, "torch": torch.__version__}
    print(json.dumps({"given": vars(given), **about, **found}, indent=1))


if __name__ == "__main__":
    main()
