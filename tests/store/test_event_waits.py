"""Which types wait for a table, as their newest steps told it."""

from sqlalchemy import Engine

from lakechime_dagster.schema.learning import KnownType, registered
from lakechime_dagster.schema.steps import TypeResult
from lakechime_dagster.store.engine import writing
from lakechime_dagster.store.types.repository import SqlEventTypes, Waits, waits


def known(types: SqlEventTypes, *names: str, group: str = "shop") -> None:
    types.learn(group, [one for name in names if (one := registered(KnownType(type=name, table=name)))])


def settled(types: SqlEventTypes, step: int, group: str = "shop", **waiting: str) -> None:
    """A step with why types wait; three more rows of each come with each step."""
    results = [
        TypeResult(type=name, table=name, start=-1, end=step, rows=3 * step, pending=3 * step if reason else 0, waits=reason)
        for name, reason in waiting.items()
    ]
    with writing(types.engine) as connection:
        types.settle(connection, group, f"e{step}", results, "uid")


def test_the_newest_step_tells_whether_a_type_waits(engine: Engine) -> None:
    types = SqlEventTypes(engine, "test")
    known(types, "buy", "fly", "run")
    settled(types, 1, buy="frozen", fly="frozen", run="")
    assert waits(types, "shop") == {"buy": Waits(reason="frozen", rows=3), "fly": Waits(reason="frozen", rows=3)}
    settled(types, 2, buy="type_cap", fly="", run="")
    assert waits(types, "shop") == {"buy": Waits(reason="type_cap", rows=6)}


def test_types_of_other_groups_and_deployments_are_not_told(engine: Engine) -> None:
    types, elsewhere = SqlEventTypes(engine, "test"), SqlEventTypes(engine, "production")
    for one, group in ((types, "other"), (elsewhere, "shop")):
        known(one, "buy", group=group)
        settled(one, 1, group=group, buy="frozen")
    known(types, "buy")
    assert waits(types, "shop") == {}
