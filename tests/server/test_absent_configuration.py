"""A configuration that is empty, cut, emptied or no text is no configuration: refused at the start and at SIGHUP.

At the start a file can only be judged by itself. At SIGHUP it is compared with what is in force: a file that is
valid and lacks something is refused, too.
"""

import logging
import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from serving import served
from typer.testing import CliRunner

from shikisha.cli import app
from shikisha.cli.first_run import configured_container
from shikisha.server.lifecycle.process import ConfigReload

GOOD = """\
conductor = "fixed:single?worker=cheap"
pool = ["cheap", "strong", "far", "last"]

[server]
hosts = ["*"]
drain = 0.5

[labels]
guarded = ["medical", "legal"]

[budgets]
dollars = 0.25
seconds = 60

[autonomy]
approval = "never"
[[autonomy.classes]]
name = "payments"
domain = "finance"
mode = "escalate"
check = true

[checks.short]
kind = "length"
max_words = 400

[conductors.jury]
kind = "fixed"
topology = "vote"
workers = ["cheap"]
n = 3

[plans.pro]
revenue_per_1k = 12.0
tenants = ["acme"]

[workers.cheap]
kind = "scripted"
price = { input = 0.1, output = 0.2 }
checks = ["short"]
answers = "one"

[workers.strong]
kind = "scripted"
sees = ["medical"]
price = { call = 0.01 }
answers = "two"

[workers.far]
kind = "chat"
model = "m"
base_url = "http://127.0.0.1:9/v1"
api_key_env = "FAR_KEY"
price = { input = 1.0, output = 1.0 }

[workers.last]
kind = "chat"
base_url = "http://127.0.0.1:9/v1"
price = { input = 1.0, output = 1.0 }
model = "m"
"""
LINES = GOOD.splitlines(keepends=True)


def cut_places() -> Iterator[int]:
    """Before each line, and in the middle of each."""
    place = 0
    for line in LINES:
        if line.strip():
            yield from (place, place + len(line) // 2)
        place += len(line)


def without_table(header: str, *, emptied: bool) -> str:
    """The file without a table, or with nothing in it."""
    before, _, rest = GOOD.partition(f"{header}\n")
    after = rest[rest.find("\n[") :] if "\n[" in rest else "\n"
    return f"{before}{header if emptied else ''}{after}"


def link_to_itself(file: Path) -> None:
    """Make a symbolic link that leads to itself."""
    file.symlink_to(file.name)


def unreadable(file: Path) -> None:
    """Make a file that cannot be opened, by root neither: a link into nothing."""
    file.symlink_to("/proc/self/nothing/at/all")


NO_TEXT: dict[str, bytes] = {
    "empty": b"",
    "a space": b" ",
    "whitespace": b"\n \t\r\n\n",
    "a comment": b"# shikisha.toml\n",
    "a byte order mark": b"\xef\xbb\xbf",
    "a byte order mark before it": b"\xef\xbb\xbf" + GOOD.encode(),
    "UTF-16": GOOD.encode("utf-16"),
    "UTF-16, no mark": GOOD.encode("utf-16-le"),
    "UTF-32": GOOD.encode("utf-32"),
    "Latin-1": GOOD.replace("two", "zwölf").encode("latin-1"),
    "a NUL": b"\0",
    "NULs": b"\0" * 4096,
    "half of it NULs": GOOD.encode()[:500] + b"\0" * 500,
    "a NUL at the end": GOOD.encode() + b"\0",
    "half written": GOOD.encode()[len(GOOD) // 2 :],
    "written twice": GOOD.encode() * 2,
    "another program's": b'{"workers": {}}',
    "a page": b"<!doctype html><title>Not found</title>",
    "too long": GOOD.encode() + b"#" * 1_000_001,
    "workers emptied": GOOD[: GOOD.index("[workers.cheap]")].replace(LINES[1], "").encode() + b"[workers]\n",
    "nothing but budgets": b"[budgets]\ndollars = 0.25\n",
    "an empty pool": GOOD.replace(LINES[1], "pool = []\n").encode(),
}
NO_FILE: dict[str, Callable[[Path], None]] = {
    "missing": lambda _: None,
    "a directory": lambda file: file.mkdir(),
    "a link to itself": link_to_itself,
    "a link to nothing": unreadable,
}
CUT = {f"cut at {place}": GOOD[:place].encode() for place in cut_places()}
HEADERS = [line.strip() for line in LINES if line.startswith("[")]
LACKING = {  # valid by themselves, most of them
    f"{header} {'emptied' if emptied else 'left out'}": without_table(header, emptied=emptied).encode()
    for header in HEADERS
    for emptied in (True, False)
} | {f"without {line.strip()}": GOOD.replace(line, "", 1).encode() for line in LINES if " = " in line}
LACKING["a guarded label"] = GOOD.replace('["medical", "legal"]', '["legal"]').encode()
LACKING["all guarded labels"] = GOOD.replace('["medical", "legal"]', "[]").encode()
LACKING["simulated workers"] = b'pool = ["simulated"]\n'


def write(file: Path, what: bytes | Callable[[Path], None]) -> None:
    """Put this in place of the file."""
    if file.is_dir():
        file.rmdir()
    file.unlink(missing_ok=True)
    if isinstance(what, bytes):
        file.write_bytes(what)
    else:
        what(file)


def test_none_is_accepted_at_the_start(tmp_path: Path) -> None:
    file = tmp_path / "shikisha.toml"
    tried: dict[str, bytes | Callable[[Path], None]] = {**NO_TEXT, **NO_FILE, **CUT}
    environment = {"XDG_STATE_HOME": str(tmp_path), "FAR_KEY": "a-key-of-nobody", "SHIKISHA_CONFIG": str(file)}
    accepted = []
    for name, what in tried.items():
        write(file, what)
        result = CliRunner().invoke(app, ["serve", "--port", "0"], env=environment)
        if result.exit_code != 3 or str(file) not in result.stderr:
            accepted.append((name, result.exit_code, result.output))
    assert accepted == []
    assert len(tried) >= 60


@pytest.mark.parametrize("what", [each for name, each in NO_FILE.items() if name != "missing"])
def test_what_is_in_the_folder_and_no_file_is_an_error_and_not_absent(
    what: Callable[[Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    what(tmp_path / "shikisha.toml")
    result = CliRunner().invoke(app, ["serve", "--port", "0"], env={"XDG_STATE_HOME": str(tmp_path)})
    assert (result.exit_code, "shikisha.toml: cannot be read" in result.stderr) == (3, True)


async def test_none_is_accepted_at_sighup_and_what_is_lost_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    dotenv = tmp_path / ".env"
    dotenv.write_text("FAR_KEY=a-key-of-nobody\n")
    async with served(tmp_path, GOOD, os.environ | {"FAR_KEY": "a-key-of-nobody"}) as at:
        service, file = at.service, tmp_path / "shikisha.toml"
        assert service is not None
        before = service.container
        reload = ConfigReload(service, partial(configured_container, file), lambda: None)
        tried: dict[str, bytes | Callable[[Path], None]] = {**NO_TEXT, **NO_FILE, **CUT, **LACKING}
        accepted = []
        for name, what in tried.items():
            write(file, what)
            caplog.clear()
            await reload.reload()
            if service.container is not before or "the configuration stays as it was" not in caplog.text:
                accepted.append(name)
        assert accepted == []
        assert len(tried) >= 60

        for text, lost in (
            (without_table("[budgets]", emptied=False), "lacks what is in force: budgets."),
            (without_table("[budgets]", emptied=True), "lacks what is in force: budgets.dollars, budgets.seconds."),
            (GOOD.replace('["medical", "legal"]', '["legal"]'), "labels.guarded[medical]"),
            (without_table("[conductors.jury]", emptied=False), "lacks what is in force: conductors."),
        ):
            file.write_text(text)
            caplog.clear()
            await reload.reload()
            assert lost in caplog.text

        file.write_text(GOOD)
        dotenv.write_text("")
        caplog.clear()
        await reload.reload()
        assert "lacks what is in force: $FAR_KEY." in caplog.text
        assert service.container is before

        dotenv.write_text("FAR_KEY=another-key-of-nobody\n")
        file.write_text(f'{GOOD}\n[workers.more]\nkind = "scripted"\nanswers = "four"\n'.replace("0.25", "0.5"))
        await reload.reload()
        assert service.container.caps.dollars == 0.5
        assert "more" in service.container.names
        await reload.close()
