"""Scouts choose evenly, others as they would; what a scout found counts where it is better, and only there."""

from collections.abc import Sequence

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from tokenizers import Tokenizer, models  # noqa: E402

from shikisha.core.errors import ConfigError  # noqa: E402
from shikisha.training.advantage_variants import exploration_advantages  # noqa: E402
from shikisha.training.grpo import compute_advantages, step_advantages, without_exploration  # noqa: E402
from shikisha.training.model_loader import Qwen2Size, new_qwen2  # noqa: E402
from shikisha.training.plan_reward import Floats, ScoredPlan  # noqa: E402
from shikisha.training.rollout import (  # noqa: E402
    Exploration,
    SamplingParams,
    choice_tokens,
    exploration_at,
    sample,
)
from shikisha.training.settings import AdvantageSettings, TrainSettings  # noqa: E402

WORDS = {"[pad]": 0, "[end]": 1, "\nas one": 2, "\nas two": 3, "\nas three": 4, "as": 5}
TOKENS = (2, 3, 4)


def told(**phase: object) -> TrainSettings:
    phases = [{"begin": 0.0, "compare": "within"}, {"begin": 0.5, "compare": "group", **phase}]
    return TrainSettings.model_validate({"grpo": {"steps": 10, "group": 4, "choice": "\nas ", "phases": phases}})


def scored(rewards: Sequence[float] | Floats) -> list[ScoredPlan]:
    return [ScoredPlan(float(each), shape="one-shot 1") for each in rewards]


def test_scouts_choose_evenly_and_others_as_they_would() -> None:
    drawn, lots = torch.tensor([3, 3, 3, 3, 3, 5]), torch.tensor([0.0, 0.0, 0.1, 0.5, 0.9, 0.1])
    odds = torch.tensor([0.9, 0.9, 0.9, 0.9, 0.9, 0.4])
    numbers = torch.tensor([0, 1, 2, 6, 7, 3])  # of groups of four: the last two of each are scouts
    found = Exploration(TOKENS, 2).override(drawn, odds, numbers, 4, lots)
    assert found.tolist() == [3, 3, 2, 3, 4, 5]


def test_what_was_all_but_given_up_is_drawn_and_keeps_its_log_probability() -> None:
    model = new_qwen2(6, Qwen2Size(1, 32, 4, 48, 64), seed=1)
    with torch.no_grad():
        model.model.norm.weight.mul_(1000)  # so sure that one of them is next
        bare = torch.log_softmax(model(torch.tensor([[5]])).logits[0, -1], -1)
    likeliest = int(bare.argmax())
    assert bare.exp()[likeliest] > 0.99
    tokens = [likeliest, *(token for token in range(6) if token != likeliest)][:4]
    one, other = (
        sample(model, [[5]], 600, 1, torch.Generator().manual_seed(1), SamplingParams(explore=each))
        for each in (Exploration(tuple(tokens), 300), None)
    )
    assert torch.equal(one.tokens[:, :300], other.tokens[:, :300])
    counts = one.tokens[0, 300:, 0].bincount(minlength=6) / 300
    assert torch.allclose(counts[tokens], torch.full((4,), 0.25), atol=0.08)
    assert torch.allclose(one.logprobs[..., 0], bare[one.tokens[..., 0]], atol=1e-4)


def test_a_scout_counts_where_it_is_better_and_changes_nobody_else() -> None:
    rewards, how = np.array([0.5, 0.7, 0.9, 0.1, 1.0, 0.9, 1.1, np.nan]), AdvantageSettings(min_std=0.1)
    groups, scouts = np.repeat([0, 1], 4), np.array([False, False, True, True] * 2)
    found = exploration_advantages(rewards, groups, scouts, how)
    assert found[[0, 1, 3, 4, 5, 7]].tolist() == [0] * 6
    assert found[2] == pytest.approx((0.9 - 0.6) / np.std([0.5, 0.7, 0.9, 0.1]))
    assert found[6] == pytest.approx((1.1 - 0.95) / 0.1)
    assert exploration_advantages(rewards, groups, scouts, AdvantageSettings(scale_by_std=False))[2] == pytest.approx(
        0.3
    )
    settings = told(explore=0.5, least_spread=0.1)
    wished, even = step_advantages([scored(rewards[:4]), scored([1.0, 1.0, 1.1, 0.9])], [False, False], settings, 5)
    assert wished[:2] == pytest.approx(compute_advantages(rewards[:2], np.zeros(2, int), how))
    assert wished[2] == pytest.approx(found[2])
    assert wished[[3, 4, 5, 7]].tolist() == [0] * 4
    assert even == 0.5
    assert [one.total for one in without_exploration([scored(rewards[:4])], settings, 5)] == rewards[:2].tolist()
    assert len(without_exploration([scored(rewards[:4])], settings, 4)) == 4
    seconds, _ = step_advantages([scored(rewards[:4])], [True], settings, 5)
    assert seconds == pytest.approx(compute_advantages(rewards[:4], np.zeros(4, int), how))


def test_the_phase_says_when_and_the_words_say_what() -> None:
    words = Tokenizer(models.WordLevel(WORDS, unk_token="[pad]"))  # noqa: S106 - no password
    settings = told(explore=0.25)
    assert exploration_at(settings, words, 4) is None
    assert exploration_at(settings, words, 5) == Exploration(TOKENS, 1)
    assert not told().grpo.explores
    assert settings.grpo.explores
    lone = Tokenizer(models.WordLevel({"[pad]": 0, "\nas one": 1}, unk_token="[pad]"))  # noqa: S106
    with pytest.raises(ConfigError, match=r"grpo\.choice: expected what two tokens or more begin with, found '\\nas '"):
        choice_tokens(settings, lone)
