"""The small local tools: exact answers, a word on what they cannot do, and no file beyond the folder."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from shikisha.config.container import build_container, load_config
from shikisha.core.budget import Caps
from shikisha.core.task import Task
from shikisha.engine.engine import Engine
from shikisha.engine.recorder import MemoryRecorder
from shikisha.workers.local_tools import LOCAL_TOOLS, can_answer


async def ask(question: str, folder: Path | None = None) -> tuple[str | None, str]:
    """Ask the tool that reads the question; return its answer, or why there is none."""
    tool = next(each for each in LOCAL_TOOLS if can_answer(each, question))
    workers = {tool: {"kind": "local", "tool": tool, "folder": str(folder or "/nowhere")}}
    container = build_container({"workers": workers}, "here", Path(), {})
    pool = container.pool()
    run = await Engine(MemoryRecorder()).run(Task(question), pool, container.conductor("", pool), Caps())
    return run.answer, run.why


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("What is 12 * 13?", "156"),
        ("12*13", "156"),
        ("what's 0.1 + 0.2", "0.3"),
        ("How much is 15% of 80?", "12"),
        ("Calculate (2 + 3) times 4 minus 6 divided by 3.", "18"),
        ("2 to the power of 100", "1267650600228229401496703205376"),
        ("What is the square root of 144?", "12"),
        ("1,234,567 + 1", "1234568"),
        ("-7 // 2", "-4"),
        ("What is 1/3?", "0.333333333333"),
        ("Convert 5 km to miles.", "3.106856 miles"),
        ("How many feet are in 2 m?", "6.5616798 feet"),
        ("100 F to C", "37.777778 C"),
        ("What is 3 GiB in MB?", "3221.2255 MB"),
        ("convert 2 gb to mb", "2000 mb"),
        ("How many kWh are in 3.6 MJ?", "1 kWh"),
        ("90 km/h in m/s", "25 m/s"),
        ("Convert 10 knots to km/h", "18.52 km/h"),
        ("0 K to °F", "-459.67 °F"),
        ("2 square meters to cm²", "20000 cm²"),
        ("How many days are between 2026-01-31 and 2026-03-01?", "29 days"),
        ("How many days from 1 March 2024 until February 28, 2024?", "2 days"),
        ("What weekday is 2026-11-25?", "Wednesday"),
        ("What is the date 1 month after 2024-01-31?", "2024-02-29 (Thursday)"),
        ("What date was 30 days before 1 March 2026?", "2026-01-30 (Friday)"),
    ],
)
async def test_a_question_is_answered_exactly(question: str, answer: str) -> None:
    assert (await ask(question))[0] == answer


async def test_today_is_the_clocks() -> None:
    assert (await ask("What is today's date?"))[0] == datetime.now(UTC).astimezone().date().isoformat()


@pytest.mark.parametrize(
    ("question", "why"),
    [
        ("1/0", "division by zero"),
        ("9**9**9", "more than 1000 digits"),
        ("(-2) ** 0.5", "no real root"),
        ("round(1, 99999999999) + sqrt(0 - 1)", "no real root"),
        ("Convert 5 km to kg", "km measures length, kg mass"),
        ("What weekday is 2026-02-30?", "'2026-02-30' is no date"),
        ("What is the date 999999 years after 2026-01-01?", "the calendar ends before that day"),
    ],
)
async def test_what_has_no_answer_says_why(question: str, why: str) -> None:
    answer, said = await ask(question)
    assert answer is None
    assert why in said


@pytest.mark.parametrize(
    "question",
    [
        "What does ACME owe us?",
        "Convert 5 dollars to yen",
        "How many days are in a month?",
        "Version 1.2.3?",
        "Call 555-0100 today",
        "2026",
        "and 5",
    ],
)
def test_a_question_that_no_tool_reads_is_left_to_others(question: str) -> None:
    assert [tool for tool in LOCAL_TOOLS if can_answer(tool, question)] == []


@pytest.mark.parametrize(
    "question",
    ["1 + " * 480 + "1", "(" * 1_990, "1" * 1_999, "- " * 900 + "1", "1 m in " * 280, "search a for " + " x" * 900],
)
def test_a_hostile_question_is_read_like_any_other(question: str) -> None:
    read = [tool for tool in LOCAL_TOOLS if can_answer(tool, question)]  # with the cube of its length: for hours
    assert len(read) <= 1


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a table and notes, and a secret outside of it."""
    made = tmp_path / "work"
    (made / "docs").mkdir(parents=True)
    (made / "docs" / "a.md").write_text("# Writes\n\nApproval of writes is asked once.\n\nNothing else.\n")
    (made / "docs" / "b.md").write_text("Cats sleep.\n")
    (made / "sales.csv").write_text("customer;dollars\nACME;3\nACME;4.5\nFoo;\n")
    (made / ".hidden.csv").write_text("a\n1\n")
    (tmp_path / "secret.csv").write_text("a\n1\n")
    return made


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("SELECT sum(dollars) FROM 'sales.csv'", "7.5"),
        ("select customer, count(*) n from sales.csv group by 1 order by 1", "customer\tn\nACME\t2\nFoo\t1"),
        ("SELECT a.customer FROM \"sales.csv\" a JOIN 'sales.csv' b ON a.dollars < b.dollars", "ACME"),
        ("search docs for approval", "a.md:3: Approval of writes is asked once."),
        ("find cats in docs/", "b.md:1: Cats sleep."),
        ("search docs for zebras", "nothing in docs has any of these words"),
    ],
)
async def test_files_of_the_folder_are_read(folder: Path, question: str, answer: str) -> None:
    assert (await ask(question, folder))[0] == answer


@pytest.mark.parametrize(
    ("question", "why"),
    [
        ("SELECT * FROM '../secret.csv'", "only what is in"),
        ("SELECT * FROM '/etc/passwd.csv'", "only what is in"),
        ("SELECT * FROM '.hidden.csv'", "hidden files are not read"),
        ("SELECT * FROM 'none.csv'", "there is no such file"),
        ("SELECT load_extension('x') FROM 'sales.csv'", "not authorized"),
        ("WITH x AS (SELECT 1 FROM 'sales.csv') DELETE FROM file_1", "not authorized"),
        ("SELECT nme FROM 'sales.csv'", "no such column: nme"),
        ("search .. for a", "only what is in"),
        ("search sales.csv for a", "expected a folder"),
    ],
)
async def test_nothing_else_is(folder: Path, question: str, why: str) -> None:
    answer, said = await ask(question, folder)
    assert answer is None
    assert why in said


async def test_endless_sql_ends(folder: Path) -> None:
    query = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n, 'sales.csv'"
    can = can_answer("sql", query)
    assert can is False or "interrupted" in (await ask(query, folder))[1]
    query = query.replace("n, 'sales.csv'", "n JOIN 'sales.csv'")
    assert "interrupted" in (await ask(query, folder))[1]


async def test_a_configuration_may_name_the_folder(folder: Path) -> None:
    file = folder / "shikisha.toml"
    file.write_text('[workers.table]\nkind = "local"\ntool = "sql"\nfolder = "."\n')
    container = load_config(file, {})
    pool = container.pool()
    task = Task("SELECT count(*) FROM 'sales.csv'")
    run = await Engine(MemoryRecorder()).run(task, pool, container.conductor("fixed:single?worker=table", pool), Caps())
    assert run.answer == "3"
