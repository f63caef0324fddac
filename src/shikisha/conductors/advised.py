"""A prompted conductor with what earlier runs led to: tuned advice, and lessons that fit the task at hand.

Lessons that are still on trial are shown to a share of the tasks only, drawn by content; what was shown and what was
withheld is in the proposal, so that the journal can say whether a lesson helps. Invariants: advice and lessons are
quoted data and change what the planner reads, not what it may do (5); they are used only for tasks of the scope of the
runs that they come from.
"""

from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path

from shikisha.conductors.language_model import LanguageModelConductor
from shikisha.engine.conductor import Proposal, Situation
from shikisha.learned.learned_file import LearnedFile
from shikisha.learned.lessons import LESSONS_SHOWN, Lesson, LessonBook, LessonState
from shikisha.learned.registered_file import registered_file
from shikisha.learned.tuned_prompt import PROMPT, advice_of


@dataclass(frozen=True, slots=True)
class AdvisedConductor:
    """Shows `prompt` (advice; or that of a `registry`) and fitting lessons of `book` to `inner`."""

    inner: LanguageModelConductor
    prompt: LearnedFile | None = None
    book: LessonBook | None = None
    share: float = 0.5
    registry: Path | None = None

    @property
    def name(self) -> str:
        """The inner conductor's name."""
        return self.inner.name

    async def propose(self, situation: Situation) -> Proposal:
        """Return what the inner conductor proposes with advice and lessons."""
        scope = situation.task.scope
        parts, said, beside = list[str](), list[str](), dict[str, str]()
        prompt = self.prompt
        if self.registry is not None:
            prompt = registered_file(self.registry, situation.task.content_hash, PROMPT).learned
        if prompt is not None and prompt.scope.admits(scope):
            parts.append(advice_of(prompt, "advice"))
            said.append(f"advice {prompt.short_version}")
        if self.book is not None:
            found = self.book.recall(situation.task.prompt, scope)
            shown = [lesson for lesson in found if self._shows(lesson, situation)]
            parts += [lesson.text for lesson in shown]
            if found:
                beside[LESSONS_SHOWN] = ",".join(("" if one in shown else "-") + one.id for one in found)
                said.append(f"{len(shown)} of {len(found)} lessons of {self.book.source.short_version}")
        proposal = await replace(self.inner, advice="\n".join(part for part in parts if part)).propose(situation)
        note = "; ".join(part for part in (proposal.note, *said) if part)
        return replace(proposal, note=note, beside={**proposal.beside, **beside})

    def _shows(self, lesson: Lesson, situation: Situation) -> bool:
        if lesson.state is not LessonState.TRIAL:
            return lesson.state is LessonState.KEPT
        text = f"{lesson.id} {situation.task.content_hash}"
        return int.from_bytes(sha256(text.encode()).digest()[:6], "big") / 2**48 < self.share
