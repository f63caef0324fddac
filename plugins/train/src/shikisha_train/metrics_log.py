"""The log of a run's steps: `steps.jsonl`, written, read and resumed.

Invariants: a step's line is on disk before anybody acts on it; after step n the file holds the lines 1 to n, since a
run that resumes cuts off the steps that it takes again. A reader takes what was written later. A last line without its
end is being written, or was cut by a kill, and is no step; any other line that is none is an error.
"""

import os
from collections.abc import Iterator
from pathlib import Path

from shikisha.core.errors import ConfigError
from shikisha_train.metrics import (
    StepMetrics,
    ValidationResult,
)

STEPS_FILE = "steps.jsonl"


class StepLog:
    """The file of a run that has taken `done` steps; `last_validation` is a step's number and its result."""

    def __init__(self, folder: Path, done: int = 0) -> None:
        self.path = folder / STEPS_FILE
        self.last_validation: tuple[int, ValidationResult] | None = None
        length, count = 0, 0
        for line in self._lines():
            step = self._read(line, count + 1)
            if step.number > done:
                break
            self._note(step)
            length, count = length + len(line), count + 1
        if count < done:
            raise ConfigError(f"{self.path}: expected a line for each of the {done} steps so far, found {count}")
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666)
            os.ftruncate(self._file, length)
            os.lseek(self._file, 0, os.SEEK_END)
        except OSError as error:
            raise ConfigError(f"{self.path}: cannot be written: {error.strerror}") from None

    def add(self, step: StepMetrics) -> None:
        """Write a step's line; it is on the disk when this returns."""
        data = f"{step.dumps()}\n".encode()
        try:
            while data:
                data = data[os.write(self._file, data) :]
            os.fsync(self._file)
        except OSError as error:
            raise ConfigError(f"{self.path}: cannot be written: {error.strerror}") from None
        self._note(step)

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)

    def _note(self, step: StepMetrics) -> None:
        if step.judged is not None:
            self.last_validation = (step.number, step.judged)

    def _lines(self) -> list[bytes]:
        """Return the lines that are complete."""
        held = self.path.read_bytes() if self.path.is_file() else b""
        return [line for line in held.splitlines(keepends=True) if line.endswith(b"\n")]

    def _read(self, line: bytes, number: int) -> StepMetrics:
        try:
            step = StepMetrics.loads(line.decode())
        except (ValueError, KeyError, TypeError) as error:
            raise ConfigError(f"{self.path}: line {number}: not a step: {error}") from None
        if step.number != number:
            raise ConfigError(f"{self.path}: line {number}: expected step {number}, found step {step.number}")
        return step


def read_steps(path: Path) -> list[StepMetrics]:
    """Return the steps of a file, or of `steps.jsonl` in a folder, in order; ConfigError where there are none."""
    path = path / STEPS_FILE if path.is_dir() else path
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: expected UTF-8 text") from None
    found: list[StepMetrics] = []
    for step in _parse_steps(text, path):
        append_step(found, step)
    if not found:
        raise ConfigError(f"{path}: expected the steps of a training run, one a line, and there is none")
    return found


def append_step(steps: list[StepMetrics], step: StepMetrics) -> None:
    """Append a step; steps that were taken in its place or later, before a run was resumed, are dropped."""
    while steps and steps[-1].number >= step.number:
        steps.pop()
    steps.append(step)


def _parse_steps(text: str, path: Path) -> Iterator[StepMetrics]:
    *lines, _ = text.split("\n")
    for number, line in enumerate(lines, 1):
        if line.strip():
            yield _parse_step(line, f"{path}, line {number}")


def _parse_step(line: str, where: str) -> StepMetrics:
    try:
        return StepMetrics.loads(line)
    except (ValueError, TypeError, KeyError) as error:
        raise ConfigError(f"{where}: expected a step of training as JSON: {error}") from None
