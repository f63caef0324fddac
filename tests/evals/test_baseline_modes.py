"""What plays beside the conductors that were asked for, what it costs, and over which workers."""

from pathlib import Path

import pytest
from evaluated import Evaluated

from shikisha.cli.exit_codes import ExitCode

VOTE = "both=fixed:vote?workers=wise,rash&join=vote"
TASKS = 12


@pytest.fixture
def evaluated(tmp_path: Path) -> Evaluated:
    return Evaluated(tmp_path)


def test_on_paid_workers_only_those_controls_play_that_need_no_further_call(evaluated: Evaluated) -> None:
    found = evaluated.entries("--conductor", VOTE, controls="")
    assert set(found) == {"both", "wise (alone)", "rash (alone)", "oracle"}
    assert (found["wise (alone)"]["accuracy"], found["rash (alone)"]["accuracy"]) == (1.0, 0.0)
    assert evaluated.calls == 2 * TASKS
    assert evaluated.dollars == pytest.approx(TASKS * 0.26)


def test_what_a_single_workers_own_calls_tell_is_told_and_the_rest_is_named(evaluated: Evaluated) -> None:
    found = evaluated.entries("--conductor", "one=fixed:single?worker=rash", controls="")
    assert evaluated.calls == TASKS
    assert {"one", "rash"} <= set(found)
    assert not any(name.startswith("wise") for name in found)
    assert "(--controls all): wise alone, random plans, the best fixed topology" in evaluated.notes


@pytest.mark.full
def test_a_worker_that_was_asked_for_some_tasks_only_is_no_control(evaluated: Evaluated) -> None:
    found = evaluated.entries("--conductor", "one=fixed:single?worker=rash", "--tasks", "3", controls="none")
    assert set(found) == {"one"}
    found = evaluated.entries("--conductor", "two=fixed:single?worker=wise", "--tasks", "12", controls="free")
    assert not any(name.startswith("rash") for name in found)
    assert evaluated.calls == TASKS + 3


@pytest.mark.full
def test_the_calls_and_their_price_are_said_before_the_first(evaluated: Evaluated) -> None:
    evaluated.run("--conductor", VOTE, controls="")
    said = " ".join(evaluated.said.split())
    assert f"The conductors make at most {2 * TASKS} paid calls, $3.12 (--controls free)" in said
    evaluated.run("--conductor", VOTE, controls="all")
    said = " ".join(evaluated.said.split())
    assert "The conductors make at most 0 paid calls, $0; the baselines at most" in said
    most = int(said.partition("the baselines at most ")[2].split()[0])
    assert 0 < evaluated.calls - 2 * TASKS <= most


def test_with_a_limit_of_nothing_the_price_is_said_and_nothing_paid(evaluated: Evaluated) -> None:
    evaluated.run("--conductor", VOTE, "--dollars", "0", controls="all")
    assert (evaluated.code, evaluated.calls) == (ExitCode.CAPPED, 0)
    assert "paid calls, $3.12; the baselines at most" in " ".join(evaluated.said.split())


@pytest.mark.full
def test_all_controls_play_where_nobody_is_asked_for_or_nothing_costs(evaluated: Evaluated) -> None:
    assert {"wise", "rash", "random plans"} <= set(evaluated.entries(controls=""))
    evaluated.config((evaluated.folder / "shikisha.toml").read_text().replace("0.25", "0").replace("0.01", "0"))
    found = evaluated.entries("--conductor", VOTE, controls="")
    assert {"both", "wise", "rash", "random plans"} <= set(found)
    assert "paid call" not in evaluated.said


def test_another_word_is_refused(evaluated: Evaluated) -> None:
    evaluated.run("--conductor", VOTE, controls="some")
    assert evaluated.code == ExitCode.CONFIG
    assert "--controls: expected none, free, all, not 'some'" in evaluated.said
