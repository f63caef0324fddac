"""Shikisha in a few lines of Python: workers in, a run, its answer.

    Shikisha(workers=["openai:gpt-5-mini", invoices]).run("What does ACME owe us?").answer

It is the same container, engine and journal that the command line uses, from tables that are written here instead of a
file. Invariants: a worker and its connections belong to the event loop that uses them (`run` has one in a thread of its
own, so that it works in a notebook too; `arun` and `stream` use the caller's); a run without an answer is
a RunFailed.
Deliberately absent: whatever a table of the configuration says already (`settings` takes those).

A run as a notebook shows it: its answer and cost, the plan as a graph, what each step saw, said and cost.
"""

import asyncio
import json
import os
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from html import escape
from inspect import isroutine
from pathlib import Path
from threading import Lock, Thread, current_thread
from typing import Generic, Protocol, Self, TypeAlias, TypeVar, cast, overload, runtime_checkable
from weakref import finalize

from pydantic import BaseModel, ValidationError

from shikisha.conductors.fixed_conductors import fixed_conductor
from shikisha.conductors.topologies import RoleAssignment, TopologyOptions
from shikisha.config.container import Container, build_container
from shikisha.config.context_source import answer_steps, context_source
from shikisha.config.discovery import find_endpoints, found_tables
from shikisha.config.environment import DISCOVERY_VARIABLE
from shikisha.config.providers import PROVIDERS, ChatProvider, is_free, is_own_address, known_price, reach_keys
from shikisha.core.budget import format_dollars
from shikisha.core.errors import ConfigError, RunFailed, TaskError, UnknownName
from shikisha.core.events import Event, PlanProposed
from shikisha.core.fast_dataclass import dataclass, field, replace
from shikisha.core.plan import Plan
from shikisha.core.run import Run
from shikisha.core.task import Task
from shikisha.core.text import one_line
from shikisha.core.toml import first_invalid
from shikisha.engine.conductor import Conductor
from shikisha.engine.engine import Engine
from shikisha.engine.pool import Agent, Member, Pool
from shikisha.engine.recorder import MemoryRecorder, Recorder
from shikisha.engine.worker import Card, Reply, Request, Worker
from shikisha.explain import Explanation, explain, explain_text
from shikisha.explain.explanation import RoundExplanation, StepExplanation
from shikisha.journal import open_journal
from shikisha.plots.run_charts import wide_plan_graph
from shikisha.workers.function_tools import FunctionWorker, ToolFunction, function_tools
from shikisha.workers.provider_profile import profile_named

_LABEL, _CELL = 24, 300  # characters
_BOX = "fill='none' stroke='currentColor' stroke-width='1.5'"


def run_html(answer: str, summary: str, explanation: Explanation) -> str:
    """Return the run as a piece of HTML."""
    rounds = "".join(_round_html(each) for each in explanation.rounds if each.steps)
    return (
        f"<div><p style='white-space:pre-wrap'>{escape(answer)}</p><p><small>{escape(summary)}</small></p>{rounds}"
        f"<details><summary>Who did what</summary><pre>{escape(explain_text(explanation))}</pre></details></div>"
    )


def _round_html(round_: RoundExplanation) -> str:
    rows = "".join(
        f"<tr><td>{step.step}</td><td>{escape(_worker(step))}</td><td>{escape(one_line(step.subtask, _CELL))}</td>"
        f"<td>{', '.join(str(seen.step) for seen in step.seen) or '–'}</td>"
        f"<td>{escape(one_line(step.answer or step.fault or '', _CELL))}</td><td>{_cost(step)}</td></tr>"
        for step in round_.steps
    )
    heads = "".join(f"<th>{head}</th>" for head in ("step", "worker", "subtask", "saw", "result", "cost"))
    return f"{_graph(round_)}<table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>"


def _worker(step: StepExplanation) -> str:
    return step.worker or step.planned


def _cost(step: StepExplanation) -> str:
    known = [call.dollars for call in step.calls]
    return "?" if any(each is None for each in known) else format_dollars(sum(each or 0.0 for each in known))


def _graph(round_: RoundExplanation) -> str:
    """Return the plan as an SVG: a box for each step, an arrow from each result to a step that may see it."""
    graph = wide_plan_graph([[seen.step for seen in step.seen] for step in round_.steps])
    parts = []
    for box, step in zip(graph.boxes, round_.steps, strict=True):
        x, y = box.x + 10, box.y + 24
        weight = "bold" if box.answers else "normal"
        parts += [
            f"<rect x='{box.x:g}' y='{box.y:g}' width='{graph.box_width:g}' height='{graph.box_height:g}' {_BOX}/>",
            f"<text x='{x:g}' y='{y:g}' font-weight='{weight}'>{escape(one_line(_worker(step), _LABEL))}</text>",
            f"<text x='{x:g}' y='{y + 20:g}' opacity='.7'>{escape(one_line(step.subtask, _LABEL))}</text>",
        ]
    parts += [
        f"<path d='{each.path}' {_BOX}/><circle cx='{each.tip[0]:g}' cy='{each.tip[1]:g}' r='3' fill='currentColor'/>"
        for each in graph.arrows
    ]
    return (
        f"<svg role='img' aria-label='{escape(_in_words(round_))}' width='{graph.width:g}' height='{graph.height:g}' "
        f"viewBox='0 0 {graph.width:g} {graph.height:g}' font-family='sans-serif' font-size='13' fill='currentColor'>"
        f"{''.join(parts)}</svg>"
    )


def _in_words(round_: RoundExplanation) -> str:
    return "; ".join(_words(round_))


def _words(round_: RoundExplanation) -> Iterator[str]:
    for step in round_.steps:
        seen = ", ".join(str(each.step) for each in step.seen)
        yield f"step {step.step}: {one_line(_worker(step), _LABEL)}{f' sees {seen}' if seen else ''}"


T_co = TypeVar("T_co", covariant=True)
M = TypeVar("M", bound=BaseModel)
R = TypeVar("R")
WorkerSpec: TypeAlias = str | Mapping[str, object] | Worker | ToolFunction

_CLOSING_SECONDS = 5.0  # how long dropping the object may wait for its thread
_HERE = "Shikisha"  # names these tables in errors, as the path of a file would
_ALIASES: Mapping[str, str] = {"lmstudio": "lm_studio", "vllm": "hosted_vllm"}
_CHAT_PROVIDERS: Mapping[str, ChatProvider] = {
    **{name: known for name, known in PROVIDERS.items() if not known.instead},
    **{name: PROVIDERS[other] for name, other in _ALIASES.items()},
}


@runtime_checkable
class _Performs(Protocol):
    """Any object with the one method of a worker."""

    async def perform(self, request: Request) -> Reply:
        """Answer the request."""
        ...


@dataclass(frozen=True, slots=True)
class TaskAnswer(Generic[T_co]):
    """The end of a run: its answer, its cost, who answered, and the whole run behind it."""

    answer: T_co
    run: Run
    explanation: Explanation = field(repr=False)

    @property
    def dollars(self) -> float | None:
        """What it cost; None where a worker's price is not known."""
        return self.explanation.totals.dollars

    @property
    def workers(self) -> tuple[str, ...]:
        """The workers that performed its steps, in order of the plan."""
        names = (step.worker for round_ in self.explanation.rounds for step in round_.steps)
        return tuple(dict.fromkeys(name for name in names if name))

    def __str__(self) -> str:
        return f"{self.answer}\n— {self._summary()}"

    def _repr_html_(self) -> str:
        """Return what a notebook shows: the answer, the cost, the plan as a graph, and who saw what."""
        return run_html(str(self.answer), self._summary(), self.explanation)

    def _summary(self) -> str:
        cost = "cost not known" if self.dollars is None else format_dollars(self.dollars)
        return f"{', '.join(self.workers)} · {cost} · {self.explanation.totals.seconds:.1f} s"


@dataclass(frozen=True, slots=True)
class _LoneFunction:
    """A function that is a worker by itself, with no model to call it.

    Its arguments are the subtask as a JSON object, or, where it needs one text alone, the subtask itself. Where the
    plan says no more than to answer the question, that is the task's prompt.
    """

    function: FunctionWorker
    parameter: str | None

    async def perform(self, request: Request) -> Reply:
        """Call the function."""
        given = request.words
        if self.parameter is not None and not given.lstrip().startswith("{"):
            given = json.dumps({self.parameter: given})
        return await self.function.perform(replace(request, subtask=given))


@dataclass(slots=True)
class _Session:
    """What belongs to one event loop: the container with its connections, the pool, the engine and its journal."""

    container: Container
    pool: Pool
    conductor: Conductor
    engine: Engine
    closing: asyncio.Event
    holder: asyncio.Task[None]


class Shikisha:
    """A pool of workers and a conductor: `run` a task, `arun` it, or `stream` its answer.

    `workers`: a model as "provider:model", a table of the configuration as a dict (with `name`, or with `spec` for a
    model and what differs, such as `price` or `base_url`), any object with `perform`, and functions; by default what is
    free here: model servers of this machine, else a model that was pulled. With a chat model
    in the pool, functions are its tools. Alone, a function is a worker whose subtask holds its arguments as JSON, or is
    its one text.
    `conductor` is a name such as "fixed:vote" or an object; by default the first worker that takes
    tasks in words gets the whole task. `budget` is US
    dollars for one run, which needs the price of every worker. `journal` is a file or URL; by default runs are kept in
    memory. `settings` are further tables of `shikisha.toml`. ConfigError says what is wrong or missing.
    """

    def __init__(
        self,
        workers: Sequence[WorkerSpec] = (),
        *,
        conductor: str | Conductor = "",
        budget: float | None = None,
        journal: str | Path | None = None,
        settings: Mapping[str, object] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._environment = os.environ if environment is None else environment
        self._tables, self._objects, self._functions = _sort_workers(
            workers or _free_workers(self._environment), self._environment
        )
        self._conductor, self._budget, self._journal = conductor, budget, journal
        self._settings = dict(settings or {})
        self._sessions: dict[asyncio.AbstractEventLoop, _Session] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: Thread | None = None
        self._stop: Callable[[], object] = lambda: None
        self._lock = Lock()
        self._last: Explanation | None = None
        self._parts()  # so that what is wrong is said here, before any run

    @overload
    def run(self, task: str | Task) -> TaskAnswer[str]: ...
    @overload
    def run(self, task: str | Task, *, answer_type: type[M]) -> TaskAnswer[M]: ...
    def run(self, task: str | Task, *, answer_type: type[BaseModel] | None = None) -> TaskAnswer[object]:
        """Perform a task and return its answer; RunFailed where it ends without one."""
        return self._in_thread(self._perform(task, answer_type))

    @overload
    async def arun(self, task: str | Task) -> TaskAnswer[str]: ...
    @overload
    async def arun(self, task: str | Task, *, answer_type: type[M]) -> TaskAnswer[M]: ...
    async def arun(self, task: str | Task, *, answer_type: type[BaseModel] | None = None) -> TaskAnswer[object]:
        """Perform a task on the caller's event loop; otherwise as `run`."""
        return await self._perform(task, answer_type)

    async def stream(self, task: str | Task) -> AsyncGenerator[str, None]:
        """Yield pieces of the last step's answer as they arrive; RunFailed where the run ends without one.

        A call that is made again begins again. The answer that counts is in `explain()` and in the journal. Leaving
        the loop early cancels the run.
        """
        pieces: asyncio.Queue[str | None] = asyncio.Queue()
        performing = asyncio.create_task(self._perform(task, None, pieces.put_nowait))
        performing.add_done_callback(lambda _: pieces.put_nowait(None))
        some = False
        try:
            while (piece := await pieces.get()) is not None:
                some = True
                yield piece
            result = await performing
            if not some:
                yield str(result.answer)
        finally:
            performing.cancel()
            await asyncio.gather(performing, return_exceptions=True)

    def explain(self) -> str:
        """Return who did what in the last run, what each worker saw, and what it cost; failed runs too."""
        if self._last is None:
            raise TaskError("there is no run to explain yet")
        return explain_text(self._last)

    def close(self) -> None:
        """Close the connections and the journal that `run` opened."""
        with self._lock:
            loop, self._loop = self._loop, None
        if loop is not None:
            try:
                asyncio.run_coroutine_threadsafe(self._close_session(loop), loop).result()
            finally:
                self._stop()

    async def aclose(self) -> None:
        """Close what `arun` and `stream` opened on this event loop, and what `run` opened."""
        await self._close_session(asyncio.get_running_loop())
        await asyncio.to_thread(self.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *raised: object) -> None:
        await self.aclose()

    async def _perform(
        self,
        task: str | Task,
        answer_type: type[BaseModel] | None,
        on_piece: Callable[[str], None] | None = None,
    ) -> TaskAnswer[object]:
        if not isinstance(task, str | Task):
            raise TaskError(f"task: expected a text, or shikisha.Task, not {type(task).__name__}")
        if not (answer_type is None or (isinstance(answer_type, type) and issubclass(answer_type, BaseModel))):
            raise TaskError("answer_type: expected a subclass of pydantic.BaseModel")
        asked = Task(task) if isinstance(task, str) else task
        if answer_type is not None:
            asked = replace(asked, answer_schema=answer_type.model_json_schema())
        session = await self._session()
        events: dict[str, list[Event]] = {}
        last_steps: dict[int, int] = {}

        def observe(event: Event) -> None:
            events.setdefault(event.run, []).append(event)
            if isinstance(event, PlanProposed) and event.run == next(iter(events)):
                last_steps[event.round] = len(Plan.loads(event.plan)) - 1

        def hear(round_: int, step: int, piece: str) -> None:
            if on_piece is not None and last_steps.get(round_) == step:
                on_piece(piece)

        engine = session.engine.with_observers(observe, hear if on_piece else None)
        caps = session.container.caps
        run = await engine.run(asked, session.pool, session.conductor, caps, config=session.container.resolved())
        children = [Run.fold(each) for name, each in events.items() if name != run.id]
        self._last = explanation = explain(run, children)
        if run.answer is None:
            raise RunFailed(run.id, run.why or f"the run is {run.status}")
        return TaskAnswer(_typed(run, answer_type), run, explanation)

    def _parts(self) -> tuple[Container, Pool, Conductor]:
        """Return a container, and the pool and conductor of it; nothing is opened yet."""
        data = {**self._settings, "workers": self._tables}
        if self._budget is not None:
            budgets = self._settings.get("budgets")
            data["budgets"] = {**(budgets if isinstance(budgets, Mapping) else {}), "dollars": self._budget}
        container = build_container(data, _HERE, Path(), self._environment)
        members = list(container.pool()) if self._tables else []
        members += [Member(Card(name), each) for name, each in self._objects.items()]
        pool = Pool(_with_functions(members, self._functions))
        unpriced = [card.name for card in pool.cards if card.price is None]
        if self._budget is not None and unpriced:
            raise ConfigError(
                f'budget: the price of {", ".join(unpriced)} is not known; expected {{"spec": "{unpriced[0]}", '
                '"price": {"input": DOLLARS, "output": DOLLARS}} per million tokens'
            )
        conductor = self._conductor
        if not conductor and "conductor" not in container.settings.model_fields_set:
            first = pool.names[RoleAssignment(pool.cards).text_workers[0]]
            conductor = fixed_conductor(
                "single", TopologyOptions(roles={"worker": first}), name=f"fixed:single?worker={first}"
            )
        if isinstance(conductor, str):
            conductor = container.conductor(conductor or container.settings.conductor, pool)
        return container, pool, conductor

    async def _session(self) -> _Session:
        """Return what belongs to the running event loop, made when it is first used."""
        loop = asyncio.get_running_loop()
        for other in [each for each in self._sessions if each.is_closed()]:
            self._sessions.pop(other, None)
        if loop not in self._sessions:
            container, pool, conductor = self._parts()
            opened: asyncio.Future[Recorder] = loop.create_future()
            closing = asyncio.Event()
            holder = asyncio.create_task(_hold_open(container, self._journal, opened, closing))
            try:
                recorder = await opened
            except BaseException:
                closing.set()
                raise
            engine = Engine(
                recorder,
                secret_store=container.secret_store,
                guarded_labels=container.guarded_labels,
                context_source=context_source(container),
                answer_steps=answer_steps(container),
            ).with_autonomy(container.autonomy_policy())
            made = _Session(container, pool, conductor, engine, closing, holder)
            if loop in self._sessions:  # two first runs at once: the other one was faster
                closing.set()
                await holder
            else:
                self._sessions[loop] = made
        return self._sessions[loop]

    async def _close_session(self, loop: asyncio.AbstractEventLoop) -> None:
        session = self._sessions.pop(loop, None)
        if session is not None:
            session.closing.set()
            await session.holder

    def _in_thread(self, work: Coroutine[object, object, R]) -> R:
        """Return what a coroutine returns on the event loop of this object's own thread."""
        if self._thread is current_thread():  # an async worker of a run, which would wait for itself
            work.close()
            raise ConfigError("run was called inside of a run: there, await arun")
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = Thread(target=_run_loop, args=(self._loop,), name="shikisha", daemon=True)
                self._thread.start()
                # Also where this object is dropped, or the program ends, without a close.
                self._stop = finalize(self, _stop_loop, self._loop, self._thread)
            future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except KeyboardInterrupt:
            future.cancel()
            raise


async def _hold_open(
    container: Container, journal: str | Path | None, opened: asyncio.Future[Recorder], closing: asyncio.Event
) -> None:
    """Keep a journal and a container's connections open, in one task, until they shall close or the loop ends."""
    async with AsyncExitStack() as stack:
        stack.push_async_callback(container.aclose)
        try:
            recorder: Recorder = MemoryRecorder()
            if journal is not None:
                recorder = await stack.enter_async_context(open_journal(str(journal)))
        except Exception as error:  # noqa: BLE001 - it is raised where the journal is waited for
            if not opened.done():
                opened.set_exception(error)
            return
        except asyncio.CancelledError:
            opened.cancel()
            raise
        if not opened.done():
            opened.set_result(recorder)
        await closing.wait()


def _run_loop(loop: asyncio.AbstractEventLoop) -> None:
    """Run a loop until it is stopped, and end its tasks, which close what they hold."""
    try:
        loop.run_forever()
        tasks = asyncio.all_tasks(loop)
        for task in tasks:
            task.cancel()
        if tasks:
            loop.run_until_complete(asyncio.wait(tasks))
    finally:
        loop.close()


def _stop_loop(loop: asyncio.AbstractEventLoop, thread: Thread) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(loop.stop)
    if thread is not current_thread():
        thread.join(_CLOSING_SECONDS)


def _typed(run: Run, answer_type: type[BaseModel] | None) -> object:
    """Return the answer as its type says; RunFailed where validators of the model refuse what its schema allows."""
    if answer_type is None:
        return run.answer
    try:
        return answer_type.model_validate_json(run.answer or "")
    except ValidationError as error:
        raise RunFailed(run.id, f"the answer is no {answer_type.__name__}: {first_invalid(error)}") from None


def _free_workers(environment: Mapping[str, str]) -> Sequence[WorkerSpec]:
    """Return what is free here; it is looked for in a thread, since the caller may have an event loop."""
    local = {**environment, DISCOVERY_VARIABLE: environment.get(DISCOVERY_VARIABLE) or "local"}
    with ThreadPoolExecutor(1) as threads:
        tables = found_tables(threads.submit(find_endpoints, local).result().free)["workers"]
    return [{"name": name, **table} for name, table in cast("Mapping[str, Mapping[str, object]]", tables).items()]


def _sort_workers(
    workers: Sequence[WorkerSpec], environment: Mapping[str, str]
) -> tuple[dict[str, Mapping[str, object]], dict[str, Worker], list[ToolFunction]]:
    """Return the tables and the objects by name, and the functions; ConfigError names the place of what is neither."""
    if isinstance(workers, str) or not workers:
        found = "" if workers else "; no model server runs here, and no model was pulled (`shikisha models pull`)"
        raise ConfigError(
            f'{_HERE}: workers: expected a list of at least one worker, such as ["openai:gpt-5-mini"]{found}'
        )
    tables: dict[str, Mapping[str, object]] = {}
    objects: dict[str, Worker] = {}
    functions: list[ToolFunction] = []
    for place, each in enumerate(workers):
        where = f"{_HERE}: workers[{place}]"
        table: Mapping[str, object] | None
        if isinstance(each, str):
            name, table = each, _chat_table(each, where, environment)
        elif isinstance(each, Mapping):
            name, table = _named_table(each, where, environment)
        elif isroutine(each):
            functions.append(each)
            continue
        elif isinstance(each, _Performs) and not isinstance(each, type):
            name, table = str(getattr(each, "name", "") or type(each).__name__), None
        else:
            raise ConfigError(
                f'{where}: expected "provider:model", a dict, a function or an object with perform, '
                f"not {type(each).__name__}"
            )
        if name in tables or name in objects:
            raise ConfigError(f"{where}: {name!r} is the name of an earlier worker; give it a name of its own")
        if table is None:
            objects[name] = cast("Worker", each)
        else:
            tables[name] = table
    return tables, objects, functions


def _named_table(
    given: Mapping[str, object], where: str, environment: Mapping[str, str]
) -> tuple[str, Mapping[str, object]]:
    """Return the name and [workers.NAME] of a dict."""
    own = {key: value for key, value in given.items() if key not in ("name", "spec")}
    spec = given.get("spec", "")
    name = given.get("name") or spec
    if not isinstance(spec, str) or not isinstance(name, str) or not name:
        raise ConfigError(
            f'{where}: expected "name" and the keys of [workers.NAME], or "spec" as in "openai:gpt-5-mini"'
        )
    if not spec:
        return name, own
    base_url = own.get("base_url")
    return name, {**_chat_table(spec, where, environment, base_url if isinstance(base_url, str) else None), **own}


def _chat_table(
    spec: str, where: str, environment: Mapping[str, str], base_url: str | None = None
) -> dict[str, object]:
    """Return [workers.NAME] of "provider:model"; `base_url`: where the caller knows its address.

    Price and context window are those of the catalogue, where it knows the model and nobody says otherwise: what
    another server asks is not in it.
    """
    named, colon, model = spec.partition(":")
    if not colon or not model:
        known = ", ".join(sorted(_CHAT_PROVIDERS))
        raise ConfigError(f'{where}: expected "provider:model", as "openai:{spec}", not {spec!r}; providers: {known}')
    if named not in _CHAT_PROVIDERS:
        raise ConfigError(f"{where}: {UnknownName('provider', named, _CHAT_PROVIDERS)}")
    provider = _ALIASES.get(named, named)
    table: dict[str, object] = {"description": f"{model}, a language model."}
    try:
        table |= reach_keys(provider, model, environment, base_url)
    except ConfigError as error:
        needed = f'{{"spec": {spec!r}, "base_url": "https://..."}}'
        raise ConfigError(f"{where}: {named} needs its address: {needed} ({error})") from None
    address = str(table["base_url"])
    held = provider == "local" or profile_named(provider).request.schema_mode
    table |= {"tools": True, "structured_output": held}
    if is_free(provider, address):
        return table | {"price": {}}
    return table | known_price(provider, model) if is_own_address(provider, address) else table


def _with_functions(members: list[Member], functions: Sequence[ToolFunction]) -> list[Member]:
    """Return the members with the functions: as tools of those that can call tools, else as workers."""
    if not functions:
        return members
    tools = function_tools(functions)
    if any(member.card.tools for member in members):
        return [
            replace(each, agent=Agent((tools,))) if each.card.tools and not each.agent else each for each in members
        ]
    return members + [_function_member(member) for member in tools.members]


def _function_member(member: Member) -> Member:
    function = cast("FunctionWorker", member.worker)
    fields = function.model.model_fields
    needed = [name for name, each in fields.items() if each.is_required()]
    one_text = len(needed) == 1 and fields[needed[0]].annotation is str
    return replace(member, worker=_LoneFunction(function, needed[0] if one_text else None))
