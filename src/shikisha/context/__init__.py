"""Context: what of a user's files, history, resources and memory a task needs to be seen with.

`git_history` reads repositories. `evals`, `config` and the command line may import this package. Invariant: reading
never runs anything that a repository brings (hooks, filters, drivers), and never leaves the folder that was named.
"""
