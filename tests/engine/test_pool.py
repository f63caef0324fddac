"""The pool: members by ordinal and by exact name, and what is left of a member in a smaller pool."""

import pytest

from shikisha.core.call import Card
from shikisha.core.errors import ConfigError, UnknownName
from shikisha.engine.pool import Member, Pool
from support import Answers


def three(**changed: Card) -> Pool:
    """Workers a, b and c, some with another card."""
    return Pool([Member(changed.get(name, Card(name)), Answers("said")) for name in ("a", "b", "c")])


@pytest.mark.parametrize("ordinal", [-1, -3, 3])
def test_invariant_1_an_ordinal_outside_the_pool_is_nobody(ordinal: int) -> None:
    with pytest.raises(UnknownName, match="0, 1, 2"):
        three()[ordinal]
    assert [three()[place].card.name for place in range(3)] == ["a", "b", "c"]
    assert [one.card.name for one in three()] == list(three().names) == ["a", "b", "c"]


def test_invariant_1_a_smaller_pool_keeps_no_stand_in_from_outside() -> None:
    pool = three(a=Card("a", fallback="c", escalate="b"), b=Card("b", fallback="a", escalate="c"))
    one, other = pool.subset(["b", "a"]).cards
    assert (one.name, one.fallback, one.escalate) == ("b", "a", None)
    assert (other.name, other.fallback, other.escalate) == ("a", None, "b")
    assert pool.named("a").card.fallback == "c"  # the larger pool is as it was


def test_names_are_exact_and_unique() -> None:
    with pytest.raises(UnknownName):
        three().named("A")
    with pytest.raises(ConfigError, match=r"twice: a$"):
        Pool([Member(Card(name), Answers("said")) for name in ("b", "a", "a")])
    with pytest.raises(UnknownName, match="stand-in"):
        Pool([Member(Card("a", fallback="b"), Answers("said"))])
