"""A run of training: broken off anywhere it goes on as the unbroken one; what cannot work is refused beforehand."""

import asyncio
import gc
import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from tokenizers import normalizers
from trainings import TOKENS, ground, pool, settings, start, stream, words
from trainings import model as untrained

from shikisha.core.budget import Caps, Price
from shikisha.core.errors import CapReached, ConfigError, TrainingDiverged
from shikisha.core.plan import Plan, Step
from shikisha.core.prompts import render_plan_lists
from shikisha.engine.pool import Pool
from shikisha.engine.worker import Request
from shikisha.evals.reward import RewardWeights
from shikisha_train import metrics
from shikisha_train.checkpoint import CheckpointName, CheckpointStore, hash_file, load_tensors, save_model
from shikisha_train.environment import TrainingEnvironment
from shikisha_train.metrics_log import STEPS_FILE
from shikisha_train.plan_reward import PlanScorer
from shikisha_train.process_group import freeze_garbage_collection
from shikisha_train.settings import KeepTable
from shikisha_train.training_run import FINAL_FOLDER, TrainingJob, TrainingResult, train
from support import member


class Broken(Exception):
    """A process that ends, as far as one process can have it."""


def breaking(at: int) -> metrics.StepCallback:
    def watch(step: metrics.StepMetrics) -> None:
        if step.number == at:
            raise Broken

    return watch


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return start(tmp_path_factory.mktemp("start"))


@pytest.fixture
def order(tmp_path: Path, model: Path) -> TrainingJob:
    return job(model, tmp_path / "run")


def job(model: Path, folder: Path) -> TrainingJob:
    return TrainingJob(settings(model, second={"share": 0.5}), ground(), folder)


@pytest.fixture(scope="module")
def frozen() -> dict[str, dict[int, int]]:
    """By run: how many objects the garbage collector left out after each step, and after the run as step -1."""
    return {}


@pytest.fixture(scope="module")
def whole(model: Path, tmp_path_factory: pytest.TempPathFactory, frozen: dict[str, dict[int, int]]) -> TrainingResult:
    """The run that nothing breaks off."""
    gc.unfreeze()  # as it is outside of tests
    left = frozen["whole"] = {}
    order = job(model, tmp_path_factory.mktemp("whole") / "run")
    result = asyncio.run(train(replace(order, watchers=[counting_frozen(left)])))
    left[-1] = gc.get_freeze_count()
    return result


@pytest.fixture(scope="module")
def folder_after_3(model: Path, tmp_path_factory: pytest.TempPathFactory, frozen: dict[str, dict[int, int]]) -> Path:
    """A run that was broken off in its third step."""
    gc.unfreeze()
    left = frozen["broken"] = {}
    folder = tmp_path_factory.mktemp("broken") / "run"
    with pytest.raises(Broken):
        asyncio.run(train(replace(job(model, folder), watchers=[counting_frozen(left), breaking(3)])))
    left[-1] = gc.get_freeze_count()
    return folder


def counting_frozen(left: dict[int, int]) -> metrics.StepCallback:
    def watch(step: metrics.StepMetrics) -> None:
        left[step.number] = gc.get_freeze_count()

    return watch


@pytest.fixture
def broken(order: TrainingJob, folder_after_3: Path) -> TrainingJob:
    """The run that was broken off, in a folder that a test may change."""
    shutil.copytree(folder_after_3, order.folder)
    return order


def weights(folder: Path) -> bytes:
    return (folder / "model.safetensors").read_bytes()


def figures(folder: Path) -> list[dict[str, object]]:
    """The lines of a run without what the clock says."""
    lines = [json.loads(line) for line in (folder / STEPS_FILE).read_text().splitlines()]
    return [{name: value for name, value in line.items() if name != "seconds"} for line in lines]


def test_a_run_ends_with_a_conductor_that_learned_and_its_card(whole: TrainingResult, model: Path) -> None:
    assert whole.steps == 6
    assert weights(whole.folder) != weights(model)
    assert [place.step for place in CheckpointStore(whole.folder.parent, 2, print).places()] == [0, 4, 6]
    assert not (whole.folder / "state").exists()
    step, judged = whole.judged or (0, None)
    assert (step, judged and judged.count) == (6, 4)
    assert json.loads((whole.folder / "card.json").read_text())["metrics"]["step"] == 6


@pytest.mark.full
@pytest.mark.usefixtures("whole", "folder_after_3")
def test_what_is_there_before_the_first_step_is_searched_for_garbage_after_the_last_only(
    frozen: dict[str, dict[int, int]],
) -> None:
    assert [*frozen["whole"]] == [1, 2, 3, 4, 5, 6, -1]
    assert [*frozen["broken"]] == [1, 2, 3, -1]
    for left in frozen.values():
        assert left.pop(-1) == 0
        assert min(left.values()) > 10_000


def test_what_somebody_else_has_left_out_of_these_searches_stays_left_out() -> None:
    gc.freeze()
    try:
        before = gc.get_freeze_count()
        with freeze_garbage_collection():
            assert before - 100 < gc.get_freeze_count() <= before  # a few may be freed meanwhile; none is left out anew
        assert before - 100 < gc.get_freeze_count() <= before
        assert before > 10_000
    finally:
        gc.unfreeze()


@pytest.mark.full
async def test_a_run_that_was_broken_off_goes_on_as_the_unbroken_one(
    broken: TrainingJob, whole: TrainingResult
) -> None:
    await goes_on_as(whole, broken)


@pytest.mark.slow
@pytest.mark.parametrize("at", [1, 2, 5])
async def test_a_run_goes_on_from_wherever_it_was_broken_off(
    order: TrainingJob, whole: TrainingResult, at: int
) -> None:
    with pytest.raises(Broken):
        await train(replace(order, watchers=[breaking(at)]))
    await goes_on_as(whole, order)


async def goes_on_as(whole: TrainingResult, order: TrainingJob) -> None:
    resumed = await train(replace(order, resume=True))
    assert weights(resumed.folder) == weights(whole.folder)
    assert (resumed.folder / "config.json").read_bytes() == (whole.folder / "config.json").read_bytes()
    assert figures(order.folder) == figures(whole.folder.parent)
    assert any(line["gradient"] for line in figures(order.folder))
    assert resumed.judged == whole.judged


@pytest.mark.full
async def test_a_damaged_checkpoint_costs_some_steps_and_nothing_else(
    broken: TrainingJob, whole: TrainingResult
) -> None:
    (broken.folder / "step-000002" / "state" / "tensors.safetensors").write_bytes(b"")
    noted: list[str] = []
    resumed = await train(replace(broken, resume=True, note=noted.append))
    assert any("set aside as broken-step-000002" in note for note in noted)
    assert weights(resumed.folder) == weights(whole.folder)


@pytest.mark.full
async def test_a_finished_run_has_nothing_left_to_do(order: TrainingJob, whole: TrainingResult) -> None:
    shutil.copytree(whole.folder.parent, order.folder)
    again = await train(replace(order, resume=True, watchers=[breaking(6)]))
    assert weights(again.folder) == weights(whole.folder)
    assert figures(order.folder) == figures(whole.folder.parent)


@pytest.mark.full
async def test_a_run_is_gone_on_with_only_where_that_is_asked_for(broken: TrainingJob) -> None:
    with pytest.raises(ConfigError, match=r"a training run here already \(step-000002\): --resume"):
        await train(broken)
    noted: list[str] = []
    new = broken.folder.with_name("new")
    with pytest.raises(Broken):
        await train(replace(broken, folder=new, resume=True, note=noted.append, watchers=[breaking(1)]))
    assert "no checkpoint to resume yet" in noted[0]


@pytest.mark.full
@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"grpo": {"rate": 2e-3}}, r"other settings: grpo.rate was 0.001, and is 0.002"),
        ({"seed": 4}, r"other settings: seed was 0, and is 4"),
        ({"spend": {"dollars": 99.0}}, ""),
        ({"keep": {"every": 1}}, ""),
    ],
)
async def test_a_checkpoint_of_other_settings_is_refused(
    broken: TrainingJob, model: Path, change: Mapping[str, object], told: str
) -> None:
    again = replace(broken, settings=settings(model, second={"share": 0.5}, **change), resume=True)
    if told:
        with pytest.raises(ConfigError, match=told):
            await train(again)
    else:
        with pytest.raises(Broken):  # it goes on with the step after the checkpoint
            await train(replace(again, watchers=[breaking(3)]))


@pytest.mark.full
async def test_a_checkpoint_from_before_a_setting_was_there_is_gone_on_with(broken: TrainingJob) -> None:
    folder = CheckpointStore(broken.folder, 1, print).places()[-1].folder_name
    facts = broken.folder / folder / "state/facts.json"
    told = json.loads(facts.read_text())
    for key in ("second.discount", "second.across", "tasks.sets", "model.described"):
        del told["settings"][key]
    facts.write_text(json.dumps(told))
    manifest = facts.with_name("manifest.json")
    hashes = json.loads(manifest.read_text())
    hashes["files"]["state/facts.json"] = hash_file(facts)
    manifest.write_text(json.dumps(hashes))
    with pytest.raises(Broken):
        await train(replace(broken, resume=True, watchers=[breaking(3)]))


async def test_a_checkpoint_of_another_pool_is_refused(broken: TrainingJob) -> None:
    other = replace(broken.environment, identity={"taskset": "turns", "pool": "four"})
    with pytest.raises(ConfigError, match="a checkpoint of another pool: was three, is four"):
        await train(replace(broken, environment=other, resume=True))


async def test_weights_that_are_no_numbers_end_training_and_are_not_kept(order: TrainingJob, model: Path) -> None:
    """The rate is so high that the first steps blow the weights up; which check sees it first does not matter."""
    wild = settings(model, grpo={"rate": 1e30, "schedule": "constant", "warmup": 0.0}, keep={"every": 1})
    with pytest.raises(TrainingDiverged, match=r"no numbers|the loss is"):
        await train(replace(order, settings=wild))
    kept = CheckpointStore(order.folder, 2, print).newest()
    assert kept is not None
    assert all(bool(each.isfinite().all()) for each in load_tensors(kept.folder / "model.safetensors").values())


@pytest.mark.full
async def test_spent_dollars_end_training_with_everything_kept_and_more_go_on(
    order: TrainingJob, model: Path, whole: TrainingResult
) -> None:
    capped = settings(model, second={"share": 0.5}, spend={"dollars": whole.spent * 0.6}, keep={"every": 6})
    with pytest.raises(CapReached, match=r"spend\.dollars cap reached"):
        await train(replace(order, settings=capped))
    done = CheckpointStore(order.folder, 2, print).places()[-1].step
    assert 0 < done < 6
    more = settings(model, second={"share": 0.5}, spend={"dollars": whole.spent * 9})
    resumed = await train(replace(order, settings=more, resume=True))
    assert weights(resumed.folder) == weights(whole.folder)
    assert resumed.spent >= whole.spent


@pytest.mark.full
async def test_a_kill_costs_some_minutes_however_long_it_is_to_the_next_checkpoint(
    tmp_path: Path, order: TrainingJob, whole: TrainingResult
) -> None:
    now = [0.0]

    def an_hour_later(step: metrics.StepMetrics) -> None:
        now[0] = 3600.0 * step.number

    seldom = order.settings.model_copy(update={"keep": KeepTable(every=1000, last=1000)})
    slow = replace(order, settings=seldom, clock=lambda: now[0], watchers=(an_hour_later,))
    with pytest.raises(Broken):
        await train(replace(slow, watchers=(an_hour_later, breaking(3))))
    assert [place.folder_name for place in CheckpointStore(order.folder, 1, print).places()] == [
        f"step-{n:06}" for n in range(3)
    ]
    again = await train(replace(slow, resume=True))
    assert weights(again.folder) == weights(whole.folder)

    still = replace(slow, folder=tmp_path / "still", clock=lambda: 0.0, watchers=(breaking(1),))
    with pytest.raises(Broken):
        await train(still)
    assert [place.folder_name for place in CheckpointStore(still.folder, 1, print).places()] == ["step-000000"]


async def refused(order: TrainingJob, told: str) -> None:
    """Nothing is begun."""
    with pytest.raises(ConfigError, match=told):
        await train(order)
    assert not CheckpointStore(order.folder, 1, print).places()


@pytest.mark.parametrize(
    ("tables", "told"),
    [
        ({"grpo": {"steps": 0}}, "grpo.steps: expected 1 or more, found 0"),
        ({"model": {"start": "./nowhere"}}, r"model.start: ./nowhere: expected a folder with a model, or a name"),
        (
            {"spend": {"dollars": 0.2}},
            r"\$0.2 are not likely to suffice for one group, at \$0.24. Estimated from prices",
        ),
    ],
)
async def test_what_cannot_work_is_refused_beforehand(
    order: TrainingJob, tables: Mapping[str, object], told: str
) -> None:
    await refused(replace(order, settings=settings(Path(order.settings.model.start), **tables)), told)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda found: replace(found, stream=lambda i: replace(stream(i), pool=pool("left"))), "has a pool of 1"),
        (lambda found: replace(found, stream=lambda i: replace(stream(i), pool=None)), "has a pool of 0"),
        (lambda found: replace(found, stream=lambda i: replace(stream(i), pool=unpriced())), "other has no price"),
        (lambda found: replace(found, caps=Caps(dollars=0.0001)), ""),
    ],
)
async def test_tasks_and_pools_that_cannot_work_are_refused(
    order: TrainingJob, change: Callable[[TrainingEnvironment], TrainingEnvironment], told: str
) -> None:
    made = replace(
        order, environment=change(order.environment), settings=settings(Path(order.settings.model.start), spend=_CAP)
    )
    if told:
        await refused(made, told)
    else:  # a run's own cap is below what its steps may cost
        assert (await train(replace(made, settings=settings(Path(made.settings.model.start), spend=_CAP)))).steps == 6


_CAP = {"dollars": 5.0}


def unpriced() -> Pool:
    return Pool([member("left", price=Price(call=0.01)), member("other", price=None)])


def lowercase_words(folder: Path) -> None:
    """A tokenizer that cannot write every plan: it has no capital letters."""
    told = words()
    told.normalizer = normalizers.Lowercase()
    told.save(str(folder / "tokenizer.json"))


def without(token: str) -> Callable[[Path], object]:
    def spoil(folder: Path) -> None:
        model = untrained()
        model.config.update({token: None})
        save_model(model, folder, {**TOKENS, token: None})

    return spoil


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (without("eos_token_id"), "has no end token"),
        (without("pad_token_id"), "has no pad token"),
        (lambda folder: save_model(untrained(0, 9), folder, TOKENS), "and its model knows 9"),
        (lowercase_words, "the tokenizer of .* cannot write plans"),
        (lambda folder: (folder / "chat_template.jinja").unlink(), "has no chat template"),
        (lambda folder: (folder / "tokenizer.json").write_text("{}"), "tokenizer.json: not a tokenizer"),
        (lambda folder: (folder / "tokenizer.json").unlink(), "missing: tokenizer.json"),
        (lambda folder: (folder / "model.safetensors").write_bytes(b"weights"), "its weights cannot be read"),
        (lambda folder: lacking(folder), "weights and config.json do not fit: missing model.norm.weight"),
        (lambda folder: (folder / "config.json").write_text("{}"), "its weights cannot be read"),
        (lambda folder: (folder / "card.json").write_text('{"format": "2"}'), "a card of format '2'"),
        (lambda folder: (folder / "card.json").write_text("[]"), "not a model card of a conductor"),
    ],
)  # fmt: skip
async def test_a_model_that_cannot_conduct_is_refused(
    order: TrainingJob, tmp_path: Path, spoil: Callable[[Path], object], told: str
) -> None:
    folder = start(tmp_path / "spoilt")
    spoil(folder)
    await refused(replace(order, settings=settings(folder)), told)


def lacking(folder: Path) -> None:
    from safetensors.torch import save_file

    held = load_tensors(folder / "model.safetensors")
    del held["model.norm.weight"]
    save_file(held, folder / "model.safetensors", metadata={"format": "pt"})


@pytest.mark.full
async def test_what_ends_a_run_is_itself_a_beginning(order: TrainingJob, whole: TrainingResult) -> None:
    short = settings(whole.folder, grpo={"steps": 1})
    second = await train(TrainingJob(short, ground(), order.folder))
    told = json.loads((second.folder / "card.json").read_text())
    assert told["training"]["start"]["folder"] == FINAL_FOLDER
    assert told["licence"] == f"that of the model it started from ({Path(order.settings.model.start).name})"
    assert "Weights after 6 of 6 steps" in told["training"]["start"]["what"]


async def test_workers_limits_hold_over_all_runs_and_a_task_may_come_twice() -> None:
    most, now = 0, 0

    async def slow(_: Request) -> str:
        nonlocal most, now
        now += 1
        most = max(most, now)
        await asyncio.sleep(0.001)
        now -= 1
        return "left"

    narrow = Pool([member("left", slow, concurrency=2), member("right")])
    items = [replace(stream(place // 2 * 2), pool=narrow) for place in range(8)]
    text = render_plan_lists(Plan((Step("Answer.", 0),)))
    found = await PlanScorer(RewardWeights()).scores([[text] for _ in items], items)
    assert [one.right for (one,) in found] == [True] * 8
    assert most == 2


def test_places_are_read_from_names_alone() -> None:
    assert CheckpointName.parse("step-000012") == CheckpointName(12)
    assert [
        CheckpointName.parse(name) for name in ("step-12", "step-0000012x", "stop-000012", "broken-step-000012")
    ] == [None] * 4
    assert CheckpointName.parse(CheckpointName(1_234_567).folder_name) == CheckpointName(1_234_567)
    assert CheckpointName.parse("warm-000010") is None
