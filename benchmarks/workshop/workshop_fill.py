"""Fill the cache of the world "workshop": ask real models, one thread each, and keep every answer by its content.

    python benchmarks/workshop/workshop_fill.py [--clones FOLDER] [--models FOLDER] [--minutes N]

The cache is one SQLite file (default ~/.cache/shikisha/workshop/answers.db): a key is the hash of the model file's
SHA-256, the exact messages and the sampling, so a file of another quantization is another worker. It goes on where it
stopped; a second filler on the same cache is refused.
"""

import argparse
import json
import sqlite3
import sys
from collections.abc import Iterator, Sequence
from hashlib import file_digest, sha256
from pathlib import Path
from time import monotonic, process_time

from workshop_items import load_parts, repositories
from workshop_tasks import WorkshopTask, compose
from workshop_treatments import LARGE, SMALL, Call, agent_calls, treatments_of, whole_call

from shikisha.workers.model_files import known_models, models_folder

FOLDER = Path.home() / ".cache" / "shikisha" / "workshop"
_CONTEXT, _BATCH_TASKS = 4096, 10
AGENT_TASKS = 200  # held-out tasks that one agent does as a whole, which takes most of the time


class AnswerCache:
    """Answers by content: what a worker said, its CPU seconds at one thread, and its tokens."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._database = sqlite3.connect(path)
        self._database.execute(
            "CREATE TABLE IF NOT EXISTS answers (key TEXT PRIMARY KEY, worker TEXT, sha256 TEXT, messages TEXT, "
            "sampling TEXT, answer TEXT, cpu_seconds REAL, input_tokens INTEGER, output_tokens INTEGER, finish TEXT)"
        )

    @staticmethod
    def key(call: Call) -> str:
        """Return the key of a call."""
        whole = [known_models()[call.worker].sha256, call.messages, call.sampling]
        return sha256(json.dumps(whole, sort_keys=True, ensure_ascii=False).encode()).hexdigest()

    def get(self, call: Call) -> tuple[str, float] | None:
        """Return the answer and its CPU seconds; None where the call was not made yet."""
        row = self._database.execute(
            "SELECT answer, cpu_seconds FROM answers WHERE key = ?", [self.key(call)]
        ).fetchone()
        return None if row is None else (str(row[0]), float(row[1]))

    def put(self, call: Call, answer: str, seconds: float, tokens: tuple[int, int], finish: str) -> None:
        """Keep an answer."""
        model, said = known_models()[call.worker].sha256, json.dumps(call.messages, ensure_ascii=False)
        row = [self.key(call), call.worker, model, said, json.dumps(call.sampling), answer, seconds, *tokens, finish]
        with self._database:
            self._database.execute("INSERT OR REPLACE INTO answers VALUES (?,?,?,?,?,?,?,?,?,?)", row)

    def __len__(self) -> int:
        return int(self._database.execute("SELECT count(*) FROM answers").fetchone()[0])


class LocalWorker:
    """A model in this process, at one thread, without reuse of earlier prompts."""

    def __init__(self, name: str, folder: Path) -> None:
        from xllamacpp import CommonParams, Server

        known = known_models()[name]
        path = folder / known.file
        with path.open("rb") as file:
            if (found := file_digest(file, "sha256").hexdigest()) != known.sha256:
                sys.exit(f"{path}: SHA-256 is {found}, expected {known.sha256}")
        params = CommonParams()
        params.model.path, params.n_ctx, params.n_parallel, params.verbosity = str(path), _CONTEXT, 1, 0
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
        self._server = Server(params)

    def ask(self, call: Call) -> tuple[str, float, tuple[int, int], str]:
        """Return the answer, CPU seconds of this process, tokens read and written, and how it ended."""
        messages = [{"role": role, "content": text} for role, text in call.messages]
        began = process_time()
        body = self._server.handle_chat_completions({"messages": messages, "cache_prompt": False, **call.sampling})
        seconds = process_time() - began
        if "choices" not in body:
            return f"error: {json.dumps(body)[:200]}", seconds, (0, 0), "error"
        choice, usage = body["choices"][0], body["usage"]
        tokens = (int(usage["prompt_tokens"]), int(usage["completion_tokens"]))
        return str(choice["message"]["content"] or ""), seconds, tokens, str(choice["finish_reason"])


def wanted(tasks: Sequence[WorkshopTask], cache: AnswerCache) -> Iterator[Call]:
    """Yield the calls that are missing, so that whole tasks of both kinds are complete early, in the order of hashes:
    by tens the parts of tasks to be measured and to learn from, then one agent with the first; last those to choose by.
    """
    held, learn, choose = ([each for each in tasks if each.split == split] for split in ("test", "train", "choose"))
    for begin in range(0, max(len(held), len(learn)), _BATCH_TASKS):
        here = slice(begin, begin + _BATCH_TASKS)
        yield from _part_calls([*held[here], *learn[here]])
        yield from _agent_calls(held[here] if begin < AGENT_TASKS else [], cache)
    yield from _part_calls(choose)


def _part_calls(tasks: Sequence[WorkshopTask]) -> Iterator[Call]:
    for worker in (SMALL, LARGE):  # the models change rarely
        for part in (part for task in tasks for part in task.parts):
            yield from (each.call(part) for each in treatments_of(part.family) if each.worker == worker)


def _agent_calls(tasks: Sequence[WorkshopTask], cache: AnswerCache) -> Iterator[Call]:
    for task in tasks:
        yield whole_call(task.prompt, len(task.parts))
        first, second = agent_calls(task.prompt, len(task.parts))
        yield first
        if (written := cache.get(first)) is not None:
            yield second(written[0])


def main() -> None:
    """Ask what is missing until the time is over."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clones", type=Path, help="clones of the public repositories, as owner+name/repo")
    parser.add_argument("--models", type=Path, default=models_folder(), help="the folder of model files")
    parser.add_argument("--cache", type=Path, default=FOLDER / "answers.db")
    parser.add_argument("--minutes", type=float, default=1e6)
    chosen = parser.parse_args()
    cache = AnswerCache(chosen.cache)
    lock = sqlite3.connect(chosen.cache.with_suffix(".lock"), timeout=0.1)
    try:
        lock.execute("BEGIN EXCLUSIVE")
    except sqlite3.OperationalError:
        sys.exit(f"{chosen.cache}: another filler works on it")
    tasks = compose(load_parts(repositories(FOLDER / "data", chosen.clones)))
    workers: dict[str, LocalWorker] = {}
    until, made = monotonic() + 60 * chosen.minutes, 0
    for call in wanted(tasks, cache):
        if monotonic() > until:
            break
        if cache.get(call) is not None:
            continue
        if call.worker not in workers:
            workers[call.worker] = LocalWorker(call.worker, chosen.models)
        answer, seconds, tokens, finish = workers[call.worker].ask(call)
        cache.put(call, answer, seconds, tokens, finish)
        made += 1
        print(f"{len(cache)} answers; {call.worker} {seconds:.1f} s {tokens} {finish}", flush=True)
    print(f"{made} calls made, {len(cache)} answers in {chosen.cache}")


if __name__ == "__main__":
    main()
