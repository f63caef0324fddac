"""Policy files: what is written is what is read; what is damaged, foreign or incomplete is refused with a reason."""

import io
import json
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from panels import folds, panel
from shikisha.errors import ConfigError
from shikisha.learn.fits import Fit, Wants, fit
from shikisha.learn.ladder import climb, known
from shikisha.policy.file import dumps, load, loads, save
from shikisha.policy.hearing import deaf
from shikisha.policy.policy import About, Policy, Rung

PANEL = panel(tasks=250)


@pytest.fixture(scope="module")
def made() -> Policy:
    fitted: Fit = fit(PANEL, Wants(), ("table", "cascade", "policy"))
    rungs = tuple(Rung(name, dial) for name, dial in fitted.dials.items())
    return Policy(About("log", "hash", len(PANEL)), known(PANEL), PANEL.types, fitted.parts, rungs, "policy")


def test_a_policy_is_read_as_it_was_written(made: Policy, tmp_path: Path) -> None:
    version = save(made, tmp_path / "a.policy")
    read, again = load(tmp_path / "a.policy")
    assert version == again
    assert (read.about, read.workers, read.rungs, read.kept) == (made.about, made.workers, made.rungs, made.kept)
    seen = PANEL.seen(folds(PANEL)[:, None] == np.arange(3))
    for one, other in zip(made.parts, read.parts, strict=True):
        for setting in range(one.settings):
            assert (one.act(seen, setting).ask == other.act(seen, setting).ask).mean() > 0.99  # single precision


def test_equal_policies_are_equal_files(made: Policy) -> None:
    assert dumps(made) == dumps(loads(dumps(made), "again"))


def test_a_hearing_is_kept(made: Policy) -> None:
    hearing = loads(dumps(replace(made, hearing=deaf(3, 2))), "here").hearing
    assert hearing is not None
    assert hearing.usual.shape == (3, 3)


def altered(held: bytes, name: str, content: bytes | None) -> bytes:
    """The file with one member changed, or left out."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(held)) as old, zipfile.ZipFile(buffer, "w") as new:
        for member in old.namelist():
            if member != name:
                new.writestr(member, old.read(member))
        if content is not None:
            new.writestr(name, content)
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("policy.json", None, "not a policy file"),
        ("policy.json", b"[]", "format None"),
        ("policy.json", json.dumps({"format": 99}).encode(), "format 99"),
        ("policy.json", json.dumps({"format": 1}).encode(), "Field required"),
        ("0/success.npy", None, "lacks the array 'success'"),
        ("0/success.npy", b"nonsense", "not a policy file"),
        ("0/success.npy", b"\x93NUMPY\x01\x00\x10\x00{'descr': (((((\n", "not a policy file"),
    ],
)
def test_what_is_no_policy_file_is_refused(made: Policy, name: str, content: bytes | None, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        loads(altered(dumps(made), name, content), "here")


def test_an_array_of_pickled_objects_is_refused(made: Policy) -> None:
    buffer = io.BytesIO()
    np.save(buffer, np.array([{}], object), allow_pickle=True)
    with pytest.raises(ConfigError, match="allow_pickle"):
        loads(altered(dumps(made), "0/success.npy", buffer.getvalue()), "here")


def test_a_file_that_is_not_there_or_is_text_says_so(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        load(tmp_path / "none.policy")
    (tmp_path / "text.policy").write_text("hello")
    with pytest.raises(ConfigError, match="not a policy file"):
        load(tmp_path / "text.policy")


def test_a_climbed_policy_survives_its_file() -> None:
    policy = climb(PANEL)
    assert loads(dumps(policy), "here").rungs == policy.rungs
