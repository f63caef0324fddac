"""`shikisha device-export`: a page that decides on the device, by the table of a learned policy.

`page_export` writes the page, whose own files are in `web/`. It comes to Shikisha through `shikisha.commands`.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from shikisha.cli import output
from shikisha.cli.exit_codes import ExitCode
from shikisha.cli.options import ConfigOption, JsonOption
from shikisha.config.adapters import require_extra
from shikisha.config.container import load_config
from shikisha.core.errors import TaskError


@dataclass(frozen=True, slots=True)
class DeviceOptions:
    """What is on the device, and where the rest is."""

    device: Annotated[list[str] | None, typer.Option("--device", help="A worker on the device; may be repeated.")] = (
        None
    )
    server: Annotated[str, typer.Option("--server", help="The URL of the server; by default the page's own.")] = ""
    runtime: Annotated[Path, typer.Option("--runtime", metavar="DIST", help="The folder dist of onnxruntime-web.")] = (
        Path("node_modules/onnxruntime-web/dist")
    )


def export(
    policy: Annotated[Path, typer.Argument(metavar="POLICY", help="A policy whose table decides.")],
    to: Annotated[Path, typer.Option("--out", "-o", metavar="FOLDER", help="The page's new folder.")],
    on: DeviceOptions,
    config: ConfigOption = None,
    json: JsonOption = False,
) -> ExitCode:
    """Export a policy as a page that decides on the device.

    The pool of the configuration, its workers on the device or behind the server, works without a network.
    """
    if policy.is_dir():
        raise TaskError(
            "expected a policy, as in `shikisha device-export our.policy --out page`; a "
            "checkpoint is served by `vllm serve DIR`, or exported by `optimum-cli export onnx --model DIR OUT`"
        )
    if on.server and (not on.server.startswith(("http://", "https://")) or set(on.server) & set(" ;'\"<>")):
        raise TaskError("--server: expected a URL such as https://ai.example.com")
    require_extra("eval", "shikisha device-export", "numpy")
    from shikisha_device_export.page_export import WebExport

    cards = load_config(config).cards()
    made = WebExport(policy, cards, frozenset(on.device or ()), on.runtime, on.server.rstrip("/"))
    written = made.write(to)
    if json:
        output.print_json({"written": str(to), "files": list(written)})
    output.print_note(
        f"written: {to}, {len(written)} files for any static host with HTTPS; workers.js is yours to edit"
    )
    return ExitCode.OK
