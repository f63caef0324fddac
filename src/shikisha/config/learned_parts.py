"""What was learned from runs, put around conductors: read from the files that [learned] names."""

from collections.abc import Container
from pathlib import Path

from shikisha.conductors.advised import AdvisedConductor
from shikisha.conductors.language_model import LanguageModelConductor
from shikisha.conductors.noted import NoteSource
from shikisha.conductors.skilled import SkilledConductor
from shikisha.config.learned_switches import SKILL_SWITCH
from shikisha.core.errors import ConfigError
from shikisha.engine.autonomy import AutonomyClass
from shikisha.engine.conductor import Conductor
from shikisha.learned.learned_file import read_learned
from shikisha.learned.lessons import load_book
from shikisha.learned.skills import read_skills
from shikisha.learned.step_value import load_step_value
from shikisha.learned.task_classes import CLASSES_KIND, read_classes
from shikisha.learned.tuned_prompt import load_advice
from shikisha.learned.value_notes import ValueNotes
from shikisha.notes.worker_notes import EncodeTexts, is_notes, load_notes


def advised_conductor(
    inner: LanguageModelConductor, folder: Path, prompt: Path | None, lessons: Path | None, share: float
) -> AdvisedConductor:
    """Return a prompted conductor with the advice and the lessons of these files; ConfigError for one that is bad."""
    book = None if lessons is None else load_book(folder / lessons)
    if prompt is not None and (folder / prompt).is_dir():
        return AdvisedConductor(inner, None, book, share, folder / prompt)
    return AdvisedConductor(inner, None if prompt is None else load_advice(folder / prompt), book, share)


def load_confirmed_classes(file: Path) -> tuple[AutonomyClass, ...]:
    """Return the classes of `shikisha classes propose` that a person confirmed; ConfigError for a file that is bad."""
    return read_classes(read_learned(file, CLASSES_KIND), str(file)).autonomy_classes()


def load_note_source(file: Path, encode: EncodeTexts | None) -> NoteSource:
    """Read worker notes, or step values, which say the same in counts; ConfigError for neither."""
    try:
        learned = not is_notes(file)
    except OSError as error:
        raise ConfigError(f"{file}: cannot be read: {error.strerror or error}") from None
    return ValueNotes(load_step_value(file)) if learned else load_notes(file, encode)


def skilled_conductor(inner: Conductor, folder: Path, off: Container[str] = ()) -> Conductor:
    """Return a conductor that tries the skills of a folder that are on; ConfigError for one that was changed."""
    skills = tuple(skill for skill in read_skills(folder) if f"{SKILL_SWITCH}{skill.name}" not in off)
    return SkilledConductor(inner, skills) if skills else inner
