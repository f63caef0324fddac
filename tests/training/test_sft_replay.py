"""Lessons beside reinforcement: which they are, that they move weights, and that TRL takes the same step."""

import re
from dataclasses import replace

import pytest
import torch
from train_world import model, scorer, settings, source, tokenizer
from trainings import ground

from shikisha.config.sft_source import sft_source
from shikisha.core.errors import ConfigError
from shikisha.simulation.editions import LARGE, SMALL, Edition
from shikisha.simulation.sft_examples import SimulatedExample, copy_examples, reading_examples
from shikisha.training.grpo import GRPOLoop
from shikisha.training.metrics import StepMetrics
from shikisha.training.settings import TrainSettings
from shikisha.training.sft import AuxiliarySFT, make_auxiliary_sft, pad_rows, sft_loss
from shikisha.training.sft_data import tokenize_example
from shikisha.training.trl import PlanGRPOTrainer

DRAWN = [(SMALL, {3, 7, 8}), (LARGE, {3, 9, 10})]


def lesson(index: int, _: float) -> SimulatedExample:
    return SimulatedExample(f"ask how many {'bad ' * (index % 4)}plan", "", "good" if index % 2 else "answer")


def replay(weight: float = 1.0) -> AuxiliarySFT:
    return AuxiliarySFT(((lesson, 5), (lesson, 2)), tokenizer(), weight)


def workers(one: SimulatedExample) -> int:
    return len(re.findall(r"^\d ", one.prompt, re.MULTILINE))


@pytest.mark.parametrize(("edition", "sizes"), DRAWN, ids=["small", "large"])
def test_readings_are_of_pools_that_tasks_do_not_bring_and_end_with_the_thought(
    edition: Edition, sizes: set[int]
) -> None:
    drawn = [reading_examples(1, edition)(index, 1.0) for index in range(40)]
    turns = [one for one in drawn if one.shown]
    assert 0 < len(turns) < len(drawn) / 4
    assert {workers(one) for one in drawn if one not in turns} == sizes
    assert not any(one.whole or "model_id" in one.taught for one in drawn)
    assert reading_examples(1, edition)(7, 0.0) == drawn[7] != reading_examples(2, edition)(7, 1.0)


@pytest.mark.parametrize("edition", [SMALL, LARGE], ids=["small", "large"])
def test_some_readings_have_workers_that_are_described_twofold_and_never_new_pairs_of_skills(edition: Edition) -> None:
    new = {frozenset(profile.skills) for profile in edition.new}
    twofold = 0
    for one in (reading_examples(1, edition)(index, 1.0) for index in range(200)):
        for ordinal, does in re.findall(r"^(\d+)=(\S+)$", one.taught, re.MULTILINE):
            told = re.search(rf"^{ordinal} \S+ (.+)$", one.prompt, re.MULTILINE)
            assert told is not None
            assert len(told[1].split()) > 3 * does.count("+")
            said = does.split("+")
            assert frozenset(said) not in new
            twofold += len(said) > len(set(said) & set(edition.families))
    assert twofold > 100


@pytest.mark.parametrize(("edition", "sizes"), [(SMALL, {7, 8}), (LARGE, {9, 10})], ids=["small", "large"])
def test_copies_teach_one_ordinal_of_the_thought_in_pools_larger_than_the_tasks(
    edition: Edition, sizes: set[int]
) -> None:
    places, ordinals, met = set[int](), set[int](), set[int]()
    for index in range(120):
        one = copy_examples(1, edition)(index, 1.0)
        thought, _, begun = one.shown.rpartition("model_id = [")
        named = re.findall(r"=(\d)(?= then| and|,|\n)", thought.rstrip("\n").rpartition("\nwork ")[2] + "\n")
        assert named[: begun.count(",") + 1] == [*re.findall(r"\d", begun), one.taught]
        assert not one.whole
        places.add(begun.count(","))
        ordinals.add(int(one.taught))
        met.add(workers(one))
    assert met == sizes
    assert ordinals <= set(range(max(sizes)))
    assert min(ordinals) == 0
    assert max(ordinals) >= max(edition.sizes)
    assert places >= set(range(3))


def test_its_loss_is_the_mean_of_what_is_taught_times_its_weight() -> None:
    likely = []
    for index in [*range(10, 15), *range(4, 6)]:  # step 2
        tokens, given = tokenize_example(lesson(index, 1.0), tokenizer())
        spread = model()(torch.tensor([tokens])).logits[0].log_softmax(-1)
        likely += [spread[place - 1, tokens[place]] for place in range(given, len(tokens))]
    one = replay(0.3)
    wanted = -0.3 * torch.stack(likely).mean().detach()
    assert torch.allclose(one.loss(model(), 2).detach(), wanted, rtol=1e-4)
    assert one.last == pytest.approx(replay().loss(model(), 2).item())
    assert replay().loss(model(), 1).item() != pytest.approx(one.last)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_lessons_of_any_number_and_length_weigh_alike_by_what_they_teach(count: int) -> None:
    def longer(index: int, _: float) -> SimulatedExample:
        return SimulatedExample("plan" + " bad" * index, "", "good" + " answer" * (count - index))

    rows = [tokenize_example(longer(index, 1.0), tokenizer()) for index in range(count)]
    tokens, labels = pad_rows(rows)
    wanted = sft_loss(model(), tokens, labels)
    assert AuxiliarySFT(((longer, count),), tokenizer(), 1.0).loss(model(), 0).item() == pytest.approx(wanted.item())


async def test_it_moves_weights_and_trl_takes_the_same_step() -> None:
    table = settings(grpo={"steps": 2})
    bare, plain = (GRPOLoop(model(), tokenizer(), source(), scorer(), table) for _ in range(2))
    trainer, told = PlanGRPOTrainer(model(), tokenizer(), source(), scorer(), table), list[StepMetrics]()
    plain.auxiliary_sft, trainer.auxiliary_sft = replay(), replay()
    found = [await plain.advance() for _ in range(2)]
    await bare.advance()
    trainer.run(told.append)
    assert [step.replay for step in told] == pytest.approx([step.replay for step in found], abs=1e-5)
    assert found[1].replay < found[0].replay
    for name, moved in trainer._policy.named_parameters():
        assert torch.allclose(moved, plain.model.get_parameter(name), atol=1e-5), name
    assert not torch.equal(bare.model.lm_head.weight, plain.model.lm_head.weight)


@pytest.mark.parametrize("key", ["lessons", "copies"])
def test_where_there_are_no_lessons_none_can_go_on(key: str) -> None:
    wanted = TrainSettings.model_validate({"replay": {key: 3}})
    without = replace(ground(), sft_source=None)
    with pytest.raises(ConfigError, match=rf"replay\.{key}: there are no SFT examples for .*: expected 0, found 3"):
        make_auxiliary_sft(wanted, without, tokenizer())
    assert make_auxiliary_sft(TrainSettings(), without, tokenizer()) is None
    assert make_auxiliary_sft(wanted, replace(without, sft_source=sft_source(wanted)), tokenizer()) is not None
