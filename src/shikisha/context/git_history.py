"""Read a git repository: its commits with the files that they change, the files of a commit, and differences.

Invariants: git is called with a fixed list of words and reads only; nothing that the repository configures is run (no
hooks, pagers, external differences, text conversions or lazy fetches), and the user's own configuration is not read.
What comes back is bounded, and a repository that cannot be read is a ConfigError that says what git said. Links and
submodules are left out of trees. Deliberately absent: writing, working trees, and merges as changes.
"""

import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from shikisha.core.errors import ConfigError
from shikisha.core.fast_dataclass import dataclass

LARGEST_FILE = 1_000_000  # bytes
MOST_FILES, MOST_BYTES = 3_000, 30_000_000  # of a tree
_SECONDS = 120.0
_LONGEST_MESSAGE = 8_000
_FIELD, _RECORD = "\x1f", "\x1e"
_OPTIONS = (
    *("-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false", "-c", "protocol.allow=never"),
    *("-c", "core.quotePath=false", "-c", "diff.external=", "-c", "log.showSignature=false"),
)
_REGULAR = (b"100644", b"100755", b"100664")


@dataclass(frozen=True, slots=True)
class Commit:
    """One commit: its hash, its parents, when it was made (seconds since 1970), its message, the files it changes."""

    sha: str
    parents: tuple[str, ...]
    seconds: int
    message: str
    files: tuple[str, ...]


class GitRepository:
    """A repository on this machine, with or without a working tree."""

    def __init__(self, path: Path) -> None:
        self.path = path
        if not path.is_dir():
            raise ConfigError(f"{path}: there is no such folder; expected a git repository")
        self._run("rev-parse", "--git-dir")

    def commits(self, most: int, revision: str = "HEAD") -> list[Commit]:
        """Return the newest commits before a revision, the newest first, without merges."""
        shape = f"--format={_RECORD}%H{_FIELD}%P{_FIELD}%ct{_FIELD}%B{_FIELD}"
        listed = ("log", "--no-merges", "--no-renames", "--name-only", "-z", f"--max-count={most}", shape)
        text = self._run(*listed, "--end-of-options", revision, "--").decode(errors="replace")
        return list(_read_log(text))

    def tree(self, revision: str, largest: int = LARGEST_FILE) -> dict[str, bytes]:
        """Return the regular files of a commit that are not above `largest` bytes; ConfigError for too many."""
        named = {name: found for name, found in self._files(revision).items() if found[1] <= largest}
        if len(named) > MOST_FILES or sum(size for _, size in named.values()) > MOST_BYTES:
            raise ConfigError(
                f"{self.path}: {revision[:12]} has {len(named):,} files, or more than {MOST_BYTES:,} bytes; expected "
                f"at most {MOST_FILES:,} files"
            )
        wanted = {name: blob for name, (blob, _) in named.items()}
        return dict(zip(wanted, self._blobs(list(wanted.values())), strict=True))

    def difference(self, before: str, after: str, names: Sequence[str]) -> str:
        """Return the unified difference of these files between two commits; nothing where there are none."""
        if not names:
            return ""
        words = ("diff-tree", "-p", "--no-ext-diff", "--no-textconv", "--no-renames", "--no-color", "--full-index")
        return self._run(*words, before, after, "--", *names).decode(errors="surrogateescape")

    def origin(self) -> str:
        """Return the repository's name as `owner/name`, from the address it was cloned from, or its folder's name."""
        try:
            address = self._run("config", "--local", "--get", "remote.origin.url").decode(errors="replace").strip()
        except ConfigError:
            address = ""
        parts = [part for part in address.removesuffix(".git").replace(":", "/").split("/") if part]
        if len(parts) >= 2:
            return "/".join(parts[-2:])
        return self.path.resolve().name.removesuffix(".git") or "repository"

    def _files(self, revision: str) -> dict[str, tuple[str, int]]:
        """Return blob and size of each regular file by name."""
        found: dict[str, tuple[str, int]] = {}
        for entry in self._run("ls-tree", "-r", "-z", "--long", "--end-of-options", revision).split(b"\0"):
            about, _, name = entry.partition(b"\t")
            parts = about.split()
            if len(parts) == 4 and parts[0] in _REGULAR and parts[3].isdigit():
                try:
                    found[name.decode()] = parts[2].decode(), int(parts[3])
                except UnicodeDecodeError:
                    continue  # a name that no other format could carry
        return found

    def _blobs(self, blobs: Sequence[str]) -> Iterator[bytes]:
        data = self._run("cat-file", "--batch", given="".join(f"{blob}\n" for blob in blobs).encode())
        at = 0
        for _ in blobs:
            end = data.index(b"\n", at)
            size = int(data[at:end].split()[2])
            yield data[end + 1 : end + 1 + size]
            at = end + size + 2

    def _run(self, *words: str, given: bytes = b"") -> bytes:
        command = ["git", "-C", str(self.path), "--no-pager", "--literal-pathspecs", *_OPTIONS, *words]
        try:
            done = subprocess.run(  # noqa: S603 - a fixed program; words are options of ours, hashes and names
                command, input=given, capture_output=True, env=_environment(os.environ), timeout=_SECONDS, check=False
            )
        except FileNotFoundError:
            raise ConfigError("reading a repository needs the program git") from None
        except subprocess.TimeoutExpired:
            raise ConfigError(f"{self.path}: git {words[0]} took more than {_SECONDS:g} seconds") from None
        if done.returncode:
            said = done.stderr.decode(errors="replace").strip().partition("\n")[0]
            raise ConfigError(f"{self.path}: expected a git repository that can be read; git says: {said[:300]}")
        return done.stdout


def _environment(own: Mapping[str, str]) -> dict[str, str]:
    kept = {name: own[name] for name in ("PATH", "HOME", "TMPDIR") if name in own}
    return kept | {
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_TERMINAL_PROMPT": "0",
        "LC_ALL": "C",
    }


def _read_log(text: str) -> Iterator[Commit]:
    for record in text.split(_RECORD)[1:]:
        fields = record.split(_FIELD)
        if len(fields) < 5:
            continue  # the message holds our own separators
        sha, parents, seconds, message, files = *fields[:3], _FIELD.join(fields[3:-1]), fields[-1]
        names = tuple(name.strip("\n") for name in files.split("\0") if name.strip("\n"))
        yield Commit(sha, tuple(parents.split()), int(seconds), message.strip()[:_LONGEST_MESSAGE], names)
