"""What the importers' tests share: files in other people's layouts, and the command that imports them."""

import csv
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from typer.testing import CliRunner

from shikisha.cli import app
from shikisha.outcomes.log_reader import Outcome, OutcomeLog
from shikisha.outcomes.table_files import ColumnSpec, ColumnType, read_columns

Rows = Sequence[Mapping[str, object]]


class Imported(NamedTuple):
    """A log as it is read back, and what the command counted."""

    log: OutcomeLog
    told: dict[str, object]

    def one(self, task_id: str, worker: str) -> Outcome:
        """The outcome of this worker on this task."""
        found = self.log.find(task_id, worker)
        assert found is not None, (task_id, worker, self.log.task_ids, self.log.workers)
        return found

    def scores(self, worker: str) -> list[float | None]:
        """A worker's scores in the order of the tasks."""
        return [outcome.score for outcome in self.log.outcomes_of(worker)]

    def more(self, column: str) -> list[float | None]:
        """A numeric column that the log has beyond those of the design."""
        columns = [ColumnSpec("task_id"), ColumnSpec(column, ColumnType.NUMBER, required=False, nullable=True)]
        return list(read_columns(self.log.folder, "outcomes", columns).numbers[column])


def command(*arguments: str, code: int = 0) -> tuple[str, str]:
    """Run `shikisha import outcomes`; return what it printed to stdout and stderr."""
    result = CliRunner().invoke(app, ["import", "outcomes", *arguments], env={"COLUMNS": "200"})
    assert result.exit_code == code, (result.output, result.stderr)
    return result.stdout, result.stderr


def imported(kind: str, *sources: Path | str, options: Sequence[str] = ()) -> Imported:
    """Import these sources through the command line and read the log back."""
    folder = Path(str(sources[0])).parent / "log"
    said, _ = command(kind, *map(str, sources), "--out", str(folder), "--json", *options)
    told = json.loads(said)
    assert isinstance(told, dict)
    return Imported(OutcomeLog.read(folder), told)


def refused(kind: str, *sources: Path, options: Sequence[str] = ()) -> str:
    """Import these sources, which cannot be, and return why."""
    folder = sources[0].parent / "log"
    _, said = command(kind, *map(str, sources), "--out", str(folder), *options, code=3)
    assert not folder.exists()
    return said


def lines(file: Path, rows: Rows) -> Path:
    """Write JSON Lines."""
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return file


def document(file: Path, value: object) -> Path:
    """Write one JSON document."""
    file.write_text(json.dumps(value, indent=1), encoding="utf-8")
    return file


def table(file: Path, rows: Rows) -> Path:
    """Write CSV, None as an empty cell, or parquet, as the file's name says."""
    if file.suffix == ".parquet":
        import pyarrow as pa
        import pyarrow.parquet as pq

        pq.write_table(pa.Table.from_pylist([dict(row) for row in rows]), file)
        return file
    with file.open("w", encoding="utf-8", newline="") as opened:
        writer = csv.DictWriter(opened, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return file
