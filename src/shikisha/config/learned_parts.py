"""What was learned from runs, put around conductors: read from the files that [learned] names."""

from pathlib import Path

from shikisha.conductors.advised import AdvisedConductor
from shikisha.conductors.language_model import LanguageModelConductor
from shikisha.conductors.skilled import SkilledConductor
from shikisha.engine.conductor import Conductor
from shikisha.learned.lessons import load_book
from shikisha.learned.skills import read_skills
from shikisha.learned.tuned_prompt import load_advice


def advised_conductor(
    inner: LanguageModelConductor, folder: Path, prompt: Path | None, lessons: Path | None, share: float
) -> AdvisedConductor:
    """Return a prompted conductor with the advice and the lessons of these files; ConfigError for one that is bad."""
    book = None if lessons is None else load_book(folder / lessons)
    if prompt is not None and (folder / prompt).is_dir():
        return AdvisedConductor(inner, None, book, share, folder / prompt)
    return AdvisedConductor(inner, None if prompt is None else load_advice(folder / prompt), book, share)


def skilled_conductor(inner: Conductor, folder: Path) -> Conductor:
    """Return a conductor that tries the skills of a folder first; ConfigError for one that was changed."""
    skills = tuple(read_skills(folder))
    return SkilledConductor(inner, skills) if skills else inner
