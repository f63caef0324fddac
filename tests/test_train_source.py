"""Which tasks are drawn, and that the sampler's state is all there is to it."""

from collections import Counter

import pytest

from shikisha.errors import ConfigError
from shikisha.pool import Pool
from shikisha.taskset import Item, Split
from shikisha.tasksets.rehearsal import taskset
from shikisha.train.source import Source

ITEMS = taskset(Split.TRAIN, 1, 400).items


def stream(index: int) -> Item:
    return ITEMS[index % len(ITEMS)]


def ids(items: list[Item]) -> list[str]:
    return [item.task.id for item in items]


def test_as_they_come() -> None:
    source = Source(stream, near_half=False)
    assert ids(source.draw(3) + source.draw(2)) == [item.task.id for item in ITEMS[:5]]


def test_a_resumed_source_draws_what_the_unbroken_one_would_have() -> None:
    source = Source(stream, seed=2)
    source.told(source.draw(8), [0.5] * 8)
    kept = source.state()
    unbroken = ids(source.draw(8))
    resumed = Source(stream, seed=2)
    resumed.restore(kept)
    assert ids(resumed.draw(8)) == unbroken
    assert ids(Source(stream, seed=3).draw(8)) != ids(Source(stream, seed=2).draw(8))


def test_tasks_near_half_come_more_often_and_no_task_never() -> None:
    source = Source(stream, floor=0.2)
    source.rates = {"1 part": 1.0, "2 parts": 0.5, "3 parts": 0.0}
    drawn = Counter(item.difficulty for _ in range(25) for item in source.draw(4))
    offered = Counter(item.difficulty for item in ITEMS)
    taken = {name: drawn[name] / offered[name] for name in offered}
    assert taken["2 parts"] > 2 * max(taken["1 part"], taken["3 parts"])
    assert min(drawn.values()) > 0


def test_rates_follow_what_was_told() -> None:
    source = Source(stream)
    one = ITEMS[0]
    source.told([one], [0.4])
    source.told([one], [1.0])
    assert source.rates == {one.difficulty: pytest.approx(0.43)}


@pytest.mark.parametrize("size", [0, 1])
def test_a_pool_of_one_is_refused(size: int) -> None:
    whole = ITEMS[0].pool
    assert whole is not None
    pool = Pool([whole[place] for place in range(size)]) if size else None
    with pytest.raises(ConfigError, match="two workers or more"):
        Source(lambda _: Item(ITEMS[0].task, ITEMS[0].checker, pool=pool)).draw(1)


@pytest.mark.parametrize("state", [{"next": "1", "rates": {}}, {"next": 1, "rates": None}])
def test_a_state_that_is_none(state: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match="sampler's state"):
        Source(stream).restore(state)
