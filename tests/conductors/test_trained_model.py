"""A conductor from a checkpoint: its plans, its lots, what it refuses; without torch."""

import subprocess
import sys
from collections.abc import Callable
from copy import copy
from dataclasses import replace
from importlib.resources import files
from math import exp, log
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")  # makes the checkpoints; nothing else here needs it

import onnx
from checkpoints import PHRASES, TASKS, exported, first_round, random, situation, words

from shikisha.conductors.fixed_conductors import ScriptedConductor
from shikisha.conductors.onnx_checkpoint import BriefPromptModel, open_onnx_checkpoint
from shikisha.conductors.trained_model import PlanDecoding, TrainedConductor
from shikisha.config.container import load_config
from shikisha.core.budget import Caps
from shikisha.core.errors import ConfigError, PlanError
from shikisha.core.plan import Plan, Step
from shikisha.core.plan_parser import parse_plan
from shikisha.core.task import Task
from shikisha.engine.conductor import NoPlan, Proposal
from shikisha.engine.engine import Engine
from shikisha.engine.recorder import MemoryRecorder
from shikisha.engine.worker import Card

FALLBACK = ScriptedConductor([Plan((Step("stand in", 0),))], "fixed:stand-in")
LIKELIEST, FREE = PlanDecoding(), PlanDecoding(constrained=False)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return exported(tmp_path_factory.mktemp("checkpoint"))


@pytest.fixture(scope="module")
def author(folder: Path) -> BriefPromptModel:
    return open_onnx_checkpoint(folder)


async def propose(author: BriefPromptModel, manner: PlanDecoding = LIKELIEST, number: int = 0) -> Proposal:
    return await TrainedConductor("lm:it", author, manner=manner).propose(situation(number))


@pytest.mark.parametrize("temperature", [0.0, 1.0])
async def test_whatever_its_weights_it_writes_a_plan_for_the_pool(author: BriefPromptModel, temperature: float) -> None:
    for number, item in enumerate(TASKS):
        proposal = await propose(author, PlanDecoding(temperature), number)
        assert proposal.plan == parse_plan(proposal.text, len(item.pool))
        assert {step.subtask for step in proposal.plan.steps} <= set(PHRASES)
        assert (proposal.version, proposal.final) == (author.version, True)


async def test_the_same_situation_leads_to_the_same_plan_and_another_lot_to_others(author: BriefPromptModel) -> None:
    for manner in (PlanDecoding(), PlanDecoding(1.0, seed=4)):
        assert await propose(author, manner) == await propose(author, manner)
    texts = {(await propose(author, PlanDecoding(1.0, seed))).text for seed in range(8)}
    assert len(texts) > 4


async def test_each_round_has_a_lot_of_its_own(author: BriefPromptModel) -> None:
    conductor = TrainedConductor("lm:it", author, manner=PlanDecoding(1.0), rounds=3)
    lots = [conductor._order(situation(0, *[first_round()] * count))[1].lot for count in range(3)]
    assert len({lot.seed for lot in lots if lot}) == 3


async def test_the_propensity_is_the_texts_probability_among_what_could_be_written(author: BriefPromptModel) -> None:
    assert (await propose(author)).propensity is None
    conductor = TrainedConductor("lm:it", author, manner=PlanDecoding(0.5, 3))
    prompt, order = conductor._order(situation())
    assert order.limits is not None
    proposal = await propose(author, PlanDecoding(0.5, 3))
    found = 0.0
    reading = author.model.begin()
    logits = reading.feed(prompt)
    for token in author.encode(proposal.text):
        spread = np.where(order.limits.allowed(), np.exp(logits.astype(np.float64) / 0.5), 0.0)
        found += log(spread[token] / spread.sum())
        order.limits.take(token, 200)
        logits = reading.feed([token])
    assert proposal.propensity == pytest.approx(exp(found), rel=1e-4)


async def test_invariant_9_what_is_no_plan_is_kept_and_the_fallback_is_named(author: BriefPromptModel) -> None:
    with pytest.raises(NoPlan, match="expected model_id") as raised:
        await propose(author, FREE)
    (rejected,) = raised.value.rejected
    proposal = await TrainedConductor("lm:it", author, FALLBACK, FREE).propose(situation())
    assert (proposal.substituted, proposal.rejected) == ("fixed:stand-in", (rejected,))
    assert proposal.plan.steps[0].subtask == "stand in"
    assert proposal.note.startswith("lm:it: ")
    assert rejected.text


async def test_a_text_that_comes_to_no_end_is_broken_off(author: BriefPromptModel) -> None:
    endless = copy(author)
    endless.ends = frozenset()
    with pytest.raises(NoPlan, match="broken off after 256 tokens: "):
        await propose(endless, FREE)


async def test_of_a_pool_beyond_the_ordinals_it_has_it_is_shown_ten(author: BriefPromptModel) -> None:
    known = situation().cards
    others = tuple(Card(f"w{number}", known[number % len(known)].description) for number in range(20))
    wide = replace(situation(), cards=(*others, *known))
    proposal = await TrainedConductor("lm:it", author, manner=PlanDecoding(unknown=1.0)).propose(wide)
    assert "shown 10 of " in proposal.note
    proposal.plan.check_pool(len(wide.cards))


async def test_a_prompt_longer_than_its_context_is_refused(author: BriefPromptModel) -> None:
    long = replace(situation(), task=Task(f"{TASKS[0].task.prompt} " * 40))
    with pytest.raises(PlanError, match="are more than the 400 that the model can read"):
        await TrainedConductor("lm:it", author).propose(long)


@pytest.mark.parametrize(("rounds", "final"), [(None, True), (1, True), (2, True), (3, False)])
async def test_it_plans_as_many_rounds_as_it_is_told(author: BriefPromptModel, rounds: int | None, final: bool) -> None:
    conductor = TrainedConductor("lm:it", author, rounds=rounds)
    assert (await conductor.propose(situation(0, first_round()))).final is final


async def test_the_cap_on_steps_is_kept_to(author: BriefPromptModel) -> None:
    for number in range(8):
        at = replace(situation(number), left=replace(Caps(), plan_steps=1))
        assert len((await TrainedConductor("lm:it", author, manner=PlanDecoding(2.0)).propose(at)).plan) == 1


async def test_it_conducts_in_the_engine(author: BriefPromptModel) -> None:
    item = TASKS[0]
    run = await Engine(MemoryRecorder()).run(item.task, item.pool, TrainedConductor("lm:it", author))
    assert run.rounds[0].proposed is not None
    assert run.rounds[0].proposed.version == author.version


UNTORCHED = """
import asyncio, sys
for name in ("torch", "transformers", "safetensors"):
    sys.modules[name] = None  # an import of it is an ImportError
from pathlib import Path
import shikisha.conductors.trained_model
from shikisha.config.container import load_config
composition = load_config(Path(sys.argv[2]))
pool = composition.pool(())
conductor = composition.conductor(f"lm:{sys.argv[1]}?temperature=0.9&unknown=1", pool)
from shikisha.engine.conductor import Situation
from shikisha.core.task import Task
proposal = asyncio.run(conductor.propose(Situation(Task("what is it"), pool.cards)))
assert proposal.plan.steps
print(proposal.text)
"""
TWO = "".join(f'[workers.{name}]\nkind = "scripted"\nanswers = ["A"]\n' for name in "ab")


def settings(folder: Path, text: str = "") -> Path:
    path = folder / "shikisha.toml"
    path.write_text(TWO + text)
    return path


def test_it_needs_no_torch(folder: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-W", "error", "-c", UNTORCHED, str(folder), str(settings(tmp_path))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - our own command
    assert done.returncode == 0, done.stderr
    assert parse_plan(done.stdout, 2).steps


def test_a_checkpoint_conducts_by_its_name_and_as_a_table_says(folder: Path, tmp_path: Path) -> None:
    table = (
        f'[conductors.ours]\nkind = "trained"\npath = "{folder}"\ntemperature = 0.5\nrounds = 2\nfallback = "random"\n'
    )
    composition = load_config(settings(tmp_path, table))
    named, tabled = composition.conductor(f"lm:{folder}?constrained=false&seed=3"), composition.conductor("ours")
    assert isinstance(named, TrainedConductor)
    assert isinstance(tabled, TrainedConductor)
    assert named.manner == PlanDecoding(0.0, 3, constrained=False)
    assert (tabled.name, tabled.manner, tabled.rounds) == ("ours", PlanDecoding(0.5), 2)
    assert tabled.fallback is not None
    assert named.author is tabled.author  # loaded once


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("lm:nowhere", "unknown worker 'nowhere'"),
        ("lm:./nowhere", "nor is there a folder of this name"),
        ("lm:{empty}", "no checkpoint: expected model.onnx or"),
        ("lm:{folder}?temprature=1", "temprature: unknown key"),
        ("lm:{folder}?temperature=-1", "temperature: expected greater than or equal to 0"),
        ("lm:{folder}?temperature=1e-9", "temperature: expected 0, or 0.01 to 10.0, found 1e-09"),
        ("lm:{folder}?fallback=lm:nowhere", "unknown worker 'nowhere'"),
        ("ours", "conductors.ours: .*gone: there is no such folder"),
    ],
)
def test_what_cannot_conduct_is_refused(name: str, says: str, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    composition = load_config(settings(tmp_path, '[conductors.ours]\nkind = "trained"\npath = "gone"\n'))
    with pytest.raises(ConfigError, match=says):
        composition.conductor(name.format(folder=folder, empty=tmp_path / "empty"))


def test_the_shipped_checkpoint_conducts_or_an_error_says_that_there_is_none(tmp_path: Path) -> None:
    composition = load_config(settings(tmp_path))
    if (files("shikisha") / "shipped" / "model.onnx").is_file():
        assert composition.conductor("lm:shipped").name == "lm:shipped"
    else:
        with pytest.raises(ConfigError, match=r"lm:shipped: this build of shikisha has no shipped/model.onnx"):
            composition.conductor("lm:shipped")


def of_another_format(folder: Path) -> None:
    model = onnx.load(folder / "model.onnx")
    onnx.helper.set_model_props(model, {"format": "0"})
    onnx.save(model, folder / "model.onnx")


def without_facts(folder: Path) -> None:
    model = onnx.load(folder / "model.onnx")
    onnx.helper.set_model_props(model, {"format": "1", "context": "400"})
    onnx.save(model, folder / "model.onnx")


def without_a_context(folder: Path) -> None:
    model = onnx.load(folder / "model.onnx")
    onnx.helper.set_model_props(model, {"format": "1", "context": "so long"})
    onnx.save(model, folder / "model.onnx")


def without_caches(folder: Path) -> None:
    shape = ["batch", "heads", "past", "depth"]
    [name, told] = [
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)
        for name in ("past_key_values.0.key", "logits")
    ]
    node = onnx.helper.make_node("Identity", [name.name], [told.name])
    model = onnx.helper.make_model(
        onnx.helper.make_graph([node], "g", [name], [told]),
        opset_imports=[onnx.helper.make_opsetid("", 17)],
        ir_version=8,
    )
    onnx.helper.set_model_props(model, {"format": "1", "context": "400"})
    onnx.save(model, folder / "model.onnx")


def with_names_that_are_no_text(folder: Path) -> None:
    without_caches(folder)
    held = (folder / "model.onnx").read_bytes()
    (folder / "model.onnx").write_bytes(held.replace(b"past_key", b"\x9cast_key"))


def with_another_tokenizer(folder: Path) -> None:
    tokenizer = words()
    tokenizer.add_tokens(["more"])
    tokenizer.save(str(folder / "tokenizer.json"))


DAMAGE: list[tuple[Callable[[Path], object], str]] = [
    (lambda folder: (folder / "model.onnx").write_bytes(b"no model"), "model.onnx: cannot be read as an ONNX model"),
    (lambda folder: (folder / "model.onnx").unlink(), "model.onnx: cannot be read"),
    (lambda folder: (folder / "tokenizer.json").unlink(), "tokenizer.json: cannot be read"),
    (lambda folder: (folder / "tokenizer.json").write_text("{}"), "tokenizer.json: no tokenizer"),
    (lambda folder: random(folder, 7), "not made of the model.safetensors next to it"),
    (with_another_tokenizer, "not the tokenizer that model.onnx was exported with"),
    (of_another_format, "a model of format '0'; this version reads format '1'"),
    (without_facts, "what it says of itself is not whole"),
    (without_a_context, "what it says of itself is not whole: invalid literal"),
    (without_caches, "what it says of itself is not whole: 'str' object"),
    (with_names_that_are_no_text, "cannot be read as an ONNX model"),
]


@pytest.mark.parametrize(("damage", "says"), DAMAGE)
def test_a_damaged_checkpoint_is_refused(damage: Callable[[Path], object], says: str, tmp_path: Path) -> None:
    damage(exported(tmp_path))
    with pytest.raises(ConfigError, match=says):
        open_onnx_checkpoint(tmp_path)
