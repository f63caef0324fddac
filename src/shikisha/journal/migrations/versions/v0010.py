"""Rows of `events` may hold several events of a run (`codec.bundle_events`), which earlier versions cannot read."""

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    """Change no table: the new number keeps earlier versions from reading such rows as damaged ones."""
