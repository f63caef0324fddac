"""Policies under a hostile eye: files made to break whoever acts by them are refused when they are read."""

import io
import json
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import pytest
from panels import panel
from policies import of_every_kind

from shikisha.core.errors import ConfigError
from shikisha.routing.fit.log_replay import count_usage
from shikisha.routing.policy_file import parse_policy, serialize_policy
from shikisha.routing.policy_registry import (
    ChangeAuthor,
    PolicyRegistry,
    RegisteredPolicy,
    RegistryAction,
    RegistryEntry,
)

PANEL = panel(tasks=200)


@pytest.fixture(scope="module")
def held() -> bytes:
    made = of_every_kind(PANEL)
    return serialize_policy(replace(made, habits=count_usage(PANEL, made)))


def members(held: bytes) -> dict[str, bytes]:
    """The members of an archive."""
    with zipfile.ZipFile(io.BytesIO(held)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def packed(held: Mapping[str, bytes]) -> bytes:
    """An archive of these members."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in held.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def npy(array: object) -> bytes:
    """An array as a member holds it."""
    buffer = io.BytesIO()
    np.save(buffer, np.asarray(array))
    return buffer.getvalue()


def test_every_array_of_another_shape_or_without_numbers_is_refused(held: bytes) -> None:
    every = members(held)
    assert len(parse_policy(packed(every), "here").parts) == 3
    for name in [name for name in every if name.endswith(".npy") and "sway" not in name]:
        array = np.load(io.BytesIO(every[name]))
        for wrong in (np.full_like(array, np.nan), array[None], array[:0], np.float32(1)) if array.size else ():
            with pytest.raises(ConfigError, match=r"^here: "):
                parse_policy(packed({**every, name: npy(wrong)}), "here")


@pytest.mark.parametrize(
    ("name", "wrong"),
    [("orders", 3.0), ("orders", -2.0), ("spares", 7.0), ("workers", 1.0), ("workers", -1.0), ("spread", 0.0)],
)
def test_places_of_workers_that_are_none_are_refused(held: bytes, name: str, wrong: float) -> None:
    every = members(held)
    member = next(one for one in every if one.endswith(f"/{name}.npy"))
    array = np.full_like(np.load(io.BytesIO(every[member])), wrong)
    with pytest.raises(ConfigError, match=r"^here: part "):
        parse_policy(packed({**every, member: npy(array)}), "here")


def test_names_of_arrays_that_cannot_be_read_are_refused(held: bytes) -> None:
    every = members(held)
    gains = next(name for name in every if "/gains 0.npy" in name)
    for odd in ("gains x", "gains 9", "gains 1 0"):
        with pytest.raises(ConfigError, match=r"^here: part "):
            parse_policy(packed({**every, gains.replace("gains 0", odd): every[gains]}), "here")


def changed(held: bytes, change: Callable[[dict[str, object]], object]) -> bytes:
    """The file with its `policy.json` changed."""
    every = members(held)
    said = json.loads(every["policy.json"])
    change(said)
    return packed({**every, "policy.json": json.dumps(said).encode()})


@pytest.mark.parametrize(
    ("field", "value", "told"),
    [
        ("kept", "best", "kept: 'best' is not among"),
        ("forms", ["choice"], "1 of them for 2 types"),
        ("form", "poem", "unknown form 'poem'"),
        ("workers", [], "workers: expected at least one"),
        ("rungs", [{"name": "policy", "dial": {"points": [], "unit": 1, "best_single": 1}}], "has no points"),
    ],
)
def test_a_policy_that_does_not_fit_together_is_refused(held: bytes, field: str, value: object, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        parse_policy(changed(held, lambda said: said.update({field: value})), "here")


@pytest.mark.parametrize(("part", "setting", "cost"), [(9, 0, 1.0), (-1, 0, 1.0), (0, 999, 1.0), (0, 0, float("nan"))])
def test_a_dial_over_what_is_not_there_is_refused(held: bytes, part: int, setting: int, cost: float) -> None:
    dial = {"points": [{"part": part, "setting": setting, "cost": cost, "accuracy": 1}], "unit": 1, "best_single": 1}
    rungs = [{"name": "policy", "dial": dial}]
    with pytest.raises(ConfigError, match="rung 'policy'"):
        parse_policy(changed(held, lambda said: said.update({"rungs": rungs})), "here")


def test_bombs_are_refused(held: bytes) -> None:
    every = members(held)
    header = b"{'descr': '<f8', 'fortran_order': False, 'shape': (10000000000000,), }"
    bomb = bytearray(held)
    size = held.index(b"PK\x01\x02") + 24  # of the first member, unpacked, as the archive's table of contents has it
    bomb[size : size + 4] = b"\xf0\xff\xff\xff"
    for odd in (
        packed({**every, "policy.json": b"[" * 100_000}),
        packed({**every, "0/success.npy": b"\x93NUMPY\x01\x00v\x00" + header.ljust(118)}),
        bytes(bomb),
    ):
        with pytest.raises(ConfigError, match=r"^here: not a policy file"):
            parse_policy(odd, "here")


def test_damage_is_refused_or_does_not_matter(held: bytes) -> None:
    refused = 0
    for place in range(40, len(held), len(held) // 60):
        try:
            parse_policy(held[:place] + b"\xff\x00\xff" + held[place + 3 :], "here")
        except ConfigError as error:
            refused += str(error).startswith("here: ")
    assert refused >= 45


def test_a_shelf_whose_history_was_cut_has_nothing_to_go_back_to() -> None:
    by = ChangeAuthor(who="somebody", at=1.0)
    restored = RegistryEntry(by=by, deed=RegistryAction.RESTORED, version="a" * 12)
    held = PolicyRegistry(live="a" * 12, policies=(RegisteredPolicy(version="a" * 12, name="x"),), history=(restored,))
    with pytest.raises(ConfigError, match="nothing to roll back to"):
        held.with_rollback(by)
