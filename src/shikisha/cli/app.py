"""The commands as one Typer application: which there are, and in which order `--help` lists them.

Importing this imports no library but Typer: a command imports what it needs when it runs, so that `--help` is quick.
Deliberately absent: what the commands do (one small file a group of them).
"""

import typer

from shikisha.cli import (
    compare,
    demo,
    eval,
    exit_codes,
    export,
    init,
    keys,
    learn,
    plan,
    policy,
    policy_watch,
    run,
    runs,
    serve,
    train,
)
from shikisha.cli import journal as keeping
from shikisha.cli.doctor import doctor
from shikisha.cli.import_ import outcomes
from shikisha.cli.options import command
from shikisha.cli.runs import feedback, release, rollback

app = typer.Typer(
    name="shikisha",
    help="Conduct a pool of AI workers: plan, perform inside hard limits, remember everything.",
    epilog=exit_codes.EXIT_CODES_HELP,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
journal = typer.Typer(help="Look after the journal.", no_args_is_help=True)
importing = typer.Typer(help="Bring workers and outcomes over from elsewhere.", no_args_is_help=True)

for each in (
    run.run,
    plan.plan,
    run.resume,
    serve.serve,
    run.approve,
    rollback,
    release,
    feedback,
    runs.runs,
    runs.trace,
    runs.explain,
    init.workers,
    init.init,
    doctor,
    demo.demo,
):
    app.command()(command(each))
app.command("eval")(command(eval.evaluate))
app.command()(command(compare.compare))
app.command()(command(learn.learn))
app.command()(command(train.train))
app.command()(command(train.train_page))
app.command()(command(export.export))
journal.command()(command(keeping.verify))
journal.command()(command(keeping.export))
importing.command()(command(init.litellm))
importing.command()(command(outcomes))
for act in (
    policy.show,
    policy.shelf,
    policy.add,
    policy.shadow,
    policy.canary,
    policy.trial,
    policy.promote,
    policy.rollback,
    policy_watch.watch,
):
    policy.group.command()(command(act))
app.add_typer(journal, name="journal")
app.add_typer(importing, name="import")
app.add_typer(policy.group, name="policy")
app.add_typer(keys.group, name="keys")
