"""Exploring: a share of choices is spread evenly, nothing else changes, and log-probabilities stay the policy's."""

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from tokenizers import Tokenizer, models  # noqa: E402

from shikisha.errors import ConfigError  # noqa: E402
from shikisha.train.explore import Explore, choice, explore_at  # noqa: E402
from shikisha.train.rollout import Drawing, sample  # noqa: E402
from shikisha.train.settings import TrainSettings  # noqa: E402
from shikisha.train.tiny import Size, fresh  # noqa: E402

WORDS = {"[pad]": 0, "[end]": 1, "\nas one": 2, "\nas two": 3, "\nas three": 4, "as": 5}
TOKENS = (2, 3, 4)


def told(**phase: object) -> TrainSettings:
    phases = [{"begin": 0.0, "compare": "within"}, {"begin": 0.5, "compare": "group", **phase}]
    return TrainSettings.model_validate({"grpo": {"steps": 10, "choice": "\nas ", "phases": phases}})


def test_a_choice_is_spread_evenly_and_everything_else_is_as_it_was() -> None:
    odds = torch.tensor([[0.02, 0.01, 0.94, 0.0, 0.0, 0.03], [0.3, 0.3, 0.2, 0.1, 0.1, 0.0]])
    found = Explore(TOKENS, 0.3).over(odds.log())
    expected = [0.014, 0.007, 0.7 * 0.94 + 0.1, 0.1, 0.1, 0.021]
    assert torch.allclose(found[0].exp(), torch.tensor(expected), atol=1e-6)
    assert torch.equal(found[1], odds[1].log())  # less than half of it is a choice


def test_what_was_all_but_given_up_is_drawn_and_keeps_its_log_probability() -> None:
    model = fresh(6, Size(1, 32, 4, 48, 64), seed=1)
    with torch.no_grad():
        model.lm_head.weight.zero_()
        model.model.norm.weight.fill_(1.0)
    bare = torch.log_softmax(model(torch.tensor([[5]])).logits[0, -1], -1)
    assert torch.allclose(bare.exp(), torch.full((6,), 1 / 6))  # half of it is a choice, and no more
    drawn = sample(model, [[5]], 600, 1, torch.Generator().manual_seed(1), Drawing(explore=Explore((1, 2, 3, 4), 0.5)))
    counts = drawn.tokens.flatten().bincount(minlength=6) / 600
    assert torch.allclose(counts, torch.tensor([1 / 12, *[5 / 24] * 4, 1 / 12]), atol=0.06)
    assert torch.allclose(drawn.logprobs.exp(), torch.full((1, 600, 1), 1 / 6), atol=1e-5)
    same, less = (
        sample(model, [[5]], 600, 1, torch.Generator().manual_seed(1), Drawing(explore=one))
        for one in (None, Explore((1, 2, 3), 0.5))
    )
    assert torch.equal(same.tokens, less.tokens)


def test_the_phase_says_when_and_the_words_say_what() -> None:
    words = Tokenizer(models.WordLevel(WORDS, unk_token="[pad]"))  # noqa: S106 - no password
    settings = told(explore=0.1)
    assert explore_at(settings, words, 4) is None
    assert explore_at(settings, words, 5) == Explore(TOKENS, 0.1)
    assert not told().grpo.explores
    assert settings.grpo.explores
    lone = Tokenizer(models.WordLevel({"[pad]": 0, "\nas one": 1}, unk_token="[pad]"))  # noqa: S106
    with pytest.raises(ConfigError, match=r"grpo\.choice: expected what two tokens or more begin with, found '\\nas '"):
        choice(settings, lone)
