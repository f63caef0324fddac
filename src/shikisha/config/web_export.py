"""`export --web`: a static page that decides on the device, with ONNX Runtime compiled to WebAssembly.

The page holds a trained conductor (`model.onnx`, the compact prompt, greedy decoding) and, where given, the table of a
learned policy as `policy.onnx`. Both name workers of `pool.json`; each worker is on the device or behind the server.
Invariants: the page decides as this package does, or says that it cannot, and then the server decides; a plan counts
only when it passes the page's strict reader; a task that is marked private is offered the device's workers only, and
its text is in no request. Deliberately absent: the other kinds of policies, whose features of a prompt are not on the
device, and constrained decoding: a text that is no plan is a reason to ask the server.
"""

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from shikisha.conductors.onnx_checkpoint import (
    ONNX_FILE,
    TOKENIZER_FILE,
    CheckpointFacts,
    known_price_levels,
    open_onnx,
    read_tokenizer,
)
from shikisha.conductors.onnx_checkpoint import unknown_token as unknown_of
from shikisha.core.budget import Caps
from shikisha.core.call import Card
from shikisha.core.errors import ConfigError, MissingExtra
from shikisha.core.prompts import MAX_UNKNOWN_SHARE, nearest_price_level, price_level
from shikisha.routing.policy_data import Policy
from shikisha.routing.policy_file import load_policy
from shikisha.routing.table_rule import TableRule
from shikisha.routing.text_features import PROMPT_BUCKETS
from shikisha.routing.trade_off import OperatingTarget

PAGE_FOLDER = Path(__file__).parent / "web"
RUNTIME_FILES = ("ort.wasm.min.mjs", "ort-wasm-simd-threaded.mjs", "ort-wasm-simd-threaded.wasm")
RUNTIME_VERSION = "1.30.0"
DRAFT_ROWS = 9  # tokens that the page reads in one run, the drafted ones and the one before
POLICY_FILE, POOL_FILE = "policy.onnx", "pool.json"
_TABLE_RUNG = "table"
_OPSET, _IR_VERSION = 17, 8  # what ONNX Runtime reads everywhere, in browsers too


@dataclass(frozen=True, slots=True)
class WebExport:
    """What to export: a checkpoint's folder, the pool, which workers are on the device, and a policy's file, if any.

    `server`: the origin that does what the device cannot, "" for the origin of the page; `runtime`: the folder `dist`
    of the npm package onnxruntime-web.
    """

    checkpoint: Path
    cards: tuple[Card, ...]
    device: frozenset[str]
    runtime: Path
    policy: Path | None = None
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
        pool = self._pool()  # read and checked before anything is written
        policy = None if self.policy is None else policy_graph(self.policy)
        if to.exists() and any(to.iterdir()):
            raise ConfigError(f"{to}: there is something already: expected a new or an empty folder")
        to.mkdir(parents=True, exist_ok=True)
        for file in sorted(PAGE_FOLDER.iterdir()):
            shutil.copyfile(file, to / file.name)
        for name in RUNTIME_FILES:
            shutil.copyfile(self.runtime / name, to / name)
        model, rows = _with_more_rows((self.checkpoint / ONNX_FILE).read_bytes())
        (to / ONNX_FILE).write_bytes(model)
        shutil.copyfile(self.checkpoint / TOKENIZER_FILE, to / TOKENIZER_FILE)
        pool = {**pool, "rows": rows}
        if policy is not None:
            (to / POLICY_FILE).write_bytes(policy[0])
            pool = {**pool, "policy": policy[1]}
        (to / POOL_FILE).write_text(json.dumps(pool, indent=1), encoding="utf-8")
        page = to / "index.html"
        page.write_text(page.read_text(encoding="utf-8").replace("SERVER", self.server), encoding="utf-8")
        kept = sorted(file.name for file in to.iterdir() if file.name != "sw.js")
        version = sha256(b"".join(sha256((to / name).read_bytes()).digest() for name in kept)).hexdigest()[:12]
        listed = f"const VERSION = {json.dumps(version)}, FILES = {json.dumps(['./', *kept])};\n"
        (to / "sw.js").write_text(listed + (to / "sw.js").read_text(encoding="utf-8"), encoding="utf-8")
        return [*kept, "sw.js"]

    def _pool(self) -> dict[str, object]:
        """Return what the page reads of the pool and the model."""
        model = open_onnx((self.checkpoint / ONNX_FILE).read_bytes(), str(self.checkpoint / ONNX_FILE))
        facts = CheckpointFacts.read(model.metadata, str(self.checkpoint / ONNX_FILE))
        tokenizer, spelled = read_tokenizer(self.checkpoint / TOKENIZER_FILE)
        if spelled != facts.tokenizer:
            raise ConfigError(f"{self.checkpoint}: {TOKENIZER_FILE} is not the one that {ONNX_FILE} was exported with")
        read = json.loads((self.checkpoint / TOKENIZER_FILE).read_text(encoding="utf-8"))
        if read["model"]["type"] != "WordLevel" or read["pre_tokenizer"].get("type") != "Split":
            raise ConfigError(
                f"{self.checkpoint / TOKENIZER_FILE}: the page reads word-level tokenizers only, "
                f"found {read['model']['type']}"
            )
        levels = known_price_levels(tokenizer)
        workers = [
            {
                "name": card.name,
                "description": " ".join(card.description.split()),
                "level": nearest_price_level(price_level(card.price), levels),
                "price": None if card.price is None else asdict(card.price),
                "device": card.name in self.device,
            }
            for card in self.cards
        ]
        caches = asdict(model.caches)
        caps = Caps()
        return {
            "workers": workers,
            "server": self.server,
            "model": {
                "caches": caches,
                "context": model.longest,
                "ends": list(facts.ends),
                "plan_tokens": facts.longest,
                "unknown": unknown_of(tokenizer),
                "unknown_share": MAX_UNKNOWN_SHARE,
                "steps": max(1, min(caps.plan_steps, caps.steps)),
            },
        }


def _with_more_rows(model: bytes) -> tuple[bytes, int]:
    """Return a model that returns the logits of its last tokens, and of how many; as it is where that is not possible.

    The exported graph returns the last token's only. More of them let the page check several drafted tokens in one run.
    """
    if find_spec("onnx") is None:
        return model, 1
    import onnx

    read = onnx.load_from_string(model)
    constants = {each.name: each for each in read.graph.initializer}
    cut = next((node for node in reversed(read.graph.node) if node.op_type == "Slice"), None)
    start = None if cut is None else constants.get(cut.input[1])
    if cut is None or start is None or onnx.numpy_helper.to_array(start).tolist() != [-1]:
        return model, 1
    named = f"{start.name}_of_drafts"
    read.graph.initializer.append(onnx.numpy_helper.from_array(np.array([-DRAFT_ROWS], np.int64), named))
    cut.input[1] = named
    if not any(start.name in node.input for node in read.graph.node):
        read.graph.initializer.remove(start)  # else every start of the page warns of it
    logits = next(each for each in read.graph.output if each.name == "logits")
    logits.type.tensor_type.shape.dim[1].Clear()
    logits.type.tensor_type.shape.dim[1].dim_param = "rows"
    return bytes(read.SerializeToString()), DRAFT_ROWS


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
