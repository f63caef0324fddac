"""The command line: `main` is the entry point, `app` the Typer application; a command lives in a file of its own name.

Invariant: `shikisha --help` imports no command, so that it answers at once. `COMMANDS` says where each command lives
and what the help says of it; the command group imports it when it is called. A command's file imports at its top what
its help needs. What takes longer (torch, numpy, FastAPI, SQLAlchemy) it imports when it is performed. A library that is
missing is reported with the extra that brings it. Nothing but tests imports from this package.
"""

import gc
import re
import sys
from collections.abc import Iterable, Mapping
from importlib import import_module
from typing import Annotated, Any, cast

import typer
from typer.core import TyperCommand, TyperGroup

from shikisha import __version__
from shikisha.cli.exit_codes import EXIT_CODES_HELP, ExitCode
from shikisha.cli.options import command, import_errors_name_extra, report_error
from shikisha.cli.output import escape_unencodable, print_answer, print_note
from shikisha.core.errors import ConfigError, MissingExtra, TaskError, describe_invalid
from shikisha.core.kinds import Registry

# By what is typed, in the order of `--help`: the module, the function or Typer group in it, the first line of its help.
# `--help` shows `FRONT` first. A command of two words is one that its noun's own help names.
COMMANDS: Mapping[str, tuple[str, str, str]] = {
    "run": ("run", "run", "Perform a task and print its answer."),
    "serve": ("serve", "serve", "Serve the pool to OpenAI clients, with web pages."),
    "init": ("init", "init", "Write a commented shikisha.toml of what is found here."),
    "doctor": ("doctor", "doctor", "Check that everything is there to run."),
    "runs": ("history", "runs", "List the newest runs."),
    "explain": ("history", "explain", "Explain why a run went as it did."),
    "eval": ("eval", "evaluate", "Evaluate conductors on a taskset or an outcome log."),
    "learn": (
        "learn",
        "learn",
        "Learn from your own runs, and show what that brought; or a routing policy from a log of outcomes.",
    ),
    "keys": ("keys", "group", "Manage the API keys of a server."),
    "context": ("context", "context", "Show what would be gathered for a task, or which sources earn their tokens."),
    "demo": ("demo", "demo", "Conduct a real model and real tools on public questions."),
    "eval grade": ("grade", "grade", "Grade the answers of an outcome log that have no score."),
    "eval show": ("view", "view", "Show the samples of an evaluation in the browser, or compare two evaluations."),
    "import": ("import_", "group", "Import workers and outcomes from other tools."),
    "journal": ("journal", "group", "Verify and export the journal."),
    "learn pin": (
        "learning",
        "pin",
        "Choose which version of the model acts: one of your choice, none, or the newest.",
    ),
    "learn show": ("learning", "show", "Show what was learned from what, what it brought, and what would tell more."),
    "memory": ("memory", "memory", "Search notes of finished runs, or print all as JSON lines."),
    "models": ("models", "group", "Models on this machine: pull and serve them."),
    "policy": ("policy", "group", "Show, release and watch learned policies."),
    "runs approve": ("run", "approve", "Answer a question that a run waits for."),
    "runs feedback": ("runs", "feedback", "Grade the answer of a run."),
    "runs resume": ("run", "resume", "Continue a run from its last journaled step."),
    "runs rollback": ("runs", "rollback", "Undo the effects of a run's calls."),
    "runs show": ("history", "trace", "Show a run as a tree."),
    "tools": ("tools", "group", "Pin, find, try and learn the tools of catalogues."),
}
FRONT = ("run", "serve", "init", "doctor", "runs", "explain", "eval", "learn", "keys")
# What a command was called before: it still works, with a line that names the new spelling.
RENAMED: Mapping[str, str] = {
    "approve": "runs approve",
    "compare": "eval show",
    "context audit": "context",
    "context show": "context",
    "eval compare": "eval show",
    "export": "device-export",
    "feedback": "runs feedback",
    "grade": "eval grade",
    "keys link": "keys devices --link",
    "keys mend-clock": "keys budget --mend-clock",
    "keys passkeys": "keys devices",
    "keys rotate": "keys revoke --renew",
    "keys vapid": "init --vapid",
    "learn export": "learn show live",
    "learn off": "learn pin off",
    "learn rollback": "learn pin previous",
    "mcp": "serve --mcp",
    "memory export": "memory",
    "memory search": "memory",
    "models list": "models pull",
    "plan": "run --plan",
    "policy add": "policy canary",
    "policy rollback": "policy promote --back",
    "policy shadow": "policy canary --share 0",
    "policy shelf": "policy show",
    "policy trial": "policy promote",
    "release": "runs resume --on-server",
    "resume": "runs resume",
    "rollback": "runs rollback",
    "runs plan": "run --plan",
    "runs release": "runs resume --on-server",
    "serve mcp": "serve --mcp",
    "tools diff": "tools pin --check",
    "trace": "runs show",
    "train-page": "train page",
    "view": "eval show",
    "workers": "doctor workers",
}
# An option that is now a part of another one: it still works, in the same way.
RENAMED_OPTIONS: Mapping[tuple[str, str], tuple[str, str]] = {
    **{
        ("keys", f"--{cap}"): ("--cap", f"{cap}=")
        for cap in (
            "dollars",
            "tokens",
            "requests",
            "dollars-per-day",
            "tokens-per-day",
            "requests-per-day",
            "requests-per-minute",
            "runs-at-once",
        )
    },
    **{
        ("policy", f"--{point}"): ("--at", f"{point.replace('-', '_')}=")
        for point in ("max-cost", "quality", "budget-per-1k", "lambda")
    },
    **{("import", f"--{what}"): ("--column", f"{what}=") for what in ("domain", "score")},
}
DROPPED_FLAGS = frozenset({("tools", "--from-journal")})  # of which there is only one sense: they change nothing
LEARNED_ELSEWHERE = frozenset({"learned", "notes", "practise", "skills", "tune"})
# Commands and options that people may still type, and what to use now.
REMOVED: Mapping[tuple[str, str], str] = {
    **dict.fromkeys(
        (("demo", word) for word in ("--office", "office")),
        "`shikisha demo`, with real models; the simulated office is a bench of the repository, benchmarks/office.py",
    ),
    ("train", "pointer"): "conductor head:shipped (docs/how-to/train.md), or [learning] on = true",
    **dict.fromkeys(((noun, "--seed") for noun in ("learn", "tools")), "the split into halves has the seed 0"),
    ("eval", "--data"): "SHIKISHA_DATA=FOLDER in the environment, or --taskset NAME:PATH",
    ("memory", "--count"): "`shikisha memory`, which prints all notes",
    **dict.fromkeys((("doctor", word) for word in ("-p", "--pool")), "pool = [...], in shikisha.toml"),
    **dict.fromkeys((("doctor", word) for word in ("-C", "--conductor")), 'conductor = "...", in shikisha.toml'),
    ("run", "--pool-size"): "--parse checks against the workers of --pool",
    ("run", "--rounds"): "[budgets] rounds, in shikisha.toml",
    ("run", "--steps"): "[budgets] steps, in shikisha.toml",
    ("run", "--tokens"): "[budgets] tokens, in shikisha.toml",
    **dict.fromkeys(
        (("learn show", word) for word in ("--tenant", "--labels")),
        "`learn show VERSION`; `learn show` lists the versions that act, with tenant and labels",
    ),
    ("learn", "steps"): "[learning] on = true learns it, and learn shows it",
    ("learn", "plans"): "[learning] on = true learns it, and learn shows it",
    **dict.fromkeys(
        (("memory", word) for word in ("learn", "show", "why", "retire", "restore")),
        "lessons brought nothing: [learning] on = true learns who does what",
    ),
    (
        "train",
        "export",
    ): "`shikisha device-export POLICY --out FOLDER` (pip install shikisha-device-export) writes the page "
    "of a policy; `optimum-cli export onnx --model DIR OUT` exports a checkpoint",
    ("learn", "preference"): "state what speed and money are worth: learn --second DOLLARS, policy:FILE?lambda=L",
    (
        "learn",
        "--random-assignment",
    ): "record with what probability each worker was asked, or ask all for the same tasks",
    ("learn", "--limit"): "policy:FILE?balance=0.02 passes over workers at capacity, as their `concurrency` says",
}

# A plug-in's command is a function or Typer group of its own, also one of two words
# (under a noun of ours only where `elsewhere` has it); `--help` lists what is installed.
PLUGGED: Registry[object] = Registry(
    "commands",
    "command",
    object,
    {},
    {
        "classes": "shikisha-classes",
        "device-export": "shikisha-device-export",
        "import repository": "shikisha-code",
        "margin": "shikisha-margin",
        **dict.fromkeys(("train", "train page"), "shikisha-train"),
    },
)


def load_command(name: str) -> TyperCommand | TyperGroup:
    """Import a command; MissingExtra where it needs a library that is not installed."""
    with import_errors_name_extra(name):
        if name in COMMANDS:
            module, attribute = COMMANDS[name][:2]
            found = getattr(import_module(f"shikisha.cli.{module}"), attribute)
        else:
            found = PLUGGED[name]
    if not isinstance(found, typer.Typer):
        function, found = found, typer.Typer(add_completion=False, rich_markup_mode=None)
        found.command(name)(command(function))
    loaded = typer.main.get_command(found)
    loaded.name = name
    nested = [each.removeprefix(f"{name} ") for each in _names(name) if each.startswith(f"{name} ")]
    if nested:
        loaded.epilog = f"Further: shikisha {name} {' | '.join(nested)}; each has a --help of its own."
    return cast("TyperCommand | TyperGroup", loaded)


def _names(noun: str) -> Iterable[str]:
    """Return the names that may stand under a noun; a look at what is installed takes .1 s: our nouns have none."""
    return (*COMMANDS, *PLUGGED.elsewhere, *(() if noun in COMMANDS else PLUGGED))


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


def rename_options(name: str, arguments: list[str]) -> list[str]:
    """Return the arguments with each option that is now a part of another one in its place; a line names it."""
    renamed: list[str] = []
    before = ""
    for argument in arguments:
        option, equals, value = argument.partition("=")
        now = RENAMED_OPTIONS.get((name, option))
        if before:
            renamed[-1] += argument
            before = ""
        elif now is None:
            renamed += [] if (name, option) in DROPPED_FLAGS else [argument]
        else:
            print_note(f"shikisha: `{option} X` is now `{now[0]} {now[1]}X`")
            renamed += [now[0], f"{now[1]}{value}"]
            before = "" if equals else option
    return renamed


# What the library says of an option or argument, and what a person reads.
_UsageError: type[Any] = typer.BadParameter.__mro__[1]  # Typer exports no more of Click's errors than this child
_USAGE_WORDS = (
    (r"^Got unexpected extra arguments?(?:\(s\))? \((.*)\)$", r"\1: not expected here; quotes make several words one"),
    (r"^Missing argument '?(.*?)'?\.?$", r"\1 is missing"),
    (r"^No such option: (\S+?)(?: \(Possible options: (.*)\))?\.?$", r"unknown option \1; did you mean \2?"),
    (r"^No such command '(.*)'\.(?: Did you mean '(.*)'\?)?$", r"unknown command \1; did you mean \2?"),
    (r"; did you mean \?$", ""),
    (r"', '", " or "),
)


class _LazyGroup(TyperGroup):
    """Lists commands by name and summary, and imports the one that is called."""

    def invoke(self, ctx: Any) -> object:  # noqa: ANN401 - as below
        """Perform a command; what is wrong with its options is said in the words of every other error."""
        try:
            return super().invoke(ctx)
        except _UsageError as error:
            if type(error).__name__ == "NoArgsIsHelpError":  # its text is the help
                raise
            said = error.format_message()
            what, _, value = said.partition(": ") if said.startswith("Invalid value") else ("", "", said)
            value = describe_invalid(value)
            for pattern, words in _USAGE_WORDS:
                value = re.sub(pattern, words, value)
            where = what.removeprefix("Invalid value").removeprefix(" for ").replace("'", "")
            help_of = error.ctx.command_path if error.ctx else "shikisha"
            plain = TaskError(f"{where}{': ' * bool(where)}{value} (see {help_of} --help)")
            raise typer.Exit(report_error(plain, ExitCode.INPUT, as_json="--json" in sys.argv)) from None

    def resolve_command(  # type: ignore[override]  # Typer names its Context publicly only as a subclass of its own
        self, ctx: typer.Context, args: list[str]
    ) -> tuple[str | None, TyperCommand | TyperGroup | None, list[str]]:
        for typed in (" ".join(args[:2]), " ".join(args[:1])):
            if typed in RENAMED:
                print_note(f"shikisha: `{typed}` is now `{RENAMED[typed]}`")
                args = [*RENAMED[typed].split(), *args[len(typed.split()) :]]
                break
        if args and args[0] not in self.commands and PLUGGED.knows(args[0]):
            made = typer.Typer(add_completion=False)
            made.command(args[0])(_not_imported)
            self.add_command(typer.main.get_command(made), args[0])
        if args and args[0] in LEARNED_ELSEWHERE:
            gone = ConfigError(f"{args[0]} was removed; instead [learning] on = true, and learn shows what it learned")
            raise typer.Exit(report_error(gone, ExitCode.CONFIG, as_json="--json" in args))
        name, known, rest = super().resolve_command(ctx, args)
        if name is None or known is None:
            return name, None, rest
        words = {*rest[:1], *(word.partition("=")[0] for word in rest if word.startswith("-"))}
        try:
            for (noun, word), instead in REMOVED.items():
                if word in words and noun in (name, " ".join([name, *rest[:1]])):
                    raise ConfigError(f"{noun} {word} was removed; instead {instead}")
            rest = rename_options(name, rest)
            if rest and f"{name} {rest[0]}" in _names(name):
                name, rest = f"{name} {rest[0]}", rest[1:]
            return name, load_command(name), complete_json_option(name, rest)
        except (ConfigError, MissingExtra) as error:
            raise typer.Exit(report_error(error, ExitCode.CONFIG, as_json="--json" in rest)) from None

    def format_commands(  # type: ignore[override]  # as above
        self,
        ctx: typer.Context,  # noqa: ARG002 - Click's signature
        formatter: Any,  # noqa: ANN401 - Typer names it nowhere publicly
    ) -> None:
        for title, names in (("Commands", FRONT), ("More", [name for name in self.commands if name not in FRONT])):
            with formatter.section(title):
                formatter.write_dl([(name, COMMANDS[name][2]) for name in names])
        if len(PLUGGED):
            with formatter.section("Plug-ins"):
                formatter.write_dl([(name, "") for name in PLUGGED if " " not in name])


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
    if " " not in _name:
        app.command(_name, help=_summary)(_not_imported)


def main() -> None:
    """Run the command line."""
    # A command imports some 300,000 objects that live as long as it does: to collect among them is 15 % of its start.
    gc.set_threshold(400_000, 20, 50)
    escape_unencodable()
    app()
