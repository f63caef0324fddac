"""Tasks whose answers are patches to a repository, graded by its own tests (arXiv 2310.06770).

`unified_diff` reads and applies patches, `pytest_run` runs a repository's tests in a sandbox, `separated_tests` parts
them from the package, `patch_grader` decides, `task_rows` reads tasks and predictions, and `task_maker`
makes tasks from the history of any git repository. Invariants: a patch reaches the tree only through `unified_diff`,
which knows no path outside of it; code of a repository runs in the sandbox and nowhere else; tests and their
configuration come from the task and never from the patch.
"""
