"""A learned policy in words: what the kept rung comes to, why it is kept, what the others lack, and how to use it.

Invariants: nothing is called better unless its interval excludes 0; every figure is of tasks that were held back from
what it judges; where nothing could be held back, that is said. Deliberately absent: markup and layout.
"""

from collections.abc import Iterator
from shlex import quote

from shikisha.budget import format_dollars
from shikisha.evaluate.entries import Interval
from shikisha.evaluate.wording import percent, plural, points, span
from shikisha.learn.figures import Step, best_single, defended, hardly_known, met_at, overspent, paid, reach, steps
from shikisha.policy.dial import Dial
from shikisha.policy.policy import About, Evidence, Gain, Policy

_EXAMPLE = 0.2  # of the best single worker's cost
_QUALITIES = (1.0, 0.99, 0.97, 0.95)


def name(about: About) -> str:
    """Return what the log is called: the last part of its path."""
    return about.log.rstrip("/").rpartition("/")[2] or about.log or "outcomes"


def source(policy: Policy) -> str:
    """Say what it was learned from."""
    about = policy.about
    kinds = f" of {plural(len(policy.types.names), 'type')}" if policy.types.names else ""
    return f"{plural(about.tasks, 'task')}{kinds}, {plural(len(policy.workers), 'worker')}; {costs(about)}"


def costs(about: About) -> str:
    """Say how costs came about."""
    return {
        "recorded": "costs as recorded",
        "derived": "costs derived from list prices",
        "": "where its costs come from is not said",
    }.get(about.cost_kind, f"costs {about.cost_kind}")


def yardstick(policy: Policy) -> str:
    """Say what costs and qualities are measured by."""
    best, dial = best_single(policy), policy.rung().dial
    if dial.unit <= 0:
        return f"Best single worker: {best.name}, {percent(best.score)}. Nothing in this log costs anything."
    price = f"{format_dollars(1000 * dial.unit)} for 1,000 tasks"
    return f"Best single worker: {best.name}, {percent(best.score)} at {price}, which is a cost of 100 %."


def few(policy: Policy) -> str:
    """Say whom few outcomes tell of, and how many; nothing where there is nobody."""
    named = [f"{worker.name} {worker.tasks:,}" for worker in hardly_known(policy)]
    return f"Few outcomes: {', '.join(named)}." if named else ""


def headline(policy: Policy) -> tuple[str, ...]:
    """Say what the kept rung comes to, then why it is kept."""
    return (*_comes_to(policy), *ladder(policy))


def _comes_to(policy: Policy) -> Iterator[str]:
    evidence = policy.rung().evidence
    if evidence is None:
        yield f"The {policy.kept} is kept. No task could be held back, so nobody knows how well it does on others."
        return
    met, best = met_at(paid(evidence), _EXAMPLE), best_single(policy)
    if met is not None and not overspent(met, _EXAMPLE):
        yield (
            f"The {policy.kept} is kept. At {percent(met.spent)} of the best single worker's cost it was right in "
            f"{percent(met.accuracy)} ({span(Interval(met.low, met.high))}) of held-back tasks; {best.name}, the best "
            f"single worker, in {percent(best.score)} at its full cost."
        )
    else:
        yield f"The {policy.kept} is kept. {best.name}, the best single worker, was right in {percent(best.score)}."
    cost = reach(paid(evidence), policy.rung().dial.best_single)
    where = "never reached" if cost is None else f"reached at {percent(cost)} of its cost"
    yield f"The best single worker's accuracy is {where}."


def ladder(policy: Policy) -> tuple[str, ...]:
    """Say of every rung above the first why it was taken or was not, and what it still needs."""
    said = [_step(step) for step in steps(policy)]
    if policy.kept != (by_evidence := defended(policy)):
        said.append(f"The {policy.kept} is kept because it was asked for; the evidence would keep the {by_evidence}.")
    return tuple(said)


def _step(step: Step) -> str:
    if step.gain is None:
        return f"The {step.rung} was not measured, so it is not taken."
    against = f"{gained(step.gain)} of area over the {step.gain.over}"
    if step.taken:
        return f"The {step.rung} is taken: {against}, which excludes harm."
    if step.gain.high < 0:
        return f"The {step.rung} is not taken: {against}, which is harm."
    return f"The {step.rung} is not taken: {against}, which does not exclude harm. {needs(step.needs)}"


def needs(outcomes: int | None) -> str:
    """Say how many more outcomes would tell."""
    if outcomes is None:
        return "Nobody can say how many more outcomes it needs: on these it gains nothing."
    if not outcomes:
        return "It needs no more outcomes to be told from the rung below."
    return f"About {outcomes:,} more outcomes would tell, if the gain is what it seems."


def gained(gain: Gain) -> str:
    """Return a gain in points with its interval."""
    return f"{points(gain.mean)} points ({span(Interval(gain.low, gain.high), signed=True)})"


def kept_word(evidence: Evidence) -> str:
    """Say how far the dial's promises were from what was found; nothing where that was not measured."""
    accuracy, cost = evidence.promised
    if not any(evidence.promised):
        return ""
    return (
        f"The dial promised what was found to within {100 * accuracy:.1f} points of accuracy and {percent(cost)} of "
        "the best single worker's cost, in the mean over budgets."
    )


def uses(policy: Policy, file: str, log: str = "", workers: tuple[str, ...] = ()) -> tuple[tuple[str, str], ...]:
    """Return how to use a policy file: commands, and what each is for."""
    dial = policy.rung().dial
    options = dict(_options(dial))
    first = next(iter(options), "")
    found = [(f"shikisha policy show {quote(file)}", "whom it asks, and when")]
    for option, meaning in options.items():
        found.append((f'shikisha run "..." --conductor {quote(f"policy:{file}{option}")}', meaning))
    if not options:
        found.append((f'shikisha run "..." --conductor {quote(f"policy:{file}")}', "its best setting"))
    if log:
        pool = f" --workers {quote(','.join(workers))}" if workers else ""
        conductor = quote(f"policy:{file}{first}")
        texts = " --reply both" if policy.hearing else ""
        found.append((f"shikisha eval --log {quote(log)}{pool}{texts} --conductor {conductor}", "through the engine"))
    return tuple(found)


def _options(dial: Dial) -> Iterator[tuple[str, str]]:
    """Yield options that this dial can fulfil, and what they mean."""
    ends = dial.points[0], dial.points[-1]
    quality = next((one for one in _QUALITIES if one * dial.best_single <= ends[1].accuracy), None)
    if quality is not None and dial.best_single > 0:
        cost = dial.reaching(quality * dial.best_single).cost
        of_it = f"{quality:.0%} of the best single worker's accuracy".replace("%", " %")
        yield f"?quality={quality:g}", f"{of_it}, at {percent(cost)} of its cost"
    cost = min(max(_EXAMPLE, 1.2 * ends[0].cost), ends[1].cost)
    stated = next((text for text in (f"{cost:.2g}", f"{cost:.4g}") if float(text) >= ends[0].cost), "")
    if stated and len(dial.points) > 1 and dial.unit > 0:
        yield f"?max_cost={stated}", f"{percent(dial.within(float(stated)).accuracy)}, for so much of its cost"
