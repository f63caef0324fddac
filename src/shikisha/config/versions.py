"""Versions: a hash of what decides an entrant's samples besides the task and how it is graded.

It takes in the conductor with all that it hangs on (its table, rules, policy, the model that writes its plans, who
stands in for it), the workers of the pool with their checks, prices and stand-ins, and the judge. Invariant: what
changes a sample changes the version; what only changes how fast it comes (how many calls at once, how many a second)
does not. A version too many costs time and no money, since replies are kept by worker and messages (see
`evaluate.calls`).
Deliberately absent: the versions of programs.
"""

import json
from collections.abc import Iterator, Sequence
from hashlib import file_digest, sha256
from pathlib import Path

from shikisha.config import checkpoints, kinds
from shikisha.config.compose import Composition
from shikisha.config.settings import LmTable, PolicyTable, RulesTable, TrainedTable
from shikisha.outcomes import log_hash

_PACE = {"concurrency", "rate"}


def version(composition: Composition, conductor: str, workers: Sequence[str], others: Sequence[object]) -> str:
    """Return the version of an entrant: its conductor, the pool's workers, and whatever else its samples hang on."""
    parts = [*others, *_conductor(composition, conductor, set()), *workers]
    for name in workers:
        parts += _worker(composition, name, set())
    return sha256(json.dumps(parts, default=str).encode()).hexdigest()[:12]


def _worker(composition: Composition, name: str, seen: set[str]) -> Iterator[object]:
    """Yield a worker's table with what it names, each once; nothing for one that no file configures."""
    table = composition.workers.get(name)
    if table is None or f"worker {name}" in seen:
        return
    seen.add(f"worker {name}")
    yield table.model_dump(mode="json", exclude=_PACE)
    for entry in table.checks:
        check = composition.checks[entry.check]
        yield check.model_dump(mode="json")
        yield from _worker(composition, getattr(check, "worker", ""), seen)
    if table.kind == kinds.CONDUCTOR:
        yield from _conductor(composition, getattr(table, "conductor", ""), seen)
    log = getattr(table, "log", None)
    if isinstance(log, Path):
        yield log_hash(composition.folder / log)


def _conductor(composition: Composition, name: str, seen: set[str]) -> Iterator[object]:
    """Yield a conductor's name with what it reads: its table, rules, the worker that writes its plans, its stand-in."""
    if f"conductor {name}" in seen:
        return
    seen.add(f"conductor {name}")
    yield name
    table = composition.settings.conductors.get(name)
    kind, _, rest = name.partition(":")
    endpoint, fallback = "", ""
    if table is not None:
        yield table.model_dump(mode="json")
        if isinstance(table, RulesTable):
            yield _text(composition.folder / table.file)
        if isinstance(table, PolicyTable):
            yield _policy(composition.folder / table.file)
        if isinstance(table, LmTable):
            endpoint, fallback = table.endpoint, table.fallback or ""
        if isinstance(table, TrainedTable):
            fallback = table.fallback or ""
            yield from checkpoints.hashes(table.path, composition.folder)
    elif kind == "rules":
        yield _text(Path(rest))
    elif kind == "policy":
        yield _policy(Path(rest.partition("?")[0]))
    elif kind == "lm":
        endpoint, _, query = rest.partition("?")
        fallback = dict(part.partition("=")[::2] for part in query.split("&")).get("fallback", "")
        if endpoint not in composition.names and checkpoints.is_checkpoint(endpoint):
            yield from checkpoints.hashes(endpoint, Path())
    yield from _worker(composition, endpoint, seen)
    if fallback:
        yield from _conductor(composition, fallback, seen)


def _policy(path: Path) -> str:
    """Return what says which policy acts: a file's hash, or what a shelf says."""
    if path.is_dir():
        return _text(path / "shelf.json")
    if not path.is_file():
        return ""
    with path.open("rb") as opened:
        return file_digest(opened, "sha256").hexdigest()


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.is_file() else ""
