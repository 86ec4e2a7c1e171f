"""What producers sent and brought is kept once, by name so far as there is room, and what is withheld is what the newest step read."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import Engine

from lakechime_dagster.errors import LaneConflictError
from lakechime_dagster.lake.contracts import Contract
from lakechime_dagster.schema.kinds import Kind
from lakechime_dagster.schema.learning import learned, sent_of
from lakechime_dagster.schema.producers import Accounts
from lakechime_dagster.schema.repository import KnownType, Learning, Prototype
from lakechime_dagster.schema.rescue import Rescue
from lakechime_dagster.schema.results import Sent
from lakechime_dagster.store.engine import writing
from lakechime_dagster.store.types import accounts as event_accounts
from lakechime_dagster.store.types import repository as event_types
from lakechime_dagster.store.types.measures import measures
from lakechime_dagster.store.types.producers import COUNTS, producers
from lakechime_dagster.store.types.repository import SqlEventTypes
from tests.store.test_event_types import NEW, prototype, result, settle


@pytest.fixture
def types(engine: Engine) -> SqlEventTypes:
    return SqlEventTypes(engine, "test")


def sent_by(producer: str, **fields: Any) -> Prototype:
    return replace(prototype(**fields), producer=producer, senders=(producer,), source=f"a@{producer}")


def learning(known: KnownType, *found: Prototype, cap: int | None = None, columns: Mapping[str, int] | None = None) -> Learning:
    one = learned(known, found, Contract(), Accounts(cap=cap, columns=columns or {}, sent=sent_of(found, {}, {})))
    assert one is not None
    return one


def step(end: int, **sent: Sent) -> Any:
    return replace(result(end, step=end), producers=sent)


def kept(types: SqlEventTypes, type_name: str | None = None) -> dict[str, tuple[int, ...]]:
    found = producers(types, "shop", type_name)
    assert [one.events for one in found] == sorted((one.events for one in found), reverse=True)
    return {one.producer: tuple(getattr(one, name) for name in COUNTS) for one in found}


def test_what_producers_brought_is_kept_as_it_is_learnt_and_read_by_the_next_step(types: SqlEventTypes) -> None:
    one = learning(NEW, sent_by("a", x=1, y=1), sent_by("b", x=1, z=1), sent_by("", x="one", z=2.5), cap=3)
    other = learning(replace(NEW, type="sell", table="sell"), sent_by("a", x=1))
    types.learn("shop", [one, other])
    assert kept(types, "buy") == {"": (0, 0, 1, 2, 0), "a": (0, 0, 1, 2, 1), "b": (0, 0, 1, 1, 1)}
    assert kept(types)["a"] == (0, 0, 2, 3, 1)
    assert types.columns_brought("shop", ["buy", "fly"]) == {"buy": {"": 2, "a": 2, "b": 1}}
    assert producers(types, "other") == producers(SqlEventTypes(types.engine, "other"), "shop") == []


def test_what_settled_steps_counted_is_raised_once(types: SqlEventTypes) -> None:
    types.learn("shop", [learning(NEW, sent_by("a", x=1))])
    first = step(5, a=Sent(events=3, rescued=2, reasons={Rescue.CASE: 2, Rescue.PRODUCER_CAP: 1}), ü=Sent(events=4))
    with writing(types.engine) as connection:
        types.settle(connection, "shop", "e1", [first], "u")
        connection.rollback()
    settle(types, "e1", first)
    settle(types, "e2", step(6, a=Sent(events=2, rescued=1, reasons={Rescue.CASE: 1})))
    assert kept(types) == {"a": (5, 3, 1, 1, 0), "ü": (4, 0, 0, 0, 0)}
    assert producers(types, "shop")[0].reasons == {Rescue.CASE: 3, Rescue.PRODUCER_CAP: 1}


def test_what_is_withheld_is_read_back_and_decided_anew_where_somebody_else_has(types: SqlEventTypes) -> None:
    types.learn("shop", [learning(NEW, sent_by("a", x=1))])
    known, brought = types.types("shop")["buy"], types.columns_brought("shop", ["buy"])["buy"]
    one, other = (learning(known, sent_by("a", **{name: 1}), cap=1, columns=brought) for name in "yz")
    types.learn("shop", [one])
    now = types.types("shop")["buy"]
    assert (now.withheld, now.layout_version, measures(types).types[0].withheld) == ({("/y", Kind.LONG): "a"}, known.layout_version, 1)
    with pytest.raises(LaneConflictError, match="what is withheld of buy is no more what was read"):
        types.learn("shop", [other])
    types.learn("shop", [learning(now, sent_by("b", y=2), cap=1, columns=brought)])
    assert types.types("shop")["buy"].withheld == {}
    assert kept(types) == {"a": (0, 0, 2, 1, 0), "b": (0, 0, 0, 1, 0)}


def test_who_comes_when_a_type_has_many_producers_is_kept_in_sum_but_not_what_he_brought(
    types: SqlEventTypes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_accounts, "MAX_KEPT", 2)
    types.learn("shop", [learning(NEW, sent_by("a", x=1)), learning(replace(NEW, type="sell", table="sell"), sent_by("a", x=1))])
    settle(types, "e1", step(5, a=Sent(events=1), b=Sent(events=1)))
    late = {"ü": Sent(events=2, rescued=1, reasons={Rescue.CASE: 1}), "d": Sent(events=3, rescued=1, reasons={Rescue.CASE: 1})}
    settle(types, "e2", step(6, a=Sent(events=1), **late), replace(step(6, **late), type="sell", table="sell"))
    assert kept(types, "buy") == {"(other)": (5, 2, 0, 0, 0), "a": (2, 0, 1, 1, 0), "b": (1, 0, 0, 0, 0)}
    assert kept(types, "sell") == {"d": (3, 1, 0, 0, 0), "(other)": (2, 1, 0, 0, 0), "a": (0, 0, 1, 1, 0)}
    types.learn("shop", [learning(types.types("shop")["buy"], sent_by("d", y=1), sent_by("ü", x=None))])
    assert kept(types, "buy") == {"(other)": (5, 2, 1, 0, 0), "a": (2, 0, 1, 1, 0), "b": (1, 0, 0, 0, 0), "d": (0, 0, 1, 1, 0)}
    assert {one.producer: dict(one.reasons) for one in producers(types, "shop", "buy")}["(other)"] == {"case": 2}


def test_variations_that_are_not_kept_are_on_no_account(types: SqlEventTypes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_types, "MAX_VARIATIONS", 2)
    types.learn("shop", [learning(NEW, sent_by("a", x=1, y=1), sent_by("a", x=1), sent_by("b", y=1))])
    assert kept(types) == {"a": (0, 0, 2, 2, 0)}


def test_a_stream_that_tells_no_producer_keeps_none(types: SqlEventTypes) -> None:
    one = learned(NEW, [prototype(x=1)], Contract())
    assert one is not None
    types.learn("shop", [one])
    settle(types, "e1", result(5, step=1))
    assert kept(types) == {}
