"""The page on telemetry names what there is."""

import re
from pathlib import Path

import pytest

from shikisha.config.serving_telemetry import TelemetryTable
from shikisha.telemetry import names

PAGE = (Path(__file__).parent.parent / "docs" / "telemetry.md").read_text()
OF_PYTHON = {names.__name__, names.__package__}
OURS = sorted({value for value in vars(names).values() if str(value).startswith("shikisha.")} - OF_PYTHON)
METRICS = [
    names.OPERATION_DURATION,
    names.TOKEN_USAGE,
    names.WORKFLOW_DURATION,
    names.AGENT_DURATION,
    names.TOOL_DURATION,
]


@pytest.mark.parametrize("name", [*OURS, *METRICS])
def test_the_page_names_everything_of_ours_and_every_metric(name: str) -> None:
    assert f"`{name}`" in PAGE


def test_the_page_names_nothing_that_there_is_not() -> None:
    named = set(re.findall(r"`(shikisha\.[a-z_.]+)`", PAGE))
    assert named - set(OURS) == set()


def test_the_tables_of_the_page_are_ones() -> None:
    keys = set(re.findall(r"^([a-z_]+) = ", PAGE, re.MULTILINE)) | set(re.findall(r"`\[telemetry\] ([a-z]+)`", PAGE))
    assert keys <= set(TelemetryTable.model_fields)
    assert keys | {"service"} == set(TelemetryTable.model_fields)
