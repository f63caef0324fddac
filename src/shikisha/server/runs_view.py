"""A run as `/runs` shows it, and lists of runs.

Invariant: what is shown of a run is read off its events, and of its row only what events do not have (who ordered it,
by which API). Deliberately absent: who may see it (`runs`).
"""

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterable
from math import isfinite

from shikisha.explain.tell import explain
from shikisha.run import Run
from shikisha.server import withholding
from shikisha.server.house import House, root_of
from shikisha.server.principal import Principal
from shikisha.server.problems import Problem
from shikisha.server.store import Served
from shikisha.server.usage import bill
from shikisha.server.wire.runs import OpenQuestion, RunShown, RunSummary


async def shown(house: House, by: Principal, name: str) -> RunShown:
    """Return a run, whole, but for what this principal may not see; UnknownRun when there is none."""
    served, family = await house.served(root_of(name)), await withholding.family(house, by, name)
    run = family[name]
    spent = bill(run, family.values())
    end = run.finished
    return RunShown(
        id=name,
        root=served.run,
        status=run.status,
        state=served.state,
        why=run.why,
        fault=end.fault if end else None,
        answer=run.answer,
        api=served.api,
        model=served.model,
        created=run.started.at,
        ended=end.at if end else None,
        background=served.detached,
        metadata=dict(served.metadata),
        domain=run.started.domain,
        labels=list(run.started.labels),
        tokens=spent.tokens,
        dollars=spent.dollars,
        uncertain_tokens=spent.uncertain.tokens,
        uncertain_dollars=spent.uncertain.dollars,
        questions=_questions(family.values()),
        children=[child.id for child in family.values() if child.started.parent == name],
        explanation=explain(run, [child for child in family.values() if child.id != name]),
    )


def summary(served: Served) -> RunSummary:
    """Return a run as a list shows it."""
    return RunSummary(
        id=served.run,
        status=served.status,
        state=served.state,
        api=served.api,
        model=served.model,
        conductor=served.conductor,
        tenant=served.tenant,
        key=served.key,
        created=served.created,
        updated=served.updated,
        excerpt=served.excerpt,
        domain=served.domain,
        labels=list(served.labels),
        metadata=dict(served.metadata),
        background=served.detached,
        tokens=served.tokens,
        dollars=served.dollars,
        uncertain_tokens=served.uncertain_tokens,
        uncertain_dollars=served.uncertain_dollars,
    )


def cursor(after: tuple[float, str]) -> str:
    """Return the end of a page as a word."""
    return urlsafe_b64encode(json.dumps(after).encode()).decode().rstrip("=")


def read_cursor(word: str | None) -> tuple[float, str] | None:
    """Return the end of a page; 400 for a word that is none."""
    if word is None:
        return None
    try:
        created, run = json.loads(urlsafe_b64decode(word + "=" * (-len(word) % 4)))
        at, name = float(created), str(run)
        if not isfinite(at) or not name.isascii() or "\x00" in name:
            raise ValueError
        return at, name
    except (ValueError, TypeError, OverflowError, RecursionError):
        raise Problem(400, "after: expected the `next` of a page", "invalid_value", param="after") from None


def _questions(family: Iterable[Run]) -> list[OpenQuestion]:
    return [
        OpenQuestion(
            run=asked.run,
            question=asked.question,
            asks=asked.asks,
            worker=asked.worker,
            round=asked.round,
            step=asked.step,
            prompt=asked.prompt,
            expires=asked.expires,
        )
        for run in family
        for asked in run.open_questions
    ]
