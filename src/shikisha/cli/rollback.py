"""`rollback`: undo what the calls of a run did, as far as compensating workers are registered for them.

Invariants: what could not be undone is named, and ends the command with an error; nobody else rolls the run back
meanwhile, no server and no other command. Deliberately absent: choosing among effects (a run's calls hang together),
and any change to the run's answer.
"""

from typing import TYPE_CHECKING, Annotated

import typer

from shikisha.clean import one_line
from shikisha.cli import out, session
from shikisha.cli.exits import Exit
from shikisha.cli.options import Shared
from shikisha.cli.running import OneRun

if TYPE_CHECKING:
    from collections.abc import Mapping

    from shikisha.events import EffectKept, EffectUndone
    from shikisha.run import Run

Note = Annotated[str, typer.Option("--note", help="Why, in words.")]


def rollback(run: OneRun, shared: Shared, note: Note = "") -> Exit:
    """Undo what a run's calls did, by the compensating workers of the configuration.

    Newest first, its child runs' calls included; what is undone already is not undone again.
    """
    said = session.storable(note, "--note")

    async def main() -> "tuple[Run, Run]":
        from shikisha.cli.desk import actor
        from shikisha.conduct import Engine
        from shikisha.run import Run
        from shikisha.undo import Wish

        async with (
            session.closing(session.compose(shared)) as composition,
            session.reading(shared) as journal,
        ):
            name = await session.find_run(journal, run)
            async with session.alone(journal, name, composition.settings.server.lease):
                past = Run.fold(await journal.read(name))
                pool = composition.pool(past.started.pool)
                engine = Engine(journal, vault=composition.vault, guarded=composition.guarded)
                return past, await engine.undo(past.id, pool, Wish(actor(), said, again=True))

    before, after = session.perform(main)
    became = after.effects
    if shared.json:
        out.value({"run": after.id, "effects": [_shown(effect) for effect in became.values()]})
    else:
        _tell(before, after)
    return Exit.OK if all(_undone(effect) for effect in became.values()) else Exit.FAILED


def _tell(before: "Run", after: "Run") -> None:
    if not after.effects:
        out.note(f"run {after.id} has no effect that anybody could undo")
    elif before.effects == after.effects:
        out.note(f"run {after.id} is rolled back already, as far as that goes:")
    for effect in after.effects.values():
        said = "undone" if _undone(effect) else f"kept: {one_line(getattr(effect, 'message', ''), 100)}"
        out.note(f"  {effect.effect} ({effect.worker}, by {effect.by}): {said}")


def _undone(effect: "EffectUndone | EffectKept") -> bool:
    return effect.kind == "effect.undone"


def _shown(effect: "EffectUndone | EffectKept") -> "Mapping[str, object]":
    fault = getattr(effect, "fault", None)
    return {
        "call": effect.effect,
        "worker": effect.worker,
        "by": effect.by,
        "undone": _undone(effect),
        "fault": str(fault) if fault else None,
        "message": getattr(effect, "message", ""),
    }
