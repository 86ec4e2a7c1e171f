from hypothesis import given
from hypothesis import strategies as st

from lakechime_dagster.lineage.columns import (
    ColumnLineage,
    ColumnRef,
    Kind,
    Source,
    Taking,
    after,
    joined,
)

KINDS = st.sampled_from(Kind)
SOURCES = st.builds(
    Source,
    st.builds(ColumnRef, st.sampled_from("tu"), st.sampled_from(["a", "b", None])),
    KINDS,
    st.booleans(),
)
COLUMNS = st.builds(
    lambda column, sources, opaque, udfs: ColumnLineage(
        column=column, sources=tuple(sources), opaque=tuple(opaque), udfs=tuple(udfs)
    ),
    st.sampled_from("xy"),
    st.lists(SOURCES, max_size=4),
    st.lists(st.sampled_from(["rdd", "job"]), max_size=2),
    st.lists(st.sampled_from(["udf", "mapInPandas"]), max_size=2),
)


@given(KINDS, KINDS, KINDS)
def test_three_executions_have_the_same_kind_however_they_are_taken_together(
    a: Kind, b: Kind, c: Kind
) -> None:
    assert a.then(b).then(c) is a.then(b.then(c))


STEPS = st.tuples(KINDS, st.booleans())


@given(STEPS, STEPS, STEPS)
def test_three_executions_of_which_some_mask_are_the_same_however_they_are_taken_together(
    a: Taking, b: Taking, c: Taking
) -> None:
    assert after(after(a, b), c) == after(a, after(b, c))


@given(st.lists(COLUMNS), st.randoms())
def test_the_lineage_of_columns_is_the_same_in_whatever_order_it_is_reported(
    columns: list[ColumnLineage], random: object
) -> None:
    shuffled = list(columns)
    random.shuffle(shuffled)  # pyright: ignore[reportAttributeAccessIssue]
    assert set(joined(columns)) == set(joined(shuffled))
