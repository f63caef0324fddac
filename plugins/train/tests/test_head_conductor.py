"""The head conductor: cuts, names workers of the pool alone, says when it cannot, and its file is data."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from shikisha import Caps, Card, Engine, Member, Pool, Reply, Task
from shikisha.conductors.fixed_conductors import fixed_conductor
from shikisha.core.budget import Price
from shikisha.core.call import Request
from shikisha.core.errors import ConfigError
from shikisha.engine.conductor import NoPlan, Situation
from shikisha.engine.recorder import MemoryRecorder
from shikisha.retrieval.text_encoder import TextEncoder
from shikisha_train.head.head_conductor import HeadConductor, PartHead, load_head, save_head, shipped_head
from shikisha_train.head.part_cutter import tokens

SORT, SUM = "Put these words into alphabetical order: walnut fig quince.", "What is ((3 + 4) * (2 - 5) + (1 - 6))?"
TASK = f"First of all: {SORT} After that, {SUM}"


@pytest.fixture(scope="module")
def head() -> PartHead:
    return load_head(shipped_head())


class Naming:
    """Answers with its name and what it was asked, or with what it was granted."""

    def __init__(self, name: str) -> None:
        self.name = name

    async def perform(self, request: Request) -> Reply:
        granted = "\n".join(str(step.text) for step in request.granted)
        return Reply(granted or f"{self.name}: {request.subtask}")


def pool_of(*names: str) -> Pool:
    return Pool([Member(Card(name, price=Price()), Naming(name)) for name in names])


async def test_each_part_goes_to_the_worker_that_outcomes_taught(head: PartHead) -> None:
    pool = pool_of("join", *head.workers)
    run = await Engine(MemoryRecorder()).run(Task(TASK), pool, HeadConductor("head", head), Caps())
    assert run.answer == f"tool: {SORT}\ntool: {SUM}"
    (turn,) = run.rounds
    assert turn.plan is not None
    assert [step.access for step in turn.plan.steps] == [(), (), (0, 1)]


def test_a_part_that_comes_last_in_the_text_may_come_first(head: PartHead) -> None:
    assert head.cutter.cut(f"{SUM} (Before you answer that, though: {SORT})") == [SORT, SUM]


async def test_a_worker_that_the_pool_lacks_gets_nothing(head: PartHead) -> None:
    situation = Situation(Task(TASK), pool_of("large-form", "join", "other").cards)
    proposal = await HeadConductor("head", head).propose(situation)
    assert [step.worker for step in proposal.plan.steps] == [0, 0, 1]


@pytest.mark.parametrize(
    ("names", "prompt", "says"),
    [
        (("ann", "join"), TASK, "the pool has none of its workers: tool, "),
        (("tool",), TASK, "2 parts, and the pool lacks the worker 'join'"),
        (("tool", "join"), "word " * 5_000, "no part could be read in 25,000 characters"),
    ],
)
async def test_what_it_cannot_plan_it_says_or_the_fallback_plans(
    head: PartHead, names: tuple[str, ...], prompt: str, says: str
) -> None:
    situation = Situation(Task(prompt), pool_of(*names).cards)
    refused = HeadConductor("head", head).unreadable(situation.cards)  # `doctor` says it before a task is there
    assert (refused is not None) == ("ann" in names)
    with pytest.raises(NoPlan, match=says):
        await HeadConductor("head", head).propose(situation)
    proposal = await HeadConductor("head", head, fixed_conductor("single")).propose(situation)
    assert proposal.substituted == "fixed:single"
    assert says in proposal.note
    assert len(proposal.plan.steps) == 1


def test_parts_are_stretches_of_any_text(head: PartHead) -> None:
    rng = np.random.default_rng(4)
    marks = ["(", ")", '"', "```python", "\n", "?", ".", "First", "é", "\x00", "and", "12", " | ", SORT, SUM]
    for _ in range(60):
        text = " ".join(rng.choice(marks, rng.integers(0, 40)))
        parts = head.cutter.cut(text)
        assert all(part in text for part in parts)
        assert sum(len(tokens(part)) for part in parts) <= len(tokens(text))


def test_a_file_is_read_as_it_was_written_or_refused(head: PartHead, tmp_path: Path) -> None:
    file = tmp_path / "own.safetensors"
    save_head(file, head, {})
    again = load_head(file)
    assert again.workers == head.workers
    assert np.array_equal(again.cutter.labels, head.cutter.labels)
    other = tmp_path / "other.safetensors"
    other.write_bytes(file.read_bytes()[:-1] + b"\x01")
    for place in (other, tmp_path / "none"):
        with pytest.raises(ConfigError, match=place.name):
            load_head(place)
    save_head(other, replace(head, workers=head.workers[:-1], weights=head.weights[:, :-1], bias=head.bias[:-1]), {})
    assert load_head(other).workers == head.workers[:-1]


async def test_a_text_without_words_has_no_part_and_no_weights_can_make_one_begin_inside(head: PartHead) -> None:
    assert head.cutter.cut("\n" * 100) == []
    situation = Situation(Task("\n" * 100 + "."), pool_of("join", *head.workers).cards)
    steps = (await HeadConductor("head", head).propose(situation)).plan.steps
    assert all(step.subtask for step in steps)
    lenient = replace(head.cutter, labels=np.zeros_like(head.cutter.labels), moves=np.eye(3)[:, [0, 2, 1]] * 9)
    assert replace(lenient, moves=np.array([[0, 0, 9.0], [0, 0, 0], [0, 0, 9]])).cut("one two three") == []


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="no device that never ends")
def test_a_file_that_never_ends_is_refused() -> None:
    with pytest.raises(ConfigError, match="has at most"):
        load_head(Path("/dev/zero"))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda _: b"", "no head"),
        (lambda held: held[:100], "header is longer"),
        (lambda held: held[:-200], "it is damaged"),
        (lambda held: held.replace(b"shikisha-head/1", b"shikisha-head/2"), "it is damaged"),
        (lambda held: held[:-2] + b"\xff\x7f", "it is damaged"),
        (lambda held: held.replace(b'"sha256"', b'"sha255"')[:-200], "does not fit"),
        (lambda held: held.replace(b'"sha256"', b'"sha255"')[:-2] + b"\xff\x7f", "finite"),
        (lambda held: held.replace(b'"sha256"', b'"sha255"').replace(b"head/1", b"head/9"), "expected the format"),
        (lambda held: held.replace(b'"sha256"', b'"sha255"').replace(b'"probe"', b'"prove"'), "an earlier version"),
    ],
)
def test_a_damaged_file_is_refused_with_what_is_wrong(
    tmp_path: Path, damage: Callable[[bytes], bytes], message: str
) -> None:
    file = tmp_path / "one.safetensors"
    file.write_bytes(damage(shipped_head().read_bytes()))
    with pytest.raises(ConfigError, match=message):
        load_head(file)


def test_the_shipped_models_go_with_this_code() -> None:
    """Whoever changes features or constants on purpose measures and makes them again (`benchmarks/README.md`)."""
    load_head(shipped_head())
    TextEncoder()
