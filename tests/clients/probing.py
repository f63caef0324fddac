"""Run probes of a client: functions that raise where a client does not work; a line of JSON for each."""

import asyncio
import inspect
import json
import os
import sys
import traceback
from collections.abc import Callable, Mapping

URL = os.environ.get("SHIKISHA_URL", "")
KEY = os.environ.get("SHIKISHA_KEY", "")
QUESTION = "Which city is the capital of France, and how many people live there?"


def run_probes(probes: Mapping[str, Callable[[], object]]) -> None:
    """Run the named probes, or all, and print what became of each."""
    for name in sys.argv[1:] or probes:
        try:
            found = probes[name]()
            if inspect.iscoroutine(found):
                asyncio.run(found)
            said = {"probe": name, "result": "works"}
        except ImportError as error:
            said = {"probe": name, "result": "skipped", "why": f"{error.name} is not installed"}
        except Exception as error:  # noqa: BLE001 - a probe that fails is a result
            where = traceback.extract_tb(error.__traceback__)[-1]
            why = f"{type(error).__name__}: {error} ({os.path.basename(where.filename)}:{where.lineno})"
            said = {"probe": name, "result": "fails", "why": " ".join(why.split())[:600]}
        print(json.dumps(said), flush=True)


def expect(found: object, wanted: object = True) -> None:
    """Raise where something is not as wanted."""
    if found != wanted:
        raise AssertionError(f"{found!r} is not {wanted!r}")
