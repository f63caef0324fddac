"""Training a conductor: warm start by lessons, then reinforcement from finished tasks, performed by the real engine.

Read in this order. `settings`: what a run of training is. `words`, `tiny`: a tokenizer, a model from scratch. `warm`:
lessons. `scoring`: what a plan is worth. `rollout`, `tree`, `shared`, `branches`: plans sampled for prompts, and read
again. `advantage`, `loss`: GRPO as pure functions. `source`, `batch`, `reference`: the whole of it in one plain loop.
`trl_backend`, `trainer`, `taking`, `padded`: the same by TRL. `session`, `ground`, `opening`, `refusals`, `exam`: a run
from beginning to end. `keeping`, `memory`, `record`, `card`: what is kept. `progress`, `history`, `figures`, `warning`,
`live`, `page`, `board`: what is shown. `export`, `graph`, `serving`: what conducts afterwards. Invariant: nothing that
`import shikisha` reaches imports from here. Needs the extra `train`.
"""
