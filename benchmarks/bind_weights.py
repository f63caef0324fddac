"""Write into the shipped encoder what today's code makes of fixed texts, so that it loads it and other code does not.

    python benchmarks/bind_weights.py

Run it after a change of units that was meant to change what the encoder says, and measure it again: the command does
not ask. The shipped head is bound by `workshop/workshop_head.py --write`, which makes it again.
"""

from pathlib import Path

import onnx

import shikisha
from shikisha.retrieval.code_probe import probe_code
from shikisha.retrieval.text_encoder import TextEncoder

FOLDER = Path(shikisha.__file__).parent / "retrieval"


def main() -> None:
    """Write the file."""
    encoder = FOLDER / "encoder.onnx"
    network = onnx.load(encoder)
    props = {each.key: each.value for each in network.metadata_props}
    told = {**props, "probe": probe_code(TextEncoder(encoder, bound=False).behavior())}
    onnx.helper.set_model_props(network, told)
    encoder.write_bytes(network.SerializeToString())


if __name__ == "__main__":
    main()
