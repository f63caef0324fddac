"""Typical mistakes at the four doors, and the message that a person gets for each: what, where, what to do.

One table a door: configuration, command line, Python, HTTP. `says` must all be there; `_NEVER` must never be.
"""

import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import chdir
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from pydantic import BaseModel
from serving import served
from typer.testing import CliRunner

from shikisha import Shikisha, ShikishaError
from shikisha.cli import app

OK = '[workers.a]\nkind = "scripted"\nanswers = "42"\n'
DOWN = '[workers.a]\nkind = "chat"\nmodel = "m"\nbase_url = "http://127.0.0.1:9/v1"\n'
MANY = """
conductr = "x"
[workers.a]
kind = "chatt"
modle = "m"
timeout = "30s"
[budgets]
steps = "three"
[conductors.c]
kind = "fixd"
[checks.d]
kind = "lenght"
max_words = "x"
"""
# What libraries call themselves and their types; a person did not choose them.
_NEVER = (
    "Traceback",
    "pydantic_core",
    "errors.pydantic.dev",
    "ValidationError",
    "aiohttp",
    "httpx",
    "sqlalchemy",
    "pysqlite",
    "Input should",
    "valid dictionary",
    "valid tuple",
    "valid string",
    "valid integer",
    "instance of",
    "ClientConnector",
    "ssl:default",
    "Errno",
    "unexpected:",
    "NoneType' object",
)

# name, shikisha.toml, command, exit code, what the message says
CONFIGURATION: Sequence[tuple[str, str, str, int, Sequence[str]]] = (
    (
        "a kind with a typo hides nothing",
        MANY,
        "run q",
        3,
        (
            "workers.a.kind: unknown kind of worker 'chatt'",
            "did you mean 'chat'?",
            "workers.a.modle: unknown key; did you mean 'model'?",
            "workers.a.timeout: expected a number",
            "conductr: unknown key; did you mean 'conductor'?",
            "budgets.steps: expected a whole number",
            "conductors.c.kind: unknown kind of conductor 'fixd'",
            "checks.d.kind: unknown kind of check 'lenght'",
            "checks.d.max_words: expected a whole number",
        ),
    ),
    (
        "a kind that is like no other hides nothing either",
        '[workers.a]\nkind = "zzzz"\ntimeout = "30s"\nmine = 1\n',
        "run q",
        3,
        ("workers.a.kind: unknown kind of worker 'zzzz': known are a2a", "workers.a.timeout: expected a number"),
    ),
    ("no kind", '[workers.a]\nmodel = "m"\n', "run q", 3, ("workers.a.kind: expected one of a2a, agent, chat",)),
    (
        "a role where workers are named",
        OK + '[conductors.free]\nkind = "fixed"\ntopology = "single"\nworker = "a"\n',
        "doctor",
        3,
        ("conductors.free: worker is a role: expected roles = { worker = NAME }",),
    ),
    ("not TOML", "conductor = fixed:single\n" + OK, "run q", 3, ("not TOML", "line 1, column 13")),
    ("a table twice", OK + OK, "run q", 3, ("not TOML", "twice", "line 4")),
    ("text for a number", OK + '[budgets]\nsteps = "three"\n', "run q", 3, ("budgets.steps: expected a whole number",)),
    ("too little", OK + "[budgets]\nsteps = 0\n", "run q", 3, ("budgets.steps: expected at least 1",)),
    ("neither true nor false", OK + '[learning]\non = "maybe"\n', "run q", 3, ("learning.on: expected true or false",)),
    ("text for a list", 'pool = "a"\n' + OK, "run q", 3, ("pool: expected a list",)),
    ("text for a table", OK.replace('"42"', '"42"\nprice = "low"'), "run q", 3, ("workers.a.price: expected a table",)),
    ("a table for a text", '[conductor]\nkind = "fixed"\n' + OK, "run q", 3, ("conductor: expected text",)),
    ("a list for a table", '[[workers]]\nkind = "scripted"\n', "run q", 3, ("workers: expected a table",)),
    (
        "max_ before a key",
        OK + "[budgets]\nmax_steps = 3\n",
        "run q",
        3,
        ("budgets.max_steps", "did you mean 'steps'?"),
    ),
    ("one worker's table", '[worker.a]\nkind = "scripted"\n', "run q", 3, ("worker: unknown key", "'workers'?")),
    ("capitals", '[Workers.a]\nkind = "scripted"\n', "run q", 3, ("Workers: unknown key", "'workers'?")),
    (
        "a key in the file",
        '[workers.a]\nkind = "chat"\nmodel = "m"\napi_key = "sk-1234567890"\n',
        "run q",
        3,
        ("workers.a.api_key: keys are never written into a file", "api_key_env"),
    ),
    (
        "a key in place of its variable hides nothing",
        '[workers.a]\nkind = "chat"\napi_key_env = "sk-1234567890"\n',
        "run q",
        3,
        ("workers.a.api_key_env: expected the name of an environment variable", "workers.a.model: is missing"),
    ),
    (
        "a variable that is not set",
        DOWN + 'api_key_env = "NO_SUCH_KEY"\n',
        "run q",
        3,
        ("workers.a: environment variable NO_SUCH_KEY is not set",),
    ),
    (
        "no scheme",
        DOWN.replace("http://", ""),
        "run q",
        3,
        ("workers.a.base_url: expected an http or https URL with a host",),
    ),
    ("a password in a URL", DOWN.replace("//", "//u:p@"), "run q", 3, ("workers.a.base_url: a URL holds no user",)),
    ("an endpoint that is down", DOWN, "run q", 1, ("nothing listens at 127.0.0.1:9: is it running?",)),
    (
        "a host that nobody knows",
        DOWN.replace("127.0.0.1:9", "no-such-host.invalid"),
        "run q",
        1,
        ("no machine is known as no-such-host.invalid:80: is the address right",),
    ),
    (
        "https without TLS",
        DOWN.replace("http://127.0.0.1:9", "https://{plain}"),
        "run q",
        1,
        ("without TLS", "http://?"),
    ),
    ("a path that is wrong", DOWN.replace("127.0.0.1:9/v1", "{plain}/api"), "run q", 1, ("status 404",)),
    (
        "no /v1, and nothing there",
        DOWN.replace("127.0.0.1:9/v1", "{plain}"),
        "run q",
        1,
        ("status 404", "nor is anything under /v1: is base_url right?"),
    ),
    ("a stand-in that is none", OK + 'fallback = "b"\n', "run q", 3, ("workers.a.fallback: unknown worker 'b'",)),
    ("a check that is none", OK + 'checks = ["c"]\n', "run q", 3, ("workers.a.checks[0]: unknown check 'c'",)),
    ("a worker's name", OK.replace(".a]", '."a?b"]'), "run q", 3, ("workers.a?b: a name is letters",)),
    (
        "dollars without prices",
        DOWN + "[budgets]\ndollars = 1\n",
        "run q",
        4,
        ("dollars cap reached: a has no price",),
    ),
    (
        "a journal's password",
        OK + '[journal]\nurl = "postgresql://u:p@h/d"\n',
        "run q",
        3,
        ("journal.url: a URL holds no password", "url_env"),
    ),
    ("an empty file", "", "run q", 3, ("names no workers", "[workers.NAME]")),
)

# name, command, exit code, what the message says
COMMAND_LINE: Sequence[tuple[str, str, int, Sequence[str]]] = (
    ("an unknown command", "rnu q", 2, ("unknown command rnu; did you mean run?",)),
    ("an unknown option", "run q --poool a", 2, ("unknown option --poool; did you mean --plan, --pool?", "run --help")),
    ("no task", "run", 2, ("prompt is missing (see shikisha run --help)",)),
    ("a task without quotes", "run what is it", 2, ("is it: not expected here; quotes make several words one",)),
    ("an empty task", "run ''", 2, ("the prompt is empty",)),
    ("words for a number", "run q --dollars much", 2, ("--dollars: expected a number",)),
    ("nothing for a number", "run q --seconds 0", 2, ("--seconds: expected at least 0.001",)),
    ("no such file", "run q --context no.txt", 2, ("no.txt: cannot be read: No such file or directory",)),
    ("no such configuration", "run q -c no.toml", 3, ("no.toml: cannot be read: No such file or directory",)),
    ("a conductor with a typo", "run q -C fixd:single", 3, ("unknown conductor 'fixd:single'", "'fixed:NAME'?")),
    ("a topology with a typo", "run q -C fixed:singel", 3, ("unknown topology 'singel'", "did you mean 'single'?")),
    ("a conductor's option", "run q -C fixed:single?wroker=a", 3, ("'wroker'", "did you mean 'worker'?")),
    ("a worker with a typo", "run q -p aa", 3, ("--pool[0]: unknown worker 'aa'", "did you mean 'a'?")),
    ("a policy that is not there", "run q -C policy:no.zip", 3, ("no.zip: cannot be read",)),
    ("a run before the first", "explain", 2, ("there is no journal at", "`shikisha run` creates one")),
    ("a journal that is none", "runs --journal shikisha.toml", 6, ("journal shikisha.toml: file is not a database",)),
    ("a status that is none", "runs --status dnoe", 2, ("unknown status 'dnoe': known are running",)),
    ("a port that is taken", "serve --port {port}", 3, ("cannot listen on 127.0.0.1, port", "--port 0 takes any free")),
    ("nothing to evaluate", "eval", 3, ("expected --log DIR or --taskset NAME",)),
    ("a model that nobody has", "models pull gpt9", 3, ("unknown model 'gpt9': known are",)),
    ("a noun's verb with a typo", "import litelm x", 2, ("unknown command litelm; did you mean litellm?",)),
    ("no name", "keys create", 2, ("NAME is missing (see shikisha keys create --help)",)),
)


class Answer(BaseModel):
    """What an answer is to be."""

    n: int


def untyped(x):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201 - that is the mistake
    return x


SCRIPTED = {"name": "a", "kind": "scripted", "answers": "four"}
PYTHON: Sequence[tuple[str, Callable[[], object], Sequence[str]]] = (
    ("no worker", lambda: Shikisha(environment={"SHIKISHA_DISCOVERY": "off"}), ("expected a list", "models pull")),
    ("a text", lambda: Shikisha("openai:gpt-5-mini"), ("expected a list of at least one worker",)),
    (
        "no provider",
        lambda: Shikisha(["gpt-5-mini"]),
        ('workers[0]: expected "provider:model", as "openai:gpt-5-mini"',),
    ),
    ("a provider with a typo", lambda: Shikisha(["opnai:x"]), ("unknown provider 'opnai'; did you mean 'openai'?",)),
    ("no key", lambda: Shikisha(["openai:x"], environment={}), ("environment variable OPENAI_API_KEY is not set",)),
    ("a number", lambda: Shikisha([3]), ("workers[0]: expected", "not int")),  # type: ignore[list-item]
    (
        "a table's key",
        lambda: Shikisha([{**SCRIPTED, "anwers": 1}]),
        ("a.anwers: unknown key; did you mean 'answers'?",),
    ),
    ("a name twice", lambda: Shikisha([SCRIPTED, SCRIPTED]), ("workers[1]: 'a' is the name of an earlier worker",)),
    ("no types", lambda: Shikisha([untyped]), ("function untyped: parameter x: expected a type",)),
    ("a budget", lambda: Shikisha([SCRIPTED], budget=-1), ("budgets.dollars: expected at least 0",)),
    ("no task", lambda: Shikisha([SCRIPTED]).run(None), ("task: expected a text",)),  # type: ignore[call-overload]
    (
        "an answer's type",
        lambda: Shikisha([SCRIPTED]).run("x", answer_type=dict),  # type: ignore[type-var]
        ("answer_type: expected a subclass",),
    ),
    ("an answer that does not fit", lambda: Shikisha([SCRIPTED]).run("x", answer_type=Answer), ("no JSON document",)),
)

HELLO = [{"role": "user", "content": "hello"}]
CHAT = {"model": "shikisha", "messages": HELLO}
# name, method, path, key (None: none), body, status, what the message says
HTTP: Sequence[tuple[str, str, str, str | None, object, int, str]] = (
    ("no key", "POST", "/v1/chat/completions", None, CHAT, 401, "expected the header Authorization: Bearer KEY"),
    ("no /v1", "POST", "/chat/completions", "", CHAT, 404, "did you mean /v1/chat/completions?"),
    ("a method", "GET", "/v1/chat/completions", "", None, 405, "expected POST here, not GET"),
    ("no model", "POST", "/v1/chat/completions", "", {"messages": HELLO}, 400, "missing parameter: model"),
    ("a model", "POST", "/v1/chat/completions", "", {**CHAT, "model": "gpt"}, 404, "known are: shikisha"),
    ("a text", "POST", "/v1/chat/completions", "", {**CHAT, "messages": "hi"}, 400, "messages: expected a list"),
    (
        "nothing",
        "POST",
        "/v1/chat/completions",
        "",
        {**CHAT, "messages": []},
        400,
        "messages: expected at least 1 item",
    ),
    (
        "a role",
        "POST",
        "/v1/chat/completions",
        "",
        {**CHAT, "messages": [{"role": "usr", "content": "x"}]},
        400,
        "messages[0]: expected role to be one of 'system'",
    ),
    ("too hot", "POST", "/v1/chat/completions", "", {**CHAT, "temperature": 9}, 400, "temperature: expected at most 2"),
    ("a word", "POST", "/v1/chat/completions", "", {**CHAT, "stream": "on"}, 400, "stream: expected true or false"),
    ("no max_tokens", "POST", "/v1/messages", "", CHAT, 400, "missing parameter: max_tokens"),
)


def check(message: str, says: Sequence[str]) -> None:
    for each in says:
        assert each in message, message
    for never in _NEVER:
        assert never not in message, message


def cases(rows: Sequence[tuple[object, ...]]) -> Any:  # noqa: ANN401 - pytest's own keywords
    return {"argvalues": [row[1:] for row in rows], "ids": [str(row[0]) for row in rows]}


class NotFound(BaseHTTPRequestHandler):
    """An HTTP server without TLS that has nothing anywhere."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_error(404)

    def log_message(self, *_: object) -> None: ...


@pytest.fixture(scope="module")
def plain() -> Iterator[str]:
    """The host and port of a server that has nothing."""
    with ThreadingHTTPServer(("127.0.0.1", 0), NotFound) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()


def said(folder: Path, toml: str, command: str, code: int, plain: str) -> str:
    """Run a command in a folder of its own; return all that it prints."""
    (folder / "shikisha.toml").write_text(toml.replace("{plain}", plain))
    given = shlex.split(command.replace("{port}", plain.partition(":")[2]))
    with chdir(folder):
        result = CliRunner().invoke(app, given, env={"XDG_STATE_HOME": str(folder), "COLUMNS": "100"})
    assert result.exit_code == code, (result.output, result.stderr)
    return result.stderr + result.stdout


@pytest.mark.parametrize(("toml", "command", "code", "says"), **cases(CONFIGURATION))
def test_a_mistake_in_the_configuration(
    tmp_path: Path, plain: str, toml: str, command: str, code: int, says: Sequence[str]
) -> None:
    message = said(tmp_path, toml, command, code, plain)
    check(message, says)
    assert message.count("is it running?") <= 1, message


@pytest.mark.parametrize(("command", "code", "says"), **cases(COMMAND_LINE))
def test_a_mistake_on_the_command_line(
    tmp_path: Path, plain: str, command: str, code: int, says: Sequence[str]
) -> None:
    check(said(tmp_path, OK, command, code, plain), says)


@pytest.mark.parametrize(("call", "says"), **cases(PYTHON))
def test_a_mistake_in_python(call: Callable[[], object], says: Sequence[str]) -> None:
    with pytest.raises(ShikishaError) as raised:
        call()
    check(str(raised.value), says)


async def test_a_mistake_in_a_request(tmp_path: Path) -> None:
    async with served(tmp_path, OK) as at:
        for name, method, path, key, body, status, says in HTTP:
            async with at.http(key) as client:
                response = await client.request(method, path, json=body)
            assert response.status_code == status, (name, response.text)
            check(response.json()["error"]["message"], (says,))


def test_there_are_sixty() -> None:
    assert sum(map(len, (CONFIGURATION, COMMAND_LINE, PYTHON, HTTP))) >= 60


def test_a_base_url_without_its_version_is_tried_with_it_and_that_is_said(caplog: pytest.LogCaptureFixture) -> None:
    asked = []

    class Versioned(NotFound):
        def do_POST(self) -> None:
            asked.append(self.path)
            if not self.path.startswith("/v1/"):
                super().do_POST()
                return
            self.rfile.read(int(self.headers["Content-Length"]))
            reply = b'{"choices": [{"message": {"content": "Paris"}, "finish_reason": "stop"}]}'
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(reply)))
            self.end_headers()
            self.wfile.write(reply)

    with ThreadingHTTPServer(("127.0.0.1", 0), Versioned) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        bare = f"http://127.0.0.1:{server.server_port}"
        with Shikisha([{"name": "a", "kind": "chat", "model": "m", "base_url": bare}]) as pool:
            assert [pool.run("Capital of France?").answer for _ in range(2)] == ["Paris", "Paris"]
        server.shutdown()
    assert asked == ["/chat/completions", *["/v1/chat/completions"] * 2]
    assert [record.getMessage() for record in caplog.records if record.name == "shikisha.workers"] == [
        f"worker a answers under /v1: write base_url = '{bare}/v1'"
    ]
