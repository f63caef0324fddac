"""Policy files: one archive of arrays (npz) with one more member, `policy.json`, that says what they are.

Invariants: a file is data (nothing in it is ever executed; an array is one of little-endian floats, whose header is
read here and by no parser of expressions); the same policy makes the same bytes, so its version, a hash of them, names
it; a file of another format, or one that is damaged, is a ConfigError that says so; what it says of its own size is
checked before anything is unpacked, so reading one is bounded work. Deliberately absent: several versions of the format
(there is one).

Whether a policy that was read fits together: every array the shape that its workers and types ask for.

Invariant: what has no flaw can be asked to act on any task without an error of numpy's. Deliberately absent: whether a
policy is any good, and reading it (`file`).
"""

import io
import json
import re
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, replace
from hashlib import sha256
from math import isfinite, prod
from pathlib import Path

import numpy as np
from pydantic import BaseModel, ConfigDict, ValidationError

from shikisha.core.errors import ConfigError
from shikisha.evals.graders.canonical_form import AnswerForm
from shikisha.routing.arrays import Flags, Floats, Ints
from shikisha.routing.cascade_rule import CascadeRule
from shikisha.routing.policy_data import Baseline, Candidate, KnownWorker, Policy, PolicyOrigin, PolicyUsage
from shikisha.routing.router_rule import ALL_TYPES, WORD_BUCKETS, RouterRule, SuccessMaps
from shikisha.routing.state import (
    OPEN_FORM,
    WEAKLY_PENALIZED,
    WEAKLY_PENALIZED_AT_START,
    ArrayMap,
    DecisionRule,
    LengthScales,
    TaskTypes,
)
from shikisha.routing.stopping_rule import StoppingRule
from shikisha.routing.table_rule import TableRule
from shikisha.routing.text_features import NUM_SHAPE_FEATURES, PROMPT_BUCKETS, RESPONSE_BUCKETS, ResponseModel
from shikisha.routing.trade_off import TradeOff

_PROMPT_SHAPE_SIZE = 4  # numbers that say what a prompt is like, before a state's types
_FEATURES_PER_WORKER = 7  # numbers that a state has for each worker that was asked
_KNOWN_FORMS = {*map(str, AnswerForm), OPEN_FORM}


def find_flaws(policy: Policy) -> Iterator[str]:
    """Yield what does not fit, in words; nothing where all does."""
    workers, kinds = len(policy.workers), len(policy.types.names)
    if not workers or len(set(policy.names)) < workers:
        yield "workers: expected some, each with a name of its own"
    yield from _check_types(policy.types)
    found = [flaw for place, part in enumerate(policy.parts) for flaw in _check_rule(place, part, kinds, workers)]
    yield from found
    if policy.kept not in [rung.name for rung in policy.rungs]:
        yield f"kept: {policy.kept!r} is none of its rungs"
    for rung in policy.rungs if not found else ():
        yield from (f"rung {rung.name!r}: {flaw}" for flaw in _check_trade_off(rung.dial, policy.parts))
    if policy.hearing is not None:
        yield from (f"hearing: {flaw}" for flaw in _check_response_model(policy.hearing, kinds, workers))
    if policy.habits is not None and policy.habits.scored.shape != (kinds + 1, workers):
        yield f"habits: {_shape_mismatch('scored', policy.habits.scored, (kinds + 1, workers))}"


def _check_types(types: TaskTypes) -> Iterator[str]:
    if len(types.forms) != len(types.names):
        yield f"forms: {len(types.forms)} of them for {len(types.names)} types"
    for form in {*types.forms, types.form} - _KNOWN_FORMS:
        yield f"forms: {form!r} is none that is known: {', '.join(sorted(_KNOWN_FORMS))}"
    if types.centres.size and types.centres.shape != (len(types.names), PROMPT_BUCKETS):
        yield _shape_mismatch("centres", types.centres, (len(types.names), PROMPT_BUCKETS))


def _check_trade_off(dial: TradeOff, parts: tuple[DecisionRule, ...]) -> Iterator[str]:
    if not dial.points:
        yield "its dial has no point"
    if not (isfinite(dial.unit) and isfinite(dial.best_single)):
        yield "its dial's unit or best single worker is no number"
    for point in dial.points:
        if not 0 <= point.part < len(parts) or not 0 <= point.setting < parts[point.part].settings:
            yield f"there is no setting {point.setting} of a part {point.part}"
        if not (isfinite(point.cost) and isfinite(point.accuracy)):
            yield f"setting {point.setting} of part {point.part}: cost or accuracy is no number"


def _check_response_model(held: ResponseModel, kinds: int, workers: int) -> Iterator[str]:
    yield from _check_shapes(
        ("weights", held.weights, (workers, RESPONSE_BUCKETS)), ("rarity", held.rarity, (RESPONSE_BUCKETS,))
    )
    yield from _check_shapes(("usual", held.usual, (kinds + 1, workers)), ("heard", held.heard, (workers,)))


def _check_rule(place: int, part: DecisionRule, kinds: int, workers: int) -> Iterator[str]:
    found: Iterable[str] = ()
    match part:
        case TableRule():
            found = _check_table(part, kinds, workers)
        case RouterRule():
            found = (*_check_table(part.table, kinds, workers), *_check_maps(part.maps, kinds, workers))
        case CascadeRule():
            found = _check_cascade(part, kinds, workers)
        case StoppingRule():
            found = _check_stopping(part, kinds, workers)
    return (f"part {place} ({part.kind}): {flaw}" for flaw in found)


def _check_table(part: TableRule, kinds: int, workers: int) -> Iterator[str]:
    cells, settings = (kinds + 1, workers), part.prices.size
    yield from _check_shapes(
        ("success", part.success, cells), ("cost", part.cost, cells), ("prices", part.prices, (settings,))
    )
    yield from _check_shapes(("bonus", part.bonus, (settings, workers)))


def _check_maps(held: SuccessMaps, kinds: int, workers: int) -> Iterator[str]:
    places, size = held.lexicon.places, held.lexicon.places.size
    yield from _check_shapes(("places", places, (size,)), ("rarity", held.lexicon.rarity, (size,)))
    yield from _check_shapes(("weights", held.weights, (size, workers)))
    if (np.diff(places.ravel()) <= 0).any() or (places < 0).any():
        yield "places: expected ascending numbers from 0"
    for one in held.maps:
        yield from _check_shapes(
            ("middles", one.scale.middle, (NUM_SHAPE_FEATURES,)), ("inverses", one.scale.inverse, (NUM_SHAPE_FEATURES,))
        )
        yield from _check_shapes(
            ("lines", one.lines, (NUM_SHAPE_FEATURES, workers)),
            ("squares", one.squares, (workers, NUM_SHAPE_FEATURES, NUM_SHAPE_FEATURES)),
        )
        yield from _check_shapes(("words", one.words, (WORD_BUCKETS, workers)), ("shifts", one.shift, (workers,)))
        if not ALL_TYPES <= one.kind < kinds:
            yield f"kinds: there is no type {one.kind}"


def _check_cascade(part: CascadeRule, kinds: int, workers: int) -> Iterator[str]:
    steps = part.orders.shape[-1] if part.orders.ndim else 0
    cells = (part.orders.shape[0] if part.orders.ndim else 0, kinds + 1, steps)
    yield from _check_shapes(("orders", part.orders, cells), ("thresholds", part.thresholds, cells))
    yield from _check_scales(part.scales, kinds, workers)
    yield from _check_workers("orders", part.orders, range(-1, workers))
    yield from _check_shapes(("spares", part.spares, (workers,)))
    yield from _check_workers("spares", part.spares, range(workers))
    for asked, weights in part.confidences.items():
        if not asked or not set(asked) <= set(range(workers)):
            yield f"confidence: {asked} is no sequence of its workers"
        size = 3 + kinds + max(0, len(asked) - 1) * (2 + kinds)
        yield from _check_shapes((f"confidence {asked}", weights, (size,)))


def _check_stopping(part: StoppingRule, kinds: int, workers: int) -> Iterator[str]:
    scorer, pool = part.scorer, part.workers
    yield from _check_shapes(("none", scorer.none, (kinds + 1,)), ("support", scorer.support, (kinds + 1, workers)))
    yield from _check_shapes(("pairs", scorer.pairs, (workers, workers)), ("sound", scorer.sound, (workers,)))
    yield from _check_scales(part.scales, kinds, workers)
    if () not in part.gains or tuple(sorted({*pool} & {*range(workers)})) != pool:
        yield "gains: expected those of asking first, for workers in ascending order"
        return
    settings = part.gains[()].shape[-1] if part.gains[()].ndim else 0
    for asked, gains in part.gains.items():
        if tuple(sorted({*asked} & {*pool})) != asked:
            yield f"gains: {asked} are no workers of its own in ascending order"
        looks = (
            WEAKLY_PENALIZED + _PROMPT_SHAPE_SIZE + 2 * kinds + _FEATURES_PER_WORKER * len(asked)
            if asked
            else WEAKLY_PENALIZED_AT_START + kinds
        )
        yield from _check_shapes((f"gains {asked}", gains, (looks, len(pool) - len(asked), settings)))


def _check_scales(scales: LengthScales, kinds: int, workers: int) -> Iterator[str]:
    yield from _check_shapes(("written", scales.written, (kinds + 1, workers)), ("spread", scales.spread, (workers,)))
    if not (scales.spread > 0).all():
        yield "spread: expected numbers above 0"


def _check_shapes(*arrays: tuple[str, Floats | Ints | Flags, tuple[int, ...]]) -> Iterator[str]:
    return (_shape_mismatch(name, array, shape) for name, array, shape in arrays if array.shape != shape)


def _check_workers(name: str, places: Ints, known: range) -> Iterator[str]:
    if not np.isin(places, list(known)).all():
        yield f"{name}: a worker's place is from {known.start} to {known.stop - 1}"


def _shape_mismatch(name: str, array: Floats | Ints | Flags, shape: tuple[int, ...]) -> str:
    return f"{name}: expected the shape {shape}, found {array.shape}"


FORMAT = 1
RULE_TYPES: Mapping[str, Callable[[ArrayMap], DecisionRule]] = {
    TableRule.kind: TableRule.of,
    RouterRule.kind: RouterRule.of,
    CascadeRule.kind: CascadeRule.of,
    StoppingRule.kind: StoppingRule.of,
}
_MEMBER_TIME = (1980, 1, 1, 0, 0, 0)  # of every member, so that equal policies are equal files
_HABITS, _HEARING = "habits/", "hearing/"
MAX_FILE_BYTES = 2**26  # bytes of a file; those in use have some hundred thousand
_MAX_UNPACKED_BYTES, _MAX_METADATA_BYTES = (
    2**27,
    2**23,
)  # bytes that all of it, and what it says of itself, may come to once it is unpacked
_MAX_DIRECTORY_BYTES = 2**20  # bytes of the archive's directory: some ten thousand members
# the record that ends an archive, and how many bytes of a remark may stand behind it
_END_RECORD, _END_RECORD_BYTES, _MAX_COMMENT_BYTES = b"PK\x05\x06", 22, 2**16
_ARRAY = re.compile(  # what `write_array` puts before floats in C order; a header's length, two bytes, may be any
    rb"\x93NUMPY\x01\x00..\{'descr': '<f([48])', 'fortran_order': False, 'shape': \(([0-9, ]{0,80})\), \} *\n",
    re.DOTALL,
)
_DAMAGED = (zipfile.BadZipFile, zlib.error, struct.error, KeyError, IndexError, ValueError, EOFError, OSError)
_HOSTILE = (MemoryError, OverflowError, RuntimeError)  # texts nested without end, locked or odd archives


class _PolicyFile(BaseModel):
    """What `policy.json` holds."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    format: int
    kept: str
    about: PolicyOrigin
    workers: tuple[KnownWorker, ...]
    types: tuple[str, ...]
    forms: tuple[str, ...]
    form: str
    parts: tuple[str, ...]
    rungs: tuple[Candidate, ...]
    yardsticks: tuple[Baseline, ...] = ()


def serialize_policy(policy: Policy) -> bytes:
    """Return a policy as the bytes of a file."""
    said = {
        "format": FORMAT,
        "kept": policy.kept,
        "about": asdict(policy.about),
        "workers": [asdict(worker) for worker in policy.workers],
        "types": policy.types.names,
        "forms": policy.types.forms,
        "form": policy.types.form,
        "parts": [part.kind for part in policy.parts],
        "rungs": [asdict(rung) for rung in policy.rungs],
        "yardsticks": [asdict(yardstick) for yardstick in policy.yardsticks],
    }
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        _write_member(archive, "policy.json", json.dumps(said, ensure_ascii=False, indent=1).encode())
        if len(policy.types.centres):
            _write_member(archive, "centres.npy", _encode_array(policy.types.centres))
        for place, part in enumerate(policy.parts):
            for name, array in sorted(part.to_arrays().items()):
                _write_member(archive, f"{place}/{name}.npy", _encode_array(array))
        for name, array in sorted(policy.habits.to_arrays().items() if policy.habits else ()):
            _write_member(archive, f"{_HABITS}{name}.npy", _encode_array(array))
        for name, array in sorted(policy.hearing.to_arrays().items() if policy.hearing else ()):
            _write_member(archive, f"{_HEARING}{name}.npy", _encode_array(array))
    return buffer.getvalue()


def save_policy(policy: Policy, path: Path) -> str:
    """Write a policy and return its version."""
    held = serialize_policy(policy)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(held)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written: {error.strerror}") from None
    return policy_version(held)


def policy_version(held: bytes) -> str:
    """Return the version of a policy file's bytes."""
    return sha256(held).hexdigest()[:12]


def load_policy(path: Path) -> tuple[Policy, str]:
    """Read a policy and its version; ConfigError when this is none."""
    try:
        held = read_policy_bytes(path)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    return parse_policy(held, str(path)), policy_version(held)


def read_policy_bytes(path: Path) -> bytes:
    """Return a policy file's bytes; OSError where it cannot be read, ConfigError where it is larger than any policy."""
    with path.open("rb") as opened:
        held = opened.read(MAX_FILE_BYTES + 1)
    if len(held) > MAX_FILE_BYTES:
        raise ConfigError(f"{path}: not a policy file: more than {MAX_FILE_BYTES:,} bytes")
    return held


def parse_policy(held: bytes, where: str) -> Policy:
    """Return the policy of a file's bytes; ConfigError, naming `where`, when it is none."""
    try:
        _check_directory(held)
        with zipfile.ZipFile(io.BytesIO(held)) as archive:
            _check_size(archive)
            said = json.loads(archive.read("policy.json"))
            found = said.get("format") if isinstance(said, dict) else None
            if found != FORMAT:
                raise ConfigError(f"{where}: a policy file of format {found!r}; this version reads format {FORMAT}")
            file = _PolicyFile.model_validate(said)
            arrays = {name.removesuffix(".npy"): _read_array(archive, name) for name in _array_names(archive)}
    except ConfigError:
        raise
    except ValidationError as error:
        first = error.errors()[0]
        raise ConfigError(f"{where}: policy.json: {'.'.join(map(str, first['loc']))}: {first['msg']}") from None
    except (*_DAMAGED, *_HOSTILE) as error:
        raise ConfigError(f"{where}: not a policy file: {error or type(error).__name__}") from None
    return _build_policy(file, arrays, where)


def _build_policy(file: _PolicyFile, arrays: Mapping[str, Floats], where: str) -> Policy:
    parts = []
    for place, kind in enumerate(file.parts):
        if kind not in RULE_TYPES:
            raise ConfigError(f"{where}: a part of unknown kind {kind!r}: known are {', '.join(RULE_TYPES)}")
        try:
            parts.append(RULE_TYPES[kind](_strip_prefix(f"{place}/", arrays)))
        except KeyError as missing:
            raise ConfigError(f"{where}: part {place} ({kind}) lacks the array {missing}") from None
        except (ValueError, IndexError, TypeError) as error:
            raise ConfigError(f"{where}: part {place} ({kind}): {error}") from None
    centres = {"centres": arrays["centres"]} if "centres" in arrays else {}
    types = TaskTypes(file.types, file.forms, file.form, **centres)
    made = Policy(file.about, file.workers, types, tuple(parts), file.rungs, file.kept, file.yardsticks)
    counted, heard = _strip_prefix(_HABITS, arrays), _strip_prefix(_HEARING, arrays)
    try:
        habits = PolicyUsage.of(counted) if counted else None
        whole = replace(made, habits=habits, hearing=ResponseModel.of(heard) if heard else None)
    except KeyError as missing:
        raise ConfigError(f"{where}: its habits or its hearing lack the array {missing}") from None
    except (ValueError, TypeError) as error:
        raise ConfigError(f"{where}: its habits or its hearing: {error}") from None
    for flaw in find_flaws(whole):
        raise ConfigError(f"{where}: {flaw}")
    return whole


def _strip_prefix(prefix: str, arrays: Mapping[str, Floats]) -> dict[str, Floats]:
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}


def _array_names(archive: zipfile.ZipFile) -> list[str]:
    return [name for name in archive.namelist() if name.endswith(".npy")]


def _check_directory(held: bytes) -> None:
    """Refuse an archive whose directory is long: it is read whole before anything can be asked of it."""
    tail = held[-_END_RECORD_BYTES - _MAX_COMMENT_BYTES :]
    for place in (len(tail) - _END_RECORD_BYTES, tail.rfind(_END_RECORD)):
        record = tail[max(0, place) : max(0, place) + _END_RECORD_BYTES]
        if record.startswith(_END_RECORD) and len(record) == _END_RECORD_BYTES:
            (size,) = struct.unpack_from("<I", record, 12)
            if size > _MAX_DIRECTORY_BYTES:
                raise ValueError(f"a directory of {size:,} bytes, and {_MAX_DIRECTORY_BYTES:,} are the most")


def _check_size(archive: zipfile.ZipFile) -> None:
    members = archive.infolist()
    size = sum(member.file_size for member in members)
    if size > _MAX_UNPACKED_BYTES:
        raise ValueError(f"unpacked it would have {size:,} bytes, and {_MAX_UNPACKED_BYTES:,} are the most")
    if len({member.filename for member in members}) < len(members):
        raise ValueError("two of its members have one name")
    if any(member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) for member in members):
        raise ValueError("a member that is packed in another way than ours")
    if (said := archive.getinfo("policy.json").file_size) > _MAX_METADATA_BYTES:
        raise ValueError(f"policy.json has {said:,} bytes, and {_MAX_METADATA_BYTES:,} are the most")


def _read_array(archive: zipfile.ZipFile, name: str) -> Floats:
    held = archive.read(name)
    told = _ARRAY.match(held)
    if told is None:
        raise ValueError(f"{name}: not an array of floats as we write them")
    shape = tuple(int(size) for size in told[2].decode().replace(",", " ").split())
    wide = int(told[1])
    if len(held) - told.end() != wide * prod(shape):
        raise ValueError(f"{name}: {len(held) - told.end():,} bytes are no array of the shape {shape}")
    array = np.frombuffer(held, f"<f{wide}", offset=told.end()).reshape(shape).astype(np.float64)
    if not np.isfinite(array).all():
        raise ValueError(f"{name}: not all in it are numbers")
    return array


def _encode_array(array: Floats) -> bytes:
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, np.ascontiguousarray(array, np.float32), allow_pickle=False)
    return buffer.getvalue()


def _write_member(archive: zipfile.ZipFile, name: str, held: bytes) -> None:
    member = zipfile.ZipInfo(name, _MEMBER_TIME)
    member.compress_type = zipfile.ZIP_DEFLATED
    archive.writestr(member, held)
