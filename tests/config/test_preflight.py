"""Conductors that could not conduct are found before anybody asks for them, without a key and without a call."""

import json
from pathlib import Path

import pytest
from serving import served
from typer.testing import CliRunner

from shikisha.cli import app
from shikisha.cli.exit_codes import ExitCode
from shikisha.config.container import Container, load_config
from shikisha.config.preflight import check_conductors, conductor_problems
from shikisha.core.errors import ConfigError

WORKERS = """
[workers.ann]
kind = "chat"
base_url = "http://127.0.0.1:9/v1"
model = "m"
api_key_env = "NEVER_SET"
[workers.bob]
kind = "scripted"
answers = "42"
"""


def composed(folder: Path, text: str) -> Container:
    file = folder / "shikisha.toml"
    file.write_text(text + WORKERS)
    return load_config(file, {})


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ('kind = "fixed"\ntopology = "chian"', ("conductors.x", "topology", "chian")),
        ('kind = "fixed"\ntopology = "chain"\nworkers = ["cid"]', ("conductors.x", "worker", "cid")),
        ('kind = "fixed"\ntopology = "single"\nn = 2', ("conductors.x", "option", "'n'")),
        ('kind = "fixed"\ntopology = "chain"\nn = 999', ("conductors.x", "n is a whole number")),
        ('kind = "fixed"\ntopology = "vote"\nroles = { judge = "bob" }', ("conductors.x", "option", "judge")),
        ('kind = "fixed"\ntopology = "debate"\nworkers = ["ann", "bob", "ann"]', ("conductors.x", "two workers")),
        ('kind = "fixed"\ntopology = "agreement"\nn = 2', ("conductors.x", "option", "'n'")),
        ('kind = "fixed"\ntopology = "cascade"\nworkers = ["cid"]', ("conductors.x", "worker", "cid")),
        ('kind = "lm"\nendpoint = "cid"', ("conductors.x", "worker", "cid")),
        ('kind = "lm"\nendpoint = "ann"\nfallback = "fixed:chian"', ("conductors.x", "topology", "chian")),
        ('kind = "lm"\nendpoint = "ann"\nfallback = "x"', ("conductors.x", "is its own fallback")),
        ('kind = "rules"\nfile = "no.toml"', ("conductors.x", "no.toml")),
        ('kind = "trained"\npath = "nowhere"', ("conductors.x", "nowhere")),
        ('kind = "policy"\nfile = "no.npz"', ("conductors.x", "no.npz")),
    ],
)
def test_a_table_that_is_wrong_is_told_with_its_name(tmp_path: Path, table: str, said: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError) as error:
        check_conductors(composed(tmp_path, f"[conductors.x]\n{table}\n"))
    assert [word for word in ("shikisha.toml", *said) if word not in str(error.value)] == []


def test_what_is_right_needs_no_key_and_all_that_is_wrong_is_told_at_once(tmp_path: Path) -> None:
    tables = '[conductors.good]\nkind = "lm"\nendpoint = "ann"\nfallback = "fixed:vote?n=2"\n'
    assert [trouble for _, trouble in conductor_problems(composed(tmp_path, tables))] == [None, None]
    tables += '[conductors.x]\nkind = "fixed"\ntopology = "a"\n[conductors.y]\nkind = "fixed"\ntopology = "b"\n'
    with pytest.raises(ConfigError, match=r"conductors\.x(.|\n)*conductors\.y"):
        check_conductors(composed(tmp_path, tables))


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ('conductor = "fixed:single?worker=bob"\npool = ["ann"]\n', "conductor"),
        ('conductor = "fixed:chian"\n', "conductor"),
        ('[workers.kid]\nkind = "conductor"\nconductor = "fixed:chian"\n', "workers.kid.conductor"),
    ],
)
def test_conductors_that_have_no_table_are_looked_at_too(tmp_path: Path, text: str, place: str) -> None:
    wrong = [where for where, trouble in conductor_problems(composed(tmp_path, text)) if trouble is not None]
    assert wrong == [place]


async def test_a_server_does_not_start_with_a_conductor_that_could_not_conduct(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"shikisha\.toml: conductors\.x"):
        async with served(tmp_path, f'[server]\nport = 0\n[conductors.x]\nkind = "fixed"\ntopology = "a"\n{WORKERS}'):
            pass


def test_doctor_says_which(tmp_path: Path) -> None:
    composed(tmp_path, '[conductors.x]\nkind = "fixed"\ntopology = "a"\n')
    done = CliRunner().invoke(app, ["doctor", "--json", "--config", str(tmp_path / "shikisha.toml")])
    verdicts = {one["subject"]: one["verdict"] for one in json.loads(done.stdout)["findings"]}
    assert (done.exit_code, verdicts["conductors.x"]) == (ExitCode.CONFIG, "FAIL")
