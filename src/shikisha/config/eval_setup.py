"""The stage of an evaluation: its tasks, its workers, and how a specification becomes an entrant, in any process.

Invariants: what a Setup says is plain data, and the same Setup makes the same stage on every machine; workers that cost
money answer through the response cache; a key that is missing, a sandbox that cannot be had, a taskset that cannot be
read are errors before the first call. Whoever sets a stage leaves it (`set_stage` is a context). Deliberately absent:
which entrants play, and when (`evaluate.casting`, `evaluate.course`).

What an evaluation cannot be played with, said before anybody is called.

Invariant: whatever would spoil samples one by one (a person who is not there, a price that nobody knows where dollars
are counted, two entrants of one name) is an error at the beginning. Deliberately absent: what the configuration itself
refuses (`load`, `compose`).

Versions: a hash of what decides an entrant's samples besides the task and how it is graded.

It takes in the conductor with all that it hangs on (its table, rules, policy, the model that writes its plans, who
stands in for it), the workers of the pool with their checks, prices and stand-ins, and the judge. Invariant: what
changes a sample changes the version; what only changes how fast it comes (how many calls at once, how many a second)
does not. A version too many costs time and no money, since replies are kept by worker and messages (see
`evaluate.calls`).
Deliberately absent: the versions of programs.
"""

import gc
import json
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import asdict, dataclass, field, replace
from hashlib import file_digest, sha256
from pathlib import Path

from shikisha.conductors.fixed_conductors import ScriptedConductor
from shikisha.config import adapters, conductors
from shikisha.config.container import Container, load_config
from shikisha.config.eval_tasks import EvaluationTasks, load_evaluation_tasks
from shikisha.config.grader_services import open_judge, sandbox_named
from shikisha.config.settings import FixedTable, LmTable, PolicyTable, RulesTable, TrainedTable
from shikisha.core.errors import ConfigError
from shikisha.core.plan import Plan, Step
from shikisha.engine.conductor import Conductor
from shikisha.engine.engine import Engine
from shikisha.engine.pool import Member, Pool
from shikisha.engine.recorder import MemoryRecorder, Recorder
from shikisha.engine.worker import ApprovalMode, Card
from shikisha.evals.baselines import VOTE, WEIGH, EntrantSpec
from shikisha.evals.graders import GraderTools
from shikisha.evals.graders.canonical_form import AnswerForm
from shikisha.evals.report import ORACLE
from shikisha.evals.response_cache import UNCACHED_KINDS, CachedWorker, EvaluationBudget, ResponseCache
from shikisha.evals.runner import TaskRunner
from shikisha.evals.samples import Entrant
from shikisha.evals.taskset import TaskItem
from shikisha.journal import open_journal
from shikisha.outcomes.log_reader import log_hash
from shikisha.workers.replay import ReplayContent
from shikisha.workers.vote import VoteWorker

_RESERVED_NAMES = ("best fixed (", "self-consistency ×")


def refuse_worker(card: Card, counts: float, limit: float | None) -> None:
    """Refuse a worker that needs a person, or that has no price where the reward or a limit `counts` dollars."""
    if card.kind == "human" or card.approval is not ApprovalMode.NEVER:
        why = "is a person" if card.kind == "human" else "needs a person's approval"
        raise ConfigError(f"workers.{card.name}: it {why}, and an evaluation has nobody to ask")
    if card.price is None and card.kind not in UNCACHED_KINDS and (counts or limit is not None):
        what = "--dollars: what cannot be priced is not called" if limit is not None else "reward.cost counts dollars"
        raise ConfigError(f"workers.{card.name}: it has no price ({what})")


def refuse_vote_counter_names(pool: Pool) -> None:
    """Refuse a worker that has the name of a counter of votes and counts none."""
    for card in pool.cards:
        if card.name in (VOTE, WEIGH) and card.kind != "vote":
            raise ConfigError(f"workers.{card.name}: fixed topologies join votes by this name: choose another")


def refuse_duplicate_names(specs: Sequence[EntrantSpec]) -> None:
    """Refuse two entrants of one name, and names that only ours may have."""
    seen = {ORACLE.name}
    for spec in specs:
        if spec.name in seen or spec.name.startswith(_RESERVED_NAMES):
            raise ConfigError(
                f"two entrants would be called {spec.name!r}: leave one out, or give it another name as LABEL=CONDUCTOR"
            )
        seen.add(spec.name)


_RATE_KEYS = {"concurrency", "rate"}


def entrant_version(composition: Container, conductor: str, workers: Sequence[str], others: Sequence[object]) -> str:
    """Return the version of an entrant: its conductor, the pool's workers, and whatever else its samples hang on."""
    parts = [*others, *_conductor_parts(composition, conductor, set()), *workers]
    for name in workers:
        parts += _worker_parts(composition, name, set())
    return sha256(json.dumps(parts, default=str).encode()).hexdigest()[:12]


def _worker_parts(composition: Container, name: str, seen: set[str]) -> Iterator[object]:
    """Yield a worker's table with what it names, each once; nothing for one that no file configures."""
    table = composition.workers.get(name)
    if table is None or f"worker {name}" in seen:
        return
    seen.add(f"worker {name}")
    yield table.model_dump(mode="json", exclude=_RATE_KEYS)
    for entry in table.checks:
        check = composition.checks[entry.check]
        yield check.model_dump(mode="json")
        yield from _worker_parts(composition, getattr(check, "worker", ""), seen)
    if table.kind == adapters.CONDUCTOR:
        yield from _conductor_parts(composition, getattr(table, "conductor", ""), seen)
    log = getattr(table, "log", None)
    if isinstance(log, Path):
        yield log_hash(composition.folder / log)


def _conductor_parts(composition: Container, name: str, seen: set[str]) -> Iterator[object]:
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
            yield _file_text(composition.folder / table.file)
        if isinstance(table, PolicyTable):
            yield _policy_hash(composition.folder / table.file)
        if isinstance(table, LmTable):
            endpoint, fallback = table.endpoint, table.fallback or ""
        if isinstance(table, TrainedTable):
            fallback = table.fallback or ""
            yield from conductors.checkpoint_hashes(table.path, composition.folder)
    elif kind == "rules":
        yield _file_text(Path(rest))
    elif kind == "policy":
        yield _policy_hash(Path(rest.partition("?")[0]))
    elif kind == "lm":
        endpoint, _, query = rest.partition("?")
        fallback = dict(part.partition("=")[::2] for part in query.split("&")).get("fallback", "")
        if endpoint not in composition.names and conductors.is_checkpoint(endpoint):
            yield from conductors.checkpoint_hashes(endpoint, Path())
    yield from _worker_parts(composition, endpoint, seen)
    if fallback:
        yield from _conductor_parts(composition, fallback, seen)


def _policy_hash(path: Path) -> str:
    """Return what says which policy acts: a file's hash, or what a shelf says."""
    if path.is_dir():
        return _file_text(path / "shelf.json")
    if not path.is_file():
        return ""
    with path.open("rb") as opened:
        return file_digest(opened, "sha256").hexdigest()


def _file_text(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.is_file() else ""


@dataclass(frozen=True, slots=True)
class EvaluationSetup:
    """What an evaluation is of, as plain data: an outcome log or a taskset, and who works.

    `keep` is the folder that samples and replies are kept in, and `evaluation` what every run's id begins with.
    `reply` is what a replayed worker answers with: the extracted answer, its full text, or both. `dollars` is the most
    that one command may spend.
    """

    keep: str
    evaluation: str = "evaluation"
    log: str | None = None
    taskset: str | None = None
    data: str | None = None
    split: str | None = None
    tasks: int | None = None
    seed: int = 0
    workers: tuple[str, ...] = ()
    config: str | None = None
    judge: str | None = None
    checker: str | None = None
    sandbox: str = ""
    dollars: float | None = None
    journal: str | None = None
    reply: ReplayContent = "answer"

    def dumps(self) -> str:
        """Return it as a line of JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def loads(cls, line: str) -> "EvaluationSetup":
        """Return the setup that `dumps` wrote."""
        setup = cls(**json.loads(line))
        return replace(setup, workers=tuple(setup.workers))


@dataclass(slots=True)
class EvaluationStage:
    """A set stage: the tasks and workers gathered, who plays, and the composition that conductors come from."""

    setup: EvaluationSetup
    composition: Container
    tasks: EvaluationTasks
    player: TaskRunner
    _pools: dict[tuple[AnswerForm, tuple[float, ...]], Pool] = field(default_factory=dict)

    def entrant(self, spec: EntrantSpec) -> Entrant:
        """Return the entrant of a specification; UnknownName or ConfigError when it cannot be cast."""
        pool, conductor = self._pool(spec), self._conductor(spec)
        version = self._version(spec)
        return Entrant(spec.name, conductor, pool, spec.part, spec.worker, spec.note, version, spec.cache_only)

    def _conductor(self, spec: EntrantSpec) -> Conductor:
        found = self.tasks.conductor(spec)
        if found is not None:
            return found
        pool = self.tasks.pool
        if spec.subtask and pool is not None and spec.worker is not None:
            return ScriptedConductor([Plan((Step(spec.subtask, pool.names.index(spec.worker)),))], spec.conductor)
        if pool is not None and self._counts(spec):
            pool = self._counted(pool, AnswerForm.TEXT, spec.weights)
        return self.composition.conductor(spec.conductor, pool)

    def _counts(self, spec: EntrantSpec) -> bool:
        """Whether the conductor is a fixed topology, which may join by the counters of votes."""
        table = self.composition.settings.conductors.get(spec.conductor)
        if isinstance(table, FixedTable) and WEIGH in table.roles.values():
            raise ConfigError(
                f"conductors.{spec.conductor}: {WEIGH!r} weighs votes by what an evaluation finds on the dev split: "
                f"ask for it as --conductor fixed:{table.topology}?workers=...&join={WEIGH}"
            )
        return isinstance(table, FixedTable) or spec.conductor.startswith("fixed:")

    def _pool(self, spec: EntrantSpec) -> Callable[[TaskItem], Pool]:
        shared = self.tasks.pool
        if shared is None:
            return self._brought(spec)
        if not self._counts(spec):
            return lambda _: shared
        return lambda item: self._counted(shared, answer_form(item), spec.weights)

    def _brought(self, spec: EntrantSpec) -> Callable[[TaskItem], Pool]:
        own, brought = self.tasks.bundled, self.tasks.pool_of(spec)
        if own is None or not own.counted or not self._counts(spec):
            return brought
        return lambda item: _with_vote_counters(brought(item), answer_form(item), spec.weights)

    def _counted(self, pool: Pool, form: AnswerForm, weights: tuple[float, ...]) -> Pool:
        """Return the pool with the counters of votes behind it, which fixed topologies may join by."""
        key = (form, weights)
        if key not in self._pools:
            self._pools[key] = _with_vote_counters(pool, form, weights)
        return self._pools[key]

    def _version(self, spec: EntrantSpec) -> str:
        """Return a hash of what decides an entrant's samples besides the task."""
        setup, pool = self.setup, self.tasks.pool
        configured = pool is not None and setup.log is None
        names = pool.names if pool is not None else setup.workers
        judge = setup.judge and self.composition.fingerprint(setup.judge)
        others = [spec.weights, setup.reply, setup.log, judge, () if configured else names]
        others += [more for more in (spec.pool, spec.subtask) if more]
        return entrant_version(self.composition, spec.conductor, names if configured else (), others)


@asynccontextmanager
async def open_stage(setup: EvaluationSetup, part: str = "0") -> AsyncIterator[EvaluationStage]:
    """Set the stage; `part` names this process among those that work on the same evaluation."""
    async with AsyncExitStack() as stack:
        composition = load_config(Path(setup.config) if setup.config else None)
        stack.push_async_callback(composition.aclose)
        calls = ResponseCache(Path(setup.keep), part)
        stack.push_async_callback(calls.aclose)
        purse = EvaluationBudget(setup.dollars)
        composition.wrap = _reply_cache(composition, calls, purse)
        sandbox = sandbox_named(setup.sandbox)
        tools = GraderTools(sandbox, open_judge(composition, setup.judge))
        gathered = load_evaluation_tasks(setup, composition, tools)
        if gathered.pool is not None:
            refuse_vote_counter_names(gathered.pool)
        if any(item.checker.name == "code" for item in (*gathered.items, *gathered.dev)):
            await sandbox.probe()
        recorder: Recorder = MemoryRecorder()
        if setup.journal:
            recorder = await stack.enter_async_context(open_journal(setup.journal))
        player = TaskRunner(
            Engine(recorder, vault=composition.vault, guarded=composition.guarded_labels),
            recorder,
            setup.evaluation,
            composition.caps,
            composition.settings.reward.weights(),
            purse,
            composition.resolved(),
        )
        yield EvaluationStage(setup, composition, gathered, player)


def _reply_cache(composition: Container, calls: ResponseCache, purse: EvaluationBudget) -> Callable[[Member], Member]:
    def wrap(member: Member) -> Member:
        fingerprint = composition.fingerprint(member.card.name)
        refuse_worker(member.card, composition.settings.reward.cost, purse.limit)
        if fingerprint is None or member.card.kind in UNCACHED_KINDS:
            return member
        return replace(member, worker=CachedWorker(member, fingerprint, calls, purse))

    return wrap


def _with_vote_counters(pool: Pool, form: AnswerForm, weights: tuple[float, ...]) -> Pool:
    votes = {VOTE: VoteWorker(form), WEIGH: VoteWorker(form, weights)}
    return Pool(
        [*pool, *(Member(Card(name, kind="vote"), vote) for name, vote in votes.items() if name not in pool.names)]
    )


@contextmanager
def frozen_heap() -> Iterator[None]:
    """Keep the garbage collector from looking at every task and sample again and again, and finding nothing."""
    gc.collect()
    gc.freeze()
    usual = gc.get_threshold()
    gc.set_threshold(200_000, 20, 100)  # more than a thousand runs in flight hold, or each wave of them is looked at
    try:
        yield
    finally:
        gc.set_threshold(*usual)
        gc.unfreeze()


def answer_form(item: TaskItem) -> AnswerForm:
    """Return the canonical form in which answers to this task are compared."""
    form = getattr(item.checker, "form", None)
    return form if isinstance(form, AnswerForm) else AnswerForm.TEXT
