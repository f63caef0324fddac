"""The example over a catalogue finds its tool with the real commands, and the run's page shows what it was offered."""

import re
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import httpx2
import pytest
from paths import ROOT
from serving import served

from shikisha.core.events import CallRole, ToolRefused, ToolsOffered
from shikisha.core.run import Run
from shikisha.journal import open_journal

pytestmark = pytest.mark.full  # five commands in processes of their own


def example() -> object:
    """The example as a module."""
    spec = spec_from_file_location("holidays_example", ROOT / "examples" / "catalogue" / "holidays.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules["holidays_example"] = module
    spec.loader.exec_module(module)
    return module


async def test_a_run_finds_the_right_one_of_some_hundreds_and_its_page_shows_how(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = await example().perform(tmp_path, None, 16_000)  # type: ignore[attr-defined]
    assert "338 operations that this example made" in capsys.readouterr().out
    found = re.search(r"run (\S+): done", told)
    assert found is not None
    async with open_journal(str(tmp_path / "shikisha.db")) as journal:
        run = Run.fold(await journal.read(found[1]))
    assert run.answer is not None
    assert "Labour Day on 2027-09-06" in run.answer
    (step,) = run.rounds[0].steps.values()
    (offered,) = [each for each in step.tools if isinstance(each, ToolsOffered)]
    assert "Province" in offered.found, "found by the task's own words: the plan says only to answer it"
    assert 0 < len(offered.found) <= 5
    (refused,) = [each for each in step.tools if isinstance(each, ToolRefused)]
    assert str(refused.fault) == "not_offered"
    assert [each.started.tool for each in run.attempts if each.started.role is CallRole.TOOL] == ["Province"]
    config = (tmp_path / "shikisha.toml").read_text()
    async with served(tmp_path, config) as at, httpx2.AsyncClient(base_url=at.url, timeout=30.0) as client:
        await client.post("/ui/login", data={"key": at.key})
        page = (await client.get(f"/ui/runs/{run.id}")).text
    for shown in (*offered.found, "Province", "provinceId", "not_offered", refused.tool):
        assert shown in page, shown
    assert refused.tool in told
    assert "not_offered" in told
