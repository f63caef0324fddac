"""The supervised examples of the simulation, and the process that makes them ahead of time for a training run.

`python -m shikisha.config.sft_source` is started by `training.sft_data`: it reads the training's settings and its
tokenizer, and makes the same chunks that the training itself would make.
"""

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

from shikisha.evals.tasksets.simulated import SIMULATED_DISTRIBUTIONS
from shikisha.simulation.chain_of_thought import thought_tokens
from shikisha.simulation.plan_templates import form_tokens
from shikisha.simulation.sft_examples import (
    OUTCOME_TOKENS,
    copy_examples,
    example_schedule,
    generate_example,
    mixture_of,
    plan_subtasks,
    reading_examples,
)
from shikisha.training.settings import TrainSettings
from shikisha.training.sft_data import (
    ChunkSource,
    SFTExamples,
    make_chunk,
    parse_tokenizer,
    plan_pieces,
    serve_chunks,
    word_tokenizer,
)

if TYPE_CHECKING:
    from shikisha.training.environment import SFTSource

_VOCABULARY_PROMPTS = 20_000
_VOCABULARY_SEED = 999
# How often a word must occur in those prompts to be a token of its own. The large set has more names, each rarer.
_MIN_WORD_COUNT = {"rehearsal": 60, "rehearsal-large": 30}


def sft_source(settings: TrainSettings) -> "SFTSource":
    """Return the supervised examples of the simulation, and what makes their tokenizer."""
    # Imported here because it brings torch, which the processes that make examples do without.
    from shikisha.training.environment import SFTSource

    edition = SIMULATED_DISTRIBUTIONS[settings.tasks.set].edition
    mixture = mixture_of(edition)
    return SFTSource(
        _examples(settings),
        reading_examples(settings.seed, edition),
        copy_examples(settings.seed, edition),
        lambda: word_tokenizer(
            (generate_example(_VOCABULARY_SEED, place, mixture).prompt for place in range(_VOCABULARY_PROMPTS)),
            [
                *thought_tokens(edition),
                *form_tokens(edition),
                *OUTCOME_TOKENS,
                *plan_pieces(plan_subtasks(edition)),
            ],
            _MIN_WORD_COUNT[settings.tasks.set],
        ),
        "shikisha.config.sft_source",
        {"settings": settings.model_dump(mode="json")},
    )


def _examples(settings: TrainSettings) -> SFTExamples:
    edition = SIMULATED_DISTRIBUTIONS[settings.tasks.set].edition
    return example_schedule(settings.seed, *settings.warm.follow, settings.warm.demonstrations, edition)


def chunk_maker(request: object) -> ChunkSource:
    """Return what makes chunks for the training whose settings and tokenizer the request holds."""
    given = cast("Mapping[str, object]", request)
    settings = TrainSettings.model_validate(given["settings"])
    tokenizer, examples = parse_tokenizer(str(given["tokenizer"])), _examples(settings)
    return lambda number: make_chunk(number, examples, tokenizer, settings.warm)


if __name__ == "__main__":
    serve_chunks(sys.stdin, sys.stdout, chunk_maker)
