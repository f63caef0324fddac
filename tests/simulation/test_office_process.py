"""The office is the same in every process: nothing of it depends on how Python orders sets."""

import os
import subprocess
import sys

import pytest

PROGRAM = """
from shikisha.simulation.office.learning_week import with_honest_cards
from shikisha.simulation.office.recurring_traffic import RecurringTraffic
traffic = RecurringTraffic(12)
items = traffic.tasks(0, 5)
print([member.card.description for item in (*items, *with_honest_cards(items, traffic)) for member in item.pool])
"""


@pytest.mark.slow
def test_the_same_seed_gives_the_same_cards_in_another_process() -> None:
    said = {
        subprocess.run(  # noqa: S603 - our own program
            [sys.executable, "-c", PROGRAM],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "1")
    }
    assert len(said) == 1
