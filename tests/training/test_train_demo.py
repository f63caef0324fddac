"""`make train-rehearsal` trains what ships: by the settings that made it, from the warm start it began with."""

import json
from hashlib import sha256
from importlib.resources import files

import pytest
from paths import ROOT

pytest.importorskip("torch")

from shikisha.training.model_loader import load_model, resolve_start
from shikisha.training.preflight_checks import refuse_settings
from shikisha.training.settings import load_settings

RECIPES = ROOT / "recipes"
WARM = RECIPES / "warm"
CARD = files("shikisha") / "shipped" / "card.json"
needs_warm = pytest.mark.skipif(not (WARM / "model.safetensors").is_file(), reason="no warm start in recipes/warm")


def test_its_reinforcement_is_the_recipes() -> None:
    whole, demo = load_settings(RECIPES / "rehearsal.toml"), load_settings(RECIPES / "train-demo.toml")
    refuse_settings(demo)
    for table in ("backend", "grpo", "reward", "second", "replay", "curriculum"):
        assert getattr(demo, table) == getattr(whole, table)
    assert demo.tasks.model_copy(update={"every": whole.tasks.every}) == whole.tasks
    assert demo.warm.steps == 0


@needs_warm
def test_its_warm_start_lies_beside_it_and_is_whole() -> None:
    begun = load_model(resolve_start(load_settings(RECIPES / "train-demo.toml").model.start, RECIPES))
    assert begun.tokenizer.get_vocab_size() <= begun.model.config.vocab_size
    assert (begun.pad, begun.end) == (0, 1)


@needs_warm
@pytest.mark.skipif(not CARD.is_file(), reason="no conductor with a card is shipped with this build")
def test_what_ships_began_with_that_warm_start() -> None:
    start = json.loads(CARD.read_text())["training"]["start"]
    if "weights" not in start:
        pytest.skip("the shipped conductor was trained in one run with its lessons")
    assert start["weights"] == sha256((WARM / "model.safetensors").read_bytes()).hexdigest()
