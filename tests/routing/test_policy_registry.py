"""A shelf: what may be changed and is written down, how tasks are drawn, and what its files hold."""

import json
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from threading import Thread

import pytest
from shelves import ME, asking, shelf_of

from shikisha.core.errors import ConfigError, UnknownName
from shikisha.core.plan import Plan
from shikisha.routing.policy_data import describe_action
from shikisha.routing.policy_file import load_policy
from shikisha.routing.policy_registry import (
    REGISTRY_FILE,
    Canary,
    ChangeAuthor,
    PolicyRegistry,
    RegisteredPolicy,
    RegistryAction,
    add_policy,
    policy_path,
    read_registry,
    update_registry,
)
from support import plan_of

A, B, C = "a" * 12, "b" * 12, "c" * 12
TASKS = [sha256(str(number).encode()).hexdigest() for number in range(4000)]


def by(at: float, why: str = "") -> ChangeAuthor:
    return ChangeAuthor(who="kim", at=at, why=why)


@pytest.fixture
def shelf() -> PolicyRegistry:
    """Three policies, of which the first is live."""
    held = PolicyRegistry()
    for at, version in enumerate((A, B, C)):
        held = held.with_policy(RegisteredPolicy(version=version, name=f"{version[0]}.npz"), by(at))
    return held


def deeds(shelf: PolicyRegistry) -> list[tuple[RegistryAction, str]]:
    return [(entry.deed, entry.version) for entry in shelf.history]


def test_the_first_policy_on_a_shelf_is_live_and_the_others_wait(shelf: PolicyRegistry) -> None:
    assert (shelf.live, shelf.canary, shelf.shadows) == (A, None, ())
    assert deeds(shelf) == [
        (RegistryAction.ADDED, A),
        (RegistryAction.PROMOTED, A),
        (RegistryAction.ADDED, B),
        (RegistryAction.ADDED, C),
    ]
    assert shelf.with_policy(RegisteredPolicy(version=B, name="again"), ME) is shelf


@pytest.mark.parametrize(("name", "found"), [(A, A), ("bbbb", B), ("c.npz", C)])
def test_a_policy_is_named_by_its_version_a_beginning_of_it_or_its_file(
    shelf: PolicyRegistry, name: str, found: str
) -> None:
    assert shelf.resolve(name) == found


@pytest.mark.parametrize("name", ["bbb", "d" * 12, "", "same.npz"])
def test_a_name_that_fits_none_or_two_is_unknown(shelf: PolicyRegistry, name: str) -> None:
    twice = shelf
    for version in ("d0d0d0d0d0d0", "d1d1d1d1d1d1"):
        twice = twice.with_policy(RegisteredPolicy(version=version, name="same.npz"), ME)
    with pytest.raises(UnknownName, match="unknown registered policy"):
        twice.resolve(name)


@pytest.mark.parametrize("share", [0.05, 0.3, 0.9])
def test_a_canary_acts_for_its_share_of_the_tasks(shelf: PolicyRegistry, share: float) -> None:
    tried = shelf.with_canary(B, share, ME)
    drawn = [tried.assign(task) for task in TASKS]
    assert drawn.count(B) / len(TASKS) == pytest.approx(share, abs=0.025)
    assert drawn == [tried.assign(task) for task in TASKS]
    assert tried.shares == {A: 1 - share, B: share}
    assert {shelf.assign(task) for task in TASKS} == {A}


def test_a_larger_share_keeps_the_tasks_of_the_smaller_and_another_canary_has_others(shelf: PolicyRegistry) -> None:
    few, many, other = (shelf.with_canary(version, share, ME) for version, share in ((B, 0.1), (B, 0.3), (C, 0.3)))
    of_few, of_many, of_other = ({task for task in TASKS if held.assign(task) != A} for held in (few, many, other))
    assert of_few < of_many
    assert len(of_many & of_other) / len(of_many) == pytest.approx(0.3, abs=0.05)


def test_a_promoted_canary_is_live_and_no_canary_and_can_be_rolled_back(shelf: PolicyRegistry) -> None:
    tried = shelf.with_shadow(C, by(3)).with_canary(B, 0.2, by(4))
    after = tried.with_live(B, by(5, "better"))
    assert (after.live, after.canary, after.shadows, after.previous) == (B, None, (C,), A)
    back = after.with_rollback(by(6, "complaints"))
    assert (back.live, back.previous) == (A, "")
    assert [(entry.deed, entry.by.why) for entry in back.history[-2:]] == [
        (RegistryAction.PROMOTED, "better"),
        (RegistryAction.RESTORED, "complaints"),
    ]


def test_rolling_back_goes_back_as_often_as_something_was_promoted(shelf: PolicyRegistry) -> None:
    grown = shelf.with_live(B, by(3)).with_live(C, by(4)).with_rollback(by(5)).with_live(A, by(6))
    assert (grown.live, grown.previous) == (A, B)
    again = grown.with_rollback(by(7)).with_rollback(by(8))
    assert again.live == A
    with pytest.raises(ConfigError, match="nothing to roll back to"):
        again.with_rollback(by(9))


def test_another_canary_stays_when_a_shadow_is_promoted(shelf: PolicyRegistry) -> None:
    after = shelf.with_canary(B, 0.2, by(3)).with_shadow(C, by(4)).with_live(C, by(5), forced=True)
    assert (after.live, after.canary, after.shadows) == (C, Canary(version=B, share=0.2), ())
    assert after.history[-1].forced


@pytest.mark.parametrize(
    ("step", "why"),
    [
        (lambda shelf: shelf.with_canary(A, 0.1, ME), "is live"),
        (lambda shelf: shelf.with_canary(B, 1.0, ME), "between 0 and 1, not 1"),
        (lambda shelf: shelf.with_canary(B, float("nan"), ME), "between 0 and 1"),
        (lambda shelf: shelf.with_canary("d" * 12, 0.1, ME), "unknown registered policy"),
        (lambda shelf: shelf.with_shadow(A, ME), "already acts"),
        (lambda shelf: shelf.with_canary(B, 0.1, ME).with_shadow(B, ME), "already acts"),
        (lambda shelf: shelf.without_shadow(B, ME), "is not a shadow"),
        (lambda shelf: shelf.without_canary(ME), "there is no canary"),
        (lambda shelf: shelf.with_live(A, ME), "is already live"),
        (lambda shelf: shelf.with_rollback(ME), "nothing to roll back to"),
    ],
)
def test_what_makes_no_sense_is_refused(
    shelf: PolicyRegistry, step: Callable[[PolicyRegistry], PolicyRegistry], why: str
) -> None:
    with pytest.raises(ConfigError, match=why):
        step(shelf)


def test_what_changes_nothing_is_not_written_down(shelf: PolicyRegistry) -> None:
    tried = shelf.with_canary(B, 0.1, ME).with_shadow(C, ME)
    assert tried.with_canary(B, 0.1, ME).with_shadow(C, ME) is tried


def test_the_shares_hold_since_the_last_change_of_who_acts(shelf: PolicyRegistry) -> None:
    tried = shelf.with_canary(B, 0.1, by(5))
    assert [
        held.since
        for held in (PolicyRegistry(), shelf, tried, tried.with_shadow(C, by(7)), tried.without_canary(by(8)))
    ] == [
        0,
        0,
        5,
        5,
        8,
    ]


def test_a_shelf_is_a_folder_that_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    first, second = shelf_of(tmp_path / "shelf", asking("ann"), asking("bob"))
    told = update_registry(tmp_path / "shelf", lambda shelf: shelf.with_canary(second, 0.25, ME))
    assert read_registry(tmp_path / "shelf") == told
    assert (told.live, told.canary) == (first, Canary(version=second, share=0.25))
    assert [policy.name for policy in told.policies] == ["policy-0", "policy-1"]
    assert load_policy(policy_path(tmp_path / "shelf", second))[0].names == ("ann", "bob", "cyd")
    assert sorted(file.name for file in (tmp_path / "shelf").iterdir()) == sorted(
        [REGISTRY_FILE, f"{first}.policy", f"{second}.policy"]
    )


def test_the_same_policy_twice_is_one_policy(tmp_path: Path) -> None:
    versions = shelf_of(tmp_path / "shelf", asking("ann"), asking("ann"))
    assert (len(set(versions)), len(read_registry(tmp_path / "shelf").policies)) == (1, 1)


def test_changes_from_many_sides_at_once_are_all_kept(tmp_path: Path) -> None:
    folder = tmp_path / "shelf"
    _, *others = shelf_of(folder, *(asking("ann", note=str(number)) for number in range(9)))

    def shadow(version: str) -> None:
        update_registry(folder, lambda shelf: shelf.with_shadow(version, ME))

    threads = [Thread(target=shadow, args=(version,)) for version in others]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(read_registry(folder).shadows) == sorted(others)


@pytest.mark.parametrize(
    ("change_of", "why"),
    [
        ({"format": 2}, "format: expected 1"),
        ({"live": "f" * 12}, "acts and is not among the policies"),
        ({"live": ""}, "no policy is live"),
        ({"canary": {"version": "LIVE", "share": 0.1}}, "the canary is the live policy"),
        ({"canary": {"version": "LIVE", "share": 1.5}}, "canary.share: expected less than 1"),
        ({"more": 1}, "more: unknown key"),
    ],
)
def test_a_damaged_shelf_says_what_is_wrong_with_it(tmp_path: Path, change_of: dict[str, object], why: str) -> None:
    (version,) = shelf_of(tmp_path, asking("ann"))
    said = json.loads((tmp_path / REGISTRY_FILE).read_text()) | change_of
    (tmp_path / REGISTRY_FILE).write_text(json.dumps(said).replace("LIVE", version))
    with pytest.raises(ConfigError, match=why) as error:
        read_registry(tmp_path)
    assert str(tmp_path / REGISTRY_FILE) in str(error.value)


def test_what_is_no_policy_and_what_is_no_shelf_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no policy")
    with pytest.raises(ConfigError, match="not a policy file"):
        add_policy(tmp_path / "shelf", tmp_path / "file", ME)
    assert not (tmp_path / "shelf").exists()
    with pytest.raises(ConfigError, match="no policy registry"):
        read_registry(tmp_path / "shelf")
    with pytest.raises(ConfigError, match="no policy registry"):
        update_registry(tmp_path / "shelf", lambda shelf: shelf)
    with pytest.raises(ConfigError, match="No such file"):
        add_policy(tmp_path / "shelf", tmp_path / "none", ME)
    (tmp_path / REGISTRY_FILE).write_text("{")
    with pytest.raises(ConfigError, match="Invalid JSON"):
        read_registry(tmp_path)


ONE, TWO = plan_of((0, ())), plan_of((1, ()))


@pytest.mark.parametrize(
    ("plan", "keeps", "words"),
    [
        (TWO, None, "asks 'bob'"),
        (plan_of((0, ()), (1, ())), None, "asks 'ann', 'bob'"),
        (Plan(), None, "ships the answer of 'bob'"),
        (Plan(), 0, "ships the answer of 'ann'"),
    ],
)
def test_an_act_is_told_in_words(plan: Plan, keeps: int | None, words: str) -> None:
    assert describe_action(plan, keeps, (ONE, TWO), ("ann", "bob")) == words


def test_an_empty_plan_before_anyone_is_asked_ships_nothing() -> None:
    assert describe_action(Plan(), None, (), ("ann",)) == "ships nothing"
