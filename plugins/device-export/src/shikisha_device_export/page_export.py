"""A static page that decides on the device, with ONNX Runtime compiled to WebAssembly.

The page holds the table of a learned policy as `policy.onnx`, which names workers of `pool.json`; each worker is on the
device or behind the server. Invariants: the page decides as this package does, or the server decides; a task that is
marked private is offered the device's workers only, and its text is in no request. Deliberately absent: the other kinds
of policies, whose features of a prompt are not on the device.
"""

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path

import numpy as np

from shikisha.core.call import Card
from shikisha.core.errors import ConfigError, MissingExtra
from shikisha.routing.policy_data import Policy
from shikisha.routing.policy_file import load_policy
from shikisha.routing.table_rule import TableRule
from shikisha.routing.text_features import PROMPT_BUCKETS
from shikisha.routing.trade_off import OperatingTarget

PAGE_FOLDER = Path(__file__).parent / "web"
RUNTIME_FILES = ("ort.wasm.min.mjs", "ort-wasm-simd-threaded.mjs", "ort-wasm-simd-threaded.wasm")
RUNTIME_VERSION = "1.30.0"
POLICY_FILE, POOL_FILE = "policy.onnx", "pool.json"
_TABLE_RUNG = "table"
_OPSET, _IR_VERSION = 17, 8  # what ONNX Runtime reads everywhere, in browsers too


@dataclass(frozen=True, slots=True)
class WebExport:
    """What to export: a policy's file, the pool, and which workers are on the device.

    `server`: the origin that does what the device cannot, "" for the origin of the page; `runtime`: the folder `dist`
    of the npm package onnxruntime-web.
    """

    policy: Path
    cards: tuple[Card, ...]
    device: frozenset[str]
    runtime: Path
    server: str = ""

    def write(self, to: Path) -> Sequence[str]:
        """Write the page into a new folder, and return the names of its files; ConfigError says what is missing."""
        if unknown := self.device - {card.name for card in self.cards}:
            raise ConfigError(f"--device: {min(unknown)!r} is no worker of the pool")
        absent = [name for name in RUNTIME_FILES if not (self.runtime / name).is_file()]
        if absent:
            raise ConfigError(
                f"--runtime: {self.runtime} has no {absent[0]}: expected the folder dist of the npm package "
                f"onnxruntime-web {RUNTIME_VERSION} (npm pack onnxruntime-web@{RUNTIME_VERSION}, unpacked)"
            )
        graph, facts = policy_graph(self.policy)  # read and checked before anything is written
        if to.exists() and any(to.iterdir()):
            raise ConfigError(f"{to}: there is something already: expected a new or an empty folder")
        to.mkdir(parents=True, exist_ok=True)
        for file in sorted(PAGE_FOLDER.iterdir()):
            shutil.copyfile(file, to / file.name)
        for name in RUNTIME_FILES:
            shutil.copyfile(self.runtime / name, to / name)
        (to / POLICY_FILE).write_bytes(graph)
        (to / POOL_FILE).write_text(json.dumps({**self._pool(), "policy": facts}, indent=1), encoding="utf-8")
        page = to / "index.html"
        page.write_text(page.read_text(encoding="utf-8").replace("SERVER", self.server), encoding="utf-8")
        kept = sorted(file.name for file in to.iterdir() if file.name != "sw.js")
        version = sha256(b"".join(sha256((to / name).read_bytes()).digest() for name in kept)).hexdigest()[:12]
        listed = f"const VERSION = {json.dumps(version)}, FILES = {json.dumps(['./', *kept])};\n"
        (to / "sw.js").write_text(listed + (to / "sw.js").read_text(encoding="utf-8"), encoding="utf-8")
        return [*kept, "sw.js"]

    def _pool(self) -> dict[str, object]:
        """Return what the page reads of the pool."""
        workers = [
            {
                "name": card.name,
                "description": " ".join(card.description.split()),
                "price": None if card.price is None else asdict(card.price),
                "device": card.name in self.device,
            }
            for card in self.cards
        ]
        return {"workers": workers, "server": self.server}


def policy_graph(path: Path) -> tuple[bytes, Mapping[str, object]]:
    """Return the table of a policy as an ONNX model, and what the page reads of it.

    The graph takes `type` [1], the row of the task's type (-1: unknown), or where types are clusters `words`
    [1, PROMPT_BUCKETS]; and `available` [1, J], 0 for a worker that may be asked. It returns `worth` [1, J].
    """
    policy, version = load_policy(path)
    if _TABLE_RUNG not in [rung.name for rung in policy.rungs]:
        raise ConfigError(f"{path}: has no table; only the table of a policy runs on a device")
    mix = policy.mix(OperatingTarget(), _TABLE_RUNG)
    point = mix.high if mix.share >= 0.5 else mix.low
    rule = policy.parts[point.part]
    if not isinstance(rule, TableRule) or rule.sway:
        raise ConfigError(f"{path}: its table divides types at random, for load limits: that stays on the server")
    return _table_graph(policy, rule.worth(point.setting)), {
        "version": version,
        "workers": list(policy.names),
        "types": list(policy.types.names),
        "clusters": bool(len(policy.types.centres)),
        "buckets": PROMPT_BUCKETS,
    }


def _table_graph(policy: Policy, worth: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> bytes:
    try:
        from onnx import TensorProto, helper, numpy_helper
    except ImportError:
        raise MissingExtra("train", "exporting a policy") from None
    centres, workers = policy.types.centres, worth.shape[1]
    inputs = [helper.make_tensor_value_info("available", TensorProto.FLOAT, [1, workers])]
    constants = [numpy_helper.from_array(worth.astype(np.float32), "table")]
    if len(centres):
        inputs.append(helper.make_tensor_value_info("words", TensorProto.FLOAT, [1, PROMPT_BUCKETS]))
        constants.append(numpy_helper.from_array(np.ascontiguousarray(centres.T).astype(np.float32), "centres"))
        nodes = [
            helper.make_node("MatMul", ["words", "centres"], ["near"]),
            helper.make_node("ArgMax", ["near"], ["type"], axis=1, keepdims=0),
        ]
    else:
        inputs.append(helper.make_tensor_value_info("type", TensorProto.INT64, [1]))
        nodes = []
    nodes.append(helper.make_node("Gather", ["table", "type"], ["row"], axis=0))
    nodes.append(helper.make_node("Add", ["row", "available"], ["worth"]))
    outputs = [helper.make_tensor_value_info("worth", TensorProto.FLOAT, [1, workers])]
    graph = helper.make_graph(nodes, "policy", inputs, outputs, constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", _OPSET)], producer_name="shikisha")
    model.ir_version = _IR_VERSION
    return bytes(model.SerializeToString())
