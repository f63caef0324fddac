"""Notes on cards: what a prompted conductor sees, and that they change what it reads and nothing else."""

from shikisha import Card, Plan, Step, Task
from shikisha.conductors.noted import NotedConductor
from shikisha.core.events import GradeBasis
from shikisha.core.task import Scope
from shikisha.engine.conductor import Proposal, Situation
from shikisha.notes.step_outcomes import WorkerOutcome, subtask_terms
from shikisha.notes.worker_notes import WorkerNotes

CARDS = (Card("a", "a helpful assistant"), Card("b", ""))


def outcome(worker: str, text: str, share: float, labels: frozenset[str] = frozenset()) -> WorkerOutcome:
    return WorkerOutcome(
        "run", worker, subtask_terms(text), share, True, GradeBasis.PERSON, 0.002, 0.1, Scope("", labels)
    )


class ReadsCards:
    """Gives everything to the first worker, and remembers what it saw."""

    name = "reads-cards"

    def __init__(self) -> None:
        self.seen: tuple[Card, ...] = ()

    async def propose(self, situation: Situation) -> Proposal:
        self.seen = situation.cards
        return Proposal(Plan((Step("x", 0),)), note="why")


SUMS = [outcome("a", "Add 3 and 4.", 0.0) for _ in range(4)] + [outcome("b", "Add 5 and 9.", 1.0) for _ in range(5)]


async def test_cards_say_what_outcomes_say_of_work_like_the_task_s() -> None:
    inner = ReadsCards()
    proposal = await NotedConductor(inner, WorkerNotes.collect(SUMS)).propose(Situation(Task("Add 17 and 4."), CARDS))
    first, second = (card.description for card in inner.seen)
    assert first.startswith("a helpful assistant Outcomes: right on 0 of 4, $0.002 a call. At work like 'Add 17 and 4")
    assert "right on 5 of 5" in second
    assert proposal.note.startswith("why; notes ")
    assert [card.name for card in inner.seen] == ["a", "b"]


async def test_a_card_without_outcomes_stays_as_it_is() -> None:
    inner = ReadsCards()
    await NotedConductor(inner, WorkerNotes.collect([])).propose(Situation(Task("Add 17 and 4."), CARDS))
    assert inner.seen == CARDS


async def test_labeled_outcomes_are_seen_by_tasks_with_the_label_only() -> None:
    inner, secret = ReadsCards(), [outcome("a", "Add 3 and 4.", 1.0, frozenset({"secret"}))]
    noted = NotedConductor(inner, WorkerNotes.collect(secret))
    await noted.propose(Situation(Task("Add 17 and 4."), CARDS))
    assert inner.seen == CARDS
    await noted.propose(Situation(Task("Add 17 and 4.", labels=("secret",)), CARDS))
    assert "right on 1 of 1" in inner.seen[0].description


async def test_exploring_names_the_least_tried_worker_in_its_share_of_tasks() -> None:
    inner = ReadsCards()
    noted = NotedConductor(inner, WorkerNotes.collect(SUMS), explore=0.3)
    named = 0
    for number in range(300):
        await noted.propose(Situation(Task(f"Add {number} and 4."), (*CARDS, Card("new"))))
        named += inner.seen[2].description.startswith("Hardly tried")
    assert 60 <= named <= 120
