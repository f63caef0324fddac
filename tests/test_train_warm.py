"""The warm start: lessons are learned, and a resumed one is the unbroken one."""

from functools import cache

import pytest

torch = pytest.importorskip("torch")

from tokenizers import Tokenizer  # noqa: E402
from transformers import Qwen2ForCausalLM  # noqa: E402

from shikisha.errors import Diverged  # noqa: E402
from shikisha.orchestra.lessons import lesson, phrases, schooling  # noqa: E402
from shikisha.orchestra.thought import pieces  # noqa: E402
from shikisha.train.rollout import END  # noqa: E402
from shikisha.train.settings import WarmTable  # noqa: E402
from shikisha.train.slates import Chunks, chunk_of  # noqa: E402
from shikisha.train.tiny import Size, fresh  # noqa: E402
from shikisha.train.warm import Batches, mean_loss, optimizer_of, padded, rate_at, warm_up  # noqa: E402
from shikisha.train.words import plan_pieces, word_tokenizer  # noqa: E402

TABLE = WarmTable(steps=24, batch=4, rate=0.02)
LESSONS = schooling(1, 0.6, 0.15)


@cache
def tokenizer() -> Tokenizer:
    return word_tokenizer((lesson(1, index).prompt for index in range(60)), (*plan_pieces(phrases()), *pieces()), 3)


def chunks() -> Chunks:
    return lambda number: chunk_of(number, LESSONS, tokenizer(), TABLE)


def model() -> Qwen2ForCausalLM:
    return fresh(tokenizer().get_vocab_size(), Size(1, 32, 2, 48), seed=2)


def trained(stops: tuple[int, ...] = ()) -> tuple[Qwen2ForCausalLM, list[float]]:
    made = model()
    optimizer = optimizer_of(made, TABLE)
    losses: list[float] = []
    for first, last in zip((0, *stops), (*stops, TABLE.steps), strict=True):
        steps = warm_up(made, optimizer, chunks(), TABLE, first)
        losses += [next(steps).loss for _ in range(first, last)]
    return made, losses


def test_the_loss_falls_and_a_resumed_start_is_the_unbroken_one() -> None:
    whole, losses = trained()
    broken, again = trained((7, 19))
    assert sum(losses[-4:]) < 0.9 * sum(losses[:4])
    assert again == losses
    for name, weight in whole.state_dict().items():
        assert torch.equal(weight, broken.state_dict()[name])


def test_only_what_is_taught_has_a_loss() -> None:
    batches = Batches(chunks(), TABLE)
    tokens, labels = batches.at(3)
    taught = labels != -100
    assert torch.equal(tokens[taught], labels[taught])
    for row, marks in zip(tokens.tolist(), taught.tolist(), strict=True):
        first = marks.index(True)  # all of the prompt stands before it
        assert not any(marks[:first])
        text = tokenizer().decode(row[:first], skip_special_tokens=False)
        assert "\nplan\n" in text


def test_lessons_of_other_lengths_beside_it_change_no_lessons_loss() -> None:
    rows = [row for row in chunks()(0)[::7] if len(row[0]) > row[1]][:6]
    taught = [len(row) - given for row, given in rows]
    assert len({len(row) for row, _ in rows}) > 1
    alone = [float(mean_loss(model(), *padded([row])).detach()) for row in rows]
    mean = sum(one * count for one, count in zip(alone, taught, strict=True)) / sum(taught)
    assert float(mean_loss(model(), *padded(rows)).detach()) == pytest.approx(mean, rel=1e-5)


def test_every_lesson_comes_once() -> None:
    batches = Batches(chunks(), TABLE)
    seen = [END in row for number in range(16) for row in batches.at(number)[0].tolist()]
    assert len(seen) == 64
    assert sum(seen) == sum(LESSONS(index, 0.0).whole for index in range(64))


def test_the_rate_rises_and_falls() -> None:
    table = WarmTable(steps=1_000, rate=1e-3)
    rates = [rate_at(step, table) for step in range(1_000)]
    assert rates.index(max(rates)) in range(95, 105)
    assert rates[0] == pytest.approx(1e-5)
    assert rates[-1] == pytest.approx(2e-5, rel=0.02)


def test_a_loss_that_is_no_number_touches_no_weight() -> None:
    made = model()
    with torch.no_grad():
        made.model.embed_tokens.weight[5:40] = float("nan")
    before = {name: weight.clone() for name, weight in made.state_dict().items()}
    with pytest.raises(Diverged, match="step 0: the loss is nan"):
        list(warm_up(made, optimizer_of(made, TABLE), chunks(), TABLE))
    for name, weight in made.state_dict().items():
        assert torch.equal(weight.nan_to_num(7.0), before[name].nan_to_num(7.0))
