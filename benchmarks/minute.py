"""From a clone to the first answer of an endpoint that is found by itself: an Ollama on its usual port, played here.

    python benchmarks/minute.py [--json] [--runs 3]

Each time a fresh clone of this repository, a fresh environment, `pip install -e .` (from the registry, with pip's cache
as it is), and one command: `shikisha run "..."`, without a configuration or a key. The model server is a double that
answers at once, so what is measured is ours and pip's. Where port 11434 is taken, another one is named in OLLAMA_HOST.
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


def first_answer(environment: dict[str, str]) -> tuple[float, float, float]:
    """Return the seconds of the clone, of the installation, and of the one command."""
    with TemporaryDirectory() as folder:
        clone, home = Path(folder, "shikisha"), Path(folder, "home")
        home.mkdir()
        begun = perf_counter()
        told = ["git", "clone", "--quiet", "--depth", "1", f"file://{ROOT}", str(clone)]
        subprocess.run(told, check=True)  # noqa: S603 - our own commands
        cloned = perf_counter()
        subprocess.run([sys.executable, "-m", "venv", str(clone / ".venv")], check=True)  # noqa: S603
        pip = [str(clone / ".venv/bin/pip"), "install", "--quiet", "--disable-pip-version-check", "-e", str(clone)]
        subprocess.run(pip, check=True, stderr=subprocess.DEVNULL)  # noqa: S603
        installed = perf_counter()
        own = {**environment, "HOME": str(home)}
        command = [str(clone / ".venv/bin/shikisha"), "run", "What is the capital of France?"]
        done = subprocess.run(command, env=own, cwd=home, capture_output=True, text=True, check=True)  # noqa: S603
        assert done.stdout.strip() == ANSWER, done.stdout
        assert "Ollama" in done.stderr
        return cloned - begun, installed - cloned, perf_counter() - installed


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
    taken = [first_answer(environment) for _ in range(runs)]
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) / runs
    server.shutdown()
    whole = [sum(each) for each in taken]
    report(
        "From a clone to the first answer",
        [
            Figure("clone to first answer, median", median(whole), "s", 60.0),
            Figure("of that: clone", median(each[0] for each in taken), "s"),
            Figure("of that: environment and pip install -e .", median(each[1] for each in taken), "s"),
            Figure("CPU time of all of it, mean", used, "s"),
            Figure("of that: the one command after it", median(each[2] for each in taken), "s"),
        ],
    )


if __name__ == "__main__":
    main()
