"""The warm start: lessons are learned, and a resumed one is the unbroken one."""

from functools import cache

import pytest

torch = pytest.importorskip("torch")

from tokenizers import Tokenizer  # noqa: E402
from transformers import Qwen2ForCausalLM  # noqa: E402

from shikisha.core.errors import TrainingDiverged  # noqa: E402
from shikisha.simulation.chain_of_thought import thought_tokens  # noqa: E402
from shikisha.simulation.sft_examples import example_schedule, generate_example, plan_subtasks  # noqa: E402
from shikisha.training.model_loader import Qwen2Size, new_qwen2  # noqa: E402
from shikisha.training.rollout import END_ID  # noqa: E402
from shikisha.training.settings import WarmTable  # noqa: E402
from shikisha.training.sft import SFTBatches, pad_rows, sft_learning_rate, sft_loss, sft_optimizer, train_sft  # noqa: E402
from shikisha.training.sft_data import ChunkSource, make_chunk, plan_pieces, word_tokenizer  # noqa: E402

TABLE = WarmTable(steps=24, batch=4, rate=0.02)
LESSONS = example_schedule(1, 0.6, 0.15)


@cache
def tokenizer() -> Tokenizer:
    return word_tokenizer(
        (generate_example(1, index).prompt for index in range(60)),
        (*plan_pieces(plan_subtasks()), *thought_tokens()),
        3,
    )


def chunks() -> ChunkSource:
    return lambda number: make_chunk(number, LESSONS, tokenizer(), TABLE)


def model() -> Qwen2ForCausalLM:
    return new_qwen2(tokenizer().get_vocab_size(), Qwen2Size(1, 32, 2, 48), seed=2)


def trained(stops: tuple[int, ...] = ()) -> tuple[Qwen2ForCausalLM, list[float]]:
    made = model()
    optimizer = sft_optimizer(made, TABLE)
    losses: list[float] = []
    for first, last in zip((0, *stops), (*stops, TABLE.steps), strict=True):
        steps = train_sft(made, optimizer, chunks(), TABLE, first)
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
    batches = SFTBatches(chunks(), TABLE)
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
    alone = [float(sft_loss(model(), *pad_rows([row])).detach()) for row in rows]
    mean = sum(one * count for one, count in zip(alone, taught, strict=True)) / sum(taught)
    assert float(sft_loss(model(), *pad_rows(rows)).detach()) == pytest.approx(mean, rel=1e-5)


def test_every_lesson_comes_once() -> None:
    batches = SFTBatches(chunks(), TABLE)
    seen = [END_ID in row for number in range(16) for row in batches.at(number)[0].tolist()]
    assert len(seen) == 64
    assert sum(seen) == sum(LESSONS(index, 0.0).whole for index in range(64))


def test_the_rate_rises_and_falls() -> None:
    table = WarmTable(steps=1_000, rate=1e-3)
    rates = [sft_learning_rate(step, table) for step in range(1_000)]
    assert rates.index(max(rates)) in range(95, 105)
    assert rates[0] == pytest.approx(1e-5)
    assert rates[-1] == pytest.approx(2e-5, rel=0.02)


def test_a_loss_that_is_no_number_touches_no_weight() -> None:
    made = model()
    with torch.no_grad():
        made.model.embed_tokens.weight[5:40] = float("nan")
    before = {name: weight.clone() for name, weight in made.state_dict().items()}
    with pytest.raises(TrainingDiverged, match="step 0: the loss is nan"):
        list(train_sft(made, sft_optimizer(made, TABLE), chunks(), TABLE))
    for name, weight in made.state_dict().items():
        assert torch.equal(weight.nan_to_num(7.0), before[name].nan_to_num(7.0))
