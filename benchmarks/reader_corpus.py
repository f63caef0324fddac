"""Collect the text that the task reader's tagger is pretrained on: what people really wrote, a text on each line.

    git clone https://github.com/google-research-datasets/Taskmaster                      # CC BY 4.0
    git clone https://github.com/google-research-datasets/dstc8-schema-guided-dialogue    # CC BY-SA 4.0
    git clone https://github.com/alexa/Topical-Chat                                       # CDLA-Sharing 1.0
    git clone https://github.com/openai/grade-school-math                                 # MIT
    git clone https://github.com/yizhongw/self-instruct                                   # Apache-2.0
    git clone https://github.com/nltk/nltk_data       # Brown corpus and Gutenberg texts alone
    python benchmarks/reader_corpus.py FOLDER texts.txt.xz [--pairs pairs.tsv] [--megabytes 130]

FOLDER holds the clones (their names end as above; bare ones are read too). `--pairs` adds the texts of
`encoder_corpus.py`, and docstrings and READMEs of this environment are read. Turns of one speaker are joined by spaces,
as somebody writes who sends three lines as one. The marks, capitals and line ends of these texts are all that labels
come from. The words of the simulation are in none of them. Nothing here is committed.
"""

import argparse
import ast
import html
import io
import json
import lzma
import random
import re
import subprocess
import sysconfig
import zipfile
from collections.abc import Iterable, Iterator
from hashlib import sha256
from pathlib import Path

# Share of the whole that a source may take.
SHARES = {
    "taskmaster": 0.05, "sgd": 0.10, "topical": 0.05, "gsm8k": 0.05, "instructions": 0.44, "books": 0.12, "pairs": 0.17,
    "docstrings": 0.18,
}  # fmt: skip
LONGEST = 2_000  # characters of a text
_SPACE = re.compile(r"[ \t\r\f\v]+")
_TAG = re.compile(r"<[^>]{0,200}>")


def repository(folder: Path, name: str) -> list[str]:
    """Return git's arguments for the clone whose folder's name ends so, or [] if it is not there."""
    for found in sorted(folder.glob(f"*{name}")):
        for inner in (found, found / "repo", found / ".git", found / "repo" / ".git"):
            if (inner / "objects").is_dir():
                return ["git", f"--git-dir={inner}"]
            if (inner / ".git").is_dir():
                return ["git", f"--git-dir={inner / '.git'}"]
    print(f"  {name}: not there")
    return []


def blobs(git: list[str], wanted: str) -> Iterator[tuple[str, bytes]]:
    """Yield the path and content of the files of HEAD that a pattern finds."""
    if not git:
        return
    listed = subprocess.run(  # noqa: S603 - git alone
        [*git, "ls-tree", "-r", "--name-only", "HEAD"], capture_output=True, text=True, check=True
    )
    for path in listed.stdout.splitlines():
        if re.search(wanted, path):
            asked = [*git, "cat-file", "blob", f"HEAD:{path}"]
            shown = subprocess.run(asked, capture_output=True, check=False)  # noqa: S603 - git alone
            if shown.returncode == 0:
                yield path, shown.stdout


def turns(spoken: Iterable[tuple[str, str]], rng: random.Random) -> Iterator[str]:
    """Yield each speaker's turns in a conversation, joined, or the conversation in lines."""
    by = dict[str, list[str]]()
    for speaker, text in spoken:
        by.setdefault(speaker, []).append(text.strip())
    for said in by.values():
        at = 0
        while at < len(said):
            take = rng.choice((1, 2, 3, 5, 8))
            yield " ".join(said[at : at + take])
            at += take


def dialogs(folder: Path, rng: random.Random) -> Iterator[tuple[str, str]]:
    """Yield (source, text) of conversations."""
    for _, blob in blobs(repository(folder, "Taskmaster"), r"TM-\d.*/(data/.*|.*dialogs)\.json$"):
        try:
            for talk in json.loads(blob):
                spoken = ((one.get("speaker", ""), one.get("text", "")) for one in talk.get("utterances", ()))
                yield from (("taskmaster", text) for text in turns(spoken, rng))
        except (ValueError, AttributeError, TypeError):
            continue
    for _, blob in blobs(repository(folder, "schema-guided-dialogue"), r"^train/dialogues.*\.json$"):
        for talk in json.loads(blob):
            spoken = ((one["speaker"], one["utterance"]) for one in talk["turns"])
            yield from (("sgd", text) for text in turns(spoken, rng))
    for _, blob in blobs(repository(folder, "Topical-Chat"), r"conversations/(train|valid_freq|valid_rare)\.json$"):
        for talk in json.loads(blob).values():
            spoken = ((one["agent"], one["message"]) for one in talk["content"])
            yield from (("topical", text) for text in turns(spoken, rng))


def problems(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield (source, text) of problems and instructions."""
    for _, blob in blobs(repository(folder, "grade-school-math"), r"data/train\.jsonl$"):
        for line in blob.splitlines():
            one = json.loads(line)
            answer = re.sub(r"<<[^>]*>>|#### .*", "", one["answer"])
            yield "gsm8k", f"{one['question']} {answer}"
    instructions = r"(seed_tasks|user_oriented_instructions)\.jsonl$|data_per_template/.*\.jsonl$"
    for _, blob in blobs(repository(folder, "self-instruct"), instructions):
        for line in blob.splitlines():
            one = json.loads(line)
            yield "instructions", " ".join(str(one.get(name, "")) for name in ("instruction", "prompt", "input"))


def books(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield (source, text) of paragraphs of the Brown corpus and of Gutenberg's books."""
    for path, blob in blobs(repository(folder, "nltk_data"), r"corpora/(brown|gutenberg|webtext)\.zip$"):
        with zipfile.ZipFile(io.BytesIO(blob)) as archive:
            for name in archive.namelist():
                text = archive.read(name).decode("latin-1")
                if "brown" in path:
                    text = " ".join(re.sub(r"/\S+", "", text).split(" "))
                    text = re.sub(r"\s+([.,;:?!])", r"\1", text).replace("``", '"').replace("''", '"')
                for paragraph in re.split(r"\n\s*\n", text):
                    if len(paragraph) > 60:
                        yield "books", " ".join(paragraph.split())


def documentation(pairs: Path | None) -> Iterator[tuple[str, str]]:
    """Yield (source, text) of descriptions, docstrings and READMEs."""
    if pairs is not None:
        with pairs.open(encoding="utf-8", errors="replace") as opened:
            for line in opened:
                source, _, first, second = line.rstrip("\n").split("\t")
                if source.startswith(("intent", "openapi", "google", "wordnet_ex")) and "held" not in source:
                    yield (
                        "pairs",
                        max(first, second, key=len) if not source.startswith("intent") else f"{first} {second}",
                    )
    for file in sorted(Path(sysconfig.get_path("purelib")).rglob("*.py")):
        if file.stat().st_size > 400_000 or "shikisha" in str(file):
            continue
        try:
            tree = ast.parse(file.read_text("utf-8"))
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Module | ast.AsyncFunctionDef):
                for paragraph in re.split(r"\n\s*\n", ast.get_docstring(node) or ""):
                    if len(paragraph) > 60 and not re.search(r"[=>{}|]{2}|::|:param|-----", paragraph):
                        yield "docstrings", " ".join(paragraph.split())


def main() -> None:
    """Write the texts, shuffled, no text twice."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("file", type=Path)
    parser.add_argument("--pairs", type=Path)
    parser.add_argument("--megabytes", type=float, default=130)
    arguments = parser.parse_args()
    rng = random.Random(0)
    seen, by = set[bytes](), {source: list[str]() for source in SHARES}
    given = arguments.folder
    for each in (dialogs(given, rng), problems(given), books(given), documentation(arguments.pairs)):
        for source, raw in each:
            text = _SPACE.sub(" ", _TAG.sub(" ", html.unescape(raw))).strip()[:LONGEST]
            text = " ".join(text.split("\n")) if "\n" in text else text
            key = sha256(text.lower().encode()).digest()[:10]
            if len(text.split()) >= 4 and text.isprintable() and key not in seen:
                seen.add(key)
                by[source].append(text)
    chosen = []
    for source, texts in by.items():
        rng.shuffle(texts)
        left, taken = SHARES[source] * arguments.megabytes * 1e6, 0
        for text in texts:
            if left <= 0:
                break
            left -= len(text.encode()) + 1
            taken += 1
        chosen += texts[:taken]
        print(f"  {source}: {taken} of {len(texts)} texts, {sum(map(len, texts[:taken])) / 1e6:.1f} MB", flush=True)
    rng.shuffle(chosen)
    with lzma.open(arguments.file, "wt", encoding="utf-8", preset=6) as out:
        out.writelines(f"{text}\n" for text in chosen)
    print(f"  {arguments.file}: {arguments.file.stat().st_size / 1e6:.1f} MB for {len(chosen)} texts")


if __name__ == "__main__":
    main()
