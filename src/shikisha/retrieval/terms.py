"""Words of texts as terms: identifiers are split, plurals and endings are cut, and a long query is cut into clauses.

Invariant: the same text has the same terms on every machine, in time linear in its length; no text raises. What a
person writes ("list my invoices") and what a program is called (`listInvoices`, `list_invoices`) have the same terms.
Scripts without spaces count pairs of characters. Deliberately absent: dictionaries and language detection.
"""

import re
from collections.abc import Sequence

MAX_QUERY_CHARACTERS = 8_000
MAX_CLAUSES = 8
_WORD = re.compile(r"[^\W_]+")
_PART = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|\d+|[^\W\d_A-Za-z]+")
_UNSPACED = re.compile("[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
_CLAUSE = re.compile(
    r"[.?!;:\n]+(?:\s|$)|,?\s+(?:and then|and also|as well as|additionally|also|then|finally)\b", re.IGNORECASE
)
_MIN_CLAUSE_WORDS = 3
_LONGEST_WORD = 64
_STOP_WORDS = frozenset(
    re.findall(
        r"\w+",
        "a about all also am an and any are as at be been being but by can could did do does doing for from "
        "had has have having he her here hers him his how i if in into is it its just let like may me might "
        "mine more most my need of on or our out please provide she should so some such that the their them "
        "then there these they this those to too us using very want was we were what when where which while "
        "who whom why will with would you your ll ve re s t d give tell help additionally furthermore lastly "
        "able im id",
    )
)
# Longest first; what is left must keep a vowel and three letters.
_ENDINGS = (
    ("ational", "ate"),
    ("ization", "ize"),
    ("isation", "ize"),
    ("fulness", "ful"),
    ("ations", "ate"),
    ("ation", "ate"),
    ("ments", "ment"),
    ("ities", "ity"),
    ("ings", ""),
    ("ing", ""),
    ("ies", "y"),
    ("sses", "ss"),
    ("ied", "y"),
    ("ers", "er"),
    ("ed", ""),
    ("ly", ""),
    ("xes", "x"),
    ("ches", "ch"),
    ("shes", "sh"),
    ("es", "e"),
    ("ss", "ss"),
    ("us", "us"),
    ("s", ""),
)
_VOWEL = re.compile("[aeiouy]")


def stem_word(word: str) -> str:
    """Return a lower-case word without its ending; two words of one stem count as one term."""
    for ending, instead in _ENDINGS:
        if word.endswith(ending):
            stem = word[: len(word) - len(ending)]
            if len(stem) >= 3 and _VOWEL.search(stem):
                word = stem + instead
            break
    if len(word) > 3 and word[-1] == word[-2] and word[-1] not in "lsz":
        word = word[:-1]
    return word[:-1] if len(word) > 4 and word[-1] == "e" else word


def split_word(word: str) -> tuple[str, ...]:
    """Return the terms of one run of letters and digits: its parts by capitals and digits, stemmed; no stop words."""
    terms = []
    for part in _PART.findall(word[:_LONGEST_WORD]):
        lower = part.lower()
        if _UNSPACED.search(lower):
            terms += [lower[place : place + 2] for place in range(max(1, len(lower) - 1))]
        elif lower not in _STOP_WORDS:
            terms.append(stem_word(lower))
    return tuple(terms)


class Vocabulary:
    """Terms by number. Words that were split before are remembered: reading a catalogue is three times faster so."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}
        self._words: dict[str, tuple[int, ...]] = {}

    def add_text(self, text: str) -> list[int]:
        """Return the numbers of a text's terms in order; new terms get the next numbers."""
        found: list[int] = []
        for word in _WORD.findall(text):
            terms = self._words.get(word)
            if terms is None:
                numbers = self.numbers
                terms = tuple(numbers.setdefault(term, len(numbers)) for term in split_word(word))
                self._words[word] = terms
            found += terms
        return found

    def find_text(self, text: str) -> list[int]:
        """Return the numbers of the known terms of a text, in order; nothing is added."""
        found: list[int] = []
        for word in _WORD.findall(text):
            terms = self._words.get(word)
            if terms is None:
                found += [self.numbers[term] for term in split_word(word) if term in self.numbers]
            else:
                found += terms
        return found


def split_clauses(query: str) -> Sequence[str]:
    """Return the clauses of a query in order, at most MAX_CLAUSES; very short ones stay with the one before."""
    clauses: list[str] = []
    for piece in _CLAUSE.split(query[:MAX_QUERY_CHARACTERS]):
        if clauses and len(piece.split()) < _MIN_CLAUSE_WORDS:
            clauses[-1] += f" {piece}"
        elif piece.strip():
            clauses.append(piece)
    if len(clauses) > MAX_CLAUSES:
        clauses[MAX_CLAUSES - 1 :] = [" ".join(clauses[MAX_CLAUSES - 1 :])]
    return clauses
