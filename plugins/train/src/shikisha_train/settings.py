"""The settings of a training run: one TOML file, validated before anything is loaded or paid for.

    [model]            start = "Qwen/Qwen2.5-0.5B-Instruct"   # a folder, or a name on the hub; it reads chats
    [tasks]            set = "tasks.jsonl"          # any taskset; its training split
    [grpo]             steps = 200, tasks = 4, group = 64
    [reward]           format = 1.0, cost = 5.0     # as in `shikisha.toml`
    [spend]            dollars = 5.0                # calls of workers, all of training

The defaults of `[grpo]` are the Conductor paper's (arXiv 2512.04388), for a pretrained model. Invariant: a file that
loads can be run; a contradiction is a ConfigError that names the key, and so is a key that left with the own loop.
"""

from math import cos, pi
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from shikisha.core import toml
from shikisha.core.toml import Table
from shikisha.evals.reward import RewardWeights

# Beyond these ranges float32 overflows, or memory does, in mid-training.
Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Decay = Annotated[float, Field(ge=0, lt=1, allow_inf_nan=False)]
Rate = Annotated[float, Field(ge=1e-12, le=1e30, allow_inf_nan=False)]  # of learning
Clip = Annotated[float, Field(ge=1e-6, le=1e3, allow_inf_nan=False)]
Temperature = Annotated[float, Field(ge=0.01, le=100, allow_inf_nan=False)]
Weight = Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)]  # of a part of a loss or a reward
SignedWeight = Annotated[float, Field(ge=-1e6, le=1e6, allow_inf_nan=False)]
Dollars = Annotated[float, Field(gt=0, le=1e9, allow_inf_nan=False)]
Minutes = Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1, le=100_000)]  # of what is held at once
Steps = Annotated[int, Field(ge=0, le=1_000_000_000)]
Every = Annotated[int, Field(ge=1, le=1_000_000_000)]
CountOrZero = Annotated[int, Field(ge=0, le=100_000)]
Seed = Annotated[int, Field(ge=0, lt=2**63)]

_SCRATCH = "a model from scratch left with the own training loop; start with a model that reads chats (model.start)"
_SIMULATION = "it shaped tasks of the first simulated world, which left; name tasks of your own (tasks.set)"
_SHAPES = "it left with the own training loop: groups are compared as wholes, and TRL samples"
# What left, by dotted key: the values that still mean what happens now (None: none), and what to do.
_REMOVED: dict[str, tuple[object, str]] = {
    "backend": ("trl", "TRL is the one training loop: remove the key"),
    "warm": (None, _SCRATCH),
    "replay": (None, _SCRATCH),
    "model.brief": (False, "the compact prompt left; models read the prompt in English by their chat template"),
    **dict.fromkeys((f"model.{key}" for key in ("layers", "width", "heads", "inner", "longest")), (None, _SCRATCH)),
    **dict.fromkeys((f"tasks.{key}" for key in ("parts", "lacking", "noisy")), (None, _SIMULATION)),
    **dict.fromkeys((f"grpo.{key}" for key in ("phases", "hold", "diversity", "choice")), (None, _SHAPES)),
    **dict.fromkeys(("grpo.entropy", "grpo.entropy_floor"), (0.0, "the entropy bonus left with the own training loop")),
}


class ModelTable(Table):
    """Where the model comes from; `lora` is the rank of adapters (0: none, all weights are trained)."""

    start: Annotated[str, Field(min_length=1)]
    described: bool = True  # workers with descriptions and prices; otherwise bare ordinals, of one pool in one order
    lora: CountOrZero = 0
    dtype: Literal["float32", "bfloat16"] = "float32"


class TasksTable(Table):
    """Which tasks are learned from; `judged` tasks of the development split validate, `every` so many steps.

    `sets` are tasksets in addition to `set`. Of all together, `count` tasks are learned from (0: all), in equal shares
    as far as each taskset has so many.
    """

    set: Annotated[str, Field(min_length=1)]
    sets: tuple[str, ...] = ()
    count: CountOrZero = 0
    judged: Annotated[int, Field(ge=0, le=1_000_000)] = 300
    every: Every = 50
    pool: tuple[str, ...] = ()  # workers, where the tasks bring none; empty: all of `shikisha.toml`
    least: Count = 2  # how few and how many of them a task shows, drawn for each task (k of n)
    most: Count = 8


class GrpoTable(Table):
    """GRPO; defaults as in arXiv 2512.04388: no KL, clip 0.2, cosine, 3 % warm-up."""

    steps: Steps = 200
    tasks: Count = 4
    group: Annotated[int, Field(ge=2, le=100_000)] = 64
    rate: Rate = 1e-6
    schedule: Literal["cosine", "linear", "constant"] = "cosine"
    warmup: Share = 0.03
    betas: tuple[Decay, Decay] = (0.9, 0.999)  # of AdamW
    clip: Clip = 0.2
    clip_high: Clip | None = None  # clip-higher; None: the same as `clip`
    kl: Weight = 0.0
    temperature: Temperature = 1.0
    performances: Count = 1  # of each plan: its reward is their mean, where workers vary
    longest: Count = 1024  # tokens of a completion
    scaled: bool = True  # advantages divided by the group's standard deviation
    least_spread: Weight = 0.0  # a lower bound of that standard deviation


class SecondTable(Table):
    """Recursion: a share of a batch's tasks continues with a second round, whose plans are compared with each other.

    `discount` is taken off the rewards of a first round that a second one follows; `across`: all rounds of a task are
    compared with each other. The Conductor paper has both, at 0.25, and does not define them.
    """

    share: Share = 0.0
    begin: Share = 0.0  # from which share of the steps on
    firsts: Count = 4  # different first rounds of a task that are followed
    discount: Share = 0.0
    across: bool = False


class CurriculumTable(Table):
    """Which tasks are drawn: those near a 50 % success rate more often; `floor` is the share of an even draw."""

    near_half: bool = True
    floor: Share = 0.3


class TrainingRewardTable(Table):
    """The reward's parts (`reward.Weights`)."""

    format: SignedWeight = 1.0
    correct: SignedWeight = 0.0
    cost: Weight = 0.0
    latency: Weight = 0.0
    critical_path: Weight = 0.0

    def weights(self) -> RewardWeights:
        """Return them as the reward's value."""
        return RewardWeights(**dict(self))


class SpendTable(Table):
    """What the calls of workers may cost, and how many runs go on at once."""

    dollars: Dollars | None = None
    at_once: Count = 64


class TrlTable(Table):
    """TRL's machine: vLLM, and `rows` completions at once through the model on each device (0: all)."""

    rows: CountOrZero = 0
    vllm: Literal["", "server", "colocate"] = ""  # where vLLM samples; "": the training processes sample
    server: str = "http://127.0.0.1:8000"  # where `trl vllm-serve` listens


class KeepTable(Table):
    """Checkpoints: one before the first step, after `every` so many steps, and after so many `minutes`.

    The `last` so many stay. By the clock (0: never) at most a twentieth of the time is spent on writing them.
    """

    every: Every = 25
    last: Every = 3
    minutes: Minutes = 5.0


class TrainSettings(Table):
    """The file."""

    seed: Seed = 0
    model: ModelTable
    tasks: TasksTable
    grpo: GrpoTable = GrpoTable()
    second: SecondTable = SecondTable()
    curriculum: CurriculumTable = CurriculumTable()
    reward: TrainingRewardTable = TrainingRewardTable()
    spend: SpendTable = SpendTable()
    keep: KeepTable = KeepTable()
    trl: TrlTable = TrlTable()

    @model_validator(mode="before")
    @classmethod
    def _without_removed_keys(cls, data: object) -> object:
        """Drop a key that left where its value is what happens anyway; ValueError that names any other."""
        if not isinstance(data, dict):
            return data
        tables = {key: dict(table) if isinstance(table, dict) else table for key, table in data.items()}
        for place, (harmless, advice) in _REMOVED.items():
            name, _, key = place.rpartition(".")
            table = tables.get(name) if name else tables
            if not isinstance(table, dict) or key not in table:
                continue
            if harmless is None or table[key] != harmless:
                raise ValueError(f"{place}: {advice}")
            del table[key]
        return tables

    @property
    def second_group(self) -> int:
        """How many completions are sampled for the prompt of a second round."""
        return max(2, self.grpo.group // self.second.firsts)

    def learning_rate_at(self, step: int) -> float:
        """Return the learning rate of this step: a linear warm-up, then the schedule."""
        table, count = self.grpo, max(1, self.grpo.steps)
        rising = max(1, round(table.warmup * count))
        if step < rising:
            return table.rate * (step + 1) / rising
        done = (step - rising) / max(1, count - rising)
        left = {"cosine": 0.5 * (1 + cos(pi * done)), "linear": 1 - done, "constant": 1.0}[table.schedule]
        return table.rate * max(0.0, left)


def load_settings(path: Path) -> TrainSettings:
    """Return the file's settings; ConfigError that names the file, the key, what was expected and what was found."""
    return toml.validate_model(TrainSettings, toml.read_toml(path), str(path))
