"""Graders that run code: programs by tests, and patches by a repository's own tests (arXiv 2310.06770).

`code_grader` grades a program; `code_tests` reads its tests, `instrumented_tests` rewrites them, `program_extraction`
finds the program in an answer, and `harness_*` run inside the sandbox. `patch_grader` grades a patch; `unified_diff`
reads and applies patches, `pytest_run` runs a repository's tests, `separated_tests` parts them from the package, and
`task_maker` makes tasks from the history of any git repository. Invariants: a patch reaches the tree only through
`unified_diff`, which knows no path outside of it; code of an answer or a repository runs in the sandbox and nowhere
else; tests and their configuration come from the task and never from the answer.
"""
