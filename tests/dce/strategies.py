"""What hypothesis may send as events: anything that the rules allow, odd text included."""

import string

from hypothesis import strategies as st

from lakechime_dagster.dce.events import (
    MAX_SEQ,
    DataChangeEvent,
    OperationType,
    Position,
    TableFormat,
)

names = (
    st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=40)
    .map(str.strip)
    .filter(bool)
)
texts = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=40).map(str.strip)
numbers = st.one_of(st.integers(-(2**63), 2**63), st.floats(allow_nan=False, allow_infinity=False))
levels = st.recursive(
    st.one_of(st.none(), st.booleans(), numbers, texts),
    lambda inner: st.one_of(
        st.lists(inner, max_size=2),
        st.dictionaries(st.text(string.ascii_letters, max_size=5), inner, max_size=2),
    ),
    max_leaves=4,
)
partitions = st.one_of(st.none(), st.lists(levels, min_size=1, max_size=3))
positions = st.builds(Position, st.integers(0, MAX_SEQ), st.integers(0, MAX_SEQ))
versions = st.integers(0, 2**40).map(str)


@st.composite
def events(draw: st.DrawFn) -> DataChangeEvent:
    """Any event that construction accepts."""
    snapshot = draw(st.one_of(st.none(), versions))
    previous = draw(st.one_of(st.none(), versions)) if snapshot else None
    return DataChangeEvent(
        table=draw(names),
        table_format=draw(st.sampled_from(TableFormat)),
        operation_type=draw(st.sampled_from(OperationType)),
        partition=draw(partitions),  # type: ignore[arg-type]
        snapshot_id=snapshot,  # type: ignore[arg-type]
        prev_snapshot_id=previous if previous != snapshot else None,  # type: ignore[arg-type]
        snapshot_ts=draw(st.one_of(st.none(), st.integers(0, 10**13))),
        tags=draw(st.dictionaries(names, texts, max_size=3)),  # type: ignore[arg-type]
        cluster=draw(texts),
        table_uid=draw(st.one_of(st.none(), names)),  # type: ignore[arg-type]
        event_key=draw(st.one_of(st.none(), names)),
        added_bytes=draw(st.one_of(st.none(), st.integers(0, MAX_SEQ))),
    )
