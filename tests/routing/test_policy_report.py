"""`policy show`: one screen that says where a policy comes from, what its dial buys, and whom it asks."""

import json
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import pytest
from panels import Made, panel
from policies import broad, policy
from rich.cells import cell_len
from typer.testing import CliRunner

from shikisha.cli import app
from shikisha.cli.exit_codes import ExitCode
from shikisha.routing.fit.model_selection import select_policy
from shikisha.routing.fit.policy_report import short_labels
from shikisha.routing.policy_data import Candidate, Policy
from shikisha.routing.policy_file import save_policy
from shikisha.routing.trade_off import OperatingPoint, TradeOff


def shown(made: Policy, folder: Path, *arguments: str, code: int = 0) -> str:
    """What `policy show` prints of a policy to a terminal of 80 columns, errors included."""
    save_policy(made, folder / "made.policy")
    command = ["policy", "show", str(folder / "made.policy"), *arguments]
    result = CliRunner().invoke(app, command, env={"COLUMNS": "80"})
    assert result.exit_code == code, (result.output, result.stderr)
    return result.stdout + result.stderr


@pytest.mark.parametrize("made", [policy(), broad(), replace(broad(), habits=None)])
def test_it_fits_a_screen(made: Policy, tmp_path: Path) -> None:
    said = shown(made, tmp_path).splitlines()
    assert len(said) <= 45
    assert [line for line in said if cell_len(line) > 80] == []


def test_a_pool_of_many_workers_takes_fewer_rows_and_says_how_many_are_left_out(tmp_path: Path) -> None:
    def rows(workers: int) -> list[str]:
        pool = {f"worker-{place}": Made(0.3 + 0.03 * place, 1.3**place) for place in range(workers)}
        return shown(select_policy(panel(pool, tasks=30)).policy, tmp_path).splitlines()

    assert sum(line.startswith("worker-") for line in rows(13)) == 13
    many = rows(20)
    assert sum(line.startswith("worker-") for line in many) == 10
    assert [line.strip() for line in many if line.startswith("and ")] == ["and 10 more"]


def test_it_says_where_the_policy_comes_from_and_why_its_rung_is_kept(tmp_path: Path) -> None:
    said = " ".join(shown(policy(), tmp_path).split())
    for text in ("from made-up (0123456789ab), 2026-11-22", "200 tasks of 2 types, 3 workers; costs as recorded"):
        assert text in said
    assert "The policy is selected: +2.0 points (+1.0 to +3.0) of area over the table." in said
    assert "! a note for the reader" in said
    (best,) = (worker for worker in policy().workers if worker.name == "dear")
    assert f"Best single worker: dear, {100 * best.score:.1f} %" in said


def test_a_rung_kept_against_the_evidence_is_said_to_be(tmp_path: Path) -> None:
    assert "selected by request; the evidence would select the policy" in " ".join(
        shown(policy("table"), tmp_path).split()
    )


def test_it_says_who_is_asked_first_and_second(tmp_path: Path) -> None:
    made = policy()
    said = json.loads(shown(made, tmp_path, "--json"))
    plain = shown(made, tmp_path).splitlines()
    for way in said["ways"]:
        (row,) = (line.split() for line in plain if line.startswith(way["kind"]))
        assert row[1:4] == [way["first"], f"{100 * way['share']:.0f}", "%"]
        assert row[4:7] == [way["second"], f"{100 * way['more']:.0f}", "%"]
        assert row[7:] == [f"{way['asks']:.2f}"]


@pytest.mark.parametrize(
    ("arguments", "called"),
    [
        ((), "policy at quality=1:"),
        (("--at", "max_cost=20%"), "policy at max_cost=20%:"),
        (("--at", "quality=0.9"), "policy at quality=0.9:"),
        (("--at", "budget_per_1k=500"), "policy at budget_per_1k=500:"),
        (("--at", "lambda=0.5"), "policy at lambda=0.5:"),
        (("--rung", "table", "--at", "max_cost=0.5"), "table at max_cost=0.5:"),
    ],
)
def test_the_setting_to_look_at_can_be_chosen(arguments: Sequence[str], called: str, tmp_path: Path) -> None:
    assert called in shown(policy(), tmp_path, *arguments)


def test_what_is_looked_at_is_what_is_promised(tmp_path: Path) -> None:
    said = json.loads(shown(policy(), tmp_path, "--json", "--at", "max_cost=0.3"))["shown"]
    mix = policy().rung().dial.for_cost(0.3)
    assert (said["cost"], said["accuracy"]) == (pytest.approx(0.3), pytest.approx(mix.accuracy))
    assert said["dollars_per_1k"] == pytest.approx(300 * policy().rung().dial.unit)
    assert said["asks"] == pytest.approx(sum(said["asked"].values()))
    assert 1 <= said["asks"] <= 3


def test_many_notes_do_not_push_the_rest_off_the_screen(tmp_path: Path) -> None:
    made = policy()
    noted = replace(made, about=replace(made.about, notes=tuple(f"note {number}" for number in range(9))))
    said = shown(noted, tmp_path)
    assert "! note 1" in said
    assert "! and 7 more notes: --json has them all" in said
    assert len(json.loads(shown(noted, tmp_path, "--json"))["about"]["notes"]) == 9


def test_another_rung_is_said_not_to_be_kept(tmp_path: Path) -> None:
    assert "This is the table, which is not the selected candidate." in shown(policy(), tmp_path, "--rung", "table")


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("--at", "quality=1.5"), "was not reached on held-out tasks"),
        (("--at", "max_cost=0.0001"), "below the cheapest setting"),
        (("--at", "max_cost=much"), "max_cost: expected a number"),
        (("--at", "max_cost=1", "--at", "quality=1"), "at a time"),
        (("--rung", "ladder"), "unknown rung 'ladder': known are policy, table"),
    ],
)
def test_what_cannot_be_shown_is_refused(arguments: Sequence[str], why: str, tmp_path: Path) -> None:
    assert why in shown(policy(), tmp_path, *arguments, code=ExitCode.CONFIG)


@pytest.mark.parametrize(("content", "why"), [(None, "cannot be read"), ("{}", "not a policy file")])
def test_what_is_no_policy_is_refused(content: str | None, why: str, tmp_path: Path) -> None:
    file = tmp_path / "other.json"
    if content is not None:
        file.write_text(content)
    result = CliRunner().invoke(app, ["policy", "show", str(file)])
    assert result.exit_code == ExitCode.CONFIG
    assert f"{file}: {why}" in result.stderr


def test_without_habits_it_says_so_and_shows_the_rest(tmp_path: Path) -> None:
    said = shown(replace(policy(), habits=None), tmp_path)
    assert "This file has no usage statistics." in said
    assert json.loads(shown(replace(policy(), habits=None), tmp_path, "--json"))["ways"] == []


def test_a_policy_of_a_log_without_costs_promises_no_dollars(tmp_path: Path) -> None:
    free = Candidate("table", TradeOff((OperatingPoint(0, 0, 0.0, 0.7),), 0.0, 0.7))
    said = shown(replace(policy(), rungs=(free,), kept="table"), tmp_path)
    assert "No cost in this log is known, or all are 0." in said
    assert "for 1,000 tasks)" not in said
    assert "The table is the only candidate." in said


def test_names_move_no_cursor(tmp_path: Path) -> None:
    made = policy()
    evil = replace(made.workers[0], name="\x1b[2Jred\u202eeht")
    said = shown(replace(made, workers=(evil, *made.workers[1:])), tmp_path)
    assert "\x1b" not in said
    assert "\u202e" not in said


@pytest.mark.parametrize("longest", [8, 12, 16, 20])
def test_short_names_differ_and_fit(longest: int) -> None:
    names = ["gpt", *(f"Meta-Llama-3_1-{size}B-Instruct" for size in (8, 70, 405)), "Meta-Llama-3_1-8B-Instruct-Turbo"]
    names += [f"{'x' * 40}{number}" for number in range(12)]
    found = short_labels(names, longest)
    assert list(found) == names
    assert found["gpt"] == "gpt"
    assert all(len(short) <= longest for short in found.values())
    assert [pair for pair in combinations(found.values(), 2) if pair[0] == pair[1]] == []
