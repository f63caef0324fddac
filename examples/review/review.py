"""Review what has changed since a revision, one run a file, all at once in the background.

python review.py REVISION
"""

import asyncio
import os
import subprocess
import sys

from openai import AsyncOpenAI

ASKED = "Review this change to {file}. List what should be changed, the weightiest first, in a few lines.\n\n{diff}"


def git(*arguments: str) -> str:
    """Return what git says."""
    return subprocess.run(["git", *arguments], capture_output=True, text=True, check=True).stdout  # noqa: S603, S607 - ours


async def review(client: AsyncOpenAI, file: str, diff: str) -> str:
    """Return the review of one file."""
    asked = ASKED.format(file=file, diff=diff)
    response = await client.responses.create(model="shikisha", input=asked, background=True)
    while response.status in ("queued", "in_progress"):
        await asyncio.sleep(0.3)
        response = await client.responses.retrieve(response.id)
    cost = (response.usage.model_extra or {}).get("cost") if response.usage else None
    return f"## {file} ({response.status}, {cost} dollars)\n\n{response.output_text}\n"


async def main(revision: str) -> None:
    """Review every changed file."""
    async with AsyncOpenAI(base_url=os.environ["SHIKISHA_URL"], api_key=os.environ["SHIKISHA_KEY"]) as client:
        files = git("diff", "--name-only", revision).split("\n")
        changed = {file: git("diff", revision, "--", file) for file in files if file}
        for text in await asyncio.gather(*(review(client, file, diff) for file, diff in changed.items())):
            print(text)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
