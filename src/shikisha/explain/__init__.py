"""Why a run went as it did: who planned what, why this worker, who saw what, what was tried, what it cost.

`explain(run)` makes an Explanation, `explain_text(explanation)` writes it down, and `assurance` says in one paragraph
why the answer should be trusted. Deliberately absent: colours, and the
taming of terminal escapes in what models wrote (the command line's business).
"""

from shikisha.explain.assurance import MOST_EVIDENCE, TrackRecord, assurance, other_answers, track_record
from shikisha.explain.explanation import Explanation, explain
from shikisha.explain.text_report import explain_text

__all__ = [
    "MOST_EVIDENCE",
    "Explanation",
    "TrackRecord",
    "assurance",
    "explain",
    "explain_text",
    "other_answers",
    "track_record",
]
