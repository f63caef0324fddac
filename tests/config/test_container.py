"""One sparse file: what it means, what is wrong with it, and that no key is ever in it or in an error."""

import json
from pathlib import Path

import pytest

from shikisha.conductors.language_model import LanguageModelConductor
from shikisha.config.container import Container, load_config
from shikisha.config.environment import find_config, state_folder
from shikisha.core.budget import FREE, Caps, Price
from shikisha.core.call import ApprovalMode
from shikisha.core.errors import ConfigError
from shikisha.core.prompts import PlanFormat

KEY = "sk-live-0123456789abcdef"
TWO = """
[workers.a]
kind = "scripted"
fallback = "b"
[workers.b]
kind = "scripted"
"""


def config(tmp_path: Path, text: str, **environment: str) -> Container:
    path = tmp_path / "shikisha.toml"
    path.write_text(text)
    return load_config(path, environment)


def use(tmp_path: Path, text: str, **environment: str) -> None:
    composition = config(tmp_path, text, **environment)
    composition.conductor("", composition.pool())


def said(tmp_path: Path, text: str, **environment: str) -> str:
    """The error of loading this file and using its pool and conductor, without the folder's name."""
    with pytest.raises(ConfigError) as caught:
        use(tmp_path, text, **environment)
    return str(caught.value).replace(f"{tmp_path}/", "")


def test_a_sparse_file_has_defaults(tmp_path: Path) -> None:
    composition = config(tmp_path, TWO)
    assert composition.pool().names == ("a", "b")
    assert composition.conductor().name == "fixed:single"
    assert composition.caps == Caps()
    assert composition.journal_url() == str(tmp_path / "shikisha.db")


def test_a_worker_has_its_card(tmp_path: Path) -> None:
    text = """
    [workers.a]
    kind = "scripted"
    description = "says done"
    price = { input = 1, output = 2.5, call = 0.01 }
    concurrency = 2
    rate = 0.5
    timeout = 5
    attempts = 1
    approval = "always"
    skills = ["x"]
    """
    card = config(tmp_path, text).pool()[0].card
    assert (card.name, card.kind, card.price) == ("a", "scripted", Price(1, 2.5, call=0.01))
    assert (card.concurrency, card.rate, card.timeout, card.attempts) == (2, 0.5, 5.0, 1)
    assert (card.approval, card.skills, card.description) == (ApprovalMode.ALWAYS, ("x",), "says done")


@pytest.mark.parametrize(("kind", "price"), [('"scripted"', FREE), ('"chat"\nmodel = "m"', None)])
def test_a_call_without_a_price_is_free_or_of_unknown_cost(tmp_path: Path, kind: str, price: Price | None) -> None:
    assert config(tmp_path, f"[workers.a]\nkind = {kind}").pool()[0].card.price == price


def test_autonomy_is_the_default_for_workers_that_do_not_say(tmp_path: Path) -> None:
    text = TWO + 'approval = "never"\n[autonomy]\napproval = "always"'
    assert [card.approval for card in config(tmp_path, text).pool().cards] == [ApprovalMode.ALWAYS, ApprovalMode.NEVER]


def test_a_pool_is_chosen_and_ordered(tmp_path: Path) -> None:
    composition = config(tmp_path, 'pool = ["b", "a"]' + TWO)
    assert composition.pool().names == ("b", "a")
    assert composition.pool(["a"]).names == ("a",)
    assert composition.pool(["a"])[0].card.fallback is None


def test_caps_can_be_set_and_lifted(tmp_path: Path) -> None:
    text = '[budgets]\nsteps = 3\ndollars = 0.5\nseconds = "none"\nplan_steps = 2'
    assert config(tmp_path, text).caps == Caps(steps=3, dollars=0.5, seconds=None, plan_steps=2)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x = 1", "shikisha.toml: x: unknown key; known are answer, autonomy, budgets"),
        ("[budgets]\nstep = 1", "shikisha.toml: budgets.step: unknown key;"),
        ("[conductors.f]\nkind = 'fixed'\ntopology = 'single'\nworker = 'a'", "expected roles = { worker = NAME }"),
        (
            "[conductors.f]\nkind = 'fixed'\ntopolgy = 'vote'",
            "conductors.f.topolgy: unknown key; known are kind, n, roles",
        ),
        (
            "[conductors.fixed]\nkind = 'fixed'\nx = 1\ntopology = 'vote'",
            "conductors.fixed.x: unknown key; known are kind",
        ),
        ("[conductors.r]\nkind = 'rules'\nfiles = 'x'", "conductors.r.files: unknown key; known are file, kind"),
        ("[context.sources.s]\nkind = 'git'\npath = '.'\nx = 1", "context.sources.s.x: unknown key; known are"),
        ("[budgets]\nstep = 1", "did you mean 'steps'?"),
        ("[budgets]\nsteps = 'x'", "shikisha.toml: budgets.steps: expected a whole number"),
        ("[budgets]\nplan_steps = 65", "shikisha.toml: budgets.plan_steps: expected at most 64"),
        ("[budgets]\ndollars = nan", "shikisha.toml: budgets.dollars: expected a finite number"),
        ("[workers.a]", "shikisha.toml: workers.a.kind: expected one of a2a, agent, chat, conductor, embedding, http"),
        (
            "[workers.a]\nkind = 'chta'",
            "shikisha.toml: workers.a.kind: unknown kind of worker 'chta': known are a2a, agent,",
        ),
        ("[workers.a]\nkind = 'chat'", "shikisha.toml: workers.a.model: is missing"),
        ("[workers.a]\nkind = 'chat'\nmodel = 'm'\nmodle = 'm'", "did you mean 'model'?"),
        ("[workers.a]\nkind = 'scripted'\ntimeout = 0", "shikisha.toml: workers.a.timeout: expected more than 0"),
        (
            "[workers.a]\nkind = 'scripted'\nprice = {inptu = 1}",
            "workers.a.price.inptu: unknown key; known are as_of, audio,",
        ),
        ("[workers.'a\\nb']\nkind = 'scripted'", "shikisha.toml: "),
        ("pool = ['c']" + TWO, "shikisha.toml: pool[0]: unknown worker 'c': known are a, b"),
        ("pool = []" + TWO, "shikisha.toml: pool: "),
        ("pool = ['a']" + TWO, "unknown stand-in of worker 'a' 'b': known are a"),
        (TWO + "escalate = 'c'", "shikisha.toml: workers.b.escalate: unknown worker 'c'"),
        (TWO + "checks = ['c']", "shikisha.toml: workers.b.checks[0]: unknown check 'c': known are none"),
        ("conductor = 'fixed:voting'" + TWO, "shikisha.toml: conductor: unknown topology 'voting'"),
        ("conductor = 'fixed:single?worker=c'" + TWO, "shikisha.toml: conductor: unknown worker 'c'"),
        (
            "conductor = 'judge'" + TWO,
            "unknown conductor 'judge': known are chat:..., fixed:NAME, ",
        ),
        ("conductor = 'lm:c'" + TWO, "shikisha.toml: conductor: unknown worker 'c'"),
        ("conductor = 'lm:a?fallbak=b'" + TWO, "lm:a?fallbak=b: fallbak: unknown key"),
        ("conductor = 'rules:nowhere.toml'" + TWO, "nowhere.toml: cannot be read"),
        (TWO + "[conductors.x]\nkind = 'lm'\nendpoint = 'c'", "conductors.x.endpoint: unknown worker 'c'"),
        (TWO + "[conductors.x]\nkind = 'ml'", "conductors.x.kind: unknown kind of conductor 'ml': known are chat,"),
        (
            "conductor = 'x'" + TWO + "[conductors.x]\nkind = 'fixed'\ntopology = 'vote'\nroles = {j = 'a'}",
            "conductors.x",
        ),
        ("[checks.c]\nkind = 'spell'", "shikisha.toml: checks.c.kind: unknown kind of check 'spell'"),
        ("[journal]\nurl = 'postgresql://me:pw@host/db'", "a URL holds no password"),
        ("a = ", "shikisha.toml: not TOML: "),
    ],
)
def test_a_wrong_file_names_file_key_and_what_was_expected(tmp_path: Path, text: str, expected: str) -> None:
    assert expected in said(tmp_path, text)


def test_many_errors_are_all_told_up_to_twenty(tmp_path: Path) -> None:
    text = "\n".join(f"x{i} = 1" for i in range(22))
    assert said(tmp_path, text).count("unknown key") == 20
    assert said(tmp_path, text).endswith("(and 2 more)")


CHAT = '[workers.a]\nkind = "chat"\nmodel = "m"\n'


class TestKeys:
    def test_a_missing_key_names_the_variable(self, tmp_path: Path) -> None:
        assert "environment variable THE_KEY is not set" in said(tmp_path, CHAT + 'api_key_env = "THE_KEY"')

    def test_a_key_is_needed_only_by_the_pool_that_is_used(self, tmp_path: Path) -> None:
        composition = config(tmp_path, CHAT + 'api_key_env = "THE_KEY"' + TWO.replace("s.a", "s.c"))
        assert composition.pool(["b"]).names == ("b",)

    @pytest.mark.parametrize("line", [f'api_key_env = "{KEY}"', f'api_key = "{KEY}"', f'price = "{KEY}"'])
    def test_invariant_8_a_key_in_the_file_is_refused_and_not_repeated(self, tmp_path: Path, line: str) -> None:
        message = said(tmp_path, CHAT + line)
        assert "shikisha.toml: workers.a." in message
        assert KEY not in message

    def test_invariant_8_the_resolved_configuration_holds_no_key(self, tmp_path: Path) -> None:
        composition = config(tmp_path, CHAT + 'api_key_env = "THE_KEY"', THE_KEY=KEY)
        composition.pool()
        assert KEY not in composition.resolved()
        assert json.loads(composition.resolved())["workers"]["a"]["api_key_env"] == "THE_KEY"

    async def test_a_journal_url_can_come_from_the_environment(self, tmp_path: Path) -> None:
        composition = config(tmp_path, '[journal]\nurl_env = "DB"', DB="postgresql://me:pw@host/db")
        assert composition.journal_url() == "postgresql://me:pw@host/db"


class TestConductors:
    def test_a_table_gives_a_conductor_its_name(self, tmp_path: Path) -> None:
        table = '[conductors.jury]\nkind = "fixed"\ntopology = "vote"\nworkers = ["a"]\nn = 2\nroles = {join = "b"}'
        composition = config(tmp_path, 'conductor = "jury"' + TWO + table)
        assert composition.conductor("", composition.pool()).name == "jury"

    def test_a_rules_file_lies_beside_the_configuration(self, tmp_path: Path) -> None:
        (tmp_path / "triage.toml").write_text('[[rule]]\nworker = "a"')
        composition = config(tmp_path, TWO + '[conductors.triage]\nkind = "rules"\nfile = "triage.toml"')
        assert composition.conductor("triage", composition.pool()).name == "triage"

    def test_a_rule_for_an_unknown_worker_is_found_at_once(self, tmp_path: Path) -> None:
        (tmp_path / "triage.toml").write_text('[[rule]]\nworker = "c"')
        composition = config(tmp_path, TWO)
        with pytest.raises(ConfigError, match=r"triage.toml: rule\[0\].worker: unknown worker 'c': known are a, b"):
            composition.conductor(f"rules:{tmp_path}/triage.toml", composition.pool())

    def test_an_endpoint_conducts_with_its_fallback(self, tmp_path: Path) -> None:
        conductor = config(tmp_path, TWO).conductor("lm:a?fallback=fixed:single&described=false")
        assert isinstance(conductor, LanguageModelConductor)
        assert conductor.fallback is not None
        assert (conductor.fallback.name, conductor.style.described) == ("fixed:single", False)
        assert conductor.name == "lm:a?fallback=fixed:single&described=false"

    @pytest.mark.parametrize(("structured", "form"), [("true", PlanFormat.JSON), ("false", PlanFormat.LISTS)])
    def test_an_endpoint_with_structured_output_is_asked_for_json(
        self, tmp_path: Path, structured: str, form: PlanFormat
    ) -> None:
        conductor = config(tmp_path, CHAT + f"structured_output = {structured}").conductor("lm:a")
        assert isinstance(conductor, LanguageModelConductor)
        assert conductor.style.form is form

    def test_conductors_that_stand_in_for_each_other_are_refused(self, tmp_path: Path) -> None:
        tables = "".join(
            f'[conductors.{one}]\nkind = "lm"\nendpoint = "a"\nfallback = "{other}"\n' for one, other in ("xy", "yx")
        )
        assert "is its own fallback" in said(tmp_path, 'conductor = "x"' + TWO + tables)


def test_a_child_run_gets_all_workers_but_child_runs(tmp_path: Path) -> None:
    composition = config(tmp_path, TWO + '[workers.team]\nkind = "conductor"\nconductor = "fixed:chain"')
    assert composition.pool().names == ("a", "b", "team")


def test_a_child_run_has_as_long_as_its_own_cap(tmp_path: Path) -> None:
    table = '[workers.team]\nkind = "conductor"\nconductor = "fixed:chain"\nbudgets = { seconds = 90 }\n'
    assert config(tmp_path, TWO + table).pool().named("team").card.timeout == 90
    assert config(tmp_path, TWO + table + "timeout = 5").pool().named("team").card.timeout == 5


def test_a_child_run_that_could_wait_for_itself_is_refused(tmp_path: Path) -> None:
    table = '[workers.team]\nkind = "conductor"\npool = ["team", "a"]\nconcurrency = 1'
    with pytest.raises(ConfigError, match="would wait for itself"):
        config(tmp_path, TWO + table).pool()


def test_a_child_run_gives_no_opinion(tmp_path: Path) -> None:
    tables = '[workers.team]\nkind = "conductor"\n[checks.good]\nkind = "opinion"\nworker = "team"\n'
    checked = '[workers.c]\nkind = "scripted"\nanswers = ["x"]\nchecks = ["good"]\n'
    with pytest.raises(ConfigError, match="cannot give an opinion"):
        config(tmp_path, TWO + tables + checked).pool()


class TestWhere:
    def test_the_file_given_goes_before_the_variable(self, tmp_path: Path) -> None:
        environment = {"SHIKISHA_CONFIG": "other.toml"}
        assert find_config(tmp_path / "a.toml", environment) == tmp_path / "a.toml"
        assert find_config(None, environment) == Path("other.toml")

    def test_a_named_file_that_is_not_there_is_an_error(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match=r"a.toml: cannot be read: No such file"):
            load_config(tmp_path / "a.toml", {})

    def test_without_a_file_the_journal_is_in_the_state_folder(self, tmp_path: Path) -> None:
        assert state_folder({"XDG_STATE_HOME": str(tmp_path)}) == tmp_path / "shikisha"
        assert state_folder({"XDG_STATE_HOME": "relative"}).parts[-3:] == (".local", "state", "shikisha")


def test_without_workers_nobody_plays_but_who_is_asked_for_by_name(tmp_path: Path) -> None:
    for nobody in ("", "[budgets]\nsteps = 9", "[workers]", 'pool = ["simulated", "simulated-small"]'):
        with pytest.raises(ConfigError, match=r"names no workers|unknown worker 'simulated'"):
            config(tmp_path, nobody).pool()
    composition = config(tmp_path, 'pool = ["simulated"]\n[budgets]\nsteps = 9')
    assert "simulated-large" in composition.pool().names
    assert composition.conductor("fixed:single?worker=simulated-small", composition.pool()).name
    assert all(card.description for card in composition.pool().cards)


def test_all_that_is_wrong_is_said_at_once(tmp_path: Path) -> None:
    text = (
        "pol = ['a']\nconductor = 3\n[workers.a]\nkind = 'scriptd'\n[workers.b]\nkind = 'chat'\nmodle = 'm'\n"
        "[checks.c]\nkind = 'length'\nmax_wrds = 3\n[server]\nport = 'x'\n"
    )
    told = said(tmp_path, text)
    wrong = ("pol: unknown key", "conductor: ", "workers.a.kind", "workers.b.modle", "workers.b.model: is missing")
    for each in (*wrong, "checks.c.max_wrds", "server.port"):
        assert each in told
    names = "[workers.a]\nkind = 'scripted'\nanswers = '1'\nfallback = 'x'\nescalate = 'y'\n"
    assert said(tmp_path, names).count("unknown worker") == 2
