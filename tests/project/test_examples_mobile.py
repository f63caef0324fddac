"""The dispatcher's phone, as its README says: learned, exported, run in Chromium, and a van sent with a passkey."""

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest
from browsing import needed
from paths import ROOT

RUNTIME = next(iter(sorted((ROOT / ".venv").glob("onnxruntime-web-*/dist"))), None)
here = pytest.mark.skipif(RUNTIME is None, reason="needs onnxruntime-web, which scripts/onnxruntime-web fetches")


def example() -> object:
    """The example as a module."""
    spec = spec_from_file_location("mobile_example", ROOT / "examples" / "mobile" / "mobile.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules["mobile_example"] = module
    spec.loader.exec_module(module)
    return module


@needed
@here
@pytest.mark.slow
@pytest.mark.browser
async def test_private_tasks_stay_on_the_phone_and_the_day_is_cheaper_and_no_worse(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert RUNTIME is not None
    made = example()
    day = await made.perform(tmp_path, RUNTIME, 24)  # type: ignore[attr-defined]
    errands = made.make_errands(24, 29)  # type: ignore[attr-defined]
    assert day.private_requests == day.leaked == 0
    assert any(errand.private for errand in errands)
    assert any(each["where"] == "server" for each in day.device)
    right = [
        sum(made.is_right(errand, str(each["answer"])) for errand, each in zip(errands, results, strict=True))  # type: ignore[attr-defined]
        for results in (day.device, day.large)
    ]
    assert right[0] >= right[1]
    assert made.spent(day.device) < made.spent(day.large)  # type: ignore[attr-defined]
    assert "by passkey" in capsys.readouterr().out
    assert "simulated" in (tmp_path / "money.svg").read_text()


def test_the_day_has_private_tasks_and_each_knows_its_answer() -> None:
    made = example()
    errands = made.make_errands(60, 29)  # type: ignore[attr-defined]
    assert {errand.type for errand in errands} == {"sum", "note", "load", "reply"}
    assert all(errand.private for errand in errands if errand.type == "note")
    assert all(made.is_right(errand, f"It is {errand.answer}.") for errand in errands)  # type: ignore[attr-defined]


def test_only_what_the_phone_answered_counts_as_answered_on_the_phone() -> None:
    made = example()
    errands = made.make_errands(4, 29)  # type: ignore[attr-defined]
    ends = [("device", False), ("device", True), ("server", False), ("nowhere", True)]
    device = [
        {"where": where, "failed": failed, "answer": "not sure" if failed else errand.answer, "dollars": 0.0, "ms": 2.0}
        for errand, (where, failed) in zip(errands, ends, strict=True)
    ]
    large = [{"answer": errand.answer, "dollars": 0.5} for errand in errands]
    lines = list(made.summary(errands, made.Day(device, large, 0, 0)))  # type: ignore[attr-defined]
    assert lines[0] == "4 tasks: 1 answered on the phone, 1 by the server, 2 by nobody"
    assert lines[1] == "right: 2 this way (1 on the phone), 4 with the large model for every task"
