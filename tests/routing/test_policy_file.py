"""Policy files: what is written is what is read; what is damaged, foreign or incomplete is refused with a reason."""

import io
import json
import random
import zipfile
from pathlib import Path

import numpy as np
import pytest
from panels import Made, folds, panel

from shikisha.core.errors import ConfigError
from shikisha.routing.fit.log_replay import replay
from shikisha.routing.fit.model_selection import (
    LearningOptions,
    PolicyFit,
    fit_candidates,
    known_workers,
    select_policy,
)
from shikisha.routing.policy_data import COMBINED, Candidate, Policy, PolicyOrigin
from shikisha.routing.policy_file import (
    MAX_FILE_BYTES,
    load_policy,
    parse_policy,
    save_policy,
    serialize_policy,
)

PANEL = panel(tasks=250)
OLD = Path(__file__).parents[1] / "data"


@pytest.fixture(scope="module")
def made() -> Policy:
    fitted: PolicyFit = fit_candidates(PANEL, LearningOptions(), ("table", "policy"))
    rungs = tuple(Candidate(name, dial) for name, dial in fitted.dials.items())
    return Policy(
        PolicyOrigin("log", "hash", len(PANEL)), known_workers(PANEL), PANEL.types, fitted.parts, rungs, "policy"
    )


def test_a_policy_is_read_as_it_was_written(made: Policy, tmp_path: Path) -> None:
    version = save_policy(made, tmp_path / "a.policy")
    read, again = load_policy(tmp_path / "a.policy")
    assert version == again
    assert (read.about, read.workers, read.rungs, read.kept) == (made.about, made.workers, made.rungs, made.kept)
    seen = PANEL.state_after(folds(PANEL)[:, None] == np.arange(3))
    for one, other in zip(made.parts, read.parts, strict=True):
        for setting in range(one.settings):
            assert (one.act(seen, setting).ask == other.act(seen, setting).ask).mean() > 0.99  # single precision


def test_equal_policies_are_equal_files(made: Policy) -> None:
    assert serialize_policy(made) == serialize_policy(parse_policy(serialize_policy(made), "again"))


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
        ("policy.json", json.dumps({"format": 1}).encode(), "is missing"),
        ("0/success.npy", None, "lacks the array 'success'"),
        ("0/success.npy", b"nonsense", "not a policy file"),
        ("0/success.npy", b"\x93NUMPY\x01\x00\x10\x00{'descr': (((((\n", "not a policy file"),
    ],
)
def test_what_is_no_policy_file_is_refused(made: Policy, name: str, content: bytes | None, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        parse_policy(altered(serialize_policy(made), name, content), "here")


def test_an_array_of_pickled_objects_is_refused(made: Policy) -> None:
    buffer = io.BytesIO()
    np.save(buffer, np.array([{}], object), allow_pickle=True)
    with pytest.raises(ConfigError, match=r"0/success.npy: not an array of little-endian floats"):
        parse_policy(altered(serialize_policy(made), "0/success.npy", buffer.getvalue()), "here")


def headed(held: bytes, header: str) -> bytes:
    """The bytes of an array with another header of the same length or longer."""
    end = held.index(b"\n") + 1
    return held[:10] + header.encode().ljust(end - 11)[: end - 11] + b"\n" + held[end:]


@pytest.mark.parametrize(
    "header",
    [
        "{'descr': '<f4', 'fortran_order': False, 'shape': ((((",  # numpy's own reader: TokenError
        "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }}}",
        "{'descr': '<f4', 'fortran_order': True, 'shape': (3, 4), }",
        "{'descr': '|O', 'fortran_order': False, 'shape': (3, 4), }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999, 9), }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (0, 99999999999), }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (3,4)*9, }",
        '\\\'"""',
        "",
    ],
)
def test_a_damaged_header_of_an_array_is_no_unforeseen_error(made: Policy, header: str) -> None:
    held = serialize_policy(made)
    with zipfile.ZipFile(io.BytesIO(held)) as archive:
        array = archive.read("0/success.npy")
    with pytest.raises(ConfigError, match="here: not a policy file"):
        parse_policy(altered(held, "0/success.npy", headed(array, header)), "here")


def test_whatever_is_damaged_it_is_refused_or_as_good_as_before(made: Policy) -> None:
    held, draw = serialize_policy(made), random.Random(6)
    whole = len(held)
    with zipfile.ZipFile(io.BytesIO(held)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    refused = 0
    for number in range(600):
        if number % 2:  # what the archive's checksums see
            made_of = bytearray(held)
            for _ in range(draw.choice((1, 1, 8))):
                made_of[draw.randrange(whole)] = draw.randrange(256)
            damaged = bytes(made_of)[: draw.choice((whole, whole, draw.randrange(whole)))]
        else:  # what they do not
            name = draw.choice(sorted(members))
            content = bytearray(members[name])
            for _ in range(draw.choice((1, 4))):
                content[draw.randrange(min(len(content), 200))] = draw.randrange(256)
            damaged = altered(held, name, bytes(content))
        try:
            parse_policy(damaged, "here")
        except ConfigError:
            refused += 1
    assert refused > 400


def packed(**members: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, content in members.items():
            archive.writestr(name.replace("__", "/").replace("_npy", ".npy").replace("_json", ".json"), content)
    return buffer.getvalue()


def test_a_bomb_is_refused_by_what_it_says_of_itself(made: Policy, tmp_path: Path) -> None:
    said = b'{"format": 1, "kept": ["' + b" " * 2**23
    bombs = {
        "bytes unpacked": packed(policy_json=b"{}", a_npy=bytes(2**26), b_npy=bytes(2**26)),
        "policy.json has 8,": packed(policy_json=said),
        "a directory of": packed(policy_json=b"{}", **{f"member_{n}_npy": b"" for n in range(20_000)}),
    }
    for says, bomb in bombs.items():
        assert len(bomb) < 2**22
        with pytest.raises(ConfigError, match=says):
            parse_policy(bomb, "here")
    (tmp_path / "large.policy").write_bytes(serialize_policy(made) + bytes(MAX_FILE_BYTES))
    with pytest.raises(ConfigError, match="more than 67,108,864 bytes"):
        load_policy(tmp_path / "large.policy")
    with pytest.raises(ConfigError, match="more than 67,108,864 bytes"):
        load_policy(Path("/dev/zero"))


def test_two_members_of_one_name_are_refused(made: Policy) -> None:
    buffer = io.BytesIO(serialize_policy(made))
    with zipfile.ZipFile(buffer, "a") as archive, pytest.warns(UserWarning, match="Duplicate name"):
        archive.writestr("policy.json", "{}")
    with pytest.raises(ConfigError, match="same name"):
        parse_policy(buffer.getvalue(), "here")


def test_a_file_that_is_not_there_or_is_text_says_so(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        load_policy(tmp_path / "none.policy")
    (tmp_path / "text.policy").write_text("hello")
    with pytest.raises(ConfigError, match="not a policy file"):
        load_policy(tmp_path / "text.policy")


def test_a_climbed_policy_survives_its_file() -> None:
    policy = select_policy(PANEL).policy
    assert parse_policy(serialize_policy(policy), "here").rungs == policy.rungs


def test_a_policy_of_before_one_fit_is_read_and_acts() -> None:
    """A file of 28 November 2026 with trees that read answers; usage that is no longer counted is left out."""
    policy, version = load_policy(OLD / "2026-11-28" / "answers.policy")
    assert len(version) == 12
    assert policy.kept == COMBINED
    assert policy.about.verdict is None
    assert {part.kind for part in policy.parts} >= {"table", "cascade", "induction"}
    assert policy.reads_answers
    assert policy.habits is not None
    held = panel(dict.fromkeys(policy.names, Made()), tasks=30)
    for rung in policy.rungs:
        for point in rung.dial.points:
            played = replay(policy.parts[point.part], point.setting, held)
            assert played.asked.any(axis=1).all()


@pytest.mark.parametrize("name", ["2026-11-28/scores.policy", "v0.1/every-kind.policy"])
def test_a_file_with_what_left_is_refused_and_says_what_to_write(name: str) -> None:
    with pytest.raises(ConfigError, match=r"holds a router of prompts.*: learn the policy again, with `shikisha learn"):
        load_policy(OLD / name)


def test_a_file_with_a_model_of_words_in_answers_is_refused(made: Policy) -> None:
    held = altered(serialize_policy(made), "hearing/usual.npy", npy(np.zeros((3, 3))))
    with pytest.raises(ConfigError, match="holds a model of words in answers"):
        parse_policy(held, "here")


def npy(array: object) -> bytes:
    """An array as a member holds it."""
    buffer = io.BytesIO()
    np.save(buffer, np.asarray(array))
    return buffer.getvalue()
