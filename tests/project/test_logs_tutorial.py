"""The tutorial on logs: its script runs to its end, its commands are those of the page, and the money is drawn."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from paths import ROOT

PAGE = ROOT / "docs" / "tutorial-logs.md"


@pytest.mark.full
def test_the_way_from_a_log_to_a_served_policy_is_gone(tmp_path: Path) -> None:
    script = ROOT / "examples" / "logs" / "logs.py"
    command = [sys.executable, str(script), "--log", "120", "--served", "60", "--folder", str(tmp_path / "example")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)  # noqa: S603  our own script
    assert done.returncode == 0, done.stdout + done.stderr
    assert "120 tasks, 240 responses" in done.stdout
    assert re.search(r"judged by judge .*at about \$", done.stdout)
    assert "How to use it:" in done.stdout
    # Sixty requests show nothing, and what is not shown is not written.
    assert "more tasks logged like these are needed" in done.stdout or "too few" in done.stdout
    assert not (tmp_path / "example" / "second.policy").exists()
    assert "large for every task" in (tmp_path / "example" / "money.svg").read_text()


def test_the_page_has_the_script_s_commands() -> None:
    source = (ROOT / "examples" / "logs" / "logs.py").read_text()
    for line in re.findall(r"^shikisha (.*)$", PAGE.read_text(), re.MULTILINE):
        words = line.replace("VERSION", "{learned}")
        assert words in source or words.startswith("serve"), line
