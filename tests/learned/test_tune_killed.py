"""`tune` as a process over HTTP, really killed: `benchmarks/tune_endpoint.py` in small (slow: half a minute)."""

import pytest

from tune_endpoint import kill_and_resume

pytest.importorskip("gepa")


@pytest.mark.slow
def test_after_kill_9_no_call_is_paid_twice_and_the_same_advice_is_found() -> None:
    found = kill_and_resume(2)
    assert found["kills that met it at work"] == 2
    assert found["paid calls beyond the undisturbed"] == 0
    assert found["keys charged twice"] == 0
    assert found["the same advice accepted"] is True
