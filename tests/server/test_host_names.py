"""Host headers: who is let in by default, what narrows it, and whether every file in `deploy` really answers.

No test listens on anything but loopback: the servers are only told that they do.
"""

import asyncio
import json
import logging
import re
import socket
import subprocess
import sys
import tomllib
from collections.abc import Mapping, MutableMapping
from pathlib import Path
from typing import cast

import pytest
from paths import ROOT
from pydantic import ValidationError
from serving import At, served

from shikisha.config.litellm import load_yaml
from shikisha.config.settings import ServerTable
from shikisha.config.template import TEMPLATE
from shikisha.core.errors import ConfigError
from shikisha.server.http.middleware import HostCheck, accepted_hosts, is_loopback, server_urls
from shikisha.server.lifecycle.process import listening_socket

DEPLOY = ROOT / "deploy"
CONFIG = """
conductor = "fixed:single"
[workers.a]
kind = "scripted"
answers = "42"
"""
LOOPBACK = ServerTable(url="https://shikisha.example.com:8443/x", hosts=("extra.example.com", "*.lan"))
EVERYWHERE = ServerTable(host="0.0.0.0")  # noqa: S104 - nothing listens
NARROWED = ServerTable(host="::", hosts=("ai.example.com",))
URL_ONLY = ServerTable(host="0.0.0.0", url="http://localhost:8100")  # noqa: S104 - nothing listens


async def status(settings: ServerTable, hosts: list[str], path: str = "/keys", origins: tuple[str, ...] = ()) -> int:
    """The status that a request with these Host headers gets."""
    told = list[int]()

    async def inner(*_: object) -> None:
        told.append(200)

    async def send(message: MutableMapping[str, object]) -> None:
        if message["type"] == "http.response.start":
            told.append(int(str(message["status"])))

    async def receive() -> MutableMapping[str, object]:
        return {"type": "http.request"}

    headers = [*((b"host", host.encode()) for host in hosts), *((b"origin", each.encode()) for each in origins)]
    scope = {"type": "http", "path": path, "headers": headers}
    await HostCheck(inner, settings)(scope, receive, send)
    (only,) = told
    return only


@pytest.mark.parametrize("path", ["/mcp", "/a2a"])
@pytest.mark.parametrize(
    ("settings", "origins", "answered"),
    [
        (LOOPBACK, (), 200),  # no browser
        (LOOPBACK, ("http://localhost:6274",), 200),
        (LOOPBACK, ("http://127.0.0.1:6274",), 200),
        (LOOPBACK, ("https://shikisha.example.com",), 200),
        (LOOPBACK, ("https://nas.lan",), 200),
        (LOOPBACK, ("https://evil.example.com",), 403),
        (LOOPBACK, ("http://203.0.113.9",), 403),  # a stranger's page may be at an address
        (LOOPBACK, ("null",), 403),
        (LOOPBACK, ("",), 403),
        (LOOPBACK, ("http://localhost", "https://evil.example.com"), 403),
        (LOOPBACK, ("https://localhost.evil.example.com",), 403),
        (EVERYWHERE, ("http://localhost:6274",), 200),  # of the host that is asked
        (EVERYWHERE, ("https://evil.example.com",), 403),
        (EVERYWHERE, ("null",), 403),
    ],
)
async def test_the_doors_of_agents_take_no_request_of_another_site_s_page(
    path: str, settings: ServerTable, origins: tuple[str, ...], answered: int
) -> None:
    assert await status(settings, ["localhost:8100"], path, origins) == answered
    assert await status(settings, ["localhost:8100"], "/v1/models", origins) == 200


@pytest.mark.parametrize(
    ("hosts", "answered"),
    [
        (["localhost:8100"], 200),
        (["127.0.0.1"], 200),
        (["[::1]:8100"], 200),
        (["::1"], 200),
        (["192.168.1.7:8100"], 200),  # an address is never a name that was made to point here
        (["app.localhost"], 200),
        (["shikisha.example.com"], 200),
        (["SHIKISHA.example.com.:443"], 200),
        (["extra.example.com"], 200),
        (["nas.lan:80"], 200),
        (["a.b.lan"], 200),
        (["lan"], 421),
        (["evil-lan"], 421),
        (["under.extra.example.com"], 421),
        (["evil.example.com"], 421),
        (["127.0.0.1.evil.example.com"], 421),
        (["localhost@evil.example.com"], 421),
        (["localhost evil.example.com"], 421),
        (["*.lan.example.com"], 421),
        ([""], 421),
        ([], 421),
        (["localhost", "evil.example.com"], 421),
    ],
)
async def test_on_loopback_only_requests_to_names_of_ours_are_answered(hosts: list[str], answered: int) -> None:
    assert await status(LOOPBACK, hosts) == answered
    assert await status(LOOPBACK, hosts, "/healthz") == await status(LOOPBACK, hosts, "/readyz") == 200


@pytest.mark.parametrize(
    "name", ["shikisha", "10.244.0.17:8100", "ai.example.com", "shikisha.default.svc.cluster.local"]
)
async def test_elsewhere_every_name_is_answered_until_hosts_narrows_it(name: str) -> None:
    assert await status(EVERYWHERE, [name]) == await status(URL_ONLY, [name]) == 200
    ours = name in {"10.244.0.17:8100", "ai.example.com"}
    assert await status(NARROWED, [name]) == (200 if ours else 421)
    assert await status(NARROWED, [f"{socket.gethostname()}:8100"]) == 200


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("127.0.0.1", True),
        ("127.8.0.1", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),  # noqa: S104 - nothing listens
        ("::", False),
        ("", False),
        ("192.0.2.1", False),
        ("no-such-name.invalid", False),
    ],
)
def test_loopback_is_what_only_this_machine_reaches(host: str, loopback: bool) -> None:
    assert is_loopback(host) is loopback
    assert (accepted_hosts(ServerTable(host=host)) is not None) is loopback


@pytest.mark.parametrize("name", ["https://ai.example.com", "ai.example.com/", "a b", "", "*.", "ai.*.com", "{"])
def test_a_host_that_could_never_match_is_refused_in_the_file(name: str) -> None:
    with pytest.raises(ValidationError, match="expected a name such as"):
        ServerTable(hosts=(name,))


@pytest.mark.parametrize("url", ["ai.example.com", "ftp://ai.example.com", "https://", "/ui"])
def test_a_url_that_is_none_is_refused_in_the_file(url: str) -> None:
    with pytest.raises(ValidationError, match="expected a URL"):
        ServerTable(url=url)


async def test_a_refusal_says_what_to_set_and_the_log_which_name_it_was(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with served(tmp_path, CONFIG) as at, at.http() as client:
        with caplog.at_level(logging.WARNING):
            answers = [await client.get("/keys", headers={"Host": "evil.example.com"}) for _ in range(3)]
    told = answers[0].json()["error"]
    assert (answers[0].status_code, told["code"]) == (421, "unknown_host")
    assert "`hosts` in [server] of shikisha.toml" in told["message"]
    assert "`url`" in told["message"]
    assert [record.args for record in caplog.records if "Host" in record.msg] == [("evil.example.com",)]


def test_the_address_for_others_is_one_that_they_can_use() -> None:
    settings = ServerTable(port=0)
    with listening_socket(settings) as listening:
        port = listening.getsockname()[1]
        assert server_urls(settings, listening) == (f"http://127.0.0.1:{port}",)
        assert server_urls(ServerTable(url="https://ai.example.com/"), listening) == ("https://ai.example.com",)
    with socket.socket() as everywhere:  # bound, and nothing can connect: it does not listen
        everywhere.bind(("0.0.0.0", 0))  # noqa: S104 - see above
        first, *_, last = server_urls(EVERYWHERE, everywhere)
        assert "0.0.0.0" not in first  # noqa: S104 - no address that one can use
        assert last == f"http://127.0.0.1:{everywhere.getsockname()[1]}"


@pytest.mark.parametrize(
    ("host", "hint"), [("192.0.2.5", "0.0.0.0 for all of them"), ("http://localhost", "expected an address")]
)
def test_an_address_that_cannot_be_had_is_an_error_that_says_what_can(host: str, hint: str) -> None:
    with pytest.raises(ConfigError, match=hint):
        listening_socket(ServerTable(host=host, port=0))


def test_a_port_that_is_taken_says_so() -> None:
    with (
        listening_socket(ServerTable(port=0)) as listening,
        pytest.raises(ConfigError, match="--port 0 takes any free one"),
    ):
        listening_socket(ServerTable(port=listening.getsockname()[1]))


def test_init_shows_both_keys_where_one_looks(tmp_path: Path) -> None:
    file = tmp_path / "shikisha.toml"
    command = [sys.executable, "-m", "shikisha", "init", "--empty", str(file)]
    subprocess.run(command, check=True, timeout=60)  # noqa: S603 - our own program
    server = TEMPLATE[TEMPLATE.index("#[server]") :]
    assert {"host", "port", "url", "hosts"} <= set(re.findall(r"^#(\w+) =", server, re.MULTILINE))
    assert server.strip() in file.read_text()


# what stands in deploy ------------------------------------------------------------------------------------------------


def loaded(name: str, tmp_path: Path) -> Mapping[str, object]:
    """The first document of a YAML file in deploy."""
    first = tmp_path / name
    first.write_text((DEPLOY / name).read_text().partition("\n---\n")[0])
    return cast("Mapping[str, object]", load_yaml(first))


def told(arguments: list[str]) -> str:
    """The example's configuration, with the address that a command line gives."""
    config = (DEPLOY / "shikisha.example.toml").read_text()
    table = tomllib.loads(config)
    host = arguments[arguments.index("--host") + 1] if "--host" in arguments else table["server"]["host"]
    assert not is_loopback(host)
    return config.replace(f'host = "{table["server"]["host"]}"', f'host = "{host}"')


ENVIRONMENT = {"SHIKISHA_ADMIN_KEY": "deployed-" + "k" * 40, "OPENAI_API_KEY": "sk-none"}


async def answered(at: At, hosts: list[str], key: str) -> set[int]:
    """The statuses of real requests to these hosts."""
    async with at.http(key) as client:
        return {(await client.get("/v1/models", headers={"Host": host})).status_code for host in hosts}


async def test_what_kubernetes_starts_answers_its_probes_and_its_service(tmp_path: Path) -> None:
    pod = loaded("kubernetes.yaml", tmp_path)["spec"]["template"]["spec"]["containers"][0]  # type: ignore[index]
    environment = {**ENVIRONMENT, "SHIKISHA_JOURNAL": str(tmp_path / "journal.db")}
    async with served(tmp_path, told(pod["args"]), environment) as at, at.http(None) as client:
        for probe in ("readinessProbe", "livenessProbe"):
            for host in ("10.244.0.17:8100", "[fd00:10:244::11]:8100"):  # the pod's own address, as kubelet sends it
                answer = await client.get(pod[probe]["httpGet"]["path"], headers={"Host": host})
                assert answer.status_code == 200, answer.text
        services = ["shikisha", "shikisha:80", "shikisha.default", "shikisha.default.svc.cluster.local", "10.96.3.4"]
        assert await answered(at, [*services, "ai.example.com"], ENVIRONMENT["SHIKISHA_ADMIN_KEY"]) == {200}


async def test_what_compose_starts_answers_under_its_ports_and_its_services(tmp_path: Path) -> None:
    services = cast("Mapping[str, Mapping[str, object]]", loaded("compose.yaml", tmp_path)["services"])
    ports = [str(port) for each in services.values() for port in cast("list[str]", each.get("ports", []))]
    published = [f"{name}:{port.split(':')[1]}" for port in ports for name in ("localhost", "127.0.0.1", "docker.lan")]
    inside = [f"{name}:8100" for name, each in services.items() if "ports" in each]
    command = re.search(r"^CMD (\[.*\])$", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE)
    assert command is not None
    environment = {**ENVIRONMENT, "SHIKISHA_JOURNAL": str(tmp_path / "journal.db")}
    async with served(tmp_path, told(json.loads(command[1])), environment) as at:
        key = ENVIRONMENT["SHIKISHA_ADMIN_KEY"]
        assert len(published) == 6
        assert inside == ["shikisha-a:8100", "shikisha-b:8100"]
        assert await answered(at, published + inside, key) == {200}
        check = re.search(r"HEALTHCHECK .* CMD (\[.*\])", (DEPLOY / "Dockerfile").read_text())
        assert check is not None
        _, *arguments = [each.replace("http://127.0.0.1:8100", at.url) for each in json.loads(check[1])]
        await command_done([sys.executable, *arguments])


async def command_done(command: list[str]) -> None:
    """Run a command beside the server; an exit code that is not 0 is an error."""
    await asyncio.to_thread(subprocess.run, command, check=True, timeout=30)  # the file's own command


def test_systemd_starts_what_only_a_proxy_on_its_machine_reaches() -> None:
    unit = (DEPLOY / "shikisha.service").read_text()
    assert "--host" not in unit
    assert re.search(r"^LimitNOFILE=\d{4,}$", unit, re.MULTILINE)
