"""A process of its own that writes whole runs to a journal and prints the name of each once it is stored.

Usage: journal_process.py URL PREFIX COUNT
"""

import asyncio
import sys

from journals import whole

from shikisha.journal import Journal, open_journal

AT_ONCE = 4


async def live(journal: Journal, run: str) -> None:
    for event in whole(run):
        journal.add(event)
        await journal.flush()
    print(run, flush=True)  # noqa: T201 - what this script is for


async def main(url: str, prefix: str, count: int) -> None:
    async with open_journal(url) as journal:
        for number in range(0, count, AT_ONCE):
            await asyncio.gather(*(live(journal, f"{prefix}{number + more}") for more in range(AT_ONCE)))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
