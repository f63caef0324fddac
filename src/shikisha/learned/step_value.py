"""How likely a worker's answer to a subtask is right: a logistic model for each worker over the subtask's vector.

A worker's weights are drawn to those of all workers, so that a new worker begins as the average one and little evidence
moves it little. One weight says what the planner's own choice of the worker is worth, and one for each standing phrase
("Reply with the result only.") what it brings to say it to this worker. `check_gain` says how often a
checker that would be right itself finds and mends a wrong result. Invariants: a prediction is a chance, for any text
and any name; a model is data (a `LearnedFile`); it answers only for tasks of its scope.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np

from shikisha.core.errors import ConfigError
from shikisha.core.task import Scope
from shikisha.learned.learned_file import LearnedFile, LearnedGain, decode_array, encode_array, read_learned
from shikisha.learned.step_encoder import NgramEncoder, StepEncoder
from shikisha.retrieval.code_probe import check_probe, probe_code
from shikisha.routing.arrays import Floats, Ints

STEP_VALUE = "step-value"
_PROBES = ("Add 17 to 4.", "Which weekday is 2024-01-30? Answer in one word.", "Who leads Ada Abbot's team?")
Verdicts: TypeAlias = tuple[float, float]  # how often a check fails a right answer, and a wrong one
CHECK_KEEPS = 0.98  # how often a check leaves a right result alone
OWN_WEIGHTS = 3  # constant, planner's choice, merged: the weights before those of phrases
_PROBIT = np.pi / 8  # MacKay's: what a variance of the logit takes of a chance


@dataclass(frozen=True, eq=False)
class StepValue:
    """Weights by worker: constant, planner's choice, merged, phrases, the vector; `variances` are those of each weight.

    `dollars` are the mean dollars of a call, `tries` its number. Unknown workers have `common` weights and variances.
    `merged_tries` counts the calls that did several subtasks, `merged_price` is what each further subtask costs, as a
    share of a call; `planning` is the mean dollars of planning a run.
    """

    encoder: NgramEncoder
    workers: tuple[str, ...]
    weights: Floats
    variances: Floats
    common: Floats
    common_variance: Floats
    dollars: tuple[float, ...]
    tries: tuple[int, ...]
    scope: Scope
    check_gain: float = 0.0
    phrases: tuple[str, ...] = ()
    merged_tries: int = 0
    merged_price: float = 1.0
    planning: float = 0.0
    verdicts: Verdicts = (0.02, 0.7)
    version: str = ""

    def chances(
        self,
        subtasks: Sequence[str],
        workers: Sequence[str],
        proposed: Floats | None = None,
        together: Ints | None = None,
    ) -> Floats:
        """Return the chance of each worker at each subtask, shape (subtasks, workers)."""
        return _logistic(self.logits(subtasks, workers, proposed, together)[0])

    def logits(
        self,
        subtasks: Sequence[str],
        workers: Sequence[str],
        proposed: Floats | None = None,
        together: Ints | None = None,
    ) -> tuple[Floats, Floats]:
        """Return mean and variance of the logits, each (subtasks, workers).

        `proposed` is 1 where a planner chose the worker; `together` says with how many a subtask shares its call.
        """
        weights, variances = self._rows(workers)
        design = design_rows(subtasks, self.phrases, self.encoder)
        chosen = np.zeros((len(subtasks), len(workers))) if proposed is None else proposed
        if together is not None:
            design[:, 1 : 1 + len(self.phrases)] /= together[:, None]
        own = slice(1, OWN_WEIGHTS)
        means = design @ np.delete(weights, own, axis=1).T + chosen * weights[:, 1]
        spread = (design**2) @ np.delete(variances, own, axis=1).T + chosen * variances[:, 1]
        if together is not None:
            merged = ((together - 1) / together)[:, None]
            means, spread = means + merged * weights[:, 2], spread + merged**2 * variances[:, 2]
        return means, spread

    def phrase_weights(self, workers: Sequence[str]) -> Floats:
        """Return what each phrase adds to each worker's logit, shape (workers, phrases)."""
        return np.asarray(self._rows(workers)[0][:, OWN_WEIGHTS : OWN_WEIGHTS + len(self.phrases)])

    def merged_weights(self, workers: Sequence[str]) -> Floats:
        """Return what it adds to each worker's logit to do very many subtasks in one call, shape (workers,).

        Of n subtasks, each gets (n - 1) / n of it.
        """
        return np.asarray(self._rows(workers)[0][:, 2])

    def _rows(self, workers: Sequence[str]) -> tuple[Floats, Floats]:
        places = [self.workers.index(name) if name in self.workers else None for name in workers]
        weights = np.array([self.common if at is None else self.weights[at] for at in places])
        return weights, np.array([self.common_variance if at is None else self.variances[at] for at in places])

    def price(self, worker: str) -> float | None:
        """Return the mean dollars of a call; None where there was none."""
        at = self.workers.index(worker) if worker in self.workers else None
        return None if at is None or not self.tries[at] else self.dollars[at]

    def _behavior(self) -> Iterable[Floats]:
        """Return what it makes of fixed subtasks, which a file keeps (`retrieval.code_probe`)."""
        asked = [*_PROBES, *(f"{_PROBES[0]} {phrase}" for phrase in self.phrases)]
        workers = [*self.workers[:4], ""]
        return self.logits(asked, workers, np.eye(len(asked), len(workers)))

    def to_file(self, evidence: Sequence[str], gain: LearnedGain | None, made: float) -> LearnedFile:
        """Return the model as a learned file."""
        content = {
            "workers": list(self.workers),
            "dollars": [float(f"{one:.9g}") for one in self.dollars],
            "tries": list(self.tries),
            "check_gain": self.check_gain,
            "merged": [self.merged_tries, self.merged_price],
            "planning": float(f"{self.planning:.9g}"),
            "verdicts": list(self.verdicts),
            "phrases": list(self.phrases),
            "buckets": self.encoder.buckets.tolist(),
            "rarity": encode_array(self.encoder.rarity),
            "projection": encode_array(self.encoder.projection),
            "centres": encode_array(self.encoder.centres),
            "weights": encode_array(self.weights),
            "variances": encode_array(self.variances),
            "common": encode_array(self.common),
            "common_variance": encode_array(self.common_variance),
            "probe": probe_code(self._behavior()),
        }
        return LearnedFile(STEP_VALUE, content, tuple(evidence), self.scope, gain, made)


def split_phrases(text: str, phrases: Sequence[str]) -> tuple[str, list[float]]:
    """Return a subtask without these phrases, and for each whether it was there (1 or 0)."""
    said = []
    for phrase in phrases:
        said.append(float(phrase in text))
        text = text.replace(phrase, " ")
    return " ".join(text.split()), said


def design_rows(subtasks: Sequence[str], phrases: Sequence[str], encoder: StepEncoder) -> Floats:
    """Return for each subtask: 1, which phrases it has, and the vector of the rest."""
    split = [split_phrases(text, phrases) for text in subtasks]
    vectors = encoder.encode([text for text, _ in split])
    said = np.array([flags for _, flags in split]).reshape(len(subtasks), len(phrases))
    return np.hstack([np.ones((len(subtasks), 1)), said, vectors])


def check_chance(first: Floats | float, second: Floats | float, gain: float) -> Floats | float:
    """Return the chance that a result is right after a check by a worker that would itself be right with `second`."""
    return first * (CHECK_KEEPS + (1 - CHECK_KEEPS) * second) + (1 - first) * gain * second


def load_step_value(file: Path) -> StepValue:
    """Read a model; ConfigError where there is none, it was changed, or its arrays do not fit."""
    return step_value_of(read_learned(file, STEP_VALUE), str(file))


def step_value_of(learned: LearnedFile, name: str) -> StepValue:
    """Return the model in a learned file; ConfigError where its arrays do not fit."""
    content: Mapping[str, object] = learned.content
    try:
        workers = _names(content["workers"])
        buckets = np.array(content["buckets"], dtype=np.int64)
        if buckets.ndim != 1 or (np.diff(buckets) <= 0).any():
            raise ValueError("buckets: expected ascending numbers")
        projection = decode_array(content["projection"], (len(buckets), None))
        centres = decode_array(content["centres"], (None, projection.shape[1]))
        encoder = NgramEncoder(buckets, decode_array(content["rarity"], (len(buckets),)), projection, centres)
        phrases = _names(content["phrases"])
        width = encoder.size + OWN_WEIGHTS + len(phrases)
        dollars, tries = _numbers(content["dollars"]), _numbers(content["tries"])
        gain = _numbers([content["check_gain"]])[0]
        merged_tries, merged_price = _numbers(content["merged"])
        planning = _numbers([content["planning"]])[0]
        alarm, catch = _numbers(content["verdicts"])
        if not 0 < alarm < 1 or not 0 < catch < 1:
            raise ValueError("verdicts: expected two shares between 0 and 1")
        if len(dollars) != len(workers) or len(tries) != len(workers) or not 0 <= gain <= 1:
            raise ValueError("dollars, tries or check_gain do not fit the workers")
        weights, variances = (decode_array(content[key], (len(workers), width)) for key in ("weights", "variances"))
        common, spread = (decode_array(content[key], (width,)) for key in ("common", "common_variance"))
        if (variances < 0).any() or (spread < 0).any():
            raise ValueError("a variance is negative")
    except (ValueError, KeyError, TypeError, OverflowError) as error:
        raise ConfigError(f"{name}: no step values: {error}") from None
    counts = tuple(int(one) for one in tries)
    found = StepValue(
        encoder,
        workers,
        weights,
        variances,
        common,
        spread,
        dollars,
        counts,
        learned.scope,
        gain,
        phrases,
        int(merged_tries),
        merged_price,
        planning,
        (alarm, catch),
        learned.short_version,
    )
    try:
        check_probe(content.get("probe"), found._behavior())
    except ValueError as error:
        raise ConfigError(f"{name}: no step values: {error}") from None
    return found


def _names(value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value) or len({*value}) < len(value):
        raise ValueError("workers: expected distinct names")
    return tuple(value)


def _numbers(value: object) -> tuple[float, ...]:
    if not isinstance(value, list) or not all(isinstance(one, int | float) and 0 <= one < 1e12 for one in value):
        raise ValueError("expected numbers from 0")
    return tuple(float(one) for one in value)


def _logistic(values: Floats) -> Floats:
    return np.asarray(1 / (1 + np.exp(-np.clip(values, -30, 30))))


__all__ = ["STEP_VALUE", "StepEncoder", "StepValue", "check_chance", "load_step_value", "step_value_of"]
