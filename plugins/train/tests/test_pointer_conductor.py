"""The pointer conductor: reads, points, plans within the pool, and its file is data."""

import random
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from shikisha import Caps, Card, Engine, Task
from shikisha.conductors.fixed_conductors import fixed_conductor
from shikisha.core.budget import Price
from shikisha.core.errors import ConfigError
from shikisha.core.prompts import WORDINGS
from shikisha.engine.conductor import NoPlan, Situation
from shikisha.engine.recorder import MemoryRecorder
from shikisha.retrieval.text_encoder import TextEncoder
from shikisha_train.office.office_tasks import QUIET_OFFICE, office_tasks
from shikisha_train.office.questions import AuthorSplit
from shikisha_train.pointer.part_plans import PartCondition, PartedTask, TreatmentKind
from shikisha_train.pointer.part_tagger import tagger_sizes
from shikisha_train.pointer.pointer_conductor import (
    PointerConductor,
    PointerModel,
    PoolKnowledge,
    load_pointer,
    load_reader,
    pointer_input,
    save_pointer,
    shipped_pointer,
)
from shikisha_train.pointer.pointer_network import PointerNetwork, first_weights, pointer_features
from shikisha_train.pointer.task_reader import (
    OTHER_ROLES,
    REFERENCES,
    WORDS_BUCKETS,
    ReadTask,
    TaskReader,
)
from shikisha_train.pointer.weight_file import open_weights, state_metadata

KINDS = ("people", "invoices", "arithmetic", "calendar", "meters", "policies")


def blank_reader(seed: int = 0) -> TaskReader:
    rng = np.random.default_rng(seed)
    columns = 2 * len(KINDS) + len(OTHER_ROLES) + len(REFERENCES) + 2
    words = rng.normal(0, 0.3, (WORDS_BUCKETS, columns)).astype(np.float32)
    sizes = tagger_sizes(len(KINDS) + len(OTHER_ROLES), len(REFERENCES))
    tagger = {name: rng.normal(0, 0.1, shape).astype(np.float32) for name, shape in sizes.items()}
    return TaskReader(KINDS, tagger, words, np.zeros(columns, np.float32))


def random_model(seed: int = 0) -> PointerModel:
    return PointerModel(blank_reader(seed), PointerNetwork(first_weights(len(KINDS), seed), np), "random")


def test_a_model_is_the_same_after_it_was_saved(tmp_path: Path) -> None:
    file = tmp_path / "one.safetensors"
    save_pointer(file, random_model(), {"seed": "0"})
    one, two = load_pointer(file), load_pointer(file)
    assert one.version == two.version
    assert file.stat().st_size < 7_000_000
    text = "Which room is Ada Abbot in? What is the total of INV-1234?"
    assert one.reader.read(text).parts == two.reader.read(text).parts


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda _: b"", "no pointer model"),
        (lambda held: held[:100], "header is longer"),
        (lambda held: held[:-200], "it is damaged"),
        (lambda held: held.replace(b"format unit example", b"format unix example"), "it is damaged"),
        (lambda held: held[:-2] + b"\xff\x7f", "it is damaged"),
        (lambda held: held.replace(b'"sha256"', b'"sha255"')[:-200], "does not fit"),
        (lambda held: held.replace(b'"sha256"', b'"sha255"')[:-2] + b"\xff\x7f", "finite"),
    ],
)
def test_a_damaged_file_is_refused_with_what_is_wrong(
    tmp_path: Path, damage: Callable[[bytes], bytes], message: str
) -> None:
    file = tmp_path / "one.safetensors"
    save_pointer(file, random_model(), {})
    file.write_bytes(damage(file.read_bytes()))
    with pytest.raises(ConfigError, match=message):
        load_pointer(file)


def test_a_model_that_other_code_was_trained_with_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "one.safetensors"
    save_pointer(file, random_model(), {})
    held = open_weights(file, "it")
    probes = [name for name in held.metadata if name.startswith("probe")]
    assert len(probes) == 2
    for name in probes:
        first, second, *rest = held.metadata[name].split()
        other = " ".join([first, f"{float(second) + 0.5}", *rest])
        state_metadata(held, {**held.metadata, name: other})
        with pytest.raises(ConfigError, match="other features or constants"):
            load_pointer(file)
        state_metadata(held, {each: told for each, told in held.metadata.items() if each != name})
        with pytest.raises(ConfigError, match="an earlier version wrote it"):
            load_pointer(file)
    state_metadata(held, held.metadata)
    load_pointer(file)


def test_the_shipped_models_go_with_this_code() -> None:
    """Whoever changes features or constants on purpose measures again, and runs benchmarks/bind_weights.py."""
    load_pointer(shipped_pointer())
    TextEncoder()


@pytest.mark.parametrize(
    ("told", "message"),
    [({"format": "shikisha-pointer/9"}, "expected the format"), ({"wordings": "format unix"}, "other wordings")],
)
def test_a_file_that_says_something_else_of_itself_is_refused(
    tmp_path: Path, told: dict[str, str], message: str
) -> None:
    file = tmp_path / "one.safetensors"
    save_pointer(file, random_model(), {})
    held = open_weights(file, "it")
    state_metadata(held, {**held.metadata, **told})
    with pytest.raises(ConfigError, match=message):
        load_pointer(file)


def test_a_reader_is_read_from_a_file_whose_network_goes_with_other_code(tmp_path: Path) -> None:
    file = tmp_path / "one.safetensors"
    save_pointer(file, random_model(), {})
    today = load_reader(file).read("Which room is Ada Abbot in?")
    held = open_weights(file, "it")
    state_metadata(held, {**held.metadata, "probe of the network": "1 2 3"})
    with pytest.raises(ConfigError, match="train it again"):
        load_pointer(file)
    assert load_reader(file).read("Which room is Ada Abbot in?").parts == today.parts
    state_metadata(held, {**held.metadata, "probe of the reader": "1 2 3"})
    with pytest.raises(ConfigError, match="train it again"):
        load_reader(file)


def test_any_text_is_read_in_bounded_time_and_to_the_letter() -> None:
    reader = blank_reader()
    rng = random.Random(1)
    alphabet = "aB9 .?!:\n\t,é漢'\"-"
    for size in (0, 1, 5, 300, 5_000):
        text = "".join(rng.choice(alphabet) for _ in range(size))
        read = reader.read(text)
        assert all(sentence in text for sentence in read.parts.sentences)
        assert read.kinds.shape == (len(read.parts), len(KINDS))
        assert all(use < part for part, uses in enumerate(read.parts.uses) for use in uses)
    assert len(reader.read("word " * 100_000).parts) <= 12


def seen_task() -> tuple[ReadTask, np.ndarray, np.ndarray]:
    parts = PartedTask(("a?", "b?", "c?", "d?"), ((), (0,), (), ()), PartCondition(1, 10, 2, 3))
    kinds = np.eye(6, dtype=np.float32)[[0, 2, 1, 4]]
    needs = np.array([[float(q in parts.needs(p)) for q in range(4)] for p in range(4)], np.float32)
    return ReadTask(parts, kinds, needs, 1.0), np.zeros((3, 6), np.float32), np.full(3, 0.001, np.float32)


def test_both_branches_of_a_condition_are_planned_and_the_stem_once() -> None:
    read, claims, prices = seen_task()
    plan = random_model().plan(read, claims, prices, PoolKnowledge.nothing(3, 6))
    policy = plan.policy()
    assert plan.paths == [(0, 1, 2), (0, 1, 3)]
    assert policy((3,)).block == (3,)
    assert policy((0, 1)) == policy((0, 1))
    assert set(policy((1,)).block) == {1}


def test_torch_and_numpy_score_alike() -> None:
    torch = pytest.importorskip("torch")
    read, claims, prices = seen_task()
    given = pointer_input(read, [(0, 1, 2), (0, 1, 3)], claims, prices, PoolKnowledge.nothing(3, 6))
    features = pointer_features(given)
    weights = first_weights(6, 3)
    plain = PointerNetwork(weights, np)
    other = PointerNetwork({name: torch.from_numpy(array) for name, array in weights.items()}, torch)
    as_torch = type(features)(
        **{name: torch.from_numpy(np.ascontiguousarray(each)) for name, each in vars(features).items()}
    )
    one, two = plain.encode(features), other.encode(as_torch)
    rows, places, first = np.array([0, 1]), np.array([1, 2]), np.array([0, 2])
    how = np.eye(4, dtype=np.float32)[[1, 3]]
    rows_t, places_t, first_t, how_t = (torch.from_numpy(each) for each in (rows, places, first, how))
    pairs = [
        (plain.score_first(one), other.score_first(two)),
        (plain.score_wordings(one), other.score_wordings(two)),
        (plain.score_access(one), other.score_access(two)),
        (plain.score_second(one, rows, places, first, how), other.score_second(two, rows_t, places_t, first_t, how_t)),
        (
            plain.score_third(one, rows, places, first, first, how),
            other.score_third(two, rows_t, places_t, first_t, first_t, how_t),
        ),
    ]
    for numbers, tensors in pairs:
        assert np.allclose(numbers, np.asarray(tensors), atol=1e-4)


async def test_invariant_1_it_plans_within_any_pool() -> None:
    engine = Engine(MemoryRecorder())
    for seed, item in enumerate(office_tasks(AuthorSplit.TRAIN, 5, QUIET_OFFICE, 8)):
        conductor = PointerConductor("pointer", random_model(seed))
        run = await engine.run(item.task, item.pool, conductor, Caps(steps=60, rounds=20), run_id=f"{seed}")
        assert run.finished is not None
        for turn in run.rounds:
            for step in turn.plan.steps if turn.plan else ():
                assert 0 <= step.worker < len(item.pool)


def test_a_task_that_cannot_be_told_apart_is_left_whole_and_a_plain_one_is_not() -> None:
    reader = load_pointer(shipped_pointer()).reader
    plain = reader.read("Which room is Ada Abbot in? What does the power meter in that room show?")
    assert not plain.whole
    assert plain.parts.uses == ((), (0,))
    text = "frobnicate zy-12 unless Quux Bar wibbles 77 of it; mumble and so on 4-ever"
    doubtful = blank_reader().read(text)
    assert doubtful.whole
    assert doubtful.parts.sentences == (text,)


async def test_a_doubtful_task_goes_to_the_fallback_that_is_named_in_the_plan() -> None:
    fallback = fixed_conductor("single")
    conductor = PointerConductor("pointer", random_model(), fallback=fallback)
    proposal = await conductor.propose(Situation(Task("frobnicate zy-12 unless Quux wibbles 77"), (Card("one"),)))
    assert proposal.substituted == fallback.name


async def test_what_is_unlike_the_lessons_goes_to_the_fallback_or_whole_to_one_worker() -> None:
    model = load_pointer(shipped_pointer())
    foreign, own = "Write a haiku about the autumn wind over the harbor.", "Which room is Nora Quill in?"
    assert model.reader.unlike(foreign)
    assert model.reader.unlike(own) is None
    assert model.reader.read(foreign).whole
    alone = PointerConductor("pointer", model)
    assert "fallback" in str(alone.unreadable((), Task(foreign)))
    plan = await alone.propose(Situation(Task(foreign), (Card("a"),)))
    assert [step.subtask for step in plan.plan.steps] == [foreign]
    assert "unlike" in plan.note
    helped = PointerConductor("pointer", model, fallback=fixed_conductor("single"))
    proposal = await helped.propose(Situation(Task(foreign), (Card("a"),)))
    assert proposal.substituted == "fixed:single"
    assert "unlike" in proposal.note


async def test_a_pool_without_a_worker_is_no_plan_or_the_fallback_s() -> None:
    conductor = PointerConductor("pointer", random_model())
    with pytest.raises(NoPlan):
        await conductor.propose(Situation(Task("Which room?"), (Card("votes", kind="vote"),)))


async def test_what_it_learned_to_tell_the_offices_workers_reaches_no_subtask_of_a_user() -> None:
    model, said = load_pointer(shipped_pointer()), set[str]()
    cards = tuple(
        Card(name, "looks up people, rooms and invoices; calculates", price=Price(call=0.001)) for name in "ab"
    )
    for item in islice(office_tasks(AuthorSplit.TRAIN, 4, QUIET_OFFICE), 12):
        for tells in (False, True):
            proposal = await PointerConductor("pointer", model, tells=tells).propose(Situation(item.task, cards))
            told = any(words in step.subtask for step in proposal.plan.steps for words in WORDINGS.values())
            said |= {f"{tells} {told}"}
    assert "False True" not in said
    assert "True True" in said


def test_more_right_outcomes_point_the_shipped_model_at_a_worker() -> None:
    model = load_pointer(shipped_pointer())
    cards = [Card(name, "") for name in ("one", "two", "three")]
    read = model.reader.read("Which room is Ada Abbot in?")
    assert [model.reader.kinds[at] for at in read.kinds.argmax(1)] == ["people"]
    for good in range(3):
        known = PoolKnowledge.nothing(3, 6)
        tries, right = known.tries.copy(), known.right.copy()
        tries[:, 0] = 30
        right[:, 0] = [27 if at == good else 3 for at in range(3)]
        choice = model.decide(
            read, cards, PoolKnowledge(tries, right, known.told_tries, known.told_right, known.family)
        )
        chosen = choice.policy()((0,))
        assert chosen.workers[0] == good
        assert chosen.kind in TreatmentKind
