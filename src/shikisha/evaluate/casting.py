"""Who plays in an evaluation besides those asked for, as specifications that any process can turn into entrants.

Every evaluation has: each single worker; random plans; the best fixed topology, chosen on the dev split; the best
worker asked again at equal cost. Invariants: a choice (which worker is best, which topology) is made on dev tasks only;
a specification is plain data. Deliberately absent: conductors and pools (the composition root makes them of this).
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from math import log

from shikisha.evaluate.samples import Part, Sample
from shikisha.plan import MAX_STEPS

VOTE, WEIGH = "vote", "weigh"  # the counters of votes that stand ready behind every pool
_TOP = 3
_WEIGHED = MAX_STEPS - 1
_SPECIFIED = re.compile("[:?&]")  # stands in every conductor's own name before its first `=`
_ALIKE = "every vote counts the same: nobody is known to be right more often than not on the dev split"
_LEAST, _MOST = 0.02, 0.98  # accuracies are held inside, so that a weight is finite


@dataclass(frozen=True, slots=True)
class Spec:
    """An entrant to be: the conductor's name as a configuration would give it, and what an Entrant has besides.

    `weights` are what the first, second, ... vote counts where the conductor joins by WEIGH. `pool` names the workers
    that are cast for it where the taskset casts workers (none named: those of each task). `kept`: it plays as far as
    replies are kept, and pays for none; `subtask` is how a single worker is put the task, where not as usual.
    """

    name: str
    conductor: str
    part: Part = Part.ASKED
    worker: str | None = None
    note: str = ""
    weights: tuple[float, ...] = ()
    pool: tuple[str, ...] = ()
    kept: bool = False
    subtask: str = ""

    def to_json(self) -> dict[str, object]:
        """Return it as what JSON has."""
        return asdict(self)

    @classmethod
    def of(cls, data: Mapping[str, object]) -> "Spec":
        """Return the spec that `to_json` made, read back from JSON."""
        spec = cls(**data)  # type: ignore[arg-type]  # it was a Spec
        return replace(spec, part=Part(spec.part), weights=tuple(spec.weights), pool=tuple(spec.pool))


class Repertoire:
    """The entrants of an evaluation over one pool of workers that are named.

    `talk`: the workers read what others wrote; replayed ones do not, and answer each task once only.
    """

    def __init__(self, workers: Sequence[str], *, talk: bool, seed: int = 0) -> None:
        self._workers, self._talk, self._seed = tuple(workers), talk, seed

    def singles(self) -> list[Spec]:
        """Return an entrant for each worker alone."""
        return singles(self._workers)

    def random(self) -> Spec:
        """Return the entrant whose plans are drawn by lot."""
        return Spec("random plans", f"random:{self._seed}", Part.RANDOM)

    def candidates(self, skill: Mapping[str, float]) -> list[Spec]:
        """Return the fixed topologies to choose from, over the best workers by their accuracy on the dev split."""
        ranking = sorted(self._workers, key=lambda worker: -skill.get(worker, 0.0))
        return candidates(ranking, skill, talk=self._talk)

    def consistency(self, worker: str, alone: float, others: Sequence[float]) -> Spec | None:
        """Return the best worker asked again at equal cost; None where that buys no second call."""
        return consistency(worker, alone, others) if self._talk else None


def singles(workers: Iterable[str]) -> list[Spec]:
    """Return an entrant for each worker alone."""
    return [Spec(worker, f"fixed:single?worker={worker}", Part.SINGLE, worker) for worker in workers]


def asked(conductor: str, skill: Mapping[str, float]) -> Spec:
    """Return the entrant somebody asks for, as `CONDUCTOR` or `LABEL=CONDUCTOR`.

    Where it joins by WEIGH, votes count by the accuracy of who gives them.
    """
    label, _, rest = conductor.partition("=")
    named = rest and not _SPECIFIED.search(label)
    label, conductor = (label, rest) if named else (conductor, conductor)
    _, _, query = conductor.partition("?")
    options = dict(part.partition("=")[::2] for part in query.split("&"))
    voters = options.get("workers", "").split(",")
    weighs = WEIGH in options.values()
    weights = weigh(voters, skill) if weighs else ()
    note = _ALIKE if weighs and not weights else ""
    return Spec(label, conductor, note=note, weights=weights)


def weigh(voters: Sequence[str], skill: Mapping[str, float]) -> tuple[float, ...]:
    """Return the log odds of each voter's accuracy (the weights of an optimal vote of independent voters), from 0.

    Where nobody is known to be right more often than not there are no weights: every vote counts the same.
    """
    held = [min(_MOST, max(_LEAST, skill.get(voter, 0.5))) for voter in voters]
    weights = tuple(max(0.0, log(share / (1 - share))) for share in held)
    return weights if any(weights) else ()


def candidates(ranking: Sequence[str], skill: Mapping[str, float], *, talk: bool) -> list[Spec]:
    """Return fixed topologies over the best workers of a ranking (best first), one of which is to be chosen.

    `talk`: the workers read what others wrote; replayed ones do not, and then only votes make sense.
    """
    best, some, many = ranking[0], ranking[:_TOP], ranking[:_WEIGHED]
    names, wide = ",".join(some), ",".join(many)
    made = [Spec("", f"fixed:single?worker={best}")]
    if len(some) == _TOP:
        made.append(Spec("", f"fixed:vote?workers={names}&join={VOTE}"))
        made.append(Spec("", f"fixed:agreement?workers={some[1]},{some[2]},{best}"))
    if len(many) > _TOP:
        made.append(Spec("", f"fixed:vote?workers={wide}&join={VOTE}"))
        made.append(Spec("", f"fixed:fan-out-join?workers={wide}&join={WEIGH}", weights=weigh(many, skill)))
    if talk:
        second = some[1] if len(some) > 1 else best
        made.append(Spec("", f"fixed:planner-executor-verifier?planner={best}&executor={second}&verifier={best}"))
        made.append(Spec("", f"fixed:fan-out-join?workers={names}&join={best}"))
        made.append(Spec("", f"fixed:chain?workers={second},{best}"))
    note = "chosen on the dev split"
    return [replace(spec, name=f"best fixed ({spec.conductor})", part=Part.FIXED, note=note) for spec in made]


def consistency(worker: str, alone: float, others: Sequence[float]) -> Spec | None:
    """Return the best worker asked again and again at about the cost of the dearest of the `others` (dollars a task).

    `alone` is what one call of it costs. None where that buys no second call: then it is the single worker itself.
    """
    dearest = max(others, default=0.0)
    count = min(MAX_STEPS - 1, round(dearest / alone)) if alone > 0 else _TOP
    if count < 2:
        return None
    note = _bought(count, alone, dearest)
    spec = f"fixed:vote?workers={worker}&n={count}&join={VOTE}"
    return Spec(f"self-consistency × {count} ({worker})", spec, Part.CONSISTENCY, worker, note)


def _bought(count: int, alone: float, dearest: float) -> str:
    """Say how what so many calls cost stands to what they are to be compared with."""
    if alone <= 0:
        return f"{count} answers: what one costs is not known, or nothing"
    if dearest > alone * (count + 1):
        return f"as many answers as a plan has room for, at {count * alone / dearest:.0%} of the dearest's cost"
    return "at about equal cost"


def mean_score(samples: Iterable[Sample]) -> float:
    """Return the mean score of the graded samples; 0 where there are none."""
    scores = [sample.score for sample in samples if sample.score is not None]
    return sum(scores) / len(scores) if scores else 0.0


def mean_dollars(samples: Iterable[Sample]) -> float:
    """Return the mean of the known costs; 0 where none is known."""
    dollars = [sample.dollars for sample in samples if sample.dollars is not None]
    return sum(dollars) / len(dollars) if dollars else 0.0
