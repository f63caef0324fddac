"""The steps of a training read back from `steps.jsonl`, by whoever draws them: afterwards, or while it still goes on.

Invariants: where steps were taken again (a training that was killed and resumed), what was written later counts, and
nothing that stood after the place of resumption does; a last line without its end is being written or was cut short by
a kill, and is no step; any other line that is none is an error. Deliberately absent: writing (`record`), and figures.
"""

from collections.abc import Iterator
from pathlib import Path

from shikisha.errors import ConfigError
from shikisha.train.progress import Step
from shikisha.train.record import FILE


def read(path: Path) -> list[Step]:
    """Return the steps of a file, or of `steps.jsonl` in a folder, in order; ConfigError where there are none."""
    path = path / FILE if path.is_dir() else path
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: expected UTF-8 text") from None
    found: list[Step] = []
    for step in _steps(text, path):
        add(found, step)
    if not found:
        raise ConfigError(f"{path}: expected a training's steps, one a line, and there is none")
    return found


def add(steps: list[Step], step: Step) -> None:
    """Append a step to those before it; what was once taken in its place, or after that, is forgotten."""
    while steps and steps[-1].number >= step.number:
        steps.pop()
    steps.append(step)


def _steps(text: str, path: Path) -> Iterator[Step]:
    *lines, _ = text.split("\n")
    for number, line in enumerate(lines, 1):
        if line.strip():
            yield _step(line, f"{path}, line {number}")


def _step(line: str, where: str) -> Step:
    try:
        return Step.loads(line)
    except (ValueError, TypeError, KeyError) as error:
        raise ConfigError(f"{where}: expected a step of training as JSON: {error}") from None
