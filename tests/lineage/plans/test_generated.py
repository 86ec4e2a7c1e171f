import json

from lakechime_dagster.lineage.plan_nodes import generated_columns, with_generated
from tests.lineage.factories import make_statement


def schema(**expressions: str) -> str:
    fields = [{"name": name, "metadata": {}} for name in ("day", "Hour")]
    fields += [
        {"name": name, "metadata": {"delta.generationExpression": text}}
        for name, text in expressions.items()
    ]
    return json.dumps({"type": "struct", "fields": fields})


def test_a_generated_column_is_made_of_the_columns_of_its_expression() -> None:
    assert generated_columns(schema(at="concat(day, CAST(hour AS STRING))", week="`day`")) == {
        "at": ("day", "Hour"),
        "week": ("day",),
    }


def test_an_expression_that_is_not_understood_may_be_made_of_all_columns() -> None:
    assert generated_columns(schema(at="((")) == {"at": ("day", "Hour")}


def test_what_is_not_known_of_a_column_is_not_of_those_that_are_generated_of_it() -> None:
    statement = make_statement(
        day="orders.day", opaque={"hour": "rows of an RDD"}, through={"day": "Python UDF f"}
    )
    (*_, week) = with_generated(statement, {"at": ("day", "hour")}).columns
    assert (week.column, week.opaque, week.udfs) == ("at", ("rows of an RDD",), ("Python UDF f",))
