"""The example of a week runs offline, and shows each part's days with the money and the accuracy."""

import re
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest
from paths import ROOT


def test_a_short_week_shows_each_part_by_day(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec = spec_from_file_location("week_example", ROOT / "examples" / "week" / "week.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules["week_example"] = module
    spec.loader.exec_module(module)
    module.main(["--days", "2", "--a-day", "6", "--out", str(tmp_path / "week.svg")])
    shown = capsys.readouterr().out
    for name in module.PARTS:
        (line,) = [line for line in shown.splitlines() if line.startswith(f"{name} ")]
        assert len(re.findall(r"\d+% \$\d\.\d{4}", line)) == 2
    assert (tmp_path / "week.svg").read_text().count("<polyline") == 2 * len(module.PARTS)
