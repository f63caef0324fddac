"""What a GPU makes of training: 0.5 to 7B configurations with random weights, and a small model in three precisions.

    python benchmarks/train_gpu.py lora [--tasks 1] [--group 64] [--longest 1024] [--rows 4] [--steps 1]
    python benchmarks/train_gpu.py lora --size 0.5b  # or 1.5b, or 3b: `recipes/conductor-0.5b.toml`, within 24 GB
    python benchmarks/train_gpu.py full ...          # all weights, in bfloat16 (see docs/how-to/train-large.md)
    python benchmarks/train_gpu.py own ...           # our own sampler, which reads a prompt once for a whole group
    python benchmarks/train_gpu.py small             # a model of 25 M parameters: lessons and samples
    --size tiny                                      # the same in miniature, on a processor too

`lora` and `full` take the recipe's own steps (`recipes/conductor-*.toml`) by the trainer itself, sampled by our
reader or (--sampler transformers) by that: prompts of the embedded orchestra in the English briefing, plans performed
by the engine, rewards, backward pass, optimizer. Weights are random, in the layout and size of Qwen2.5, so plans are
no plans and every completion is as long as it may be: the costliest case. As many different plans of five steps are
therefore written by hand and performed as well (`performing`). `--memory` is a cap in GB: PyTorch's allocator fails
above it. Deliberately absent: vLLM, several GPUs, and any learning.
"""

import argparse
import asyncio
import json
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from itertools import zip_longest
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import TYPE_CHECKING, Any

import torch
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

from common import machine
from shikisha.config.training_environment import open_environment
from shikisha.core.plan import MAX_STEPS, Plan, Step
from shikisha.core.prompts import render_plan_lists
from shikisha.evals.taskset import TaskItem
from shikisha.training.environment import TaskCurriculum
from shikisha.training.model_loader import Qwen2Size, new_qwen2
from shikisha.training.plan_reward import PlanScorer
from shikisha.training.process_group import default_device
from shikisha.training.rollout import sample
from shikisha.training.settings import TrainSettings, load_settings
from shikisha.training.sft import sft_optimizer

if TYPE_CHECKING:
    from trl.trainer.grpo_trainer import GRPOTrainer

    from shikisha.training.trl import PlanGRPOTrainer

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
_LESS = {**LAYOUT, "num_key_value_heads": 2, "vocab_size": 151936, "tie_word_embeddings": True}
_SIZES = ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")
LAYOUTS = {
    "7b": LAYOUT,
    "3b": {**_LESS, **dict(zip(_SIZES, (2048, 36, 16, 11008), strict=True))},
    "1.5b": {**_LESS, **dict(zip(_SIZES, (1536, 28, 12, 8960), strict=True))},
    "0.5b": {**_LESS, **dict(zip(_SIZES, (896, 24, 14, 4864), strict=True))},
    "tiny": {**LAYOUT, "hidden_size": 56, "num_hidden_layers": 2, "intermediate_size": 64, "vocab_size": 2400},
}
SMALL_RECIPE = "conductor-0.5b"
# Where the recipe's own are too much for one GPU.
LARGE_SIZES = {"tasks": 1, "group": 64, "longest": 1024, "rows": 4}
MIDDLE = Qwen2Size(layers=8, width=512, heads=8, inner=1408, longest=1024)
PRECISIONS = ("float32", "tf32", "bfloat16")


def words() -> PreTrainedTokenizerFast:
    """Return a tokenizer that reads the briefing: the tests', made of the briefing's own words."""
    sys.path.insert(0, str(ROOT / "tests" / "support"))
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
    table = load_settings(ROOT / "recipes" / f"{given.recipe}.toml").model_dump(mode="json")
    for key in ("tasks", "group", "longest"):
        table["grpo"][key] = getattr(given, key) or table["grpo"][key]
    table["grpo"] |= {"steps": given.steps}
    table["model"] |= {"dtype": "bfloat16"}
    table["tasks"] |= {"judged": given.judged}
    table["trl"] = {"rows": given.rows or table["trl"]["rows"]}
    return TrainSettings.model_validate(table)


async def stepped(given: argparse.Namespace) -> dict[str, object]:
    """Take steps of TRL's and return what they took."""
    from shikisha.training.trl import TrlLoop, generate_greedy_plans

    settings, chats = chosen(given), words()
    model = random_model(LAYOUTS[given.size], chats.eos_token_id, chats.pad_token_id)
    judging = dict[str, float]()
    with TemporaryDirectory() as folder:
        async with open_environment(settings, Path(folder), None) as ground:
            source = TaskCurriculum(ground.stream, settings.seed, near_half=False)
            scorer = PlanScorer(settings.reward.weights(), ground.caps)
            loop = TrlLoop(model, chats, source, scorer, settings)
            sampling = _timed_sampling(loop.trainer)
            if given.sampler == "transformers":
                loop.trainer.rollout_func = None
            found: list[dict[str, float]] = []
            for _ in range(given.steps):
                _begin_peak()
                step = await loop.advance()
                prompt = len(loop.trainer.current.groups[0].prompt)
                found.append({**step.seconds, "tokens": step.tokens, "prompt": prompt, **_peaks()})
                print(json.dumps(found[-1]), file=sys.stderr, flush=True)
            performing = await _performed(source.draw(settings.grpo.tasks), scorer, settings.grpo.group)
            if ground.validation_tasks:
                _begin_peak()
                begun = _now()
                await asyncio.to_thread(generate_greedy_plans, loop.trainer, ground.validation_tasks)
                judging = {"judging": _now() - begun, **_peaks()}
    sizes = [(each.numel(), each.requires_grad) for each in loop.trainer.accelerator.unwrap_model(model).parameters()]
    weights, learned = sum(size for size, _ in sizes), sum(size for size, moves in sizes if moves)
    rows = settings.grpo.tasks * settings.grpo.group
    for one, sampled in zip_longest(found, sampling):
        read = one["tokens"] + rows * one["prompt"]
        one["sample"] = sampled or one["sample and perform"]
        one["sampled tokens/s"] = one["tokens"] / one["sample"]
        one["learned tokens/s"] = read / one["learn"]
        one["TFLOP/s while learning"] = _flops(weights, learned) * read / one["learn"] / 1e12
    counts = {"weights": weights, "learned": learned, "completions": rows, "rows": settings.trl.rows}
    return {**counts, "steps": found, "performing": performing, "judging": judging}


def _timed_sampling(trainer: "PlanGRPOTrainer") -> list[float]:
    """Let the trainer note here how many seconds each of its calls of our sampler takes."""
    seconds, draw = list[float](), trainer.rollout_func

    def timed(prompts: list[str], asked: "GRPOTrainer") -> dict[str, Any]:
        begun = _now()
        drawn = {} if draw is None else draw(prompts, asked)
        seconds.append(_now() - begun)
        return drawn

    trainer.rollout_func = None if draw is None else timed
    return seconds


async def _performed(items: Sequence[TaskItem], scorer: PlanScorer, group: int) -> dict[str, float]:
    """Perform a step's plans, had they been plans: all different, of five steps that each see the one before."""
    texts = [[_long_plan(item, number) for number in range(group)] for item in items]
    begun = perf_counter()
    scored = await scorer.scores(texts, items)
    valid = sum(one.valid for each in scored for one in each)
    return {"plans": len(items) * group, "valid": valid, "seconds": perf_counter() - begun}


def _long_plan(item: TaskItem, number: int) -> str:
    count = 0 if item.pool is None else len(item.pool)
    workers = [(number + place) % count for place in range(MAX_STEPS)]
    seen = [() if place == 0 else (place - 1,) for place in range(MAX_STEPS)]
    return render_plan_lists(
        Plan(tuple(Step(f"{item.task.prompt} ({number})", *each) for each in zip(workers, seen, strict=True)))
    )


def _flops(weights: int, learned: int) -> float:
    """Return the operations that learning takes a token: forward twice (checkpoints), backward, gradients."""
    return 2.0 * weights * 3 + 2.0 * learned


def own(given: argparse.Namespace) -> dict[str, object]:
    """Sample by our own reader, prompts once a group."""
    chats = words()
    model = random_model(LAYOUTS[given.size], chats.eos_token_id, chats.pad_token_id)
    model.train(mode=False)
    prompt = torch.randint(3, 1000, (given.tasks, given.prompt), generator=torch.Generator().manual_seed(0)).tolist()
    _begin_peak()
    sample(model, prompt, given.group, 4, torch.Generator().manual_seed(1))
    begun = perf_counter()
    drawn = sample(model, prompt, given.group, given.longest, torch.Generator().manual_seed(1))
    seconds = perf_counter() - begun
    count = int(drawn.mask.sum())
    return {"tokens": count, "seconds": seconds, "sampled tokens/s": count / seconds, **_peaks()}


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
    return {"seconds a step": each, "tokens/s": tokens.numel() / each, **_peaks()}


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


def _peaks() -> dict[str, float]:
    """Return what PyTorch's tensors and its allocator held at most, in GiB, and what the GPU has in use."""
    if not torch.cuda.is_available():
        return {"peak GiB": 0.0}
    free, total = torch.cuda.mem_get_info()
    most = {"peak GiB": torch.cuda.max_memory_allocated(), "reserved GiB": torch.cuda.max_memory_reserved()}
    return {name: held / 2**30 for name, held in (*most.items(), ("in use GiB", total - free))}


def _cap_memory(gigabytes: float) -> None:
    """Let PyTorch's allocator fail above so many GB, as on a smaller GPU."""
    if gigabytes and torch.cuda.is_available():
        torch.cuda.set_per_process_memory_fraction(gigabytes * 1e9 / torch.cuda.mem_get_info()[1])


def main() -> None:
    """Measure and print, as JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("what", choices=("lora", "full", "own", "small"))
    parser.add_argument("--size", choices=tuple(LAYOUTS), default="7b")
    parser.add_argument("--recipe", help="of recipes/, without .toml; by default the size's")
    parser.add_argument("--memory", type=float, help="GB; 24 for conductor-0.5b, 0 (all there is) for the others")
    parser.add_argument("--sampler", choices=("ours", "transformers"), default="ours")
    for name in LARGE_SIZES:
        parser.add_argument(f"--{name}", type=int)
    for name, least in (("steps", 1), ("judged", 0), ("prompt", 1200), ("batch", 64), ("lessons", 20)):
        parser.add_argument(f"--{name}", type=int, default=least)
    given = parser.parse_args()
    large = given.size in ("7b", "tiny")
    given.recipe = given.recipe or (SMALL_RECIPE if not large else f"conductor-7b{'-lora' * (given.what == 'lora')}")
    if given.recipe != SMALL_RECIPE or given.what == "own":
        for name, least in LARGE_SIZES.items():
            setattr(given, name, getattr(given, name) or least)
    given.memory = 24.0 * (given.recipe == SMALL_RECIPE) if given.memory is None else given.memory
    _cap_memory(given.memory)
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "processor"
    found = {"own": own, "small": small}[given.what](given) if given.what in ("own", "small") else None
    found = asyncio.run(stepped(given)) if found is None else found
    about = {"machine": machine(), "device": device, "torch": torch.__version__}
    print(json.dumps({"given": vars(given), **about, **found}, indent=1))


if __name__ == "__main__":
    main()
