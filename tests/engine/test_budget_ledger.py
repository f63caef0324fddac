"""The ledger: used plus held never passes a cap, in a run or in any run above it."""

from contextlib import suppress
from math import nan

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from shikisha.core.budget import Amount, Caps
from shikisha.core.errors import CapReached
from shikisha.engine.budget_ledger import BudgetLedger

tokens = st.integers(0, 100)
cents = st.integers(0, 64).map(lambda n: n / 64)  # exact in binary, so that sums are exact too
amounts = st.builds(Amount, tokens, cents)
caps = st.builds(
    Caps, steps=st.integers(0, 8), tokens=st.none() | tokens, dollars=st.none() | cents, depth=st.integers(0, 3)
)


class Books(RuleBasedStateMachine):
    """Runs and child runs that reserve and settle at random, never using more than they reserved."""

    def __init__(self) -> None:
        super().__init__()
        self.ledgers: list[BudgetLedger] = []
        self.held: list[tuple[BudgetLedger, Amount]] = []
        self.own: list[Amount] = []  # used and held of each ledger, counted here and not by the ledgers themselves

    def count(self, ledger: BudgetLedger, amount: Amount, sign: int) -> None:
        """Count an amount in this ledger and in every one above it."""
        above: BudgetLedger | None = ledger
        while above is not None:
            place = next(place for place, each in enumerate(self.ledgers) if each is above)
            total = self.own[place]
            dollars = (total.dollars or 0.0) + sign * (amount.dollars or 0.0)
            self.own[place] = Amount(total.tokens + sign * amount.tokens, dollars)
            above = above.parent

    @rule(caps=caps)
    def start(self, caps: Caps) -> None:
        if not self.ledgers:
            self.ledgers.append(BudgetLedger(caps))
            self.own.append(Amount())

    @rule(which=st.integers(0), caps=caps)
    def start_child(self, which: int, caps: Caps) -> None:
        if self.ledgers:
            with suppress(CapReached):
                self.ledgers.append(self.ledgers[which % len(self.ledgers)].child(caps))
                self.own.append(Amount())

    @rule(which=st.integers(0), need=amounts)
    def reserve(self, which: int, need: Amount) -> None:
        if self.ledgers:
            ledger = self.ledgers[which % len(self.ledgers)]
            with suppress(CapReached):
                ledger.reserve(need, "worker")
                self.held.append((ledger, need))
                self.count(ledger, need, +1)

    @rule(which=st.integers(0), part=st.sampled_from([0.0, 0.5, 1.0]))
    def settle(self, which: int, part: float) -> None:
        if self.held:
            ledger, need = self.held.pop(which % len(self.held))
            used = Amount(int(need.tokens * part), (need.dollars or 0.0) * part)
            ledger.settle(need, used)
            self.count(ledger, need, -1)
            self.count(ledger, used, +1)

    @rule(which=st.integers(0))
    def step(self, which: int) -> None:
        if self.ledgers:
            with suppress(CapReached):
                self.ledgers[which % len(self.ledgers)].open_step()

    @invariant()
    def every_ledger_has_counted_all_of_it(self) -> None:
        for ledger, own in zip(self.ledgers, self.own, strict=True):
            total = ledger.used + ledger.held
            assert (total.tokens, total.dollars or 0.0) == (own.tokens, own.dollars)
            assert ledger.caps.tokens is None or own.tokens <= ledger.caps.tokens
            assert ledger.caps.dollars is None or (own.dollars or 0.0) <= ledger.caps.dollars

    @invariant()
    def every_cap_holds(self) -> None:
        for ledger in self.ledgers:
            total = ledger.used + ledger.held
            assert ledger.caps.tokens is None or 0 <= total.tokens <= ledger.caps.tokens
            assert ledger.caps.dollars is None or 0 <= (total.dollars or 0.0) <= ledger.caps.dollars
            assert ledger.steps <= ledger.caps.steps

    @invariant()
    def a_child_is_within_its_parent(self) -> None:
        for ledger in self.ledgers:
            if parent := ledger.parent:
                assert ledger.depth == parent.depth + 1 <= parent.caps.depth
                assert (ledger.used + ledger.held).tokens <= (parent.used + parent.held).tokens
                assert ledger.steps <= parent.steps

    @invariant()
    def what_is_left_can_be_reserved_and_no_more(self) -> None:
        for ledger in self.ledgers:
            left = ledger.left()
            if left.tokens is not None:
                with pytest.raises(CapReached, match="tokens"):
                    ledger.reserve(Amount(left.tokens + 1), "worker")
                ledger.reserve(Amount(left.tokens), "worker")
                ledger.settle(Amount(left.tokens), Amount())
            if left.dollars is not None:
                with pytest.raises(CapReached, match="dollars"):
                    ledger.reserve(Amount(0, left.dollars + 1 / 64), "worker")
                ledger.reserve(Amount(0, left.dollars), "worker")
                ledger.settle(Amount(0, left.dollars), Amount(0, 0.0))


@pytest.mark.full
def test_invariant_3_used_and_held_never_pass_a_cap_in_any_order_and_at_any_depth() -> None:
    run_state_machine_as_test(Books)


def test_invariant_3_what_has_no_price_is_refused_under_a_dollar_cap() -> None:
    with pytest.raises(CapReached, match="mystery has no price"):
        BudgetLedger(Caps(dollars=1000.0)).reserve(Amount(1, None), "mystery")
    BudgetLedger(Caps()).reserve(Amount(1, None), "mystery")


@pytest.mark.parametrize("need", [Amount(0, nan), Amount(nan, 0.0)])  # type: ignore[arg-type]  # the point of it
def test_invariant_3_an_amount_that_compares_to_nothing_is_refused(need: Amount) -> None:
    with pytest.raises(CapReached):
        BudgetLedger(Caps(tokens=10**9, dollars=1e9)).reserve(need, "worker")


def test_invariant_3_a_parents_cap_refuses_what_a_childs_own_caps_allow() -> None:
    parent = BudgetLedger(Caps(tokens=100))
    one, other = parent.child(Caps(tokens=80)), parent.child(Caps(tokens=80))
    one.reserve(Amount(80), "worker")
    with pytest.raises(CapReached, match="80 of 100 are used or reserved"):
        other.reserve(Amount(80), "worker")
    one.settle(Amount(80), Amount(10))
    other.reserve(Amount(80), "worker")


def test_a_refusal_says_which_cap_and_is_remembered() -> None:
    ledger = BudgetLedger(Caps(steps=1, rounds=1, depth=0))
    ledger.open_step()
    ledger.open_round()
    for refused, cap in (
        (ledger.open_step, "steps"),
        (ledger.open_round, "rounds"),
        (lambda: ledger.child(Caps()), "depth"),
    ):
        with pytest.raises(CapReached) as caught:
            refused()
        assert caught.value.cap == cap
        assert ledger.reached is caught.value


def test_a_refusal_says_how_much_is_taken() -> None:
    ledger = BudgetLedger(Caps(tokens=100, dollars=0.5, rounds=1, steps=1))
    ledger.settle(Amount(), Amount(30, 0.125))
    ledger.reserve(Amount(40, 0.25), "worker")
    with pytest.raises(CapReached, match="worker may need 31, 70 of 100 are used or reserved"):
        ledger.reserve(Amount(31, 0.0), "worker")
    with pytest.raises(CapReached, match=r"worker may cost \$0.25, \$0.375 of \$0.50 are used or reserved"):
        ledger.reserve(Amount(0, 0.25), "worker")
    ledger.open_round()
    ledger.open_step()
    with pytest.raises(CapReached, match="1 of 1 rounds are done"):
        ledger.open_round()
    with pytest.raises(CapReached, match="1 of 1 steps are done"):
        ledger.open_step()


def test_what_is_left_of_every_cap() -> None:
    ledger = BudgetLedger(Caps(steps=5, rounds=4, depth=3, tokens=100, dollars=1.0, seconds=9.0, plan_steps=2))
    ledger.open_round()
    ledger.charge([Amount(10, 0.25)])
    ledger.reserve(Amount(20, 0.25), "worker")
    left = Caps(steps=4, rounds=3, depth=3, tokens=70, dollars=0.5, seconds=9.0, plan_steps=2)
    assert ledger.left() == left
    assert ledger.child(Caps(steps=9, rounds=9, depth=9, tokens=999, dollars=9.0, seconds=99.0)).left().tokens == 70
    assert BudgetLedger(Caps()).left() == Caps()


@given(caps, amounts)
def test_what_is_left_counts_what_is_used_and_what_is_held(caps: Caps, amount: Amount) -> None:
    ledger = BudgetLedger(caps)
    ledger.settle(Amount(), amount)
    left = ledger.left()
    assert left.tokens == (None if caps.tokens is None else max(0, caps.tokens - amount.tokens))
    assert left.dollars == (None if caps.dollars is None else max(0.0, caps.dollars - (amount.dollars or 0.0)))
    assert left.depth == caps.depth


def test_a_journaled_step_is_counted_in_every_run_above() -> None:
    parent = BudgetLedger(Caps())
    parent.child(Caps()).charge([Amount(5, 0.5), Amount(7, None)])
    assert (parent.steps, parent.used) == (1, Amount(12, 0.5))


def test_invariant_3_a_child_begins_with_no_more_than_is_left() -> None:
    parent = BudgetLedger(Caps(steps=3, rounds=2, tokens=100, dollars=None))
    parent.open_round()
    parent.open_step()
    parent.reserve(Amount(30), "worker")
    child = parent.child(Caps(steps=9, rounds=9, tokens=500, dollars=0.5))
    assert (child.caps.steps, child.caps.tokens, child.caps.dollars) == (2, 70, 0.5)
    assert (child.caps.rounds, parent.left().rounds) == (1, 1)
    parent.open_round()
    assert parent.child(Caps(rounds=9)).caps.rounds == 1  # the round in which a child is started is not over
