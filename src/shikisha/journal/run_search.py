"""Search in what runs were asked, what their steps said, and what they answered, by words, newest first.

Invariants: whoever searches as a tenant finds that tenant's texts only. All words must be in one text; each may be the
beginning of a word. What is typed is never a query language: it is cut into words first. Work is bounded: at most
`MAX_WORDS` words, and the newest `MAX_HITS` texts that match. Where words cannot be told apart (Chinese, Japanese,
Thai), or SQLite was built without FTS5, the newest `MAX_SCANNED` texts are read one by one. Deliberately absent:
ranking.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import ColumnElement, Connection, Select, and_, bindparam, func, literal_column, select, text

from shikisha.journal.run_index import has_word_table, scope_word, storable_text
from shikisha.journal.schema import RUN_TEXTS

MAX_WORDS = 12
MAX_HITS = 2_000
MAX_SCANNED = 20_000
_MAX_QUERY = 300  # characters
_WORD = re.compile(r"[^\W_]+")
# PostgreSQL would take "foo.bar" and "-5" as words of their own.
_PLAIN_WORDS = "regexp_replace(run_texts.text, '[^[:alnum:]]+', ' ', 'g')"
# Scripts that are written without spaces between words, from Thai to the CJK blocks.
_UNSPACED = re.compile("[\u0e00-\u0eff\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")


@dataclass(frozen=True, slots=True)
class TextQuery:
    """What is looked for: words as typed, a tenant (None: any), and in which parts (task, step, answer; (): all).

    `roots`: not in child runs.
    """

    words: str
    tenant: str | None = None
    parts: tuple[str, ...] = ()
    roots: bool = False

    @property
    def terms(self) -> tuple[str, ...]:
        """The words that are looked for."""
        found = _WORD.findall(storable_text(self.words[:_MAX_QUERY]))
        return tuple(dict.fromkeys(word.lower() for word in found))[:MAX_WORDS]


def matching_texts(connection: Connection, asked: TextQuery) -> Select[int]:
    """Return the statement that gives the ids of the newest texts that match; none where no word is typed."""
    terms = asked.terms
    ids = select(RUN_TEXTS.c.id).where(*_conditions(asked)).order_by(RUN_TEXTS.c.id.desc()).limit(MAX_HITS)
    if not terms:
        return ids.where(literal_column("1 = 0"))
    if _UNSPACED.search("".join(terms)) or (connection.dialect.name == "sqlite" and not has_word_table(connection)):
        newest = select(func.max(RUN_TEXTS.c.id)).scalar_subquery()
        return ids.where(RUN_TEXTS.c.id > newest - MAX_SCANNED, *[_holds(term) for term in terms], *_scope(asked))
    if connection.dialect.name == "sqlite":
        words = " AND ".join(f'text:"{term}"*' for term in terms)
        scoped = words if asked.tenant is None else f"{words} AND scope:{scope_word(asked.tenant)}"
        # The newest matches are taken from the word index alone, so that a common word costs no more than a rare one.
        matching = text("SELECT rowid FROM run_words WHERE run_words MATCH :words ORDER BY rowid DESC LIMIT :most")
        hits = matching.bindparams(bindparam("words", scoped), bindparam("most", MAX_HITS))
        return ids.where(RUN_TEXTS.c.id.in_(hits.columns(RUN_TEXTS.c.id)))
    document = func.to_tsvector(literal_column("'simple'"), literal_column(_PLAIN_WORDS))  # as the index has it
    query = func.to_tsquery(literal_column("'simple'"), " & ".join(f"{term}:*" for term in terms))
    return ids.where(document.op("@@")(query), *_scope(asked))


def _conditions(asked: TextQuery) -> list[ColumnElement[bool]]:
    where: list[ColumnElement[bool]] = []
    if asked.parts:
        where.append(RUN_TEXTS.c.part.in_(asked.parts))
    if asked.roots:
        where.append(RUN_TEXTS.c.run == RUN_TEXTS.c.root)
    return where


def _scope(asked: TextQuery) -> list[ColumnElement[bool]]:
    return [] if asked.tenant is None else [RUN_TEXTS.c.scope == scope_word(asked.tenant)]


def _holds(term: str) -> ColumnElement[bool]:
    return RUN_TEXTS.c.text.icontains(term, autoescape=True)


@dataclass(frozen=True, slots=True)
class TextHit:
    """A text that matches: in which run and part, the words around the first match, and the match itself."""

    run: str
    part: str
    before: str
    match: str
    after: str


def first_hits(connection: Connection, asked: TextQuery, roots: Sequence[str], around: int = 70) -> dict[str, TextHit]:
    """Return the newest match in each of these runs and their child runs, by root run."""
    columns = (RUN_TEXTS.c.run, RUN_TEXTS.c.root, RUN_TEXTS.c.part, RUN_TEXTS.c.text)
    where = and_(RUN_TEXTS.c.id.in_(matching_texts(connection, asked)), RUN_TEXTS.c.root.in_(roots))
    found: dict[str, TextHit] = {}
    for run, root, part, said in connection.execute(select(*columns).where(where).order_by(RUN_TEXTS.c.id.desc())):
        if root not in found:
            found[root] = _hit(run, part, " ".join(said.split()), asked.terms, around)
    return found


def _hit(run: str, part: str, said: str, terms: Sequence[str], around: int) -> TextHit:
    """Return the place of the first word that is found as it was typed; the text's beginning where accents differ."""
    lowered = said.lower()
    places = [(lowered.find(term), len(term)) for term in terms]
    begin, length = min(((at, size) for at, size in places if at >= 0), default=(0, 0))
    start, end = max(0, begin - around), begin + length + around
    before = ("…" if start else "") + said[start:begin]
    return TextHit(
        run, part, before, said[begin : begin + length], said[begin + length : end] + "…" * (end < len(said))
    )
