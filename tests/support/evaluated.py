"""What tests of `shikisha eval` share: a folder with a configuration and tasks, and the command over them."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from typer.testing import CliRunner

from shikisha.cli import app

Entries = dict[str, dict[str, object]]

TWO = """
[workers.wise]
kind = "scripted"
answers = "It is 4."
price = { call = 0.25 }
[workers.rash]
kind = "scripted"
answers = "It must be 5."
price = { call = 0.01 }
"""
ROWS = [{"id": f"t{n}", "prompt": f"{n}: 2 + 2?", "checker": "number", "answer": "4"} for n in range(12)]
SPLIT = [{**row, "split": "dev" if place < 4 else "test"} for place, row in enumerate(ROWS)]


class Evaluated:
    """Runs `shikisha eval` over a configuration and rows that a test may change between runs."""

    def __init__(self, folder: Path, config: str = TWO, rows: Sequence[Mapping[str, object]] = SPLIT) -> None:
        self.folder = folder
        self.said = ""
        self.notes = ""
        self.code = 0
        self.config(config)
        self.rows(rows)

    def config(self, text: str) -> None:
        """Write the configuration."""
        (self.folder / "shikisha.toml").write_text(text)

    def rows(self, rows: Sequence[Mapping[str, object]]) -> None:
        """Write the tasks."""
        (self.folder / "tasks.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    def line(self, *arguments: str, workers: str = "wise,rash", controls: str = "all") -> list[str]:
        """Return the command's arguments."""
        line = ["eval", "--config", str(self.folder / "shikisha.toml"), "--keep", str(self.folder / "kept")]
        line += ["--controls", controls] if controls else []
        tasks = [] if "--log" in arguments else ["--taskset", str(self.folder / "tasks.jsonl")]
        return [*line, *tasks, *(["--workers", workers] if workers else []), *arguments]

    def run(self, *arguments: str, workers: str = "wise,rash", controls: str = "all") -> str:
        """Evaluate and return stdout; stderr is in `said`, the exit code in `code`."""
        result = CliRunner().invoke(
            app, self.line(*arguments, workers=workers, controls=controls), env={"COLUMNS": "120"}
        )
        self.said, self.code = result.stderr, result.exit_code
        return str(result.stdout)

    def entries(self, *arguments: str, workers: str = "wise,rash", controls: str = "all") -> Entries:
        """Evaluate and return the report's entries by name; its notes are in `notes`."""
        text = self.run("--json", "-", *arguments, workers=workers, controls=controls)
        assert text.startswith("{"), self.said
        data = json.loads(text)
        self.notes = "\n".join(data["notes"])
        return {str(entry["name"]): entry for entry in data["entries"]}

    @property
    def calls(self) -> int:
        """How many replies are kept."""
        return sum(len(path.read_text().splitlines()) for path in (self.folder / "kept").glob("calls-*.jsonl"))

    @property
    def dollars(self) -> float:
        """What the replies kept had cost."""
        files = (self.folder / "kept").glob("calls-*.jsonl")
        return sum(float(json.loads(line)["dollars"]) for path in files for line in path.read_text().splitlines())


def accuracies(entries: Entries, *names: str) -> list[object]:
    """The accuracies of these entrants."""
    return [entries[name]["accuracy"] for name in names]
