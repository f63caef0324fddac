"""How much of a house the package is: lines, files, what a server loads, what a request crosses, commands, keys.

    python benchmarks/house.py [--json]

`tests/project/budget.toml` bounds these figures. Plug-ins do not count. A request's way is that of the second one to a
server in this process's child, over loopback to a scripted endpoint; of `run`, up to its first HTTP call.
"""

import argparse
import atexit
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import Any
from urllib.request import Request, urlopen

SOURCE = Path(__file__).resolve().parent.parent / "src"
PACKAGE = f"{SOURCE}{os.sep}shikisha{os.sep}"
CONFIG = """
[server]
port = 0
[workers.w]
kind = "chat"
model = "m"
base_url = "{url}"
price = {{ input = 1.0, output = 1.0 }}
"""


def sizes() -> dict[str, int]:
    """Return the lines and files of the package."""
    texts = [path.read_text(encoding="utf-8") for path in SOURCE.rglob("*.py")]
    return {"lines": sum(text.count("\n") for text in texts), "files": len(texts)}


def surface() -> dict[str, int]:
    """Return the commands, their options, and the keys of the configuration, without what plug-ins bring."""
    from shikisha.core import kinds

    kinds.installed_plugins = lambda: ()  # type: ignore[assignment]  # whatever is installed here
    from shikisha.cli import COMMANDS, load_command
    from shikisha.config.template import config_schema

    leaves = [leaf for name in COMMANDS for leaf in _leaves(load_command(name))]
    options = sum(sum(each.param_type_name == "option" for each in leaf.params) for leaf in leaves)
    schema: Any = config_schema()
    tables = [schema, *schema["$defs"].values()]
    keys = sum(len(table.get("properties", {})) for table in tables)
    return {"commands": len(leaves), "options": options, "keys": keys}


def _leaves(command: Any) -> Iterator[Any]:  # noqa: ANN401 - Typer brings its own click
    inner = getattr(command, "commands", None)
    if not inner:
        yield command
        return
    for each in inner.values():
        yield from _leaves(each)


def ways() -> dict[str, int]:
    """Return what a server has loaded after a request, and what the way of a request and of `run` crosses."""
    with tempfile.TemporaryDirectory() as given:
        folder = Path(given)
        (folder / "script.json").write_text(json.dumps([{"when": "", "text": "42"}]))
        endpoint = [sys.executable, "-m", "shikisha.testing", "--script", str(folder / "script.json")]
        with subprocess.Popen(endpoint, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603 - our own
            try:
                assert process.stdout is not None
                (folder / "shikisha.toml").write_text(CONFIG.format(url=process.stdout.readline().strip()))
                served = _trip(folder, "serve", "--json")
                asked = _trip(folder, "run", "What is 6 * 7?")
            finally:
                process.terminate()
    return {
        "served_modules": served["modules"],
        "served_lines": served["lines"],
        "request_files": served["files"],
        "request_functions": served["functions"],
        "run_files": asked["files"],
        "run_functions": asked["functions"],
    }


def _trip(folder: Path, *command: str) -> Mapping[str, int]:
    """Run a command in a child that watches itself, ask it twice if it serves, and return what it tells."""
    told = folder / f"{command[0]}.json"
    environment = {**os.environ, "OPENAI_API_KEY": "sk-none", "SHIKISHA_DISCOVERY": "off"}
    child = [sys.executable, __file__, "--watch", str(told), *command]
    with subprocess.Popen(child, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603 - our own
        if command[0] == "serve":
            assert process.stdout is not None
            ready = json.loads(process.stdout.readline())
            for _ in range(2):
                begun = time.monotonic()
                body = {"model": "shikisha", "messages": [{"role": "user", "content": "What is 6 * 7?"}]}
                headers = {"Authorization": f"Bearer {ready['key']}", "Content-Type": "application/json"}
                request = Request(f"{ready['url']}/v1/chat/completions", json.dumps(body).encode(), headers)  # noqa: S310 - loopback
                with urlopen(request, timeout=60) as answer:  # noqa: S310 - loopback
                    assert json.load(answer)["choices"][0]["message"]["content"] == "42"
                time.sleep(0.5)  # the server is done with it too
                (folder / "second").write_text(f"{begun} {time.monotonic()}")
            process.send_signal(signal.SIGINT)
        process.communicate(timeout=120)
    figures: Mapping[str, int] = json.loads(told.read_text())
    return figures


def watch(file: str, command: list[str]) -> None:
    """Be the command line; tell at the end what was loaded, and what was crossed."""
    calls: list[tuple[float, str, str]] = []  # when, file, function; no file: an HTTP call

    def note(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event != "call":
            return
        if code.co_filename.startswith(PACKAGE) and code.co_flags & 1 and not code.co_name.startswith("<"):
            calls.append((time.monotonic(), code.co_filename, code.co_qualname))
        elif code.co_name == "_request" and code.co_filename.endswith(f"aiohttp{os.sep}client.py"):
            calls.append((time.monotonic(), "", ""))

    def tell() -> None:
        sys.setprofile(None)
        if command[0] == "serve":
            begun, ended = map(float, Path("second").read_text().split())
            part = [call for call in calls if begun <= call[0] <= ended]
        else:
            part = calls[: next(place for place, call in enumerate(calls) if not call[1])]
        crossed = {call[1:] for call in part if call[1]}
        loaded = [str(each.__file__) for name, each in sys.modules.items() if name.partition(".")[0] == "shikisha"]
        figures = {
            "modules": len(loaded),
            "lines": sum(Path(each).read_text(encoding="utf-8").count("\n") for each in loaded),
            "files": len({each for each, _ in crossed}),
            "functions": len(crossed),
        }
        Path(file).write_text(json.dumps(figures))

    from shikisha.cli import main as command_line

    sys.argv = ["shikisha", *command]
    atexit.register(tell)
    sys.setprofile(note)
    threading.setprofile(note)
    command_line()


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    found = {**sizes(), **ways(), **surface()}
    if parser.parse_args().json:
        print(json.dumps(found))
    else:
        print("\n".join(f"{name:<18} {value:>8,}" for name, value in found.items()))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--watch"]:
        watch(sys.argv[2], sys.argv[3:])
    else:
        main()
