"""A pytest plugin for programs that use Shikisha: workers that answer from a script, without a network.

    def test_my_program(scripted_shikisha):
        s = scripted_shikisha(cheap=["no idea", "42"], strong="42")
        assert s.run("What is the answer?").answer == "no idea"
        assert "What is the answer?" in scripted_shikisha.workers["cheap"].requests[0].task.prompt

pytest finds it by itself where Shikisha is installed. Invariants: it imports nothing but pytest until the fixture is
used; everything is closed when the test ends. No other module imports this one.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from shikisha.config.facade import Shikisha
    from shikisha.workers.scripted import ScriptedAnswers, ScriptedWorker


class ScriptedPool:
    """Makes a Shikisha of scripted workers, by their names; `workers` are the doubles, which keep their requests."""

    def __init__(self) -> None:
        self.workers: dict[str, ScriptedWorker] = {}
        self._made: list[Shikisha] = []

    def __call__(
        self, *answers: str, conductor: str = "", workers: "Sequence[object]" = (), **scripts: "ScriptedAnswers"
    ) -> "Shikisha":
        """Return a Shikisha: one worker `scripted` with these answers in turn, or one for each name and its script.

        `workers` are further ones, as `Shikisha(workers=...)` takes them.
        """
        from shikisha.config.facade import Shikisha, WorkerSpec  # where no test uses the fixture, nothing is imported
        from shikisha.workers.scripted import ScriptedWorker

        class NamedScript(ScriptedWorker):
            name = ""

        if answers or not (scripts or workers):
            scripts = {"scripted": answers or ("done",), **scripts}
        doubles: list[WorkerSpec] = []
        for name, script in scripts.items():
            double = NamedScript(script)
            double.name = name
            self.workers[name] = double
            doubles.append(double)
        more: list[WorkerSpec] = [*workers]  # type: ignore[list-item]  # Shikisha says what is no worker
        made = Shikisha([*doubles, *more], conductor=conductor)
        self._made.append(made)
        return made

    def close(self) -> None:
        """Close all that was made."""
        for each in self._made:
            each.close()


@pytest.fixture
def scripted_shikisha() -> Iterator[ScriptedPool]:
    """What makes a Shikisha of workers that answer from a script."""
    pool = ScriptedPool()
    yield pool
    pool.close()
