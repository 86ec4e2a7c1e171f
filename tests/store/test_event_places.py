"""Where types of a group stand is told by place: how many are there, and one of them."""

from sqlalchemy import Engine

from lakechime_dagster.silver.schema import KnownType, TypePlace
from lakechime_dagster.silver.store import SqlEventTypes, TypesAt, places_of
from tests.store.test_event_types import learning, prototype


def make_type(name: str, version: int) -> KnownType:
    return KnownType(type=name, table=name, place=TypePlace(uid="u", version=version))


def test_types_that_stand_together_are_told_as_one_place(engine: Engine) -> None:
    several = [learning(make_type(name, version), prototype(a=1)) for name, version in (("b", 7), ("a", 7), ("late", 3))]
    SqlEventTypes(engine, "test").learn("shop", several)
    assert places_of(engine, "test", "shop") == [
        TypesAt(place=TypePlace(uid="u", version=3), types=1, example="late"),
        TypesAt(place=TypePlace(uid="u", version=7), types=2, example="a"),
    ]
    assert places_of(engine, "test", "other") == places_of(engine, "other", "shop") == []
