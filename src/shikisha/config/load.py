"""Finding and reading the configuration: `--config`, else $SHIKISHA_CONFIG, else ./shikisha.toml, else none at all.

Without workers of one's own the embedded orchestra plays, so that everything works without a key. Invariant: after
`load` every reference inside the file (stand-ins, checks, pool, endpoints) names something that is there; errors name
file, key and what was expected. Deliberately absent: merging of several files, and looking in parent folders.
"""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from shikisha import toml
from shikisha.config import kinds
from shikisha.config.compose import Composition
from shikisha.config.settings import LmTable, Settings, WorkerTable
from shikisha.errors import ConfigError, UnknownName
from shikisha.pool import Pool
from shikisha.secrets import Vault

FILE = "shikisha.toml"
VARIABLE = "SHIKISHA_CONFIG"


def find(given: Path | None, environment: Mapping[str, str]) -> Path | None:
    """Return the file to read: the one given, the one that $SHIKISHA_CONFIG names, or ./shikisha.toml, if any."""
    if given is not None:
        return given
    if environment.get(VARIABLE):
        return Path(environment[VARIABLE])
    return Path(FILE) if Path(FILE).is_file() else None


def load(given: Path | None = None, environment: Mapping[str, str] | None = None) -> Composition:
    """Read the configuration; ConfigError names file, key and what was expected."""
    environment = os.environ if environment is None else environment
    path = find(given, environment)
    if path is None:
        folder = state_folder(environment)
        return Composition(Settings(), FILE, folder, Vault(environment), {}, {}, _embedded)
    file = str(path)
    settings = toml.validate(Settings, toml.read(path), file)
    workers = {name: kinds.read_worker(name, data, file) for name, data in settings.workers.items()}
    checks = {name: kinds.read_check(name, data, file) for name, data in settings.checks.items()}
    embedded = None if workers else _embedded
    composition = Composition(settings, file, path.parent, Vault(environment), workers, checks, embedded)
    for key, what, name, known in _references(composition):
        if name not in known:
            raise ConfigError(f"{file}: {key}: {UnknownName(what, name, known)}")
    return composition


def state_folder(environment: Mapping[str, str]) -> Path:
    """Return where a journal lives that no configuration places: $XDG_STATE_HOME/shikisha (XDG base directories)."""
    base = environment.get("XDG_STATE_HOME", "")
    return (Path(base) if Path(base).is_absolute() else Path.home() / ".local" / "state") / "shikisha"


def _references(composition: Composition) -> Iterator[tuple[str, str, str, tuple[str, ...]]]:
    """List every name in the file that must be somewhere else: its key, what it is, the name, and those known."""
    workers, checks = composition.names, tuple(composition.checks)
    for place, name in enumerate(composition.settings.pool or ()):
        yield f"pool[{place}]", "worker", name, workers
    for owner, table in composition.workers.items():
        for stand_in in ("fallback", "escalate", "compensate"):
            if (name := getattr(table, stand_in)) is not None:
                yield f"workers.{owner}.{stand_in}", "worker", name, workers
        for place, entry in enumerate(table.checks):
            yield f"workers.{owner}.checks[{place}]", "check", entry.check, checks
        for place, name in enumerate(_child_pool(table)):
            yield f"workers.{owner}.pool[{place}]", "worker", name, workers
    for place, watched in enumerate(composition.settings.autonomy.classes):
        for number, name in enumerate(watched.workers):
            yield f"autonomy.classes[{place}].workers[{number}]", "worker", name, workers
        for name in watched.under:
            if ":" not in name:
                yield f"autonomy.classes[{place}].conductor", "conductor", name, tuple(composition.settings.conductors)
    for owner, check in composition.checks.items():
        if isinstance(judge := getattr(check, "worker", None), str):
            yield f"checks.{owner}.worker", "worker", judge, workers
    for owner, conductor in composition.settings.conductors.items():
        if isinstance(conductor, LmTable):
            yield f"conductors.{owner}.endpoint", "worker", conductor.endpoint, workers


def _child_pool(table: WorkerTable) -> tuple[str, ...]:
    return (table.pool or ()) if isinstance(table, kinds.ChildSettings) else ()


def _embedded() -> Pool:
    """Return the embedded orchestra: a specialist of each family, the judge, the two simulated models."""
    from shikisha.orchestra.cast import GENERALIST, JUDGE, NOVICE, PROFILES, SPECIALISTS
    from shikisha.orchestra.pools import cast_pool
    from shikisha.orchestra.wording import Split

    chosen = [*SPECIALISTS, PROFILES[JUDGE], PROFILES[NOVICE], PROFILES[GENERALIST]]
    described = [" and ".join(offer.by_split[Split.TRAIN][0] for offer in profile.offers) for profile in chosen]
    return cast_pool([(profile.name, text) for profile, text in zip(chosen, described, strict=True)])
