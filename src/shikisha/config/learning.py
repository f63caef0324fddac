"""Composing what learning needs: a log or a journal read, the ladder climbed, the policy with all that is said of it.

Invariants: what cannot be learned from is refused before anything is fitted; a journal is read through the importer
that makes logs of journals, so both ways lead to the same policy; no password of a database stands in a policy.
Deliberately absent: how a policy is shown, and numpy until something is learned.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from shikisha.errors import ConfigError

if TYPE_CHECKING:
    from shikisha.learn.panel import Panel
    from shikisha.outcomes import Conducted, OutcomeLog
    from shikisha.policy.policy import Policy

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Order:
    """What to learn: from a log's folder, or a `journal` (a file or URL), about which workers (none: all).

    `second` is what a second of waiting is worth in dollars, `speed` what quickness is worth to the rule, `limits` are
    the most shares of the tasks that workers may get, `rung` is the one to keep whatever the evidence says.
    """

    log: Path | None = None
    journal: str = ""
    workers: tuple[str, ...] = ()
    seed: int = 0
    second: float = 0.0
    speed: float = 0.0
    limits: Mapping[str, float] = field(default_factory=dict)
    rung: str = ""


def learn(order: Order, tell: Tell) -> "Policy":
    """Learn a policy; ConfigError for what cannot be learned from. `tell` hears how it goes."""
    with _folder(order, tell) as (folder, name, notes):
        from shikisha.learn.panel import panel_of
        from shikisha.outcomes import conducted, ignored, log_hash, open_log

        tell("reading")
        log = open_log(folder, order.workers)
        notes += tuple(f"a column that nobody reads in {column}" for column in ignored(folder))
        if log.judged:
            notes += (f"{log.judged:.0%} of the scores are a language model's word alone",)
        source = _Source(name, log_hash(folder), _cost_kind(log), notes)
        texts = any((folder / f"responses.{ending}").exists() for ending in ("parquet", "jsonl"))
        return _learn(order, panel_of(log, order.workers, whole=texts), source, conducted(folder), tell)


@dataclass(frozen=True, slots=True)
class _Source:
    """A log's name, hash and kind of costs, and what its making left to say."""

    name: str
    hash: str
    cost_kind: str
    notes: tuple[str, ...]


def _learn(order: Order, panel: "Panel", source: _Source, runs: "Sequence[Conducted]", tell: Tell) -> "Policy":
    from shikisha.learn.caveats import caveats
    from shikisha.learn.coverage import Kind
    from shikisha.learn.coverage import of as coverage_of
    from shikisha.learn.habits import habits
    from shikisha.learn.incumbent import held_against, incumbents, refuse_untold
    from shikisha.learn.joining import completed
    from shikisha.learn.waiting import waited

    panel, found = _typed(panel, tell)
    priced, waits = waited(panel, order.second)
    told = replace(source, notes=(*source.notes, *found, *waits, *caveats(priced)))
    kind, rivals = coverage_of(priced).kind, incumbents(runs)
    whole = kind is Kind.FULL
    if not rivals:
        refuse_untold(runs, kind, priced)
    policy = (_from_all if whole else _from_part)(order, priced, told, tell)
    if order.rung:
        policy = replace(policy, kept=policy.rung(order.rung).name)
    if rivals:
        tell("comparing with the conductor in force")
        policy = held_against(policy, priced, kind, rivals, order.seed)
    tell("counting whom it asks")
    heard = panel.heard(policy.hearing)
    filled = completed(replace(heard, texts=()), order.seed) if whole else heard
    return replace(policy, habits=habits(heard, policy, filled))


def _typed(panel: "Panel", tell: Tell) -> tuple["Panel", tuple[str, ...]]:
    """Return a panel with types of tasks: its own, or found by their words where the log tells none apart."""
    from shikisha.learn.clustering import typed, types_found
    from shikisha.learn.fits import folds_of
    from shikisha.learn.ladder import FEW

    if len(panel.types.names) > 1 or len(panel) < FEW:
        return panel, ()
    tell("finding types of tasks")
    types = types_found(panel, folds_of(panel.hashes, "types"))
    if not len(types.centres):
        return panel, ()
    return typed(panel, types), (
        f"the log tells no types of tasks apart; {len(types.names)} were found by their words",
    )


def _from_all(order: Order, panel: "Panel", source: _Source, tell: Tell) -> "Policy":
    """Climb the ladder: every worker was asked, but for newcomers, who have no part in what is measured."""
    from shikisha.learn.caveats import gaps
    from shikisha.learn.comparing import compared
    from shikisha.learn.fits import Wants
    from shikisha.learn.joining import established
    from shikisha.learn.ladder import Source, climb
    from shikisha.learn.tabling import Preference

    others = established(panel)
    come = Source(source.name, source.hash, source.cost_kind, (*source.notes, *gaps(others)))
    wants = Wants(seed=order.seed, preference=Preference(order.speed, order.limits))
    climbed = climb(panel, wants, come, tell)
    return replace(climbed, yardsticks=climbed.yardsticks or compared(others, order.seed, tell))


def _from_part(order: Order, panel: "Panel", source: _Source, tell: Tell) -> "Policy":
    """Learn what a log supports in which only some were asked."""
    from shikisha.learn.partial import fit_partial
    from shikisha.policy.policy import About

    if order.speed or order.limits:
        raise ConfigError("--speed and --limit need a log in which every worker was asked for every task")
    tell("learning from what was asked")
    today = f"{datetime.now(UTC):%Y-%m-%d}"
    about = About(source.name, source.hash, len(panel), today, source.cost_kind, order.seed, source.notes)
    return fit_partial(panel, order.seed, about)


@contextmanager
def _folder(order: Order, tell: Tell) -> Iterator[tuple[Path, str, tuple[str, ...]]]:
    """Yield the log's folder, its name, and what was left out of it; a journal's log is there for as long."""
    if order.log is not None:
        yield order.log, str(order.log), ()
        return
    from shikisha.importers.files import Sources
    from shikisha.importers.registry import import_outcomes

    if not order.journal:
        raise ConfigError("expected an outcome log, or a journal to learn from")
    tell("reading the journal")
    with TemporaryDirectory(prefix="shikisha-learn-") as made:
        folder = Path(made) / "log"
        written = import_outcomes("journal", Sources([order.journal]), folder, as_lines=True)
        left = tuple(f"left out of the journal: {reason}: {count:,}" for reason, count in written.left.items())
        remarks = tuple(f"in the journal: {what}: {count:,}" for what, count in written.remarks.items())
        yield folder, _shown(order.journal), (*left, *remarks)


def _shown(journal: str) -> str:
    if "://" not in journal:
        return journal
    from shikisha.journal.drivers import shown
    from shikisha.journal.stores import locate

    return shown(locate(journal))


def _cost_kind(log: "OutcomeLog") -> str:
    """Return how most outcomes' costs came about, and what else there is."""
    kinds: Counter[str] = Counter()
    for worker in log.workers:
        kinds.update(outcome.cost_kind or "" for outcome in log.of(worker) if outcome.dollars is not None)
    return " and ".join(kind for kind, _ in kinds.most_common() if kind)
