"""A trained conductor says what it cannot read, and plans what it can: by all its readers, and at every front door."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("torch")  # makes checkpoints with other tokenizers, and reads them

from checkpoints import TASKS, chatting, exported
from serving import served
from tokenizers import Tokenizer, models
from typer.testing import CliRunner

from shikisha.cli import app
from shikisha.cli.exit_codes import ExitCode
from shikisha.conductors.fixed_conductors import ScriptedConductor
from shikisha.conductors.onnx_checkpoint import open_onnx_checkpoint, shipped_checkpoint, unknown_token
from shikisha.conductors.trained_model import PlanDecoding, PlanModel, TrainedConductor
from shikisha.config.container import load_config
from shikisha.config.preflight import conductor_notices
from shikisha.core.budget import Price
from shikisha.core.errors import FaultKind, UnreadableTask
from shikisha.core.events import RunStatus
from shikisha.core.plan import Plan, Step
from shikisha.core.task import Task
from shikisha.engine.conductor import Situation
from shikisha.engine.engine import Engine
from shikisha.engine.pool import Member, Pool
from shikisha.engine.recorder import MemoryRecorder
from shikisha.engine.worker import Card
from shikisha.simulation.task_generator import generate_tasks
from shikisha.simulation.vocabulary import WordingSplit
from shikisha.training.inference import open_checkpoint
from shikisha.workers.scripted import ScriptedWorker

HAIKU = "Write a haiku and then translate it into French."
CHAT = (
    Card("cheap", "Quick and cheap; good at short, clear tasks.", price=Price(0.0, 0.0)),
    Card("dear", "Slow and careful; strong at reasoning and code.", price=Price(1.25, 10.0)),
)
OWN = list(generate_tasks(WordingSplit.HELDOUT, 11, count=150))
FALLBACK = ScriptedConductor([Plan((Step("stand in", 1),))], "fixed:stand-in")


def pool(cards: tuple[Card, ...] = CHAT) -> Pool:
    return Pool([Member(card, ScriptedWorker("done")) for card in cards])


@pytest.fixture(scope="module")
def author() -> PlanModel:
    return open_onnx_checkpoint(shipped_checkpoint())


def test_no_task_of_its_own_is_refused_and_everyday_ones_are_by_any_pool(author: PlanModel) -> None:
    conductor = TrainedConductor("lm:it", author)
    assert [conductor.unreadable(item.pool.cards, item.task) for item in OWN] == [None] * len(OWN)
    for cards in (CHAT, tuple(Card(card.name) for card in CHAT), OWN[0].pool.cards):
        assert "of the question are others" in (conductor.unreadable(cards, Task(HAIKU)) or "")
    assert conductor.unreadable(CHAT, OWN[0].task) is not None
    assert "of the workers' descriptions" in (conductor.unreadable(CHAT) or "")


@pytest.mark.parametrize(
    "task",
    [
        Task(OWN[0].task.prompt, context=" ".join([HAIKU] * 3)),
        Task("東京の天気はどうですか。明日は雨が降りますか。"),
        Task(" ".join([OWN[0].task.prompt, HAIKU])),
    ],
)
def test_what_is_unknown_is_found_in_context_in_other_scripts_and_behind_known_words(
    author: PlanModel, task: Task
) -> None:
    assert TrainedConductor("lm:it", author).unreadable(OWN[0].pool.cards, task) is not None


def test_long_known_descriptions_hide_no_unknown_question_and_the_other_way_round(author: PlanModel) -> None:
    conductor = TrainedConductor("lm:it", author)
    long = tuple(Card(f"w{number}", "looks up facts in the register " * 40) for number in range(4))
    assert "of the question" in (conductor.unreadable(long, Task(HAIKU)) or "")
    assert "descriptions" in (conductor.unreadable(CHAT, Task(" ".join([OWN[0].task.prompt] * 40))) or "")


async def test_without_a_fallback_the_run_fails_for_that_reason_and_nobody_is_called(author: PlanModel) -> None:
    with pytest.raises(UnreadableTask, match="name another conductor, or a fallback"):
        await TrainedConductor("lm:it", author).propose(Situation(Task(HAIKU), CHAT))
    run = await Engine(MemoryRecorder()).run(Task(HAIKU), pool(), TrainedConductor("lm:it", author))
    assert run.finished is not None
    assert (run.status, run.finished.fault, run.attempts) == (RunStatus.FAILED, FaultKind.UNREADABLE, [])
    assert "50% of the question are others" in run.finished.why


async def test_invariant_9_the_fallback_takes_over_and_is_named(author: PlanModel) -> None:
    run = await Engine(MemoryRecorder()).run(Task(HAIKU), pool(), TrainedConductor("lm:it", author, FALLBACK))
    made = run.rounds[0].proposed
    assert made is not None
    assert (made.conductor, made.substituted, run.answer) == ("lm:it", "fixed:stand-in", "done")
    assert "50% of the question are others" in made.note


async def test_the_limit_is_the_conductors_setting(author: PlanModel) -> None:
    for share, refused in ((0.0, True), (0.05, True), (0.4, False), (1.0, False)):
        conductor = TrainedConductor("lm:it", author, manner=PlanDecoding(unknown=share))
        assert (conductor.unreadable(CHAT, Task(HAIKU)) is not None) is refused
    proposal = await TrainedConductor("lm:it", author, manner=PlanDecoding(unknown=1.0)).propose(
        Situation(Task(HAIKU), CHAT)
    )
    assert proposal.plan.steps  # valid nonsense, as it was asked for


@pytest.mark.parametrize("reader", [open_onnx_checkpoint, open_checkpoint])
def test_onnx_and_transformers_refuse_the_same(reader: Callable[[Path], PlanModel], tmp_path: Path) -> None:
    conductor = TrainedConductor("lm:it", reader(exported(tmp_path)))
    assert [conductor.unreadable(item.pool.cards, item.task) for item in TASKS] == [None] * len(TASKS)
    assert conductor.unreadable(TASKS[0].pool.cards, Task(HAIKU)) is not None


def test_a_tokenizer_that_reads_every_byte_refuses_nothing(tmp_path: Path) -> None:
    author = open_checkpoint(chatting(tmp_path))
    assert author.words is None
    assert TrainedConductor("lm:it", author, manner=PlanDecoding(unknown=0.0)).unreadable(CHAT, Task(HAIKU)) is None


def test_the_unknown_token_is_found_in_every_kind_of_tokenizer() -> None:
    vocabulary, unknown = {"[unk]": 0, "a": 1}, "[unk]"
    assert unknown_token(Tokenizer(models.WordLevel(vocabulary, unk_token=unknown))) == 0
    assert unknown_token(Tokenizer(models.WordPiece(vocabulary, unk_token=unknown))) == 0
    assert unknown_token(Tokenizer(models.Unigram([("a", -1.0), ("<unk>", 0.0)], unk_id=1))) == 1
    assert unknown_token(Tokenizer(models.BPE({"a": 0}, []))) is None


WORKERS = """
[workers.cheap]
kind = "scripted"
description = "Quick and cheap; good at short, clear tasks."
answers = "from cheap"
"""


def configured(folder: Path, conductor: str, more: str = "") -> Path:
    path = folder / "shikisha.toml"
    path.write_text(f'conductor = "{conductor}"\n{WORKERS}{more}')
    return path


@pytest.mark.parametrize(
    ("conductor", "verdict"), [("lm:shipped", "FAIL"), ("lm:shipped?fallback=fixed:single", "note")]
)
def test_the_doctor_says_what_it_is_for(conductor: str, verdict: str, tmp_path: Path) -> None:
    shown = CliRunner().invoke(app, ["doctor", "--config", str(configured(tmp_path, conductor))])
    said = next(line for line in shown.stdout.splitlines() if line.startswith(verdict) and "conductor" in line)
    assert "of the workers' descriptions are others: it was trained on tasks of 'rehearsal'" in said
    assert shown.exit_code == (ExitCode.CONFIG if verdict == "FAIL" else ExitCode.OK)


def test_a_pool_that_it_can_read_gets_a_word_on_what_it_is_for_too(tmp_path: Path) -> None:
    readable = '[workers.fact]\nkind = "scripted"\ndescription = "looks up facts in the register"\n'
    more = f'{readable}[conductors.other]\nkind = "trained"\npath = "shipped"\nfallback = "fixed:single"\n'
    file = configured(tmp_path, "lm:shipped", more)
    file.write_text(f'pool = ["fact"]\n{file.read_text()}')
    found = {notice.where: notice for notice in conductor_notices(load_config(file))}
    assert [notice.unreadable for notice in found.values()] == [None, None]
    assert str(found["conductor"]).startswith("for tasks like those of 'rehearsal'")
    assert "fixed:single then plans" in str(found["conductors.other"])


def test_run_and_plan_say_it_on_the_command_line(tmp_path: Path) -> None:
    file = str(configured(tmp_path, "lm:shipped"))
    for command, code in (("plan", ExitCode.INPUT), ("run", ExitCode.FAILED)):
        shown = CliRunner().invoke(app, [command, HAIKU, "--config", file], env={"XDG_STATE_HOME": str(tmp_path)})
        assert shown.exit_code == code
        assert "it was trained on tasks of 'rehearsal'" in shown.stderr
    stood_in = ["plan", HAIKU, "--config", file, "--conductor", "lm:shipped?fallback=fixed:single", "--json"]
    told = json.loads(CliRunner().invoke(app, stood_in).stdout)
    assert (told["substituted"], told["steps"][0]["worker"]) == ("fixed:single", 0)


async def test_a_served_request_is_refused_for_good_or_says_who_planned_instead(tmp_path: Path) -> None:
    more = '[conductors.both]\nkind = "trained"\npath = "shipped"\nfallback = "fixed:single"\n'
    config = configured(tmp_path, "lm:shipped", more).read_text()
    async with served(tmp_path, config) as at, at.http() as client:
        asked = {"messages": [{"role": "user", "content": HAIKU}]}
        refused = await client.post("/v1/chat/completions", json={"model": "shikisha", **asked})
        assert (refused.status_code, refused.json()["error"]["code"]) == (422, "unreadable")
        body, told = {"model": "shikisha/both", **asked}, {"X-Shikisha-Metadata": "full"}
        answered = (await client.post("/v1/chat/completions", json=body, headers=told)).json()
        assert answered["choices"][0]["message"]["content"] == "from cheap"
        assert answered["shikisha"]["rounds"][0]["substituted"] == "fixed:single"


def test_cards_that_fill_the_context_are_told_before_a_run(author: PlanModel) -> None:
    item = OWN[0]
    long = [replace(card, description=f"{card.description} " * 40) for card in item.pool.cards]
    told = TrainedConductor("lm:it", author).unreadable(long) or ""
    assert re.match(r"the workers' descriptions are \d+ tokens, and the model can read 512 in all", told), told


@pytest.mark.parametrize(
    ("dollars", "level"), [(0.0, "$2"), (0.00001, "$2"), (0.002, "$3"), (0.005, "$3"), (2.0, "$5")]
)
def test_a_price_that_training_never_had_is_read_as_the_nearest(author: PlanModel, dollars: float, level: str) -> None:
    item = OWN[0]
    cards = [replace(card, price=Price(call=dollars)) for card in item.pool.cards]
    tokens = list(author.prompt(Situation(item.task, tuple(cards))))
    (unknown,), (price,) = author.encode("xylophone"), author.encode(level)
    assert price != unknown
    assert (tokens.count(unknown), tokens.count(price)) == (0, len(cards))
