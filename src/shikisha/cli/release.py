"""`release`: let servers perform a run again that they quarantined because it took some of them down.

Invariant: it is in the audit of the keys, under the name of the account at this terminal. Deliberately absent:
performing it here (`resume` does, away from every server).
"""

from functools import partial

from shikisha.cli import out, session
from shikisha.cli.exits import Exit
from shikisha.cli.options import Shared
from shikisha.cli.running import OneRun
from shikisha.errors import TaskError


def release(run: OneRun, shared: Shared) -> Exit:
    """Let servers perform a quarantined run again.

    A run is quarantined when it took a server down twice; `shikisha explain` says so.
    """

    async def main() -> str:
        from shikisha.cli.desk import actor
        from shikisha.server.keys import KeyKeeper
        from shikisha.server.store import blame

        async with session.reading(shared) as journal:
            name = await session.find_run(journal, run)
            if not await journal.write(partial(blame.release, run=name)):
                raise TaskError(f"run {name} is not quarantined")
            await KeyKeeper(journal).note(f"cli:{actor()}", "run.released", name)
            return name

    name = session.perform(main)
    if shared.json:
        out.value({"run": name, "released": True})
    out.note(f"released: the next server takes run {name} up again")
    return Exit.OK
