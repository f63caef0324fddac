"""The command line: `main` is the entry point, `app` the Typer application; a command lives in a file of its own name.

Invariant: `shikisha --help` imports no command, so that it answers at once. `COMMANDS` says where each command lives
and what the help says of it; the command group imports it when it is called. A command's file imports at its top what
its help needs. What takes longer (torch, numpy, FastAPI, SQLAlchemy) it imports when it is performed. A library that is
missing is reported with the extra that brings it. Nothing but tests imports from this package.
"""

import gc
from collections.abc import Mapping
from importlib import import_module
from typing import Annotated, cast

import typer
from typer.core import TyperCommand, TyperGroup

from shikisha import __version__
from shikisha.cli.exit_codes import EXIT_CODES_HELP, ExitCode
from shikisha.cli.options import command, import_errors_name_extra, report_error
from shikisha.cli.output import escape_unencodable, print_answer
from shikisha.core.errors import ConfigError, MissingExtra

# By name, in the order of `--help`: the module, the function or Typer group in it, the first line of its help.
COMMANDS: Mapping[str, tuple[str, str, str]] = {
    "run": ("run", "run", "Perform a task and print its answer."),
    "plan": ("plan", "plan", "Ask for a plan, or parse one, and perform nothing."),
    "resume": ("run", "resume", "Continue a run from its last journaled step."),
    "serve": ("serve", "serve", "Serve the pool to OpenAI clients, with web pages."),
    "mcp": ("mcp", "mcp", "Serve the pool to an MCP client on stdio."),
    "approve": ("run", "approve", "Answer a question that a run waits for."),
    "rollback": ("runs", "rollback", "Undo the effects of a run's calls."),
    "release": ("runs", "release", "Let servers perform a quarantined run again."),
    "feedback": ("runs", "feedback", "Grade the answer of a run."),
    "runs": ("history", "runs", "List the newest runs."),
    "trace": ("history", "trace", "Show a run as a tree."),
    "explain": ("history", "explain", "Explain why a run went as it did."),
    "workers": ("init", "workers", "List the workers of the pool."),
    "init": ("init", "init", "Write a commented shikisha.toml of what is found here."),
    "doctor": ("doctor", "doctor", "Check that everything is there to run."),
    "demo": ("demo", "demo", "Compare conductors on simulated workers."),
    "eval": ("eval", "evaluate", "Evaluate conductors on a taskset or an outcome log."),
    "view": ("view", "view", "Show the samples of an evaluation in the browser."),
    "compare": ("compare", "compare", "Compare two evaluations task by task."),
    "grade": ("grade", "grade", "Grade the answers of an outcome log that have no score."),
    "learn": ("learn", "learn", "Learn a routing policy from outcomes."),
    "tune": ("tune", "tune", "Tune the advice that a prompted conductor gets."),
    "memory": (
        "memory",
        "group",
        "Lessons from failed runs, and notes of finished ones: write, search, judge, retire and export.",
    ),
    "classes": ("classes", "group", "Classes of tasks with a proposed mode: propose, show, audit and confirm them."),
    "skills": ("skills", "group", "Plans that right runs had in common: mine, show, import and replay them."),
    "practise": ("practise", "practise", "Perform the tasks that teach most, within a budget, to learn from them."),
    "learned": ("learned", "learned", "Show what was learned from runs, what it brought, and what of it is used."),
    "train": ("train", "train", "Train a conductor by reinforcement learning."),
    "train-page": ("train_page", "train_page", "Show the progress of a training, and write it as a web page."),
    "export": ("train", "export", "Export a checkpoint to ONNX, to conduct without torch."),
    "journal": ("journal", "group", "Verify and export the journal."),
    "import": ("import_", "group", "Import workers, outcomes and tasks from other tools."),
    "context": ("context", "group", "Context of tasks: what is gathered, and which sources earn their tokens."),
    "tools": ("tools", "group", "Pin, find, try and learn the tools of catalogues."),
    "notes": ("notes", "notes", "Show what outcomes say about each worker, by kind of subtask."),
    "policy": ("policy", "group", "Show, release and watch learned policies."),
    "keys": ("keys", "group", "Manage the API keys of a server."),
    "margin": ("margin", "margin", "Show what requests brought and cost, by rate plan, key and class."),
}
# Commands that are called by two words, where the first one is a command of its own.
NESTED_COMMANDS: Mapping[tuple[str, str], tuple[str, str]] = {
    ("learn", "steps"): ("learn_values", "steps"),
    ("learn", "plans"): ("learn_values", "plans"),
    ("train", "pointer"): ("train_pointer", "pointer"),
}
# Commands and options that people may still type, and what to use now.
REMOVED: Mapping[tuple[str, str], str] = {
    ("learn", "preference"): "state what speed and money are worth: learn --speed W, policy:FILE?lambda=L",
    (
        "learn",
        "--random-assignment",
    ): "record with what probability each worker was asked, or ask all for the same tasks",
}


def load_command(name: str, nested: str = "") -> TyperCommand | TyperGroup:
    """Import a command, or the one `nested` in it; MissingExtra where it needs a library that is not installed."""
    module, attribute = NESTED_COMMANDS.get((name, nested), COMMANDS[name][:2])
    with import_errors_name_extra(name):
        found = getattr(import_module(f"shikisha.cli.{module}"), attribute)
    if not isinstance(found, typer.Typer):
        function, found = found, typer.Typer(add_completion=False, rich_markup_mode=None)
        found.command(name)(command(function))
    loaded = typer.main.get_command(found)
    loaded.name = f"{name} {nested}".strip()
    return cast("TyperCommand | TyperGroup", loaded)


# Whose --json may name a file; everywhere, and here without a name, it prints one JSON value to stdout.
_JSON_TO_FILE = frozenset({"eval", "learn"})


def complete_json_option(name: str, arguments: list[str]) -> list[str]:
    """Return the arguments with `-` after a --json that is followed by no file, which Typer's options cannot say."""
    if name not in _JSON_TO_FILE:
        return arguments
    completed: list[str] = []
    for place, argument in enumerate(arguments):
        completed.append(argument)
        after = arguments[place + 1] if place + 1 < len(arguments) else "--"
        if argument == "--json" and after.startswith("-") and after != "-":
            completed.append("-")
    return completed


class _LazyGroup(TyperGroup):
    """Lists commands by name and summary, and imports the one that is called."""

    def resolve_command(  # type: ignore[override]  # Typer names its Context publicly only as a subclass of its own
        self, ctx: typer.Context, args: list[str]
    ) -> tuple[str | None, TyperCommand | TyperGroup | None, list[str]]:
        name, known, rest = super().resolve_command(ctx, args)
        if name is None or known is None:
            return name, None, rest
        words = {*rest[:1], *(word.partition("=")[0] for word in rest if word.startswith("--"))}
        try:
            for word in sorted(words):
                if (name, word) in REMOVED:
                    raise ConfigError(f"{name} {word} was removed; instead {REMOVED[name, word]}")
            if rest and (name, rest[0]) in NESTED_COMMANDS:
                return f"{name} {rest[0]}", load_command(name, rest[0]), rest[1:]
            return name, load_command(name), complete_json_option(name, rest)
        except (ConfigError, MissingExtra) as error:
            raise typer.Exit(report_error(error, ExitCode.CONFIG, as_json="--json" in rest)) from None


app = typer.Typer(
    name="shikisha",
    cls=_LazyGroup,
    help="Conduct a pool of AI workers: plan, perform inside hard limits, record everything.",
    epilog=EXIT_CODES_HELP,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        print_answer(f"shikisha {__version__}")
        raise typer.Exit


@app.callback()
def _main_options(
    version: Annotated[
        bool, typer.Option("--version", "-V", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    pass


def _not_imported() -> None:
    raise NotImplementedError("the command group replaces this by the command itself")


for _name, (_, _, _summary) in COMMANDS.items():
    app.command(_name, help=_summary)(_not_imported)


def main() -> None:
    """Run the command line."""
    # A command imports some 300,000 objects that live as long as it does: to collect among them is 15 % of its start.
    gc.set_threshold(400_000, 20, 50)
    escape_unencodable()
    app()
