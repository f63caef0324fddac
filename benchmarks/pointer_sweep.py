"""Train one variant of the pointer network, and measure it in arrays on validation tasks, read perfectly.

    python benchmarks/pointer_sweep.py NAME [--out FILE.npz] [--set updates=4000 lucks=4 ...] [--ceiling]
    python benchmarks/pointer_sweep.py NAME --file shikisha-pointer.safetensors [--split fresh --seeds 4,5,6]

`--set` changes fields of `PointerTraining`. Validation tasks are of held-out authors, of seeds that no figure is
reported on; variants are chosen here. Shares are of what the optimum's plan brings in the same rollouts, for tasks with
all cards as drawn and with all cards blank, at 0, 30, 100 and 300 outcomes a worker. All workers are simulated.
`--ceiling` measures no network but the optimum's search over an exact posterior of levels and wants, which knows how
the simulation draws them: about the most that any learner can reach. `--file` measures a checkpoint, with the intervals
of a bootstrap over tasks.
"""

import argparse
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from itertools import combinations
from pathlib import Path

import numpy as np
import torch

from shikisha.conductors.part_plans import DOLLAR_WEIGHT
from shikisha.conductors.pointer_conductor import likeliest_choices, load_pointer
from shikisha.conductors.pointer_network import (
    TREATMENTS,
    PointerChoices,
    PointerInput,
    PointerNetwork,
    pointer_features,
)
from shikisha.conductors.wording_effects import said_features
from shikisha.routing.arrays import Flags, Floats, Floats32
from shikisha.simulation.office.best_plan import best_plan
from shikisha.simulation.office.office_batches import OfficeBatches, with_notes
from shikisha.simulation.office.office_rollouts import (
    OfficeTruth,
    draw_luck,
    office_truth,
    perform_choices,
)
from shikisha.simulation.office.office_tasks import OFFICE, OfficeTask, office_tasks
from shikisha.simulation.office.questions import AuthorSplit
from shikisha.simulation.office.staff import EXTRA_SAID, FEATURES, KINDS, WANT_MISSED, Crew
from shikisha.training.pointer_grpo import PointerTraining, train_pointer

SEEDS, OUTCOMES, LUCKS, RESAMPLES = "901,902", (0, 30, 100, 300), 200, 2_000
TRIED = 40  # updates that tell how long one takes
KIND_COUNT = len(KINDS)


@dataclass(frozen=True)
class Validation:
    """Tasks, their truth, what is seen of them before any outcome, and what the optimum's plans bring [B]."""

    items: list[OfficeTask]
    truth: OfficeTruth
    given: PointerInput
    best: Floats

    @classmethod
    def draw(cls, tasks: int, seeds: Sequence[int], split: AuthorSplit) -> "Validation":
        """Draw so many tasks of each seed."""
        items = [item for seed in seeds for item in office_tasks(split, seed, OFFICE, tasks)]
        truth = office_truth(items, max(len(item.crew) for item in items))
        batches = OfficeBatches.of(items)
        found = cls(items, truth, batches.given, np.zeros(len(items)))
        crews = [item.crew for item in items]
        return replace(found, best=found.value_of(found.plans(crews, truth.wants)))

    def seen(self, outcomes: int, *, blank: bool = False) -> PointerInput:
        """Return what is seen after so many outcomes a worker, the same for every variant."""
        given = replace(self.given, claims=np.zeros_like(self.given.claims)) if blank else self.given
        counts = np.full(self.truth.prices.shape, outcomes)
        return with_notes(given, self.truth, counts, np.random.default_rng(10_000 + outcomes))

    def value_of(self, choices: PointerChoices, lucks: int = LUCKS) -> Floats:
        """Return [B] the mean value of these choices [B, 1, ...]."""
        rng, total, chunk = np.random.default_rng(5), np.zeros(len(self.items)), 50
        repeated = PointerChoices(*(np.repeat(getattr(choices, one.name), chunk, 1) for one in fields(choices)))
        for _ in range(lucks // chunk):
            outcomes = perform_choices(self.truth, repeated, draw_luck(repeated.mode.shape, rng))
            worth = self.given.value[:, None] * outcomes.right.all(-1) - DOLLAR_WEIGHT * outcomes.dollars.sum(-1)
            total += worth.sum(1)
        return total / (lucks // chunk * chunk)

    def plans(self, crews: Sequence[Crew], told: Flags) -> PointerChoices:
        """Return the best plans for crews as they are believed to be, told so [B, W, F]."""
        count, parts = self.truth.parts.shape
        join, mode = np.zeros((count, 1, parts), bool), np.zeros((count, 1, parts), np.int64)
        workers = np.zeros((count, 1, parts, 3), np.int64)
        for row, (item, crew) in enumerate(zip(self.items, crews, strict=True)):
            plan, at = best_plan(item.with_crew(crew)), 0
            for block, treatment in zip(plan.blocks, plan.treatments, strict=True):
                called = [*treatment.workers, *treatment.workers[:1] * 2][:3]
                join[row, 0, at + 1 : at + len(block)] = True
                mode[row, 0, at] = TREATMENTS.index(treatment.kind)
                workers[row, 0, at : at + len(block)] = called
                at += len(block)
        said = told[np.arange(count)[:, None, None, None], workers]
        return PointerChoices(join, mode, workers, said, self.truth.needs[:, None])

    def share(self, choices: PointerChoices) -> float:
        """Return the share of the optimum's value."""
        return float(self.value_of(choices).mean() / self.best.mean())

    def share_within(self, choices: PointerChoices, other: PointerChoices | None = None) -> list[float]:
        """Return the share of the optimum's value, less that of others, with the 95 % interval of a bootstrap."""
        values = self.value_of(choices) - (0 if other is None else self.value_of(other))
        rows = np.random.default_rng(0).integers(0, len(values), (RESAMPLES, len(values)))
        low, high = np.quantile(values[rows].mean(1) / self.best[rows].mean(1), (0.025, 0.975))
        return [float(values.mean() / self.best.mean()), float(low), float(high)]


def network_choices(weights: Mapping[str, Floats32], given: PointerInput) -> PointerChoices:
    """Return a network's likeliest choices."""
    network = PointerNetwork(weights, np)
    plan = likeliest_choices(network, network.encode(pointer_features(given)), given, [])
    return PointerChoices(
        plan.join[:, None], plan.mode[:, None], plan.workers[:, None], plan.told[:, None], plan.shown[:, None]
    )


def measure(weights: dict[str, Floats32], validation: Validation) -> dict[str, list[float]]:
    """Return shares of the optimum by outcomes: cards as drawn, all blank, and everything told at cards as drawn."""
    found: dict[str, list[float]] = {}
    for name, blank in (("cards", False), ("blank", True)):
        found[name] = [validation.share(network_choices(weights, validation.seen(n, blank=blank))) for n in OUTCOMES]
    choices = network_choices(weights, validation.seen(100))
    found["told all, neutral at 100"] = [
        validation.share(replace(choices, told=np.full_like(choices.told, said))) for said in (True, False)
    ]
    shares = np.bincount(choices.mode[validation.truth.parts[:, None] & ~choices.join], minlength=len(TREATMENTS))
    found["treatments at 100"] = list(shares / shares.sum())
    return found


def measure_within(weights: Mapping[str, Floats32], validation: Validation) -> dict[str, list[float]]:
    """Return shares with intervals by cards and outcomes, and what own wordings and access lists gain at 100."""
    found = {
        f"{name}, {n}": validation.share_within(network_choices(weights, validation.seen(n, blank=blank)))
        for name, blank in (("cards", False), ("blank", True))
        for n in OUTCOMES
    }
    own = network_choices(weights, validation.seen(100))
    for name, said in (("everything", True), ("nothing", False)):
        other = replace(own, told=np.full_like(own.told, said))
        found[f"own wordings over {name} told"] = validation.share_within(own, other)
    every = np.tril(np.ones_like(own.shown), -1)
    found["own access over all see all"] = validation.share_within(own, replace(own, shown=every))
    calls = replace(own, mode=np.zeros_like(own.mode))
    found["own checks and opinions over calls alone"] = validation.share_within(own, calls)
    return found


# What the simulation draws levels and wants from (`staff.py`): only the ceiling may know it.
_WEAK, _STRONG, _GENERAL = np.linspace(0.02, 0.2, 12), np.linspace(0.75, 0.99, 16), np.linspace(0.55, 0.85, 16)
_GRID = np.concatenate([_WEAK, _STRONG, _GENERAL])
_WANTS = np.array([[f in some for f in range(len(FEATURES))] for n in (1, 2) for some in combinations(range(4), n)])
_WANTED = np.array([2 / 3 / 4] * 4 + [1 / 3 / 6] * 6)
_DEAR = 0.003  # a generalist costs more, everybody else less


def claim_priors() -> Floats:
    """Return how often a specialist is strong at a kind: if its card claims nothing, other kinds, this kind."""
    counts = np.zeros((3, 2))
    for item in office_tasks(AuthorSplit.TRAIN, 7_000, OFFICE, 1_500):
        for member, claimed in zip(item.crew.members, item.crew.claims, strict=True):
            for kind in KINDS if not member.generalist else ():
                counts[0 if not claimed else 1 + (kind in claimed), int(member.levels[kind] >= 0.5)] += 1
    found: Floats = counts[:, 1] / counts.sum(1)
    return found


def posterior_choices(validation: Validation, given: PointerInput, priors: Floats) -> PointerChoices:
    """Return the best plans under the posterior: each worker told what costs least, its levels the means at that."""
    told = said_features(len(FEATURES)) > 0
    missed, extra = (_WANTS[:, None] & ~told).sum(-1), (told & ~_WANTS[:, None]).sum(-1)
    factor = WANT_MISSED**missed * EXTRA_SAID**extra  # [S, C]
    chance = _GRID[:, None, None] * factor
    right, wrong = given.told_right, given.told_tries - given.told_right
    logs = np.einsum("bwkc,lsc->bwksl", right, np.log(chance)) + np.einsum("bwkc,lsc->bwksl", wrong, np.log1p(-chance))
    nothing = given.claims.sum(-1, keepdims=True) == 0
    strong = priors[np.where(nothing, 0, 1 + given.claims.astype(int))]
    sizes = (len(_WEAK), len(_STRONG), len(_GENERAL))
    shares = zip((1 - strong, strong, 0 * strong), sizes, strict=True)
    of_level = np.concatenate([np.repeat(share[..., None] / size, size, -1) for share, size in shares], -1)
    dear = (given.prices > _DEAR)[..., None, None]
    general = np.repeat([0.0, 0.0, 1.0], sizes) / len(_GENERAL)
    logs += np.log(np.where(dear, general, of_level) + 1e-30)[:, :, :, None]
    top = logs.max(-1, keepdims=True)
    each = np.exp(logs - top)
    levels = (each * _GRID).sum(-1) / each.sum(-1)
    of_wants = (top[..., 0] + np.log(each.sum(-1))).sum(2) + np.log(_WANTED)
    wants = np.exp(of_wants - of_wants.max(-1, keepdims=True))
    wants /= wants.sum(-1, keepdims=True)
    wording = (wants @ np.log(factor)).argmax(-1)
    believed = np.einsum("bws,bwks,sbw->bwk", wants, levels, factor[:, wording])
    crews = [_believed(item.crew, believed[row], told[wording[row]]) for row, item in enumerate(validation.items)]
    return validation.plans(crews, told[wording])


def _believed(crew: Crew, levels: Floats, told: Flags) -> Crew:
    return replace(
        crew,
        members=tuple(
            replace(
                member,
                levels={kind: float(level) for kind, level in zip(KINDS, levels[at].clip(1e-3, 0.995), strict=True)},
                wants=frozenset(one for one, said in zip(FEATURES, told[at], strict=True) if said),
            )
            for at, member in enumerate(crew.members)
        ),
    )


def ceiling(validation: Validation) -> dict[str, list[float]]:
    """Return what the search over the posterior reaches."""
    priors = claim_priors()
    return {
        name: [
            validation.share(posterior_choices(validation, validation.seen(n, blank=blank), priors)) for n in OUTCOMES
        ]
        for name, blank in (("cards", False), ("blank", True))
    }


def main() -> None:
    """Train and print one line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name")
    parser.add_argument("--set", nargs="*", default=[], metavar="FIELD=VALUE", help="fields of PointerTraining")
    parser.add_argument("--tasks", type=int, default=300, help="validation tasks for each seed")
    parser.add_argument("--seeds", default=SEEDS, help="of the tasks")
    parser.add_argument("--split", default=AuthorSplit.HELDOUT, choices=[*AuthorSplit], help="whose words")
    parser.add_argument("--file", type=Path, help="a checkpoint that is measured in place of training one")
    parser.add_argument("--out", type=Path, help="where weights are written")
    parser.add_argument("--misread", type=float, default=0.08, help="how often training misreads a part or a card")
    parser.add_argument("--bank", type=int, default=6_000, help="training tasks")
    parser.add_argument("--seconds", type=float, help="fewer updates where so many would take longer than this")
    parser.add_argument("--ceiling", action="store_true", help="the posterior in place of a network")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    defaults = asdict(PointerTraining())
    chosen = {name: type(defaults[name])(value) for name, value in (each.split("=") for each in arguments.set)}
    begun = time.process_time()
    seeds = [int(seed) for seed in arguments.seeds.split(",")]
    validation = Validation.draw(arguments.tasks, seeds, AuthorSplit(arguments.split))
    if arguments.ceiling:
        found = ceiling(validation)
    elif arguments.file is not None:
        found = measure_within(load_pointer(arguments.file).network.weights, validation)
    else:
        settings = replace(PointerTraining(), **chosen)
        batches = replace(OfficeBatches.draw_bank(settings.seed, arguments.bank), misread=arguments.misread)
        if arguments.seconds is not None:
            before = time.monotonic()
            train_pointer(batches, KIND_COUNT, replace(settings, updates=TRIED))
            most = int(arguments.seconds / (time.monotonic() - before) * TRIED)
            settings = replace(settings, updates=min(settings.updates, most))
        chosen["updates"] = settings.updates
        weights = train_pointer(batches, KIND_COUNT, settings)
        if arguments.out is not None:
            np.savez(arguments.out, allow_pickle=False, **weights)
        found = measure(weights, validation)
    shown = {name: [round(each, 4) for each in values] for name, values in found.items()}
    print(
        json.dumps({"name": arguments.name, **chosen, **shown, "cpu": round(time.process_time() - begun)}), flush=True
    )


if __name__ == "__main__":
    main()
