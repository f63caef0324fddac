"""The version of what answers: a hash of a conductor, its workers, and all that they depend on.

Evaluations name entrants by it, and the server its models, which need nothing else of an evaluation. Invariant: what
may change an answer (a table, a file of rules, a policy, a checkpoint, a recorded log) changes the version; limits on
the rate of calls do not.
"""

import json
from collections.abc import Iterator, Sequence
from hashlib import file_digest, sha256
from pathlib import Path

from shikisha.config import adapters, conductors
from shikisha.config.conductor_settings import LmTable, PolicyTable, RulesTable
from shikisha.config.container import Container, agent_tools
from shikisha.outcomes.log_reader import log_hash

_RATE_KEYS = {"concurrency", "rate"}


def entrant_version(composition: Container, conductor: str, workers: Sequence[str], others: Sequence[object]) -> str:
    """Return the version of an entrant: a hash of its conductor, its workers, and other parts."""
    parts = [*others, *_conductor_parts(composition, conductor, set()), *workers]
    for name in workers:
        parts += _worker_parts(composition, name, set())
    return sha256(json.dumps(parts, default=str).encode()).hexdigest()[:12]


def _worker_parts(composition: Container, name: str, seen: set[str]) -> Iterator[object]:
    """Yield the table of a worker with what it refers to, each once; nothing for a worker without a table."""
    table = composition.workers.get(name)
    if table is None or f"worker {name}" in seen:
        return
    seen.add(f"worker {name}")
    yield table.model_dump(mode="json", exclude=_RATE_KEYS)
    for entry in table.checks:
        check = composition.checks[entry.check]
        yield check.model_dump(mode="json")
        yield from _worker_parts(composition, getattr(check, "worker", ""), seen)
    for other in (getattr(table, "endpoint", ""), *agent_tools(table)):
        yield from _worker_parts(composition, other, seen)
    if table.kind == adapters.CONDUCTOR:
        yield from _conductor_parts(composition, getattr(table, "conductor", ""), seen)
    log = getattr(table, "log", None)
    if isinstance(log, Path):
        yield log_hash(composition.folder / log)


def _conductor_parts(composition: Container, name: str, seen: set[str]) -> Iterator[object]:
    """Yield the name of a conductor with what it depends on: table, rules, planning worker, fallback."""
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
            yield _file_text(composition.folder / table.file)
        if isinstance(table, PolicyTable):
            yield _policy_hash(composition.folder / table.file)
        if isinstance(table, LmTable):
            endpoint, fallback = table.endpoint, table.fallback or ""
        if table.kind == conductors.TRAINED:
            fallback = getattr(table, "fallback", "") or ""
            yield from conductors.checkpoint_hashes(getattr(table, "path", ""), composition.folder)
    elif kind == "rules":
        yield _file_text(Path(rest))
    elif kind == "policy":
        yield _policy_hash(Path(rest.partition("?")[0]))
    elif kind == "learned":
        yield _file_text(composition.folder / composition.settings.learning.folder / "index.json")
        fallback = rest
    elif kind == "team" and (target := rest.partition("?")[0]) in composition.settings.teams:
        yield from _team_parts(composition, target, seen)
    elif kind == "lm":
        endpoint, _, query = rest.partition("?")
        fallback = dict(part.partition("=")[::2] for part in query.split("&")).get("fallback", "")
        if endpoint not in composition.names and conductors.is_checkpoint(endpoint):
            yield from conductors.checkpoint_hashes(endpoint, Path())
    yield from _worker_parts(composition, endpoint, seen)
    if fallback:
        yield from _conductor_parts(composition, fallback, seen)


def _team_parts(composition: Container, name: str, seen: set[str]) -> Iterator[object]:
    yield composition.settings.teams[name]
    team = composition.team(name)
    for other in team.conductors:
        yield from _conductor_parts(composition, other, seen)
    for worker in composition.team_workers(team.member_names):
        yield from _worker_parts(composition, worker, seen)


def _policy_hash(path: Path) -> str:
    """Return what identifies a policy: the hash of its file, or the text of its registry."""
    if path.is_dir():
        return _file_text(path / "shelf.json")
    if not path.is_file():
        return ""
    with path.open("rb") as opened:
        return file_digest(opened, "sha256").hexdigest()


def _file_text(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.is_file() else ""
