"""The page on telemetry names what there is."""

import re

from paths import ROOT

from shikisha.config.settings import TelemetryTable
from shikisha.telemetry import conventions

PAGE = (ROOT / "docs" / "how-to" / "observe.md").read_text()
OF_PYTHON = {conventions.__name__, conventions.__package__}
OURS = sorted({value for value in vars(conventions).values() if str(value).startswith("shikisha.")} - OF_PYTHON)


def test_the_page_names_nothing_that_there_is_not() -> None:
    named = set(re.findall(r"`(shikisha\.[a-z_.]+)`", PAGE))
    assert named - set(OURS) == set()


def test_the_tables_of_the_page_are_ones() -> None:
    keys = set(re.findall(r"^([a-z_]+) = ", PAGE, re.MULTILINE)) | set(re.findall(r"`\[telemetry\] ([a-z]+)`", PAGE))
    assert keys <= set(TelemetryTable.model_fields)
    assert keys | {"service"} == set(TelemetryTable.model_fields)
