"""The shape in which Liulishuo keeps a database's table, as a view of the messages: of each key the newest image, as JSON.

"Architecture and practice of EMR Delta Lake in Liulishuo data access": offset, `op` and `ts_ms` of each message, and as
`json_record` what the row was after it, of a deletion before it, which stays; `row_key` finds the newest.
"""

import sqlglot
from sqlglot import exp
from typing_extensions import assert_never

from lakechime_dagster.cdc.messages.bronze import ViewDialect

_MESSAGES, _VIEW = "messages", "records"
_QUERY = """
CREATE OR REPLACE VIEW records AS
SELECT row_key, op, ts_ms, json_record, source, topic, `partition`, `offset`
FROM (
  SELECT
    *,
    CASE
      WHEN get_json_object(body, '$.op') IS NULL THEN body
      WHEN coalesce(get_json_object(body, '$.source'), get_json_object(body, '$.before'), get_json_object(body, '$.after')) IS NULL
        THEN body
      WHEN op = 'd' THEN get_json_object(body, '$.before')
      ELSE get_json_object(body, '$.after')
    END AS json_record,
    row_number() OVER (
      PARTITION BY source, row_key
      ORDER BY `position` DESC NULLS LAST, CASE op WHEN 'r' THEN 0 WHEN 'd' THEN 1 ELSE 2 END DESC, `offset` DESC
    ) AS newest
  FROM (
    SELECT
      *,
      coalesce(
        CASE
          WHEN get_json_object(value, '$.schema') IS NOT NULL OR value LIKE '{"payload":{%' THEN get_json_object(value, '$.payload')
        END,
        value
      ) AS body
    FROM messages
    WHERE kind = 'change' AND row_key IS NOT NULL
  ) AS told
) AS ordered
WHERE newest = 1
"""


def json_records_view(name: str, location: str, dialect: ViewDialect) -> str:
    """The statement that makes the view of the bronze table at a location, for an engine that reads Delta tables there.

    The newest is so by the database's log, which positions that began anew, truncations and snapshots that lack rows say nothing
    to; a message that the connector flattened is its own image. How numbers are spelled in `json_record` is the engine's.

    Args:
        name: Of the view, its parts parted by dots.
        location: Of the table of Debezium's messages.
        dialect: Of the engine.
    """
    statement = sqlglot.parse_one(_QUERY, dialect="spark")
    there = {_VIEW: exp.to_table(name), _MESSAGES: _scan(location, dialect)}
    for table in list(statement.find_all(exp.Table)):
        table.replace(there[table.name])
    return statement.sql(dialect=dialect.value, pretty=True, identify=True)


def _scan(location: str, dialect: ViewDialect) -> exp.Table:
    """The Delta table at a location."""
    match dialect:
        case ViewDialect.SPARK:
            return exp.table_(location, db="delta", quoted=True)
        case ViewDialect.DUCKDB:
            return exp.Table(this=exp.func("delta_scan", exp.Literal.string(location)))
        case _:
            assert_never(dialect)
