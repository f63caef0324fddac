"""The engine as a `verifiers` environment (0.4, its v1 classes): the policy writes plans, the engine performs them.

    pip install verifiers shikisha ./integrations/verifiers
    vf-eval shikisha-conductor --env.taskset.task.file recipes/conductor-0.5b.toml --env.rounds 2 -m MODEL -n 20

One file with the three parts of a verifiers environment: the tasks of a training file (`tasks.*` of `shikisha train`),
an episode of up to `rounds` plans, and a harness that asks the model once a turn in this process, so that no program
and no sandbox is needed. The reward and the metrics are those of `shikisha_train.plan_rewards`, whose invariants hold.
A row is plain data; a process that did not write it opens the same file and finds the same task. Deliberately absent:
tools (a plan is text), the curriculum (trainers have their own).
"""

import asyncio
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

import httpx
import verifiers.v1 as vf
from pydantic import Field
from verifiers.v1.dialects.chat import message_to_wire

from shikisha.core.errors import ConfigError
from shikisha.core.prompts import next_round_message
from shikisha_train.plan_rewards import PlanReward, PlanRow, SharedPlanRewards, open_plan_rewards

__all__ = ["ConductorEnv", "ConductorHarness", "ConductorTaskset"]

_MODEL_SECONDS = 600.0


class ConductorTaskConfig(vf.TaskConfig):
    """Which training file, which workers, and where replies that were paid for are kept."""

    file: str = ""
    """The training file, as for `shikisha train`; its tasks, reward and spend count."""
    workers: str = ""
    """The configuration of the workers; empty: $SHIKISHA_CONFIG, else ./shikisha.toml."""
    replies: str = ""
    """A folder for workers' replies; empty: they are not kept."""
    processes: int = Field(1, ge=1)
    """How many processes score together and share the dollars (the trainer's env workers)."""


class ConductorData(vf.TaskData):
    """A row of `plan_rewards`: the task's place in the file's stream, and what its prompt showed."""

    index: int
    split: str
    content: str
    pool: list[str]


class ConductorTask(vf.Task[ConductorData, vf.State, ConductorTaskConfig]):
    """A question and its workers; a rollout's texts are plans, one a round."""

    @vf.reward
    async def plan(self, trace: vf.Trace) -> float:
        """Return what the last plan is worth; 0 where there is none."""
        found = await self.found(_texts(trace))
        return 0.0 if found is None else found.score

    @vf.metric
    async def figures(self, trace: vf.Trace) -> dict[str, float]:
        """Return whether it was right, whether it was a plan, its dollars, and whether a worker failed."""
        found = await self.found(_texts(trace))
        return {} if found is None else {key: value for key, value in found.figures().items() if key != "score"}

    async def found(self, texts: tuple[str, ...]) -> PlanReward | None:
        """Return what came of the last of the texts; equal ones are performed once."""
        if not texts:
            return None
        rewards = await _shared(*_arguments(self.config)).get()
        return await rewards.score(texts[-1], rewards.item(self.data.model_dump()), texts[:-1])

    async def next_turn(self, texts: tuple[str, ...]) -> str | None:
        """Return what the model is told after these rounds; None where the episode is over."""
        found = await self.found(texts)
        if found is None or not found.valid or found.kept or len(found.rounds) < len(texts):
            return None
        rewards = await _shared(*_arguments(self.config)).get()
        pool = rewards.item(self.data.model_dump()).pool
        return None if pool is None else next_round_message(pool.cards, found.rounds)


class ConductorTasksetConfig(vf.TasksetConfig):
    """How many tasks, of which split."""

    count: int = Field(200, ge=1)
    """How many tasks of the stream; of the judged ones all are taken."""
    split: str = "train"
    """`train`, or `val` for the tasks that the file judges by."""
    task: ConductorTaskConfig = ConductorTaskConfig()


class ConductorTaskset(vf.Taskset[ConductorTask, ConductorTasksetConfig]):
    """The tasks of a training file."""

    def load(self) -> Iterable[ConductorTask]:
        """Return the tasks; ConfigError that says which setting is missing or wrong."""
        if self.config.split not in ("train", "val"):
            raise ConfigError(f"taskset.split: expected train or val, found {self.config.split!r}")
        with ThreadPoolExecutor(1) as thread:  # verifiers loads inside of its event loop
            rows = thread.submit(asyncio.run, self._rows()).result()
        for row in rows:
            system, user = (turn["content"] for turn in row["prompt"])
            facts = {key: row[key] for key in ("index", "split", "content", "pool")}
            data = ConductorData(id=row["task"], prompt=user, system_prompt=system, **facts)
            yield ConductorTask(data, self.config.task)

    async def _rows(self) -> list[PlanRow]:
        file, _, workers, _ = _arguments(self.config.task)
        async with open_plan_rewards(file, None, workers) as rewards:  # no worker is asked here
            return rewards.rows(self.config.count) if self.config.split == "train" else rewards.validation_rows()


class ConductorEnvConfig(vf.EnvConfig):
    """One seat, the policy, which may plan `rounds` times."""

    agent: vf.AgentConfig = vf.AgentConfig(runtime=vf.SubprocessConfig())
    rounds: int = Field(1, ge=1)
    """How many plans an episode may perform; the model sees what came of each."""


class ConductorEnv(vf.Env[ConductorEnvConfig]):
    """An episode: a plan, what came of it, perhaps another one."""

    async def run(self, task: ConductorTask, agents: vf.Agents) -> None:
        """Ask for a plan until one is kept, is none, or no round is left."""
        if self.config.rounds == 1:
            await agents.agent.run(task)
            return
        async with agents.agent.interaction(task) as interaction:
            segment, texts = await interaction.turn(), tuple[str, ...]()
            while not segment.terminated:
                texts = (*texts, segment.last_reply)
                told = await task.next_turn(texts) if len(texts) < self.config.rounds else None
                if told is None:
                    return
                segment = await interaction.turn(told)


class ConductorHarness(vf.Harness[vf.HarnessConfig]):
    """Asks the model once a turn, by a chat completion in this process."""

    APPENDS_SYSTEM_PROMPT = True
    SUPPORTS_RESUME = True
    EXECUTES_CODE = False
    NEEDS_CONTAINER = False

    async def launch(  # as verifiers calls it
        self,
        ctx: vf.ModelContext,
        trace: vf.Trace,  # noqa: ARG002
        runtime: vf.Runtime,  # noqa: ARG002
        endpoint: str,
        secret: str,
        mcp_urls: dict[str, str],  # noqa: ARG002
        data: vf.TaskData,
    ) -> vf.ProgramResult:
        """Send the conversation to the interception server, which records the answer."""
        system, prompt = self.resolve_prompt(data)
        turns = [] if system is None else [{"role": "system", "content": system}]
        if isinstance(prompt, str):
            turns.append({"role": "user", "content": prompt})
        else:
            turns += [message_to_wire(message) for message in prompt or []]
        async with httpx.AsyncClient(timeout=_MODEL_SECONDS) as client:
            answer = await client.post(
                f"{endpoint}/chat/completions",
                headers={"Authorization": f"Bearer {secret}"},
                json={"model": ctx.model, "messages": turns},
            )
        failed = answer.is_error
        return vf.ProgramResult(int(failed), "", answer.text[-2000:] if failed else "")


def _texts(trace: vf.Trace) -> tuple[str, ...]:
    """Return the model's texts, one a round."""
    return tuple((message.content or "").strip() for message in trace.assistant_messages)


def _arguments(config: ConductorTaskConfig) -> tuple[Path, Path | None, Path | None, int]:
    if not config.file:
        raise ConfigError("taskset.task.file: expected a training file, as for shikisha train, found nothing")
    folder, workers = (Path(each) if each else None for each in (config.replies, config.workers))
    return Path(config.file), folder, workers, config.processes


@cache
def _shared(file: Path, folder: Path | None, workers: Path | None, processes: int) -> SharedPlanRewards:
    """Return what this process scores a file's plans with."""
    return SharedPlanRewards(file, folder, workers, processes)
