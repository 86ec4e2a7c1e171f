"""What a part of recorded lineage answers is what the whole of it answers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import Engine

from lakechime_dagster.lineage.answers import ReachedTables, reached_tables, unaffected_tables
from lakechime_dagster.lineage.columns import ColumnRef, LineageRecord, Statement
from lakechime_dagster.lineage.network import Network
from lakechime_dagster.lineage.recording import SqlLineage
from lakechime_dagster.lineage.service import network_around, network_at
from lakechime_dagster.lineage.store import known_columns, known_tables
from tests.lineage.factories import make_record, make_statement
from tests.lineage.graph.test_answers import REFS, STATEMENTS
from tests.support.stores import fresh_memory

RECORDS = st.lists(
    st.builds(
        make_record,
        STATEMENTS,
        run=st.sampled_from("abcd"),
        at=st.integers(1, 3),
        job=st.sampled_from("xy"),
    ),
    max_size=7,
)
DECLARED = [
    Statement(target="gold.new", inputs=("s",)),
    Statement(target="t", inputs=("gold.new",)),
    make_statement("u", a="gold.new.a"),
]


@given(
    RECORDS,
    st.lists(REFS, min_size=1, max_size=2, unique=True),
    st.booleans(),
    st.sampled_from([None, 0, 1, 2]),
)
def test_a_question_in_one_direction_needs_no_more_than_what_is_around(
    records: list[LineageRecord], refs: list[ColumnRef], upstream: bool, depth: int | None
) -> None:
    engine = fresh_memory()
    SqlLineage(engine).record_all(records)
    tables = {ref.table for ref in refs}
    part = network_around(
        engine, tables, upstream=upstream, depth=depth, declared=DECLARED, columns=refs
    )
    assert part is not None
    whole = network_at(engine, DECLARED, columns=refs)
    assert asked(part, refs, upstream, depth) == asked(whole, refs, upstream, depth)


def asked(
    network: Network, refs: list[ColumnRef], upstream: bool, depth: int | None
) -> tuple[object, ...]:
    found: ReachedTables = reached_tables(network, refs, upstream=upstream, depth=depth)
    return found, () if upstream or depth is not None else unaffected_tables(network, refs, found)


@pytest.mark.parametrize("upstream", [False, True])
def test_what_is_not_around_is_not_read(engine: Engine, upstream: bool) -> None:
    chain = [make_statement(f"t{at + 1}", a=f"t{at}.a") for at in range(6)]
    SqlLineage(engine).record_all(
        [
            make_record(one, job=one.target)
            for one in [*chain, make_statement("other", a="elsewhere.a")]
        ]
    )
    part = network_around(engine, ["t3"], upstream=upstream)
    near = network_around(engine, ["t3"], upstream=upstream, depth=1)
    assert part is not None
    assert near is not None
    assert set(part.tables) == (
        {"t0", "t1", "t2", "t3"} if upstream else {"t2", "t3", "t4", "t5", "t6"}
    )
    assert set(near.tables) == ({"t1", "t2", "t3"} if upstream else {"t2", "t3", "t4"})
    assert network_around(engine, ["t3"], upstream=upstream, large=3) is None


def test_what_is_recorded_is_known_by_name(engine: Engine) -> None:
    SqlLineage(engine).record(make_record(make_statement("gold.t", a="silver.s.x", b="silver.s.y")))
    assert known_tables(engine) == {"gold.t", "silver.s"}
    assert known_tables(engine, ["gold.t", "gold"]) == {"gold.t"}
    assert known_columns(engine, "silver.s") == {"x", "y"}
    assert known_columns(engine, "nowhere") == set()
