import json

from lakechime_dagster.lineage.plans.generated import generated_columns


def schema(**expressions: str) -> str:
    fields = [{"name": name, "metadata": {}} for name in ("day", "Hour")]
    fields += [{"name": name, "metadata": {"delta.generationExpression": text}} for name, text in expressions.items()]
    return json.dumps({"type": "struct", "fields": fields})


def test_a_generated_column_is_made_of_the_columns_of_its_expression() -> None:
    assert generated_columns(schema(at="concat(day, CAST(hour AS STRING))", week="`day`")) == {"at": ("day", "Hour"), "week": ("day",)}


def test_an_expression_that_is_not_understood_may_be_made_of_all_columns() -> None:
    assert generated_columns(schema(at="((")) == {"at": ("day", "Hour")}
