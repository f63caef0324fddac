"""Real processes, really killed: `tests/night/kill.py` in small, as a test (slow: half a minute)."""

import json
import subprocess
import sys

import pytest
from paths import ROOT

SCRIPT = ROOT / "tests" / "night" / "kill.py"


@pytest.mark.slow
def test_invariant_4_kill_9_loses_no_acknowledged_run_and_repeats_no_journaled_step() -> None:
    done = subprocess.run(  # noqa: S603 - our own script
        [sys.executable, str(SCRIPT), "--kills", "15", "--json"],
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    figures = json.loads(done.stdout)
    assert figures[0]["value"] > 20, "runs were in flight"
    assert [figure["what"] for figure in figures if figure["reached"] is False] == []
