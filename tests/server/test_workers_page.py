"""What the newest events say of calls: whose they are, what counts as good, and how far back one looks."""

from pathlib import Path

import pytest
from serving import served
from test_pages import CONFIG, begin

from shikisha.server.keys.key import KeyScope
from shikisha.server.pages.workers_page import RECENT_SECONDS, RecentActivityReader, read_recent_activity

FLAKY = """
[server]
port = 0
[workers.flaky]
kind = "scripted"
answers = ["41", "42"]
faults = ["connect"]
input_tokens = 10
output_tokens = 5
checks = ["right"]
[workers.flaky.price]
input = 1000
output = 1000
[checks.right]
kind = "pattern"
pattern = "42"
"""


async def test_a_fault_and_a_refused_answer_are_no_good_calls(tmp_path: Path) -> None:
    async with served(tmp_path, FLAKY) as at:
        assert at.service is not None
        run = await begin(at, 0)
        found = await read_recent_activity(at.service.journal, None)
        assert [(call.run, call.worker, call.ok, call.tokens) for call in found.tried] == [
            (run, "flaky", False, 0),
            (run, "flaky", False, 15),
            (run, "flaky", True, 15),
        ]
        assert [call.dollars for call in found.tried] == pytest.approx([0.0, 0.015, 0.015])


async def test_a_tenant_sees_its_own_calls_only_and_no_further_back_than_is_looked(tmp_path: Path) -> None:
    async with served(tmp_path, CONFIG) as at:
        assert at.service is not None
        theirs = await at.issue(KeyScope.RUN, tenant="other")
        ours, other = await begin(at, 0), await begin(at, 0, key=theirs.secret)
        assert [call.run for call in (await read_recent_activity(at.service.journal, None)).tried] == [ours, other]
        assert [call.run for call in (await read_recent_activity(at.service.journal, "other")).tried] == [other]
        assert [call.run for call in (await read_recent_activity(at.service.journal, None, most=6)).tried] == [other]
        assert (await read_recent_activity(at.service.journal, "nobody")).tried == ()


async def test_what_was_read_is_kept_for_some_seconds(tmp_path: Path) -> None:
    now = [0.0]
    async with served(tmp_path, CONFIG) as at:
        assert at.service is not None
        reader = RecentActivityReader(lambda: now[0])
        assert (await reader.read(at.service.journal, None)).tried == ()
        await begin(at, 0)
        assert (await reader.read(at.service.journal, None)).tried == ()
        now[0] = RECENT_SECONDS
        assert len((await reader.read(at.service.journal, None)).tried) == 1
