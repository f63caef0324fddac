"""Statements that go straight to SQLite's driver say what SQLAlchemy would say, and fail as it would."""

from collections.abc import Iterator

import pytest
from sqlalchemy import Connection, bindparam, create_engine, insert, or_, select, update
from sqlalchemy.exc import IntegrityError, OperationalError

from shikisha.journal.schema import HEAD, MEMBERS, METADATA
from shikisha.journal.statements import Statement

ADD = Statement.of(insert(MEMBERS))
MARK = Statement.of(
    update(MEMBERS)
    .where(or_(MEMBERS.c.id == bindparam("of"), MEMBERS.c.place == "everywhere"))
    .values(state=bindparam("new"), began=MEMBERS.c.began + 1)
)
STATE = Statement.of(select(MEMBERS.c.state, MEMBERS.c.began).where(MEMBERS.c.id == bindparam("of")).with_for_update())


@pytest.fixture
def connection() -> Iterator[Connection]:
    engine = create_engine("sqlite://")
    with engine.begin() as connection:
        METADATA.create_all(connection, [MEMBERS])
        yield connection
    engine.dispose()


def member(name: str, place: str = "here") -> dict[str, object]:
    return {"id": name, "state": "alive", "alive_until": 9.5, "began": 1, "place": place, "ended": None}


def test_rows_go_in_and_come_out_as_sqlalchemy_sees_them(connection: Connection) -> None:
    ADD.execute(connection, [member("a"), member("b", "everywhere"), member("c")])
    MARK.execute(connection, [{"of": "a", "new": "dead"}])
    assert STATE.first(connection, {"of": "a"}) == ("dead", 2.0)
    rows = connection.execute(select(MEMBERS.c.id, MEMBERS.c.state, MEMBERS.c.began).order_by(MEMBERS.c.id))
    assert [tuple(row) for row in rows] == [("a", "dead", 2.0), ("b", "dead", 2.0), ("c", "alive", 1.0)]
    assert STATE.first(connection, {"of": "nobody"}) is None


def test_what_the_store_refuses_is_sqlalchemy_s_error_without_the_values(connection: Connection) -> None:
    ADD.execute(connection, [member("a")])
    with pytest.raises(IntegrityError) as refused:
        ADD.execute(connection, [member("a", "a secret place")])
    assert "UNIQUE" in str(refused.value.orig)
    assert "a secret place" not in str(refused.value)
    with pytest.raises(OperationalError, match="no such table"):
        Statement.of(select(HEAD.c.count)).first(connection)


def test_a_value_that_is_missing_is_not_made_up(connection: Connection) -> None:
    with pytest.raises(KeyError):
        MARK.execute(connection, [{"of": "a"}])
