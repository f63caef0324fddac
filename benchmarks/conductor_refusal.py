"""Whether a trained conductor knows what it cannot read: how many of its own tasks it refuses, and of everyday ones.

    python benchmarks/conductor_refusal.py [CHECKPOINT] [--json]

The checkpoint is a folder with a `model.onnx` (by default the shipped one). Its own tasks are those of the
rehearsal's three splits, three seeds each, with the pools that were drawn for them. The everyday prompts were written
for this script as different people would type them; they meet chat workers as a README would describe them, the same
without descriptions, and the embedded orchestra. Nothing is decoded: only whether the conductor would begin to write.
"""

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import mean

from common import Figure, report
from shikisha.conductors.onnx_checkpoint import open_onnx_checkpoint, shipped_checkpoint
from shikisha.conductors.trained_model import TrainedConductor
from shikisha.config.container import load_config
from shikisha.core.budget import Price
from shikisha.core.task import Task
from shikisha.engine.worker import Card
from shikisha.simulation.task_generator import generate_tasks
from shikisha.simulation.vocabulary import WordingSplit

SEEDS, TASKS = (5, 6, 7), 1000
EVERYDAY = """\
Write a haiku and then translate it into French.
What is the capital of Australia?
Summarize this meeting in three bullet points.
fix my sql: select * form users where id = 3
Which of these invoices is overdue?
Can you help me write a polite email to my landlord about the broken heating?
explain recursion like I'm five
Translate "Where is the train station?" into Japanese.
How do I reverse a linked list in Python?
Give me a recipe for lentil soup with what is left in the fridge: carrots, onions, rice.
why is the sky blue
Draft a cover letter for a junior accountant position.
What are the side effects of ibuprofen?
plan a weekend trip to Lisbon for two, cheap
Is it safe to eat raw eggs when pregnant?
Compare the iPhone and the Pixel cameras.
Who wrote Pride and Prejudice?
Rewrite this paragraph so that it sounds less formal.
What time is it in Tokyo when it is noon in New York?
my docker container exits with code 137, what does it mean
Prove that the square root of two is irrational.
How much is a 15% tip on $48.60?
Suggest ten names for a coffee shop.
What does "schadenfreude" mean?
Write unit tests for this function.
Is this contract clause enforceable in Germany?
Turn these notes into a project plan with milestones.
How many calories does a banana have?
What happened in Berlin in 1989?
Debug: TypeError: 'NoneType' object is not subscriptable
Make a quiz about photosynthesis for eighth graders.
Which programming language should I learn first?
Can you proofread my essay?
What's the difference between a virus and a bacterium?
Convert 12 miles to kilometers.
Generate a regex that matches ISO dates.
Tell me a joke about lawyers.
Write a limerick about my cat, whose name is Biscuit.
How does compound interest work?
Recommend a good book about the Roman Empire.
Classify this review as positive or negative: "Battery died after a week."
Extract all email addresses from the text below.
What is the boiling point of ethanol?
How can I get rid of ants in the kitchen?
Outline a talk on climate adaptation for city councils.
Is 91 prime?
Solve for x: 3x + 7 = 22
Which tax form do freelancers need in the US?
Write a bash script that backs up my home directory every night.
What should I wear to a winter wedding?
Summarise the attached PDF.
What's the population of Nigeria?
Give feedback on my pitch deck.
Who is the current prime minister of Canada?
How do vaccines train the immune system?
Create a workout plan for beginners, three days a week.
Explain the trolley problem and where it breaks down.
What are three good interview questions for a nurse?
Find the bug in this loop: for (i = 0; i <= n; i++) sum += a[i];
Please shorten this to 280 characters.
Write a product description for a bamboo toothbrush.
How long should I boil an egg?
Describe the plot of Hamlet in two sentences.
When is the next solar eclipse visible from Spain?
Which of the following is a mammal: shark, dolphin, tuna?
Write a SQL query that returns the top five customers by revenue.
How many days are there until Christmas?
Calculate the monthly payment on a 30 year mortgage of 320000 at 6.1 percent.
Can you count the letters in "strawberry"?
What is the sum of the first hundred odd integers?
Sort these words alphabetically: pear, fig, apple, plum.
I was charged twice for order 88213, please refund one of them.
Set up a meeting with Priya on Thursday afternoon.
What's the weather like tomorrow in Oslo?
Turn on the lights in the living room.
Read the thermostat and tell me whether I should open a window.
Which of our suppliers raised prices more than 10% since March?
Look up the phone number of the nearest pharmacy.
Give me the minutes of the last board meeting.
Write a function in Rust that parses a CSV line.
Refactor this class so that it has no global state.
Why does my React component render twice?
What is the time complexity of quicksort?
Design a database schema for a library.
Explain what this Kubernetes manifest does.
Why am I getting a CORS error?
Set the variable to null and return early.
Add a dark mode toggle to the page.
Review this pull request for security problems.
Write release notes from these commits.
Which model is cheaper for long documents?
Is the claim in the second paragraph supported by the source?
Is it going to rain?
hello
hi there, how are you today?
thanks!
Can we do this more cheaply?
What do you think about universal basic income?
Should I take the job offer?
Give me the pros and cons of electric cars.
Make this sound more confident.
How do you say "good morning" in Korean?
Name the planets in order of distance from the sun.
What is 17 squared?
In which year was the Eiffel Tower finished?
What is the largest number that can be written with three nines?
Who won the world cup in 2014?
How many times does the letter e appear in this sentence?
What is the day of the week on July 4, 2031?
Can you tell me which of these two loans is the better deal?
Put these events in chronological order.
How far is the moon from the earth?
Multiply the two matrices below.
Explain the offside rule.
Estimate how many piano tuners work in Chicago.
A train leaves at 3 pm at 60 mph; when does it arrive 200 miles away?
If Anna is twice as old as Ben and Ben is 9, how old is Anna?
What is a good name for a dog?
Could you say that again in simpler words?
Write an apology to a customer whose parcel was lost.
""".splitlines()
CHAT = (
    Card("cheap", "Quick and cheap; good at short, clear tasks.", kind="chat", price=Price(0.0, 0.0)),
    Card("dear", "Slow and careful; strong at reasoning and code.", kind="chat", price=Price(1.25, 10.0)),
    Card("calculator", "Runs a short Python program and returns what it prints.", kind="python"),
)
BLANK = tuple(Card(card.name, kind=card.kind, price=card.price) for card in CHAT)


def refused(conductor: TrainedConductor, asked: Iterable[tuple[Task, Sequence[Card]]]) -> float:
    """Return the percentage of tasks that it says it cannot read."""
    return 100 * mean(conductor.unreadable(cards, task) is not None for task, cards in asked)


def main() -> None:
    """Measure and print."""
    given = [argument for argument in sys.argv[1:] if not argument.startswith("--")]
    conductor = TrainedConductor("lm:measured", open_onnx_checkpoint(Path(given[0]) if given else shipped_checkpoint()))
    own = [
        (item.task, item.pool.cards)
        for split in (WordingSplit.HELDOUT, WordingSplit.DEV, WordingSplit.TRAIN)
        for seed in SEEDS
        for item in generate_tasks(split, seed, count=TASKS)
    ]
    embedded = load_config().pool().cards
    pools = {"chat workers": CHAT, "chat workers that say nothing": BLANK, "the embedded orchestra": embedded}
    found = [Figure(f"own tasks ({len(own):,}): refused", refused(conductor, own), "%", 0.0)]
    found += [
        Figure(f"everyday prompts ({len(EVERYDAY)}), {what}: refused", share, "%", 95.0, at_least=True)
        for what, cards in pools.items()
        for share in [refused(conductor, [(Task(prompt), cards) for prompt in EVERYDAY])]
    ]
    few = [(item.task, CHAT) for item in generate_tasks(WordingSplit.HELDOUT, SEEDS[0], count=TASKS)]
    found.append(Figure("own questions, chat workers: refused", refused(conductor, few), "%", 95.0, at_least=True))
    report("What a trained conductor refuses to read", found)


if __name__ == "__main__":
    main()
