"""Write into shipped weights what today's code makes of fixed inputs, so that it loads them and other code does not.

    python benchmarks/bind_weights.py

Run it after a change of features or constants that was meant to change what shipped weights say, and measure them
again: the command does not ask. Files are the pointer model and the text encoder.
"""

from pathlib import Path

import onnx

import shikisha
from shikisha.retrieval.code_probe import probe_code
from shikisha.retrieval.text_encoder import TextEncoder
from shikisha_train.pointer.pointer_conductor import bind_pointer, shipped_pointer

FOLDER = Path(shikisha.__file__).parent / "retrieval"


def main() -> None:
    """Write both files."""
    bind_pointer(shipped_pointer())
    encoder = FOLDER / "encoder.onnx"
    network = onnx.load(encoder)
    props = {each.key: each.value for each in network.metadata_props}
    told = {**props, "probe": probe_code(TextEncoder(encoder, bound=False).behavior())}
    onnx.helper.set_model_props(network, told)
    encoder.write_bytes(network.SerializeToString())


if __name__ == "__main__":
    main()
