"""Search, filters, exports, figures, sessions and chats of a real server: what is found, by whom, and what it says."""

import csv
import io
import json
import re
from collections.abc import Sequence
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import urlencode

import pytest
from serving import At, served
from test_page_views import served as row_of
from test_pages import CONFIG, browsing, csrf

from shikisha.core.plan import Plan, Step
from shikisha.core.task import Task
from shikisha.evals.graders import GraderTools
from shikisha.evals.graders.judge import JudgeSettings
from shikisha.evals.tasksets.task_rows import TaskRow
from shikisha.evals.tasksets.taskset_loader import own_item
from shikisha.journal.queries import TaskAndAnswer
from shikisha.plots.day_charts import ChartForm, DaySeries, day_bar_chart, day_line_chart
from shikisha.server.http.request import RequestOptions
from shikisha.server.keys import Key, KeyCaps
from shikisha.server.keys.grants import BudgetAmount, DailySpend
from shikisha.server.keys.key import KeyScope
from shikisha.server.lifecycle.authorization import Api, RequestedRun, confirmed_plan_request
from shikisha.server.pages.keys_page import keys_view
from shikisha.server.pages.overview_page import PeriodFigures, budget_alerts, drift_alerts
from shikisha.server.pages.run_exports import ExportedRun, csv_cell, export_page, taskset_row
from shikisha.server.pages.runs_page import RunListQuery, diff_plans, diff_words
from shikisha.server.runs.review_routes import feedback_event
from shikisha.server.store.run_figures import RunFigures

ANSWERS = CONFIG.replace('answers = "42"', 'answers = ["42", "=HYPERLINK(1)", "The harbour is open."]')
NOW = 1_790_000_000.0
CAPS = KeyCaps(dollars=10.0, dollars_per_day=2.0)
DAYS = ("2026-11-23", "2026-11-24", "2026-11-25")


async def begin(at: At, prompt: str, key: str = "", **metadata: str) -> str:
    """Begin a run of one step, and return its id once it has ended."""
    assert at.service is not None
    found = await at.service.keys.find(key or at.key)
    assert isinstance(found, Key)
    options = RequestOptions({}, labels=("private",) if "secret" in prompt else ())
    wire = confirmed_plan_request(Plan((Step("Say it.", 0),)))
    wish = RequestedRun("shikisha", Task(prompt), Api.PAGE, options, wire, detached=True, metadata=metadata)
    live = await at.service.begin(at.service.authorizer.authorize(wish, found.principal()))
    async for _ in at.service.listen(live.run):
        pass
    await at.service.journal.flush()
    return live.run


def shown_runs(page: str) -> list[str]:
    """The runs that a list shows, in its order."""
    return re.findall(r'class="task"><a href="/ui/runs/([^"]+)"', page)


async def test_runs_are_found_by_words_filters_and_order(tmp_path: Path) -> None:
    async with served(tmp_path, ANSWERS) as at, browsing(at) as client:
        first, second, third = [await begin(at, prompt) for prompt in ("one", "the secret two", "three")]
        for query, expected in (
            ("", [third, second, first]),
            ("up=1&sort=began", [first, second, third]),
            ("text=harbour+op", [third]),
            ("text=secret", [second]),
            ("text=say", [third, second, first]),
            ("label=private", [second]),
            ("worker=solo", [third, second, first]),
            ("worker=asks", []),
            ("least=1", []),
            ("most=1&until=2001-01-01", []),
            ("since=2001-01-01&most=1", [third, second, first]),
            ("right=yes", []),
            ("since=yesterday&least=x&sort=nonsense&right=maybe", [third, second, first]),
        ):
            answer = await client.get(f"/ui/runs?{query}")
            assert (answer.status_code, shown_runs(answer.text)) == (200, expected), query
        assert "<mark>harbour</mark>" in (await client.get("/ui/runs?text=harbour")).text.lower()


async def test_pages_of_a_sorted_list_go_on_where_they_ended(tmp_path: Path) -> None:
    async with served(tmp_path, ANSWERS) as at:
        assert at.service is not None
        runs = {await begin(at, f"task {number}") for number in range(5)}
        for sort in ("cost", "time", "tokens", "began"):
            for up in ("", "1"):
                asked, seen = RunListQuery(sort=sort, up=up).filter(None, 2), list[str]()
                while True:
                    page = await at.service.store.search(asked)
                    seen += [each.run for each in page.runs]
                    if page.after is None:
                        break
                    asked = replace(asked, after=page.after)
                assert (len(seen), set(seen)) == (5, runs), (sort, up)


async def test_nobody_finds_what_is_not_of_their_tenant(tmp_path: Path) -> None:
    async with served(tmp_path, ANSWERS) as at:
        other = await at.issue(KeyScope.READ, KeyScope.RUN)
        await begin(at, "the admiral", session_id="ours")
        await begin(at, "the harbourmaster", other.secret, session_id="theirs")
        async with browsing(at, other.secret) as client:
            assert len(shown_runs((await client.get("/ui/runs?text=the")).text)) == 1
            for way in ("runs?text=admiral", "overview", "sessions", "runs/export/runs.jsonl"):
                page = (await client.get(f"/ui/{way}")).text
                assert "the admiral" not in page, way
                assert "ours" not in re.findall(r"/ui/sessions/(\w+)", page), way
            assert (await client.get("/ui/sessions/ours")).status_code == 404
            assert "the harbourmaster" in (await client.get("/ui/sessions/theirs")).text
            assert "b>1</b><span>runs" in (await client.get("/ui/overview")).text


async def test_answers_that_wait_for_a_person_are_not_found_before(tmp_path: Path) -> None:
    reviewed = ANSWERS + '[[autonomy.classes]]\nmode = "review"\nexpires = 60\n'
    async with served(tmp_path, reviewed) as at:
        reader = await at.issue(KeyScope.READ, tenant="default")
        run = await begin(at, "one")
        assert at.service is not None
        async with browsing(at, reader.secret) as client, browsing(at) as admin:
            assert shown_runs((await client.get("/ui/runs?text=42")).text) == []
            assert shown_runs((await client.get("/ui/runs?text=say")).text) == []
            assert shown_runs((await client.get("/ui/runs?text=one")).text) == [run]
            (asked,) = (await at.service.read_run(run)).open_questions
            form = {"csrf": await csrf(admin), "decision": "yes", "text": "43"}
            assert (await admin.post(f"/ui/approvals/{run}/{asked.question}", data=form)).status_code == 303
            async for _ in at.service.listen(run):
                pass
            assert shown_runs((await client.get("/ui/runs?text=43")).text) == [run]
            assert shown_runs((await client.get("/ui/runs?text=42")).text) == []  # what the step said first
            assert shown_runs((await admin.get("/ui/runs?text=42")).text) == [run]


async def test_what_is_erased_is_in_no_search_and_no_export(tmp_path: Path) -> None:
    async with served(tmp_path, ANSWERS) as at, browsing(at) as client:
        assert at.service is not None
        run = await begin(at, "where is Smith")
        assert shown_runs((await client.get("/ui/runs?text=smith")).text) == [run]
        await at.service.store.erase([run], actor="ann")
        assert shown_runs((await client.get("/ui/runs?text=smith")).text) == []
        for name in ("runs.csv", "runs.jsonl", "taskset.jsonl?ungraded=yes"):
            assert "smith" not in (await client.get(f"/ui/runs/export/{name}")).text.lower()


async def test_runs_are_exported_with_what_the_list_shows(tmp_path: Path) -> None:
    async with served(tmp_path, ANSWERS) as at, browsing(at) as client:
        assert at.service is not None
        runs = [await begin(at, f"task {number}", session_id="s") for number in range(3)]
        at.service.recorder.add(feedback_event(runs[0], 1.0, "", "ann"))
        await at.service.journal.flush()
        answer = await client.get("/ui/runs/export/runs.jsonl?up=1&sort=began")
        lines = [json.loads(line) for line in answer.text.splitlines()]
        assert (lines[0]["run"], lines[0]["prompt"], lines[0]["answer"]) == (runs[0], "task 0", "42")
        assert (lines[0]["score"], lines[1]["score"], lines[0]["workers"]) == (1.0, None, ["solo"])
        assert "attachment" in answer.headers["content-disposition"]
        table = list(csv.DictReader(io.StringIO((await client.get("/ui/runs/export/runs.csv")).text)))
        assert [row["answer"] for row in table] == ["The harbour is open.", "'=HYPERLINK(1)", "42"]
        tasks = (await client.get("/ui/runs/export/taskset.jsonl")).text.splitlines()
        assert [json.loads(line)["id"] for line in tasks] == [runs[0]]
        assert len((await client.get("/ui/runs/export/taskset.jsonl?ungraded=yes")).text.splitlines()) == 3
        assert (await client.get("/ui/runs/export/runs.xml")).status_code == 404


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "  =1", "\r=1", "\n-2"])
def test_no_cell_is_a_formula(text: str) -> None:
    assert str(csv_cell(text)).startswith("'")


def test_cells_are_cut_before_a_spreadsheet_refuses_them() -> None:
    assert csv_cell("plain") == "plain"
    assert csv_cell(-1.5) == -1.5
    assert len(str(csv_cell("x" * 50_000))) == 32_000
    assert export_page("runs.csv", [], first=True).startswith("run,began,status")


def exported(prompt: str, answer: str | None, **more: object) -> ExportedRun:
    return ExportedRun(row_of(), "k", ("solo",), (1.0, False), TaskAndAnswer(prompt, "", answer, **more))  # type: ignore[arg-type]


@pytest.mark.parametrize("answer", ["42", "-0.5", "In Paris.", "word " * 100])
def test_a_row_of_a_taskset_is_one_that_an_evaluation_takes(answer: str) -> None:
    row = taskset_row(exported("What?", answer))
    assert row is not None
    if row["checker"] == "judge":  # whose model none of these tests has
        assert JudgeSettings.model_validate({"prompt": "What?", "gold": row["gold"]}).gold == answer.strip()
    else:
        assert own_item(TaskRow(row, "taskset.jsonl", 0), GraderTools()).task.prompt == "What?"


def test_what_a_text_does_not_tell_alone_is_no_task() -> None:
    assert taskset_row(exported("And then?", "42", more=True)) is None
    assert taskset_row(exported("What?", None)) is None
    assert taskset_row(exported("What?", " ")) is None


async def test_a_chat_goes_on_with_its_turns_and_their_labels(tmp_path: Path) -> None:
    async with served(tmp_path, ANSWERS) as at, browsing(at) as client:
        assert at.service is not None
        plan = Plan((Step("Say it.", 0),)).dumps()
        form = {"csrf": await csrf(client), "model": "shikisha", "prompt": "one", "labels": "private", "plan": plan}
        session, runs = "", list[str]()
        for prompt in ("one", "two"):
            answer = await client.post("/ui/try/perform", data={**form, "prompt": prompt, "session": session})
            location = answer.headers["location"]
            session, run = (re.findall(rf"{name}=([^&#]+)", location)[0] for name in ("session", "run"))
            runs.append(run)
            async for _ in at.service.listen(run):
                pass
            await at.service.journal.flush()
            form |= {"labels": ""}
        page = (await client.get(f"/ui/try?session={session}")).text
        assert re.findall(r"hx-disable>([^<]+)<", page) == ["one", "42", "two", "=HYPERLINK(1)"]
        past = await at.service.read_run(runs[1])
        assert [message.text for message in past.task.history] == ["one", "42"]
        assert past.started.labels == ("private",)
        assert "=HYPERLINK" in (await client.get(f"/ui/sessions/{session}")).text
        answer = await client.post("/ui/try", data={**form, "prompt": "three", "session": session})
        assert "Performing it: about $0, at most $0" in answer.text
        assert (await client.get("/ui/try?" + urlencode({"session": "x" * 300}))).status_code == 400


class Structure(HTMLParser):
    """What a page lacks that readers without eyes or a mouse need, as far as its source shows it."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.wrong: list[str] = []
        self.ids: list[str] = []
        self.labels: set[str] = set()
        self.fields: list[str] = []
        self.headings: list[int] = []
        self.named: list[tuple[str, list[str]]] = []  # open elements that need a name, and what they say
        self.inside_label = 0
        self.feed(page)
        self.wrong += [f"the id {name} twice" for name in set(self.ids) if self.ids.count(name) > 1]
        self.wrong += [f"no label for {name}" for name in self.fields if name not in self.labels]
        pairs = zip([0, *self.headings], self.headings, strict=False)
        self.wrong += [f"h{after} after h{before}" for before, after in pairs if after > before + 1]
        if self.headings.count(1) != 1:
            self.wrong.append(f"{self.headings.count(1)} first headings")

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        told = dict(attrs)
        self.ids += [told["id"] or ""] if "id" in told else []
        self.labels |= {told["for"] or ""} if tag == "label" and "for" in told else set()
        self.inside_label += tag == "label"
        if tag in ("input", "select", "textarea") and told.get("type") != "hidden" and not self.inside_label:
            self.fields.append(told.get("id") or "?")
        if tag in ("h1", "h2", "h3", "h4"):
            self.headings.append(int(tag[1]))
        if tag == "svg" and not (told.get("aria-hidden") or (told.get("role") and told.get("aria-label"))):
            self.wrong.append("a drawing without a name")
        if tag == "html" and told.get("lang") != "en":
            self.wrong.append("no language")
        if tag in ("a", "button", "th", "summary", "label"):
            self.named.append((tag, [told.get("aria-label") or ""]))

    def handle_data(self, data: str) -> None:
        for _, said in self.named:
            said.append(data)

    def handle_endtag(self, tag: str) -> None:
        self.inside_label -= tag == "label"
        if self.named and self.named[-1][0] == tag:
            _, said = self.named.pop()
            if not "".join(said).strip():
                self.wrong.append(f"an empty {tag}")


async def test_every_page_has_the_structure_that_all_readers_need(tmp_path: Path) -> None:
    async with served(tmp_path, ANSWERS) as at, browsing(at) as client:
        runs = [await begin(at, f"task {number}", session_id="s") for number in range(2)]
        ways = ["overview", "sessions", "sessions/s", "runs", "runs?text=task&least=0", "try", "try?session=s"]
        ways += ["approvals", "workers", "compare", f"compare?left={runs[0]}&right={runs[1]}", "keys", "nothing-here"]
        ways += [f"runs/{runs[0]}", f"runs/{runs[0]}/journal", "login", "device", "offline"]
        found = {way: Structure((await client.get(f"/ui/{way}")).text).wrong for way in ways}
        assert {way: wrong for way, wrong in found.items() if wrong} == {}


def test_the_structure_check_sees_what_is_wrong() -> None:
    page = '<html><h1>A</h1><h3 id="x">B</h3><input id="x"><th></th><a href="/"></a><svg></svg>'
    assert len(Structure(page).wrong) == 7


# figures --------------------------------------------------------------------------------------------------------------


def figures(runs: int, done: int, graded: int = 0, right: int = 0, dollars: float = 0.0) -> RunFigures:
    return RunFigures("", runs, done, runs - done, graded, right, 0, dollars, 0, {0: runs})


def drift(days: Sequence[RunFigures], workers: dict[str, Sequence[RunFigures]] | None = None) -> list[str]:
    """The alerts on these days, the last of which is today."""
    by_worker = {name: dict(enumerate(found)) for name, found in (workers or {}).items()}
    found = PeriodFigures(dict(enumerate(days)), {}, {}, by_worker)
    today = max(len(days), *(len(each) for each in by_worker.values()), 1) - 1
    return [alert.words.replace("\u00a0", " ") for alert in drift_alerts(found, today)]


def test_a_worker_that_became_worse_is_an_alert_and_chance_is_none() -> None:
    assert drift([], {"solo": [figures(200, 190), figures(60, 40)]}) == [
        "good calls: 67 % of 60 lately, 95 % of 200 before"
    ]
    assert drift([], {"solo": [figures(200, 190), figures(60, 55)]}) == []
    assert drift([], {"solo": [figures(200, 190), figures(8, 2)]}) == []  # too few
    assert drift([], {"solo": [figures(200, 190), figures(20, 10), figures(20, 10)]}) != []  # two days make enough


def test_fewer_right_answers_and_dearer_runs_are_alerts() -> None:
    before = figures(100, 100, 100, 90, 1.0)
    assert drift([before, figures(100, 100, 100, 60, 1.0)]) == ["right answers: 60 % of 100 lately, 90 % of 100 before"]
    assert drift([before, figures(100, 100, 100, 89, 2.0)]) == ["cost a run: $0.02 lately, $0.01 before"]
    assert drift([before, before]) == []


def test_budgets_that_are_nearly_used_up_or_soon_will_be_are_alerts() -> None:
    key = Key(
        id="k", name="team", tenant="t", scopes=frozenset({KeyScope.RUN}), caps=CAPS, created=NOW, created_by="ann"
    )
    day = "2026-09-21"
    for total, today, expected in ((1.0, 0.1, 0), (9.0, 0.1, 1), (5.0, 2.5, 1), (5.0, 1.8, 1)):
        spent = [DailySpend("k", "", _paid(total)), DailySpend("k", day, _paid(today))]
        found = list(budget_alerts(keys_view([key], spent, NOW).keys, spent, NOW))
        assert len(found) >= expected, (total, today)
    spent = [DailySpend("k", "", _paid(7.0)), *[DailySpend("k", f"2026-09-{day}", _paid(1.0)) for day in range(15, 22)]]
    (alert,) = budget_alerts(keys_view([key], spent, NOW).keys, spent, NOW)
    assert "lasts 3.0 days" in alert.words


def _paid(dollars: float) -> BudgetAmount:
    return BudgetAmount(round(dollars * 1e9), 0, 0)


def test_quantiles_are_counted() -> None:
    found = RunFigures("", 100)
    found.paces = {0: 90, 48: 10}  # one second, ten seconds
    assert [found.p50, found.p95] == pytest.approx([1.0, 10.0])
    assert RunFigures("").p50 is None


def test_bars_stand_on_one_another_and_have_a_scale_and_days() -> None:
    series = (DaySeries("done", (3.0, None, 1.0)), DaySeries("failed", (1.0, None, 0.0)))
    drawn = day_bar_chart(DAYS, series, ChartForm(lambda value: f"{value:.0f}", whole=True))
    assert [tick.text for tick in drawn.up] == ["0", "1", "2", "3", "4"]
    assert [tick.text for tick in drawn.across] == ["23 Nov", "24 Nov", "25 Nov"]
    assert {mark.words for mark in drawn.marks if mark.height} == {
        "23 Nov 2026: 3 done", "23 Nov 2026: 1 failed", "25 Nov 2026: 1 done"
    }  # fmt: skip
    done, failed = (next(mark for mark in drawn.marks if mark.series == number) for number in (0, 1))
    assert failed.y + failed.height == pytest.approx(done.y)


def test_a_line_breaks_where_nothing_is_known_and_every_value_has_a_point() -> None:
    days = [f"2026-11-{day:02}" for day in range(1, 31)]
    values = tuple(None if at == 10 else 0.5 for at in range(30))
    drawn = day_line_chart(days, (DaySeries("right", values),), ChartForm(str, least_top=1.0))
    assert (len(drawn.lines), len(drawn.marks)) == (2, 29)
    assert drawn.across[-1].text == "30 Nov"
    assert all(0 <= mark.x <= drawn.width and 0 <= mark.y <= drawn.bottom for mark in drawn.marks)
    assert not drawn.empty
    assert day_line_chart(days, (DaySeries("right", (None,) * 30),), ChartForm(str)).empty


# differences ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("", ""),
        ("", "new"),
        ("Is the harbour open?", "Is the harbour closed on Sunday?"),
        ("a b " * 400, "b a a " * 300),
        ("x" * 10_000, "y\n" * 5_000),
        ("  spaces  at\tends ", "spaces at ends"),
    ],
)
def test_what_is_kept_and_what_is_changed_make_both_texts(one: str, other: str) -> None:
    pieces = diff_words(one, other)
    assert "".join(piece.text for piece in pieces if piece.kind != "in") == one
    assert "".join(piece.text for piece in pieces if piece.kind != "out") == other


def test_only_what_differs_is_marked() -> None:
    found = [(piece.kind, piece.text) for piece in diff_words("Is the harbour open?", "Is the harbour closed?")]
    assert found == [("same", "Is the harbour"), ("out", " open"), ("in", " closed"), ("same", "?")]


def test_plans_are_compared_step_by_step() -> None:
    one = Plan((Step("Draft it.", 0), Step("Read it.", 1, (0,))))
    other = Plan((Step("Draft it.", 0), Step("Read it twice.", 0, ()), Step("Send it.", 1, (1,))))
    found = diff_plans((one, other), (("writer", "critic"), ("writer", "sender")))
    assert [step.kind for step in found] == ["same", "changed", "in"]
    assert (found[1].workers, found[1].sees) == (("critic", "writer"), ((0,), ()))
    assert [piece.text for piece in found[1].subtask if piece.kind == "in"] == [" twice"]


async def test_two_runs_are_shown_with_what_differs(tmp_path: Path) -> None:
    async with served(tmp_path, ANSWERS) as at, browsing(at) as client:
        one, other = await begin(at, "Is the harbour open?"), await begin(at, "Is the <b>harbour</b> closed?")
        page = (await client.get(f"/ui/compare?left={one}&right={other}")).text
        assert "open</del>" in page
        assert "closed</ins>" in page
        assert "&lt;b" in page.partition("What differs")[2]
        assert "<b>harbour" not in page
