"""`steps.jsonl`: every step of a run, one line each, on the disk before anybody acts on it.

Invariant: after step n of a run the file holds the lines 1 to n and nothing else; a run that goes on from a checkpoint
cuts off what was taken after it, since those steps are taken again. Deliberately absent: drawing (`live`, `page`).
"""

import os
from pathlib import Path

from shikisha.errors import ConfigError
from shikisha.train.progress import Judged, Step

FILE = "steps.jsonl"


class Record:
    """The file of a run that has taken `done` steps. `judged` is the last that was found, and after which step."""

    def __init__(self, folder: Path, done: int = 0) -> None:
        self.path = folder / FILE
        self.judged: tuple[int, Judged] | None = None
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

    def add(self, step: Step) -> None:
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

    def _note(self, step: Step) -> None:
        if step.judged is not None:
            self.judged = (step.number, step.judged)

    def _lines(self) -> list[bytes]:
        """Return the lines that are whole."""
        held = self.path.read_bytes() if self.path.is_file() else b""
        return [line for line in held.splitlines(keepends=True) if line.endswith(b"\n")]

    def _read(self, line: bytes, number: int) -> Step:
        try:
            step = Step.loads(line.decode())
        except (ValueError, KeyError, TypeError) as error:
            raise ConfigError(f"{self.path}: line {number}: not a step: {error}") from None
        if step.number != number:
            raise ConfigError(f"{self.path}: line {number}: expected step {number}, found step {step.number}")
        return step
