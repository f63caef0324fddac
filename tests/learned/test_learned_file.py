"""Learned files: what is read is what was written, and what was changed by hand is refused."""

import json
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest

from shikisha.core.errors import ConfigError
from shikisha.core.task import EVERYBODY, OPERATOR, Scope, join_scopes
from shikisha.learned.learned_file import (
    LearnedFile,
    decode_array,
    encode_array,
    read_learned,
    write_learned,
)

SECRET = Scope("", frozenset({"secret"}))
LEARNED = LearnedFile("thing", {"text": "é", "numbers": [1, 2.5]}, ("run-1", "run-2"), SECRET, 1.0)


def test_what_is_read_is_what_was_written(tmp_path: Path) -> None:
    version = write_learned(tmp_path / "made" / "a.json", LEARNED)
    found = read_learned(tmp_path / "made" / "a.json", "thing")
    assert found == LEARNED
    assert found.version == version


def test_a_file_of_before_that_has_a_gain_is_read(tmp_path: Path) -> None:
    gain = {"measure": "right", "mean": 0.1, "low": 0.0, "high": 0.2, "tasks": 9, "basis": "measured"}
    body = {**LEARNED.as_json(), "gain": gain}
    version = sha256(json.dumps({**body, "made": 0.0}, sort_keys=True).encode()).hexdigest()
    (tmp_path / "a.json").write_text(json.dumps({**body, "format": "shikisha-thing/2", "version": version}))
    assert read_learned(tmp_path / "a.json") == LEARNED


def test_the_time_is_no_part_of_the_version() -> None:
    later = LearnedFile("thing", LEARNED.content, LEARNED.evidence, LEARNED.scope, 2.0)
    assert later.version == LEARNED.version


def test_only_the_same_tenants_tasks_with_all_labels_are_shown_it() -> None:
    secret = frozenset({"secret"})
    assert Scope("a", secret).admits(Scope("a", frozenset({"secret", "other"})))
    for reader in (Scope("a", frozenset()), Scope("b", secret), Scope("", secret), Scope(None, secret)):
        assert not Scope("a", secret).admits(reader), reader
    assert not Scope(None, frozenset()).admits(Scope(None, frozenset()))  # whose it is, nobody knows
    assert EVERYBODY.admits(Scope("b", frozenset()))
    assert not OPERATOR.admits(Scope("b", frozenset()))
    assert join_scopes([Scope("a", secret), EVERYBODY, Scope("a", frozenset({"x"}))]) == Scope("a", secret | {"x"})
    assert join_scopes([]) == OPERATOR
    with pytest.raises(ValueError, match="another's"):
        join_scopes([Scope("a", secret), Scope("b", secret)])


def test_a_file_of_an_earlier_version_is_refused_since_it_kept_no_tenant(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    write_learned(file, LEARNED)
    body = json.loads(file.read_text())
    del body["scope"]
    file.write_text(json.dumps({**body, "format": "shikisha-thing/1", "labels": []}))
    with pytest.raises(ConfigError, match="no tenant of its runs: learn it again"):
        read_learned(file, "thing")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda body: body["content"].update(text="e"), "changed by hand"),
        (lambda body: body.update(evidence=["run-1"]), "changed by hand"),
        (lambda body: body.update(gain=0.1), "changed by hand"),
        (lambda body: body.update(format="shikisha-other/2"), "expected the format"),
        (lambda body: body.pop("content"), "KeyError"),
        (lambda body: body.update(scope="secret"), "expected tenant, labels and shared"),
        (lambda body: body.update(made="soon"), "expected a number"),
    ],
)
def test_a_file_that_was_edited_is_refused(tmp_path: Path, change: object, said: str) -> None:
    file = tmp_path / "a.json"
    write_learned(file, LEARNED)
    body = json.loads(file.read_text())
    assert callable(change)
    change(body)
    file.write_text(json.dumps(body))
    with pytest.raises(ConfigError, match=said):
        read_learned(file, "thing")


@pytest.mark.parametrize("text", ["", "[]", "null", '{"version": 1}', "{" * 100_000, "\x00"])
def test_what_is_no_learned_file_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "a.json"
    file.write_text(text)
    with pytest.raises(ConfigError, match="no learned file"):
        read_learned(file)


def test_a_missing_file_and_another_kind_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        read_learned(tmp_path / "none.json")
    write_learned(tmp_path / "a.json", LEARNED)
    with pytest.raises(ConfigError, match="expected the format shikisha-other/2"):
        read_learned(tmp_path / "a.json", "other")


def test_arrays_keep_their_shape_and_refuse_others() -> None:
    values = np.arange(6.0).reshape(2, 3)
    assert (decode_array(dict(encode_array(values)), (2, None)) == values).all()
    for shape in ((3, 2), (6,), (None, 4)):
        with pytest.raises(ValueError, match="expected an array"):
            decode_array(dict(encode_array(values)), shape)
    for wrong in ({"shape": [2], "data": "AAAA"}, {"shape": [1], "data": "AADAfw=="}, {"shape": [1], "data": "??"}):
        with pytest.raises(ValueError, match=r"bytes|number|base64|Base64|characters|padding"):
            decode_array(wrong, (None,))
