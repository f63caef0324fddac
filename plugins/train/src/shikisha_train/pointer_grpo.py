"""GRPO for the pointer conductor: groups of sampled plans are performed, and what did better becomes more likely.

A decision's return is what its call brought: the task's value if the parts of its call are right (times how often the
group's other parts are), less its dollars. Its advantage is that less the group's mean at the part, over the batch's
spread. All samples of a group meet the same luck, so that they differ by their choices alone (common random numbers).
One update follows each rollout, so the ratio of policies is one and nothing is clipped. Entropy is rewarded at first
and hardly at the end. Which parts share a call is decided before how a part is done, so that both are tried.

Invariants: rewards come from performed choices alone; a sampled choice and its log-probability belong together; a
training is a function of its seed and number of updates. Deliberately absent: the world; a `Batches` brings inputs and
performs choices.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, cast

import numpy as np
import torch

from shikisha.routing.arrays import Flags, Floats32, Ints
from shikisha_train.pointer.part_plans import DOLLAR_WEIGHT, TreatmentKind
from shikisha_train.pointer.pointer_network import (
    TREATMENTS,
    ArrayLibrary,
    EncodedPool,
    PointerChoices,
    PointerFeatures,
    PointerInput,
    PointerNetwork,
    PointerOutcomes,
    first_weights,
    join_with_next,
    pointer_features,
)

_WARM_UP, _LARGEST_ADVANTAGE, _FINAL_RATE, _FINAL_ENTROPY = 50, 5.0, 0.03, 0.01
_CALL, _CHECK = TREATMENTS.index(TreatmentKind.CALL), TREATMENTS.index(TreatmentKind.CHECK)


@dataclass(frozen=True, slots=True)
class PointerTraining:
    """How a training goes: updates, `tasks` a batch, `samples` a task and `lucks` that each meets, learning rate, what
    entropy is worth, and what sharp wordings cost (`calm`)."""

    updates: int = 3_500
    tasks: int = 64
    samples: int = 16
    rate: float = 4e-3
    entropy: float = 0.12
    seed: int = 1
    lucks: int = 1
    calm: float = 0.01


class Batches(Protocol):
    """The world as a learner meets it."""

    def draw(self, tasks: int, rng: np.random.Generator) -> tuple[PointerInput, "Perform"]:
        """Return inputs for so many tasks, and what performs choices for them."""
        ...


class Perform(Protocol):
    """Performs choices for the drawn tasks."""

    def __call__(self, choices: PointerChoices, rng: np.random.Generator, *, shared: bool) -> PointerOutcomes:
        """Return what came of them; `shared`: all samples of a task meet the same luck."""
        ...


# Update, mean value of the batch's plans, shares of treatments.
Report = Callable[[int, float, Floats32], None]


def train_pointer(
    batches: Batches, kinds: int, settings: PointerTraining, report: Report | None = None
) -> dict[str, Floats32]:
    """Return the trained weights."""
    torch.manual_seed(settings.seed)
    rng = np.random.default_rng(settings.seed)
    weights = {
        name: torch.nn.Parameter(torch.from_numpy(array)) for name, array in first_weights(kinds, settings.seed).items()
    }
    optimizer = torch.optim.Adam(weights.values(), lr=settings.rate)
    network = PointerNetwork(cast("Mapping[str, Floats32]", weights), cast("ArrayLibrary", torch))
    for update in range(settings.updates):
        done = update / settings.updates
        given, perform = batches.draw(settings.tasks, rng)
        features = _torch_features(pointer_features(given))
        seen = network.encode(features)
        choices, asked = sample_choices(network, seen, given, settings.samples, rng)
        pairs = [
            (perform(choices, rng, shared=True), perform(choices, rng, shared=False)) for _ in range(settings.lucks)
        ]
        others = pairs[0][1]
        loss = policy_loss(network, seen, given, choices, asked, pairs)
        worth = settings.entropy * ((1 - done) ** 1.5 + _FINAL_ENTROPY)
        entropy, sharpness = _spread(network, seen, given)
        loss = loss - worth * entropy + settings.calm * sharpness
        slowed = _FINAL_RATE + (1 - _FINAL_RATE) * 0.5 * (1 + np.cos(np.pi * done))
        for group in optimizer.param_groups:
            group["lr"] = settings.rate * min(1.0, (update + 1) / _WARM_UP) * slowed
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(weights.values(), 1.0)
        optimizer.step()
        if report is not None:
            fresh = given.parts[:, None] & ~choices.join
            shares = np.bincount(choices.mode[fresh], minlength=len(TREATMENTS)) / max(1, fresh.sum())
            report(update, float(plan_values(others, given).mean()), shares.astype(np.float32))
    return {name: weight.detach().numpy().copy() for name, weight in weights.items()}


def _torch_features(features: PointerFeatures) -> PointerFeatures:
    def convert(array: Floats32) -> Floats32:
        return cast("Floats32", torch.from_numpy(np.ascontiguousarray(array)))

    parts, workers = (cast("Flags", torch.from_numpy(each)) for each in (features.parts, features.workers))
    return PointerFeatures(
        convert(features.x), convert(features.c), convert(features.y), convert(features.a), convert(features.pairs),
        parts, workers,
    )  # fmt: skip


def _numbers(scores: Floats32) -> Floats32:
    """Return a tensor's numbers."""
    return cast("Floats32", cast("torch.Tensor", scores).numpy())


def _index(array: Ints) -> Ints:
    return cast("Ints", torch.from_numpy(array))


@torch.no_grad()
def sample_choices(
    network: PointerNetwork, seen: EncodedPool, given: PointerInput, samples: int, rng: np.random.Generator
) -> tuple[PointerChoices, Flags]:
    """Draw choices for every task, `samples` times; also return where it was asked whether to join [B, G, P]."""
    first = _numbers(network.score_first(seen))
    tasks, parts, _ = first.shape
    shape = (tasks * samples, parts)
    task = np.repeat(np.arange(tasks), samples)
    drawn = _draw(np.repeat(first, samples, 0), rng)
    workers, mode = np.zeros((*shape, 3), np.int64), np.zeros(shape, np.int64)
    join, asked = np.zeros(shape, bool), np.zeros(shape, bool)
    workers[:, :, 0] = drawn
    for at in range(1, parts):
        asked[:, at] = given.parts[task, at] & given.joinable[task, at]
        rows = np.nonzero(asked[:, at])[0]
        running = workers[rows, at - 1, 0]
        scores = network.score_join(seen, _index(task[rows]), _index(np.full(len(rows), at)), _index(running))
        join[rows, at] = _flip(_numbers(scores), rng)
        workers[rows, at, 0] = np.where(join[rows, at], running, drawn[rows, at])
    rows, place = np.nonzero(given.parts[task] & ~join & ~join_with_next(join))
    _sample_treatments(network, seen, (task, rows, place), workers, mode, rng)
    told = _flip(_numbers(network.score_wordings(seen))[task[:, None, None], workers], rng)
    shown = _flip(np.repeat(_numbers(network.score_access(seen)), samples, 0), rng) & _earlier(parts)
    wide = (tasks, samples)
    choices = PointerChoices(
        join.reshape(*wide, parts), mode.reshape(*wide, parts), workers.reshape(*wide, parts, 3),
        told.reshape(*wide, parts, 3, -1), shown.reshape(*wide, parts, parts),
    )  # fmt: skip
    return choices, asked.reshape(*wide, parts)


def _sample_treatments(
    network: PointerNetwork,
    seen: EncodedPool,
    where: tuple[Ints, Ints, Ints],
    workers: Ints,
    mode: Ints,
    rng: np.random.Generator,
) -> None:
    """Draw how the parts at these rows and places are done, and by whom else."""
    task, rows, place = where
    own = workers[rows, place, 0]
    drawn = _draw(_numbers(network.score_modes(seen, _index(task[rows]), _index(place), _index(own))), rng)
    mode[rows, place] = drawn
    more = np.nonzero(drawn != _CALL)[0]
    arguments = (_index(task[rows[more]]), _index(place[more]), _index(own[more]))
    workers[rows[more], place[more], 1] = _draw(
        _numbers(network.score_second(seen, *arguments, _one_hot(drawn[more]))), rng
    )
    three = np.nonzero((drawn != _CALL) & (drawn != _CHECK))[0]
    arguments = (_index(task[rows[three]]), _index(place[three]), _index(own[three]))
    second = _index(workers[rows[three], place[three], 1])
    workers[rows[three], place[three], 2] = _draw(
        _numbers(network.score_third(seen, *arguments, second, _one_hot(drawn[three]))), rng
    )


def _one_hot(mode: Ints) -> Floats32:
    return cast("Floats32", torch.from_numpy(np.eye(len(TREATMENTS), dtype=np.float32)[mode]))


def _draw(scores: Floats32, rng: np.random.Generator) -> Ints:
    """Draw by unnormalized log-probabilities (Gumbel)."""
    noise = -np.log(-np.log(rng.random(scores.shape, np.float32) + 1e-12) + 1e-12)
    drawn: Ints = (scores + noise).argmax(-1)
    return drawn


def _flip(scores: Floats32, rng: np.random.Generator) -> Flags:
    flipped: Flags = rng.random(scores.shape, np.float32) < 1 / (1 + np.exp(-scores))
    return flipped


def _earlier(parts: int) -> Flags:
    return np.tril(np.ones((parts, parts), bool), -1)


def plan_values(outcomes: PointerOutcomes, given: PointerInput) -> Floats32:
    """Return [B, G]: what each plan was worth less its dollars."""
    found: Floats32 = given.value[:, None] * outcomes.right.all(-1) - DOLLAR_WEIGHT * outcomes.dollars.sum(-1)
    return found


def decision_returns(
    outcomes: PointerOutcomes, others: PointerOutcomes, choices: PointerChoices, given: PointerInput
) -> tuple[Floats32, Floats32]:
    """Return [B, G, P] what the call that does a part brought, and the same with the call before it; the other calls
    are as they usually are in the group."""
    tasks, samples, parts = choices.mode.shape
    used = np.broadcast_to(given.parts[:, None], (tasks, samples, parts))
    right = outcomes.right.astype(np.float32)
    usual = np.where(used, np.broadcast_to(others.right.mean(1, keepdims=True), right.shape), 1)
    usual_dollars = others.dollars.mean(1, keepdims=True)[..., None, :]
    places = np.arange(parts)
    first_of = np.where(used, np.maximum.accumulate(np.where(choices.join, 0, places), -1), -1 - places)
    before = np.concatenate([first_of[..., :1], first_of[..., :-1]], -1)
    same = first_of[..., :, None] == first_of[..., None, :]
    both = same | (before[..., :, None] == first_of[..., None, :])

    def returns(mine: Flags) -> Floats32:
        chance = np.where(mine, right[..., None, :], usual[..., None, :]).prod(-1)
        spent = np.where(mine, outcomes.dollars[..., None, :], usual_dollars).sum(-1)
        found: Floats32 = given.value[:, None, None] * chance - DOLLAR_WEIGHT * spent
        return found

    return returns(same), returns(both)


def _advantages(returns: Floats32, decided: Flags, spread: float | None = None) -> tuple[Floats32, float]:
    mean = (returns * decided).sum(1, keepdims=True) / decided.sum(1, keepdims=True).clip(1)
    gained = (returns - mean) * decided
    if spread is None:
        spread = float(gained[decided].std()) + 1e-6
    found: Floats32 = (gained / spread).clip(-_LARGEST_ADVANTAGE, _LARGEST_ADVANTAGE).astype(np.float32)
    return found, spread


def policy_loss(
    network: PointerNetwork,
    seen: EncodedPool,
    given: PointerInput,
    choices: PointerChoices,
    asked: Flags,
    outcomes: Sequence[tuple[PointerOutcomes, PointerOutcomes]],
) -> torch.Tensor:
    """Return minus the mean of log-probability times advantage over all decisions.

    Of each performance's outcomes the first are those of shared luck, the second say how often parts are right at all.
    """
    fresh = given.parts[:, None] & ~choices.join
    often = replace(outcomes[0][1], right=np.mean([other.right for _, other in outcomes], 0, np.float32))
    found = [decision_returns(one, often, choices, given) for one, _ in outcomes]
    of_call, of_join = (np.mean(each, 0) for each in zip(*found, strict=True))
    gained, spread = _advantages(of_call, fresh)
    gained_by_joining, _ = _advantages(of_join, asked, spread)
    loss = -(_call_logprobs(network, seen, choices, fresh) * torch.from_numpy(gained[fresh])).sum()
    b, g, p = np.nonzero(asked)
    scores = cast(
        "torch.Tensor",
        network.score_join(seen, _index(b), _index(p), _index(choices.workers[b, g, p - 1, 0])),
    )
    joined = _log_flip(scores, torch.from_numpy(choices.join[b, g, p]))
    loss = loss - (joined * torch.from_numpy(gained_by_joining[b, g, p])).sum()
    return loss / max(1, int(fresh.sum()))


def _call_logprobs(network: PointerNetwork, seen: EncodedPool, choices: PointerChoices, fresh: Flags) -> torch.Tensor:
    """Return [N] the log-probability of each call's worker, treatment, further workers, wordings and access list."""
    b, g, p = np.nonzero(fresh)
    workers, mode = choices.workers[b, g, p], choices.mode[b, g, p]
    first = cast("torch.Tensor", network.score_first(seen)).log_softmax(-1)
    total = first[b, p, workers[:, 0]]
    where = (_index(b), _index(p), _index(workers[:, 0]))
    alone = np.nonzero(~join_with_next(choices.join)[b, g, p])[0]  # several parts in one call have no treatment
    modes = network.score_modes(seen, *(index[alone] for index in where))
    total = total.index_add(0, torch.from_numpy(alone), _log_choice(modes, mode[alone]))
    more = np.nonzero(mode != _CALL)[0]
    arguments = (_index(b[more]), _index(p[more]), _index(workers[more, 0]))
    second = _log_choice(network.score_second(seen, *arguments, _one_hot(mode[more])), workers[more, 1])
    total = total.index_add(0, torch.from_numpy(more), second)
    three = np.nonzero((mode != _CALL) & (mode != _CHECK))[0]
    arguments = (_index(b[three]), _index(p[three]), _index(workers[three, 0]))
    pair = _index(workers[three, 1])
    third = _log_choice(network.score_third(seen, *arguments, pair, _one_hot(mode[three])), workers[three, 2])
    total = total.index_add(0, torch.from_numpy(three), third)
    called = np.stack([np.ones_like(mode), mode != _CALL, (mode != _CALL) & (mode != _CHECK)], -1).astype(np.float32)
    wordings = cast("torch.Tensor", network.score_wordings(seen))[b[:, None], workers]
    told = _log_flip(wordings, torch.from_numpy(choices.told[b, g, p])).sum(-1)
    total = total + (told * torch.from_numpy(called)).sum(-1)
    access = cast("torch.Tensor", network.score_access(seen))[b, p]
    shown = _log_flip(access, torch.from_numpy(choices.shown[b, g, p]))
    earlier = torch.from_numpy(_earlier(choices.mode.shape[-1])[p])
    return total + (shown * earlier).sum(-1)


def _log_choice(scores: Floats32, chosen: Ints) -> torch.Tensor:
    found = cast("torch.Tensor", scores).log_softmax(-1)
    return found[torch.arange(len(chosen)), torch.from_numpy(chosen)]


def _log_flip(scores: torch.Tensor, flipped: torch.Tensor) -> torch.Tensor:
    return -torch.nn.functional.softplus(torch.where(flipped, -scores, scores))


def _spread(network: PointerNetwork, seen: EncodedPool, given: PointerInput) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the mean entropies of first workers, of treatments after the likeliest, joins and wordings, added up, and
    how sharp wordings are: their mean squared score.

    A score that is far from 0 gets hardly any gradient, and no entropy either. A sentence too many costs little, so
    saying it, which is right where little is known, would never be unlearned for workers that are known well.
    """
    first = cast("torch.Tensor", network.score_first(seen)).log_softmax(-1)
    b, p = np.nonzero(given.parts)
    own = first.detach().argmax(-1)[b, p]
    modes = cast("torch.Tensor", network.score_modes(seen, _index(b), _index(p), cast("Ints", own))).log_softmax(-1)
    total = _mean_entropy(first[b, p]) + _mean_entropy(modes)
    for mode in range(1, len(TREATMENTS)):
        how = _one_hot(np.full(len(b), mode))
        scores = network.score_second(seen, _index(b), _index(p), cast("Ints", own), how)
        total = total + _mean_entropy(cast("torch.Tensor", scores).log_softmax(-1)) / (len(TREATMENTS) - 1)
    b, p = np.nonzero(given.parts & given.joinable)
    running = cast("Ints", first.detach().argmax(-1)[b, p - 1])
    joins = cast("torch.Tensor", network.score_join(seen, _index(b), _index(p), running))
    wordings = cast("torch.Tensor", network.score_wordings(seen))[torch.from_numpy(given.workers)]
    return total + _flip_entropy(joins) + _flip_entropy(wordings), wordings.square().mean()


def _flip_entropy(scores: torch.Tensor) -> torch.Tensor:
    if not scores.numel():
        return scores.sum()
    return (torch.nn.functional.softplus(scores) - scores * torch.sigmoid(scores)).mean()


def _mean_entropy(logs: torch.Tensor) -> torch.Tensor:
    return -(logs.exp() * logs.clamp(min=-30)).sum(-1).mean()
