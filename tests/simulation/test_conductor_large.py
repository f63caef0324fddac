"""The benchmark of conductors on the large edition (`benchmarks/conductor_large.py`)."""

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import pytest
from paths import ROOT

from conductor_account import OPTIMUM, RULES, SHARE, Cut
from conductor_large import CUTS, IDLE, STANDARD_CUT, TRAINED, account, contenders, drawn, idle
from conductor_played import Author, Contender
from shikisha.core.plan import Plan, Step
from shikisha.core.prompts import render_plan_lists
from shikisha.simulation.baseline_conductors import best_plan, profiles_of
from shikisha.simulation.task_generator import SimulatedTask
from shikisha.simulation.vocabulary import WordingSplit

MANY = 80
BENCHMARK = ROOT / "benchmarks" / "conductor_large.py"


@cache
def tasks() -> tuple[SimulatedTask, ...]:
    return tuple(drawn(STANDARD_CUT, WordingSplit.HELDOUT, 3, MANY))


@cache
def made() -> dict[str, Contender]:
    return contenders(tasks(), {TRAINED: [writes(optimal)], "idle": [writes(whoever_is_of_no_use)]})


def writes(way: Callable[[SimulatedTask], Plan]) -> Author:
    items = {f"ask {item.task.prompt}": item for item in tasks()}

    def author(prompts: Sequence[str]) -> list[str]:
        return [render_plan_lists(way(items[prompt.partition("\n")[0]])) for prompt in prompts]

    return author


def optimal(item: SimulatedTask) -> Plan:
    return best_plan(item.question, profiles_of(item.pool.cards)).plan


def whoever_is_of_no_use(item: SimulatedTask) -> Plan:
    asked = next((place for place, (name, _) in enumerate(item.workers) if name in IDLE), 0)
    return Plan((Step("answer the question", asked),))


def test_who_plans_as_the_optimum_has_its_figures() -> None:
    found = account(Cut.of(tasks()), made(), TRAINED)
    assert found[SHARE].value == pytest.approx(1, abs=0.15)  # the same plans; gauges are read with other luck
    assert {f"{count} parts: right" for count in range(1, 6)} <= set(found)
    assert found["of no use"].value == 0
    assert found["valid"].value == 1


def test_who_asks_workers_of_no_use_is_seen_to_and_is_never_right_by_them() -> None:
    found = account(Cut.of(tasks()), made(), "idle")
    assert found["of no use"].value == 1
    right = made()["idle"].right[0]
    assert not any(one for one, item in zip(right, tasks(), strict=True) if idle(item))


def test_controls_stand_in_their_order() -> None:
    shares = {name: one.right.mean() for name, one in made().items()}
    assert shares["random plans"] < 0.1 < shares["novice alone"] < shares[RULES] <= shares[OPTIMUM] + 0.05


@pytest.mark.parametrize("cut", CUTS)
def test_every_cut_has_tasks_of_its_own(cut: str) -> None:
    found = drawn(cut, WordingSplit.HELDOUT, 1, 12)
    recipe, counts = CUTS[cut]
    assert len(found) == 12
    assert all(counts(item) for item in found)
    assert {len(item.pool) for item in found} <= set(recipe.pool.sizes)
    assert all(item.unseen_pair for item in found) or not recipe.only_pair


def test_without_a_checkpoint_it_prints_the_controls(tmp_path: Path) -> None:
    kept = tmp_path / "told.json"
    line = [sys.executable, str(BENCHMARK), "--tasks", "10", "--cuts", STANDARD_CUT, "--json", str(kept)]
    done = subprocess.run(line, capture_output=True, text=True, timeout=120, check=True)  # noqa: S603 - our own file
    assert "standard: 10 tasks" in done.stdout
    assert json.loads(kept.read_text())["cuts"][STANDARD_CUT][OPTIMUM]["tasks"] == 10
