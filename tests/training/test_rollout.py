"""Groups over shared prompts give the numbers of `transformers`' own pass."""

from collections.abc import Callable, Iterator
from functools import cache

import pytest

torch = pytest.importorskip("torch")

from transformers import Qwen2ForCausalLM  # noqa: E402

from shikisha.training.model_loader import Qwen2Size, new_qwen2  # noqa: E402
from shikisha.training.rollout import END_ID, PAD_ID, Completions, SamplingParams, full_logprobs, sample  # noqa: E402

PROMPTS = [[5, 6, 7, 8], [9, 10], [11, 12, 13, 14, 15, 16, 17]]


@pytest.fixture
def threads() -> Iterator[Callable[[int], None]]:
    """Sets the number of threads, until the test is over."""
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@cache
def model(heads: int = 2) -> Qwen2ForCausalLM:
    made = new_qwen2(30, Qwen2Size(2, 32, heads, 48, 64), seed=3)
    made.train(mode=False)
    with torch.no_grad():
        for weight in made.parameters():
            weight.mul_(4.0)  # far from even distributions
    return made


@cache
def drawn(temperature: float = 1.0) -> Completions:
    return sample(model(), PROMPTS, 6, 9, torch.Generator().manual_seed(1), SamplingParams(temperature))


def test_log_probabilities_are_those_of_the_whole_text() -> None:
    found = drawn()
    for row, prompt in enumerate(PROMPTS):
        for one in range(6):
            count = int(found.mask[row, one].sum())
            written = found.tokens[row, one, :count]
            whole = torch.tensor([[*prompt, *written.tolist()]])
            spread = torch.log_softmax(model()(whole).logits[0].float(), -1)[len(prompt) - 1 : -1]
            own = spread.gather(1, written[:, None])[:, 0]
            assert torch.allclose(own, found.logprobs[row, one, :count], atol=1e-4)


def test_running_over_them_again_gives_the_same_with_gradients() -> None:
    found = drawn()
    again = full_logprobs(model(), PROMPTS, found.tokens, 1.0, found.mask)
    assert torch.allclose(again[found.mask], full_logprobs(model(), PROMPTS, found.tokens)[found.mask], atol=1e-5)
    own = again.gather(-1, found.tokens[..., None])[..., 0]
    assert torch.allclose(own[found.mask], found.logprobs[found.mask], atol=1e-4)
    assert again[found.mask].exp().sum(-1).detach() == pytest.approx(1.0, abs=1e-4)
    assert not again[~found.mask].any()
    torch.autograd.backward(own[found.mask].sum())
    assert all(weight.grad is not None for weight in model().parameters())
    model().zero_grad()


@pytest.mark.parametrize("prompts", [[[5]], [[5, 6], [5, 6]], [[5, 6, 7], [5, 6], [8] * 40], [[4] * 33, [4] * 34]])
def test_prompts_of_any_length_that_begin_alike(prompts: list[list[int]]) -> None:
    found = sample(model(), prompts, 4, 20, torch.Generator().manual_seed(2))
    again = (
        full_logprobs(model(), prompts, found.tokens, 1.0, found.mask)
        .detach()
        .gather(-1, found.tokens[..., None])[..., 0]
    )
    assert torch.allclose(again, found.logprobs, atol=1e-4)
    for number, prompt in enumerate(prompts):
        written = found.tokens[number, 0, : int(found.mask[number, 0].sum())]
        spread = torch.log_softmax(model()(torch.tensor([[*prompt, *written.tolist()]])).logits[0].detach(), -1)
        own = spread[len(prompt) - 1 : -1].gather(1, written[:, None])[:, 0]
        assert torch.allclose(own, found.logprobs[number, 0, : len(written)], atol=1e-4)


def test_tokens_come_as_often_as_they_are_likely() -> None:
    count = 20_000
    found = sample(model(), PROMPTS[:1], count, 1, torch.Generator().manual_seed(4)).tokens[0, :, 0]
    likely = model()(torch.tensor(PROMPTS[:1])).logits[0, -1].detach().softmax(-1)
    often = found.bincount(minlength=len(likely)) / count
    assert torch.allclose(often, likely, atol=4 * 0.5 / count**0.5)


def test_a_completion_hangs_on_its_own_lots_alone() -> None:
    one, other = (sample(model(), PROMPTS[:k], 6, 9, torch.Generator().manual_seed(1)) for k in (1, 1))
    more = sample(model(), [*PROMPTS[:1], *PROMPTS[:1]], 3, 9, torch.Generator().manual_seed(1))
    assert torch.equal(one.tokens, other.tokens)
    assert torch.equal(more.tokens.flatten(0, 1), one.tokens[0, :, : more.tokens.shape[-1]])


def test_gradients_are_those_of_transformers() -> None:
    found = drawn()
    model().zero_grad()
    mine_of = full_logprobs(model(), PROMPTS, found.tokens).gather(-1, found.tokens[..., None])[..., 0]
    torch.autograd.backward(mine_of[found.mask].sum())
    mine = [weight.grad.clone() for weight in model().parameters() if weight.grad is not None]
    model().zero_grad()
    for row, prompt in enumerate(PROMPTS):
        for one in range(6):
            written = found.tokens[row, one, : int(found.mask[row, one].sum())]
            spread = torch.log_softmax(model()(torch.tensor([[*prompt, *written.tolist()]])).logits[0], -1)
            torch.autograd.backward(spread[len(prompt) - 1 : -1].gather(1, written[:, None]).sum())
    theirs = [weight.grad for weight in model().parameters() if weight.grad is not None]
    assert all(torch.allclose(a, b, rtol=1e-3, atol=1e-2) for a, b in zip(mine, theirs, strict=True))
    model().zero_grad()


def test_the_same_seed_gives_the_same_samples() -> None:
    again = sample(model(), PROMPTS, 6, 9, torch.Generator().manual_seed(1))
    other = sample(model(), PROMPTS, 6, 9, torch.Generator().manual_seed(2))
    assert torch.equal(again.tokens, drawn().tokens)
    assert again.tokens.shape != other.tokens.shape or not torch.equal(again.tokens, other.tokens)


def test_any_number_of_threads_gives_the_same_to_the_bit(threads: Callable[[int], None]) -> None:
    found = []
    for count in (1, 2):
        threads(count)
        made = sample(model(), PROMPTS, 4, 5, torch.Generator().manual_seed(5))
        again = full_logprobs(model(), PROMPTS, made.tokens, 1.0, made.mask).gather(-1, made.tokens[..., None])
        moved = torch.autograd.grad(again.sum(), list(model().parameters()))
        found.append([made.tokens, made.logprobs, *moved])
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))


def test_after_the_end_comes_padding() -> None:
    found = drawn()
    for row in found.tokens.flatten(0, 1).tolist():
        if END_ID in row:
            assert set(row[row.index(END_ID) + 1 :]) <= {PAD_ID}
    assert bool((found.logprobs[~found.mask] == 0).all())
    assert all(END_ID not in one for rows in found.rows() for one in rows)


def test_temperature_zero_takes_the_likeliest() -> None:
    found = drawn(0.0)
    assert all(torch.equal(found.tokens[:, 0], found.tokens[:, one]) for one in range(6))
    first = model()(torch.tensor([PROMPTS[0]])).logits[0, -1].argmax()
    assert int(found.tokens[0, 0, 0]) == int(first)


def test_grouped_heads() -> None:
    made = new_qwen2(30, Qwen2Size(1, 32, 4, 48, 64), seed=1)
    config = made.config
    config.num_key_value_heads = 2
    shared = Qwen2ForCausalLM(config)
    shared.train(mode=False)
    found = sample(shared, PROMPTS, 2, 5, torch.Generator().manual_seed(0))
    whole = torch.tensor([[*PROMPTS[0], *found.tokens[0, 0].tolist()]])
    spread = torch.log_softmax(shared(whole).logits[0].float(), -1)[len(PROMPTS[0]) - 1 : -1]
    real = found.mask[0, 0]
    assert torch.allclose(
        spread.gather(1, found.tokens[0, 0][:, None])[:, 0][real], found.logprobs[0, 0][real], atol=1e-4
    )
