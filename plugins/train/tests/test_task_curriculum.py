"""Which tasks are drawn, and that the sampler's state is all there is to it."""

from collections import Counter
from dataclasses import replace

import pytest
from trainings import stream as turns

from shikisha.core.errors import ConfigError
from shikisha.engine.pool import Pool
from shikisha.evals.taskset import TaskItem
from shikisha_train.environment import TaskCurriculum

ITEMS = [replace(turns(index), difficulty=f"{1 + index * 7 % 3} parts") for index in range(400)]


def stream(index: int) -> TaskItem:
    return ITEMS[index % len(ITEMS)]


def ids(items: list[TaskItem]) -> list[str]:
    return [item.task.id for item in items]


def test_as_they_come() -> None:
    source = TaskCurriculum(stream, near_half=False)
    assert ids(source.draw(3) + source.draw(2)) == [item.task.id for item in ITEMS[:5]]


def test_a_resumed_source_draws_what_the_unbroken_one_would_have() -> None:
    source = TaskCurriculum(stream, seed=2)
    source.update(source.draw(8), [0.5] * 8)
    kept = source.state()
    unbroken = ids(source.draw(8))
    resumed = TaskCurriculum(stream, seed=2)
    resumed.restore(kept)
    assert ids(resumed.draw(8)) == unbroken
    assert ids(TaskCurriculum(stream, seed=3).draw(8)) != ids(TaskCurriculum(stream, seed=2).draw(8))


def test_tasks_near_half_come_more_often_and_no_task_never() -> None:
    source = TaskCurriculum(stream, floor=0.2)
    source.rates = {"1 parts": 1.0, "2 parts": 0.5, "3 parts": 0.0}
    drawn = Counter(item.difficulty for _ in range(25) for item in source.draw(4))
    offered = Counter(item.difficulty for item in ITEMS)
    taken = {name: drawn[name] / offered[name] for name in offered}
    assert taken["2 parts"] > 2 * max(taken["1 parts"], taken["3 parts"])
    assert min(drawn.values()) > 0


def test_rates_follow_what_was_told() -> None:
    source = TaskCurriculum(stream)
    one = ITEMS[0]
    source.update([one], [0.4])
    source.update([one], [1.0])
    assert source.rates == {one.difficulty: pytest.approx(0.43)}


@pytest.mark.parametrize("size", [0, 1])
def test_a_pool_of_one_is_refused(size: int) -> None:
    whole = ITEMS[0].pool
    assert whole is not None
    pool = Pool([whole[place] for place in range(size)]) if size else None
    with pytest.raises(ConfigError, match="two workers or more"):
        TaskCurriculum(lambda _: TaskItem(ITEMS[0].task, ITEMS[0].grader, pool=pool)).draw(1)


@pytest.mark.parametrize("state", [{"next": "1", "rates": {}}, {"next": 1, "rates": None}])
def test_a_state_that_is_none(state: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match="curriculum's state"):
        TaskCurriculum(stream).restore(state)
