"""What a command works with where nobody wrote a configuration: endpoints that are found here, after a yes.

Invariants: nothing that costs money is called without a person's yes at the terminal or `--yes`; without a terminal and
without `--yes` only what is free answers, and where nothing is free the command ends and says how to go on. A file is
written only where a person asks for it. A price that is not known is a question. Where nothing is found the command
ends with an error, or a small real tool answers what it reads: no simulated worker performs unless somebody named it.
"""

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from shikisha.cli import output
from shikisha.cli.options import SharedOptions
from shikisha.config.container import Container, build_container, load_config
from shikisha.config.discovery import (
    FIRST_RUN_DOLLARS,
    Discovery,
    describe_endpoint,
    find_endpoints,
    found_tables,
    worker_names,
)
from shikisha.config.environment import (
    CONFIG_FILE,
    DISCOVERY_VARIABLE,
    SIMULATED,
    find_config,
    state_folder,
    with_dotenv,
)
from shikisha.config.settings import PriceTable
from shikisha.config.template import found_template
from shikisha.core.errors import ConfigError

SIMULATION_NOTE = "simulated workers answer, as asked: they repeat the question"
_FOUND = "what was found here"  # names these tables in errors, as the path of a file would


def obtain_container(
    shared: SharedOptions,
    *,
    yes: bool = False,
    performs: bool = True,
    simulated: bool = False,
    prompt: str = "",
) -> Container:
    """Return the configured container, else one of what is found here; ConfigError where that is nothing.

    `performs`: its workers will be called. `simulated`: somebody asked for the simulated workers by name. `prompt`: the
    question, which a small real tool may answer where there is no model. Called outside of any event loop: it asks the
    person at the terminal.
    """
    file = find_config(shared.config, os.environ)
    if simulated or file is not None:
        return configured_container(file, simulated=simulated)
    found = find_endpoints()
    if not found.named or (found.endpoints[0].provider == "local" and _reading_tool(prompt)):
        # A container of the small real tool that reads the question; ConfigError where there is none.
        tool = _reading_tool(prompt)
        if tool is None:
            raise nothing_found(found)
        output.print_wrapped_note(f"no model is configured or found: {tool}, a small real tool, reads this question")
        workers = {tool: {"kind": "local", "tool": tool, "folder": str(Path().absolute())}}
        return build_container({"workers": workers}, _FOUND, state_folder(os.environ), os.environ)
    if performs:
        agreed = _agree(found if found.usable else _ask_price(found, yes), yes)
        if agreed != found:  # processes that this one starts agree to no more
            os.environ[DISCOVERY_VARIABLE] = "free"
        found = agreed
        if Path(CONFIG_FILE).is_file():  # the person had it written
            return load_config(shared.config)
    return found_container(found)


def configured_container(file: Path | None, *, simulated: bool = False) -> Container:
    """Return the container of a file; ConfigError at once where it has no workers."""
    container = load_config(file)
    if simulated and SIMULATED not in container.names:
        container.simulate()
    container.cards()
    return container


def nothing_found(found: Discovery) -> ConfigError:
    """Return the error where there is no model to call: what to do, and how to ask for the simulated workers."""
    remarks = "".join(f"\nleft out: {remark}" for remark in found.remarks)
    return ConfigError(
        "no model is configured or found. Set a key such as OPENAI_API_KEY, point OPENAI_BASE_URL to a server, or "
        "start Ollama, and type this again; `shikisha models pull smollm2-135m` brings a small, weak, free model to "
        f'this machine; `--pool {SIMULATED}`, or pool = ["{SIMULATED}"] in {CONFIG_FILE}, plays with simulated '
        f"workers{remarks}"
    )


def _reading_tool(prompt: str) -> str | None:
    """Return the small real tool that reads a question, which is exact where a small model is not."""
    from shikisha.workers.local_tools import LOCAL_TOOLS, can_answer  # only where no model, or a weak one, is found

    return next((each for each in LOCAL_TOOLS if prompt and can_answer(each, prompt)), None)


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


def _ask_price(found: Discovery, yes: bool) -> Discovery:
    """Return what was found with the price of its first model as the person says it; ConfigError where nobody does."""
    endpoint, model = found.named[0]
    what = f"the price of {model.name} ({endpoint.label}, {endpoint.place}) is not known"
    if yes or not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise ConfigError(
            f"{what}, and a run may cost ${FIRST_RUN_DOLLARS:g} at most: `shikisha init` writes {CONFIG_FILE}, where "
            "`price` says it"
        )
    sys.stderr.write(f"{what}. Dollars per million tokens, input and output, as in 0.2 0.8 (0 0: free; nothing: no): ")
    sys.stderr.flush()
    try:
        read, written = (float(each) for each in sys.stdin.readline().split())
        priced = replace(model, price=PriceTable(input=read, output=written).model_dump(include={"input", "output"}))
    except ValueError:
        raise ConfigError("nothing was called") from None
    return replace(found, endpoints=(replace(endpoint, models=(priced,)),))


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
