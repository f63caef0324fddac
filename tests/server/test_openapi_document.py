"""The OpenAPI document against the server: made-up requests by the thousand, and no answer that is not in it."""

import asyncio
import re
import sys
from pathlib import Path

import pytest
from serving import served_process

CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"


@pytest.mark.full
async def test_made_up_requests_get_no_server_error_and_nothing_that_is_not_documented(tmp_path: Path) -> None:
    st = str(Path(sys.executable).with_name("st"))
    async with served_process(tmp_path) as (at, _):
        command = [st, "run", f"{at.url}/openapi.json", "-H", f"Authorization: Bearer {at.key}", "--seed", "1"]
        command += ["--max-examples", "6", "--phases", "examples,coverage,fuzzing", "--checks", CHECKS]
        command += ["--request-timeout", "20", "--no-color"]
        process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE, cwd=tmp_path)
        told = (await process.communicate())[0].decode()
    assert process.returncode == 0, told[-6000:]
    generated = re.search(r"([\d,]+) generated", told)
    assert generated
    assert int(generated[1].replace(",", "")) >= 1_000
