"""From the JSON that somebody sends to what it tells of a run, or to what is wrong with it."""

from typing import Any

from pydantic import ValidationError

from lakechime_dagster.errors import InvalidValueError, shown
from lakechime_dagster.lineage.ingest import document, openlineage, trino
from lakechime_dagster.lineage.ingest.facts import ToldRun
from lakechime_dagster.lineage.sql.reader import SqlReader

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
        return document.told_by(document.Document.model_validate(value), reader, now_ms)
    except ValidationError as error:
        raise _translated(error) from None


def _translated(error: ValidationError) -> InvalidValueError:
    """The first problems by their fields; what stands in them is not shown, as it may be personal."""
    problems = error.errors(include_input=False, include_url=False)
    first = ".".join(str(part) for part in problems[0]["loc"])
    others = [f"{'.'.join(str(part) for part in one['loc'])}: {one['msg']}" for one in problems[1:_SHOWN]]
    remedy = "; ".join([problems[0]["msg"], *others])
    return InvalidValueError(shown(first)[1:-1] or "document", "…", remedy if remedy else "does not fit")
