"""Reading many statements, most of which come again: each is parsed when it is met first."""

from collections import OrderedDict
from collections.abc import Sequence

from lakechime_dagster.lineage.record import Statement
from lakechime_dagster.lineage.sql.schema import SqlSchema
from lakechime_dagster.lineage.sql.statements import read_statements
from lakechime_dagster.lineage.sql.text import checked_dialect, fingerprint, parsed, tokens_of

REMEMBERED = 10_000  # statements, the last ones that were met


class SqlReader:
    """What statements say, with the columns of tables as they are known at one moment; for one thread at a time."""

    def __init__(self, schema: SqlSchema) -> None:
        self.schema = schema
        self.parses = 0
        self._known: OrderedDict[tuple[str, str], tuple[Statement, ...]] = OrderedDict()

    def read(self, sql: str | Sequence[str], dialect: str, namespace: str = "") -> tuple[str, tuple[Statement, ...]]:
        """The fingerprint of a text, or of several of one session, and what `statements_of_sql` says of it.

        Raises:
            InvalidValueError: as that does.
        """
        dialect = checked_dialect(dialect)
        texts = [sql] if isinstance(sql, str) else list(sql)
        known_as = "\0".join(fingerprint(tokens_of(text, dialect), dialect) for text in texts)
        key = (known_as, namespace)
        found = self._known.get(key)
        if found is None:
            self.parses += 1
            found = self._known[key] = read_statements(
                [one for text in texts for one in parsed(text, dialect)], "".join(texts), self.schema, namespace or dialect
            )
            if len(self._known) > REMEMBERED:
                self._known.popitem(last=False)
        else:
            self._known.move_to_end(key)
        return known_as, found
