"""Event streams and their types: what exists, dry runs on Spark, maintenance."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from sqlglot import exp

from lakechime_dagster.formats.delta_rows import TABLE, DeltaRows, column, known, texts
from lakechime_dagster.runtime.platform import Platform
from lakechime_dagster.silver.schema import TypeCheckpoint
from lakechime_dagster.tables.events import REFUSED_BEFORE, EventTable

MAX_SHOWN = 200  # characters of a payload that was refused
_WHERE = ("_src", "_ingested_at", "sent_at", "reason")


@dataclass(frozen=True)
class Streamed:
    """The table of a stream; one that is not there has no rows."""

    platform: Platform
    table: EventTable

    @property
    def rows(self) -> DeltaRows:
        return DeltaRows(self.platform.log(self.table.name, self.table.location))

    def newest(self) -> TypeCheckpoint | None:
        """The checkpoint of a type whose table holds all that is there; None before the first event.

        Raises:
            TableUnreadableError: the table is there and cannot be read.
        """
        state = self.rows.log.state()
        return None if state is None else TypeCheckpoint(uid=str(state.metadata().id), version=state.version())

    def refused_by_reason(self) -> dict[str, int]:
        """How many rows no type can be told of, the commonest reason first; none of them was reprocessed."""
        counted = exp.select(column("reason"), exp.Count(this=exp.Star()).as_("n")).from_(TABLE)
        found = self.rows.query(counted.where(*self._is_refused()).group_by(column("reason")))
        return {row["reason"]: row["n"] for row in sorted(found, key=lambda row: (-row["n"], row["reason"]))}

    def refused(self, limit: int) -> list[dict[str, Any]]:
        """The newest of these rows: where each is, why, and its payload as text, which is cut."""
        text = exp.func("left", column("payload"), exp.Literal.number(MAX_SHOWN + 1)).as_("payload")
        query = exp.select(*map(column, _WHERE), text, column("payload_bytes")).from_(TABLE).where(*self._is_refused())
        for name in ("_ingested_at", "sent_at", "_src"):
            query = query.order_by(exp.Ordered(this=column(name), desc=True))
        return [{name: row[name] for name in _WHERE} | {"payload": _shown(row)} for row in self.rows.query(query.limit(limit))]

    def _is_refused(self) -> tuple[exp.Condition, ...]:
        """That a row is refused, and did not come again as an event."""
        reprocessed = exp.select(column("_src")).from_(TABLE).where(known(REFUSED_BEFORE))
        return known("reason"), exp.not_(column("_src").isin(query=reprocessed))

    def payloads(self, sources: Collection[str]) -> dict[str, str]:
        """The payloads of rows that are still there, by `_src`."""
        if not sources:
            return {}
        found = self.rows.select("_src", "payload", where=(texts("_src", *sorted(sources)),))
        return {row["_src"]: row["payload"] for row in found}


def _shown(row: dict[str, Any]) -> str:
    """A payload as text; of bytes that are none, each that is no character is told by its number."""
    raw, text = row["payload_bytes"], row["payload"]
    told = raw[: MAX_SHOWN + 1].decode(errors="backslashreplace") if raw is not None else text or ""
    return told if len(told) <= MAX_SHOWN else f"{told[:MAX_SHOWN]}…"
