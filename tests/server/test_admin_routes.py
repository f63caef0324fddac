"""Administration over HTTP: keys, budgets, erasure, the audit; what is refused, and what is told once."""

from pathlib import Path

from serving import At, served

from shikisha.server.keys.key import KeyScope

CONFIG = """
conductor = "fixed:single?worker=a"
[workers.a]
kind = "scripted"
answers = "42"
price = { call = 0.25 }
"""
CHAT = {"model": "shikisha", "messages": [{"role": "user", "content": "What is six times seven?"}]}


async def made(at: At, **wanted: object) -> dict[str, object]:
    """A key, as it is told to whoever had it made."""
    async with at.http() as client:
        answer = await client.post("/keys", json={"name": "Ann", **wanted})
        assert (answer.status_code, answer.headers["cache-control"]) == (201, "no-store")
        told = answer.json()
        assert isinstance(told, dict)
        return told


async def test_a_key_is_issued_used_changed_rotated_and_revoked(tmp_path: Path) -> None:
    async with served(tmp_path, CONFIG) as at, at.http() as admin:
        key = await made(at, tenant="acme", scopes=["run"], workers=["a"], caps={"dollars": 1.0})
        path, secret = f"/keys/{key['id']}", str(key.pop("secret"))
        assert (await admin.get(path)).json() == key
        assert key in (await admin.get("/keys", params={"tenant": "acme"})).json()["data"]
        changed = (await admin.patch(path, json={"labels": ["x"], "caps": {"tokens": 9}})).json()
        assert (changed["labels"], changed["caps"]["tokens"], changed["caps"]["dollars"]) == (["x"], 9, 1.0)
        assert (await admin.patch(path, json={"caps": {"tokens": None}})).json()["caps"]["tokens"] is None
        rotated = (await admin.post(f"{path}/rotate")).json()["secret"]
        for presented, status in ((secret, 401), (rotated, 200)):
            async with at.http(presented) as client:
                assert (await client.get("/v1/models")).status_code == status
        assert (await admin.delete(path)).json()["revoked"] is not None
        assert (await admin.post(f"{path}/rotate")).status_code == 409
        async with at.http(rotated) as client:
            assert (await client.get("/v1/models")).json()["error"]["code"] == "revoked_api_key"


REFUSED: tuple[tuple[str, str, object, int, str], ...] = (
    ("POST", "/keys", {}, 400, "name"),
    ("POST", "/keys", {"name": ""}, 400, "name"),
    ("POST", "/keys", {"name": "a\0b"}, 400, "NUL"),
    ("POST", "/keys", {"name": "a", "expires": 1_700_000_000}, 400, "has passed"),
    ("POST", "/keys", {"name": "a", "expires": 0}, 400, "expires"),
    ("POST", "/keys", {"name": "a", "scopes": []}, 400, "scopes"),
    ("POST", "/keys", {"name": "a", "scopes": ["god"]}, 400, "scopes"),
    ("POST", "/keys", {"name": "a", "workers": ["nobody"]}, 400, "no worker 'nobody'"),
    ("POST", "/keys", {"name": "a", "caps": {"dollars": -1}}, 400, "caps.dollars"),
    ("POST", "/keys", {"name": "a", "caps": {"tokens": 1.5}}, 400, "caps.tokens"),
    ("POST", "/keys", {"name": "a", "caps": {"pounds": 1}}, 400, "caps.pounds"),
    ("POST", "/keys", {"name": "a", "secret": "mine"}, 400, "secret"),
    ("POST", "/keys", [], 400, "not a JSON object"),
    ("GET", "/keys/nobody", None, 404, "no such key"),
    ("GET", "/keys/%00", None, 404, "no such key"),
    ("PATCH", "/keys/nobody", {}, 404, "no such key"),
    ("DELETE", "/keys/nobody", None, 404, "no such key"),
    ("GET", "/budgets?since=yesterday", None, 400, "since"),
    ("GET", "/budgets?key=nobody", None, 404, "no such key"),
    ("GET", "/admin/audit?limit=0", None, 400, "limit"),
    ("POST", "/admin/erase", {}, 400, "either runs, or"),
    ("POST", "/admin/erase", {"runs": ["x"], "key": "y"}, 400, "either runs, or"),
    ("POST", "/admin/erase", {"runs": ["nobody"]}, 404, "nobody"),
)


async def test_what_cannot_be_done_is_said(tmp_path: Path) -> None:
    async with served(tmp_path, CONFIG) as at, at.http() as admin:
        for method, path, body, status, said in REFUSED:
            answer = await admin.request(method, path, json=body)
            assert answer.status_code == status, (path, body, answer.text)
            assert said in answer.json()["error"]["message"]


async def test_budgets_tell_what_was_used_and_caps_end_it(tmp_path: Path) -> None:
    async with served(tmp_path, CONFIG) as at, at.http() as admin:
        key = await made(at, tenant="acme", caps={"dollars": 0.6})
        async with at.http(str(key["secret"])) as client:
            told = [(await client.post("/v1/chat/completions", json=CHAT)).status_code for _ in range(3)]
        assert told == [200, 200, 402]
        found = (await admin.get("/budgets", params={"key": str(key["id"])})).json()
        budget = found["keys"][0]
        assert (budget["used"]["dollars"], budget["used"]["requests"], budget["caps"]["dollars"]) == (0.5, 3, 0.6)
        assert [day["dollars"] for day in budget["days"]] == [0.5]
        assert [(each["tenant"], each["dollars"]) for each in found["tenants"]] == [("acme", 0.5)]
        assert (await admin.get("/budgets", params={"since": "2999-01-01"})).json()["keys"][1]["days"] == []


async def test_a_spent_key_is_refused_at_the_door_and_charged_nothing(tmp_path: Path) -> None:
    async with served(tmp_path, CONFIG) as at, at.http() as admin:
        key = await made(at, caps={"dollars_per_day": 0.25, "requests_per_minute": 100})
        async with at.http(str(key["secret"])) as client:
            assert (await client.post("/v1/chat/completions", json=CHAT)).status_code == 200
            refused = await client.post("/v1/chat/completions", json=CHAT)
        assert (refused.status_code, refused.json()["error"]["code"]) == (429, "insufficient_quota")
        assert int(refused.headers["retry-after"]) >= 1
        assert refused.headers["x-ratelimit-limit-requests"] == "100"
        used = (await admin.get("/budgets", params={"key": str(key["id"])})).json()["keys"][0]["used"]
        assert (used["dollars"], used["requests"]) == (0.25, 1)


async def test_what_runs_said_is_forgotten_by_run_and_by_key(tmp_path: Path) -> None:
    async with served(tmp_path, CONFIG) as at, at.http() as admin:
        one, other = [(await admin.post("/runs", json={"prompt": f"about {name}"})).json()["id"] for name in "ab"]
        erased = (await admin.post("/admin/erase", json={"runs": [one], "why": "asked to"})).json()
        assert (erased["runs"], erased["more"]) == ([one], False)
        assert erased["removed"] >= 1
        own = at.key.split("-")[2]
        assert (await admin.post("/admin/erase", json={"key": own})).json()["runs"] == [other]
        assert (await admin.post("/admin/erase", json={"key": own})).json()["runs"] == []
        acts = (await admin.get("/admin/audit", params={"limit": 3})).json()["data"]
        assert [(act["action"], act["actor"], act["target"]) for act in acts[1:]] == [
            ("runs.erased", own, other),
            ("runs.erased", own, one),
        ]
        assert at.service is not None
        assert (await at.service.journal.verify()).ok


async def test_the_audit_tells_every_change_and_no_secret(tmp_path: Path) -> None:
    async with served(tmp_path, CONFIG) as at, at.http() as admin:
        key = await made(at)
        rotated = (await admin.post(f"/keys/{key['id']}/rotate")).json()["secret"]
        await admin.patch(f"/keys/{key['id']}", json={"name": "Bob"})
        await admin.delete(f"/keys/{key['id']}")
        answer = await admin.get("/admin/audit")
        acts = [(act["action"], act["target"]) for act in answer.json()["data"] if act["target"] == key["id"]]
        assert [action for action, _ in acts] == ["key.revoked", "key.changed", "key.rotated", "key.issued"]
        for secret in (key["secret"], rotated, at.key):
            assert str(secret).split("-", 3)[3] not in answer.text


async def test_the_operators_key_is_an_admin_that_has_caps_like_any_other(tmp_path: Path) -> None:
    chosen = "chosen-by-the-operator-and-long-enough"
    config = CONFIG + '[server]\nadmin_key_env = "OPERATORS"\n'
    async with served(tmp_path, config, {"OPERATORS": chosen}) as at, at.http(chosen) as operator:
        assert at.key == ""
        assert (await operator.patch("/keys/operator", json={"caps": {"dollars": 0.1}})).status_code == 200
        assert (await operator.post("/v1/chat/completions", json=CHAT)).status_code == 402
        assert (await operator.delete("/keys/operator")).status_code == 409
        assert (await operator.post("/keys/operator/rotate")).status_code == 409


async def test_a_key_may_use_the_workers_it_was_issued_for(tmp_path: Path) -> None:
    config = CONFIG + '[workers.b]\nkind = "scripted"\nanswers = "7"\n'
    async with served(tmp_path, config) as at:
        issued = await at.issue(KeyScope.RUN)
        assert at.service is not None
        async with at.http() as admin, at.http(issued.secret) as client:
            await admin.patch(f"/keys/{issued.key.id}", json={"workers": ["b"], "conductors": ["shikisha-mini"]})
            refused = await client.post("/v1/chat/completions", json=CHAT)
            assert refused.status_code == 403
            told = await client.post("/v1/chat/completions", json={**CHAT, "model": "shikisha-mini"})
            assert told.json()["choices"][0]["message"]["content"] == "7"
