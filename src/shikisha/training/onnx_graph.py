"""Qwen2's forward pass as an ONNX graph of plain operators, built by hand: no tracing, so no torch.

`torch.onnx` needs onnxscript, and the bytes of its graphs change with its version; here the same weights give the same
bytes, and a published hash stays valid.

Inputs and outputs have the names that runtimes expect of exported decoders: `input_ids` [B, T], `attention_mask`
[B, P + T], `position_ids` [B, T], `past_key_values.N.key` and `.value` [B, K, P, D] in; `logits` [B, 1, V] of the last
position and `present.N.key` and `.value` [B, K, P + T, D] out. B are texts, T new tokens, P tokens in the KV cache, K
key-value heads of width D. Invariant: the arithmetic is that of `transformers` up to rounding (`onnx_export` compares
them). Deliberately absent: other layouts, scaled rotary embeddings, sliding windows, half precision.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import onnx
from onnx import TensorProto, helper

from shikisha.core.errors import ConfigError
from shikisha.routing.arrays import Floats32, Ints

WeightArrays: TypeAlias = Mapping[str, Floats32]
AttributeValue: TypeAlias = "int | float | list[int]"

OPSET = 17
# Finite: a row that may attend to nothing gives even weights, and no NaN.
_MASKED = -1e9


@dataclass(frozen=True, slots=True)
class Qwen2OnnxConfig:
    """The shape of a Qwen2 model, from its `config.json`."""

    layers: int
    width: int
    heads: int
    key_heads: int
    depth: int
    theta: float
    epsilon: float
    vocabulary: int
    longest: int

    @classmethod
    def of(cls, config: Mapping[str, object], where: str) -> "Qwen2OnnxConfig":
        """Read it; ConfigError where the model has another layout or a value is missing."""
        for key, known in (("model_type", "qwen2"), ("hidden_act", "silu"), ("use_sliding_window", False)):
            if config.get(key, known) != known:
                raise ConfigError(f"{where}: {key}: expected {known!r}, found {config[key]!r}")
        rotation = config.get("rope_parameters") or {"rope_theta": config.get("rope_theta")}
        if not isinstance(rotation, dict) or rotation.get("rope_type", "default") != "default":
            raise ConfigError(f"{where}: rope_parameters: expected the plain rotation, found {rotation!r}")
        width, heads = _config_int(config, "hidden_size", where), _config_int(config, "num_attention_heads", where)
        return cls(
            layers=_config_int(config, "num_hidden_layers", where),
            width=width,
            heads=heads,
            key_heads=_config_int(config, "num_key_value_heads", where),
            depth=_config_int(config, "head_dim", where) if config.get("head_dim") else width // heads,
            theta=_config_float(rotation, "rope_theta", where),
            epsilon=_config_float(config, "rms_norm_eps", where),
            vocabulary=_config_int(config, "vocab_size", where),
            longest=_config_int(config, "max_position_embeddings", where),
        )


def build_onnx(layout: Qwen2OnnxConfig, weights: WeightArrays, metadata: Mapping[str, str]) -> bytes:
    """Return the graph with these weights as a file's bytes, with this metadata."""
    graph = _OnnxGraphBuilder(layout, weights)
    graph.build()
    made = helper.make_model(
        helper.make_graph(graph.nodes, "qwen2", graph.inputs(), graph.outputs(), graph.held),
        opset_imports=[helper.make_opsetid("", OPSET)],
        producer_name="shikisha",
        ir_version=8,
    )
    helper.set_model_props(made, dict(metadata))
    onnx.checker.check_model(made, full_check=True)
    held: bytes = made.SerializeToString(deterministic=True)
    return held


class _OnnxGraphBuilder:
    """Builds the graph node by node."""

    def __init__(self, layout: Qwen2OnnxConfig, weights: WeightArrays) -> None:
        self.layout = layout
        self.weights = weights
        self.nodes: list[onnx.NodeProto] = []
        self.held: list[onnx.TensorProto] = []

    def inputs(self) -> list[onnx.ValueInfoProto]:
        """Return what goes in."""
        tokens = [_integer_input(name, "T") for name in ("input_ids", "position_ids")]
        return [
            tokens[0],
            _integer_input("attention_mask", "S"),
            tokens[1],
            *self._cache_values("past_key_values", "P"),
        ]

    def outputs(self) -> list[onnx.ValueInfoProto]:
        """Return what comes out."""
        logits = helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["B", 1, self.layout.vocabulary])
        return [logits, *self._cache_values("present", "S")]

    def build(self) -> None:
        """Add every node."""
        rotary, mask = self._rotary(), self._attention_mask()
        state = self.op("Gather", self.weight("model.embed_tokens.weight"), "input_ids")
        for layer in range(self.layout.layers):
            state = self._attention(layer, state, rotary, mask)
            state = self._mlp(layer, state)
        last = self.op("Slice", state, self.ints([-1]), self.ints([np.iinfo(np.int64).max]), self.ints([1]))
        normed = self._rms_norm("model.norm", last)
        tied = "lm_head.weight" not in self.weights
        self.op("MatMul", normed, self._head("model.embed_tokens" if tied else "lm_head"), name="logits")

    def op(self, kind: str, *inputs: str, count: int = 1, name: str = "", **settings: AttributeValue) -> str:
        """Add a node; return its output's name (of several outputs: their prefix)."""
        out = name or f"{kind}_{len(self.nodes)}"
        names = [out] if count == 1 else [f"{out}.{place}" for place in range(count)]
        node = helper.make_node(kind, list(inputs), names)
        node.attribute.extend(helper.make_attribute(key, value) for key, value in settings.items())
        self.nodes.append(node)
        return out

    def weight(self, name: str) -> str:
        """Return the name of a weight of the model."""
        return self.constant(self.weights[name], name)

    def ints(self, values: Sequence[int]) -> str:
        """Return the name of a list of whole numbers."""
        return self.constant(np.array(values, np.int64), "ints_" + "_".join(map(str, values)))

    def constant(self, values: "Floats32 | Ints", name: str) -> str:
        """Keep an array in the file; return its name."""
        if all(one.name != name for one in self.held):
            self.held.append(onnx.numpy_helper.from_array(np.ascontiguousarray(values), name))
        return name

    def _cache_values(self, name: str, length: str) -> list[onnx.ValueInfoProto]:
        shape: list[str | int | None] = ["B", self.layout.key_heads, length, self.layout.depth]
        return [
            helper.make_tensor_value_info(f"{name}.{layer}.{part}", TensorProto.FLOAT, shape)
            for layer in range(self.layout.layers)
            for part in ("key", "value")
        ]

    def _rotary(self) -> tuple[str, str]:
        """Return cosine and sine [B, 1, T, D] of each position's rotation, the sine with the signs of the halves."""
        half = np.arange(0, self.layout.depth, 2, dtype=np.float32) / np.float32(self.layout.depth)
        speeds = np.tile((1.0 / self.layout.theta**half).astype(np.float32), 2)
        signs = np.repeat(np.array([-1, 1], np.float32), self.layout.depth // 2)
        places = self.op("Unsqueeze", self.op("Cast", "position_ids", to=TensorProto.FLOAT), self.ints([1, 3]))
        angle = self.op("Mul", places, self.constant(speeds, "speeds"))
        return self.op("Cos", angle), self.op("Mul", self.op("Sin", angle), self.constant(signs, "signs"))

    def _attention_mask(self) -> str:
        """Return the attention mask [B, 1, 1, T, S]: 0, or as good as minus infinity."""
        new = self.op("Shape", "input_ids", start=1, end=2)
        every = self.op("Shape", "attention_mask", start=1, end=2)
        zero, one = self.constant(np.array(0, np.int64), "zero"), self.constant(np.array(1, np.int64), "one")
        whole = self.op("Squeeze", every)
        begin = self.op("Sub", whole, self.op("Squeeze", new))
        places = self.op("Unsqueeze", self.op("Range", begin, whole, one), self.ints([1]))
        later = self.op("Greater", self.op("Range", zero, whole, one), places)
        padding = self.op("Unsqueeze", self.op("Equal", "attention_mask", zero), self.ints([1]))
        unseen = self.op("Or", padding, later)
        nothing = self.constant(np.array(0, np.float32), "nothing")
        masked = self.op("Where", unseen, self.constant(np.array(_MASKED, np.float32), "never"), nothing)
        return self.op("Unsqueeze", masked, self.ints([1, 2]))

    def _attention(self, layer: int, state: str, rotary: tuple[str, str], mask: str) -> str:
        """Return the hidden states [B, T, W] after a layer's attention."""
        size, at = self.layout, f"model.layers.{layer}"
        heads, groups = size.heads + 2 * size.key_heads, size.heads // size.key_heads
        joined = self.op(
            "Add", self.op("MatMul", self._rms_norm(f"{at}.input_layernorm", state), self._qkv(layer)), f"{at}.qkv.bias"
        )
        split = self.op("Reshape", joined, self.ints([0, 0, heads, size.depth]))
        seats = self.op("Transpose", split, perm=[0, 2, 1, 3])
        parts = self.op("Split", seats, self.ints([size.heads + size.key_heads, size.key_heads]), count=2, axis=1)
        turned = self._apply_rotary(f"{parts}.0", rotary)
        both = self.op("Split", turned, self.ints([size.heads, size.key_heads]), count=2, axis=1)
        key = self._kv_cache(layer, "key", f"{both}.1")
        value = self._kv_cache(layer, "value", f"{parts}.1")
        query = self.op("Reshape", f"{both}.0", self.ints([0, size.key_heads, groups, -1, size.depth]))
        backwards = self.op("Transpose", self.op("Unsqueeze", key, self.ints([2])), perm=[0, 1, 2, 4, 3])
        weights = self.op("Softmax", self.op("Add", self.op("MatMul", query, backwards), mask), axis=-1)
        seen = self.op("MatMul", weights, self.op("Unsqueeze", value, self.ints([2])))
        rows = self.op("Transpose", seen, perm=[0, 3, 1, 2, 4])
        flat = self.op("Reshape", rows, self.ints([0, 0, size.heads * size.depth]))
        return self.op("Add", state, self.op("MatMul", flat, self._linear(f"{at}.self_attn.o_proj")))

    def _apply_rotary(self, heads: str, rotary: tuple[str, str]) -> str:
        halves = self.op("Split", heads, count=2, axis=-1)
        swapped = self.op("Concat", f"{halves}.1", f"{halves}.0", axis=-1)
        return self.op("Add", self.op("Mul", heads, rotary[0]), self.op("Mul", swapped, rotary[1]))

    def _kv_cache(self, layer: int, part: str, new: str) -> str:
        return self.op("Concat", f"past_key_values.{layer}.{part}", new, axis=2, name=f"present.{layer}.{part}")

    def _mlp(self, layer: int, state: str) -> str:
        """Return the hidden states after a layer's MLP."""
        at = f"model.layers.{layer}"
        both = np.concatenate([self.weights[f"{at}.mlp.{name}_proj.weight"] for name in ("gate", "up")])
        wide = self.op(
            "MatMul", self._rms_norm(f"{at}.post_attention_layernorm", state), self.constant(both.T, f"{at}.gate_up")
        )
        parts = self.op("Split", wide, count=2, axis=-1)
        gate = self.op("Mul", f"{parts}.0", self.op("Sigmoid", f"{parts}.0"))
        narrow = self.op("MatMul", self.op("Mul", gate, f"{parts}.1"), self._linear(f"{at}.mlp.down_proj"))
        return self.op("Add", state, narrow)

    def _rms_norm(self, name: str, state: str) -> str:
        """Return RMSNorm of the hidden states, in the form that runtimes fuse into one operator."""
        squares = self.op("Pow", state, self.constant(np.array(2, np.float32), "two"))
        mean = self.op("ReduceMean", squares, axes=[-1], keepdims=1)
        above = self.op("Add", mean, self.constant(np.array(self.layout.epsilon, np.float32), "epsilon"))
        return self.op("Mul", self.op("Div", state, self.op("Sqrt", above)), self.weight(f"{name}.weight"))

    def _qkv(self, layer: int) -> str:
        """Store the weights of q, k and v as one, with the attention's scale in those of q."""
        at, scale = f"model.layers.{layer}.self_attn", np.float32(self.layout.depth**-0.5)
        for part, axis in (("bias", 0), ("weight", 0)):
            found = [self.weights[f"{at}.{name}_proj.{part}"] for name in "qkv"]
            joined = np.concatenate([found[0] * scale, *found[1:]], axis=axis)
            self.constant(joined.T, f"model.layers.{layer}.qkv.{part}")
        return f"model.layers.{layer}.qkv.weight"

    def _linear(self, name: str) -> str:
        return self.constant(self.weights[f"{name}.weight"].T, name)

    def _head(self, name: str) -> str:
        """Return the weights [W, V] that make logits; the embedding's are transposed when they are loaded."""
        return self.op("Transpose", self.weight(f"{name}.weight"), perm=[1, 0])


def _integer_input(name: str, length: str) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.INT64, ["B", length])


def _config_int(config: Mapping[str, object], key: str, where: str) -> int:
    value = config.get(key)
    if type(value) is not int:
        raise ConfigError(f"{where}: {key}: expected a whole number, found {value!r}")
    return value


def _config_float(config: Mapping[str, object], key: str, where: str) -> float:
    value = config.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ConfigError(f"{where}: {key}: expected a number, found {value!r}")
    return float(value)
