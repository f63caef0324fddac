"""Why a run went as it did: who planned what, why this worker, who saw what, what was tried, what it cost.

`explain(run)` makes an Explanation, `explain_text(explanation)` writes it down. Deliberately absent: colours, and the
taming of terminal escapes in what models wrote (the command line's business).
"""

from shikisha.explain.explanation import Explanation, explain
from shikisha.explain.text_report import assurance, explain_text

__all__ = ["Explanation", "assurance", "explain", "explain_text"]
