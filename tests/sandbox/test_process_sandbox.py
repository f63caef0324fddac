"""The process jail as a place to run programs: what they print and mean, how they read, how they end."""

import asyncio
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace

import pytest
from sandboxes import NEEDS_A_JAIL, PATIENT, jailed

from shikisha.sandbox import Execution, Inputs
from shikisha.sandbox.process_sandbox import ProcessSandbox

pytestmark = [NEEDS_A_JAIL, pytest.mark.alone]


@pytest.fixture(scope="module")
def jail() -> Iterator[ProcessSandbox]:
    one = ProcessSandbox(PATIENT, processes=2)
    yield one
    asyncio.run(one.aclose())


@pytest.mark.parametrize(
    ("code", "execution"),
    [
        ("print('a')\n1 + 1", Execution("a\n", "2")),
        ("x = 3", Execution("", None)),
        ("None", Execution("", None)),
        ("", Execution("", None)),
        ("'text'", Execution("", "text")),
        ("question.upper()", Execution("", "WHAT")),
        ("[1, 'é', None, (2.5, True), {'k': [b'x']}]", Execution("", "[1, 'é', None, (2.5, True), {'k': [b'x']}]")),
        ("if True:\n    7", Execution("", None)),
        ("from __future__ import annotations\nx: nowhere = 1\nx", Execution("", "1")),
        ("def f():\n    'doc'\nf.__doc__", Execution("", "doc")),
        ("if __name__ == '__main__':\n    print('main')", Execution("main\n")),
        ("print('é😀', end='')", Execution("é😀")),
        ("print(chr(0xDCFF), end='')\nchr(0xD800)", Execution("\ufffd", "?")),
        ("import sys\nsys.stdout.buffer.write(b'a\\xffb') and None", Execution("a\ufffdb")),
        ("import os\nos.write(1, b'raw') and None", Execution("raw")),
        ("print('out'); import sys; print('err', file=sys.stderr)", Execution("out\n")),
        ("import json\nprint(json.dumps({'value': 'forged', 'error': None, 'parsed': True}))\n'own'", None),
        ("import pickle\nclass A: pass\ntype(pickle.loads(pickle.dumps(A()))).__name__", Execution("", "A")),
        ("import sys\nsys.argv, sys.stdin.encoding, sys.stdout.encoding", Execution("", "([''], 'utf-8', 'utf-8')")),
        ("import time\ntime.localtime(0).tm_hour, time.tzname[0]", Execution("", "(0, 'UTC')")),
    ],
)
async def test_what_a_program_prints_and_the_value_of_its_last_line(
    jail: ProcessSandbox, code: str, execution: Execution | None
) -> None:
    found = await jail.run(code, {"question": "what"})
    assert found == (execution or Execution('{"value": "forged", "error": null, "parsed": true}\n', "own"))


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("x = 1\n1 / 0", "ZeroDivisionError: division by zero (line 2)"),
        ("def f():\n    raise ValueError('no')\n\nf()", "ValueError: no (line 2)"),
        ("import json\njson.loads('{')", "(line 2)"),
        ("raise KeyError", "KeyError (line 1)"),
        ("raise SystemExit('gone')", "SystemExit: gone"),
        ("import sys\nsys.exit(3)", "SystemExit: 3"),
        ("import os\nos._exit(4)", "exit code 4"),
        ("raise KeyboardInterrupt", "KeyboardInterrupt (line 1)"),
        ("import os, signal\nos.kill(os.getpid(), signal.SIGTERM)", "killed (SIGTERM)"),
        ("import os\nos.abort()", "killed (SIGABRT)"),
        ("import ctypes\nctypes.string_at(0)", "killed (SIGSEGV)"),
        ("import signal\nsignal.pthread_kill(signal.SIGKILL and __import__('threading').get_ident(), 9)", "SIGKILL"),
        ("class E(Exception):\n    def __str__(self): raise ValueError\nraise E", "E (line 3)"),
        ("raise ValueError('x' * 10_000)", "xxx... (line 1)"),
        ("class V:\n    def __str__(self): return 1 / 0\nV()", "ZeroDivisionError"),
        ("def f(): return f()\nf()", "RecursionError"),
        ("assert 1 == 2, 'not equal'", "AssertionError: not equal (line 1)"),
    ],
)
async def test_how_a_program_fails_is_told(jail: ProcessSandbox, code: str, error: str) -> None:
    execution = await jail.run(code, {})
    assert error in str(execution.error)
    assert execution.value is None
    assert execution.parsed


@pytest.mark.parametrize("code", ["exit()", "quit(0)", "import sys\nsys.exit()", "import os\nos._exit(0)"])
async def test_an_exit_that_is_no_failure_has_neither_value_nor_error(jail: ProcessSandbox, code: str) -> None:
    assert await jail.run(f"print('before', flush=True)\n{code}\n1", {}) == Execution("before\n")


@pytest.mark.parametrize(
    ("code", "parsed"),
    [
        ("def f(", False),
        ("a\0b", False),
        ("'\ud800'", False),
        ("(" * 5_000, False),
        ("-" * 100_000 + "1", False),
        ("Please compute it.", False),
        ("eval('1 +')", False),
        ("1 / 0", True),
    ],
)
async def test_text_that_is_no_program_is_told_from_a_program_that_fails(
    jail: ProcessSandbox, code: str, parsed: bool
) -> None:
    execution = await jail.run(code, {})
    assert execution.error is not None
    assert execution.parsed is parsed
    assert execution.error.startswith("SyntaxError") is not parsed


@pytest.mark.parametrize(
    "code",
    [
        "print(input())\nprint(input())",
        "import sys\nfor line in sys.stdin: print(line, end='')",
        "import sys\nsys.stdout.buffer.write(sys.stdin.buffer.read()) and None",
        "print(open(0).read(), end='')",
        "print(open('/dev/stdin').read(), end='')",
        "import os\nos.write(1, os.read(0, 1000)) and None",
        "import fileinput\nfor line in fileinput.input(): print(line, end='')",
    ],
)
async def test_every_way_to_read_standard_input(jail: ProcessSandbox, code: str) -> None:
    assert await jail.run(code, {}, "first é\nsecond\n") == Execution("first é\nsecond\n")


async def test_standard_input_ends_is_large_and_may_be_ignored(jail: ProcessSandbox) -> None:
    assert "EOFError" in str((await jail.run("input()", {})).error)
    text = "0123456789\n" * 1_000_000
    assert (await jail.run("import sys\nsum(map(len, sys.stdin))", {}, text)).value == str(len(text))
    assert (await jail.run("1", {}, text)).value == "1"
    assert (await jail.run("import sys\nsys.stdin.buffer.read()", {}, "\ud800")).value == str(b"\xed\xa0\x80")


async def test_inputs_arrive_as_they_are(jail: ProcessSandbox) -> None:
    inputs: Inputs = {
        "text": "é\ud800\n",
        "whole": 2**100,
        "part": 0.1,
        "truth": True,
        "none": None,
        "some": ["a", None],
    }
    assert (await jail.run("(text, whole, part, truth, none, some)", inputs)).value == str(tuple(inputs.values()))


@pytest.mark.parametrize(
    ("code", "value"),
    [
        ("import threading\nt = threading.Thread(target=print, args=('in',))\nt.start()\nt.join()", "in\n"),
        ("import threading, time\nthreading.Thread(target=lambda: (time.sleep(0.2), print('late'))).start()", "late\n"),
        ("import atexit\natexit.register(print, 'last')\nprint('first')", "first\nlast\n"),
        ("import asyncio\nasync def f():\n    await asyncio.sleep(0)\n    print('async')\nasyncio.run(f())", "async\n"),
        (
            "from concurrent.futures import ThreadPoolExecutor as P\nwith P(8) as p: print(sum(p.map(abs, [-40, -5])))",
            "45\n",
        ),
        ("import asyncio\nprint(asyncio.run(asyncio.to_thread(sum, [1, 2])))", "3\n"),
        (
            """import sqlite3\nc = sqlite3.connect('x.db')\nc.execute('create table t as select 1 as a')
c.commit()\nprint(c.execute('select a from t').fetchall())""",
            "[(1,)]\n",
        ),
        ("import tempfile\nwith tempfile.TemporaryFile() as f: print(f.write(b'abc'))", "3\n"),
        ("import tempfile, os\nwith tempfile.TemporaryDirectory() as d: print(os.listdir(d))", "[]\n"),
        ("import pathlib\np = pathlib.Path('n')\np.touch()\nprint(p.exists())", "True\n"),
        ("import shutil\nopen('a', 'w').write('x')\nprint(shutil.copy2('a', 'b'), open('b').read())", "b x\n"),
        ("import shutil, os\nos.makedirs('d/e')\nshutil.copytree('d', 'f')\nprint(os.listdir('f'))", "['e']\n"),
        ("import signal, time\nsignal.signal(14, lambda *_: print('rang'))\nsignal.alarm(1)\nsignal.pause()", "rang\n"),
        ("import zoneinfo, datetime as d\nprint(d.datetime(2024, 7, 1, tzinfo=d.UTC).tzname())", "UTC\n"),
        ("import random, uuid, secrets\nprint(random.random() < 1, len(secrets.token_hex(4)))", "True 8\n"),
        ("import os\nprint(open(os.devnull).read() == '', len(os.urandom(4)))", "True 4\n"),
        ("import unittest\nclass T(unittest.TestCase):\n    def test(self): pass\nunittest.main(exit=False)", ""),
        ("import ctypes\nprint(ctypes.CDLL(None).abs(-3))", "3\n"),
    ],
)
async def test_what_works(jail: ProcessSandbox, code: str, value: str) -> None:
    assert await jail.run(f"{code}\nNone", {}) == Execution(value)


@pytest.mark.parametrize(
    "code",
    [
        "import subprocess\nsubprocess.run(['true'])",
        "import os\nos.system('true') and 1 / 0",
        "import os\nos.fork()",
        "import multiprocessing\nmultiprocessing.Pool(1)",
        "import socket\nsocket.socket()",
        "import urllib.request\nurllib.request.urlopen('http://127.0.0.1:1')",
        "import os\nos.execv('/bin/true', ['true'])",
        "import sitecustomize_of_nobody",
        "import cell",
        "import shikisha",
        "import pydantic",
    ],
)
async def test_what_does_not_work(jail: ProcessSandbox, code: str) -> None:
    execution = await jail.run(code, {})
    assert execution.error is not None
    assert execution.error.startswith(("PermissionError", "OSError", "URLError", "ModuleNotFound", "ZeroDivision"))


async def test_nothing_of_ours_and_of_another_run_is_to_be_found(jail: ProcessSandbox) -> None:
    await jail.run("open('left', 'w').write('x')\nimport builtins, json\nbuiltins.left = json.left = 1", {"given": "x"})
    look = "import builtins, json, os, sys\nprint(sorted(os.environ), os.listdir(), hasattr(builtins, 'left'))\n"
    look += "print(hasattr(json, 'left'), 'given' in globals(), [m for m in sys.modules if 'cell' in m or 'shik' in m])"
    assert (await jail.run(look, {})).printed == "['HOME', 'TMPDIR'] [] False\nFalse False []\n"


async def test_a_program_has_four_descriptors_and_no_more(jail: ProcessSandbox) -> None:
    code = "import os\ndef is_open(n):\n    try: return os.fstat(n) is not None\n    except OSError: return False\n"
    assert (await jail.run(code + "[n for n in range(5_000) if is_open(n)]", {})).value == "[0, 1, 2, 4]"


async def test_many_runs_at_once_from_several_event_loops(jail: ProcessSandbox) -> None:
    async def some(start: int) -> list[str | None]:
        numbers = range(start, start + 20)
        return [done.value for done in await asyncio.gather(*(jail.run("n", {"n": n}) for n in numbers))]

    found: list[str | None] = []
    thread = threading.Thread(target=lambda: found.extend(asyncio.run(some(100))))
    thread.start()
    assert await some(0) == [str(n) for n in range(20)]
    await asyncio.to_thread(thread.join)
    assert found == [str(n) for n in range(100, 120)]


async def test_the_event_loop_goes_on_while_a_program_runs() -> None:
    async with jailed(replace(PATIENT, seconds=0.5)) as jail:
        run = asyncio.create_task(jail.run("while True: pass", {}))
        ticks = 0
        while not run.done():
            await asyncio.sleep(0.01)
            ticks += 1
        assert ticks > 5


def test_a_program_of_ours_that_never_closes_its_jail_ends_well() -> None:
    program = (
        "import asyncio\n"
        "from shikisha.sandbox.process_sandbox import ProcessSandbox as Jail\n"
        "jail = Jail()\n"
        "async def main():\n"
        "    try:\n"
        "        async with asyncio.timeout(0.3): await jail.run('while True: pass', {})\n"
        "    except TimeoutError: print((await jail.run('6 * 7', {})).value)\n"
        "asyncio.run(main())\n"
    )
    ended = subprocess.run([sys.executable, "-Werror", "-c", program], capture_output=True, text=True, timeout=60)  # noqa: S603 - our own code
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "42\n", "")
