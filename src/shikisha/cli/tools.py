"""`tools`: pin catalogues of tools, compare them with their sources, find tools, try one, and learn which are right.

Invariants: only `pin` changes what agents may call, and it says what changed; `try` calls through the engine, with its
caps, its journal and a person's approval where the configuration wants one; a ranker is written only where the
comparison on held-out queries excludes harm.
"""

import json as json_text
from collections.abc import Mapping, Sequence
from contextlib import aclosing, nullcontext
from pathlib import Path
from typing import Annotated

import typer

from shikisha.cli import output, session
from shikisha.cli.approval_prompt import choose_approver
from shikisha.cli.exit_codes import ExitCode
from shikisha.cli.options import JsonOption, SharedOptions, command
from shikisha.conductors.fixed_conductors import ScriptedConductor
from shikisha.config.adapters import require_extra
from shikisha.config.container import Container, load_config
from shikisha.core import toml
from shikisha.core.errors import ConfigError, TaskError, UnknownName
from shikisha.core.events import RunStatus
from shikisha.core.plan import Plan, Step
from shikisha.core.run import Run
from shikisha.core.secrets import SecretStore
from shikisha.core.task import Task
from shikisha.core.text import one_line
from shikisha.engine.engine import Engine
from shikisha.engine.pool import Pool
from shikisha.tools.catalogue import FoundTool, ToolSearch, tool_json
from shikisha.tools.catalogue_entry import ReadCatalogue
from shikisha.tools.catalogue_settings import CatalogueOptions, JsonlCatalogue, OpenApiCatalogue
from shikisha.tools.catalogue_source import read_source
from shikisha.tools.lock_file import CatalogueDifference, CatalogueLock, compare_catalogues, read_lock, write_lock

_MAX_SHOWN = 20
_MAX_ABOUT = 90
Names = Annotated[list[str] | None, typer.Argument(metavar="NAME", help="Catalogues by name; by default all of them.")]
OneName = Annotated[str, typer.Argument(metavar="NAME", help="A catalogue of [catalogues].")]
Query = Annotated[str, typer.Argument(metavar="TEXT", help="What the tool should do, in words.")]
From = Annotated[list[str] | None, typer.Option("--in", help="A catalogue to search; may be repeated.")]
Limit = Annotated[int, typer.Option("--limit", "-n", min=1, max=50, help="The most tools to show.")]
ToolPath = Annotated[str, typer.Argument(metavar="CATALOGUE/TOOL", help="The tool to call.")]
Arguments = Annotated[str, typer.Argument(metavar="JSON", help="Its arguments, as a JSON object.")]
Check = Annotated[bool, typer.Option("--check", help="Only say what differs from the lock files.")]
Source = Annotated[str, typer.Argument(metavar="SOURCE", help="An OpenAPI document (.json, .yaml) or .jsonl file.")]
NewName = Annotated[str, typer.Option("--name", help="The name of the catalogue; by default that of the file.")]
Out = Annotated[Path, typer.Option("--out", "-o", help="The ranker file to write.")]


def pin(shared: SharedOptions, names: Names = None, check: Check = False) -> ExitCode:
    """Pin the tools of catalogues as their sources have them now.

    Reads each source, says what differs from the lock file, and writes the lock file. What cannot be used is listed and
    left out. Agents are offered pinned tools only. With --check nothing is written, and the exit code is 1 if any tool
    was added, removed or changed.
    """
    sources = session.run_async(lambda: _read_sources(load_config(shared.config), names or (), pinned=check))
    report: dict[str, Mapping[str, object]] = {}
    for name, (path, read, difference, server) in sources.items():
        report[name] = {
            "added": list(difference.added),
            "removed": list(difference.removed),
            "changed": dict(difference.changed),
            "server": difference.moved,
            "refused": {each.name: each.reason for each in read.refused},
        }
        if not shared.json:
            _print_difference(name, difference, read)
        if check:
            if not shared.json:
                output.print_answer(f"{name}: {'as pinned' if difference.empty else 'NOT as pinned'}")
            continue
        if read.refused and not read.entries:
            raise ConfigError(read.refused[0].reason)
        lock = CatalogueLock(name, path.name, read.entries, server)
        write_lock(lock, path)
        report[name] = {"tools": len(read.entries), "sha256": lock.pin, "written": str(path), **report[name]}
        if not shared.json:
            output.print_answer(f'{name}: {len(read.entries):,} tools pinned in {path}\nsha256 = "{lock.pin}"')
    if shared.json:
        output.print_json({"catalogues": report})
    differs = check and not all(difference.empty for _, _, difference, _ in sources.values())
    return ExitCode.FAILED if differs else ExitCode.OK


_Found = dict[str, tuple[Path, ReadCatalogue, CatalogueDifference, str]]


async def _read_sources(container: Container, names: Sequence[str], *, pinned: bool = False) -> _Found:
    """Return, by catalogue, the path of its lock, what its source holds, what differs, and the server it names."""
    found: _Found = {}
    async with aclosing(container):
        for name in _chosen(container, names):
            options, path = container.settings.catalogues[name], container.lock_path(name)
            before = read_lock(path, name) if pinned or path.exists() else CatalogueLock(name, "", ())
            read = await read_source(name, options, container.folder, container.secret_store)
            server = options.named_server
            then = server if before.server is None else before.server
            difference = compare_catalogues(before.entries, read.entries, (then, server))
            found[name] = (path, read, difference, server)
    return found


def _chosen(container: Container, names: Sequence[str]) -> Sequence[str]:
    known = container.settings.catalogues
    if not known:
        raise ConfigError(f"{container.file}: expected a table [catalogues.NAME]; `shikisha tools import` writes one")
    for name in names:
        if name not in known:
            raise UnknownName("catalogue", name, known)
    return names or tuple(known)


def _print_difference(name: str, difference: CatalogueDifference, read: ReadCatalogue) -> None:
    if difference.moved:
        output.print_note(f"{name}: the server is not the one that was pinned: {difference.moved}")
    changed = [f"{tool} ({what})" for tool, what in difference.changed.items()]
    for word, tools in (("added", difference.added), ("removed", difference.removed), ("changed", changed)):
        if tools:
            more = f" and {len(tools) - _MAX_SHOWN:,} more" if len(tools) > _MAX_SHOWN else ""
            output.print_note(f"{name}: {len(tools):,} {word}: {', '.join(tools[:_MAX_SHOWN])}{more}")
    for each in read.refused[:_MAX_SHOWN]:
        output.print_note(f"refused: {one_line(each.reason, 300)}")
    if len(read.refused) > _MAX_SHOWN:
        output.print_note(f"{name}: {len(read.refused):,} refused in all; --json lists them")


def import_(source: Source, name: NewName = "", json: JsonOption = False) -> ExitCode:
    """Read a document of tools, and print the table that configures it.

    Counts what can be used and what cannot. Append the table to shikisha.toml, then run `shikisha tools pin`.
    """
    title = name or Path(source).name.partition(".")[0]
    kind = JsonlCatalogue if source.endswith(".jsonl") else OpenApiCatalogue
    word = "jsonl" if kind is JsonlCatalogue else "openapi"
    options = toml.validate_model(kind, {"kind": word, "source": source}, "tools import")
    read = session.run_async(lambda: read_source(title, options, Path(), SecretStore()))
    calls = {each.call.base_url for each in read.entries if each.call is not None}
    lines = [f"[catalogues.{json_text.dumps(title)}]", f'kind = "{word}"', f"source = {json_text.dumps(source)}"]
    if "" in calls:
        lines.append('base_url = "https://..."  # the document names no server')
    if json:
        counted = {"tools": len(read.entries), "refused": {each.name: each.reason for each in read.refused}}
        output.print_json({"table": "\n".join(lines), **counted})
        return ExitCode.OK
    _print_difference(title, CatalogueDifference((), (), {}), read)
    writes = sum(each.tool.writes for each in read.entries)
    output.print_note(f"{len(read.entries):,} tools, of which {writes:,} may write; {len(read.refused):,} refused")
    output.print_answer("\n".join(lines))
    return ExitCode.OK


def find(query: Query, shared: SharedOptions, catalogues: From = None, limit: Limit = 5) -> ExitCode:
    """Find the tools that fit a subtask, as agents are offered them."""
    container = load_config(shared.config)
    found: list[FoundTool] = []
    for name in _chosen(container, catalogues or ()):
        found += container.catalogue(name).search_now(query, limit)
    found = sorted(found, key=lambda each: -each.score)[:limit]
    if shared.json:
        output.print_json({"tools": [tool_json(each) for each in found]})
        return ExitCode.OK
    rows = [
        (
            f"{each.tool.server}/{each.tool.name}",
            str(each.tool.effect),
            f"{each.score:.2f}",
            one_line(each.tool.description, _MAX_ABOUT),
        )
        for each in found
    ]
    output.print_table(("tool", "effect", "score", "description"), rows, right={"score"})
    return ExitCode.OK if found else ExitCode.FAILED


def try_(tool: ToolPath, shared: SharedOptions, arguments: Arguments = "{}") -> ExitCode:
    """Call one tool and print its result.

    The call is a run of one step: it is journaled, and asks for approval where the configuration wants that.
    """
    catalogue, slash, name = tool.partition("/")
    if not slash or not name:
        raise TaskError(f"{tool!r}: expected CATALOGUE/TOOL")
    run = session.run_async(lambda: _call_tool(shared, catalogue, name, arguments))
    result = run.rounds[0].results[0] if run.rounds and run.rounds[0].results else None
    fault = None if result is None or result.fault is None else str(result.fault)
    if shared.json:
        output.print_json({"run": run.id, "status": str(run.status), "answer": run.answer, "fault": fault})
    elif run.answer is not None:
        output.print_answer(run.answer)
    else:
        output.print_note(f"shikisha: {fault or run.why or run.status} (run {run.id})")
    if run.status is RunStatus.SUSPENDED:
        return ExitCode.WAITING
    return ExitCode.OK if run.answer is not None else ExitCode.FAILED


async def _call_tool(shared: SharedOptions, catalogue: str, name: str, arguments: str) -> Run:
    container = load_config(shared.config)
    async with aclosing(container):
        source = container.catalogue(catalogue)
        pinned = await source.find(name)
        if pinned is None:
            near = [each.tool.name for each in source.search_now(name, 5)]
            raise UnknownName(f"tool of catalogue {catalogue}", name, near)
        pool = Pool([await source.member(pinned)])
        async with session.open_command_journal(shared, container) as journal:
            engine = Engine(
                journal,
                approver=choose_approver(nullcontext),
                secret_store=container.secret_store,
                guarded_labels=container.guarded_labels,
            )
            plan = ScriptedConductor([Plan((Step(arguments, 0),))])
            return await engine.run(Task(arguments), pool, plan, container.caps, config=container.resolved())


def learn(name: OneName, to: Out, shared: SharedOptions) -> ExitCode:
    """Learn from finished steps which tools of a catalogue are right for which subtask.

    Fits a ranker on one half of the queries and compares it with the current one on the other half. The file is written
    only where the interval of the difference excludes harm; exit code 1 otherwise.
    """
    require_extra("learn", "tools learn")
    output.refuse_unwritable(to)
    # Only this command needs scikit-learn.
    from shikisha.tools.tool_judgments import ToolJudgments, gather_judgments, mean_recall, select_ranker

    container = load_config(shared.config)
    options: CatalogueOptions = container.settings.catalogues[_chosen(container, (name,))[0]]
    entries = container.catalogue(name).read().entries
    ranker_file, encoder_file = (file and container.folder / file for file in (options.ranker, options.encoder))
    search = ToolSearch(entries, ranker_file, encoder_file)

    async def gather() -> ToolJudgments:
        async with session.open_existing_journal(shared) as journal:
            return await gather_judgments(journal, name, entries)

    gathered = session.run_async(gather)
    for reason, count in gathered.skipped.items():
        output.print_note(f"left out: {count:,} {reason}")
    if encoder_file is not None:
        shipped, own = (mean_recall(each.search, gathered.judgments) for each in (ToolSearch(entries), search))
        queries = len(gathered.judgments)
        output.print_note(f"encoder: recall at 5 on {queries:,} queries: {shipped:.3f} → {own:.3f} with {encoder_file}")
    ranker, gain = select_ranker(search.search, gathered.judgments, search.ranker, f"catalogue {name}")
    if gain.excludes_harm:
        output.write_file(to, ranker.dump())
    figures = {"queries": gain.queries, "before": gain.before, "after": gain.after, "low": gain.low, "high": gain.high}
    if shared.json:
        output.print_json({"written": str(to) if gain.excludes_harm else None, **figures})
    else:
        said = f"recall at 5 on {gain.queries} held-out queries: {gain.before:.3f} → {gain.after:.3f}"
        output.print_answer(f"{said} (95 % interval of the difference: {gain.low:+.3f} to {gain.high:+.3f})")
        kept = f"written: {to}; name it as `ranker` in [catalogues.{name}]"
        output.print_note(kept if gain.excludes_harm else "not written: the interval does not exclude harm")
    return ExitCode.OK if gain.excludes_harm else ExitCode.FAILED


group = typer.Typer(
    help="Pin, find, try and learn the tools of catalogues.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)
group.command("pin")(command(pin))
group.command("import")(command(import_))
group.command("find")(command(find))
group.command("try")(command(try_))
group.command("learn")(command(learn))
