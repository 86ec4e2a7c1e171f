"""What was learnt is numbered once, on every database, and read by its number."""

from typing import Any

from sqlalchemy import Engine

from lakechime_dagster.schema.repository import KnownType
from lakechime_dagster.store.types.projection import EventProjection
from lakechime_dagster.store.types.repository import SqlEventTypes
from tests.store.test_event_types import learning, prototype


def learn(engine: Engine, name: str, group: str = "shop", deployment: str = "test", **fields: Any) -> None:
    types = SqlEventTypes(engine, deployment)
    known = types.types(group).get(name, KnownType(type=name, table=name))
    types.learn(group, [learning(known, prototype(**fields))])


def test_what_was_learnt_since_gets_the_next_number(engine: Engine) -> None:
    known = EventProjection(engine, "test", ("other", "shop"))
    assert (known.number(), known.layouts(), known.variations()) == (0, [], [])
    learn(engine, "buy", n=1)
    learn(engine, "jump", "other", n=1)
    assert (known.number(), known.number()) == (1, 1)
    learn(engine, "buy", n="x")
    learn(engine, "theirs", deployment="theirs", n=1)
    learn(engine, "elsewhere", "elsewhere", n=1)
    assert known.number() == 2
    assert [(row["group"], row["type"], row["version"], row["gained"]) for row in known.layouts()] == [
        ("other", "jump", 1, ["n"]), ("shop", "buy", 1, ["n"]), ("shop", "buy", 2, ["n__v_string"]),
    ]  # fmt: skip
    assert [(row["type"], row["version"], row["gained"]) for row in known.layouts(after=1)] == [("buy", 2, ["n__v_string"])]
    assert [(row["type"], row["position"]) for row in known.variations(after=1)] == [("buy", 3)]
    assert known.layouts(after=2) == known.variations(after=2) == []


def test_what_is_not_numbered_yet_is_not_told(engine: Engine) -> None:
    learn(engine, "buy", n=1)
    known = EventProjection(engine, "test", ("shop",))
    assert (known.layouts(), known.variations()) == ([], [])
