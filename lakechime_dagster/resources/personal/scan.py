"""Looking for columns of a table that hold personal data, though nobody said so, in some of its rows."""

from lakechime_dagster.capture.rows import DeltaRows
from lakechime_dagster.dce.event import TableFormat
from lakechime_dagster.errors import NotFoundError, TableUnreadableError, needs
from lakechime_dagster.lineage.personal.proposals import Scan, scanned
from lakechime_dagster.resources.personal.reached import PersonalData


def scan(data: PersonalData, table: str, sample: int) -> Scan:
    """What looks personal in a table's columns and in so many of its rows, but for what is declared or decided.

    Raises:
        NotFoundError: there is no such table.
        TableUnreadableError: it cannot be read.
        MissingExtraError: the validators are not installed.
    """
    with needs("a scan of values"):
        from lakechime_dagster.lineage.personal.validators import looks_like
    declared = data.lake.table(table)
    if declared.format is not TableFormat.DELTA:
        raise TableUnreadableError(f"{table} is no Delta table; `lakechime personal scan` reads those alone")
    log = data.platform.log(table, declared.location)
    rows = DeltaRows(log)
    columns = rows.types()
    if not columns:
        raise NotFoundError(f"{table} is not there yet: nothing was written at {log.shown_location}")
    known = [str(ref.column) for ref in (*data.declared, *data.decided) if ref.table == table]
    return scanned(columns, rows.select(limit=sample), looks_like, known)
