"""The commands as one Typer application: which there are, and in which order `--help` lists them.

Importing this imports no library but Typer: a command imports what it needs when it runs, so that `--help` is quick.
Deliberately absent: what the commands do (one small file a group of them).
"""

import typer

from shikisha.cli import (
    comparing,
    evaluating,
    exits,
    exporting,
    keeping,
    keys,
    learning,
    planning,
    policies,
    preparing,
    reading,
    rehearsing,
    running,
    serving,
    shelving,
    training,
    training_page,
    trials,
    watching,
)
from shikisha.cli.doctor import doctor
from shikisha.cli.feedback import feedback
from shikisha.cli.importing import outcomes
from shikisha.cli.options import command
from shikisha.cli.release import release
from shikisha.cli.rollback import rollback

app = typer.Typer(
    name="shikisha",
    help="Conduct a pool of AI workers: plan, perform inside hard limits, remember everything.",
    epilog=exits.HELP,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
journal = typer.Typer(help="Look after the journal.", no_args_is_help=True)
importing = typer.Typer(help="Bring workers and outcomes over from elsewhere.", no_args_is_help=True)

for each in (
    running.run,
    planning.plan,
    running.resume,
    serving.serve,
    running.approve,
    rollback,
    release,
    feedback,
    reading.runs,
    reading.trace,
    reading.explain,
    preparing.workers,
    preparing.init,
    doctor,
    rehearsing.demo,
):
    app.command()(command(each))
app.command("eval")(command(evaluating.evaluate))
app.command()(command(comparing.compare))
app.command()(command(learning.learn))
app.command()(command(training.train))
app.command()(command(training_page.train_page))
app.command()(command(exporting.export))
journal.command()(command(keeping.verify))
journal.command()(command(keeping.export))
importing.command()(command(preparing.litellm))
importing.command()(command(outcomes))
for act in (
    policies.show,
    shelving.shelf,
    shelving.add,
    shelving.shadow,
    shelving.canary,
    trials.trial,
    trials.promote,
    shelving.rollback,
    watching.watch,
):
    policies.group.command()(command(act))
app.add_typer(journal, name="journal")
app.add_typer(importing, name="import")
app.add_typer(policies.group, name="policy")
app.add_typer(keys.group, name="keys")
