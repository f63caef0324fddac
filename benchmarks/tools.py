"""Recall at five of `tools find` on public catalogues with judged queries, beside words alone.

    python benchmarks/tools.py CACHE [--clones FOLDER] [--encoder MODEL.onnx] [--queries 700]

Prints a row a set: bm25s (all of a tool's text as one field; `pip install bm25s`), BM25F, words and meaning as shipped,
and the same with the weight of meaning that is best on all other catalogues (`left out`): no set chose its own. With
`--encoder`, a sentence transformer takes the place of the shipped encoder. The last columns are of `tools learn`:
fitted on the first 90 queries, judged on the second half of all, for sets that have as many.

Sets: MetaTool, BFCL live, RestBench, Seal-Tools, StableToolBench, ToolAlpaca. Repositories are cloned to CACHE, where
they are not in FOLDER. Queries are taken by their hash.
"""

import argparse
import csv
import io
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

import bm25s  # type: ignore[import-not-found]
import numpy as np

from shikisha.retrieval.ranker import DocumentSearch, candidate_features
from shikisha.retrieval.text_encoder import load_encoder
from shikisha.retrieval.text_index import Candidates, IndexedText, TextIndex
from shikisha.tools.catalogue import FIELD_WEIGHTS
from shikisha.tools.tool_judgments import Judgment, fit_ranker
from strangers import Clone

WEIGHTS = (0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8)
TOP = 5
_TO_FIT = 90
_VERBS = {"get", "post", "put", "delete", "patch"}


@dataclass
class Catalogue:
    """Tools by key, and which of them are right for a query."""

    family: str
    documents: list[IndexedText] = field(default_factory=list)
    places: dict[object, int] = field(default_factory=dict)
    queries: dict[str, set[int]] = field(default_factory=dict)

    def add(
        self, key: object, name: str, about: str | None, group: str = "", arguments: Mapping[str, Any] | None = None
    ) -> None:
        """Add a tool; of several with one key the first counts."""
        if key not in self.places:
            described = {each: value if isinstance(value, dict) else {} for each, value in (arguments or {}).items()}
            words = " ".join(f"{each} {value.get('description', '')}" for each, value in described.items())
            self.places[key] = len(self.documents)
            self.documents.append(IndexedText(group, (name, group, about or "", words)))

    def ask(self, query: str, keys: Iterable[object]) -> None:
        """Add a query and its right tools; one without any is left out."""
        if right := {self.places[key] for key in keys if key in self.places}:
            self.queries.setdefault(query, set()).update(right)


def metatool(clone: Clone) -> Iterator[tuple[str, Catalogue]]:
    """Yield plugins in everyday words."""
    own = Catalogue("MetaTool")
    for file in ("big_tool_des", "plugin_des"):
        for name, about in json.loads(clone.read(f"dataset/{file}.json")).items():
            own.add(name, name, about)
    for row in csv.DictReader(io.StringIO(clone.read("dataset/data/all_clean_data.csv"))):
        own.ask(row["Query"], [row["Tool"]])
    for row in json.loads(clone.read("dataset/data/multi_tool_query_golden.json")):
        own.ask(row["query"], row["tool"])
    yield "MetaTool", own


def bfcl(clone: Clone) -> Iterator[tuple[str, Catalogue]]:
    """Yield the functions of people's own requests, all of them in one catalogue."""
    own, base = Catalogue("BFCL"), "berkeley-function-call-leaderboard/bfcl_eval/data"
    asked = []
    for kind in ("simple", "multiple", "parallel", "parallel_multiple"):
        rows = map(json.loads, clone.read(f"{base}/possible_answer/BFCL_v4_live_{kind}.json").splitlines())
        right = {row["id"]: [name for call in row["ground_truth"] for name in call] for row in rows}
        for row in map(json.loads, clone.read(f"{base}/BFCL_v4_live_{kind}.json").splitlines()):
            keys = {each["name"]: (each["name"], each["description"]) for each in row["function"]}
            for each in row["function"]:
                group, properties = each["name"].rpartition(".")[0], each["parameters"].get("properties")
                own.add(keys[each["name"]], each["name"], each["description"], group, properties)
            query = " ".join(each["content"] for each in row["question"][0] if each["role"] == "user")
            asked.append((query, [keys[name] for name in right[row["id"]] if name in keys]))
    for query, wanted in asked:
        own.ask(query, wanted)
    yield "BFCL live", own


def restbench(clone: Clone) -> Iterator[tuple[str, Catalogue]]:
    """Yield the operations of two APIs."""
    for name in ("tmdb", "spotify"):
        own = Catalogue("RestBench")
        for path, verbs in json.loads(clone.read(f"specs/{name}_oas.json"))["paths"].items():
            for verb in _VERBS & verbs.keys():
                each = verbs[verb]
                arguments = {one.get("name", ""): one for one in each.get("parameters", [])}
                about = f"{each.get('summary', '')} {each.get('description', '')} {path}"
                group = (each.get("tags") or [""])[0]
                own.add(f"{verb.upper()} {path}", each.get("operationId") or f"{verb} {path}", about, group, arguments)
        for row in json.loads(clone.read(f"datasets/{name}.json")):
            own.ask(row["query"], row["solution"])
        yield f"RestBench {name}", own


def seal(clone: Clone) -> Iterator[tuple[str, Catalogue]]:
    """Yield tools that a model invented, asked for in the domains of its training and in others."""
    for name in ("in", "out"):
        own = Catalogue("Seal-Tools")
        for each in map(json.loads, clone.read("Seal-Tools_Dataset/tool.jsonl").splitlines()):
            own.add(each["api_name"], each["api_name"], each["api_description"], each["field"], each["parameters"])
        for row in map(json.loads, clone.read(f"Seal-Tools_Dataset/test_{name}_domain.jsonl").splitlines()):
            own.ask(row["query"], [call["api"] for call in row["calling"]])
        yield f"Seal {name}", own


def stable(clone: Clone) -> Iterator[tuple[str, Catalogue]]:
    """Yield the APIs of a marketplace: one tool, one category, several."""
    names = [f"{level}_{kind}" for level in ("G1", "G2") for kind in ("instruction", "category")]
    names += ["G1_tool", "G3_instruction"]
    rows = {name: json.loads(clone.read(f"solvable_queries/test_instruction/{name}.json")) for name in names}
    whole = Catalogue("StableToolBench")
    for each in (api for several in rows.values() for row in several for api in row["api_list"]):
        arguments = {one["name"]: one for one in each["required_parameters"] + each["optional_parameters"]}
        group = f"{each['tool_name']} {each['category_name']}"
        whole.add((each["tool_name"], each["api_name"]), each["api_name"], each["api_description"], group, arguments)
    for level in ("G1", "G2", "G3"):
        own = Catalogue(whole.family, whole.documents, whole.places)
        for row in (row for name in names if name.startswith(level) for row in rows[name]):
            own.ask(row["query"], map(tuple, row["relevant APIs"]))
        yield f"Stable {level}", own


def alpaca(clone: Clone) -> Iterator[tuple[str, Catalogue]]:
    """Yield operations of public APIs, with instructions that a model wrote."""
    own, asked = Catalogue("ToolAlpaca"), []
    for each in (each for kind in ("simulated", "real") for each in json.loads(clone.read(f"data/eval_{kind}.json"))):
        for verbs in json.loads(each["Documentation"])["paths"].values():
            for one in (one for one in verbs.values() if isinstance(one, dict) and "operationId" in one):
                arguments = {given.get("name", ""): given for given in one.get("parameters", [])}
                about = f"{one.get('summary', '')} {one.get('description', '')}"
                own.add((each["Name"], one["operationId"]), one["operationId"], about, each["Name"], arguments)
        for query, steps in zip(each["Instructions"], each.get("Golden_Answers", []), strict=False):
            asked.append((query, [(each["Name"], step["Action"]) for step in steps]))
    for query, wanted in asked:
        own.ask(query, wanted)
    yield "ToolAlpaca", own


SETS = {
    "HowieHwong/MetaTool": metatool,
    "ShishirPatil/gorilla": bfcl,
    "Yifan-Song793/RestGPT": restbench,
    "fairyshine/Seal-Tools": seal,
    "THUNLP-MT/StableToolBench": stable,
    "tangqiaoyu/ToolAlpaca": alpaca,
}


def recall(found: Candidates, scores: np.ndarray, right: set[int]) -> float:
    """Return the share of right tools among the best."""
    order = np.lexsort((np.arange(len(scores)), -scores))[:TOP]
    best = found.positions[order[scores[order] != 0]]  # 0 by words: a candidate by meaning alone
    return float(np.isin(list(right), best).mean())


def fused(found: Candidates, weight: float) -> np.ndarray:
    """Return scores by this weight of meaning; .5 is what ships."""
    words = found.scores / max(float(found.scores.max(initial=0.0)), 1e-6)
    return (1 - weight) * words + weight * found.nearness


def measure(own: Catalogue, encoder: Path | None, most: int) -> dict[str, Any]:
    """Return recalls of a set: without fitting, by weight, and before and after `tools learn`."""
    model = load_encoder(encoder)
    vectors = model.encode([f"{each.fields[0]}: {each.fields[2]}" for each in own.documents])
    search = DocumentSearch(TextIndex(own.documents, FIELD_WEIGHTS), model.encode, vectors)
    queries = sorted(own.queries, key=lambda query: sha256(query.encode()).digest())[:most]
    plain = bm25s.BM25()
    plain.index(bm25s.tokenize([" ".join(each.fields) for each in own.documents], show_progress=False), show_progress=0)
    count = min(TOP, len(own.documents))
    theirs, _ = plain.retrieve(bm25s.tokenize(queries, show_progress=False), k=count, show_progress=False)
    got: dict[str, list[float]] = defaultdict(list)
    judged = []
    for query, best in zip(queries, theirs, strict=True):
        (found, _), right = search.find(query), own.queries[query]
        got["bm25s"].append(float(np.isin(list(right), best).mean()))
        got["BM25F"].append(recall(found, found.scores, right))
        got["both"].append(recall(found, found.fused, right))
        for weight in WEIGHTS:
            got[f"{weight}"].append(recall(found, fused(found, weight), right))
        judged.append((found, right))
    row: dict[str, Any] = {name: float(np.mean(values)) for name, values in got.items()}
    if len(queries) >= 4 * _TO_FIT:
        judgments = [Judgment(query, tuple(own.queries[query])) for query in queries[:_TO_FIT]]
        ranker, held = fit_ranker(search, judgments, own.family), judged[len(queries) // 2 :]
        row["before"] = float(np.mean([recall(found, found.fused, right) for found, right in held]))
        fitted = [
            recall(found, ranker.log_odds(candidate_features(search.index, found)), right) for found, right in held
        ]
        row["after"] = float(np.mean(fitted))
    return row | {"family": own.family, "tools": len(own.documents), "queries": len(queries)}


def main() -> None:
    """Fetch, measure, and print a row a set."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cache", type=Path)
    parser.add_argument("--clones", type=Path)
    parser.add_argument("--encoder", type=Path)
    parser.add_argument("--queries", type=int, default=700)
    arguments = parser.parse_args()
    rows: dict[str, dict[str, Any]] = {}
    for repository, read in SETS.items():
        for name, own in read(Clone.of(repository, arguments.cache, arguments.clones)):
            rows[name] = measure(own, arguments.encoder, arguments.queries)
    for row in rows.values():
        others = [each for each in rows.values() if each["family"] != row["family"]]
        row["chosen"] = max(WEIGHTS, key=lambda weight: np.mean([each[f"{weight}"] for each in others]))
        row["left out"] = row[f"{row['chosen']}"]
        row["best of two"] = max(row["bm25s"], row["BM25F"])
    columns = ("bm25s", "BM25F", "best of two", "both", "left out", *map(str, WEIGHTS))
    for name, row in rows.items():
        print(f"{name:18s} {row['tools']:5d} tools {row['queries']:4d} queries ", end="")
        print("  ".join(f"{column} {row[column]:.3f}" for column in (*columns, "before", "after") if column in row))
    print("mean", "  ".join(f"{column} {np.mean([row[column] for row in rows.values()]):.3f}" for column in columns))


if __name__ == "__main__":
    main()
