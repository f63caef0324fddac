"""Classes of tasks, found in a journal, with what they risk and how much runs of each may do on their own.

Tasks with the same labels are clustered by the text encoder (spherical k-means). The older half of the runs says what a
class risks: how often its answers are wrong, what they cost, whether calls changed something, how often workers
disagree. From that comes a proposed mode. The newer half is the audit: what the proposal would have let through.

Invariants: a proposal is data, and nothing of it holds before a person confirms it by name; few grades never lead to
more autonomy; a task belongs to a class only if it is as near to its center as the class's own tasks. What was
confirmed is part of the file's version. Deliberately absent: any effect on runs (`engine.autonomy` has that).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache, partial
from itertools import combinations
from pathlib import Path

import numpy as np
from pydantic import Field

from shikisha.core.budget import format_dollars, wilson
from shikisha.core.errors import ConfigError
from shikisha.core.events import CallRole, EndReached, QuestionKind, ToolsOffered
from shikisha.core.kinds import Kind
from shikisha.core.messages import Json
from shikisha.core.run import Run
from shikisha.core.task import Scope, join_scopes
from shikisha.core.text import one_line
from shikisha.core.toml import Table
from shikisha.core.tools import ToolEffect, load_offer
from shikisha.engine.autonomy import AutonomyClass, AutonomyMode, EscalationRules, review_reasons
from shikisha.evals.statistics import quantile
from shikisha.learned.learned_file import LearnedFile, decode_array, encode_array, read_learned
from shikisha.retrieval.text_encoder import Floats, shipped_encoder

CLASSES_KIND = "classes"
MAX_CLASSES, LEAST_TASKS, LEAST_GRADED = 12, 20, 30
_CENTERS = (1, 2, 3, 4, 6, 8, 12)
_ROUNDS, _EXAMPLES, _LEAST_GAIN = 20, 3, 0.03
_NEAR = 0.05  # share of a class's own tasks that are farther from its center than what belongs to it
_RIGHT = 0.999
ALL_RULES = EscalationRules(check=True, substitution=True, disagreement=True)


@dataclass(frozen=True, slots=True)
class ClassRisk:
    """What a class risks, from `runs` of which `graded` have a score: how many were `wrong`, did `writes`, differed."""

    runs: int
    graded: int
    wrong: int
    writes: int
    disagreed: int
    refused: int  # answers that a person refused or changed
    dollars: float  # a run, on average
    dear: float  # dollars that 5 % of the runs exceed

    @property
    def most_wrong(self) -> float:
        """The upper end of the 95 % interval of how often an answer is wrong."""
        return wilson(self.wrong, self.graded)[1] if self.graded else 1.0


@dataclass(frozen=True, slots=True)
class ClassAudit:
    """What a mode would have done on `runs` it was not proposed from: asked a person, let wrong answers through.

    `wrong` are all wrong ones of the `graded`, `through` those that no person would have seen.
    """

    runs: int
    graded: int
    asked: int
    wrong: int
    through: int


@dataclass(frozen=True, slots=True)
class TaskClass:
    """A proposed class: its name, whom it fits, what it risks, the mode with the reason, and who confirmed it."""

    name: str
    labels: tuple[str, ...]
    center: Floats = field(compare=False, repr=False)
    near: float = 0.0
    examples: tuple[str, ...] = ()
    domains: Mapping[str, int] = field(default_factory=dict)
    risk: ClassRisk = ClassRisk(0, 0, 0, 0, 0, 0, 0.0, 0.0)
    mode: AutonomyMode = AutonomyMode.REVIEW
    why: str = ""
    dollars: float | None = None  # escalate: above so many dollars a person looks
    audit: ClassAudit = ClassAudit(0, 0, 0, 0, 0)
    confirmed_by: str = ""

    @property
    def rules(self) -> EscalationRules:
        """When a person is asked."""
        return replace(ALL_RULES, dollars=self.dollars) if self.mode is AutonomyMode.ESCALATE else EscalationRules()


@dataclass(frozen=True)
class ProposedClasses:
    """The classes of a file; `find` says which a task belongs to."""

    classes: tuple[TaskClass, ...]
    scope: Scope
    evidence: tuple[str, ...] = ()
    tolerance: float = 0.05

    def find(self, prompts: Sequence[str]) -> list[TaskClass | None]:
        """Return the nearest class of each prompt; None for a prompt that is near none."""
        if not self.classes:
            return [None] * len(prompts)
        likeness = shipped_encoder().encode(prompts) @ np.stack([each.center for each in self.classes]).T
        nearest = likeness.argmax(axis=1)
        return [
            self.classes[at] if likeness[row, at] >= self.classes[at].near else None for row, at in enumerate(nearest)
        ]

    def confirm(self, names: Iterable[str], person: str) -> "ProposedClasses":
        """Return the file with these classes confirmed; ConfigError for a name that it lacks."""
        wanted, known = tuple(names), [each.name for each in self.classes]
        for name in wanted:
            if name not in known:
                raise ConfigError(f"no class {name!r} is proposed: expected one of {', '.join(known) or '(none)'}")
        return replace(
            self,
            classes=tuple(replace(each, confirmed_by=person) if each.name in wanted else each for each in self.classes),
        )

    def autonomy_classes(self) -> tuple[AutonomyClass, ...]:
        """Return what holds: the confirmed classes, each for the tasks that belong to it."""

        @lru_cache(maxsize=256)
        def class_name(prompt: str) -> str | None:
            found = self.find([prompt])[0]
            return None if found is None else found.name

        def belongs(name: str, prompt: str) -> bool:
            return class_name(prompt) == name

        return tuple(
            AutonomyClass(
                name=each.name,
                mode=each.mode,
                labels=each.labels,
                rules=each.rules,
                belongs=partial(belongs, each.name),
                tenant=self.scope.tenant,
            )
            for each in self.classes
            if each.confirmed_by
        )


def propose_classes(runs: Sequence[Run], tolerance: float = 0.05) -> ProposedClasses:
    """Return the classes of one tenant's runs, oldest first; ConfigError where they are too few to say anything."""
    if not 0 < tolerance < 1:
        raise ConfigError(f"tolerance: expected the share of wrong answers to live with, from 0 to 1, not {tolerance}")
    finished = [run for run in runs if run.erased is None and run.finished is not None and run.started.depth == 0]
    if len(finished) < 2 * LEAST_TASKS:
        raise ConfigError(f"{len(finished)} finished runs: at least {2 * LEAST_TASKS} are needed, half for the audit")
    half = len(finished) // 2
    older, newer = finished[:half], finished[half:]
    found = list[TaskClass]()
    for labels in sorted({run.started.labels for run in older}):
        found += _label_classes(labels, [run for run in older if run.started.labels == labels], tolerance)
    if not found:
        raise ConfigError(f"no {LEAST_TASKS} of the {half} older runs have the same labels: no class can be told")
    named = _with_names(found)
    proposal = ProposedClasses(
        tuple(named), join_scopes(run.scope for run in older), tuple(run.id for run in older), tolerance
    )
    return replace(proposal, classes=audit_classes(proposal, newer))


def audit_classes(proposal: ProposedClasses, runs: Sequence[Run]) -> tuple[TaskClass, ...]:
    """Return the classes with what their modes would have done on these runs."""
    told = proposal.find([run.started.prompt for run in runs])
    return tuple(
        replace(
            each,
            audit=audit_mode(
                each.mode,
                each.rules,
                [
                    run
                    for run, found in zip(runs, told, strict=True)
                    if found is not None and found.name == each.name and set(each.labels) <= set(run.started.labels)
                ],
            ),
        )
        for each in proposal.classes
    )


def audit_mode(mode: AutonomyMode, rules: EscalationRules, runs: Sequence[Run]) -> ClassAudit:
    """Return what a mode would have done on these runs, by the engine's own rules."""
    acting, asked, wrong, through = AutonomyClass(mode=mode, rules=rules), 0, 0, 0
    scored = 0
    for run in runs:
        asks = bool(review_reasons(acting, run, _end_of(run)))
        score = run_score(run)
        asked, scored = asked + asks, scored + (score is not None)
        wrong += score is not None and score < _RIGHT
        through += score is not None and score < _RIGHT and not asks
    return ClassAudit(len(runs), scored, asked, wrong, through)


def run_score(run: Run) -> float | None:
    """Return how right the run's own answer was: a grade, or a person who refused or changed it; None: unknown."""
    if run.reviewed is not None and not run.reviewed.approved:
        return 0.0
    grade = run.grade
    return None if grade is None or grade.score is None else float(grade.score)


def _end_of(run: Run) -> EndReached:
    end = run.finished
    assert end is not None  # noqa: S101 - only finished runs come here
    return EndReached(
        run=run.id,
        at=end.at,
        status=end.status,
        cap=end.cap,
        fault=end.fault,
        round=end.round,
        step=end.step,
        answer=end.answer,
    )


def _label_classes(labels: tuple[str, ...], runs: Sequence[Run], tolerance: float) -> list[TaskClass]:
    if len(runs) < LEAST_TASKS:
        return []
    vectors = shipped_encoder().encode([run.started.prompt for run in runs])
    centers, places = cluster_vectors(vectors)
    found = []
    for at, center in enumerate(centers):
        rows = np.flatnonzero(places == at)
        own = vectors[rows] @ center
        members = [runs[int(row)] for row in rows]
        risk = class_risk(members)
        mode, why, dollars = propose_mode(risk, members, labels, tolerance)
        nearest = rows[np.argsort(-own, kind="stable")[:_EXAMPLES]]
        domains = {
            name: sum(run.started.domain == name for run in members) for name in {r.started.domain for r in members}
        }
        found.append(
            TaskClass(
                "",
                labels,
                center,
                float(np.quantile(own, _NEAR)),
                tuple(one_line(runs[int(row)].started.prompt, 80) for row in nearest),
                {name: count for name, count in sorted(domains.items()) if name},
                risk,
                mode,
                why,
                dollars,
            )
        )
    return found


def cluster_vectors(vectors: Floats) -> tuple[Floats, np.ndarray]:
    """Return centers [K, D] and each vector's cluster: as many as make vectors clearly nearer to their centers.

    Starts are the vectors farthest from those before, so that the same vectors give the same clusters.
    """
    best = _k_means(vectors, 1)
    for count in _CENTERS[1:]:
        if len(vectors) < count * LEAST_TASKS:
            break
        found = _k_means(vectors, count)
        sizes = np.bincount(found[1], minlength=count)
        if sizes.min() < LEAST_TASKS or found[2] < best[2] + _LEAST_GAIN:
            continue
        best = found
    return best[0], best[1]


def _k_means(vectors: Floats, count: int) -> tuple[Floats, np.ndarray, float]:
    middle = vectors.mean(axis=0)
    chosen = [int((vectors @ middle).argmax())]
    for _ in range(count - 1):
        chosen.append(int((vectors @ vectors[chosen].T).max(axis=1).argmin()))
    centers, places = vectors[chosen], np.zeros(len(vectors), np.int64)
    for _ in range(_ROUNDS):
        places = (vectors @ centers.T).argmax(axis=1)
        sums = np.stack([vectors[places == at].sum(axis=0) for at in range(count)])
        norms = np.linalg.norm(sums, axis=1, keepdims=True)
        centers = np.where(norms > 0, sums / np.maximum(norms, 1e-9), centers).astype(np.float32)
    places = (vectors @ centers.T).argmax(axis=1)
    return centers, places, float((vectors @ centers.T).max(axis=1).mean())


def class_risk(runs: Sequence[Run]) -> ClassRisk:
    """Return what the runs of a class say of its risk."""
    scores = [score for run in runs if (score := run_score(run)) is not None]
    costs = [run.counted.dollars or 0.0 for run in runs]
    asks = AutonomyClass(mode=AutonomyMode.ESCALATE, rules=EscalationRules(disagreement=True))
    return ClassRisk(
        runs=len(runs),
        graded=len(scores),
        wrong=sum(score < _RIGHT for score in scores),
        writes=sum(changed_something(run) for run in runs),
        disagreed=sum(bool(review_reasons(asks, run, _end_of(run))) for run in runs),
        refused=sum(run.reviewed is not None and not run.reviewed.approved for run in runs),
        dollars=float(np.mean(costs)),
        dear=quantile(costs, 0.95),
    )


def changed_something(run: Run) -> bool:
    """Whether a run made a call that may have changed something: of a tool that is not known to read only."""
    if any(asked.asks is QuestionKind.APPROVE for asked in run.asked.values()):
        return True  # a person was asked before a call: somebody thought that it may do harm
    records = [step for turn in run.rounds for step in turn.steps.values()]
    for record in records:
        called = {attempt.started.tool for attempt in record.attempts if attempt.started.role is CallRole.TOOL}
        offers = [event for event in record.tools if isinstance(event, ToolsOffered)]
        reading = {each.name for event in offers for each in load_offer(event.tools) if each.effect is ToolEffect.READ}
        if called - reading:
            return True
    return False


def propose_mode(
    risk: ClassRisk, runs: Sequence[Run], labels: Sequence[str], tolerance: float
) -> tuple[AutonomyMode, str, float | None]:
    """Return the mode, why, and above which dollars a person looks.

    Autonomous: at most `tolerance` wrong (the interval's upper end), nothing changed, no labels. Escalate: the answers
    that the rules would let through are wrong that seldom. Review: all else, few grades among it.
    """
    if risk.graded < LEAST_GRADED:
        return AutonomyMode.REVIEW, f"{risk.graded} graded answers: fewer than {LEAST_GRADED} tell too little", None
    reasons = [f"has the label {name}" for name in labels]
    if risk.writes:
        reasons.append(f"{risk.writes} of {risk.runs} runs changed something")
    wrong = f"{risk.wrong} of {risk.graded} graded answers wrong, at most {risk.most_wrong:.0%}"
    if risk.most_wrong <= tolerance and not reasons:
        return AutonomyMode.AUTONOMOUS, wrong, None
    dollars = None if risk.dear <= 0 else risk.dear
    rules = replace(ALL_RULES, dollars=dollars)
    tried = audit_mode(AutonomyMode.ESCALATE, rules, runs)
    passed = tried.graded - _asked_of_graded(rules, runs)
    most = wilson(tried.through, passed)[1] if passed else 1.0
    if most <= tolerance and tried.asked < tried.runs:
        cost = "" if dollars is None else f", dearer than {format_dollars(dollars)}"
        told = "; ".join([wrong, *reasons])
        return (
            AutonomyMode.ESCALATE,
            f"{told}; asked where checks fail, workers disagree or are replaced{cost}, at most {most:.0%} pass wrong",
            dollars,
        )
    return AutonomyMode.REVIEW, "; ".join([wrong, *reasons, f"the rules would let up to {most:.0%} pass wrong"]), None


def _asked_of_graded(rules: EscalationRules, runs: Sequence[Run]) -> int:
    return audit_mode(AutonomyMode.ESCALATE, rules, [run for run in runs if run_score(run) is not None]).asked


def _with_names(classes: Sequence[TaskClass]) -> list[TaskClass]:
    """Name each class by its commonest domain, else by the words of its most typical task; no two alike."""
    named, taken = list[TaskClass](), set[str]()
    for each in classes:
        domain = max(each.domains, key=lambda name: each.domains[name], default="")
        said = domain or " ".join(each.examples[0].split()[:4]) if each.examples else domain
        plain = (
            "-".join("".join(letter if letter.isalnum() else " " for letter in said.lower()).split())[:40] or "class"
        )
        name = next(one for one in (plain, *(f"{plain}-{number}" for number in range(2, 99))) if one not in taken)
        taken.add(name)
        named.append(replace(each, name=name))
    return named


def classes_file(proposal: ProposedClasses, made: float) -> LearnedFile:
    """Return the classes as a learned file."""
    rows: list[Json] = []
    for each in proposal.classes:
        row: dict[str, Json] = {
            "name": each.name, "labels": list(each.labels), "near": each.near, "examples": list(each.examples),
            "domains": dict(each.domains), "risk": asdict(each.risk), "mode": str(each.mode), "why": each.why,
            "dollars": each.dollars, "audit": asdict(each.audit), "confirmed_by": each.confirmed_by,
            "center": dict(encode_array(each.center.astype(np.float64))),
        }  # fmt: skip
        rows.append(row)
    content: dict[str, Json] = {
        "classes": rows, "tolerance": proposal.tolerance, "encoder": shipped_encoder().version
    }  # fmt: skip
    return LearnedFile(CLASSES_KIND, content, proposal.evidence, proposal.scope, made)


def read_classes(learned: LearnedFile, name: str) -> ProposedClasses:
    """Return the classes of a learned file; ConfigError where it holds none that can be used."""
    encoder, content = shipped_encoder(), learned.content
    try:
        rows = content["classes"]
        if content["encoder"] != encoder.version:
            raise ValueError("another text encoder made it: propose the classes again")
        if not isinstance(rows, list) or len(rows) > 99:
            raise ValueError("expected at most 99 classes")
        found = tuple(_read_class(row, encoder.width) for row in rows)
        proposal = ProposedClasses(found, learned.scope, learned.evidence, float(str(content["tolerance"])))
        if any(one.name == other.name for one, other in combinations(found, 2)):
            raise ValueError("two classes have the same name")
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{name}: no proposed classes: {type(error).__name__}: {error}") from None
    return proposal


def _read_class(row: Json, width: int) -> TaskClass:
    if not isinstance(row, dict):
        raise TypeError("a class is an object")
    labels, examples, domains = row["labels"], row["examples"], row["domains"]
    risk, audit, dollars = row["risk"], row["audit"], row["dollars"]
    if not isinstance(labels, list) or not isinstance(examples, list) or not isinstance(domains, dict):
        raise TypeError("labels and examples are lists, domains an object")
    if not isinstance(risk, dict) or not isinstance(audit, dict):
        raise TypeError("risk and audit are objects")
    numbers = {name: float(str(value)) for name, value in risk.items()}
    whole = {name: int(value) for name, value in numbers.items() if name not in ("dollars", "dear")}
    return TaskClass(
        str(row["name"]),
        tuple(map(str, labels)),
        decode_array(row["center"], (width,)).astype(np.float32),
        float(str(row["near"])),
        tuple(map(str, examples)),
        {str(name): int(str(count)) for name, count in domains.items()},
        ClassRisk(**whole, dollars=numbers["dollars"], dear=numbers["dear"]),
        AutonomyMode(str(row["mode"])),
        str(row["why"]),
        None if dollars is None else float(str(dollars)),
        ClassAudit(**{name: int(str(value)) for name, value in audit.items()}),
        str(row["confirmed_by"]),
    )


class ConfirmedSettings(Table):
    """What `[autonomy]` says of proposed classes."""

    proposed: Path = Field(description="the file of `shikisha classes propose`")


def load_confirmed_classes(settings: ConfirmedSettings) -> tuple[AutonomyClass, ...]:
    """Return the classes that a person confirmed; ConfigError for a file that is bad."""
    return read_classes(read_learned(settings.proposed, CLASSES_KIND), str(settings.proposed)).autonomy_classes()


KIND = Kind(settings=ConfirmedSettings, build=load_confirmed_classes, double=tuple)
