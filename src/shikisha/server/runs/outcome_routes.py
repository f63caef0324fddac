"""Outcomes from where work ends: `POST /v1/outcomes`, by other systems, days after a run's end.

A sender signs with a virtual key (scope `run`), with GitHub's `X-Hub-Signature-256`, or with GitLab's `X-Gitlab-Token`;
`[[server.outcomes]]` names the secrets and the tenant that each speaks for. The body is our own `OutcomeRequest`, or an
event of GitHub or GitLab, whose texts name the run: a line `Shikisha-Run: ID` in a commit, pull request or issue, or a
branch `shikisha/ID`; or whose commits a run's metadata hold. Each outcome is one grade in the journal, as feedback is,
with its basis.

Invariants: nothing of a body is read before its signature is; only runs of the sender's tenant can be graded; the same
delivery grades a run once, whatever its age; a grade is appended and never changed. What says nothing about a run (a
canceled check, an event of another kind) is 202 and leaves no trace. Deliberately absent: calls back to GitHub or
GitLab.
"""

import hmac
import re
from asyncio import Lock
from collections.abc import Mapping, Sequence
from time import time
from typing import Annotated, Literal
from weakref import WeakKeyDictionary

from fastapi import APIRouter, Request, Response
from pydantic import Field

from shikisha.core.events import AnswerGraded, GradeBasis, GradeMark
from shikisha.core.fast_dataclass import dataclass
from shikisha.server.http.api_errors import ApiError, error_responses
from shikisha.server.http.auth import authenticate, check_scope
from shikisha.server.http.request import RequestModel, parse_json, request_body_doc, validate_as
from shikisha.server.keys.key import KeyScope, Principal
from shikisha.server.lifecycle.service import RunService
from shikisha.server.runs.review_routes import check_judgeable
from shikisha.server.runs.schema import AnswerModel, Remark
from shikisha.server.store import RunFilter, RunOrder

router = APIRouter(prefix="/v1/outcomes", tags=["feedback"])
_MOST_RUNS = 10  # that one delivery may grade
_LONGEST_NAME = 200
_RUN_NAMED = re.compile(r"\bShikisha-Run:\s{0,3}([0-9A-Za-z._-]{8,80})|\bshikisha/([0-9A-Za-z._-]{8,80})")
_PREFIX = re.compile(r"^(?:resp_|chatcmpl-)|(?:\.\d+)$")
_REVERT = re.compile(r"\A\s*Revert\b|\bThis reverts (?:commit|merge request)\b")
_REVERTED = re.compile(r"\bThis reverts commit ([0-9a-f]{40})\b")
_SUGGESTION = re.compile(r"\A\s*Apply (?:\d+ )?suggestion", re.IGNORECASE)
_COMMIT = re.compile(r"[0-9a-f]{40,64}")
_VERDICTS = {"success": 1.0, "failure": 0.0, "timed_out": 0.0, "startup_failure": 0.0, "failed": 0.0}
_LOCKS: "WeakKeyDictionary[RunService, Lock]" = WeakKeyDictionary()

Name = Annotated[str, Field(min_length=1, max_length=_LONGEST_NAME)]


class OutcomeRequest(RequestModel):
    """What became of a run's work: `run` is the id of a run or of a response, `session` means its last run.

    `reference` means the runs whose metadata have this value: a commit, a ticket, a trace id.

    `source` says what decided (`tests`, `ticket`, `row`), `basis` whether a program or a person did.
    """

    run: Name | None = None
    session: Name | None = None
    reference: Name | None = None
    score: Annotated[float, Field(ge=0, le=1)] | Annotated[int, Field(ge=0, le=1)]
    source: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_.-]{0,63}$")] = "outcome"
    basis: Literal["executed", "person"] = "executed"
    delivery: Name | None = None
    remark: Remark = ""


class GradedRun(AnswerModel):
    """A run that an outcome graded, now or by an earlier try of the same delivery."""

    run: str
    mark: GradeMark
    score: float
    basis: GradeBasis


class OutcomeInfo(AnswerModel):
    """What became of a delivery: the runs that it graded, or why it graded none."""

    object: Literal["outcome"] = "outcome"
    graded: list[GradedRun]
    ignored: str = ""


@dataclass(frozen=True, slots=True)
class DeliveredOutcome:
    """What an event says: the score, what decided it, texts and commits that may name runs, and who acted."""

    score: float
    source: str
    texts: Sequence[str]
    person: str = ""
    remark: str = ""
    commits: Sequence[str] = ()


@router.post(
    "",
    summary="Report an outcome",
    openapi_extra=request_body_doc(OutcomeRequest),
    responses=error_responses(404, 409),
    status_code=201,
)
async def report_outcome(request: Request, response: Response) -> OutcomeInfo:
    """Grade the runs that an outcome names."""
    service: RunService = request.app.state.service
    body, headers = await request.body(), request.headers
    by = _signer(service, body, headers) or check_scope((await authenticate(request)).principal(), KeyScope.RUN)
    event = headers.get("x-github-event") or headers.get("x-gitlab-event")
    delivery = headers.get("x-github-delivery") or headers.get("x-gitlab-event-uuid") or headers.get("idempotency-key")
    raw = parse_json(body)
    if event is None:
        said = validate_as(raw, OutcomeRequest)
        person = by.actor if said.basis == "person" else ""
        found: DeliveredOutcome | None = DeliveredOutcome(said.score, said.source, (), person, said.remark)
        if [said.run, said.session, said.reference].count(None) != 2:
            raise ApiError(400, "expected run, session or reference, one of them", "invalid_request")
        run = said.run and _PREFIX.sub("", said.run)
        if said.session is not None:
            newest = RunFilter(tenant=by.tenant, session=said.session, order=RunOrder.BEGAN, limit=1)
            run = next((one.run for one in (await service.store.search(newest)).runs), None)
        runs = [] if run is None else [run]
        if said.reference is not None:
            runs = await _referring_runs(service, by, said.reference)
        if not runs:
            what = f"run of a session {said.session}" if said.session else f"run whose metadata hold {said.reference}"
            raise ApiError(404, f"there is no {what}", "not_found")
        for run in runs:
            await check_judgeable(service, by, run)
        delivery = said.delivery or delivery
    else:
        found = github_outcome(event, raw) if "x-github-event" in headers else gitlab_outcome(raw)
        runs = await _known_runs(service, by, found) if found else []
    if found is None or not runs:
        response.status_code = 202
        return OutcomeInfo(graded=[], ignored="it names no run of this tenant" if found else "it decides nothing")
    async with _LOCKS.setdefault(service, Lock()):
        return await _grade_runs(service, runs, found, (delivery or "")[:_LONGEST_NAME], response)


def _signer(service: RunService, body: bytes, headers: Mapping[str, str]) -> Principal | None:
    """Return for whom GitHub or GitLab speaks; ApiError (401) for a wrong signature, None for none."""
    signature, token = headers.get("x-hub-signature-256"), headers.get("x-gitlab-token")
    if signature is None and token is None:
        return None
    for source in service.settings.outcomes:
        secret = service.container.secret_store.read(source.secret_env)
        signed = "sha256=" + hmac.new(secret.encode(), body, "sha256").hexdigest()
        presented, expected = (token or "", secret) if signature is None else (signature, signed)
        if hmac.compare_digest(presented.encode(), expected.encode()):
            return Principal(key="", name=source.secret_env, tenant=source.tenant, scopes=frozenset({KeyScope.RUN}))
    raise ApiError(401, "no secret of [[server.outcomes]] gives this signature", "wrong_signature")


async def _referring_runs(service: RunService, by: Principal, reference: str) -> list[str]:
    """Return the newest runs of this tenant whose metadata have a value."""
    asked = RunFilter(tenant=by.tenant, reference=reference, order=RunOrder.BEGAN, limit=_MOST_RUNS)
    return [one.run for one in (await service.store.search(asked)).runs]


async def _known_runs(service: RunService, by: Principal, said: DeliveredOutcome) -> list[str]:
    """Return the runs of this tenant that an event names and that can be graded."""
    matches = (found for text in said.texts for found in _RUN_NAMED.finditer(text))
    named = [_PREFIX.sub("", found[1] or found[2]) for found in matches]
    for commit in [one for one in dict.fromkeys(said.commits) if _COMMIT.fullmatch(one)][:_MOST_RUNS]:
        named += await _referring_runs(service, by, commit)
    runs = []
    for run in list(dict.fromkeys(named))[:_MOST_RUNS]:
        try:
            await check_judgeable(service, by, run)
        except ApiError:  # anybody can write any id into a pull request
            continue
        runs.append(run)
    return runs


async def _grade_runs(
    service: RunService, runs: Sequence[str], found: DeliveredOutcome, delivery: str, response: Response
) -> OutcomeInfo:
    mark = GradeMark.RIGHT if found.score >= 1 else GradeMark.WRONG if found.score <= 0 else GradeMark.PARTIAL
    scrub, graded, fresh = service.container.secret_store.scrub, [], False
    trace = f"[delivery {delivery}]" if delivery else ""
    for run in runs:
        before = (one for one in (await service.read_run(run)).grades if trace and one.evidence.endswith(trace))
        grade = next(before, None)
        if grade is None:
            evidence = " ".join(filter(None, (scrub(found.remark), trace)))
            grade = AnswerGraded(
                run=run, at=time(), checker=found.source, mark=mark, score=found.score, evidence=evidence,
                actor=scrub(found.person),
            )  # fmt: skip
            service.recorder.add(grade)
            fresh = True
        graded.append(GradedRun(run=run, mark=grade.mark, score=grade.score or 0.0, basis=grade.basis))
    await service.journal.flush()
    response.status_code = 201 if fresh else 200
    return OutcomeInfo(graded=graded)


def _at(raw: object, *path: str) -> str:
    """Return the text at a place of foreign JSON; "" where there is none."""
    for name in path:
        raw = raw.get(name) if isinstance(raw, Mapping) else None
    return raw if isinstance(raw, str) else ""


def _push_outcome(raw: Mapping[str, object], source: str, person: str, remark: str) -> DeliveredOutcome | None:
    """Return what a push says: commits that revert others, or that a person's accepted suggestions made."""
    commits = raw.get("commits")
    messages = [_at(one, "message") for one in (commits if isinstance(commits, list) else [])]
    if reverts := [message for message in messages if _REVERT.search(message)]:
        reverted = [commit for message in reverts for commit in _REVERTED.findall(message)]
        return DeliveredOutcome(0.0, f"{source}.revert", reverts, remark=remark, commits=reverted)
    if accepted := [message for message in messages if _SUGGESTION.search(message)]:
        return DeliveredOutcome(1.0, f"{source}.suggestion", [*accepted, _at(raw, "ref")], person, remark)
    return None


def github_outcome(event: str, raw: Mapping[str, object]) -> DeliveredOutcome | None:
    """Return what an event of GitHub says; None when it decides nothing."""
    source, action, sender = f"github.{event}", _at(raw, "action"), _at(raw, "sender", "login")
    if event in ("check_suite", "workflow_run") and action == "completed":
        score = _VERDICTS.get(_at(raw, event, "conclusion"))
        texts = [_at(raw, event, "head_branch"), _at(raw, event, "head_commit", "message")]
        commits, remark = [_at(raw, event, "head_sha")], _at(raw, event, "html_url")
        return None if score is None else DeliveredOutcome(score, source, texts, remark=remark, commits=commits)
    if event == "pull_request" and action == "closed":
        pull = raw.get("pull_request")
        merged = isinstance(pull, Mapping) and pull.get("merged") is True
        texts = [_at(pull, "head", "ref"), _at(pull, "title"), _at(pull, "body")]
        commits = [_at(pull, "head", "sha"), _at(pull, "merge_commit_sha")]
        return DeliveredOutcome(float(merged), source, texts, sender, _at(pull, "html_url"), commits)
    if event == "issues" and action == "reopened":
        texts = [_at(raw, "issue", "title"), _at(raw, "issue", "body")]
        return DeliveredOutcome(0.0, f"{source}.reopened", texts, remark=_at(raw, "issue", "html_url"))
    return _push_outcome(raw, source, sender, _at(raw, "compare")) if event == "push" else None


def gitlab_outcome(raw: Mapping[str, object]) -> DeliveredOutcome | None:
    """Return what an event of GitLab says; None when it decides nothing."""
    kind, about = _at(raw, "object_kind"), raw.get("object_attributes")
    source, action = f"gitlab.{kind}", _at(about, "action")
    texts = [_at(about, name) for name in ("ref", "source_branch", "title", "description")]
    if kind == "pipeline":
        score = _VERDICTS.get(_at(about, "status"))
        texts.append(_at(raw, "commit", "message"))
        commits = [_at(about, "sha")]
        return (
            None if score is None else DeliveredOutcome(score, source, texts, remark=_at(about, "url"), commits=commits)
        )
    if kind == "merge_request" and action in ("merge", "close"):
        person, commits = (
            _at(raw, "user", "username"),
            [_at(about, "last_commit", "id"), _at(about, "merge_commit_sha")],
        )
        return DeliveredOutcome(float(action == "merge"), source, texts, person, _at(about, "url"), commits)
    if kind == "issue" and action == "reopen":
        return DeliveredOutcome(0.0, f"{source}.reopened", texts, remark=_at(about, "url"))
    person, remark = _at(raw, "user_username"), _at(raw, "project", "web_url")
    return _push_outcome(raw, source, person, remark) if kind == "push" else None
