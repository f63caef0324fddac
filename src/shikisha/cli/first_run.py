"""What a command works with where nobody wrote a configuration: endpoints that are found here, after a yes.

Invariants: nothing that costs money is called without a person's yes at the terminal or `--yes`; without a terminal and
without `--yes` only what is free answers, and where nothing is free the command ends and says how to go on. A file is
written only where a person asks for it. Only where nothing at all is found do the simulated workers answer.
"""

import asyncio
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from shikisha.cli import output
from shikisha.cli.options import SharedOptions
from shikisha.config.container import (
    Container,
    add_local_tools,
    build_container,
    load_config,
)
from shikisha.config.discovery import (
    FIRST_RUN_DOLLARS,
    Discovery,
    describe_endpoint,
    discover,
    found_tables,
    worker_names,
)
from shikisha.config.environment import CONFIG_FILE, DISCOVERY_VARIABLE, find_config, state_folder, with_dotenv
from shikisha.config.template import found_template
from shikisha.core.errors import ConfigError

_MODES = ("all", "local", "free", "off")
_FOUND = "what was found here"  # names these tables in errors, as the path of a file would
_SIMULATED = "small real tools and two simulated models answer"


def find_endpoints(environment: Mapping[str, str] | None = None) -> Discovery:
    """Look for endpoints as far as $SHIKISHA_DISCOVERY allows; ConfigError where it says nothing known."""
    environment = os.environ if environment is None else environment
    mode = environment.get(DISCOVERY_VARIABLE, "") or "all"
    if mode not in _MODES:
        raise ConfigError(f"{DISCOVERY_VARIABLE}: expected one of {', '.join(_MODES)}, not {mode!r}")
    if mode == "off":
        return Discovery()
    found = asyncio.run(discover(with_dotenv(environment, Path()), remote=mode == "all"))
    return found.free if mode == "free" else found


def obtain_container(
    shared: SharedOptions, *, yes: bool = False, performs: bool = True, files: bool = True
) -> Container:
    """Return the configured container, else one of what is found here; `performs`: its workers will be called;
    `files`: local tools may read files of this folder, which clients of a server may not.

    Called outside of any event loop: it asks the person at the terminal.
    """
    if find_config(shared.config, os.environ) is not None:
        container = load_config(shared.config)
        add_local_tools(container, Path() if files else None)
        return container
    found = find_endpoints()
    if not found.usable:
        for remark in found.remarks if performs else ():
            output.print_wrapped_note(f"left out: {remark}")
        for line in describe_found(found) if performs and found.endpoints else ():
            output.print_wrapped_note(line)
        container = load_config(shared.config)
        add_local_tools(container, Path() if files else None)
        return container
    if performs:
        agreed = _agree(found, yes)
        if agreed != found:  # processes that this one starts agree to no more
            os.environ[DISCOVERY_VARIABLE] = "free"
        found = agreed
        if Path(CONFIG_FILE).is_file():  # the person had it written
            return load_config(shared.config)
    return found_container(found)


def simulated_note(container: Container) -> str:
    """Return why simulated workers answer, and what to do about it."""
    if Path(container.file).is_file():
        again = "or `shikisha init --force` looks for endpoints again"
        return f"{container.file} names no workers: {_SIMULATED}. Next: name yours in [workers], {again}"
    return (
        f"no model is configured or found: {_SIMULATED}. "
        "Next: set a key such as OPENAI_API_KEY or start Ollama, and type this again"
    )


def warn_of_simulation(prompt: str, container: Container) -> None:
    """Print that simulated workers answer, and what they understand where this question is nothing of it."""
    # Imported here because only runs without configured workers need the simulation.
    from shikisha.simulation.local_tools import tool_for
    from shikisha.simulation.questions import parse_question
    from shikisha.workers.local_tools import EXAMPLES

    names = container.names
    output.print_wrapped_note(simulated_note(container))
    if tool_for(prompt, names) is None and parse_question(prompt) is None:
        from shikisha.evals.tasksets.simulated import simulated_items  # brings the graders

        sample = next(item for item in simulated_items("train") if len(item.kinds) > 1).task.prompt
        tools = ", ".join(EXAMPLES[name] for name in names if name in EXAMPLES)
        more = f", or {tools}" if tools else ""
        output.print_wrapped_note(f'this question is none that they understand: try "{sample}"{more}')


def found_container(found: Discovery) -> Container:
    """Return a container of what was found, whose journal is in the state folder."""
    environment = with_dotenv(os.environ, Path())
    return build_container(found_tables(found), _FOUND, state_folder(os.environ), environment)


def describe_found(found: Discovery) -> Iterator[str]:
    """Yield what was found in aligned lines, and what was left out."""
    rows = [describe_endpoint(each) for each in found.endpoints]
    widths = [max((len(row[column]) for row in rows), default=0) for column in range(3)]
    for row in rows:
        yield "  " + "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[3]])
    for remark in found.remarks:
        yield f"  left out: {remark}"


def _agree(found: Discovery, yes: bool) -> Discovery:
    """Return the part of what was found that may be used; ConfigError where that is none of it."""
    free = found.free
    if free.usable and not (found.usable[-1][0] not in free.endpoints):
        output.print_wrapped_note(f"no {CONFIG_FILE} here; found, and free:")
        _print_lines(found)
        return free
    output.print_wrapped_note(f"no {CONFIG_FILE} here; found:")
    _print_lines(found)
    if yes:
        return found
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        if free.usable:
            output.print_wrapped_note("only what is free answers; --yes uses what costs money too")
            return free
        raise ConfigError(
            "this costs money, and nobody is here to ask: --yes agrees to it, `shikisha init` writes a configuration"
        )
    return _ask(found, free)


def _print_lines(found: Discovery) -> None:
    for line in describe_found(found):
        output.print_wrapped_note(line)
    names = worker_names(found.usable)
    first, others = names[0], names[1:3]
    dollars = found.usable[0][1].dollars
    cost = "free" if not dollars else f"about ${dollars:.2g} for a question of 1,000 tokens with an answer of 500"
    stands = f"; {' and '.join(others)} stand{'s' if len(others) == 1 else ''} in if it fails" if others else ""
    paid = any(not endpoint.free for endpoint, _ in found.usable)
    cap = f" One run may cost ${FIRST_RUN_DOLLARS:g} at most." if paid else ""
    output.print_wrapped_note(f"{first} answers ({cost}){stands}.{cap}")


def _ask(found: Discovery, free: Discovery) -> Discovery:
    choices = ["[y]es", f"[w]rite {CONFIG_FILE} first", *(["[f]ree only"] if free.usable else []), "[n]o"]
    while True:
        sys.stderr.write(f"Use them? {', '.join(choices)}: ")
        sys.stderr.flush()
        said = sys.stdin.readline().strip().lower()[:1]
        if said == "y":
            return found
        if said == "w":
            output.write_new_file(Path(CONFIG_FILE), found_template(found), force=False)
            output.print_wrapped_note(f"written: {CONFIG_FILE}")
            return found
        if said == "f" and free.usable:
            return free
        if said in ("n", ""):
            raise ConfigError("nothing was called")


def found_json(found: Discovery) -> Sequence[Mapping[str, object]]:
    """Return what was found as JSON."""
    return [
        {
            "provider": each.provider,
            "place": each.place,
            "free": each.free,
            "models": [
                {
                    "name": model.name,
                    "price": None
                    if model.price is None
                    else {**model.price, "as_of": str(model.price.get("as_of", ""))},
                    "context_tokens": model.context_tokens,
                }
                for model in each.models
            ],
        }
        for each in found.endpoints
    ]


def _price_json(price: Mapping[str, object] | None) -> Mapping[str, object] | None:
    return None if price is None else {name: str(value) if name == "as_of" else value for name, value in price.items()}
