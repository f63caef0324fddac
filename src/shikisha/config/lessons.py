"""A process that makes lessons for another one: `python -m shikisha.config.lessons`, started by `train.slates`.

It is told the settings of a training and the tokenizer, and knows no more of the run. Invariant: its chunks are those
that the training would make itself. Deliberately absent: torch.
"""

import sys
from collections.abc import Mapping
from typing import cast

from shikisha.config.training import school_of
from shikisha.train.settings import TrainSettings
from shikisha.train.slates import Chunks, chunk_of, serve, tokenizer_of


def maker(told: object) -> Chunks:
    """Return what makes chunks for the training that was told of."""
    given = cast("Mapping[str, object]", told)
    settings = TrainSettings.model_validate(given["settings"])
    tokenizer, lessons = tokenizer_of(str(given["tokenizer"])), school_of(settings).lessons
    return lambda number: chunk_of(number, lessons, tokenizer, settings.warm)


if __name__ == "__main__":
    serve(sys.stdin, sys.stdout, maker)
