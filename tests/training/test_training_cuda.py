"""On a GPU: the same samples, scores and steps as on a processor, up to rounding. Skipped where there is none."""

from pathlib import Path

import pytest
from paths import ROOT

torch = pytest.importorskip("torch")

from train_world import model, scorer, settings, source, tokenizer  # noqa: E402
from transformers import Qwen2ForCausalLM  # noqa: E402
from typer.testing import CliRunner  # noqa: E402

from shikisha.cli import app  # noqa: E402
from shikisha.training.grpo import GRPOLoop  # noqa: E402
from shikisha.training.metrics import StepMetrics  # noqa: E402
from shikisha.training.model_loader import Qwen2Size, new_qwen2  # noqa: E402
from shikisha.training.rollout import SamplingParams, full_logprobs, sample  # noqa: E402

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU that CUDA can use")
PROMPTS = [[5, 6, 7, 8], [9, 10], [11, 12, 13, 14, 15, 16, 17]]
TINY = [
    *("--set", "model.width=32", "--set", "model.inner=48", "--set", "model.layers=2", "--set", "warm.batch=8"),
    *("--set", "warm.steps=40", "--set", "tasks.judged=4", "--set", "grpo.tasks=2", "--set", "grpo.group=4"),
]


def on_gpu(made: Qwen2ForCausalLM) -> Qwen2ForCausalLM:
    torch.nn.Module.to(made, "cuda")
    return made


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_samples_and_scores_are_those_of_a_processor(temperature: float) -> None:
    here = new_qwen2(30, Qwen2Size(2, 32, 2, 48, 64), seed=3)
    there = on_gpu(new_qwen2(30, Qwen2Size(2, 32, 2, 48, 64), seed=3))
    found, again = (
        sample(each, PROMPTS, 6, 9, torch.Generator().manual_seed(1), SamplingParams(temperature))
        for each in (here, there)
    )
    assert torch.equal(found.tokens, again.tokens)
    assert torch.allclose(found.logprobs, again.logprobs, atol=1e-2)  # TF32
    one, other = (full_logprobs(each, PROMPTS, found.tokens, 1.0, found.mask) for each in (here, there))
    assert torch.allclose(one, other.cpu(), atol=1e-2)


async def test_a_step_is_that_of_a_processor() -> None:
    table = settings(grpo={"kl": 0.05}, second={"share": 0.5})
    loops = [
        GRPOLoop(put(model()), tokenizer(), source(), scorer(), table, put(model()))
        for put in (lambda held: held, on_gpu)
    ]
    here, there = [await loop.advance() for loop in loops]
    assert here.samples == there.samples
    assert (here.loss, here.gradient, here.kl) == pytest.approx(
        (there.loss, there.gradient, there.kl), rel=0.02, abs=1e-4
    )


@pytest.mark.parametrize("backend", ["plain", "trl"])
def test_a_run_from_scratch_is_taught_reinforced_and_goes_on(tmp_path: Path, backend: str) -> None:
    recipe = str(ROOT / "recipes" / "rehearsal.toml")
    given = ["train", recipe, "--out", str(tmp_path / "run"), "--quiet", "--set", f'backend="{backend}"', *TINY]
    for more in (["--set", "grpo.steps=3", "--set", "keep.every=1"], ["--set", "grpo.steps=3", "--resume"]):
        done = CliRunner().invoke(app, [*given, *more])
        assert done.exit_code == 0, (done.output, done.stderr)
    told = [StepMetrics.loads(line) for line in (tmp_path / "run" / "steps.jsonl").read_text().splitlines()]
    assert [step.number for step in told] == [1, 2, 3]
