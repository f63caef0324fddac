"""What is learned from the journal besides routing policies: the outcome model, memory.

`step_evidence` reads runs, `outcome_fit` fits the `outcome_model` on them, `learning_files` keeps its versions, and
`journal_learner` does all of that in the background. `learned_file` is the one form in which models are kept: content,
its evidence (run ids), labels, what it brought, and a hash. Nothing here calls a worker or a model.
"""
