"""The nightly trials themselves, each for some seconds: what they look for is not there, and they find what is."""

import errno
import random
import sqlite3
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from time import monotonic

import pytest

import night_failpoints
import night_fuzz
import night_power
import night_soak
from night_story import Acknowledged, House, Mode, Shim, Story, audit, build_shim
from shikisha.evals.tasksets.taskset_loader import LAYOUTS
from shikisha.outcomes.importers.importer_registry import SOURCE_KINDS

WRITER = """
import sqlite3, sys
with sqlite3.connect(sys.argv[1], isolation_level=None) as opened:
    opened.execute("PRAGMA journal_mode = WAL")
    opened.execute("PRAGMA synchronous = FULL")
    opened.execute("CREATE TABLE t (a)")
    opened.execute("INSERT INTO t VALUES (1)")
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = build_shim(tmp_path_factory.mktemp("shim"))
    if made is None:
        pytest.skip("no C compiler here")
    return made


def write(shim: Shim) -> subprocess.CompletedProcess[bytes]:
    """Write to the watched database in a process of its own."""
    command = [str(Path(sys.executable).resolve()), "-S", "-c", WRITER, str(shim.database)]
    return subprocess.run(command, env=shim.environment, capture_output=True, timeout=60, check=False)  # noqa: S603 - our own script


# The library between SQLite and the C library


def test_every_operation_is_counted_and_recorded(tmp_path: Path, library: Path) -> None:
    shim = Shim(tmp_path, library, record=True)
    assert write(shim).returncode == 0
    done = night_power.operations(shim.log.read_bytes())
    assert sum(each.kind != 5 for each in done) == shim.done  # creations are recorded, and no writes
    disk = night_power.Disk()
    for each in done:
        disk.take(each)
    held = next(disk.states(random.Random(0), 0))  # what was synced, and no more
    for kind, content in held.items():
        path = tmp_path / {1: "again.db", 2: "again.db-wal", 3: "again.db-journal"}[kind]
        path.write_bytes(content)
    with sqlite3.connect(tmp_path / "again.db") as opened:
        assert opened.execute("SELECT a FROM t").fetchall() == [(1,)]
    opened.close()


@pytest.mark.parametrize(
    ("mode", "error", "says"), [(Mode.FAIL, errno.ENOSPC, b"full"), (Mode.FAIL, errno.EIO, b"I/O")]
)
def test_an_operation_that_is_to_fail_fails(tmp_path: Path, library: Path, mode: Mode, error: int, says: bytes) -> None:
    shim = Shim(tmp_path, library)
    shim.arm(1, mode, error)
    done = write(shim)
    assert (done.returncode, says in done.stderr, shim.acted) == (1, True, 1), done.stderr


@pytest.mark.parametrize("mode", [Mode.KILL_BEFORE, Mode.KILL_AFTER, Mode.TEAR_AND_KILL])
def test_a_process_is_killed_at_an_operation(tmp_path: Path, library: Path, mode: Mode) -> None:
    shim = Shim(tmp_path, library)
    shim.arm(5, mode)
    assert (write(shim).returncode, shim.done, shim.acted) == (-9, 5, 1)


# Failpoints


@pytest.mark.slow
@pytest.mark.parametrize("way", [night_failpoints.WAYS[0], night_failpoints.WAYS[4]], ids=lambda way: way.name)
async def test_what_was_acknowledged_survives_a_failing_disk(library: Path, way: night_failpoints.Way) -> None:
    tally = night_failpoints.Tally()
    await night_failpoints.failing_disk(way, [40], monotonic() + 60, library, tally)
    assert (tally.wrong, tally.tellings) == ({}, 1)
    assert tally.acted
    assert tally.acknowledged >= 4


@pytest.mark.full
async def test_the_audit_notices_what_is_lost_changed_or_charged_twice(tmp_path: Path, library: Path) -> None:
    shim, told = Shim(tmp_path, library), Acknowledged()
    async with night_failpoints.endpoint() as (url, ledger):
        service = House(tmp_path, url, str(shim.database), {})
        await service.up()
        try:
            await Story(service, "s", told).play()
        finally:
            await service.down()
    assert (await audit(str(shim.database), told, ledger)).wrong == []
    run = next(run for run, what in told.runs.items() if what == "twice")
    told.runs["another"] = "lost"
    told.answers[run] = "another answer"
    ledger.entries.append(next(each for each in ledger.entries if each.charged))
    wrong = " ".join((await audit(str(shim.database), told, ledger)).wrong)
    assert all(
        part in wrong for part in ("1 acknowledged runs are not there", f"run {run} was answered", "charged twice")
    )


@pytest.mark.slow
@pytest.mark.postgres
async def test_what_was_acknowledged_survives_connections_that_drop() -> None:
    tally = night_failpoints.Tally()
    await night_failpoints.failing_network([40], monotonic() + 60, tally)
    assert (tally.wrong, tally.tellings) == ({}, 2)
    assert tally.acted


# Power loss


@pytest.mark.slow
async def test_what_was_acknowledged_survives_a_power_loss_unless_the_disk_lies(tmp_path: Path, library: Path) -> None:
    (tmp_path / "served").mkdir()
    (tmp_path / "opened").mkdir()
    done, promises, answers = await night_power.record(tmp_path / "served", library, 1)
    assert {each.what for each in promises} == {"run", "key", "approved", "ended", "judged", "erased"}

    async def lost(*, lying: bool) -> list[str]:
        disk, rng, wrong = night_power.Disk(), random.Random(1), list[str]()
        for number, each in enumerate(done, 1):
            if not (lying and each.kind == 2 and number > len(done) // 3):  # a disk that says it is synced, and is not
                disk.take(each)
            if number % 60 == 0 and number > len(done) // 2:
                kept = [promise for promise in promises if promise.written <= each.end]
                for held in disk.states(rng, 1):
                    wrong += await night_power.broken(tmp_path / "opened", held, kept, answers)
        return wrong

    assert await lost(lying=False) == []
    assert any("is lost" in each for each in await lost(lying=True))


# Soak


@pytest.mark.slow
async def test_some_seconds_of_everything_at_once() -> None:
    found = await night_soak.soak(4, 8)
    assert night_soak.findings(found, 4) == []
    assert found.traffic.asked > 8


def test_what_grows_is_found() -> None:
    traffic = night_soak.Traffic(None, random.Random(0))  # type: ignore[arg-type]  # nobody asks
    samples = [
        night_soak.Sample(60.0 * at, 100 + 2.0 * at, 20 + at, 7 + at, 1_000 * at * at, 10 * at) for at in range(12)
    ]
    said = " ".join(night_soak.findings(night_soak.Soak(traffic, samples), 720))
    assert all(
        what in said for what in ("MiB of memory grow by 2.00", "descriptors grow", "threads grow", "the journal")
    )


# Fuzzing

night_fuzz.register_tasksets()


def changed(rng: random.Random, data: bytes, room: int) -> bytes:
    """Change a few bytes, without a library."""
    held = bytearray(data or b"x")
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(held) or 1)
        held[at : at + rng.randint(0, 2)] = rng.randbytes(rng.randint(0, 2))
    return bytes(held[:room])


@pytest.mark.parametrize("name", [name for name in night_fuzz.TARGETS if name not in ("tokenizer", "checkpoint")])
def test_readers_read_their_seeds_and_refuse_what_is_near_them(tmp_path: Path, name: str) -> None:
    (tmp_path / "work").mkdir()
    watch = night_fuzz.Watch(name, night_fuzz.TARGETS[name](tmp_path / "work"), tmp_path)
    rng = random.Random(name)
    for seed in watch.target.seeds[:8]:
        assert watch.one(seed) is None
        for _ in range(6):
            made = night_fuzz.mutated(seed, 65_536, rng.randrange(2**31), lambda data, room: changed(rng, data, room))
            assert watch.one(made) is None, made


def test_every_importer_and_taskset_of_rows_is_fuzzed() -> None:
    names = {f"import-{kind}" for kind in SOURCE_KINDS} | {
        f"taskset-{known}" for known, layout in LAYOUTS.items() if layout.make_item
    }
    assert names - set(night_fuzz.TARGETS) == set()


def test_what_breaks_the_property_is_found_and_kept(tmp_path: Path) -> None:
    def read(data: bytes) -> None:
        if data == b"surprise":
            raise KeyError(data)
        if data == b"typed":
            raise ValueError
        if data == b"panic":
            raise BaseException

    watch = night_fuzz.Watch("reader", night_fuzz.Target(read, (), (ValueError,)), tmp_path)
    assert watch.one(b"typed") is None
    assert str(watch.one(b"surprise")).startswith("KeyError in")
    assert str(watch.one(b"panic")).startswith("BaseException in")
    assert {path.read_bytes() for path in tmp_path.glob("*.input")} == {b"surprise", b"panic"}


@pytest.fixture
def fuzzed(tmp_path: Path) -> Path:
    if find_spec("atheris") is None:
        pytest.skip("no atheris here (scripts/setup night)")
    return tmp_path


def test_the_fuzzer_finds_its_way_by_coverage(fuzzed: Path) -> None:
    tallies = night_fuzz.fuzz(["plan"], 4, fuzzed, lambda _: None)
    assert tallies["plan"].runs > 500
    assert tallies["plan"].edges > 100
    assert night_fuzz.confirmed(fuzzed) == []
