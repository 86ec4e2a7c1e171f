"""Reads the JSON that other programs send about their runs."""

from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from lakechime_dagster.errors import InvalidValueError, shown
from lakechime_dagster.lineage import facts, openlineage, trino
from lakechime_dagster.lineage.facts import ToldRun
from lakechime_dagster.lineage.sql_statements import SqlReader

_SHOWN = 3  # problems of one document


def told_by(value: Any, reader: SqlReader, now_ms: int) -> ToldRun:
    """What one document tells: one of ours, a run event of OpenLineage, or a completed event of Trino.

    Raises:
        InvalidValueError: naming the field, without what is in the SQL.
    """
    if not isinstance(value, dict):
        raise InvalidValueError("document", type(value).__name__, 'is no JSON object; send {"producer": …, "task": …, "sql": …}')
    try:
        if openlineage.is_event(value):
            openlineage.check_version(value)
            return openlineage.told_by(openlineage.RunEvent.model_validate(value), reader.schema.names, reader)
        if trino.is_event(value):
            return trino.told_by(trino.CompletedEvent.model_validate(value), reader.schema.names)
        return facts.told_by(facts.Document.model_validate(value), reader, now_ms)
    except ValidationError as error:
        raise _translated(error) from None


def _translated(error: ValidationError) -> InvalidValueError:
    """The first problems by their fields; what stands in them is not shown, as it may be personal, but for the state of a run."""
    first, *others = error.errors(include_url=False)
    told = [str(InvalidValueError(_field(one), _value(one), _remedy(one))) for one in others[: _SHOWN - 1]]
    return InvalidValueError(_field(first), _value(first), "; ".join([_remedy(first), *told]))


def _field(problem: ErrorDetails) -> str:
    return shown(".".join(str(part) for part in problem["loc"]))[1:-1] or "document"


def _value(problem: ErrorDetails) -> Any:
    """What was given where one of a few words is due, which is told with the error."""
    is_word = problem["type"] == "enum" and isinstance(problem["input"], str | int | None)
    return problem["input"] if is_word else "…"


def _remedy(problem: ErrorDetails) -> str:
    if problem["type"] == "extra_forbidden":  # what is not known of events of others is left out
        return f"is no field of a document; it has {', '.join(facts.Document.model_fields)}"
    return "is missing; give it" if problem["type"] == "missing" else problem["msg"]
