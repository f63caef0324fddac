"""The engine as TRL's `environment_factory`: episodes by hand, and one step of the real GRPOTrainer.

The model's weights are random and its forward and backward passes real; only what it samples is written here.
"""

import json
from itertools import cycle
from pathlib import Path

import pytest
import torch
import trl
from chat_model import tokenizer
from datasets import Dataset
from test_train_cli import ROWS, WORKERS
from torch import Tensor
from transformers import Qwen2Config, Qwen2ForCausalLM
from trl.trainer.grpo_config import GRPOConfig
from trl.trainer.grpo_trainer import GRPOTrainer

from shikisha.core.errors import CapReached, ConfigError
from shikisha.core.plan import Plan, Step
from shikisha.core.prompts import render_plan_lists
from shikisha_train.plan_rewards import PlanRow
from shikisha_train.trl_environment import ConductorEnvironments

TRAINING = '[model]\nstart = "any"\nbrief = false\n[tasks]\nset = "turns.jsonl"\njudged = 2\n'
KEEP = "model_id = []\nsubtasks = []\naccess_list = []"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "turns.toml").write_text(TRAINING)
    (tmp_path / "turns.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    (tmp_path / "shikisha.toml").write_text(WORKERS)
    return tmp_path


def gold(row: PlanRow) -> str:
    return next(str(each["answer"]) for each in ROWS if each["id"] == row["task"])


def plan(row: PlanRow, worker: str) -> str:
    return render_plan_lists(Plan((Step("say it", row["pool"].index(worker)),)))


def rows_of(environments: ConductorEnvironments, needs: str = "") -> list[PlanRow]:
    """Rows whose pool has the right worker, a wrong one, and the one that is needed."""
    return [row for row in environments.rows(20) if {gold(row), needs or gold(row)} <= set(row["pool"])]


async def test_an_episode_of_two_rounds_shows_the_first_and_is_worth_the_last(folder: Path) -> None:
    environments = ConductorEnvironments(folder / "turns.toml", folder / "rewards", rounds=2)
    row = (await _rows(environments))[0]
    wrong = next(name for name in row["pool"] if name != gold(row))
    environment = environments()
    environment.reset(**row)
    assert await environment.get_reward() == 0.0
    told = await environment.perform_plan(plan(row, wrong))
    assert "what came of it" in told
    assert ("neither" if wrong == "other" else wrong) in told
    assert await environment.get_reward() == 0.5
    assert "No round is left" in await environment.perform_plan(plan(row, gold(row)))
    assert await environment.get_reward() == 1.0
    assert "No round is left" in await environment.perform_plan(plan(row, wrong))
    assert await environment.get_reward() == 1.0  # nothing more was performed
    environment.reset(**row)
    await environment.perform_plan(plan(row, gold(row)))
    assert "kept" in await environment.perform_plan(KEEP)
    assert await environment.get_reward() == 1.0
    environment.reset(**row)
    assert "not a plan" in await environment.perform_plan("Ask the first.")
    await environment.perform_plan(plan(row, gold(row)))
    assert await environment.get_reward() == 0.0  # the first text that is no plan ends it
    await _close(environments)


async def test_what_must_end_training_is_raised_where_the_reward_is_asked_for(folder: Path) -> None:
    (folder / "turns.toml").write_text(f"{TRAINING}[spend]\ndollars = 0.05\n")
    environments = ConductorEnvironments(folder / "turns.toml", folder / "rewards")
    row = next(row for row in await _rows(environments) if "other" in row["pool"])
    environment = environments()
    environment.reset(**row)
    with pytest.raises(CapReached):
        await environment.perform_plan(plan(row, "other"))  # 0.08 a call
    with pytest.raises(CapReached, match="that training may cost"):
        await environment.get_reward()
    environment.reset(**{**row, "pool": ["left", "nobody"]})
    with pytest.raises(ConfigError):
        await environment.perform_plan(plan(row, gold(row)))
    with pytest.raises(ConfigError, match="another task or pool than its prompt showed"):
        await environment.get_reward()
    changed: list[dict[str, object]] = [
        {**row, "index": -1},
        {**row, "index": "0"},
        {**row, "split": "test"},
        {"prompt": []},
    ]
    for broken in changed:
        environment.reset(**broken)
        with pytest.raises(ConfigError, match="row: expected index"):
            await environment.perform_plan(KEEP)
    with pytest.raises(ConfigError, match="rounds: expected 1 or more, found 0"):
        ConductorEnvironments(folder / "turns.toml", rounds=0)
    await _close(environments)


async def _rows(environments: ConductorEnvironments) -> list[PlanRow]:
    return [row for row in await environments._rows(20) if gold(row) in row["pool"]]


async def _close(environments: ConductorEnvironments) -> None:
    await environments._shared.aclose()
    environments.close()


@pytest.mark.full
@pytest.mark.filterwarnings("ignore::FutureWarning")  # TRL calls transformers by old names
def test_trl_trains_with_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRL_EXPERIMENTAL_SILENCE", "1")
    words = tokenizer()
    template = Path(trl.__file__).parent / "chat_templates" / "qwen2_5.jinja"
    words.chat_template = template.read_text(encoding="utf-8")  # Qwen2.5's own, which has tool calls
    environments = ConductorEnvironments(folder / "turns.toml", folder / "rewards")
    row = next(row for row in environments.rows(20) if gold(row) in row["pool"])
    wrong = next(name for name in row["pool"] if name != gold(row))
    written = cycle([_call(plan(row, gold(row))), _call(plan(row, wrong)), _call("none"), "I would ask the first."])

    class Sampled(Qwen2ForCausalLM):  # type: ignore[no-untyped-call]
        """Samples what is written here: a call of the tool, then a last word."""

        def generate(self, input_ids: Tensor, **_: object) -> Tensor:  # type: ignore[override]
            said = ["done" if "<tool_response>" in text else next(written) for text in words.batch_decode(input_ids)]
            ids = [[*words.encode(text), words.eos_token_id] for text in said]
            longest = max(map(len, ids))
            tail = torch.tensor([each + [words.pad_token_id] * (longest - len(each)) for each in ids])
            return torch.cat([input_ids, tail], dim=1)

    torch.manual_seed(0)
    model = Sampled(
        Qwen2Config(
            vocab_size=len(words),
            hidden_size=16,
            num_hidden_layers=1,
            num_attention_heads=2,
            num_key_value_heads=1,
            intermediate_size=16,
            max_position_embeddings=8192,
        )
    )
    before = {name: each.detach().clone() for name, each in model.named_parameters()}
    trainer = GRPOTrainer(
        model=model,
        args=GRPOConfig(
            str(folder / "out"),
            num_generations=4,
            per_device_train_batch_size=4,
            max_steps=1,
            learning_rate=1e-2,
            max_completion_length=400,
            report_to=[],
            use_cpu=True,
        ),
        train_dataset=Dataset.from_list([row]),
        processing_class=words,
        environment_factory=environments,
    )
    trainer.train()
    environments.close()
    logged = next(each for each in trainer.state.log_history if "reward" in each)
    assert logged["reward"] == pytest.approx((1.0 + 0.5 + 0.0 + 0.0) / 4)
    assert logged["tools/call_frequency"] == pytest.approx(3 / 4)
    assert logged["tools/failure_frequency"] == 0
    assert any(not before[name].equal(each) for name, each in model.named_parameters())
    paid = [json.loads(line) for line in (folder / "rewards" / "0" / "calls-0.jsonl").read_text().splitlines()]
    assert len(paid) == 2  # two plans were performed, by workers that cost something
    assert environments._shared.loops == ()


def _call(text: str) -> str:
    return f"<tool_call>\n{json.dumps({'name': 'perform_plan', 'arguments': {'plan': text}})}\n</tool_call>"
