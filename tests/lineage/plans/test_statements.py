"""What several dumps say together: values through the driver, checkpoints, deep plans."""

from lakechime_dagster.lineage.columns import (
    ColumnLineage,
    ColumnRef,
    Kind,
    Names,
    Source,
    Statement,
)
from lakechime_dagster.lineage.plan_statements import DRIVER, Found, statements_of
from tests.lineage.plans.factories import (
    Node,
    alias,
    column,
    literal,
    make_dump,
    project,
    rdd,
    table,
)
from tests.lineage.plans.meanings import said

ORDERS = table("orders", id=1, amount=2)


def found(*dumps: object, target: str | None = "made") -> Found:
    return statements_of(dumps, Names(), target)  # pyright: ignore[reportArgumentType]


def only(*dumps: object) -> Statement:
    (statement,) = found(*dumps).statements
    return statement


def test_an_action_before_makes_what_it_fetched_a_source_of_each_column_and_constants_unsure() -> (
    None
):
    action = make_dump(project(table("people", city=7), column(7, "city")), "collectToPython")
    result = make_dump(project(ORDERS, column(1, "id"), alias(literal(), "one", 3)))
    through = Source(ColumnRef("people", "city"), Kind.DRIVER)
    statement = only(action, result)
    assert statement.columns == (
        ColumnLineage(
            column="id", sources=(Source(ColumnRef("orders", "id"), Kind.IDENTITY), through)
        ),
        ColumnLineage(column="one", sources=(through,), opaque=(DRIVER,)),
    )
    assert statement.inputs == ("orders", "people")


def test_code_that_nobody_looks_into_may_have_taken_what_an_action_fetched_with_it() -> None:
    action = make_dump(project(table("people", city=7), column(7, "city")), "collectToPython")
    scored = {"n": "PythonUDF", "f": {"name": "score", "children": [column(2, "amount")]}}
    result = make_dump(project(ORDERS, alias(scored, "score", 3)))
    assert [(one.udfs, one.opaque) for one in only(result).columns] == [(("Python UDF score",), ())]
    assert [(one.udfs, one.opaque) for one in only(action, result).columns] == [
        (("Python UDF score",), (DRIVER,))
    ]


def test_a_job_without_a_plan_is_reported_and_makes_constants_unsure() -> None:
    job = make_dump(None, "job", error="a job of an RDD")
    answer = found(job, make_dump(project(ORDERS, column(1, "id"), alias(literal(), "one", 3))))
    assert answer.unknown == ("a job of an RDD",)
    assert [one.opaque for one in answer.statements[0].columns] == [(), (DRIVER,)]


def test_what_failed_neither_wrote_nor_fetched_anything() -> None:
    result = make_dump(project(ORDERS, alias(literal(), "one", 3)))
    assert only(make_dump(ORDERS, "collectToPython", failed=True), result) == only(result)


def test_rows_of_a_checkpoint_are_those_of_its_plan() -> None:
    kept = make_dump(project(ORDERS, alias(column(2, "amount"), "paid", 5)), "localCheckpoint")
    assert (
        said(only(kept, make_dump(rdd(40, paid=5))))
        == "  writes made from orders\n  paid: identity orders.amount"
    )


def test_a_self_join_renews_the_ids_of_one_side_of_a_checkpoint_but_not_its_rdd() -> None:
    kept = make_dump(project(ORDERS, column(1, "id"), column(2, "amount")), "checkpoint")
    join: Node = {
        "n": "Join",
        "f": {
            "left": rdd(40, id=11, amount=12),
            "right": rdd(40, id=1, amount=2),
            "joinType": "inner",
            "condition": None,
        },
        "out": [[11, "id"], [12, "amount"], [1, "again"], [2, "more"]],
    }
    assert [one.sources[0].ref.column for one in only(kept, make_dump(join)).columns] == [
        "id",
        "amount",
        "id",
        "amount",
    ]


def test_plans_of_any_depth_are_read() -> None:
    nodes = [ORDERS]
    for number in range(10, 3010):
        sum_of_two = {
            "n": "Add",
            "f": {"left": column(number - 1 if number > 10 else 2), "right": literal()},
        }
        below = {"#": len(nodes) - 1}
        nodes.append(project(below, alias(sum_of_two, "sum", number)))
    assert (
        said(only(make_dump({"#": len(nodes) - 1}, nodes=nodes)))
        == "  writes made from orders\n  sum: transformation orders.amount"
    )


def test_a_table_of_the_lake_is_known_by_where_it_is_or_what_it_is_called() -> None:
    names = Names(tables=("lake.a", "lake.b"), locations={"lake.a": "/lake/a"})
    leaves = [
        {"relation": {"o": "", "path": "file:/lake/a/"}},
        {"catalogTable": {"identifier": "spark_catalog.lake.b", "path": "file:/elsewhere"}},
        {"relation": {"o": "", "path": "s3a://bucket/d"}},
        {"relation": {"o": "", "path": "file:/tmp/e"}},
    ]
    dumps = [make_dump({"n": "LogicalRelation", "f": leaf, "out": [[1, "x"]]}) for leaf in leaves]
    answer = statements_of(dumps, names, "made")
    assert [one.inputs for one in answer.statements] == [
        ("lake.a",),
        ("lake.b",),
        ("s3://bucket/d",),
        ("file/tmp/e",),
    ]
    assert answer.outside == ("file/tmp/e", "s3://bucket/d")
