"""What is said of a log's gaps: who lacks which types of tasks, and what that is taken for."""

import numpy as np
import pytest
from panels import missing, panel

from shikisha.routing.fit.log_quality import find_gaps

HELD = panel(tasks=40, kinds=("maths", "law"))
LAW = HELD.batch.types == 1


def test_a_whole_log_has_no_gaps() -> None:
    assert find_gaps(HELD) == ()


@pytest.mark.parametrize(("share", "said"), [(0.1, []), (0.5, ["50 % of law"]), (1.0, ["100 % of law"])])
def test_a_worker_that_lacks_much_of_a_type_is_named(share: float, said: list[str]) -> None:
    rows = np.flatnonzero(LAW)[: round(share * LAW.sum())]
    lacks = np.zeros(HELD.codes.shape, bool)
    lacks[rows, HELD.workers.index("dear")] = True
    whole, *named = find_gaps(missing(HELD, lacks))
    assert "of all pairs of task and worker are not in the log" in whole
    assert [text for text in named if text.startswith("dear lacks ")] == named
    assert [text.split("lacks ")[1].split(":")[0] for text in named] == said


def test_no_more_types_are_named_than_one_can_read() -> None:
    kinds = ("a", "b", "c", "d", "e")
    held = panel(tasks=50, kinds=kinds)
    lacks = np.zeros(held.codes.shape, bool)
    lacks[:, 0] = True
    assert find_gaps(missing(held, lacks))[1].count("100 % of") == 3
    assert "and other types" in find_gaps(missing(held, lacks))[1]
