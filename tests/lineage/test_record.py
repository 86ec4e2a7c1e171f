from lakechime_dagster.lineage.columns import (
    ColumnLineage,
    ColumnRef,
    Kind,
    Source,
    Statement,
    as_table_names,
    summed,
)

FLIGHTS = Source(ColumnRef("bronze.flights", "dep_delay"), Kind.AGGREGATION)
WEATHER = Source(ColumnRef("bronze.weather", "wind"), Kind.IDENTITY)


def test_statements_of_one_run_on_one_target_add_up() -> None:
    first = Statement(
        target="gold.a",
        columns=(ColumnLineage(column="delay", sources=(FLIGHTS,)),),
        inputs=("bronze.flights",),
    )
    second = Statement(
        target="gold.a",
        columns=(ColumnLineage(column="delay", sources=(WEATHER,)),),
        unknown=("an RDD",),
        udfs=("a UDF",),
    )
    other = Statement(target="gold.b", inputs=("gold.a",))
    added, unchanged = summed([first, other, second])
    assert added.columns == (ColumnLineage(column="delay", sources=(FLIGHTS, WEATHER)),)
    assert (added.inputs, added.unknown, added.udfs) == (
        ("bronze.flights",),
        ("an RDD",),
        ("a UDF",),
    )
    assert unchanged == other


def test_only_a_whole_replacement_clears_what_earlier_statements_of_the_run_wrote() -> None:
    first = Statement(
        target="gold.a",
        columns=(ColumnLineage(column="delay", sources=(FLIGHTS,)),),
        unknown=("an RDD",),
    )
    second = Statement(
        target="gold.a", columns=(ColumnLineage(column="wind", sources=(WEATHER,)),), replaces=True
    )
    assert summed([first, second]) == (second,)


def test_a_column_by_the_name_of_its_table_keeps_all_that_is_reported_of_it() -> None:
    reported = {"sources": (WEATHER,), "opaque": ("an RDD",), "udfs": ("a UDF",)}
    statement = Statement(
        target="gold.a", columns=(ColumnLineage(column="WIND", **reported),), udfs=("a UDF",)
    )
    named = Statement(
        target="gold.a", columns=(ColumnLineage(column="wind", **reported),), udfs=("a UDF",)
    )
    assert as_table_names(statement, ["wind"]) == named
