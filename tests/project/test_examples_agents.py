"""The example of a conductor over agents runs offline, does what its trace says, and its page shows that trace."""

import re
import sys
from importlib.util import module_from_spec, spec_from_file_location

import pytest
from paths import ROOT

from shikisha.core.events import CallRole, GuardDecided, RunStatus, ToolRefused
from shikisha.engine.recorder import MemoryRecorder
from shikisha.explain import explain_text
from shikisha.explain.explanation import explain

FOLDER = ROOT / "examples" / "agents"


def example() -> object:
    """The example as a module."""
    spec = spec_from_file_location("refunds", FOLDER / "refunds.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules["refunds"] = module  # its dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def without_times(text: str) -> str:
    """The trace as the page shows it."""
    text = re.sub(r"run \d{6}-\d{6}-\w{8}", "run …", text)
    text = re.sub(r"\d+\.\d\d s", "0.00 s", text)
    return text.replace("; answered in 0.00 s, 0 tokens, $0", "")


async def test_three_agents_with_different_tools_do_what_the_ticket_asks_for() -> None:
    refunds = example()
    shop = refunds.Shop()  # type: ignore[attr-defined]
    run = await refunds.perform(shop, refunds.TICKET, MemoryRecorder())  # type: ignore[attr-defined]
    assert run.status is RunStatus.DONE
    assert run.answer == "Order 7 was refunded once, in full, and Ada L. was told."
    assert shop.rows("select order_id, dollars from refunds") == [(7, 42.5)]
    assert [email for (email,) in shop.rows("select email from letters")] == ["ada@example.org"]
    steps = run.rounds[0].steps
    clerk = steps[1]
    assert [str(each.fault) for each in clerk.tools if isinstance(each, ToolRefused)] == ["bad_arguments", "guarded"]
    assert not all(each.passed for each in clerk.tools if isinstance(each, GuardDecided))
    tools = {
        number: {each.started.tool for each in step.attempts if each.started.tool} for number, step in steps.items()
    }
    assert tools[0] == tools[2] == {"find_order", "find_refunds"}
    assert "refund_order" in tools[1]
    assert sum(each.started.role is CallRole.TOOL for each in run.attempts) == run.rounds[0].steps[1].tool_calls + 4
    trace = without_times(explain_text(explain(run)))
    page = (FOLDER / "README.md").read_text()
    shown = page.partition("```text\n")[2].partition("```")[0]
    assert trace in shown


@pytest.mark.parametrize("ticket", ["Order 8 arrived broken. Refund it."])
async def test_an_order_that_is_not_there_is_refunded_to_nobody(ticket: str) -> None:
    refunds = example()
    shop = refunds.Shop()  # type: ignore[attr-defined]
    run = await refunds.perform(shop, ticket, MemoryRecorder())  # type: ignore[attr-defined]
    assert run.status is RunStatus.FAILED  # the simulated models cannot read that answer
    assert shop.rows("select count(*) from refunds") == [(0,)]
    assert "LookupError: there is no order 8" in explain_text(explain(run))
