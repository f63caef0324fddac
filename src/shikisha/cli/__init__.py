"""The command line. `main` is the entry point; `app` lists the commands, one small file holds each group of them.

Deliberately absent: imports, so that no file of this package imports the package and all the others with it.
"""


def main() -> None:
    """Run the command line."""
    from shikisha.cli.app import app
    from shikisha.cli.output import escape_unencodable

    escape_unencodable()
    app()
