"""The one place where caps hold: steps, rounds, depth, tool calls, tokens and dollars are counted and refused here.

Invariant 3: what a call may use at most is reserved before it is made and settled after it, here and in the budget that
a run may share with others (a key's, a tenant's, a day's). The sum of what was used and what is held never passes a
cap, whatever runs concurrently. A child run's ledger reserves in its parent's too, so a child can use what is left of
the parent's budget and no more. What cannot be checked is refused: an unknown price under a dollar cap, a number that
compares to nothing. A resumed run counts everything that its journal states before it reserves anything new, child runs
included, each call once. Deliberately absent: seconds (the deadline in `rounds` cancels what is in flight), retries
(`attempt`), and where a shared budget is kept (`server` brings one).
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Protocol, TypeAlias

from shikisha.core.budget import ZERO, Amount, Caps, format_dollars
from shikisha.core.errors import CapReached, FaultKind
from shikisha.core.events import EFFECT_ROLES, AttemptFailed, AttemptFinished, Event
from shikisha.core.fast_dataclass import dataclass, replace
from shikisha.core.run import Attempt, Run, child_run_id

RunReader: TypeAlias = Callable[[str], Awaitable[Sequence[Event]]]


@dataclass(slots=True)
class BudgetLedger:
    """What one run has used, holds, and may still use. Not thread-safe: it lives on one event loop."""

    caps: Caps
    parent: "BudgetLedger | None" = None
    depth: int = 0
    steps: int = 0
    rounds: int = 0
    tool_calls: int = 0
    used: Amount = Amount()
    held: Amount = Amount()
    reached: CapReached | None = None

    def open_round(self) -> None:
        """Count a round, or refuse it."""
        if not self.rounds + 1 <= self.caps.rounds:
            self.refuse("rounds", f"{self.rounds} of {self.caps.rounds} rounds are done")
        self.rounds += 1

    def open_step(self) -> None:
        """Count a step here and in every run above, or refuse it."""
        chain = self._chain()
        for ledger in chain:
            if not ledger.steps + 1 <= ledger.caps.steps:
                self.refuse("steps", f"{ledger.steps} of {ledger.caps.steps} steps are done")
        for ledger in chain:
            ledger.steps += 1

    def check_items(self, items: int) -> None:
        """Refuse a map step that has more items than are allowed, or than steps are left here or in a run above."""
        if items > self.caps.map_items:
            self.refuse("map_items", f"the list has {items:,} items, and a map step may have {self.caps.map_items}")
        for ledger in self._chain():
            if not ledger.steps + items <= ledger.caps.steps:
                done = f"{ledger.steps} of {ledger.caps.steps} steps are done"
                self.refuse("steps", f"the list has {items:,} items, each a step, and {done}")

    def open_tool_call(self) -> None:
        """Count a call of a tool here and in every run above, or refuse it."""
        chain = self._chain()
        for ledger in chain:
            most = ledger.caps.tool_calls
            if most is not None and not ledger.tool_calls + 1 <= most:
                self.refuse("tool_calls", f"{ledger.tool_calls} of {most} calls of tools are made")
        self.count_tool_calls(1)

    def count_tool_calls(self, calls: int) -> None:
        """Count calls of tools that are made, here and in every run above."""
        for ledger in self._chain():
            ledger.tool_calls += calls

    def check_affordable(self, need: Amount, worker: str) -> None:
        """Refuse what no cap will allow any more, even if all that is held now were released; CapReached."""
        for ledger in self._chain():
            self._check(ledger, need, worker, Amount())

    def reserve(self, need: Amount, worker: str) -> None:
        """Hold this amount here and in every run above, or refuse the call."""
        chain = self._chain()
        for ledger in chain:
            self._check(ledger, need, worker, ledger.held)
        for ledger in chain:
            ledger.held = _plus(ledger.held, need, +1)

    def settle(self, held: Amount, used: Amount) -> None:
        """Release what was held for a call and count what it used."""
        for ledger in self._chain():
            ledger.held = _plus(ledger.held, held, -1)
            ledger.used = _plus(ledger.used, used, +1)

    def charge(self, amounts: Iterable[Amount]) -> None:
        """Count what a journaled step used before this process took over, and the step itself."""
        for ledger in self._chain():
            ledger.steps += 1
        for amount in amounts:
            self.settle(Amount(), amount)

    def child(self, caps: Caps) -> "BudgetLedger":
        """Return the ledger of a child run, within these caps and within what is left here."""
        if not self.depth + 1 <= self.caps.depth:
            self.refuse("depth", f"a run at depth {self.depth} may start no child; the cap is {self.caps.depth}")
        left = self.left()
        rounds = max(left.rounds, min(1, self.caps.rounds))  # the round in which it is started is not over
        return BudgetLedger(caps.narrowed(replace(left, rounds=rounds)), parent=self, depth=self.depth + 1)

    @property
    def counts_amounts(self) -> bool:
        """Whether tokens or dollars are capped, here or above."""
        return any(each.caps.tokens is not None or each.caps.dollars is not None for each in self._chain())

    def left(self) -> Caps:
        """Return what is left, as caps; `depth`, `plan_steps` and `map_items` are as they were."""
        caps, chain = self.caps, self._chain()
        return Caps(
            steps=min([max(0, each.caps.steps - each.steps) for each in chain]),
            rounds=max(0, caps.rounds - self.rounds),
            depth=caps.depth,
            tokens=min([most for each in chain if (most := each._tokens_left()) is not None], default=None),
            dollars=min([paid for each in chain if (paid := each._dollars_left()) is not None], default=None),
            seconds=caps.seconds,
            plan_steps=caps.plan_steps,
            tool_calls=min([most for each in chain if (most := each._tool_calls_left()) is not None], default=None),
            map_items=caps.map_items,
        )

    def _tool_calls_left(self) -> int | None:
        most = self.caps.tool_calls
        return None if most is None else max(0, most - self.tool_calls)

    def _tokens_left(self) -> int | None:
        most = self.caps.tokens
        return None if most is None else max(0, most - self.used.tokens - self.held.tokens)

    def _dollars_left(self) -> float | None:
        most = self.caps.dollars
        return None if most is None else max(0.0, most - _dollars(self.used) - _dollars(self.held))

    def _chain(self) -> list["BudgetLedger"]:
        chain, ledger = [self], self
        while ledger.parent is not None:
            ledger = ledger.parent
            chain.append(ledger)
        return chain

    def _check(self, ledger: "BudgetLedger", need: Amount, worker: str, held: Amount) -> None:
        caps, used = ledger.caps, ledger.used
        if caps.tokens is not None and not used.tokens + held.tokens + need.tokens <= caps.tokens:
            taken = used.tokens + held.tokens
            self.refuse(
                "tokens", f"{worker} may need {need.tokens:,}, {taken:,} of {caps.tokens:,} are used or reserved"
            )
        if caps.dollars is None:
            return
        if need.dollars is None:
            self.refuse("dollars", f"{worker} has no price, and what cannot be priced is not called under a cap")
            return
        taken_dollars = _dollars(used) + _dollars(held)
        if not taken_dollars + need.dollars <= caps.dollars:
            taken_text = f"{format_dollars(taken_dollars, 6)} of {format_dollars(caps.dollars, 6)} are used or reserved"
            self.refuse("dollars", f"{worker} may cost {format_dollars(need.dollars, 6)}, {taken_text}")

    def refuse(self, cap: str, why: str) -> None:
        """Remember that a cap refuses what was about to happen, and raise CapReached."""
        self.reached = CapReached(cap, why)
        raise self.reached


def _dollars(amount: Amount) -> float:
    return amount.dollars or 0.0


def _plus(total: Amount, amount: Amount, sign: int) -> Amount:
    """Add or take away; unknown dollars count as none here, since under a cap they were refused."""
    if amount is ZERO:
        return total
    return Amount(total.tokens + sign * amount.tokens, _dollars(total) + sign * _dollars(amount))


async def recount_usage(read: RunReader, past: Run, ledger: BudgetLedger) -> None:
    """Count in the ledger what the run used; `read` returns a run's events, none where there is no such run."""
    for round_ in past.rounds:
        for planning in round_.planning.attempts:
            ledger.settle(Amount(), planning.counted)
        for step in round_.steps.values():
            if step.attempts:
                ledger.charge(attempt.counted for attempt in step.attempts)
                ledger.count_tool_calls(step.tool_calls)
    # The steps' own attempts by idempotency key: those of one key have their child runs in common
    calls: dict[str, list[Attempt]] = {}
    for attempt in past.attempts:
        if attempt.started.role in EFFECT_ROLES:
            calls.setdefault(attempt.started.key, []).append(attempt)
    for key, attempts in calls.items():
        stated = any(_states_children(attempt) for attempt in attempts)
        number = 0
        while events := await read(child_run_id(key, number)):
            below = BudgetLedger(Caps())
            await recount_usage(read, Run.fold(events), below)
            ledger.steps += below.steps
            ledger.count_tool_calls(below.tool_calls)
            if not stated:
                ledger.settle(Amount(), below.used)
            number += 1


def _states_children(attempt: Attempt) -> bool:
    """Whether this attempt's own charge says what its child runs used."""
    match attempt.outcome:
        case AttemptFinished():
            return True
        case AttemptFailed(fault=fault):
            return fault is FaultKind.NO_ANSWER
        case _:
            return False


class SharedBudget(Protocol):
    """A shared budget."""

    async def hold(self, need: Amount, worker: str) -> None:
        """Hold what a call to this worker may use at most; CapReached when there is no room, or nobody can say."""
        ...

    def settle(self, held: Amount, used: Amount, uncertain: Amount = ZERO) -> None:
        """Release what was held for a call and count what it used, and what it may have used besides."""
        ...


class UnlimitedBudget:
    """A purse without a bottom: runs have their own caps only."""

    async def hold(self, need: Amount, worker: str) -> None:
        """Hold nothing."""

    def settle(self, held: Amount, used: Amount, uncertain: Amount = ZERO) -> None:
        """Count nothing."""
