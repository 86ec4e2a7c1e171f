"""The columns of the lake's tables as their logs have them, under the names by which others call the tables."""

import logging
from collections.abc import Collection, Iterable

from lakechime_dagster.dce.event import TableFormat
from lakechime_dagster.dce.position import Position
from lakechime_dagster.errors import TableUnreadableError
from lakechime_dagster.lake.lake import Lake
from lakechime_dagster.lineage.sql.schema import SqlSchema
from lakechime_dagster.resources.lineage.names import names_of
from lakechime_dagster.resources.platform import Platform

MANY = 1_000  # events since the last look, above which all tables are looked at again
_logger = logging.getLogger(__name__)


class TableColumns:
    """The columns of a lake's tables; looked at again as the store tells that tables changed."""

    def __init__(self, platform: Platform, lake: Lake) -> None:
        self._platform = platform
        self._lake = lake
        self._names = names_of(platform, lake)
        self._position: Position | None = None
        self._columns: dict[str, tuple[str, ...]] = {}
        self._schema = SqlSchema({}, self._names)

    def schema(self) -> SqlSchema:
        """As the store knows the tables at this moment; the same one again while no columns change."""
        position = self._platform.store.head()
        if position != self._position:
            found = {**self._columns, **dict(self._looked_at(self._changed()))}
            if found != self._columns or self._position is None:
                self._columns = found
                self._schema = SqlSchema(found, self._names)
            self._position = position
        return self._schema

    def _changed(self) -> Collection[str]:
        every = {table.name for table in self._lake.tables}
        if self._position is None:
            return every
        page = self._platform.store.feed(self._position, MANY)
        return every if len(page.events) == MANY else {one.event.table for one in page.events} & every

    def _looked_at(self, names: Collection[str]) -> Iterable[tuple[str, tuple[str, ...]]]:
        for table in self._lake.tables:
            if table.name not in names or table.format is not TableFormat.DELTA:
                continue
            try:
                columns = self._platform.log(table.name, table.location).columns()
            except TableUnreadableError as error:
                _logger.warning("%s: its columns are not known: %s", table.name, error)
                continue
            if columns:
                yield table.name, tuple(name for name, _, _ in columns)
