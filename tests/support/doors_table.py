"""Every route of the server, and what each kind of caller is told there: the table that `test_route_access` holds.

A row is (method, path): what a key of another tenant, one that lacks the scope, and an admin get; `shut` is what those
get who have no key, a wrong one, an expired one, a revoked one. A route without a row fails the test, and a row without
a route, too. `body` and `fill` make the request: names in braces are taken from the world that the test builds.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from shikisha.server.keys.key import KeyScope

Body = Mapping[str, object]
CHAT: Body = {"model": "shikisha", "messages": [{"role": "user", "content": "hello"}]}
MESSAGE: Body = {**CHAT, "max_tokens": 100}
RESPONSE: Body = {"model": "shikisha", "input": "hello"}


@dataclass(frozen=True, slots=True)
class Row:
    """What callers get: `other` (another tenant's key with every scope but admin), `low` (a key of the same tenant with
    only the scope `has`), `admin`; and whoever has no key, a wrong, an expired or a revoked one."""

    other: int
    low: int
    admin: int
    has: KeyScope = KeyScope.APPROVE
    body: Body | None = None
    fill: Mapping[str, str] = field(default_factory=dict)
    shut: tuple[int, int, int, int] = (401, 401, 401, 401)


def open_to_all(status: int, fill: Mapping[str, str] | None = None) -> Row:
    """A route that asks for no key."""
    return Row(status, status, status, shut=(status, status, status, status), fill=fill or {})


RUN, KEY = {"run": "run"}, {"id": "key"}
API: Mapping[tuple[str, str], Row] = {
    ("GET", "/openapi.json"): open_to_all(200),
    ("GET", "/healthz"): open_to_all(200),
    ("GET", "/readyz"): open_to_all(200),
    ("GET", "/metrics"): Row(200, 403, 200),
    ("GET", "/v1/models"): Row(200, 403, 200),
    ("GET", "/v1/models/{name:path}"): Row(200, 403, 200, fill={"name:path": "model"}),
    ("POST", "/v1/chat/completions"): Row(200, 403, 200, body=CHAT),
    # The workers of this world are no models: nobody can complete a text.
    ("POST", "/v1/completions"): Row(400, 403, 400, body={"model": "shikisha", "prompt": "hello"}),
    ("POST", "/v1/embeddings"): Row(404, 403, 404, body={"model": "shikisha", "input": "hello"}),
    ("POST", "/v1/route"): Row(200, 403, 200, body={"prompt": "hello"}),
    ("POST", "/mcp"): Row(200, 200, 200, body={"jsonrpc": "2.0", "id": 1, "method": "ping"}),
    ("GET", "/.well-known/agent-card.json"): open_to_all(200),
    ("POST", "/a2a"): Row(200, 403, 200, body={"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": {"id": "x"}}),
    ("POST", "/v1/tools/search"): Row(200, 403, 200, body={"query": "list the invoices"}),
    ("POST", "/v1/messages"): Row(200, 403, 200, body=MESSAGE),
    ("POST", "/v1/messages/count_tokens"): Row(200, 403, 200, body=CHAT),
    ("POST", "/v1/responses"): Row(200, 403, 200, body=RESPONSE),
    ("GET", "/v1/chat/completions/{completion_id}"): Row(404, 403, 200, fill={"completion_id": "completion"}),
    ("GET", "/v1/responses/{response_id}"): Row(404, 403, 200, fill={"response_id": "response"}),
    ("GET", "/v1/responses/{response_id}/input_items"): Row(404, 403, 200, fill={"response_id": "response"}),
    ("POST", "/v1/responses/{response_id}/cancel"): Row(404, 403, 200, fill={"response_id": "background"}),
    ("DELETE", "/v1/responses/{response_id}"): Row(404, 403, 200, fill={"response_id": "forgotten"}),
    ("POST", "/runs"): Row(200, 403, 200, body={"prompt": "hello"}),
    ("GET", "/runs"): Row(200, 403, 200),
    ("GET", "/runs/{run}"): Row(404, 403, 200, fill=RUN),
    ("GET", "/runs/{run}/events"): Row(404, 403, 200, fill=RUN),
    ("POST", "/runs/{run}/cancel"): Row(404, 403, 200, fill=RUN, has=KeyScope.READ),
    ("POST", "/runs/{run}/rollback"): Row(404, 403, 200, fill=RUN, has=KeyScope.RUN, body={}),
    ("POST", "/runs/{run}/release"): Row(403, 403, 409, fill=RUN, has=KeyScope.APPROVE),
    ("POST", "/v1/outcomes"): Row(404, 403, 201, body={"run": "{run}", "score": 1}),
    ("POST", "/feedback"): Row(404, 403, 201, body={"run": "{run}", "score": 1}, has=KeyScope.READ),
    ("GET", "/memory"): Row(400, 403, 400),
    ("GET", "/approvals"): Row(200, 403, 200, has=KeyScope.RUN),
    ("GET", "/approvals/{approval}"): Row(404, 403, 200, fill={"approval": "approval"}, has=KeyScope.RUN),
    ("POST", "/approvals/{approval}"): Row(
        404, 403, 200, fill={"approval": "approval"}, has=KeyScope.RUN, body={"approved": True}
    ),
    ("POST", "/keys"): Row(403, 403, 201, body={"name": "new"}, has=KeyScope.RUN),
    ("GET", "/keys"): Row(403, 403, 200, has=KeyScope.RUN),
    ("GET", "/keys/{id}"): Row(403, 403, 200, fill=KEY, has=KeyScope.RUN),
    ("PATCH", "/keys/{id}"): Row(403, 403, 200, fill=KEY, body={"name": "renamed"}, has=KeyScope.RUN),
    ("POST", "/keys/{id}/rotate"): Row(403, 403, 200, fill=KEY, has=KeyScope.RUN),
    ("DELETE", "/keys/{id}"): Row(403, 403, 200, fill=KEY, has=KeyScope.RUN),
    ("GET", "/budgets"): Row(403, 403, 200, has=KeyScope.READ),
    ("POST", "/admin/erase"): Row(403, 403, 200, body={"runs": ["{erased}"]}, has=KeyScope.RUN),
    ("GET", "/admin/audit"): Row(403, 403, 200, has=KeyScope.READ),
}
LED = (303, 303, 303, 303)  # to the login
UNSENT = (403, 303, 303, 303)  # a form without any login is nobody's
QUESTION = {"run": "waiting", "question": "question"}
OWN = {"own_id": "paged"}
PAGES: Mapping[tuple[str, str], Row] = {
    ("GET", "/"): open_to_all(303),
    ("GET", "/ui"): open_to_all(303),
    ("GET", "/ui/"): open_to_all(303),
    ("GET", "/ui/login"): open_to_all(200),
    ("GET", "/ui/static/{version}/{name}"): open_to_all(200, {"version": "version", "name": "file"}),
    ("GET", "/ui/runs"): Row(200, 403, 200, shut=LED),
    ("GET", "/ui/runs/{run}"): Row(404, 403, 200, shut=LED, fill=RUN),
    ("GET", "/ui/runs/{run}/live"): Row(404, 403, 200, shut=LED, fill=RUN),
    ("GET", "/ui/runs/{run}/journal"): Row(404, 403, 200, shut=LED, fill=RUN),
    ("POST", "/ui/runs/{run}/cancel"): Row(404, 403, 303, shut=UNSENT, fill=RUN, has=KeyScope.READ, body={}),
    ("POST", "/ui/runs/{run}/rollback"): Row(404, 403, 303, shut=UNSENT, fill=RUN, has=KeyScope.RUN, body={}),
    ("POST", "/ui/runs/{run}/feedback"): Row(
        404, 403, 303, shut=LED, fill=RUN, has=KeyScope.READ, body={"right": "yes"}
    ),
    ("GET", "/ui/queue"): Row(200, 403, 200, shut=LED, has=KeyScope.READ),
    ("GET", "/ui/runs/{run}/replay"): Row(404, 403, 200, shut=LED, fill=RUN, has=KeyScope.READ),
    ("POST", "/ui/runs/{run}/replay"): Row(
        404, 403, 409, shut=LED, fill=RUN, has=KeyScope.READ, body={"prompt": "x", "model": "shikisha", "how": "anew"}
    ),  # 409: a worker of this world may change something, and nobody has ticked it
    ("GET", "/ui/approvals"): Row(200, 403, 200, shut=LED, has=KeyScope.RUN),
    ("GET", "/ui/approvals/{run}/{question}"): Row(404, 403, 200, shut=LED, has=KeyScope.RUN, fill=QUESTION),
    ("POST", "/ui/approvals/{run}/{question}"): Row(
        404, 403, 303, shut=LED, has=KeyScope.RUN, fill=QUESTION, body={"decision": "yes"}
    ),
    ("GET", "/ui/overview"): Row(200, 403, 200, shut=LED),
    ("GET", "/ui/turns"): Row(200, 403, 200, shut=LED),
    ("GET", "/ui/sessions"): Row(200, 403, 200, shut=LED),
    ("GET", "/ui/sessions/{name:path}"): Row(404, 403, 404, shut=LED, fill={"name:path": "version"}),
    ("GET", "/ui/runs/export/{name}"): Row(404, 403, 404, shut=LED, fill={"name": "version"}),
    ("POST", "/ui/approvals/{run}/{question}/passkey"): Row(
        404, 403, 409, has=KeyScope.RUN, fill=QUESTION, body={}
    ),  # 409: this test asks 127.0.0.1, where no passkey counts
    ("GET", "/ui/device"): Row(200, 200, 200, shut=LED),
    ("POST", "/ui/device/passkeys/manage"): Row(409, 409, 409, body={}),
    ("POST", "/ui/device/passkeys/options"): Row(409, 409, 409, body={}),
    ("POST", "/ui/device/passkeys"): Row(400, 400, 400, body={}),
    ("POST", "/ui/device/passkeys/remove"): Row(400, 400, 400, body={}),
    ("POST", "/ui/device/push"): Row(409, 409, 409, body={}),
    ("POST", "/ui/device/push/remove"): Row(200, 200, 200, body={}),
    ("POST", "/ui/login/passkey/options"): open_to_all(409),
    ("POST", "/ui/login/passkey"): open_to_all(400),
    ("GET", "/ui/link"): open_to_all(200),
    ("GET", "/ui/manifest.webmanifest"): open_to_all(200),
    ("GET", "/ui/sw.js"): open_to_all(200),
    ("GET", "/ui/offline"): open_to_all(200),
    ("GET", "/ui/workers"): Row(200, 403, 200, shut=LED),
    ("GET", "/ui/compare"): Row(200, 403, 200, shut=LED),
    ("GET", "/ui/compare/policy"): Row(200, 403, 200, shut=LED),
    ("POST", "/ui/views"): Row(
        303, 403, 303, shut=LED, has=KeyScope.READ, body={"name": "mine", "address": "/ui/runs?status=done"}
    ),
    ("POST", "/ui/views/remove"): Row(303, 403, 303, shut=LED, has=KeyScope.READ, body={"name": "mine"}),
    ("GET", "/ui/try"): Row(200, 403, 200, shut=LED),
    ("POST", "/ui/try"): Row(200, 403, 200, shut=LED, body={"model": "shikisha", "prompt": "hello"}),
    ("POST", "/ui/try/perform"): Row(
        303, 403, 303, shut=LED, body={"model": "shikisha", "prompt": "hello", "plan": "{plan}"}
    ),
    ("GET", "/ui/keys"): Row(200, 200, 200, shut=LED),
    ("POST", "/ui/keys"): Row(403, 403, 200, shut=LED, body={"name": "new", "tenant": "t", "scopes": "run"}),
    ("POST", "/ui/keys/{own_id}/caps"): Row(403, 403, 303, shut=LED, fill=OWN, body={"dollars": "1"}),
    ("POST", "/ui/keys/{own_id}/rotate"): Row(403, 403, 200, shut=UNSENT, fill=OWN, body={}),
    ("POST", "/ui/keys/{own_id}/revoke"): Row(403, 403, 303, shut=UNSENT, fill=OWN, body={}),
    ("GET", "/ui/{way:path}"): open_to_all(404, {"way:path": "version"}),
    ("POST", "/ui/login"): Row(303, 303, 303, shut=(400, 401, 401, 401), body={"key": "{secret}"}),
    ("POST", "/ui/link"): open_to_all(401),
    ("POST", "/ui/logout"): Row(303, 303, 303, shut=UNSENT, body={}),
}
