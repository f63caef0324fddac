"""Patches: what they say, where they apply, and what is refused; compared with git's own differences."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shikisha_code.unified_diff import PatchError, apply_patch, extract_patch, read_patch

TREE = {"a.py": b"one\ntwo\nthree\nfour\nfive\n", "b/c.txt": b"no newline"}
NEW = "diff --git a/{0} b/{0}\nnew file mode {1}\n--- /dev/null\n+++ b/{0}\n@@ -0,0 +1 @@\n+x\n"


def applied(patch: str) -> dict[str, bytes]:
    return apply_patch(TREE, read_patch(patch))


@pytest.mark.parametrize(
    ("patch", "changed"),
    [
        ("--- a/a.py\n+++ b/a.py\n@@ -2 +2 @@\n-two\n+2\n", {"a.py": b"one\n2\nthree\nfour\nfive\n"}),
        ("--- a/a.py\n+++ b/a.py\n@@ -1,2 +1,2 @@\n three\n-four\n+4\n", {"a.py": b"one\ntwo\nthree\n4\nfive\n"}),
        (
            "--- a/b/c.txt\n+++ b/b/c.txt\n@@ -1 +1 @@\n-no newline\n\\ No newline at end of file\n+now\n",
            {"b/c.txt": b"now\n"},
        ),
        (NEW.format("n.py", "100644"), {"n.py": b"x\n"}),
        (
            "diff --git a/a.py b/d.py\nsimilarity index 100%\nrename from a.py\nrename to d.py\n",
            {"a.py": None, "d.py": TREE["a.py"]},
        ),
        ('--- "a/b/c.txt"\n+++ "b/b/c.txt"\n@@ -1 +1 @@\n-no newline\n\\ No newline\n+x\n', {"b/c.txt": b"x\n"}),
    ],
)
def test_a_patch_applies(patch: str, changed: dict[str, bytes | None]) -> None:
    wanted = {name: data for name, data in (TREE | changed).items() if data is not None}
    assert applied(patch) == wanted


@pytest.mark.parametrize(
    ("patch", "problem"),
    [
        ("", "no file header"),
        ("--- a/a.py\n+++ b/a.py\n@@ -1 +1 @@\n-zero\n+0\n", "a.py: hunk 1 does not apply"),
        ("--- a/none.py\n+++ b/none.py\n@@ -1 +1 @@\n-zero\n+0\n", "none.py: there is no such file"),
        ("--- a/a.py\n+++ b/a.py\n@@ -1,5 +1,5 @@\n one\n", "line 5 of the patch: the patch ends inside a hunk"),
        ("--- a/a.py\n+++ b/a.py\n@@ what @@\n", "line 3 of the patch: expected `@@ -LINE"),
        ("--- a/a.py\n+++ /dev/null\n@@ -1 +0,0 @@\n-one\n", "deletes this file, and not all of its lines"),
        (NEW.format("a.py", "100644"), "it is there"),
        (NEW.format("a.py/x", "100644"), "a.py is a file and no folder"),
        (NEW.format("l", "120000"), "a symbolic link cannot be written"),
        (NEW.format("s", "160000"), "a submodule cannot be written"),
        (NEW.format("../x", "100644"), "leads out of the repository"),
        (NEW.format(".git/hooks/x", "100644"), "is git's own"),
        ("--- /dev/null\n+++ b//etc/x\n@@ -0,0 +1 @@\n+x\n", "leads out of the repository"),
        ("diff --git a/x b/x\nGIT binary patch\nliteral 1\n", "a binary change cannot be applied"),
    ],
)
def test_what_does_not_apply_says_where(patch: str, problem: str) -> None:
    with pytest.raises(PatchError) as caught:
        applied(patch)
    assert problem in str(caught.value)


@given(
    st.lists(
        st.sampled_from(
            ["--- a/a.py", "+++ b/a.py", "@@ -1 +1 @@", "-one", "+1", "diff --git a/a.py b/a.py", "", " two"]
        )
    )
)
def test_any_text_applies_or_is_an_error(lines: list[str]) -> None:
    with suppress(PatchError):
        assert applied("\n".join(lines)).keys() <= {"a.py", "b/c.txt"}


def test_a_patch_is_found_in_an_answer() -> None:
    patch = "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n"
    assert extract_patch(f"Like so:\n```diff\n{patch}```\nthanks") == patch
    assert extract_patch(f"Like so:\n{patch}") == patch
    assert extract_patch("```python\nx = 1\n```") is None
