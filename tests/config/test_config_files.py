"""What `init` writes, the published schema, and files that configurations point at."""

import json
import tomllib
from pathlib import Path

import jsonschema
import pytest

from shikisha.config import adapters
from shikisha.config.container import load_config
from shikisha.config.settings import ServerTable
from shikisha.config.template import TEMPLATE, config_schema
from shikisha.core.errors import ConfigError

EVERYTHING = "\n".join(
    line[1:] if line.startswith("#") and not line.startswith("# ") else line for line in TEMPLATE.splitlines()
)
ENVIRONMENT = {"OPENAI_API_KEY": "sk-0123456789", "SHIKISHA_JOURNAL": "postgresql://host/db"}


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "shikisha.toml"
    path.write_text(text)
    return path


class TestTemplate:
    def test_it_is_valid_as_it_stands(self, tmp_path: Path) -> None:
        composition = load_config(written(tmp_path, TEMPLATE), {})
        assert composition.pool().names == ("cheap",)

    def test_it_is_valid_with_everything_switched_on(self, tmp_path: Path) -> None:
        composition = load_config(written(tmp_path, EVERYTHING), ENVIRONMENT)
        pool = composition.pool()
        assert pool.names == ("cheap", "strong", "calculator")
        assert composition.caps.dollars == 0.5
        for name in ("planner", "jury"):
            assert composition.conductor(name, pool).name == name

    def test_only_settings_are_commented_out_without_a_space(self) -> None:
        assert set(tomllib.loads(EVERYTHING)) > {"pool", "workers", "conductors"}


class TestSchema:
    def test_it_is_a_schema(self) -> None:
        jsonschema.Draft202012Validator.check_schema(config_schema())

    def test_it_describes_every_key(self) -> None:
        schema = config_schema()
        definitions = schema["$defs"]
        assert isinstance(definitions, dict)
        tables = {"the file": schema, **definitions}
        keys = [
            (name, key, entry) for name, table in tables.items() for key, entry in table.get("properties", {}).items()
        ]
        assert len(keys) > 200
        assert [f"{name}: {key}" for name, key, entry in keys if not entry.get("description")] == []

    @pytest.mark.parametrize("text", ["", TEMPLATE, EVERYTHING])
    def test_it_takes_what_we_take(self, text: str) -> None:
        jsonschema.validate(tomllib.loads(text), config_schema())

    @pytest.mark.parametrize(
        "text",
        [
            "x = 1",
            "[budgets]\nsteps = 0",
            "[workers.a]\nkind = 'chat'",
            "[workers.a]\nkind = 'scripted'\nanswer = 'x'",
            "[workers.a]\nkind = 'spell'",
            "[checks.a]\nkind = 'length'\nmax_words = 'x'",
        ],
    )
    def test_it_refuses_what_we_refuse(self, tmp_path: Path, text: str) -> None:
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(tomllib.loads(text), config_schema())
        with pytest.raises(ConfigError):
            load_config(written(tmp_path, text), {})

    def test_each_worker_takes_shared_keys_and_its_own_and_no_others(self) -> None:
        validator = jsonschema.Draft202012Validator(config_schema())
        own: dict[str, dict[str, object]] = {
            "human": {"instruction": "x"},
            "local": {"tool": "calculator"},
            "python": {"seconds": 5.0},
        }
        for kind, keys in own.items():
            table = {"kind": kind, "rate": 2.0, **keys}
            assert validator.is_valid({"workers": {"a": table}})
            others = {key: value for each in own.values() if each != keys for key, value in each.items()}
            for key, value in {**others, "ratee": 2.0}.items():
                assert not validator.is_valid({"workers": {"a": {**table, key: value}}}), (kind, key)

    def test_a_key_that_tables_share_is_stated_once(self) -> None:
        text = json.dumps(config_schema())
        assert text.count("attempts at one step before the fallback is asked") == 1
        assert text.count("the most calls in flight at once") == 2  # workers and catalogues

    def test_it_knows_every_kind_with_its_own_keys(self) -> None:
        text = json.dumps(config_schema())
        for kind in (*adapters.WORKER_KINDS, *adapters.CHECK_KINDS):
            assert f'"const": "{kind}"' in text


class TestChecks:
    TEXT = """
    [workers.a]
    kind = "scripted"
    checks = ["short", { check = "words", on_fail = "escalate", redo = 0 }]
    [checks.short]
    kind = "length"
    max_words = 10
    [checks.words]
    kind = "pattern"
    pattern = "[a-z]+"
    """

    def test_a_worker_has_its_checks_in_order(self, tmp_path: Path) -> None:
        handoffs = load_config(written(tmp_path, self.TEXT), {}).pool()[0].handoffs
        assert [(each.check.name, each.on_fail, each.redo) for each in handoffs] == [
            ("short", "redo", 1),
            ("words", "escalate", 0),
        ]

    def test_a_check_that_cannot_be_built_names_its_table(self, tmp_path: Path) -> None:
        composition = load_config(written(tmp_path, self.TEXT.replace("[a-z]+", "[a-z")), {})
        with pytest.raises(ConfigError, match=r"shikisha.toml: workers.a: .*checks.words: "):
            composition.pool()


class TestReplay:
    def test_a_log_lies_beside_the_file_and_gives_the_price(self, tmp_path: Path) -> None:
        log = tmp_path / "log"
        log.mkdir()
        (log / "tasks.jsonl").write_text('{"task_id": "t", "domain": "d", "prompt": "q", "answer": "4"}\n')
        outcome = {"task_id": "t", "worker": "a", "answer": "4", "score": 1.0, "input_tokens": 5, "output_tokens": 7}
        row = {**outcome, "cost_usd": 0.1, "cost_kind": "derived"}
        (log / "outcomes.jsonl").write_text(json.dumps(row) + "\n")
        card = load_config(written(tmp_path, '[workers.a]\nkind = "replay"\nlog = "log"'), {}).pool()[0].card
        assert card.max_output_tokens >= 7


class TestRenamedKeys:
    @pytest.mark.parametrize(("old", "new"), ServerTable.renamed_keys.items())
    def test_an_earlier_key_is_accepted_with_a_warning_that_names_the_new_one(
        self, tmp_path: Path, old: str, new: str
    ) -> None:
        path = written(tmp_path, f"[server]\n{old} = 5000")
        with pytest.warns(FutureWarning, match=f"'{old}' is now '{new}'"):
            server = load_config(path, {}).settings.server
        assert getattr(server, new) == 5000

    def test_both_names_at_once_are_refused(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match="most_runs is the earlier name of max_runs"):
            load_config(written(tmp_path, "[server]\nmost_runs = 1\nmax_runs = 2"), {})


def test_a_key_that_left_says_what_to_write(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="max_hops was removed: a request comes through three servers at most"):
        load_config(written(tmp_path, "[server]\nmax_hops = 5"), {})
