"""A server over one or two workers, for tests of `/v1/responses`, `/runs` and `Idempotency-Key`."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from openai import AsyncOpenAI
from serving import At, served

from shikisha.testing import AnswerChooser, ReceivedChatRequest, ScriptedAnswer, chat_server

FILE = """
conductor = "one"
[workers.first]
kind = "chat"
model = "m1"
base_url = "{url}"
price = {{input = 1.0, output = 2.0}}
tools = true
takes = ["image"]
{more}
[workers.second]
kind = "chat"
model = "m2"
base_url = "{url}"
price = {{input = 2.0, output = 4.0}}
[conductors.one]
kind = "fixed"
topology = "single"
roles = {{worker = "first"}}
[conductors.two]
kind = "fixed"
topology = "chain"
workers = ["first", "second"]
[server]
approval_wait = 0.3
{end}
"""


@asynccontextmanager
async def responding(
    folder: Path, answers: Sequence[ScriptedAnswer] | AnswerChooser, more: str = "", end: str = ""
) -> AsyncIterator[tuple[At, AsyncOpenAI]]:
    """Serve with a worker endpoint that answers so; `more` belongs to the first worker, `end` follows it all."""
    async with (
        chat_server(answers) as url,
        served(folder, FILE.format(url=url, more=more, end=end)) as at,
        at.openai() as client,
    ):
        yield at, client


def by_model(asked: ReceivedChatRequest) -> ScriptedAnswer:
    """Say which model was asked."""
    return ScriptedAnswer(text=f"{asked.model} says so")
