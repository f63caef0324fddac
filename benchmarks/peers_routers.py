"""Peers' own routers, trained by their own code on features that we supply; run by `routers.py --peers PYTHON`.

    python3 -m venv peers && peers/bin/pip install routellm==0.2.0 llmrouter-lib==0.4.0
    python benchmarks/routers.py --peers peers/bin/python

This file runs in that other environment and imports nothing of ours. It reads FOLDER/given.npz and writes
FOLDER/found.npz and FOLDER/found.json. Their embeddings (OpenAI's, Longformer) cannot be had without downloads, so each
prompt is given by what `given.npz` has for it instead; nothing else of theirs is changed:

    RouteLLM 0.2.0 (lm-sys)        mf, sw_ranking: one strong and one weak worker; their training defaults
    LLMRouter 0.4.0 (ulab-uiuc)    knn, svm, mlp, mf, elo, graph: one of all workers; the settings of their configs

RouteLLM's thresholds are set as it sets them: at shares of the prompts to decide on, whose answers nobody looks at.
LLMRouter's routers learn who did best on a prompt; where several did, the label is who is better on the whole. They get
a dial by a fit for each of a few limits on what a candidate may cost, and one for the cheapest of the best. Its graph
router is given no vectors for the workers, as in its own examples, and draws them; it is slow on two cores and runs
only when named (`--peer-routers`). Not run: RouteLLM's bert and causal_llm, LLMRouter's dc, causallm, hybrid and r1
(they fine-tune or load downloaded language models), automix (it asks a model to judge itself), gmt and personalized
(they need users).
"""

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from types import ModuleType, SimpleNamespace

import numpy as np
from numpy.typing import NDArray

os.environ |= {"OPENAI_API_KEY": "none", "HF_HUB_OFFLINE": "1", "LITELLM_LOCAL_MODEL_COST_MAP": "True"}

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]
Theirs = SimpleNamespace  # an object of theirs, whose attributes have no types here
ROUTELLM, TRAINED = "routellm.routers", ("model", "train_matrix_factorization")
STRONG, WEAK = "gpt-4-1106-preview", "mixtral-8x7b-instruct-v0.1"  # two names that RouteLLM knows
TIMED = 200  # decisions
DEFAULT = [
    "RouteLLM mf",
    "RouteLLM sw_ranking",
    "LLMRouter knn",
    "LLMRouter svm",
    "LLMRouter mlp",
    "LLMRouter mf",
    "LLMRouter elo",
]
QUANTILES = np.linspace(0.0, 1.0, 21)
RANKED = 300  # tasks whose rate by sw_ranking calibrates it: each takes a fit
LLMROUTER: Mapping[str, Mapping[str, object]] = {
    "knn": {"n_neighbors": 5},
    "svm": {"kernel": "rbf", "C": 1.0, "gamma": "scale", "probability": True},
    "mlp": {"hidden_layer_sizes": [128, 64], "activation": "relu", "lr": 0.001, "epochs": 100, "batch_size": 32},
    "mf": {"latent_dim": 128, "lr": 0.001, "epochs": 5, "noise_alpha": 0.0},
    "elo": {},
    "graph": {"hidden_dim": 64, "learning_rate": 0.001, "train_epoch": 100, "batch_size": 4},
}


@dataclass(frozen=True)
class Given:
    """Prompts as vectors, scores and costs (units) of the training part, which of it calibrates, and the pair.

    `prices` and `limits` [L] are what a label's cost takes from its score, and what a candidate may cost in the mean.
    """

    train: Floats
    held: Floats
    scores: Floats
    costs: Floats
    calibrates: Flags
    prices: Floats
    limits: Floats
    pair: tuple[int, int]

    @classmethod
    def read(cls, path: Path) -> "Given":
        """Read what `routers_peers.py` wrote."""
        with np.load(path, allow_pickle=False) as held:
            arrays = {name: held[name] for name in held.files}
        weak, strong = arrays.pop("pair").tolist()
        return cls(**arrays, pair=(weak, strong))

    @property
    def parts(self) -> Iterator[tuple[Ints, Floats]]:
        """Yield (rows to train on, vectors to decide on): the calibration, then the part held out."""
        yield np.flatnonzero(~self.calibrates), self.train[self.calibrates]
        yield np.arange(len(self.train)), self.held


@dataclass
class Found:
    """What each router picked, [L, T], on the calibrating rows and on the part held out; seconds, milliseconds."""

    picks: dict[str, Ints] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    decisions: dict[str, list[float]] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)

    def write(self, folder: Path) -> None:
        """Write all there is."""
        np.savez_compressed(folder / "found.npz", allow_pickle=False, **self.picks)
        told = {"seconds": self.seconds, "milliseconds": self.decisions, "failed": self.failed}
        (folder / "found.json").write_text(json.dumps(told))


# RouteLLM: rates of a strong worker against a weak one.


@dataclass(frozen=True)
class Client:
    """Stands where RouteLLM has its OpenAI client: a prompt is the place of its vector, and its embedding that one."""

    vectors: Floats

    @property
    def embeddings(self) -> "Client":
        """Itself."""
        return self

    def create(self, input: Sequence[str], model: str) -> SimpleNamespace:  # noqa: A002, ARG002 - theirs
        """Return the vectors of these places."""
        return SimpleNamespace(data=[SimpleNamespace(embedding=self.vectors[int(place)].tolist()) for place in input])


def routellm_mf(given: Given, rows: Ints, vectors: Floats) -> Callable[[int], float]:
    """Train RouteLLM's matrix factorisation on pairs of which one worker was better."""
    model, training = (import_module(f"{ROUTELLM}.matrix_factorization.{name}") for name in TRAINED)

    data = [
        {"model_a": STRONG, "model_b": WEAK, "idx": place, "winner": "model_a" if gain > 0 else "model_b"}
        for place, gain in enumerate(_gains(given)[rows])
        if gain
    ]
    cut = int(len(data) * 0.95)
    batches = [
        training.PairwiseDataset(part).get_dataloaders(size, shuffle=mixed)
        for part, size, mixed in ((data[:cut], 64, True), (data[cut:], 1024, False))
    ]
    width = vectors.shape[1]
    with TemporaryDirectory() as folder:
        np.save(Path(folder) / "prompts.npy", given.train[rows])
        trained = training.MFModel_Train(
            128, len(model.MODEL_IDS), len(rows), text_dim=width, npy_path=Path(folder) / "prompts.npy"
        )
    training.train_loops(trained, *batches, lr=3e-4, weight_decay=1e-5, alpha=0.1, num_epochs=100, device="cpu")
    net = model.MFModel(128, len(model.MODEL_IDS), width, 1, True)
    state = {name: value for name, value in trained.state_dict().items() if not name.startswith("Q")}
    places = {"text_proj.weight": "text_proj.0.weight", "classifier.weight": "classifier.0.weight"}
    net.load_state_dict({places.get(name, name): value for name, value in state.items()})
    _lend(model, "OPENAI_CLIENT", Client(vectors.astype(np.float32)))
    strong, weak = model.MODEL_IDS[STRONG], model.MODEL_IDS[WEAK]
    return lambda place: float(net.pred_win_rate(strong, weak, str(place)))


def routellm_sw(given: Given, rows: Ints, vectors: Floats) -> Callable[[int], float]:
    """Set up RouteLLM's similarity-weighted ranking on these battles; every rate is a fit."""
    routers = import_module(f"{ROUTELLM}.routers")

    gains = _gains(given)[rows]
    router = routers.SWRankingRouter.__new__(routers.SWRankingRouter)  # its __init__ downloads battles and embeddings
    router.strong_model, router.weak_model, router.embedding_model = STRONG, WEAK, "given"
    router.arena_conv_embedding = given.train[rows]
    winner = np.select([gains > 0, gains < 0], ["model_a", "model_b"], "tie")
    battles = import_module("pandas").DataFrame({"model_a": STRONG, "model_b": WEAK, "winner": winner})
    router.model2tier = routers.compute_tiers(routers.compute_elo_mle_with_tie(battles), num_tiers=2)
    router.arena_df = battles.replace({"model_a": router.model2tier, "model_b": router.model2tier})
    _lend(routers, "OPENAI_CLIENT", Client(vectors))
    return lambda place: float(router.calculate_strong_win_rate(str(place)))


def routellm(given: Given, found: Found, name: str) -> None:
    """Train, rate the calibrating tasks and those held out, and pick by thresholds at shares of each."""
    prepare = {"mf": routellm_mf, "sw_ranking": routellm_sw}[name]
    rates: list[Floats] = []
    for rows, vectors in given.parts:
        begun = perf_counter()
        rate = prepare(given, rows, vectors)
        found.seconds[f"RouteLLM {name}"] = perf_counter() - begun
        many = min(RANKED, len(vectors)) if name == "sw_ranking" and not rates else len(vectors)
        rates.append(np.array([rate(place) for place in range(many)]))
    found.decisions[f"RouteLLM {name}"] = _timed(rate, len(vectors))
    for part, held in zip(("calibration", "held"), rates, strict=True):
        cuts = np.append(np.quantile(held, QUANTILES), np.inf)
        chosen = np.where(held >= cuts[:, None], given.pair[1], given.pair[0])
        found.picks[f"RouteLLM {name} {part}"] = chosen.astype(np.int64)


def _gains(given: Given) -> Floats:
    weak, strong = given.pair
    return np.nan_to_num(given.scores[:, strong]) - np.nan_to_num(given.scores[:, weak])


# LLMRouter: which of all workers.


def llmrouter(given: Given, found: Found, name: str) -> None:
    """Train one of LLMRouter's routers at each setting, and pick for the calibrating tasks and those held out."""
    for part, (rows, vectors) in zip(("calibration", "held"), given.parts, strict=True):
        picks = []
        for setting in range(len(given.prices)):
            begun = perf_counter()
            decide, single = _llmrouter(given, rows, vectors, (name, setting))
            found.seconds[f"LLMRouter {name}"] = perf_counter() - begun
            picks.append(decide())
        found.picks[f"LLMRouter {name} {part}"] = np.array(picks, np.int64)
    if name != "graph":  # which rebuilds the whole graph for each query: half a minute with many
        found.decisions[f"LLMRouter {name}"] = _timed(single, len(vectors))


def _llmrouter(
    given: Given, rows: Ints, vectors: Floats, which: tuple[str, int]
) -> tuple[Callable[[], Ints], Callable[[int], object]]:
    """Return how to decide on all vectors, and on one by `route_single`."""
    models = import_module("llmrouter.models")

    name, setting = which
    kinds = {"knn": "KNN", "svm": "SVM", "mlp": "MLP", "mf": "MF", "elo": "Elo", "graph": "Graph"}
    stem = f"{kinds[name]}Router" if name not in ("mlp", "graph") else kinds[name]
    folder = Path(TEMPORARY.name) / f"{name} {setting} {len(rows)}"
    config = _config(given, rows, folder, which)
    router = getattr(models, f"{kinds[name]}Router")(str(config))
    trainer = getattr(models, f"{stem}Trainer")(router, device="cpu")
    trainer.train()
    module = sys.modules[type(router).__module__]
    if hasattr(module, "get_longformer_embedding"):
        _lend(module, "get_longformer_embedding", lambda place: _tensor(vectors[int(place)]))
    workers = [f"w{worker}" for worker in range(given.scores.shape[1])]
    decide = {"knn": _by_sklearn, "svm": _by_sklearn, "mlp": _by_mlp, "mf": _by_mf, "elo": _by_elo, "graph": _by_graph}
    named = lambda: np.array([workers.index(one) for one in decide[name](router, trainer, vectors)])  # noqa: E731
    return named, lambda place: router.route_single({"query": str(place)})


def _by_sklearn(router: Theirs, trainer: Theirs, vectors: Floats) -> Sequence[str]:  # noqa: ARG001
    return [str(name) for name in trainer.model.predict(vectors.astype(np.float32))]


def _by_mlp(router: Theirs, trainer: Theirs, vectors: Floats) -> Sequence[str]:
    places = trainer.model.predict(_tensor(vectors))
    return [router.idx_to_model[int(place)] for place in places]


def _by_mf(router: Theirs, trainer: Theirs, vectors: Floats) -> Sequence[str]:
    with import_module("torch").no_grad():
        along = trainer.model.project_text(_tensor(vectors))
        places = [int(trainer.model.score_all(one).argmax()) for one in along]
    return [router.idx_to_model[place] for place in places]


def _by_elo(router: Theirs, trainer: Theirs, vectors: Floats) -> Sequence[str]:  # noqa: ARG001
    return [router.route_single({"query": ""})["model_name"]] * len(vectors)


def _by_graph(router: Theirs, trainer: Theirs, vectors: Floats) -> Sequence[str]:
    """Decide on all vectors in one graph, with all training edges in sight, as its `route_batch` does."""
    torch = import_module("torch")
    scaler = import_module("sklearn.preprocessing").MinMaxScaler()

    state = torch.load(trainer.save_model_path, map_location="cpu")
    router.gnn_predictor.model.load_state_dict(state)
    old = router.query_embedding_list
    scaled = scaler.fit(np.vstack([old, vectors])).transform(vectors)
    workers, every = router.num_llms, np.vstack([old, scaled])
    edges, known = len(every) * workers, len(old) * workers
    sight, wanted = torch.zeros(edges), torch.zeros(edges)
    sight[:known], wanted[known:] = 1, 1
    graph = router.form_data.formulation(
        query_feature=every,
        llm_feature=router.llm_embedding,
        org_node=np.repeat(np.arange(len(every)), workers).tolist(),
        des_node=list(range(workers)) * len(every),
        edge_feature=np.append(router.performance_list, np.zeros(edges - known)),
        label=np.zeros((edges, 1)),
        edge_mask=wanted,
        train_mask=sight,
        valide_mask=torch.zeros(edges),
        test_mask=wanted,
    )
    places = router.gnn_predictor.predict(graph).tolist()
    return [router.model_names[place] for place in places]


def _config(given: Given, rows: Ints, folder: Path, which: tuple[str, int]) -> Path:
    """Write what LLMRouter reads: prompts' vectors, and a line for each prompt and worker, better workers first."""
    name, setting = which
    folder.mkdir(parents=True)
    import_module("torch").save(_tensor(given.train[rows]), folder / "vectors.pt")
    price, means = given.prices[setting], given.costs.mean(axis=0)
    order = [
        worker
        for worker in np.argsort(-np.nanmean(given.scores[rows], axis=0))
        if means[worker] <= given.limits[setting]
    ]
    lines = [
        {
            "query": f"{place:06}",
            "model_name": f"w{worker}",
            "performance": float(given.scores[row, worker] - price * given.costs[row, worker]),
            "embedding_id": place,
        }
        for place, row in enumerate(rows)
        for worker in order
        if not np.isnan(given.scores[row, worker])
    ]
    (folder / "routing.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    saved = str(folder / ("model.pt" if name == "graph" else "model.pkl"))
    config = {
        "data_path": {
            "query_embedding_data": str(folder / "vectors.pt"),
            "routing_data_train": str(folder / "routing.jsonl"),
        },
        "model_path": {"ini_model_path": "", "save_model_path": saved, "load_model_path": saved},
        "hparam": {**LLMROUTER[name], **({"text_dim": given.train.shape[1]} if name == "mf" else {})},
    }
    path = folder / "config.yaml"
    path.write_text(json.dumps(config))  # JSON is YAML
    return path


def _tensor(rows: Floats) -> Theirs:
    """Return rows as torch has them."""
    torch = import_module("torch")
    found: Theirs = torch.tensor(rows, dtype=torch.float32)
    return found


def _lend(module: ModuleType, name: str, what: object) -> None:
    """Put something of ours where a module of theirs would look for a downloaded or a remote one."""
    vars(module)[name] = what


def _timed(decide: Callable[[int], object], count: int) -> list[float]:
    """Return the milliseconds of some decisions."""
    found = []
    for place in range(min(TIMED, count)):
        begun = perf_counter()
        decide(place)
        found.append(1000 * (perf_counter() - begun))
    return found


TEMPORARY = TemporaryDirectory()


def main() -> None:
    """Run what is asked for, and say of each router that failed why."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--routers", nargs="+", default=DEFAULT)
    arguments = parser.parse_args()
    given, found = Given.read(arguments.folder / "given.npz"), Found()
    np.random.seed(0)  # theirs draw from it
    runs = {f"RouteLLM {name}": (routellm, name) for name in ("mf", "sw_ranking")}
    runs |= {f"LLMRouter {name}": (llmrouter, name) for name in LLMROUTER}
    for name, (run, short) in runs.items():
        if name not in arguments.routers:
            continue
        try:
            with redirect_stdout(sys.stderr):
                run(given, found, short)
        except Exception as error:  # noqa: BLE001 - other people's code, and the table says what it raised
            found.failed[name] = f"{type(error).__name__}: {error}"
        found.write(arguments.folder)


if __name__ == "__main__":
    main()
