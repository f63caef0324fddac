"""The tree: every moment of every run can be drawn, and says why anything was done again."""

import pytest
from rich.console import Console
from scripted_people import ScriptedApprover

from shikisha.cli.progress import RunTreeView, format_cost, run_tree
from shikisha.conductors.fixed_conductors import fixed_conductor
from shikisha.conductors.language_model import LanguageModelConductor
from shikisha.core.budget import Amount, Caps
from shikisha.core.errors import FaultKind, WorkerError
from shikisha.core.events import Event
from shikisha.core.run import Run
from shikisha.engine.approvals import Approver, Decision, NoApprover
from shikisha.engine.engine import Engine
from shikisha.engine.pool import Member, Pool
from shikisha.engine.recorder import MemoryRecorder
from shikisha.engine.worker import ApprovalMode, Card
from shikisha.workers.conductor import ConductorWorker
from shikisha.workers.scripted import ScriptedWorker
from support import AT_ONCE, TASK, member

GOOD = member("good", "done \x1b[31m[red]\nwell")
BROKEN = member("broken", WorkerError(FaultKind.AUTH, "no \x1b]0;key\x07"))
ASKS = member("asks", "allowed", approval=ApprovalMode.ALWAYS)
TEAM = Member(Card("team", kind="conductor"), ConductorWorker(fixed_conductor("single?worker=good"), ["good"]))
SOMEBODY = ScriptedApprover({"asks": Decision(True, "me")})
SPECS = [
    "single?worker=good",
    "single?worker=broken",
    "single?worker=asks",
    "single?worker=team",
    "vote?workers=flaky,team,asks&join=good",
    "cascade?workers=broken,flaky,good",
    "map?list=lists&each=flaky&join=good",
    "map?list=lists&each=asks&join=good",
    "planner",
]


async def conducted(spec: str, approver: Approver) -> dict[str, list[Event]]:
    """The events of a run and of its child runs, by run."""
    told: dict[str, list[Event]] = {}

    def observe(event: Event) -> None:
        told.setdefault(event.run, []).append(event)

    twice = ScriptedWorker("x", faults=[FaultKind.SERVER, FaultKind.TIMEOUT])
    flaky = Member(Card("flaky", attempts=2, fallback="good"), twice)
    pool = Pool([flaky, GOOD, BROKEN, ASKS, TEAM, member("lists", '["one", "two", "three"]')])
    planner = LanguageModelConductor("planner", member("writer", "no lists"), fixed_conductor("single?worker=good"))
    conductor = planner if spec == "planner" else fixed_conductor(spec)
    performing = Engine(MemoryRecorder(), approver=approver, observe=observe, retry=AT_ONCE)
    await performing.run(TASK, pool, conductor, Caps(map_items=9))
    return told


def drawn(told: dict[str, list[Event]], now: float | None = None, width: int = 100) -> str:
    runs = {run: Run.fold(events) for run, events in told.items() if events}
    console = Console(width=width, markup=False, highlight=False)
    with console.capture() as captured:
        console.print(run_tree(RunTreeView(runs, now, answers=True), next(iter(told))))
    return captured.get()


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize(
    "approver", [NoApprover(), ScriptedApprover({"asks": Decision(True, "me")})], ids=["nobody", "somebody"]
)
async def test_every_moment_of_a_run_can_be_drawn_on_any_width(spec: str, approver: Approver) -> None:
    told = await conducted(spec, approver)
    root = next(iter(told))
    for length in range(1, len(told[root]) + 1):
        so_far = {**told, root: told[root][:length]}
        for width in (20, 60, 100):
            shown = drawn(so_far, now=told[root][length - 1].at + 1, width=width)
            assert "\x1b" not in shown
            assert max(map(len, shown.splitlines())) <= width


async def test_a_map_step_says_how_many_items_are_done_and_lists_those_that_are_not() -> None:
    shown = drawn(await conducted("map?list=lists&each=asks&join=good", NoApprover()))
    assert "? 1 asks" in shown or "· 1 asks" in shown
    assert "0 of 3 items" in shown
    shown = drawn(await conducted("map?list=lists&each=flaky&join=good", NoApprover()))
    assert "✓ 1 flaky · 3 of 3 items" in shown


async def test_it_says_why_anything_was_done_again() -> None:
    shown = drawn(await conducted("single?worker=flaky", NoApprover()))
    assert "✓ 0 good for flaky" in shown
    assert "retry after server: as scripted" in shown
    assert "fallback to good after timeout: as scripted" in shown
    assert "→ done ␛[31m[red] well" in shown


async def test_it_names_the_fallback_conductor_and_what_was_no_plan() -> None:
    shown = drawn(await conducted("planner", NoApprover()))
    assert "round 0: one-shot by fixed:single?worker=good in place of planner" in shown
    assert shown.count("no plan: text: expected model_id") == 2


async def test_child_runs_hang_below_their_step() -> None:
    lines = drawn(await conducted("single?worker=team", NoApprover())).splitlines()
    child = next(line for line in lines if "one-shot by fixed:single?worker=good" in line)
    assert child.index("round 0") > lines[1].index("round 0")


async def test_a_run_that_waits_shows_who_is_asked() -> None:
    assert "? 0 asks · asks a person (approve)" in drawn(await conducted("single?worker=asks", NoApprover()))


MONEY = [
    (Amount(), "$0"),
    (Amount(0, 0.00123), "$0.00123"),
    (Amount(0, 0.0000071), "$0.0000071"),
    (Amount(0, 12.5), "$12.50"),
    (Amount(0, None), "$?"),
]


@pytest.mark.parametrize(("amount", "shown"), MONEY)
def test_money_is_shown_as_people_read_it(amount: Amount, shown: str) -> None:
    assert format_cost(amount) == shown
