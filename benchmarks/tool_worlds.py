"""The worlds of published tool benchmarks as tools of ours: their own Python classes, data and verdicts.

    git clone https://github.com/olly-styles/WorkBench
    git clone https://github.com/sierra-research/tau2-bench
    pip download --no-deps bfcl-eval && unzip bfcl_eval-*.whl -d bfcl
    pip install --target deps pandas==2.1.4 numpy==1.26.3          # WorkBench, whose verdicts are pandas 2's
    pip install --target tau-deps loguru deepdiff docstring_parser python-dotenv addict toml    # tau2

A world gives its tools (`tools`), is called by name, and judges what was done as its authors judge it. What their
packages import and these parts do not use (language models, plots) is replaced by empty modules. Nothing of theirs is
kept here.
"""

import ast
import csv
import inspect
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import cast
from warnings import filterwarnings

from shikisha.core.messages import Json
from shikisha.core.tools import Tool, ToolEffect

Arguments = Mapping[str, Json]
_JSON_TYPES = {"dict": "object", "float": "number", "tuple": "array", "any": ""}


@dataclass(frozen=True, slots=True)
class WorldCall:
    """One call of a tool."""

    name: str
    arguments: Arguments


class EmptyModule(ModuleType):
    """A module whose every name is a class that does nothing: for imports whose use is never reached."""

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {"__init__": lambda *_, **__: None})


def replace_modules(*names: str) -> None:
    """Put empty modules in the place of these, with their packages."""
    for name in names:
        parts = name.split(".")
        for end in range(1, len(parts) + 1):
            each = ".".join(parts[:end])
            if each not in sys.modules:
                module = EmptyModule(each)
                module.__path__ = []
                sys.modules[each] = module


def json_result(value: object) -> str:
    """Return a tool's result as the text that an agent is shown."""
    return value if isinstance(value, str) else json.dumps(value, default=str, ensure_ascii=False)


# WorkBench


@dataclass(frozen=True, slots=True)
class WorkBenchRun:
    """A task, and what somebody did for it: `actions` and `gold` are calls in the benchmark's own notation."""

    domain: str
    model: str
    query: str
    actions: tuple[str, ...]
    gold: tuple[str, ...]
    error: str = ""


class WorkBench:
    """26 tools over five tables in pandas; a run is right when it leaves the tables as the gold calls leave them."""

    DOMAINS = ("email", "calendar", "analytics", "customer_relationship_manager", "project_management", "multi_domain")
    NOW = (
        "Today's date is Thursday, 2023-11-30 and the current time is 00:00:00. Remember the current date and time "
        "when answering queries. Meetings must not start before 9am or end after 6pm."
    )

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()
        os.chdir(self.root)  # its modules read their data by relative paths
        sys.path.insert(0, str(self.root))
        replace_modules("langchain_openai", "langchain_community.chat_models.anthropic", "langchain.agents")
        replace_modules("langchain_community.chat_models.anyscale", "langchain.tools")
        sys.modules["langchain.tools"].__dict__["tool"] = _langchain_tool
        filterwarnings("ignore", module="src.tools")
        pandas = import_module("pandas")
        read, kept = pandas.read_csv, {}

        def read_once(path: str, **options: object) -> object:
            if path not in kept:
                kept[path] = read(path, **options)
            return kept[path].copy()

        vars(pandas)["read_csv"] = read_once  # a state is reset from memory
        self._evals = import_module("src.evals.utils")
        kits = import_module("src.tools.toolkits")
        self._functions = {each.name: each.func for each in kits.all_tools}
        self._writes = {each.name for each in kits.tools_with_side_effects}
        self.tools = tuple(self._tool(name, function) for name, function in self._functions.items())

    def _tool(self, name: str, function: Callable[..., object]) -> Tool:
        effect = ToolEffect.WRITE if name in self._writes else ToolEffect.READ
        properties: dict[str, Json] = {each: {} for each in inspect.signature(function).parameters}
        schema: Mapping[str, Json] = {"type": "object", "properties": properties, "additionalProperties": False}
        return Tool(name.replace(".", "__"), inspect.getdoc(function) or "", schema, "workbench", effect=effect)

    def reset(self) -> None:
        """Bring all tables back to their first state."""
        for domain in self._evals.DOMAINS:
            domain.reset_state()

    def call(self, name: str, arguments: Arguments) -> str:
        """Call a tool; an error of its own is its result."""
        try:
            return json_result(self._functions[name.replace("__", ".")](**arguments))
        except Exception as error:  # noqa: BLE001 - their tools raise whatever pandas does
            return f"Error: {error}"

    @staticmethod
    def read_call(action: str) -> WorldCall | None:
        """Return a call in their notation as ours; None where Python cannot read it, which the benchmark skips too."""
        try:
            node = ast.parse(action, mode="eval").body
            if not isinstance(node, ast.Call):
                return None
            arguments = {str(each.arg): ast.literal_eval(each.value) for each in node.keywords}
        except (SyntaxError, ValueError):
            return None
        return WorldCall(action.partition(".func(")[0].replace(".", "__"), arguments)

    @staticmethod
    def write_call(call: WorldCall) -> str:
        """Return a call in their notation."""
        arguments = ", ".join(f"{name}={value!r}" for name, value in call.arguments.items())
        return f"{call.name.replace('__', '.')}.func({arguments})"

    def right(self, actions: Sequence[str], gold: Sequence[str], error: str = "") -> bool:
        """Return the benchmark's verdict."""
        return bool(self._evals.is_correct(list(actions), list(gold), error))

    def harmful(self, actions: Sequence[str], gold: Sequence[str]) -> bool:
        """Return whether something was changed that should not have been, as the benchmark counts it."""
        return bool(self._evals.has_side_effects(list(actions), list(gold)))

    def tasks(self) -> Iterator[WorkBenchRun]:
        """Yield all tasks, done as the gold calls do them."""
        for domain in self.DOMAINS:
            for query, gold in self._gold(domain).items():
                yield WorkBenchRun(domain, "gold", query, gold, gold)

    def runs(self, domain: str) -> Iterator[WorkBenchRun]:
        """Yield the published runs on a domain's tasks."""
        csv.field_size_limit(10**9)
        gold = self._gold(domain)
        for file in sorted((self.root / "data/results" / domain).glob("*.csv")):
            model = "_".join(file.name.split("_")[:2])
            with file.open() as lines:
                for row in csv.DictReader(lines):
                    actions = tuple(each.replace("\n", "\\n") for each in ast.literal_eval(row["function_calls"]))
                    yield WorkBenchRun(domain, model, row["query"], actions, gold[row["query"]], row["error"])

    def _gold(self, domain: str) -> dict[str, tuple[str, ...]]:
        file = self.root / "data/processed/queries_and_answers" / f"{domain}_queries_and_answers.csv"
        with file.open() as lines:
            rows = list(csv.DictReader(lines))
        return {
            row["query"]: tuple(each.replace("\n", "\\n") for each in ast.literal_eval(row["answer"])) for row in rows
        }


def _langchain_tool(name: str, **_: object) -> Callable[[Callable[..., object]], SimpleNamespace]:
    def wrap(function: Callable[..., object]) -> SimpleNamespace:
        return SimpleNamespace(name=name, func=function, __module__=function.__module__)

    return wrap


# BFCL v4, multi-turn


@dataclass(frozen=True, slots=True)
class BfclTask:
    """A task of several user turns; `turns` are the words of each, `gold` the calls of each in BFCL's notation."""

    category: str
    entry: Mapping[str, object]
    turns: tuple[str, ...]
    gold: tuple[tuple[str, ...], ...]

    @property
    def id(self) -> str:
        """The task's name."""
        return str(self.entry["id"])


class Bfcl:
    """Eight stateful Python classes; a run is right when after each turn their state and results are the gold's."""

    CATEGORIES = ("base", "miss_func", "miss_param", "long_context")

    def __init__(self, root: Path, *, unchecked: bool = False) -> None:
        """Read the wheel unpacked at `root`; `unchecked` offers every function, of which any object is an argument."""
        sys.path.insert(0, str(root.resolve()))
        self._unchecked = unchecked
        self._data = root.resolve() / "bfcl_eval" / "data"
        self._checker = import_module("bfcl_eval.eval_checker.multi_turn_eval.multi_turn_checker")
        self._utils = import_module("bfcl_eval.eval_checker.multi_turn_eval.multi_turn_utils")
        self._config = import_module("bfcl_eval.constants.executable_backend_config")
        self._instances: dict[str, object] = {}
        self._methods: dict[str, Callable[..., object]] = {}
        self.tools: tuple[Tool, ...] = ()

    def tasks(self) -> Iterator[BfclTask]:
        """Yield all 800 tasks."""
        for category in self.CATEGORIES:
            questions = _read_lines(self._data / f"BFCL_v4_multi_turn_{category}.json")
            answers = _read_lines(self._data / "possible_answer" / f"BFCL_v4_multi_turn_{category}.json")
            for entry, answer in zip(questions, answers, strict=True):
                asked = cast("Sequence[Sequence[Mapping[str, str]]]", entry["question"])
                gold = cast("Sequence[Sequence[str]]", answer["ground_truth"])
                turns = tuple("\n".join(said["content"] for said in turn) for turn in asked)
                yield BfclTask(category, entry, turns, tuple(tuple(turn) for turn in gold))

    def begin(self, task: BfclTask) -> None:
        """Build the task's instances, and offer their methods."""
        self._instances, self._methods, tools = {}, {}, []
        hidden = {*_names(task.entry.get("excluded_function"))}
        for name in _names(task.entry["involved_classes"]):
            made = getattr(import_module(self._config.CLASS_FILE_PATH_MAPPING[name]), name)()
            if name not in self._config.STATELESS_CLASSES:
                initial = cast("Mapping[str, object]", task.entry["initial_config"])
                made._load_scenario(deepcopy(initial.get(name, {})), long_context=task.category == "long_context")
            self._instances[name] = made
            for described in _read_lines(
                self._data / "multi_turn_func_doc" / self._config.MULTI_TURN_FUNC_DOC_FILE_MAPPING[name]
            ):
                method = str(described["name"])
                self._methods[method] = getattr(made, method)
                if method not in hidden:
                    schema = cast("Mapping[str, Json]", json_schema(described["parameters"]))
                    schema = {"type": "object"} if self._unchecked else schema
                    tools.append(Tool(method, str(described["description"]), schema, name))
        self.tools = tuple(tools)

    def offered(self, task: BfclTask, turn: int) -> tuple[Tool, ...]:
        """Return the tools of a turn: functions that the task holds back are there from their turn on."""
        missed = cast("Mapping[str, Sequence[str]]", task.entry.get("missed_function") or {})
        if self._unchecked:
            return self.tools
        late = {name for when, names in missed.items() if turn < int(when) for name in names}
        return tuple(tool for tool in self.tools if tool.name not in late)

    def call(self, name: str, arguments: Arguments) -> str:
        """Call a method, and return its result as BFCL writes it."""
        try:
            value = self._methods[name](**deepcopy(dict(arguments)))
        except Exception as error:  # noqa: BLE001 - their classes raise what they like, and BFCL shows it
            return f"Error during execution: {error}"
        if isinstance(value, dict):
            try:
                return json.dumps(value)
            except TypeError:
                return str(value)
        return value if isinstance(value, str) else str(value)

    def read_call(self, action: str) -> WorldCall:
        """Return a gold call as ours: positional arguments get their parameters' names."""
        node = ast.parse(action, mode="eval").body
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
            raise ValueError(f"no call: {action}")
        name = node.func.id
        places = list(inspect.signature(self._methods[name]).parameters)
        arguments = {place: ast.literal_eval(part) for place, part in zip(places, node.args, strict=False)}
        arguments |= {str(each.arg): ast.literal_eval(each.value) for each in node.keywords}
        return WorldCall(name, arguments)

    @staticmethod
    def write_call(call: WorldCall) -> str:
        """Return a call in BFCL's notation."""
        return f"{call.name}({', '.join(f'{name}={value!r}' for name, value in call.arguments.items())})"

    def verdict(self, task: BfclTask, made: Sequence[Sequence[WorldCall]]) -> str:
        """Return what is wrong by BFCL's checkers, of the calls and of the state they left here; "" for nothing."""
        decoded = [[[self.write_call(call)] for call in turn] for turn in made]
        gold = [list(turn) for turn in task.gold]
        name = f"multi_turn_{task.category}"
        found = self._checker.multi_turn_checker(decoded, gold, dict(task.entry), name, "ours")
        if found["valid"]:
            found = self._checker.multi_turn_irrelevance_checker(decoded, gold)
        kept = [key for key in vars(self._utils) if key.endswith("_instance")]
        theirs = {cls: getattr(self._utils, key) for key in kept for cls in self._instances if self._is_gold(key, cls)}
        if found["valid"] and theirs:
            found = self._checker.state_checker(self._instances, theirs)
        for key in kept:
            delattr(self._utils, key)
        return "" if found["valid"] else f"{found.get('error_type')}: {found.get('error_message')}"

    @staticmethod
    def _is_gold(key: str, cls: str) -> bool:
        return key.startswith("ours_ground_truth") and key.endswith(f"_{cls}_instance")


def _read_lines(file: Path) -> list[dict[str, Json]]:
    return [json.loads(line) for line in file.read_text().splitlines() if line.strip()]


def _names(value: object) -> list[str]:
    return [str(each) for each in value] if isinstance(value, list) else []


def json_schema(described: object) -> object:
    """Return BFCL's description of parameters as JSON Schema: `dict`, `float` and the like get JSON's names."""
    if isinstance(described, list):
        return [json_schema(each) for each in described]
    if not isinstance(described, dict):
        return described
    found = {key: json_schema(value) for key, value in described.items() if key in _SCHEMA_KEYS}
    if isinstance(described.get("properties"), dict):
        found["properties"] = {name: json_schema(each) for name, each in described["properties"].items()}
    kind = described.get("type")
    if isinstance(kind, str) and kind in _JSON_TYPES:
        found.pop("type", None)
        if _JSON_TYPES[kind]:
            found["type"] = _JSON_TYPES[kind]
    return found


_SCHEMA_KEYS = frozenset({"type", "properties", "required", "items", "description", "enum"})


# tau2: retail and banking knowledge


@dataclass(frozen=True, slots=True)
class Tau2Task:
    """A task; `gold` are the calls of agent and user in order, with who makes each."""

    domain: str
    task: SimpleNamespace
    gold: tuple[tuple[str, WorldCall], ...]

    @property
    def words(self) -> str:
        """What the user wants, in the benchmark's words."""
        return str(self.task.user_scenario)


class Tau2:
    """The domains' own environments; a run is right when it leaves the databases as the gold actions leave them."""

    DOMAINS = ("retail", "banking_knowledge")

    def __init__(self, root: Path) -> None:
        os.environ.setdefault("TAU2_DATA_DIR", str(root.resolve() / "data"))
        sys.path.insert(0, str(root.resolve() / "src"))
        replace_modules("litellm.caching.caching", "redis", "langfuse", "httpx", "langfuse.decorators")
        bare = ModuleType("tau2")  # its own __init__ imports everything
        bare.__path__ = [str(root.resolve() / "src" / "tau2")]
        sys.modules["tau2"] = bare
        import_module("loguru").logger.remove()  # it warns of every lenient replay
        self._modules = {name: import_module(f"tau2.domains.{name}.environment") for name in self.DOMAINS}
        self._messages = import_module("tau2.data_model.message")
        self._environments = import_module("tau2.evaluator.evaluator_env").EnvironmentEvaluator
        self._actions = import_module("tau2.evaluator.evaluator_action").ActionEvaluator
        self._communicates = import_module("tau2.evaluator.evaluator_communicate").CommunicateEvaluator
        self._toolkit = import_module("tau2.environment.toolkit")
        self._options: dict[str, object] = {}
        self._world: SimpleNamespace | None = None
        self.messages: list[object] = []
        self.tools: tuple[Tool, ...] = ()

    def tasks(self) -> Iterator[Tau2Task]:
        """Yield all tasks of both domains."""
        for domain in self.DOMAINS:
            for task in self._modules[domain].get_tasks(None):
                actions = task.evaluation_criteria.actions or []
                gold = tuple((str(each.requestor), WorldCall(each.name, each.arguments)) for each in actions)
                yield Tau2Task(domain, task, gold)

    def begin(self, item: Tau2Task) -> None:
        """Build the task's environment in its first state, and offer what agent and user may call."""
        self._options = {"retrieval_variant": "no_knowledge"} if item.domain == "banking_knowledge" else {}
        if item.domain == "banking_knowledge":
            self._options["read_log_allowlist"] = {
                str(call.arguments.get("agent_tool_name", "")) for _, call in item.gold
            } - {""}
        world = self._modules[item.domain].get_environment(**self._options)
        first = item.task.initial_state
        world.set_state(
            initialization_data=first.initialization_data if first else None,
            initialization_actions=first.initialization_actions if first else None,
            message_history=[],
        )
        self._world, self.messages = world, []
        self._types = {**self._kinds(world.tools), **(self._kinds(world.user_tools) if world.user_tools else {})}
        agents = [self._tool(each, "assistant") for each in world.get_tools()]
        users = [self._tool(each, "user") for each in world.get_user_tools()] if world.user_tools else []
        self.tools = (*agents, *users)

    def _kinds(self, toolkit: object) -> dict[str, object]:
        return dict(self._toolkit.get_tool_types(toolkit))

    def _tool(self, described: SimpleNamespace, who: str) -> Tool:
        function = described.openai_schema["function"]
        reads = str(getattr(self._types.get(described.name), "value", "")) in {"read", "think", "generic"}
        effect = ToolEffect.READ if reads else ToolEffect.WRITE
        name = described.name if who == "assistant" else f"user__{described.name}"
        return Tool(name, str(function.get("description", "")), function["parameters"], who, effect=effect)

    def call(self, name: str, arguments: Arguments) -> str:
        """Call a tool of the agent's or the user's in the environment, and note both messages of the trajectory."""
        assert self._world is not None
        who = "user" if name.startswith("user__") else "assistant"
        number = len(self.messages)
        kinds = {"user": self._messages.UserMessage, "assistant": self._messages.AssistantMessage}
        made = self._messages.ToolCall(
            id=f"c{number}", name=name.removeprefix("user__"), arguments=deepcopy(dict(arguments)), requestor=who
        )
        result = self._world.get_response(made)
        self.messages += [kinds[who](role=who, content=None, tool_calls=[made]), result]
        return str(result.content)

    def verdict(self, item: Tau2Task) -> tuple[float, tuple[str, ...]]:
        """Return the reward over the parts that need no language model, and those that do and are left out."""
        basis = [str(each.value) for each in item.task.evaluation_criteria.reward_basis]
        trajectory = [*self.messages, self._messages.AssistantMessage(role="assistant", content="Done.")]
        reward, left = 1.0, tuple(part for part in basis if part == "NL_ASSERTION")
        if {"DB", "ENV_ASSERTION"}.intersection(basis):
            build = self._modules[item.domain].get_environment
            options = dict(self._options)

            def construct(**given: object) -> object:
                return build(**{**options, **given})

            reward *= self._environments.calculate_reward(construct, item.task, trajectory).reward
        if "ACTION" in basis:
            reward *= self._actions.calculate_reward(item.task, trajectory, tool_types=self._types).reward
        if "COMMUNICATE" in basis:
            reward *= self._communicates.calculate_reward(item.task, trajectory).reward
        return reward, left
