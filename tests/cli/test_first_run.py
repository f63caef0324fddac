"""The first run without a configuration: what is found, what it costs, and who is asked before money is spent."""

import asyncio
import json
import os
import pty
import sys
from collections.abc import Iterator, Mapping
from contextlib import chdir
from pathlib import Path

import pytest
from model_servers import ModelServer, model_servers, nobody_here
from typer.testing import CliRunner, Result

from shikisha.cli import app

PRICING = {"prompt": "2e-7", "completion": "7.5e-7"}  # dollars a token, as a gateway states what it bills
KEY = "sk-live-0123456789abcdef"
ASKED = "What is the capital of France?"


class Here:
    """A folder with an Ollama and an OpenAI of its own, and commands in it."""

    def __init__(self, folder: Path, own: ModelServer, paid: ModelServer) -> None:
        self.folder, self.own, self.paid = folder, own, paid
        self.local = {**nobody_here(), "SHIKISHA_DISCOVERY": "all", "XDG_STATE_HOME": str(folder / "state")}

    def both(self) -> dict[str, str]:
        """The variables under which both are found."""
        return {**self.keyed(), **self.free()}

    def free(self) -> dict[str, str]:
        """The variables under which the one on this machine is found."""
        return {**self.local, "OLLAMA_HOST": self.own.url}

    def keyed(self) -> dict[str, str]:
        """The variables under which the one that costs money is found."""
        return {**self.local, "OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": self.paid.url}

    def run(self, environment: Mapping[str, str], *arguments: str, code: int = 0) -> Result:
        """Run a command in the folder, without a terminal."""
        with chdir(self.folder):
            result = CliRunner().invoke(app, list(arguments), env=dict(environment))
        assert result.exit_code == code, (result.output, result.stderr)
        return result


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Here]:
    own, paid = ModelServer(), ModelServer(models=[{"id": "gpt-6-luna", "pricing": PRICING}])
    with model_servers(own, paid):
        yield Here(tmp_path, own, paid)


def test_what_is_free_answers_at_once(here: Here) -> None:
    result = here.run(here.free(), "run", "-q", ASKED)
    assert result.stdout == "Paris, says qwen2.5:7b.\n"
    assert "found, and free:" in result.stderr
    assert "qwen2.5:7b answers (free)" in result.stderr
    assert not (here.folder / "shikisha.toml").exists()


def test_nothing_is_spent_without_a_yes(here: Here) -> None:
    result = here.run(here.keyed(), "run", "-q", ASKED, code=3)
    assert "about $0.00057 for a question of 1,000 tokens" in result.stderr
    assert "--yes agrees to it" in result.stderr
    assert here.paid.chats == 0
    assert KEY not in result.output


def test_without_a_terminal_only_what_is_free_answers(here: Here) -> None:
    here.own.chat_status = 500  # so that the other one would stand in, if it were allowed to
    result = here.run(here.both(), "run", "-q", ASKED, "--seconds", "3", code=1)
    assert "only what is free answers; --yes uses what costs money too" in result.stderr
    assert here.paid.chats == 0


def test_yes_uses_what_costs_money(here: Here) -> None:
    result = here.run(here.keyed(), "run", "-q", "--yes", "--json", ASKED)
    told = json.loads(result.stdout)
    assert (told["answer"], told["dollars"] > 0) == ("Paris, says gpt-6-luna.", True)


def test_a_key_in_dotenv_is_found(here: Here) -> None:
    (here.folder / ".env").write_text(f"OPENAI_API_KEY={KEY}\nOPENAI_BASE_URL={here.paid.url}\n")
    result = here.run(here.local, "run", "-q", "-y", ASKED)
    assert result.stdout == "Paris, says gpt-6-luna.\n"


def test_init_writes_what_is_found_and_the_next_run_uses_it(here: Here) -> None:
    told = json.loads(here.run(here.both(), "init", "--json").stdout)
    assert [each["provider"] for each in told["found"]] == ["ollama", "openai"]
    off = {**here.both(), "SHIKISHA_DISCOVERY": "off"}
    assert here.run(off, "run", "-q", ASKED).stdout == "Paris, says qwen2.5:7b.\n"
    listed = json.loads(here.run(off, "workers", "--json").stdout)["workers"]
    assert [each["name"] for each in listed] == ["qwen2.5:7b", "gpt-6-luna"]


def test_doctor_says_what_is_found_and_which_prices_are_old(here: Here) -> None:
    found = here.run(here.both(), "doctor").stdout
    assert "found Ollama" in found
    assert "what is found here answers, once you say yes" in found
    here.run(here.both(), "init")
    file = here.folder / "shikisha.toml"
    text = file.read_text()
    day = text.partition("as_of = ")[2][:10]
    file.write_text(text.replace(f"as_of = {day}", "as_of = 2024-01-31"))
    told = here.run(here.both(), "doctor").stdout
    assert "note  price of gpt-6-luna: looked up on 2024-01-31" in told


def test_where_nothing_is_found_no_simulated_worker_answers_unless_it_is_named(here: Here) -> None:
    assert "FAIL  configuration: no model is configured or found" in here.run(here.local, "doctor", code=3).stdout
    for command in (
        ["run", ASKED],
        ["run", "--yes", ASKED],
        ["plan", ASKED],
        ["serve"],
        ["mcp"],
        ["workers"],
        ["init"],
    ):
        refused = here.run(here.local, *command, code=3)
        assert "Set a key such as OPENAI_API_KEY" in refused.stderr
        assert "--pool simulated" in refused.stderr
        assert refused.stdout == ""
    assert not (here.folder / "shikisha.toml").exists()
    asked = here.run(here.local, "run", "-q", ASKED, "--pool", "simulated")
    assert "simulated workers answer, as asked" in asked.stderr
    result = here.run({**here.local, "SHIKISHA_DISCOVERY": "sometimes"}, "run", ASKED, code=3)
    assert "SHIKISHA_DISCOVERY: expected one of all, local, free, off, not 'sometimes'" in result.stderr


@pytest.mark.full
@pytest.mark.parametrize(
    ("said", "code", "answer", "written"),
    [("y\n", 0, "gpt-6-luna", False), ("w\n", 0, "gpt-6-luna", True), ("n\n", 3, "nothing was called", False)],
)
async def test_a_person_at_a_terminal_is_asked_once(
    here: Here, said: str, code: int, answer: str, written: bool
) -> None:
    ours, theirs = pty.openpty()
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "shikisha", "run", "-q", ASKED, stdin=theirs, stdout=theirs, stderr=theirs,
        cwd=here.folder, env={**os.environ, **here.keyed()},
    )  # fmt: skip
    os.close(theirs)
    shown = b""
    async with asyncio.timeout(60):
        while b"Use them?" not in shown:
            shown += await asyncio.to_thread(os.read, ours, 4096)
        os.write(ours, said.encode())
        try:
            while part := await asyncio.to_thread(os.read, ours, 4096):
                shown += part
        except OSError:  # the other end is closed
            pass
        assert await process.wait() == code
    os.close(ours)
    text = shown.decode()
    assert answer in text
    assert text.count("Use them?") == 1
    assert (here.folder / "shikisha.toml").exists() is written


def test_a_small_real_tool_answers_what_it_reads_and_a_file_without_workers_nothing(here: Here) -> None:
    result = here.run(here.local, "run", "-q", "What is 12 * 13?")
    assert result.stdout == "156\n"
    assert "no model is configured or found: calculator, a small real tool, reads this question" in result.stderr
    (here.folder / "shikisha.toml").write_text("[budgets]\nsteps = 9\n")
    assert "shikisha.toml names no workers" in here.run(here.local, "run", "What is 12 * 13?", code=3).stderr
    lost = here.run(here.local, "explain", code=2)
    assert f"runs without a configuration are in {here.folder / 'state' / 'shikisha' / 'shikisha.db'}" in lost.stderr


@pytest.mark.parametrize("key", ["sk-local-0123456789", "x", "EMPTY", None])
def test_a_server_of_ones_own_on_this_machine_is_free_whatever_its_key(here: Here, key: str | None) -> None:
    """`OPENAI_BASE_URL=http://127.0.0.1:9101/v1 OPENAI_API_KEY=x shikisha run "..."`, and the same by each command."""
    environment = {**here.local, "OPENAI_BASE_URL": here.own.url, "OPENAI_API_KEY": key or ""}
    assert here.run(environment, "run", "-q", ASKED).stdout == "Paris, says qwen2.5:7b.\n"
    assert here.run(environment, "doctor").stdout.count("(free)") == 1
    here.run(environment, "init")
    assert here.run(environment, "run", "-q", ASKED).stdout == "Paris, says qwen2.5:7b.\n"
    sent = {headers.get("authorization") for _, headers in here.own.asked}
    assert sent == {None if key is None else f"Bearer {key}"}


def test_an_unknown_price_is_a_question_and_no_answer_is_made_up(here: Here) -> None:
    proxy = {**here.local, "LITELLM_PROXY_API_BASE": here.own.url}  # it may pass calls on for money
    for command in (["run", ASKED], ["run", "--yes", ASKED], ["serve", "--yes"]):
        refused = here.run(proxy, *command, code=3)
        assert "the price of qwen2.5:7b (LiteLLM proxy" in refused.stderr
        assert refused.stdout == ""
    here.run(proxy, "init")
    assert "FAIL  worker qwen2.5:7b: no price is known" in here.run(proxy, "doctor", code=3).stdout
    assert here.run(proxy, "run", "-q", ASKED, code=4).stdout == ""
    file = here.folder / "shikisha.toml"
    file.write_text(file.read_text().replace("#price", "price"))
    assert here.run(proxy, "run", "-q", ASKED).stdout == "Paris, says qwen2.5:7b.\n"
    assert here.own.chats == 1


def test_an_address_that_is_none_is_said_and_the_vendor_is_not_asked(here: Here) -> None:
    environment = {**here.local, "OPENAI_BASE_URL": "127.0.0.1:9101/v1", "OPENAI_API_KEY": KEY}
    assert "OPENAI_BASE_URL: expected the whole URL" in here.run(environment, "run", ASKED, code=3).stderr
