"""`train pointer`: trains a pointer conductor in the simulated office, as the one in the package was trained.

Invariants: what can be refused is refused before the first lesson; the file is written at the end and whole, so a
training that was stopped leaves nothing; progress goes to stderr, the file's name to stdout.
"""

from contextlib import suppress
from pathlib import Path
from time import process_time
from typing import TYPE_CHECKING, Annotated

import typer

from shikisha.cli import output
from shikisha.cli.exit_codes import ExitCode
from shikisha.cli.options import JsonOption, import_errors_name_extra
from shikisha.config.adapters import require_extra
from shikisha.core.errors import ConfigError

if TYPE_CHECKING:
    from shikisha_train.office_pointer import OfficeProgress

SHIPPED = "shipped"
PointerFile = Annotated[
    Path, typer.Argument(metavar="FILE.safetensors", help="The file to write, for `pointer:FILE.safetensors`.")
]
Seed = Annotated[int, typer.Option("--seed", min=0, max=2**31 - 1, help="The seed; 1 made `pointer:shipped`.")]
Updates = Annotated[int | None, typer.Option("--updates", min=1, max=1_000_000, help="Updates by GRPO.")]
Lessons = Annotated[int | None, typer.Option("--lessons", min=100, max=1_000_000, help="Lessons in reading.")]
Reader = Annotated[
    str,
    typer.Option("--reader", metavar="FILE", help="Take this file's reader (or `shipped`) instead of teaching one."),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")]


def pointer(
    to: PointerFile,
    seed: Seed = 1,
    updates: Updates = None,
    lessons: Lessons = None,
    reader: Reader = "",
    quiet: Quiet = False,
    json: JsonOption = False,
) -> ExitCode:
    """Train a pointer conductor in the simulated office.

    Lessons teach it to read. Performed plans of simulated workers teach it whom to call, how to word a subtask, what to
    show and what to check, by outcomes alone. It takes some 25 minutes on one core, and four with --reader shipped,
    which takes reading as it is. A training cannot be continued after a stop. It knows the office's six kinds of work
    and no others.
    """
    output.refuse_unwritable(to)
    if lessons is not None and reader:
        raise ConfigError("--lessons: a reader that is taken (--reader) is not taught; give one of the two")
    require_extra("train", "shikisha train pointer", "numpy", "torch")
    with import_errors_name_extra("train"):  # torch takes seconds to import, for which `--help` need not wait
        from shikisha_train.office.language_lessons import OFFICE_KINDS
        from shikisha_train.office_pointer import OfficeTraining, train_office_pointer
        from shikisha_train.pointer.pointer_conductor import load_reader, save_pointer, shipped_pointer
        from shikisha_train.process_group import use_one_core
    taken = load_reader(shipped_pointer() if reader == SHIPPED else Path(reader)) if reader else None
    if taken and taken.kinds != OFFICE_KINDS:
        raise ConfigError(f"--reader: expected a reader of {', '.join(OFFICE_KINDS)}, found {', '.join(taken.kinds)}")
    use_one_core()  # so that the same seed makes the same file
    default = OfficeTraining()
    settings = OfficeTraining(seed, updates or default.updates, lessons or default.lessons)
    begun = process_time()

    def report(progress: "OfficeProgress") -> None:
        if not quiet:
            output.print_note_line(_progress_line(progress, settings.updates, process_time() - begun))

    if not quiet:
        how = f"taken from {reader}" if taken else f"{settings.lessons:,} lessons"
        output.print_note_line(f"the office, simulated; reading: {how}")
    model = train_office_pointer(settings, taken, report)
    part = to.with_name(f"{to.name}.part")
    try:
        to.parent.mkdir(parents=True, exist_ok=True)
        save_pointer(part, model, settings.describe() | ({"reader": reader} if reader else {}))
        part.replace(to)
    except OSError as error:
        raise ConfigError(f"{to}: cannot be written: {error.strerror}") from None
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)
    if json:
        output.print_json(
            {"written": str(to), "seed": seed, "updates": settings.updates, "cpu": process_time() - begun}
        )
    else:
        output.print_line(str(to))
    return ExitCode.OK


def _progress_line(progress: "OfficeProgress", updates: int, seconds: float) -> str:
    if not progress.updates:
        done = "learned" if progress.read >= 1 else f"{progress.read:.0%} of the lessons"
        return f"reading: {done} · {seconds:.0f} s CPU"
    modes = " / ".join(f"{share:.2f}" for share in progress.shares)
    return (
        f"update {progress.updates:,} of {updates:,} · {seconds:.0f} s CPU · value of a plan {progress.value:.3f} · "
        f"call / opinion / vote / check {modes}"
    )
