"""The settings of a training run: one TOML file, validated before anything is loaded or paid for.

    [model]            start = "build/warm"         # a folder of ours, a hub name, or "" for a model from scratch
    [tasks]            set = "rehearsal"            # any taskset; its training split
    [warm]             steps = 2400                 # SFT first; 0: none
    [grpo]             steps = 260, tasks = 16, group = 32, rate = 4e-4
    [reward]           format = 1.0, cost = 5.0     # as in `shikisha.toml`
    [spend]            dollars = 5.0                # calls of workers, all of training

The defaults of `[grpo]` are the Conductor paper's (arXiv 2512.04388), for a pretrained model. Invariant: a file that
loads can be run; a contradiction is a ConfigError that names the key.
"""

from dataclasses import dataclass
from enum import StrEnum
from math import cos, pi
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from shikisha.core import toml
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
Tokens = Annotated[int, Field(ge=1, le=10_000_000)]
Steps = Annotated[int, Field(ge=0, le=1_000_000_000)]
Every = Annotated[int, Field(ge=1, le=1_000_000_000)]
CountOrZero = Annotated[int, Field(ge=0, le=100_000)]
Seed = Annotated[int, Field(ge=0, lt=2**63)]


class ComparisonScope(StrEnum):
    """Which completions a completion is compared with."""

    GROUP = "group"  # the others that were sampled for its prompt
    WITHIN = "within"  # those of its group whose plan has the same shape
    BETWEEN = "between"  # its group; then each shape's mean advantage over the batch is taken out


@dataclass(frozen=True, slots=True)
class AdvantageSettings:
    """How rewards become advantages in a step.

    `scale_by_std` divides by the group's standard deviation (GRPO), or by `min_std` where that is more; without it,
    only the mean is taken away (Dr. GRPO). `shape_bonus` is the weight of `advantage_variants.shape_balance_bonus`.
    """

    scope: ComparisonScope = ComparisonScope.GROUP
    scale_by_std: bool = True
    min_std: float = 0.0
    shape_bonus: float = 0.0


GROUP_RELATIVE = AdvantageSettings()


class SettingsTable(BaseModel):
    """A table of the file: frozen, and closed to unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class ModelTable(SettingsTable):
    """Where the model comes from; `layers` to `longest` are for one from scratch; `lora` is its rank (0: none)."""

    start: str = ""
    layers: Annotated[int, Field(ge=1, le=1_000)] = 3
    width: Count = 128
    heads: Count = 4
    inner: Count = 384
    longest: Tokens = 512
    brief: bool = True  # the compact prompt; otherwise the one in English
    described: bool = True  # workers with descriptions and prices; otherwise bare ordinals, of one pool in one order
    lora: CountOrZero = 0
    dtype: Literal["float32", "bfloat16"] = "float32"


class TasksTable(SettingsTable):
    """Which tasks are learned from; `judged` tasks of the development split validate, `every` so many steps.

    `sets` are tasksets in addition to `set`. Of all together, `count` tasks are learned from (0: all), in equal shares
    as far as each taskset has so many.
    """

    set: str = "rehearsal"
    sets: tuple[str, ...] = ()
    count: CountOrZero = 0
    judged: Annotated[int, Field(ge=0, le=1_000_000)] = 300
    every: Every = 50
    parts: tuple[Share, ...] = (0.4, 0.35, 0.25)  # of demo tasks: shares of one-, two-, three-part questions and so on
    lacking: Share = 0.12  # of demo tasks: how often the pool has no specialist for a part
    noisy: Share = 0.0  # of demo tasks: how often a part is noisy work and a worker takes votes
    pool: tuple[str, ...] = ()  # workers, where the tasks bring none; empty: all of `shikisha.toml`
    least: Count = 2  # how few and how many of them a task shows, drawn for each task (k of n)
    most: Count = 8


class WarmTable(SettingsTable):
    """SFT before GRPO; `follow` is how often a plan follows its reasoning, at the beginning and at the end.

    `demonstrations` is the share of plans from the optimal policy, which knows every worker's skill. With any of them,
    training is no longer from outcomes alone: only baselines have them (`recipes/demonstrations.toml`).
    """

    steps: Steps = 0
    batch: Count = 64
    rate: Rate = 2e-3
    follow: tuple[Share, Share] = (0.6, 0.15)
    demonstrations: Share = 0.0


class TrainingPhase(SettingsTable):
    """From which share of the steps on completions are compared how, and what else changes there.

    `hold`: whether rare shapes have a bonus (None: unless whole groups are compared). `performances` and `least_spread`
    replace those of `grpo`, `cost` that of `reward`: cost may matter more once much is right. `explore` is the share of
    a group that explores: it chooses among the tokens of `grpo.choice` evenly.
    """

    begin: Share
    compare: ComparisonScope
    hold: bool | None = None
    performances: Count | None = None
    least_spread: Weight | None = None
    cost: Weight | None = None
    explore: Share = 0.0


class GrpoTable(SettingsTable):
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
    entropy: Weight = 0.0  # bonus a nat while below `entropy_floor`
    entropy_floor: Weight = 0.0
    temperature: Temperature = 1.0
    performances: Count = 1  # of each plan: its reward is their mean, where workers vary
    longest: Tokens = 1024  # tokens of a completion
    scaled: bool = True  # advantages divided by the group's standard deviation
    least_spread: Weight = 0.0  # a lower bound of that standard deviation
    phases: tuple[TrainingPhase, ...] = ()
    hold: Weight = 0.0  # weight of the bonus for shapes that are rare in the batch (`phases`)
    diversity: Weight = 0.0  # reward of a shape that is rare in its group; falls to zero
    choice: str = ""  # prefix of the tokens that exploration chooses among (`phases`)

    @property
    def explores(self) -> bool:
        """Whether any phase does."""
        return any(phase.explore for phase in self.phases)


class SecondTable(SettingsTable):
    """Recursion: a share of a batch's tasks continues with a second round, whose plans are compared with each other.

    `discount` is taken off the rewards of a first round that a second one follows; `across`: all rounds of a task are
    compared with each other. The Conductor paper has both, at 0.25, and does not define them.
    """

    share: Share = 0.0
    begin: Share = 0.0  # from which share of the steps on
    firsts: Count = 4  # different first rounds of a task that are followed
    discount: Share = 0.0
    across: bool = False


class ReplayTable(SettingsTable):
    """Auxiliary SFT next to GRPO (`sft.AuxiliarySFT`): how many examples a step, and the weight of their mean loss.

    `lessons` end with the reasoning, `copies` teach one ordinal after it.
    """

    lessons: CountOrZero = 0
    copies: CountOrZero = 0
    weight: Weight = 1.0


class CurriculumTable(SettingsTable):
    """Which tasks are drawn: those near a 50 % success rate more often; `floor` is the share of an even draw."""

    near_half: bool = True
    floor: Share = 0.3


class TrainingRewardTable(SettingsTable):
    """The reward's parts (`reward.Weights`)."""

    format: SignedWeight = 1.0
    correct: SignedWeight = 0.0
    cost: Weight = 0.0
    latency: Weight = 0.0
    critical_path: Weight = 0.0

    def weights(self) -> RewardWeights:
        """Return them as the reward's value."""
        return RewardWeights(**dict(self))


class SpendTable(SettingsTable):
    """What the calls of workers may cost, and how many runs go on at once."""

    dollars: Dollars | None = None
    at_once: Count = 64


class TrlTable(SettingsTable):
    """What TRL alone can do: vLLM, and `rows` completions at once through the model on each device (0: all)."""

    rows: CountOrZero = 0
    vllm: Literal["", "server", "colocate"] = ""  # where vLLM samples; "": the training processes sample
    server: str = "http://127.0.0.1:8000"  # where `trl vllm-serve` listens


class KeepTable(SettingsTable):
    """Checkpoints: one before the first step, after `every` so many steps, and after so many `minutes`.

    The `last` so many stay. By the clock (0: never) at most a twentieth of the time is spent on writing them.
    """

    every: Every = 25
    last: Every = 3
    minutes: Minutes = 5.0


class TrainSettings(SettingsTable):
    """The file."""

    seed: Seed = 0
    backend: Literal["trl", "plain"] = "trl"
    model: ModelTable = ModelTable()
    tasks: TasksTable = TasksTable()
    warm: WarmTable = WarmTable()
    grpo: GrpoTable = GrpoTable()
    second: SecondTable = SecondTable()
    replay: ReplayTable = ReplayTable()
    curriculum: CurriculumTable = CurriculumTable()
    reward: TrainingRewardTable = TrainingRewardTable()
    spend: SpendTable = SpendTable()
    keep: KeepTable = KeepTable()
    trl: TrlTable = TrlTable()

    @property
    def second_group(self) -> int:
        """How many completions are sampled for the prompt of a second round."""
        return max(2, self.grpo.group // self.second.firsts)

    def diversity_at(self, step: int) -> float:
        """Return this step's reward of a shape that no other completion of the group has."""
        return self.grpo.diversity * (1 - step / max(1, self.grpo.steps))

    def comparison_at(self, step: int) -> AdvantageSettings:
        """Return how completions are compared in this step."""
        table, phase = self.grpo, self._phase_at(step)
        bonus = phase.compare is not ComparisonScope.GROUP if phase.hold is None else phase.hold
        least = table.least_spread if phase.least_spread is None else phase.least_spread
        return AdvantageSettings(phase.compare, table.scaled, least, table.hold if bonus else 0.0)

    def performances_at(self, step: int) -> int:
        """Return how often a first round's plan is performed in this step."""
        return self._phase_at(step).performances or self.grpo.performances

    def dollar_weight_at(self, step: int) -> float | None:
        """Return the weight of a dollar in this step, where its phase says so."""
        return self._phase_at(step).cost

    def exploration_count_at(self, step: int) -> int:
        """Return how many of a group of first rounds explore in this step."""
        return round(self._phase_at(step).explore * self.grpo.group)

    def _phase_at(self, step: int) -> TrainingPhase:
        done = step / max(1, self.grpo.steps)
        started = [phase for phase in self.grpo.phases if phase.begin <= done]
        return max(
            started, key=lambda phase: phase.begin, default=TrainingPhase(begin=0.0, compare=ComparisonScope.GROUP)
        )

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
