"""What other people's routers say of first turns, where they need no model: a score by text, higher is harder.

    python benchmarks/turns.py prompts --clones FOLDER | python benchmarks/peers/first_turns.py > SCORES

Runs in an environment of its own: `pip install litellm nemo-switchyard` (measured: 1.110.2, 0.3.0). `complexity` is the
score of LiteLLM's complexity router, `tier` that router's tier as configured out of the box, `success` one less the
chance of success that its trained heuristic forecasts for the cheapest tier, `stage` whether Switchyard's stage router
picks the capable model. LiteLLM's auto router needs an encoder, and the other kinds of both a model.
"""

import asyncio
import json
import sys
from types import SimpleNamespace

from litellm.router_strategy.adaptive_router.classifier import classify_prompt
from litellm.router_strategy.complexity_router.complexity_router import ComplexityRouter
from litellm.router_strategy.complexity_router.config import TIER_SEVERITY_ORDER
from litellm.router_strategy.complexity_router.tier_predictor import TierSuccessPredictor, resolve_tier_artifact
from switchyard.libsy import Algorithm, Step
from switchyard.libsy.algorithms import stage_router


async def is_capable(stage: Algorithm, text: str) -> bool:
    """Return whether the stage router sends a first turn to the capable model."""
    request = {"model": "any", "messages": [{"role": "user", "content": [{"type": "text", "text": text}]}]}
    async for step in stage.run_stream(request, {"efficient": ["no"], "capable": ["yes"], "any": ["yes", "no"]}):
        match step:
            case Step.Done(outcome):
                return bool(outcome.selected_model_ids[0] == "yes")
            case _:
                raise RuntimeError("the stage router asks a model")
    raise RuntimeError("the stage router picks nobody")


def main() -> None:
    """Score each line."""
    stage = stage_router(picker="efficient_first", confidence_threshold=0.5)
    router = ComplexityRouter("auto", SimpleNamespace(model_list=[]), derive_savings_baseline=False)
    forecast = TierSuccessPredictor(resolve_tier_artifact("ultrafeedback"))
    for row in map(json.loads, sys.stdin):
        tier, score, _ = router.classify(row["text"])
        chances = forecast.predict(row["text"], classify_prompt(row["text"])).probabilities
        said = {"complexity": score, "tier": TIER_SEVERITY_ORDER.index(tier), "success": 1 - min(chances.values())}
        said["stage"] = asyncio.run(is_capable(stage, row["text"]))
        print(json.dumps({"id": row["id"], **said}))


if __name__ == "__main__":
    main()
