"""Every kind of learned file, damaged in forty ways: a configuration error that names the file, or what it was."""

import gzip
import random
import shutil
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from shelves import asking, shelf_of

import shikisha
from shikisha.core.errors import ConfigError
from shikisha.core.events import GradeBasis
from shikisha.core.messages import Json
from shikisha.core.task import OPERATOR, Scope
from shikisha.learned.learned_file import read_learned, write_learned
from shikisha.learned.learning_files import LearningFiles
from shikisha.learned.outcome_fit import LearningTerms, fit_outcomes
from shikisha.learned.outcome_model import OUTCOMES, OutcomeModel, outcome_model_of
from shikisha.learned.step_evidence import RunEvidence, StepAnswer, StepUnit
from shikisha.retrieval.ranker import Ranker, RankerOrigin, load_ranker
from shikisha.retrieval.text_encoder import TextEncoder, shipped_encoder
from shikisha.routing.policy_file import load_policy, save_policy
from shikisha.routing.policy_registry import REGISTRY_FILE, read_registry
from shikisha_classes.task_classes import (
    ConfirmedSettings,
    ProposedClasses,
    TaskClass,
    classes_file,
    load_confirmed_classes,
)
from shikisha_train.head.head_conductor import load_head, shipped_head

Load = Callable[[Path], object]
ENCODER = Path(shikisha.__file__).parent / "retrieval" / "encoder.onnx"


@dataclass(frozen=True)
class Kind:
    """How a kind of file is written into a folder (its path comes back) and loaded; `hashed`: every byte counts."""

    write: Callable[[Path], Path]
    load: Load
    hashed: bool = False


def written(name: str, write: Callable[[Path], object]) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        write(folder / name)
        return folder / name

    return make


def some_model() -> OutcomeModel:
    units = [StepUnit(f"Add {name}", "sum", (StepAnswer(name, (), planned=False),), 0) for name in ("ann", "bob")]
    runs = [RunEvidence(f"r{at}", at, (units[at % 2],), at % 3 > 0, GradeBasis.PERSON, OPERATOR) for at in range(40)]
    return fit_outcomes(runs, LearningTerms(), OPERATOR, shipped_encoder().encode)


def read_confirmed(file: Path) -> object:
    return load_confirmed_classes(ConfirmedSettings(proposed=file))


def write_classes(file: Path) -> None:
    center = np.eye(1, shipped_encoder().width)[0]
    write_learned(file, classes_file(ProposedClasses((TaskClass("a", (), center, 0.5),), OPERATOR), 0.0))


def write_shelf(folder: Path) -> Path:
    shelf_of(folder / "shelf", asking("ann"), asking("bob"))
    return folder / "shelf" / REGISTRY_FILE


def write_ranker(file: Path) -> None:
    drawn, shape = np.random.default_rng(0), (20, 9)
    whole = {name: drawn.integers(0, 9, shape) for name in ("feature", "left", "right")}
    reals = {name: drawn.normal(size=shape).astype(np.float32) for name in ("threshold", "value")}
    file.write_text(Ranker({**whole, **reals}, 4, RankerOrigin()).dump())


KINDS: Mapping[str, Kind] = {
    "head": Kind(
        written("a.safetensors", lambda file: file.write_bytes(shipped_head().read_bytes())), load_head, hashed=True
    ),
    "outcome model": Kind(
        written("model.json", lambda file: write_learned(file, some_model().to_file(["r1"], 0.0))),
        lambda file: outcome_model_of(read_learned(file, OUTCOMES), str(file), None),
    ),
    "learning": Kind(
        written("index.json", lambda file: LearningFiles(file.parent).publish(some_model(), ["r1"], 0.0, 1)),
        lambda file: LearningFiles(file.parent).index(),
    ),
    "classes": Kind(written("classes.json", write_classes), read_confirmed),
    "policy": Kind(written("a.policy", lambda file: save_policy(asking("ann"), file)), load_policy),
    "registry": Kind(write_shelf, lambda file: read_registry(file.parent)),
    "ranker": Kind(written("a.ranker.json", write_ranker), load_ranker),
    "encoder": Kind(
        written("a.onnx", lambda file: shutil.copy(ENCODER, file)),
        TextEncoder,
    ),
}


def damaged(whole: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield forty damaged files, by what was done."""
    rng, size = random.Random(3), len(whole)
    half = size // 2
    yield from (("empty", b""), ("one byte", whole[:1]), ("eight bytes", whole[:8]), ("no first byte", whole[1:]))
    yield from (("no head", whole[half:]), ("zeros", bytes(size)), ("half zeros", whole[:half] + bytes(size - half)))
    yield from (("null", b"null"), ("a list", b"[]"), ("an object", b"{}"), ("a number", b"1"), ("a text", b'"x"'))
    yield from (
        ("deep", b"[" * 100_000),
        ("garbage before it", b"\xff\xfe" + whole),
        ("zip", gzip.compress(whole[:99])),
    )
    yield from (("a long head", b"\xff" * 8 + whole[8:]), ("letters", rng.randbytes(2000)))
    for header in (b"{}", b'{"__metadata__": []}', b'{"__metadata__": {"format": 1, "known": 1, "kinds": 2}}'):
        yield f"a header {header!r}", struct.pack("<Q", len(header)) + header
    for share in (0.1, 0.25, 0.5, 0.75, 0.9, 0.99):
        yield f"cut at {share}", whole[: int(share * size)]
    yield "no last byte", whole[:-1]
    for number in range(13):
        at = rng.randrange(min(size, 4096) if number % 2 else size)
        yield f"a byte at {at}", whole[:at] + bytes([whole[at] ^ (1 + rng.randrange(255))]) + whole[at + 1 :]


def refusal(kind: Kind, file: Path) -> str | None:
    """Return the configuration error of loading a file; None if it is loaded."""
    try:
        kind.load(file)
    except ConfigError as error:
        return str(error)
    return None


@pytest.mark.parametrize("name", KINDS)
def test_a_damaged_file_is_a_configuration_error(name: str, tmp_path: Path) -> None:
    kind = KINDS[name]
    file = kind.write(tmp_path)
    assert refusal(kind, file) is None
    whole, others, loaded = file.read_bytes(), tmp_path / "others", list[str]()
    others.mkdir()
    wrong = [
        (each, KINDS[each].write(others).read_bytes())
        for each in ("outcome model", "policy", "classes")
        if each != name
    ]
    for what, data in (*damaged(whole), *wrong):
        file.write_bytes(data)
        said = refusal(kind, file)
        if said is None:
            loaded.append(what)
        else:
            assert str(tmp_path) in said, what
    if kind.hashed:
        assert loaded == []
    # A line break, a space or a date may change; a zip may have bytes before it, and a registry be empty.
    harmless = {"no last byte", "cut at 0.99" if len(whole) < 100 else ""}
    harmless |= {"garbage before it" if name == "policy" else "", "an object" if name == "registry" else ""}
    assert all(what in harmless or what.startswith("a byte at") for what in loaded), loaded
    assert len(loaded) < 12
    file.unlink()
    assert name == "learning" or refusal(kind, file)  # without that file nothing was learned


@pytest.mark.parametrize("name", ["outcome model", "classes"])
def test_content_of_another_form_under_a_right_hash_is_no_other_error(name: str, tmp_path: Path) -> None:
    kind = KINDS[name]
    file = kind.write(tmp_path)
    learned = read_learned(file)
    wrong: tuple[Json, ...] = (None, 5, "x", [], {}, True, -1, [[]], [None], {"shape": [1], "data": "AAAA"})
    refused = 0
    for key in learned.content:
        contents = [{**learned.content, key: value} for value in wrong]
        contents.append({each: held for each, held in learned.content.items() if each != key})
        for content in contents:
            write_learned(file, replace(learned, content=content))
            said = refusal(kind, file)
            assert said is None or str(tmp_path) in said
            refused += said is not None
    assert refused > 3 * len(learned.content)


@pytest.mark.parametrize(
    "change",
    [
        {"figures": {"ann": ["x", None, [], ""]}},
        {"figures": {"ann": [1, -1.0, 0.0, ""]}},
        {"figures": {"ann": [1, 1.0, 0.0, 5]}},
        {"learning": ["x", "y", [0, 0, 0], [0, 0, 0]]},
        {"learning": [1, 1, [0], [0]]},
        {"learning": [1, 1, [0, 0, 0], [0, 0, 0], 1e999]},
    ],
)
def test_figures_that_are_no_numbers_are_refused_where_they_are_read(change: dict[str, Json], tmp_path: Path) -> None:
    learned = some_model().to_file(["r1"], 0.0)
    with pytest.raises(ConfigError, match="no outcome model"):
        outcome_model_of(replace(learned, content={**learned.content, **change}), str(tmp_path), None)


def test_a_model_in_the_place_of_another_tenant_s_is_refused_and_made_again(tmp_path: Path) -> None:
    files, scopes = LearningFiles(tmp_path), [Scope(tenant, frozenset()) for tenant in ("ann", "bob")]
    for scope in scopes:
        files.publish(replace(some_model(), scope=scope), ["r1"], 0.0, 1)
    ann, bob = (files.file(one, one.live) for one in files.index().scopes)
    shutil.copy(ann, bob)
    fresh = LearningFiles(tmp_path)
    assert [fresh.reads(scope) for scope in scopes] == [True, False]
    with pytest.raises(ConfigError, match="made of other runs than this scope's"):
        fresh.model(scopes[1])
