"""The package stays within its budget: lines, files, what is loaded and crossed, commands, options, keys."""

import json
import re
import subprocess
import sys
import tomllib

import pytest
from paths import ROOT

import house

BUDGET = ROOT / "tests" / "project" / "budget.toml"
MOST: dict[str, int] = tomllib.loads(BUDGET.read_text(encoding="utf-8"))


def over(found: dict[str, int]) -> list[str]:
    """What is above its budget, in words."""
    return [
        f"{name}: {found[name]:,} of {most:,}; lower it, or say behind {name} in {BUDGET.name} what the user gets"
        for name, most in MOST.items()
        if name in found and found[name] > most
    ]


def test_each_figure_says_behind_it_what_it_is_for() -> None:
    lines = [line for line in BUDGET.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    assert [line for line in lines if not re.fullmatch(r"\w+ = [\d_]+ +# \S+ \S+ .+", line)] == []


def test_the_package_has_no_more_lines_and_files_than_its_budget() -> None:
    assert over(house.sizes()) == []


@pytest.mark.full
def test_what_is_loaded_crossed_and_offered_is_within_the_budget() -> None:
    measured = [sys.executable, str(ROOT / "benchmarks" / "house.py"), "--json"]
    found = json.loads(subprocess.run(measured, check=True, capture_output=True, text=True).stdout)  # noqa: S603 - our own
    assert found.keys() == MOST.keys()
    assert over(found) == []
    assert over({name: most + 1 for name, most in MOST.items()}) != []
