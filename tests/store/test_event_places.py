"""Where types of a group stand is told by checkpoint: how many are there, and one of them."""

from sqlalchemy import Engine

from lakechime_dagster.silver.schema import KnownType, TypeCheckpoint
from lakechime_dagster.silver.store import SqlEventTypes, TypesAt, checkpoints_of
from tests.store.test_event_types import learning, prototype


def make_type(name: str, version: int) -> KnownType:
    return KnownType(type=name, table=name, checkpoint=TypeCheckpoint(uid="u", version=version))


def test_types_that_stand_together_are_told_as_one_checkpoint(engine: Engine) -> None:
    several = [learning(make_type(name, version), prototype(a=1)) for name, version in (("b", 7), ("a", 7), ("late", 3))]
    SqlEventTypes(engine, "test").learn("shop", several)
    assert checkpoints_of(engine, "test", "shop") == [
        TypesAt(checkpoint=TypeCheckpoint(uid="u", version=3), types=1, example="late"),
        TypesAt(checkpoint=TypeCheckpoint(uid="u", version=7), types=2, example="a"),
    ]
    assert checkpoints_of(engine, "test", "other") == checkpoints_of(engine, "other", "shop") == []
