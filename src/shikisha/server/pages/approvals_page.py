"""`/ui/approvals`: the exact call that waits for a person, what it may cost, until when, and the form to answer.

Invariants: what is approved is what is shown: arguments are printed whole, and an answer goes to that question and no
other. A decision needs a login whose key may approve.
"""

import json
from base64 import urlsafe_b64decode
from collections.abc import Awaitable, Iterator, Mapping, Sequence
from time import time
from typing import TypeVar
from urllib.parse import quote

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response

from shikisha.core.errors import TaskError
from shikisha.core.events import QuestionAsked, QuestionKind
from shikisha.core.run import Run
from shikisha.core.text import one_line
from shikisha.engine.approvals import Decision
from shikisha.server.http.api_errors import ApiError
from shikisha.server.http.auth import limited_client
from shikisha.server.keys.key import KeyScope
from shikisha.server.keys.passkeys import CodePurpose, PasskeySite, passkey_site, read_credential
from shikisha.server.lifecycle import questions
from shikisha.server.lifecycle.questions import PersonQuestion
from shikisha.server.lifecycle.service import RunService
from shikisha.server.ops.push import push_settings
from shikisha.server.pages.login import (
    AnyLogin,
    ApproverLogin,
    CheckedForm,
    PageRoute,
    PageSession,
    Service,
    form_text,
    redirect,
    start_login,
)
from shikisha.server.pages.templates import NO_STORE, SECURITY_HEADERS, STATIC_FOLDER, UI_ROOT, render_page, static_urls

# `/ui/device`: this device's passkeys and notifications; logging in by passkey or link; what makes the pages an app.
#
# Invariants: scripts get JSON, also as a refusal. Whatever changes something needs a login and the token of its forms,
# except a login itself, which needs an assertion or a link that counts once; GET consumes neither, since previews of
# messages follow links. The token of a link is behind the `#`, so no server or proxy logs it. The service worker keeps
# static files and one page that says that there is no network: no run, no answer and no form is ever kept.

T = TypeVar("T")
_MAX_NAME = 60
_MAX_TOKEN = 200
router = APIRouter(route_class=PageRoute, include_in_schema=False)
script_router = APIRouter(include_in_schema=False)  # for `phone.js`: answers and refusals are JSON


def site_of(request: Request, service: RunService) -> PasskeySite | str:
    """Return where passkeys count for this request; a text says why they cannot."""
    return passkey_site(service.settings.url, request.headers.get("host", ""), request.url.scheme)


def require_site(request: Request, service: RunService) -> PasskeySite:
    """Return where passkeys count for this request; ApiError (409) says why they cannot."""
    found = site_of(request, service)
    if isinstance(found, str):
        raise ApiError(409, found, "no_passkeys_here")
    return found


def script_answer(shown: Mapping[str, object]) -> JSONResponse:
    """Return JSON for a script of ours."""
    return JSONResponse(dict(shown), headers={**SECURITY_HEADERS, **NO_STORE})


@router.get(f"{UI_ROOT}/device")
async def show_device(request: Request, session: AnyLogin, service: Service) -> Response:
    """Show the passkeys of the login's key, and what this device can do."""
    site = site_of(request, service)
    push = push_settings(service.container)
    shown = {
        "passkeys": await service.passkeys.of_key(session.by.key),
        "problem": site if isinstance(site, str) else "",
        "host": "" if isinstance(site, str) else site.host,
        "push": push.public_key if push is not None else "",
        "approves": session.may(KeyScope.APPROVE),
        "shown_at": time(),
    }
    return render_page(request, "device.html.jinja", shown)


@script_router.post(f"{UI_ROOT}/device/passkeys/manage")
async def offer_to_manage(request: Request, session: AnyLogin, service: Service, form: CheckedForm) -> JSONResponse:  # noqa: ARG001 - the form's token is checked
    """Return what the browser needs so that an earlier passkey vouches for a change of passkeys."""
    site = require_site(request, service)
    if not await service.passkeys.of_key(session.by.key):
        return script_answer({})
    return script_answer(await service.passkeys.assertion_options(CodePurpose.MANAGE, session.by.key, site, "manage"))


@script_router.post(f"{UI_ROOT}/device/passkeys/options")
async def offer_to_add(request: Request, session: AnyLogin, service: Service, form: CheckedForm) -> JSONResponse:
    """Return what the browser needs to make a passkey."""
    site = require_site(request, service)
    key = await service.keys.get(session.by.key)
    if key is None:
        raise ApiError(404, "there is no such key", "not_found")
    return script_answer(await service.passkeys.registration_options(key, site, form_text(form, "passkey")))


@script_router.post(f"{UI_ROOT}/device/passkeys")
async def add_passkey(session: AnyLogin, service: Service, form: CheckedForm) -> JSONResponse:
    """Keep the passkey that the browser has made."""
    key = await service.keys.get(session.by.key)
    if key is None:
        raise ApiError(404, "there is no such key", "not_found")
    name = one_line(form_text(form, "name").strip(), _MAX_NAME) or "passkey"
    return script_answer({"id": await service.passkeys.register(key, form_text(form, "passkey"), name)})


@script_router.post(f"{UI_ROOT}/device/passkeys/remove")
async def remove_passkey(session: AnyLogin, service: Service, form: CheckedForm) -> JSONResponse:
    """Remove a passkey, on the word of one."""
    await service.passkeys.verify(session.by.key, form_text(form, "passkey"), CodePurpose.MANAGE, "manage")
    if not await service.passkeys.remove(session.by.key, form_text(form, "id"), session.by.key):
        raise ApiError(404, "there is no such passkey", "not_found")
    return script_answer({})


async def _limited(request: Request, service: RunService, login: Awaitable[T], *names: str) -> T:
    """Return what a login comes to. Only failures count, by address and by what they name; no valid one is blocked."""
    try:
        return await login
    except ApiError:
        if wait := max(service.passkeys.login_limiter.wrong(name) for name in (limited_client(request), *names)):
            said = "too many logins have failed, from this address or with this passkey"
            raise ApiError(429, said, "too_many_logins", wait=wait) from None
        raise


@script_router.post(f"{UI_ROOT}/login/passkey/options")
async def offer_login(request: Request, service: Service) -> JSONResponse:
    """Return what the browser needs to log in with a passkey."""
    site = require_site(request, service)
    return script_answer(await service.passkeys.assertion_options(CodePurpose.LOGIN, "", site, "login"))


@script_router.post(f"{UI_ROOT}/login/passkey")
async def log_in_with_passkey(request: Request, service: Service) -> Response:
    """Open a login for the holder of the key whose passkey signed."""
    form = await request.form(max_files=0, max_fields=10)
    word = form_text(form, "passkey")
    named = read_credential(word)[1][:_MAX_TOKEN]
    own_id = await _limited(request, service, service.passkeys.verify("", word, CodePurpose.LOGIN, "login"), named)
    key = await service.keys.get(own_id)
    if key is None or key.refused(service.keys.now()) is not None:
        raise ApiError(401, "the key of this passkey is not valid any more: ask for another", "invalid_api_key")
    return await start_login(request, service, key, script_answer({}))


@router.get(f"{UI_ROOT}/link")
async def show_link(request: Request) -> Response:
    """Show the page of a link; its token is behind the `#`, which the browser keeps to itself."""
    return render_page(request, "link.html.jinja", {"wrong": ""})


@router.post(f"{UI_ROOT}/link")
async def follow_link(request: Request, service: Service) -> Response:
    """Log this device in with the link's token, which then counts no more."""
    form = await request.form(max_files=0, max_fields=10)
    token = form_text(form, "token").strip()[:_MAX_TOKEN]
    try:
        key = await _limited(request, service, service.passkeys.take_link(token))
    except ApiError as problem:
        return render_page(request, "link.html.jinja", {"wrong": problem.message}, problem.status)
    to = f"{UI_ROOT}/approvals" if key.principal().may(KeyScope.APPROVE) else f"{UI_ROOT}/runs"
    return await start_login(request, service, key, redirect(to))


@script_router.post(f"{UI_ROOT}/device/push")
async def subscribe(session: AnyLogin, service: Service, form: CheckedForm) -> JSONResponse:
    """Keep where this device wants to be told of what waits."""
    push = push_settings(service.container)
    if push is None:
        raise ApiError(409, "this server sends no notifications: its operator adds [push]", "no_push")
    if not session.may(KeyScope.APPROVE):
        raise ApiError(403, "the key lacks the scope approve: nothing waits for it", "missing_scope")
    endpoint, p256dh, auth = _read_subscription(form_text(form, "subscription"))
    await service.subscriptions.add(session.by.key, push.checked_endpoint(endpoint), p256dh, auth)
    return script_answer({})


@script_router.post(f"{UI_ROOT}/device/push/remove")
async def unsubscribe(session: AnyLogin, service: Service, form: CheckedForm) -> JSONResponse:
    """Forget where this device wanted to be told."""
    await service.subscriptions.remove(session.by.key, form_text(form, "endpoint"))
    return script_answer({})


def _read_subscription(text: str) -> tuple[str, bytes, bytes]:
    """Return a subscription as `PushSubscription.toJSON` gives it; ApiError (400) for anything else."""
    try:
        found = json.loads(text[:5_000])
        endpoint, keys = found["endpoint"], found["keys"]
        p256dh, auth = (urlsafe_b64decode(keys[name] + "=" * (-len(keys[name]) % 4)) for name in ("p256dh", "auth"))
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ApiError(400, "subscription: expected PushSubscription.toJSON()", "invalid_subscription") from None
    if not isinstance(endpoint, str) or len(p256dh) != 65 or p256dh[0] != 4 or len(auth) != 16:
        said = "subscription: expected an endpoint, a P-256 point of 65 bytes and a secret of 16"
        raise ApiError(400, said, "invalid_subscription")
    return endpoint, p256dh, auth


_MANIFEST = {
    "name": "Shikisha",
    "short_name": "Shikisha",
    "description": "Runs, what they cost, and what waits for your yes.",
    "id": f"{UI_ROOT}/",
    "start_url": f"{UI_ROOT}/approvals",
    "scope": f"{UI_ROOT}/",
    "display": "standalone",
    "background_color": "#14171b",
    "theme_color": "#14171b",
}


@script_router.get(f"{UI_ROOT}/manifest.webmanifest")
async def manifest() -> Response:
    """Return what makes the pages installable."""
    urls = static_urls()
    icons = [
        {"src": urls[f"icon-{size}.png"], "sizes": f"{size}x{size}", "type": "image/png", "purpose": purpose}
        for size in (192, 512)
        for purpose in ("any", "maskable")
    ]
    shortcuts = [
        {"name": word, "url": f"{UI_ROOT}/{way}"} for way, word in (("approvals", "Approvals"), ("try", "Try a task"))
    ]
    text = json.dumps({**_MANIFEST, "icons": icons, "shortcuts": shortcuts})
    return Response(
        text, headers={**SECURITY_HEADERS, "Cache-Control": "no-cache"}, media_type="application/manifest+json"
    )


@script_router.get(f"{UI_ROOT}/sw.js")
async def service_worker() -> Response:
    """Return the service worker: its address must not change, and its scope is all of the pages."""
    kept = [url for name, url in static_urls().items() if name not in ("sw.js", "LICENSES.txt")]
    listed = f"const STATIC = {json.dumps(sorted(kept))};\n"
    text = listed + (STATIC_FOLDER / "sw.js").read_text(encoding="utf-8")
    return Response(text, headers={**SECURITY_HEADERS, "Cache-Control": "no-cache"}, media_type="text/javascript")


@router.get(f"{UI_ROOT}/offline")
async def offline_page(request: Request) -> Response:
    """Show that there is no network: the service worker keeps this page, which is everybody's."""
    return render_page(request, "offline.html.jinja", {})


def approval_view(run: Run, asked: QuestionAsked) -> dict[str, object]:
    """Return a question of a run (the root, or a child run of it) as it is shown.

    `call` is the subtask word by word, `arguments` its JSON where it is an object, `reviewed` what a review is about.
    """
    call = _call_text(run, asked)
    return {
        "asked": asked,
        "kind": str(asked.asks),
        "begun": run.started,
        "call": call,
        "arguments": _arguments(call),
        "reviewed": run.reached if asked.asks is QuestionKind.REVIEW else None,
        "sees": tuple(_earlier_steps(run, asked)),
    }


def _call_text(run: Run, asked: QuestionAsked) -> str:
    """Return the subtask that the plan gives the worker; what the question says where no plan does."""
    if asked.asks is QuestionKind.APPROVE and asked.round >= 0 and asked.step is not None:
        plan = run.round(asked.round).plan
        if plan is not None and asked.step < len(plan):
            return plan.step_of(asked.step).subtask
    return asked.prompt


def _arguments(call: str) -> tuple[tuple[str, str], ...]:
    """Return a JSON object's members as texts; nothing for any other text."""
    try:
        found = json.loads(call)
    except ValueError:
        return ()
    if not isinstance(found, dict):
        return ()
    return tuple((str(name), value if isinstance(value, str) else json.dumps(value)) for name, value in found.items())


def _earlier_steps(run: Run, asked: QuestionAsked) -> Iterator[tuple[int, str, str]]:
    """Yield the earlier steps that the call would be shown: number, worker, text."""
    if asked.step is None or asked.round < 0 or asked.asks is QuestionKind.REVIEW:
        return
    turn = run.round(asked.round)
    if turn.plan is None or asked.step >= len(turn.plan):
        return
    for earlier in turn.plan.step_of(asked.step).access:
        result = turn.results[earlier] if earlier < len(turn.results) else None
        if result is not None:
            yield earlier, result.worker, result.text if result.text is not None else f"no answer: {result.fault}"


_MAX_RUNS = 50  # runs on the page
_MAX_ANSWER = 100_000  # characters of a person's answer


@router.get(f"{UI_ROOT}/approvals")
async def show_approvals(request: Request, session: ApproverLogin, service: Service) -> Response:
    """Show all that waits for a person of the login's tenant, what expires first at the top."""
    waiting = await questions.list_questions(service, session.by, most=_MAX_RUNS)
    found = sorted(waiting.found, key=lambda each: (each.asked.expires or float("inf"), each.asked.at))
    return await _approvals_page(request, session, service, found, more=waiting.after is not None)


@router.get(f"{UI_ROOT}/approvals/{{run}}/{{question}}")
async def show_approval(
    request: Request, run: str, question: str, session: ApproverLogin, service: Service
) -> Response:
    """Show one question; one that is open no more leads to its run."""
    found = await questions.find_question(service, session.by, f"{run}_{question}")
    if found.asked not in found.run.open_questions:
        return redirect(f"{UI_ROOT}/runs/{run}")
    return await _approvals_page(request, session, service, [found])


@router.post(f"{UI_ROOT}/approvals/{{run}}/{{question}}")
async def decide_on_page(
    run: str, question: str, session: ApproverLogin, service: Service, form: CheckedForm
) -> Response:
    """Write a person's decision down, and continue with the run."""
    found = await questions.find_question(service, session.by, f"{run}_{question}")
    decision = form_text(form, "decision")
    if decision not in ("yes", "no"):
        raise ApiError(400, "expected a yes or a no", "invalid_request")
    yes = decision == "yes"
    written = yes and found.asked.asks is not QuestionKind.APPROVE
    said = _typed_text(form_text(form, "text")) if written else ""
    decided = Decision(yes, "", said, "page", _typed_text(form_text(form, "remark")))
    await questions.answer_question(service, session.by, found, decided, form_text(form, "passkey"))
    if name := form_text(form, "session"):
        return redirect(f"{UI_ROOT}/sessions/{quote(name)}")
    return redirect(f"{UI_ROOT}/approvals" if form_text(form, "stay") else f"{UI_ROOT}/runs/{found.served.run}")


passkey_router = APIRouter(include_in_schema=False)  # for the script of the page: it wants JSON, refusals too


@passkey_router.post(f"{UI_ROOT}/approvals/{{run}}/{{question}}/passkey")
async def offer_to_sign(
    request: Request, run: str, question: str, session: ApproverLogin, service: Service, form: CheckedForm
) -> JSONResponse:
    """Return what the browser needs to sign a yes to exactly this question, with the text as it is typed now."""
    found = await questions.find_question(service, session.by, f"{run}_{question}")
    questions.check_open(found)
    said = _typed_text(form_text(form, "text")) if found.asked.asks is not QuestionKind.APPROVE else ""
    action = questions.approval_action(found, said)
    site = require_site(request, service)
    return script_answer(await service.passkeys.assertion_options(CodePurpose.APPROVE, session.by.key, site, action))


async def _approvals_page(
    request: Request, session: PageSession, service: RunService, found: Sequence[PersonQuestion], *, more: bool = False
) -> Response:
    """Show questions; `signed` are those to which a yes of this login counts only with a passkey."""
    signed = {each.asked.question for each in found if await questions.needs_passkey(service, session.by, each)}
    waiting = [approval_view(each.run, each.asked) for each in found]
    shown = {"waiting": waiting, "more": more, "shown_at": time(), "signed": signed}
    return render_page(request, "approvals.html.jinja", shown)


def _typed_text(text: str) -> str:
    """Return a text as it was typed: browsers send line ends of two characters."""
    if len(text) > _MAX_ANSWER:
        raise TaskError(f"at most {_MAX_ANSWER:,} characters, found {len(text):,}")
    return text.replace("\r\n", "\n")
