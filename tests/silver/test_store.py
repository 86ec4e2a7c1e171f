"""The store of event types keeps what executions find out, all or nothing, and moves checkpoints
when they complete, never back.
"""

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from sqlalchemy import Engine

from lakechime_dagster.errors import ConsumerConflictError, NotFoundError
from lakechime_dagster.silver import store
from lakechime_dagster.silver.metrics import TypeMeasures, measures
from lakechime_dagster.silver.results import TYPE_CAP, Request, RequestDone, RequestKind, TypeResult
from lakechime_dagster.silver.schema import TypeCheckpoint
from lakechime_dagster.silver.store import LeftType, Requests, SqlEventTypes
from lakechime_dagster.tables.events import checked_groups, event_group
from lakechime_dagster.triggers.registry import By
from tests.support.event_types import (
    GAME,
    SHOP,
    START,
    complete,
    learn,
    learning,
    prototype,
    registered,
    result,
)

ODD = {"a": 1, "é\u0000": [{"b": "x"}], "c": None}
ME, YOU = By(who="me", reason="prices are cents now"), By(who="you", reason="so do I")
VIP = event_group("vip", GAME, match="buy")
REPLAY, REBUILD = RequestKind.REPLAY, RequestKind.REBUILD
BUY = "shop.buy"


@pytest.fixture
def types(engine: Engine) -> SqlEventTypes:
    return SqlEventTypes(engine, "test")


@pytest.fixture
def requests(engine: Engine) -> Requests:
    return Requests(engine, "test")


def measured(types: SqlEventTypes) -> TypeMeasures:
    (one,) = measures(types).types
    return one


def checkpoint(types: SqlEventTypes) -> TypeCheckpoint:
    return types.types("shop")["buy"].checkpoint


def test_what_was_learned_is_read_back(types: SqlEventTypes) -> None:
    one = learning(registered(types), prototype(**ODD), prototype(a="x"))
    assert types.learn("shop", [one]) == {"buy": 1}
    known = types.types("shop")["buy"]
    assert (known.schema, known.observed, known.schema_version, known.checkpoint) == (
        one.schema,
        one.observed,
        1,
        START,
    )
    assert types.variations("shop", ["buy", "sell"]) == {
        "buy": {shape.typed_hash: shape.variation for shape in one.prototypes},
        "sell": {},
    }
    assert types.types("other") == SqlEventTypes(types.engine, "other").types("shop") == {}


def test_a_schema_is_added_to_the_one_that_was_read_or_not_at_all(types: SqlEventTypes) -> None:
    known, sell = learn(types), registered(types, "sell")
    one, other = learning(known, prototype(b=1)), learning(known, prototype(c=1))
    types.learn("shop", [one])
    with pytest.raises(
        ConsumerConflictError, match="the schema of buy is number 2 by now, and was read as 1"
    ):
        types.learn("shop", [learning(sell, prototype(a=1)), other])
    assert types.types("shop")["sell"].schema_version == 0
    assert [version["decision"] for version in types.history("shop", "buy")] == [
        "+ a long",
        "+ b long",
    ]


def test_what_one_attempt_observes_is_not_forgotten_by_another_that_read_before_it(
    types: SqlEventTypes,
) -> None:
    read = learn(types)
    # which add no column
    for one in (learning(read, prototype(b=None)), learning(read, prototype(c=None))):
        types.learn("shop", [one])
    assert {"/a", "/b", "/c"} <= {path for path, _ in types.types("shop")["buy"].observed.kinds}


def test_a_checkpoint_moves_with_a_commit_or_past_what_held_nothing_and_never_back(
    types: SqlEventTypes,
) -> None:
    learn(types)
    executions: list[tuple[TypeResult, str, TypeCheckpoint]] = [
        (result(5, number=1), "u", TypeCheckpoint(uid="u", version=5, commits=1)),
        (result(4, number=1), "u", TypeCheckpoint(uid="u", version=5, commits=1)),
        (result(4), "u", TypeCheckpoint(uid="u", version=5, commits=1)),
        (result(7, rows=0), "u", TypeCheckpoint(uid="u", version=7, commits=1)),
        (result(0, rows=0), "another", TypeCheckpoint(uid="another", version=0, commits=1)),
    ]
    for number, (one, uid, expected) in enumerate(executions):
        complete(types, f"e{number}", one, uid=uid)
        assert checkpoint(types) == expected


def test_a_type_that_failed_keeps_its_checkpoint_and_is_due_after_a_pause(
    types: SqlEventTypes,
) -> None:
    learn(types)
    complete(types, "e1", result(5, error="no room"))
    known = types.types("shop")["buy"]
    assert (known.checkpoint, known.failures, known.error, known.due_ts > 1) == (
        START,
        1,
        "no room",
        True,
    )
    assert types.left("shop") == [
        LeftType(type="buy", has_failed=True, is_due=False, due_ts=known.due_ts, error="no room")
    ]
    for number in range(3):
        complete(types, f"f{number}", result(5, error="no room"))
    assert (types.retry("shop", ["buy"]), types.left("shop")[0].is_due) == (["buy"], True)
    complete(types, "f3", result(5, error="no room"))  # which was under way
    assert types.left("shop")[0].due_ts <= measures(types).now + 60_000
    complete(types, "e2", result(5, number=1))
    known = types.types("shop")["buy"]
    assert (known.failures, known.due_ts, known.error) == (0, 0, "")


def test_what_catches_up_moves_to_the_end_of_its_part_and_stays_late(types: SqlEventTypes) -> None:
    learn(types)
    complete(types, "e1", replace(result(5, error="no room"), written=0, rows=0, left=9))
    since = measured(types).behind_ts
    complete(types, "e2", replace(result(3, number=1), due_ts=1))
    now = measured(types)
    assert (checkpoint(types).version, types.left("shop")[0].is_due, now.behind, now.behind_ts) == (
        3,
        True,
        9,
        since,
    )
    complete(types, "e3", result(5, number=2))
    assert (types.left("shop"), measured(types).behind_ts) == ([], None)


def test_events_that_wait_for_a_table_are_known_to_the_next_execution(types: SqlEventTypes) -> None:
    learn(types)
    complete(
        types,
        "e1",
        TypeResult(type="buy", table=BUY, start=2, end=2, rows=4, pending=4, waits=TYPE_CAP),
    )
    assert (types.types("shop")["buy"].pending, types.types("shop")["buy"].waits) == (4, TYPE_CAP)
    complete(types, "e2", result(3, number=1))
    assert (types.types("shop")["buy"].pending, types.types("shop")["buy"].waits) == (0, "")


def test_variant_columns_are_counted_by_the_schema_that_holds(types: SqlEventTypes) -> None:
    known = learn(types)
    other = learning(known, prototype(a=1.5, b=[{"c": 1}, {"c": True}]))
    types.learn("shop", [learning(known, prototype(a="x"))])
    with pytest.raises(ConsumerConflictError):
        types.learn("shop", [other])
    assert measured(types).conflicts == 1
    learn(types, *other.prototypes)
    assert measured(types).conflicts == 3


def test_of_many_variations_those_are_kept_that_enlarge_what_was_observed(
    types: SqlEventTypes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "MAX_VARIATIONS", 2)
    learn(types, prototype(a=1), prototype(b="x"), prototype(a=1, b="x"))
    learn(types, prototype(b="x", a=None), prototype(c=1))
    kept = types.variations("shop", ["buy"])["buy"].values()
    assert {path for one in kept for path, _ in one.kinds if path} == {"/a", "/b", "/c"}
    assert len(kept) == measured(types).variations == 4


# the schema of a rebuild


@pytest.fixture
def turned(types: SqlEventTypes) -> SqlEventTypes:
    """A type with a long column and a variant column for texts, which rebuilt would be the other
    way round.
    """
    learn(types)
    learn(types, prototype(a="x"))
    complete(types, "e0", result(3, number=1))
    return types


def columns(types: SqlEventTypes) -> tuple[int, list[str]]:
    known = types.types("shop")["buy"]
    return known.schema_version, [f"{one.name} {one.holds}" for one in known.schema.columns]


def test_the_schema_of_a_rebuild_holds_with_the_commit_of_its_table(turned: SqlEventTypes) -> None:
    known, before = turned.types("shop")["buy"], columns(turned)
    rebuild = learning(known, is_rebuild=True)
    # of two attempts
    assert turned.learn("shop", [rebuild]) == turned.learn("shop", [rebuild]) == {"buy": 3}
    assert columns(turned) == before
    complete(turned, "e1", replace(result(4, number=2), schema_version=3))
    assert columns(turned) == (3, ["a string", "a__v_long long"])
    with pytest.raises(
        ConsumerConflictError, match="the schema of buy is number 3 by now, and was read as 2"
    ):
        turned.learn("shop", [learning(known, prototype(b=1))])


def test_after_a_rebuild_that_died_the_former_schema_goes_on_unless_its_table_has_the_new_one(
    turned: SqlEventTypes,
) -> None:
    turned.learn("shop", [learning(turned.types("shop")["buy"], is_rebuild=True)])
    turned.hold("shop", "buy", 9)  # of a store that was lost
    assert turned.learn("shop", [learning(turned.types("shop")["buy"], prototype(b=1))]) == {
        "buy": 4
    }
    assert columns(turned) == (4, ["a long", "a__v_string string", "b long"])
    turned.learn("shop", [learning(turned.types("shop")["buy"], is_rebuild=True)])
    turned.hold("shop", "buy", 5)
    assert columns(turned) == (5, ["a string", "a__v_long long", "b long"])


# breaking changes


def test_a_schema_that_continues_a_field_in_a_variant_column_breaks_since_it_was_made(
    types: SqlEventTypes,
) -> None:
    learn(types, prototype(a=1), prototype(b=1), prototype(b="x"))
    learn(types, prototype(c=1))
    learn(types, prototype(a="x"))
    (version,) = (one for one in types.history("shop", "buy") if one["version"] == 3)
    (one,) = types.breaking("shop", since=version["made_ts"])
    assert (one.type, one.version, one.decision) == ("buy", 3, "+ a__v_string string")
    learn(types, prototype(d=1))
    assert types.breaking("shop", since=0) == [one]
    assert (
        types.breaking("shop", since=version["made_ts"] + 1)
        == types.breaking("other", since=0)
        == SqlEventTypes(types.engine, "other").breaking("shop", since=0)
        == []
    )


# types that move to another group


def test_all_that_is_known_of_a_type_moves_with_it(
    types: SqlEventTypes, requests: Requests
) -> None:
    learn(types)
    learn(types, name="sell")
    complete(types, "e0", result(3, number=1))
    asked, before, kept = (
        requests.ask(BUY, REPLAY, ME).request,
        types.types("shop"),
        types.variations("shop", ["buy"]),
    )
    for _ in range(2):
        types.register(checked_groups(GAME, [SHOP, VIP]))
        assert types.types("shop") == {"sell": before["sell"]}
        assert types.types("vip") == {"buy": replace(before["buy"], due_ts=1)}
    assert (before["buy"].table, before["buy"].home, before["buy"].checkpoint.commits) == (
        BUY,
        "shop",
        1,
    )
    assert (
        types.variations("vip", ["buy"]),
        [one["version"] for one in types.history("vip", "buy")],
    ) == (kept, [1])
    assert (requests.open_of_group("vip"), requests.open_of_group("shop")) == ({"buy": asked}, {})


def test_an_execution_of_the_former_group_finds_its_type_gone(types: SqlEventTypes) -> None:
    known = learn(types)
    types.register(checked_groups(GAME, [SHOP, VIP]))
    complete(types, "e1", result(9, number=2))
    assert (types.types("vip")["buy"].checkpoint, types.types("shop")) == (known.checkpoint, {})
    with pytest.raises(ConsumerConflictError, match="shop: buy is of another group by now"):
        types.learn("shop", [learning(known, prototype(b=1))])


def test_whichever_group_reads_a_type_first_registers_it_for_its_owner(
    types: SqlEventTypes,
) -> None:
    groups = checked_groups(GAME, [SHOP, VIP])
    types.register(groups, ["buy", "sell"], START)
    types.register(groups, ["buy"], TypeCheckpoint(uid="u", version=7))
    assert [(one.table, one.checkpoint) for one in types.types("vip").values()] == [
        ("vip.buy", START)
    ]
    assert [one.is_due for one in types.left("vip")] == [True]
    assert types.types("shop").keys() == {"sell"}


def test_a_type_without_a_table_gets_it_in_the_group_that_it_moves_to(types: SqlEventTypes) -> None:
    types.register(checked_groups(GAME, [SHOP]), ["buy"])
    types.register(checked_groups(GAME, [SHOP, VIP]))
    assert types.types("vip")["buy"].table == "vip.buy"


# requests


def test_of_a_table_one_request_is_open_until_an_execution_closes_it(requests: Requests) -> None:
    asked = requests.ask(BUY, REPLAY, ME)
    assert (asked.who, asked.reason, asked.done_ts) == ("me", ME.reason, None)
    assert requests.open(BUY) == Request(
        request_id=asked.request.request_id, table=BUY, kind=REPLAY
    )
    assert requests.open("shop.sell") is Requests(requests.engine, "another").open(BUY) is None
    done = RequestDone(request_id=asked.request.request_id, replaced=3)
    requests.close("e1", done)
    requests.close("e2", replace(done, replaced=5))
    assert (requests.open(BUY), [one.done for one in requests.of(BUY)]) == (None, [done])
    assert requests.ask(BUY, REPLAY, ME).request.request_id > done.request_id


@pytest.mark.parametrize(
    ("first", "then", "is_now"),
    [
        (REPLAY, REPLAY, REPLAY),
        (REPLAY, REBUILD, REBUILD),
        (REBUILD, REBUILD, REBUILD),
        (REBUILD, REPLAY, REBUILD),
    ],
)
def test_what_is_asked_while_an_execution_is_at_the_same_is_done_by_the_next(
    requests: Requests, first: RequestKind, then: RequestKind, is_now: RequestKind
) -> None:
    before, asked = requests.ask(BUY, first, ME), requests.ask(BUY, then, YOU)
    assert (asked.who, asked.request.kind, requests.open(BUY)) == ("you", is_now, asked.request)
    requests.close("e1", RequestDone(request_id=before.request.request_id, replaced=3))
    assert requests.open(BUY) == asked.request
    ended, _ = requests.of(BUY)
    assert (ended.done, ended.reason) == (
        None,
        f"{ME.reason}; you asked for a {is_now}: {YOU.reason}",
    )


def test_of_those_who_ask_at_once_one_request_is_open(postgres_engine: Engine) -> None:
    requests, start = Requests(postgres_engine, "test"), threading.Barrier(6)

    def race(_: int) -> None:
        start.wait(10)
        requests.ask(BUY, REPLAY, ME)

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(race, range(6)))
    *ended, last = requests.of(BUY)
    assert (len(ended), [one.done_ts for one in ended].count(None), last.done_ts) == (5, 0, None)


def test_a_cancelled_request_stays_cancelled_whatever_an_execution_records_later(
    requests: Requests,
) -> None:
    number = requests.ask(BUY, REPLAY, ME).request.request_id
    assert (requests.cancel(BUY, ME, dry_run=True), requests.open(BUY) is None) == (number, False)
    assert (requests.cancel(BUY, YOU), requests.open(BUY)) == (number, None)
    requests.close("e1", RequestDone(request_id=number, replaced=3))
    (kept,) = requests.of(BUY)
    assert (kept.done, kept.done_ts is None, kept.reason) == (
        None,
        False,
        f"{ME.reason}; cancelled by you: so do I",
    )
    with pytest.raises(NotFoundError, match=r"no request for 'shop\.buy' is open"):
        requests.cancel(BUY, ME)
