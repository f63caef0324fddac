"""The first minute: `make demo` from a fresh clone, and `pip install WHEEL` with an endpoint that is found by itself.

    python benchmarks/minute.py [--json] [--runs 3]

Each time a fresh clone and an empty home, so pip's and uv's caches are cold and the model is fetched. Of `make demo`,
the time to the first conducted answer and to the end counts. The wheel is installed by pip alone in a fresh
environment; a double of Ollama at its usual port answers `shikisha run` at once.
"""

import json
import os
import resource
import socket
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter

from common import Figure, report

ROOT = Path(__file__).resolve().parent.parent
PORT = 11434
ANSWER = "The capital of France is Paris."


class Ollama(BaseHTTPRequestHandler):
    """A list of one model, and its one answer, streamed as Ollama does."""

    def do_GET(self) -> None:
        """List the models."""
        self._send("application/json", json.dumps({"object": "list", "data": [{"id": "qwen2.5:7b"}]}))

    def do_POST(self) -> None:
        """Answer."""
        self.rfile.read(int(self.headers["Content-Length"]))
        base = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "qwen2.5:7b"}
        said = {"choices": [{"index": 0, "delta": {"role": "assistant", "content": ANSWER}, "finish_reason": None}]}
        ends = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
        used = {"choices": [], "usage": {"prompt_tokens": 20, "completion_tokens": 7, "total_tokens": 27}}
        lines = [json.dumps({**base, **each}) for each in (said, ends, used)]
        self._send("text/event-stream", "".join(f"data: {line}\n\n" for line in [*lines, "[DONE]"]))

    def _send(self, kind: str, text: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(text.encode())))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the standard library's name
        """Say nothing."""


def made_demo(environment: dict[str, str]) -> tuple[float, float]:
    """Return the seconds from the clone to the first conducted answer of `make demo`, and to its end."""
    with TemporaryDirectory() as folder:
        clone, home = Path(folder, "shikisha"), Path(folder, "home")
        home.mkdir()
        begun, first = perf_counter(), 0.0
        command = ["git", "clone", "--quiet", "--depth", "1", f"file://{ROOT}", str(clone)]
        subprocess.run(command, check=True)  # noqa: S603 - our own commands
        own = {**environment, "HOME": str(home)}
        with subprocess.Popen(["make", "demo"], cwd=clone, env=own, stdout=subprocess.PIPE, text=True) as made:  # noqa: S607
            assert made.stdout is not None
            for line in made.stdout:
                if not first and line[0] in "✓✗":
                    first = perf_counter() - begun
        assert first
        assert made.returncode == 0
        return first, perf_counter() - begun


def installed_wheel(environment: dict[str, str], wheel: Path) -> tuple[float, float]:
    """Return the seconds of an environment with the wheel in it, and of the one command after it."""
    with TemporaryDirectory() as folder:
        begun, own, tools = perf_counter(), {**environment, "HOME": folder}, Path(folder, "venv/bin")
        subprocess.run([sys.executable, "-m", "venv", str(tools.parent)], check=True)  # noqa: S603
        pip = [str(tools / "pip"), "install", "--quiet", str(wheel)]
        subprocess.run(pip, env=own, check=True, stderr=subprocess.DEVNULL)  # noqa: S603
        installed = perf_counter()
        command = [str(tools / "shikisha"), "run", "What is the capital of France?"]
        done = subprocess.run(command, env=own, cwd=folder, capture_output=True, text=True, check=True)  # noqa: S603
        assert done.stdout.strip() == ANSWER, done.stdout
        assert "Ollama" in done.stderr
        return installed - begun, perf_counter() - installed


def main() -> None:
    """Measure, and print the figures."""
    runs = int(sys.argv[sys.argv.index("--runs") + 1]) if "--runs" in sys.argv else 3
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        free = probe.connect_ex(("127.0.0.1", PORT)) != 0
    server = ThreadingHTTPServer(("127.0.0.1", PORT if free else 0), Ollama)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SHIKISHA_")}
    if not free:
        environment["OLLAMA_HOST"] = f"127.0.0.1:{server.server_port}"
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    demos = [made_demo(environment) for _ in range(runs)]
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    with TemporaryDirectory() as folder:
        subprocess.run([ROOT / "scripts" / "wheel", folder], check=True, capture_output=True)  # noqa: S603
        (wheel,) = Path(folder).iterdir()
        wheels = [installed_wheel(environment, wheel) for _ in range(runs)]
    server.shutdown()
    used = (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) / runs
    report(
        "The first minute, caches cold",
        [
            Figure(
                "clone to the first conducted answer of `make demo`, median", median(x for x, _ in demos), "s", 45.0
            ),
            Figure("clone to the end of `make demo`, median", median(x for _, x in demos), "s", 45.0),
            Figure("CPU time of clone and `make demo`, mean", used, "s"),
            Figure("environment and `pip install WHEEL`, median", median(x for x, _ in wheels), "s"),
            Figure("`shikisha run` after it, median", median(x for _, x in wheels), "s"),
        ],
    )


if __name__ == "__main__":
    main()
