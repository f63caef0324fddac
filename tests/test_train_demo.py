"""`make train-demo` trains what ships: by the settings that made it, from the warm start it began with."""

import json
from hashlib import sha256
from importlib.resources import files
from pathlib import Path

import pytest

pytest.importorskip("torch")

from shikisha.train.opening import located, opened
from shikisha.train.refusals import refuse_settings
from shikisha.train.settings import load

RECIPES = Path(__file__).parent.parent / "recipes"
WARM = RECIPES / "warm"
CARD = files("shikisha") / "shipped" / "card.json"
needs_warm = pytest.mark.skipif(not (WARM / "model.safetensors").is_file(), reason="no warm start in recipes/warm")


def test_its_reinforcement_is_the_recipes() -> None:
    whole, demo = load(RECIPES / "rehearsal.toml"), load(RECIPES / "train-demo.toml")
    refuse_settings(demo)
    for table in ("backend", "grpo", "reward", "second", "replay", "curriculum"):
        assert getattr(demo, table) == getattr(whole, table)
    assert demo.tasks.model_copy(update={"every": whole.tasks.every}) == whole.tasks
    assert demo.warm.steps == 0


@needs_warm
def test_its_warm_start_lies_beside_it_and_is_whole() -> None:
    begun = opened(located(load(RECIPES / "train-demo.toml").model.start, RECIPES))
    assert begun.tokenizer.get_vocab_size() <= begun.model.config.vocab_size
    assert (begun.pad, begun.end) == (0, 1)


@needs_warm
@pytest.mark.skipif(not CARD.is_file(), reason="no conductor with a card is shipped with this build")
def test_what_ships_began_with_that_warm_start() -> None:
    start = json.loads(CARD.read_text())["training"]["start"]
    if "weights" not in start:
        pytest.skip("the shipped conductor was trained in one run with its lessons")
    assert start["weights"] == sha256((WARM / "model.safetensors").read_bytes()).hexdigest()
