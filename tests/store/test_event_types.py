"""The schema repository keeps what steps find out, all or nothing, and moves checkpoints when they complete, never back."""

import json
from dataclasses import replace

import pytest
from sqlalchemy import Engine

from lakechime_dagster.dce.engine import writing
from lakechime_dagster.dce.events import SnapshotId
from lakechime_dagster.errors import ConsumerConflictError
from lakechime_dagster.silver import store
from lakechime_dagster.silver.event import JsonEvent, event_of, shape_of, variation_of
from lakechime_dagster.silver.metrics import measures
from lakechime_dagster.silver.results import TYPE_CAP, TypeResult
from lakechime_dagster.silver.schema import KnownType, Learning, Prototype, TypeCheckpoint, learned
from lakechime_dagster.silver.store import LeftType, SqlEventTypes
from lakechime_dagster.tables.events import Contract
from lakechime_dagster.triggers.consumers import Checkpoint, CommitMetadata, Committed, ConsumerId

ODD = {"a": 1, "é\u0000": [{"b": "x"}], "c": None}


def prototype(position: int = 3, **fields: object) -> Prototype:
    event = event_of(json.dumps(fields))
    assert isinstance(event, JsonEvent)
    variation = variation_of(event)
    return Prototype(
        typed_hash=variation.typed_hash,
        names_hash=variation.names_hash,
        variation=variation,
        shape=shape_of(event),
        source="a@0",
        position=position,
    )


def learning(known: KnownType, *found: Prototype) -> Learning:
    one = learned(known, found, Contract())
    assert one is not None
    return one


NEW = KnownType(type="buy", table="buy", checkpoint=TypeCheckpoint(uid="u", version=2))


@pytest.fixture
def types(engine: Engine) -> SqlEventTypes:
    return SqlEventTypes(engine, "test")


def complete(types: SqlEventTypes, execution: str, *results: TypeResult, uid: str = "u") -> None:
    with writing(types.engine) as connection:
        types.complete(connection, "shop", execution, results, uid)


def result(end: int, step: int | None = None, error: str = "", rows: int = 1) -> TypeResult:
    commit_metadata = (
        None if step is None else CommitMetadata(consumer=ConsumerId("test", "shop", "buy"), step=step, attempt=1, end=Checkpoint())
    )
    commits = () if commit_metadata is None else (Committed(version=SnapshotId("1"), commit_metadata=commit_metadata),)
    return TypeResult(type="buy", table="buy", start=0, end=end, rows=rows, written=rows, commits=commits, error=error)


def test_what_was_learnt_is_read_back(types: SqlEventTypes) -> None:
    one = learning(NEW, prototype(**ODD), prototype(a="x"))
    assert types.learn("shop", [one]) == {"buy": 1}
    known = types.types("shop")["buy"]
    assert (known.schema, known.observed, known.schema_version, known.checkpoint) == (one.schema, one.observed, 1, NEW.checkpoint)
    assert types.variations("shop", ["buy", "sell"]) == {"buy": {shape.typed_hash: shape.variation for shape in one.prototypes}, "sell": {}}
    assert types.types("other") == {}
    assert SqlEventTypes(types.engine, "other").types("shop") == {}


def test_a_schema_is_added_to_the_one_that_was_read_or_not_at_all(types: SqlEventTypes) -> None:
    types.learn("shop", [learning(NEW, prototype(a=1))])
    known = types.types("shop")["buy"]
    one, other = learning(known, prototype(b=1)), learning(known, prototype(c=1))
    new = learning(replace(NEW, type="sell", table="sell"), prototype(a=1))
    types.learn("shop", [one])
    with pytest.raises(ConsumerConflictError, match="the schema of buy is number 2 by now, and was read as 1"):
        types.learn("shop", [new, other])
    assert [*types.types("shop")] == ["buy"]
    assert [version.decision for version in types.history("shop", "buy")] == ["+ a long", "+ b long"]


def test_what_one_attempt_observes_is_not_forgotten_by_another_that_read_before_it(types: SqlEventTypes) -> None:
    types.learn("shop", [learning(NEW, prototype(a=1))])
    read = types.types("shop")["buy"]
    for one in (learning(read, prototype(b=None)), learning(read, prototype(c=None))):  # which bring no column
        types.learn("shop", [one])
    assert {"/a", "/b", "/c"} <= types.types("shop")["buy"].observed.paths.keys()


def test_a_checkpoint_moves_with_a_commit_or_past_what_brought_nothing_and_never_back(types: SqlEventTypes) -> None:
    types.learn("shop", [learning(NEW, prototype(a=1))])
    complete(types, "e1", result(5, step=1))
    assert types.types("shop")["buy"].checkpoint == TypeCheckpoint(uid="u", version=5, commits=1)
    complete(types, "e2", result(4, step=1))
    complete(types, "e2b", result(4))
    assert types.types("shop")["buy"].checkpoint == TypeCheckpoint(uid="u", version=5, commits=1)
    complete(types, "e3", result(7, rows=0))
    assert types.types("shop")["buy"].checkpoint == TypeCheckpoint(uid="u", version=7, commits=1)
    complete(types, "e4", result(0, rows=0), uid="another")
    assert types.types("shop")["buy"].checkpoint == TypeCheckpoint(uid="another", version=0, commits=1)


def test_a_type_that_failed_keeps_its_checkpoint_and_is_due_after_a_pause(types: SqlEventTypes) -> None:
    types.learn("shop", [learning(NEW, prototype(a=1))])
    complete(types, "e1", result(5, error="no room"))
    known = types.types("shop")["buy"]
    assert (known.checkpoint, known.failures, known.error, known.due_ts > 0) == (NEW.checkpoint, 1, "no room", True)
    assert types.left("shop") == [LeftType(type="buy", has_failed=True, is_due=False, due_ts=known.due_ts, error="no room")]
    complete(types, "e2", result(5, step=1))
    known = types.types("shop")["buy"]
    assert (known.failures, known.due_ts, known.error) == (0, 0, "")


def test_what_catches_up_moves_to_the_end_of_its_part_and_stays_late(types: SqlEventTypes) -> None:
    types.learn("shop", [learning(NEW, prototype(a=1))])
    complete(types, "e1", replace(result(5, error="no room"), written=0, rows=0, left=9))
    since = measures(types).types[0].behind_ts
    complete(types, "e2", replace(result(3, step=1), due_ts=1))
    (told,) = measures(types).types
    assert (types.types("shop")["buy"].checkpoint.version, types.left("shop")[0].is_due, told.behind, told.behind_ts) == (3, True, 9, since)
    complete(types, "e3", result(5, step=2))
    assert (types.left("shop"), measures(types).types[0].behind_ts) == ([], None)


def test_events_that_wait_for_a_table_are_known_to_the_next_step(types: SqlEventTypes) -> None:
    types.learn("shop", [learning(NEW, prototype(a=1))])
    complete(types, "e1", TypeResult(type="buy", table="buy", start=2, end=2, rows=4, pending=4, waits=TYPE_CAP))
    assert (types.types("shop")["buy"].pending, types.types("shop")["buy"].waits) == (4, TYPE_CAP)
    complete(types, "e2", result(3, step=1))
    assert (types.types("shop")["buy"].pending, types.types("shop")["buy"].waits) == (0, "")


def test_steps_are_summed_up_by_type(types: SqlEventTypes) -> None:
    types.learn("shop", [learning(NEW, prototype(a=1))])
    complete(types, "e1", result(5, step=1, rows=3))
    complete(types, "e2", replace(result(6, step=2, rows=4), rescued=2))
    known = types.types("shop")["buy"]
    assert (known.written, known.rescued, known.discarded) == (7, 2, 0)


def test_a_conflict_is_counted_once_by_whom_its_schema_is_kept(types: SqlEventTypes) -> None:
    types.learn("shop", [learning(NEW, prototype(a=1))])
    known = types.types("shop")["buy"]
    one, other = learning(known, prototype(a="x")), learning(known, prototype(a=1.5, b=[{"c": 1}, {"c": True}]))
    types.learn("shop", [one])
    with pytest.raises(ConsumerConflictError):
        types.learn("shop", [other])
    assert measures(types).types[0].conflicts == 1
    types.learn("shop", [learning(types.types("shop")["buy"], *other.prototypes)])
    assert measures(types).types[0].conflicts == 3


def test_shapes_tell_no_value(types: SqlEventTypes) -> None:
    types.learn("shop", [learning(NEW, prototype(name="Ann", age=41, scores=[1.5, 2.5], big=2**70, ok=False))])
    (row,) = types.shapes("shop", "buy")
    assert row["shape"] == f'{{"name":"…","age":1,"scores":[1.5,1.5],"big":{"9" * 22},"ok":true}}'


def test_of_many_variations_those_are_kept_that_enlarge_what_was_observed(types: SqlEventTypes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "MAX_VARIATIONS", 2)
    types.learn("shop", [learning(NEW, prototype(a=1), prototype(b="x"), prototype(a=1, b="x"))])
    types.learn("shop", [learning(types.types("shop")["buy"], prototype(b="x", a=None), prototype(c=1))])
    kept = types.variations("shop", ["buy"])["buy"].values()
    assert {path for one in kept for path, _ in one.kinds if path} == {"/a", "/b", "/c"}
    assert len(kept) == 4
