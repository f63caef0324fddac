"""Policy files: one npz archive of arrays with one more member, `policy.json`, that describes them.

Invariants: a file is data, and nothing in it is executed (array headers are parsed here by a regular expression, since
numpy's parser evaluates a literal); the same policy produces the same bytes, so its version is a hash of them; a file
of another format, a damaged file, or one whose arrays do not fit its workers and types is a ConfigError that says so;
all sizes are checked before anything is unpacked, so reading takes bounded work.
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
from typing import ClassVar, TypeAlias

import numpy as np
from pydantic import ValidationError

from shikisha.core.errors import ConfigError
from shikisha.core.fast_dataclass import dataclass
from shikisha.core.task import scope_as_json
from shikisha.core.toml import Table, first_invalid
from shikisha.evals.graders.canonical_form import AnswerForm
from shikisha.routing.arrays import Flags, Floats, Ints
from shikisha.routing.boosted_scorer import NUM_CANDIDATE_FEATURES, BoostedTrees
from shikisha.routing.policy_data import Baseline, Candidate, KnownWorker, Policy, PolicyOrigin, PolicyUsage
from shikisha.routing.state import (
    NO_ANSWER,
    NO_WORKER,
    OPEN_FORM,
    SHIP,
    WEAKLY_PENALIZED,
    WEAKLY_PENALIZED_AT_START,
    Actions,
    ArrayMap,
    DecisionRule,
    DecisionState,
    LengthScales,
    TaskTypes,
    group_by_asked,
)
from shikisha.routing.stopping_rule import StoppingRule
from shikisha.routing.table_rule import TableRule
from shikisha.routing.text_features import PROMPT_BUCKETS
from shikisha.routing.trade_off import TradeOff

# The cascade rule: ask cheap workers before expensive ones and stop at the first confident answer (FrugalGPT).
#
# Policies of before December 2026 hold it; it gained nothing on logs of others, and is fitted no more.
# Each task type has its order of workers. Confidence in the latest answer is logistic in the task's type, how unusually
# long the output is, and whether it agrees with each earlier answer (Chen et al., arXiv
# 2305.05176). Invariants: a missing answer never stops the cascade; it ships the last answer
# that was given.

END_OF_ORDER = -1
CascadeSteps: TypeAlias = tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True)
class CascadeRule:
    """`orders` [L, D + 1, S] of workers, padded with END_OF_ORDER, and `thresholds` of the same shape.

    A step ships from its threshold of confidence on. The last row of types is for unknown types. `confidences` maps
    each sequence of asked workers to the weights of its `confidence_features`. `spares` [J] lists all workers: the
    first available one replaces an order of which none is available.
    """

    kind: ClassVar[str] = "cascade"
    orders: Ints
    thresholds: Floats
    confidences: Mapping[tuple[int, ...], Floats]
    scales: LengthScales
    spares: Ints

    @property
    def settings(self) -> int:
        """One for each set of orders with their thresholds."""
        return len(self.orders)

    def act(self, state: DecisionState, setting: int) -> Actions:
        """Ask the next worker in order, or ship where confidence suffices."""
        ask, ship = np.full(len(state), SHIP, np.int64), np.full(len(state), NO_WORKER, np.int64)
        for kind in np.unique(state.batch.types):
            rows = np.flatnonzero(state.batch.types == kind)
            group, steps = state.at(rows), self.steps(setting, kind, state.may_ask)
            for asked, own in group_by_asked(group):
                ask[rows[own]], ship[rows[own]] = self._act(group.at(own), asked, steps)
        return Actions(ask, ship)

    def steps(self, setting: int, kind: int, may_ask: Flags) -> CascadeSteps:
        """Return the available workers to ask in turn for tasks of this type, with their thresholds."""
        order = zip(self.orders[setting, kind].tolist(), self.thresholds[setting, kind].tolist(), strict=True)
        available = tuple((worker, least) for worker, least in order if worker != END_OF_ORDER and may_ask[worker])
        return available or tuple((int(worker), 1.0) for worker in self.spares if may_ask[worker])[:1]

    def confidence(self, state: DecisionState, asked: tuple[int, ...]) -> Floats:
        """Return [T], the probability that the last worker's answer is right; 0 for a sequence without weights."""
        if asked not in self.confidences:
            return np.zeros(len(state))
        return sigmoid(confidence_features(state, asked, self.scales), self.confidences[asked])

    def to_arrays(self) -> ArrayMap:
        """Return its arrays; the weights of a sequence are named like `confidence 3 0`."""
        arrays: dict[str, Floats] = {
            "orders": self.orders.astype(float),
            "thresholds": self.thresholds,
            "written": self.scales.written,
            "spread": self.scales.spread,
            "spares": self.spares.astype(float),
        }
        return arrays | {" ".join(["confidence", *map(str, at)]): weights for at, weights in self.confidences.items()}

    @classmethod
    def of(cls, arrays: ArrayMap) -> "CascadeRule":
        """Return the cascade with these arrays."""
        confidences = {
            tuple(map(int, name.split()[1:])): weights
            for name, weights in arrays.items()
            if name.startswith("confidence")
        }
        scales = LengthScales(arrays["written"], arrays["spread"])
        orders, spares = arrays["orders"].astype(np.int64), arrays["spares"].astype(np.int64)
        return cls(orders, arrays["thresholds"], confidences, scales, spares)

    def _act(self, state: DecisionState, asked: tuple[int, ...], steps: CascadeSteps) -> tuple[Ints, Ints]:
        order = [worker for worker, _ in steps]
        past = [worker for worker in order if worker in asked]
        ship = _last_answering(state, [*(worker for worker in asked if worker not in order), *past])
        index = order.index(past[-1]) if past else -1
        if index + 1 == len(order):
            return np.full(len(state), SHIP, np.int64), ship
        if not past:
            return np.full(len(state), order[0], np.int64), ship
        # A call that others wait for must promise more than one that nobody does.
        sure = self.confidence(state, tuple(past)) >= steps[index][1] - state.pressures()[order[index + 1]]
        return np.where(sure & (state.codes[:, past[-1]] > NO_ANSWER), SHIP, order[index + 1]), ship


def confidence_features(state: DecisionState, asked: tuple[int, ...], scales: LengthScales) -> Floats:
    """Return [T, 3 + D + n (2 + D)] features of confidence in the last of `asked`, after n others.

    A constant, the length of its answer, 0, the type; for each earlier worker, no answer, agreement, and agreement by
    type.
    """
    last, known = asked[-1], len(scales.written) - 1
    code, types = state.codes[:, last], np.eye(known + 1)[state.batch.types][:, :known]
    # The third column was of a model that left; files keep its weight, which counts for nothing.
    columns = [np.ones((len(state), 1)), scales.lengths(state, (last,)), np.zeros((len(state), 1)), types]
    for worker in asked[:-1]:
        agrees = ((state.codes[:, worker] == code) & (code > NO_ANSWER))[:, None].astype(float)
        columns += [(state.codes[:, worker] <= NO_ANSWER)[:, None].astype(float), agrees, agrees * types]
    return np.concatenate(columns, axis=1)


def sigmoid(features: Floats, weights: Floats) -> Floats:
    """Return [T], the logistic function of features times weights."""
    probability: Floats = 1 / (1 + np.exp(-np.clip(features @ weights, -30, 30)))
    return probability


def _last_answering(state: DecisionState, past: list[int]) -> Ints:
    """Return [T], the last of these workers that gave an answer."""
    last = np.full(len(state), NO_WORKER, np.int64)
    for worker in past:
        last = np.where(state.codes[:, worker] > NO_ANSWER, worker, last)
    return last


# Columns of a prompt's shape.
_PROMPT_SHAPE_SIZE = 4
# Columns of a state per asked worker.
_FEATURES_PER_WORKER = 7
_KNOWN_FORMS = {*map(str, AnswerForm), OPEN_FORM}
FORMAT = 1
RULE_TYPES: Mapping[str, Callable[[ArrayMap], DecisionRule]] = {
    TableRule.kind: TableRule.of,
    CascadeRule.kind: CascadeRule.of,
    StoppingRule.kind: StoppingRule.of,
}
# Fixed, so that equal policies are equal files.
_MEMBER_TIME = (1980, 1, 1, 0, 0, 0)
_HABITS, _HEARING = "habits/", "hearing/"
# What files of earlier versions may hold, and no version fits any more.
_GONE = (
    "it holds {what}, which brought nothing on logs of others and left: learn the policy again, with "
    "`shikisha learn LOG --out FILE`"
)
# Typical files have a few hundred thousand bytes.
MAX_FILE_BYTES = 2**26
# Limits of unpacked bytes, of all members and of `policy.json`.
_MAX_UNPACKED_BYTES, _MAX_METADATA_BYTES = 2**27, 2**23
# Enough for ten thousand members.
_MAX_DIRECTORY_BYTES = 2**20
# the record that ends an archive, and how many bytes of a remark may stand behind it
_END_RECORD, _END_RECORD_BYTES, _MAX_COMMENT_BYTES = b"PK\x05\x06", 22, 2**16
# The header that numpy's `write_array` puts before floats in C order; its two length bytes may be any.
_ARRAY = re.compile(
    rb"\x93NUMPY\x01\x00..\{'descr': '<f([48])', 'fortran_order': False, 'shape': \(([0-9, ]{0,80})\), \} *\n",
    re.DOTALL,
)
_DAMAGED = (zipfile.BadZipFile, zlib.error, struct.error, KeyError, IndexError, ValueError, EOFError, OSError)
# Deeply nested JSON, encrypted or malformed archives.
_HOSTILE = (MemoryError, OverflowError, RuntimeError)


def find_flaws(policy: Policy) -> Iterator[str]:
    """Yield descriptions of what does not fit together; nothing where all does.

    A policy without flaws can act on any task without numpy errors.
    """
    workers, kinds = len(policy.workers), len(policy.types.names)
    if not workers or len(set(policy.names)) < workers:
        yield "workers: expected at least one, with distinct names"
    types = policy.types
    if len(types.forms) != len(types.names):
        yield f"forms: {len(types.forms)} of them for {len(types.names)} types"
    for form in {*types.forms, types.form} - _KNOWN_FORMS:
        yield f"forms: unknown form {form!r}; known are {', '.join(sorted(_KNOWN_FORMS))}"
    if types.centres.size and types.centres.shape != (len(types.names), PROMPT_BUCKETS):
        yield _shape_mismatch("centres", types.centres, (len(types.names), PROMPT_BUCKETS))
    rule_flaws = [flaw for index, part in enumerate(policy.parts) for flaw in _check_rule(index, part, kinds, workers)]
    yield from rule_flaws
    if policy.kept not in [candidate.name for candidate in policy.rungs]:
        yield f"kept: {policy.kept!r} is not among the candidates (rungs)"
    for candidate in policy.rungs if not rule_flaws else ():
        yield from (f"rung {candidate.name!r}: {flaw}" for flaw in _check_trade_off(candidate.dial, policy.parts))
    if policy.habits is not None and policy.habits.asked.shape[1:] != (kinds + 1, workers):
        yield f"habits: {_shape_mismatch('asked', policy.habits.asked[0], (kinds + 1, workers))}"


def _check_trade_off(trade_off: TradeOff, parts: tuple[DecisionRule, ...]) -> Iterator[str]:
    if not trade_off.points:
        yield "its dial has no points"
    if not (isfinite(trade_off.unit) and isfinite(trade_off.best_single)):
        yield "its dial's unit or best single worker is not a number"
    for point in trade_off.points:
        if not 0 <= point.part < len(parts) or not 0 <= point.setting < parts[point.part].settings:
            yield f"there is no setting {point.setting} of a part {point.part}"
        if not (isfinite(point.cost) and isfinite(point.accuracy)):
            yield f"setting {point.setting} of part {point.part}: cost or accuracy is not a number"


def _check_rule(index: int, part: DecisionRule, kinds: int, workers: int) -> Iterator[str]:
    flaws: Iterable[str] = ()
    match part:
        case TableRule():
            flaws = _check_table(part, kinds, workers)
        case CascadeRule():
            flaws = _check_cascade(part, kinds, workers)
        case StoppingRule():
            flaws = _check_stopping(part, kinds, workers)
    return (f"part {index} ({part.kind}): {flaw}" for flaw in flaws)


def _check_table(part: TableRule, kinds: int, workers: int) -> Iterator[str]:
    cells, settings = (kinds + 1, workers), part.prices.size
    yield from _check_shapes(
        ("success", part.success, cells), ("cost", part.cost, cells), ("prices", part.prices, (settings,))
    )
    yield from _check_shapes(("bonus", part.bonus, (settings, workers)))


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
            yield f"confidence: {asked} is not a sequence of its workers"
        size = 3 + kinds + max(0, len(asked) - 1) * (2 + kinds)
        yield from _check_shapes((f"confidence {asked}", weights, (size,)))


def _check_stopping(part: StoppingRule, kinds: int, workers: int) -> Iterator[str]:
    scorer, pool = part.scorer, part.workers
    yield from _check_shapes(("none", scorer.none, (kinds + 1,)), ("support", scorer.support, (kinds + 1, workers)))
    yield from _check_shapes(("pairs", scorer.pairs, (workers, workers)))
    yield from _check_scales(part.scales, kinds, workers)
    if part.boost is not None:
        yield from _check_trees(part.boost)
    if () not in part.gains or tuple(sorted({*pool} & {*range(workers)})) != pool:
        yield "gains: expected an entry for the first ask, with workers in ascending order"
        return
    settings = part.gains[()].shape[-1] if part.gains[()].ndim else 0
    for asked, gains in part.gains.items():
        if tuple(sorted({*asked} & {*pool})) != asked:
            yield f"gains: {asked} are not its workers in ascending order"
        looks = (
            WEAKLY_PENALIZED + _PROMPT_SHAPE_SIZE + 2 * kinds + _FEATURES_PER_WORKER * len(asked)
            if asked
            else WEAKLY_PENALIZED_AT_START + kinds
        )
        yield from _check_shapes((f"gains {asked}", gains, (looks, len(pool) - len(asked), settings)))


def _check_trees(trees: BoostedTrees) -> Iterator[str]:
    """Every walk ends: a child stands behind its parent, or is the node itself."""
    shape = trees.feature.shape
    if len(shape) != 2 or not trees.feature.size:
        yield f"boost feature: expected trees of nodes, found the shape {shape}"
        return
    arrays = (("threshold", trees.threshold), ("left", trees.left), ("right", trees.right), ("value", trees.value))
    flaws = list(_check_shapes(*((f"boost {name}", array, shape) for name, array in arrays)))
    yield from flaws
    if not ((trees.feature >= 0) & (trees.feature < NUM_CANDIDATE_FEATURES)).all():
        yield f"boost feature: a column is from 0 to {NUM_CANDIDATE_FEATURES - 1}"
    own = np.arange(shape[1])
    for name, child in (("left", trees.left), ("right", trees.right)) if not flaws else ():
        if not ((child >= own) & (child < shape[1])).all():
            yield f"boost {name}: a child is from its parent's place to {shape[1] - 1}"


def _check_scales(scales: LengthScales, kinds: int, workers: int) -> Iterator[str]:
    yield from _check_shapes(("written", scales.written, (kinds + 1, workers)), ("spread", scales.spread, (workers,)))
    if not (scales.spread > 0).all():
        yield "spread: expected numbers above 0"


def _check_shapes(*arrays: tuple[str, Floats | Ints | Flags, tuple[int, ...]]) -> Iterator[str]:
    return (_shape_mismatch(name, array, shape) for name, array, shape in arrays if array.shape != shape)


def _check_workers(name: str, places: Ints, known: range) -> Iterator[str]:
    if not np.isin(places, list(known)).all():
        yield f"{name}: a worker's index is from {known.start} to {known.stop - 1}"


def _shape_mismatch(name: str, array: Floats | Ints | Flags, shape: tuple[int, ...]) -> str:
    return f"{name}: expected the shape {shape}, found {array.shape}"


class _PolicyFile(Table):
    """The content of `policy.json`."""

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
    about = {name: value for name, value in asdict(policy.about).items() if value is not None}
    about["scope"] = scope_as_json(policy.about.scope)
    metadata = {
        "format": FORMAT,
        "kept": policy.kept,
        "about": about,
        "workers": [asdict(worker) for worker in policy.workers],
        "types": policy.types.names,
        "forms": policy.types.forms,
        "form": policy.types.form,
        "parts": [part.kind for part in policy.parts],
        "rungs": [asdict(candidate) for candidate in policy.rungs],
        "yardsticks": [asdict(yardstick) for yardstick in policy.yardsticks],
    }
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        _write_member(archive, "policy.json", json.dumps(metadata, ensure_ascii=False, indent=1).encode())
        if len(policy.types.centres):
            _write_member(archive, "centres.npy", _encode_array(policy.types.centres))
        for index, part in enumerate(policy.parts):
            for name, array in sorted(part.to_arrays().items()):
                _write_member(archive, f"{index}/{name}.npy", _encode_array(array))
        for name, array in sorted(policy.habits.to_arrays().items() if policy.habits else ()):
            _write_member(archive, f"{_HABITS}{name}.npy", _encode_array(array))
    return buffer.getvalue()


def save_policy(policy: Policy, path: Path) -> str:
    """Write a policy and return its version."""
    data = serialize_policy(policy)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written: {error.strerror}") from None
    return policy_version(data)


def policy_version(data: bytes) -> str:
    """Return the version of a policy file's bytes."""
    return sha256(data).hexdigest()[:12]


def load_policy(path: Path) -> tuple[Policy, str]:
    """Read a policy and its version; ConfigError if it is none."""
    try:
        data = read_policy_bytes(path)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    return parse_policy(data, str(path)), policy_version(data)


def read_policy_bytes(path: Path) -> bytes:
    """Return a policy file's bytes; OSError if unreadable, ConfigError if larger than any policy."""
    with path.open("rb") as file:
        data = file.read(MAX_FILE_BYTES + 1)
    if len(data) > MAX_FILE_BYTES:
        raise ConfigError(f"{path}: not a policy file: more than {MAX_FILE_BYTES:,} bytes")
    return data


def parse_policy(data: bytes, where: str) -> Policy:
    """Return the policy of a file's bytes; ConfigError, naming `where`, if it is none."""
    try:
        # Refuse an archive with a long directory, which zipfile reads whole on opening.
        tail = data[-_END_RECORD_BYTES - _MAX_COMMENT_BYTES :]
        for index in (len(tail) - _END_RECORD_BYTES, tail.rfind(_END_RECORD)):
            record = tail[max(0, index) : max(0, index) + _END_RECORD_BYTES]
            if record.startswith(_END_RECORD) and len(record) == _END_RECORD_BYTES:
                (size,) = struct.unpack_from("<I", record, 12)
                if size > _MAX_DIRECTORY_BYTES:
                    raise ValueError(f"a directory of {size:,} bytes; at most {_MAX_DIRECTORY_BYTES:,} are allowed")
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            _check_size(archive)
            metadata = json.loads(archive.read("policy.json"))
            version = metadata.get("format") if isinstance(metadata, dict) else None
            if version != FORMAT:
                raise ConfigError(f"{where}: a policy file of format {version!r}; this version reads format {FORMAT}")
            file = _PolicyFile.model_validate(metadata)
            arrays = {
                name.removesuffix(".npy"): _read_array(archive, name)
                for name in [name for name in archive.namelist() if name.endswith(".npy")]
            }
    except ConfigError:
        raise
    except ValidationError as error:
        raise ConfigError(f"{where}: policy.json: {first_invalid(error)}") from None
    except (*_DAMAGED, *_HOSTILE) as error:
        raise ConfigError(f"{where}: not a policy file: {error or type(error).__name__}") from None
    return _build_policy(file, arrays, where)


def _build_policy(file: _PolicyFile, arrays: Mapping[str, Floats], where: str) -> Policy:
    for what, held in (
        ("a router of prompts", "router" in file.parts),
        ("a model of words in answers", any(name.startswith(_HEARING) for name in arrays)),
    ):
        if held:
            raise ConfigError(f"{where}: {_GONE.format(what=what)}")
    parts = []
    for index, name in enumerate(file.parts):
        if name not in RULE_TYPES:
            raise ConfigError(f"{where}: a part of unknown kind {name!r}: known are {', '.join(RULE_TYPES)}")
        try:
            parts.append(RULE_TYPES[name](_strip_prefix(f"{index}/", arrays)))
        except KeyError as missing:
            raise ConfigError(f"{where}: part {index} ({name}) lacks the array {missing}") from None
        except (ValueError, IndexError, TypeError) as error:
            raise ConfigError(f"{where}: part {index} ({name}): {error}") from None
    centres = {"centres": arrays["centres"]} if "centres" in arrays else {}
    types = TaskTypes(file.types, file.forms, file.form, **centres)
    policy = Policy(file.about, file.workers, types, tuple(parts), file.rungs, file.kept, file.yardsticks)
    usage_arrays = _strip_prefix(_HABITS, arrays)
    try:
        whole = replace(policy, habits=PolicyUsage.of(usage_arrays) if usage_arrays else None)
    except KeyError as missing:
        raise ConfigError(f"{where}: its habits lack the array {missing}") from None
    except (ValueError, TypeError) as error:
        raise ConfigError(f"{where}: its habits: {error}") from None
    for flaw in find_flaws(whole):
        raise ConfigError(f"{where}: {flaw}")
    return whole


def _strip_prefix(prefix: str, arrays: Mapping[str, Floats]) -> dict[str, Floats]:
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}


def _check_size(archive: zipfile.ZipFile) -> None:
    members = archive.infolist()
    size = sum(member.file_size for member in members)
    if size > _MAX_UNPACKED_BYTES:
        raise ValueError(f"{size:,} bytes unpacked; at most {_MAX_UNPACKED_BYTES:,} are allowed")
    if len({member.filename for member in members}) < len(members):
        raise ValueError("two members have the same name")
    if any(member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) for member in members):
        raise ValueError("a member with another compression method")
    if (said := archive.getinfo("policy.json").file_size) > _MAX_METADATA_BYTES:
        raise ValueError(f"policy.json has {said:,} bytes; at most {_MAX_METADATA_BYTES:,} are allowed")


def _read_array(archive: zipfile.ZipFile, name: str) -> Floats:
    data = archive.read(name)
    header = _ARRAY.match(data)
    if header is None:
        raise ValueError(f"{name}: not an array of little-endian floats")
    shape = tuple(int(size) for size in header[2].decode().replace(",", " ").split())
    wide = int(header[1])
    if len(data) - header.end() != wide * prod(shape):
        raise ValueError(f"{name}: {len(data) - header.end():,} bytes do not fit the shape {shape}")
    array = np.frombuffer(data, f"<f{wide}", offset=header.end()).reshape(shape).astype(np.float64)
    if not np.isfinite(array).all():
        raise ValueError(f"{name}: contains values that are not finite")
    return array


def _encode_array(array: Floats) -> bytes:
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, np.ascontiguousarray(array, np.float32), allow_pickle=False)
    return buffer.getvalue()


def _write_member(archive: zipfile.ZipFile, name: str, data: bytes) -> None:
    member = zipfile.ZipInfo(name, _MEMBER_TIME)
    member.compress_type = zipfile.ZIP_DEFLATED
    archive.writestr(member, data)
