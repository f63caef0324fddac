"""What measures a trained conductor (`benchmarks/conductor*.py`): its statistics, its controls, its second rounds."""

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from paths import ROOT

from conductor import CUTS, asks_new, beside, contenders, drawn
from conductor_account import CHAIN, COST, ENTROPY, FAN_OUT, ONE_SHOT, OPTIMUM, RULES, SHARE, SINGLE, Cut, figures
from conductor_aims import AIMS, RECURSION, RISE, Aim
from conductor_controls import at_cost, at_equal_dollars, best_fixed, by_lot
from conductor_figures import Estimate, Lots
from conductor_played import Contender, control, trained
from conductor_rounds import recursion
from shikisha.core.plan import Plan, Step
from shikisha.core.prompts import render_plan_lists
from shikisha.evals.statistics import bootstrap
from shikisha.simulation import baseline_conductors
from shikisha.simulation.baseline_conductors import best_plan, profiles_of
from shikisha.simulation.task_generator import SimulatedTask
from shikisha.simulation.vocabulary import WordingSplit
from shikisha.simulation.worker_profiles import HELD_OUT_NAMES

MANY = 120
KEPT = render_plan_lists(Plan())
BENCHMARK = ROOT / "benchmarks" / "conductor.py"


@cache
def tasks() -> tuple[SimulatedTask, ...]:
    return tuple(drawn("standard", WordingSplit.HELDOUT, 3, MANY))


@cache
def made() -> dict[str, Contender]:
    return contenders(tasks(), {}, in_full=True)


def optimal(item: SimulatedTask) -> str:
    return render_plan_lists(best_plan(item.question, profiles_of(item.pool.cards)).plan)


def first_worker(item: SimulatedTask) -> str:  # noqa: ARG001 - every way to plan is asked alike
    return render_plan_lists(Plan((Step("answer the question", 0),)))


def writes(*ways: Callable[[SimulatedTask], str]) -> Callable[[Sequence[str]], list[str]]:
    """An author who plans in these ways, one a round: it tells rounds apart by what its prompt shows."""
    items = {f"ask {item.task.prompt}": item for item in tasks()}

    def author(prompts: Sequence[str]) -> list[str]:
        return [ways["\ndid " in prompt](items[prompt.partition("\n")[0]]) for prompt in prompts]

    return author


def test_an_interval_of_a_mean_is_that_of_the_house() -> None:
    right = (np.arange(400) % 3 > 0).astype(float)
    found = Lots(400).ratio(right[None])
    assert found.value == pytest.approx(right.mean())
    assert (found.low, found.high) == pytest.approx(bootstrap(right.tolist()), abs=0.004)
    assert Lots(400).ratio(right[None]) == found


def test_a_share_is_paired_and_seeds_are_averaged_within_tasks() -> None:
    better = np.array([[1.0, 1.0, 0.0, 0.0] * 25, [0.0, 0.0, 1.0, 1.0] * 25])
    found = Lots(100).ratio(better, np.ones((1, 100)))
    assert (found.value, found.low, found.high) == (0.5, 0.5, 0.5)  # no task is better than another for both seeds
    assert found.seeds == (0.5, 0.5)
    assert Lots(100).less(better, better) == Estimate(0.0, 0.0, 0.0, (0.0, 0.0))


def test_what_rose_rose_among_what_was_valid() -> None:
    valid, right = np.array([[1.0, 1.0, 0.0, 0.0]]), np.array([[1.0, 0.0, 0.0, 0.0]])
    assert Lots(4).rise((right, valid), (valid, valid)).value == 0.5


def test_the_optimum_reaches_what_is_counted_against_it() -> None:
    cut = Cut.of(tasks())
    found = figures(cut, made(), OPTIMUM, in_full=True)
    assert [found[what].value for what in (SHARE, ENTROPY, ONE_SHOT, CHAIN, FAN_OUT)] == [1.0] * 5
    assert figures(cut, made(), RULES, in_full=True)[COST].value == 1.0
    assert figures(cut, made(), SINGLE, in_full=True)[ENTROPY].value == 0.0


@pytest.mark.parametrize("what", [aim.what for aim in AIMS if aim.cut != RECURSION and aim.what != RISE])
def test_every_aim_is_of_a_figure_that_is_counted(what: str) -> None:
    assert what in figures(Cut.of(tasks()), made(), OPTIMUM, in_full=True) or what == f"less {OPTIMUM}"


@pytest.mark.parametrize(
    ("aim", "found", "reached"),
    [
        (Aim("", "", 0.95), Estimate(0.95, 0.9, 1.0), True),
        (Aim("", "", 0.95), Estimate(0.949, 0.9, 1.0), False),
        (Aim("", "", 1.2, least=False), Estimate(1.1, 1.0, 1.3), True),
        (Aim("", "", 0.0, surely=True), Estimate(0.05, 0.0, 0.1), False),
        (Aim("", "", 0.0, surely=True), Estimate(0.05, 0.01, 0.1), True),
    ],
)
def test_an_aim_is_reached_or_not(aim: Aim, found: Estimate, reached: bool) -> None:
    assert aim.reached(found) is reached


@pytest.mark.parametrize("dollars", [0.0005, 0.0030, 0.0055])
@pytest.mark.parametrize("anew", [False, True])
def test_self_consistency_costs_what_it_is_to_cost(dollars: float, anew: bool) -> None:
    found = at_cost(tasks(), dollars, anew=anew)
    assert found.dollars.mean() == pytest.approx(dollars, rel=0.1)
    assert "% of the tasks" in found.note


def test_attempts_anew_are_worth_more_than_the_same_answer_again() -> None:
    same, anew = (at_cost(tasks(), 1.0, anew=anew) for anew in (False, True))
    assert anew.right.mean() > made()[SINGLE].right.mean() > same.right.mean()
    assert "no room for more" in anew.note


def test_a_control_spends_as_much_where_that_brings_it_more() -> None:
    cheap, dear, worse = (made()[name] for name in ("novice alone", SINGLE, "planner → executor → verifier"))
    forms = {"cheap": cheap, "dear": dear, "worse": worse}
    half = (cheap.dollars.mean() + dear.dollars.mean()) / 2
    mixed = at_equal_dollars(forms, half)
    assert mixed.note == "dear for 50.0% of the tasks, else cheap"
    assert cheap.right.mean() < mixed.right.mean() < dear.right.mean()
    assert at_equal_dollars(forms, worse.dollars.mean()).trials[0] == dear.trials[0]
    assert at_equal_dollars(forms, 0.0).trials[0] == cheap.trials[0]


def test_a_topology_is_chosen_on_development_tasks() -> None:
    dev = drawn("standard", WordingSplit.DEV, 3, 40)
    found = best_fixed(dev, tasks())
    assert found.note.endswith("chosen on 40 development tasks")
    assert found.right.shape == (1, MANY)


def test_workers_by_lot_keep_the_shapes() -> None:
    lots = by_lot(tasks(), made()[OPTIMUM])
    assert lots.shapes == made()[OPTIMUM].shapes
    assert lots.right.mean() < 0.5 * made()[OPTIMUM].right.mean()


def test_controls_of_its_own_stand_beside_a_conductor() -> None:
    few = tasks()[:24]
    one = trained(few, [writes(optimal), writes(first_worker)])
    controls = {name: Contender([each.trials[0][: len(few)]]) for name, each in made().items()}
    found = dict(beside(few, one, drawn("standard", WordingSplit.DEV, 3, 8), controls))
    assert len(found) == 7
    assert found["its own plans, workers by lot"].right.shape == (2, len(few))


def test_a_second_round_can_repair_break_or_keep() -> None:
    authors = [writes(first_worker, optimal), writes(optimal, first_worker), writes(optimal, lambda _: KEPT)]
    found = recursion(tasks(), trained(tasks(), authors), authors).figures(Lots(MANY))
    repaired, broken, kept = found["repaired less broken"].seeds
    assert repaired > 0.5
    assert broken < -0.5
    assert kept == 0
    assert list(found["revised"].seeds) == [1, 1, 0]
    assert found["calls, of one round's"].seeds[2] == 1.0
    assert set(found["second texts that are no plan"].seeds) == {0}


def test_a_second_text_that_is_no_plan_leaves_the_first_answer_and_is_counted() -> None:
    authors = [writes(optimal, lambda _: "nothing")]
    one = trained(tasks(), authors)
    found = recursion(tasks(), one, authors)
    assert np.array_equal(found.two.right, one.right)
    assert found.unread.all()


def test_what_is_no_plan_gets_no_second_round() -> None:
    authors = [writes(lambda _: "nothing", optimal)]
    found = recursion(tasks(), trained(tasks(), authors), authors)
    assert not found.two.right.any()
    assert not found.unread.any()


@pytest.mark.parametrize("name", CUTS)
def test_every_cut_has_as_many_tasks_as_wanted(name: str) -> None:
    found = drawn(name, WordingSplit.HELDOUT, 2, 15)
    assert len(found) == 15
    assert all(item.new_workers for item in found) or "new two-skilled" not in name
    assert {f"pool of {len(item.pool)}" for item in found} == {name} or not name.startswith("pool")


def test_the_optimum_asks_a_new_worker_where_that_is_the_cut() -> None:
    for item in drawn("new two-skilled workers, asked by the optimum", WordingSplit.HELDOUT, 2, 15):
        plan = control([item], baseline_conductors.OPTIMAL)
        assert set(plan.asked[0]) & HELD_OUT_NAMES
        assert asks_new(item)


@pytest.mark.slow
def test_the_whole_table_of_checkpoints_that_learned_nothing(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    from checkpoints import random

    folders = [str(random(tmp_path / f"{seed}", seed)) for seed in (1, 2)]
    line = [sys.executable, str(BENCHMARK), *folders, "--before", folders[0], "--also", f"other={folders[1]}"]
    line += ["--tasks", "6", "--rounds", "2", "--json", str(tmp_path / "told.json")]
    subprocess.run(line, check=True, capture_output=True)  # noqa: S603 - our own command
    told = json.loads((tmp_path / "told.json").read_text())["cuts"]
    assert set(told) == {*CUTS, RECURSION}
    assert told["standard"]["trained"]["seeds"] == 2
    assert told["standard"]["trained"]["figures"][RISE]["value"] is None  # no plan was valid
