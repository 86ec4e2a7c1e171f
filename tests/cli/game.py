"""A stream of a game's events and a group of their types, its tables and the store filled as
executions leave them.
"""

import datetime as dt
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import ModuleType
from typing import Any, NamedTuple

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from lakechime_dagster.dce.engine import writing
from lakechime_dagster.dce.events import SnapshotId
from lakechime_dagster.silver.event import JsonEvent, Scanned, event_of, scanned, variation_of
from lakechime_dagster.silver.requests import event_types
from lakechime_dagster.silver.results import GroupResult, TypeResult
from lakechime_dagster.silver.schema import KnownType, Prototype, learned
from lakechime_dagster.silver.shape import shaped
from lakechime_dagster.silver.store import SqlEventTypes
from lakechime_dagster.tables.events import EventGroup, checked_groups, event_group, event_stream
from lakechime_dagster.tables.lake import Lake
from lakechime_dagster.tables.sources import JsonLines
from lakechime_dagster.triggers.consumers import Checkpoint, CommitMetadata, Committed, ConsumerId
from tests.support.cli import Cli

GAME = event_stream("game", source=JsonLines("in"))
SHOP = event_group("shop", GAME, match="shop_*")
SCHEMA = pa.schema(
    [
        ("_src", pa.string()),
        ("_ingested_at", pa.timestamp("us", "UTC")),
        ("sent_at", pa.timestamp("us", "UTC")),
        *(
            (name, pa.string())
            for name in ("reason", "type", "producer", "hash", "flags", "payload")
        ),
        ("payload_bytes", pa.binary()),
        ("refused_before", pa.string()),
    ]
)


def event(kind: str, **fields: Any) -> bytes:
    return json.dumps({"type": kind, **fields}).encode()


class Row(NamedTuple):
    """A row of the stream's table: with which version it came, its `_src`, and what is reported of
    its payload.
    """

    version: int
    source: str
    payload: bytes
    reported: Scanned

    @property
    def event(self) -> JsonEvent:
        found = event_of(self.payload)
        assert isinstance(found, JsonEvent)
        return found

    @property
    def prototype(self) -> Prototype:
        variation = variation_of(self.event)
        return Prototype(typed_hash=variation.typed_hash, variation=variation)


@dataclass
class Game:
    """The lake of a game, declared in a module that the command line loads."""

    lakechime: Cli
    group: EventGroup
    version: int = -1
    executions: int = 0
    rows: list[Row] = field(default_factory=list)

    @classmethod
    def declared(cls, lakechime: Cli, group: EventGroup = SHOP) -> "Game":
        module = ModuleType("game_lake")
        module.__dict__["lake"] = Lake("game", [GAME, group])
        lakechime.monkeypatch.setitem(sys.modules, "game_lake", module)
        lakechime.monkeypatch.setenv("LAKECHIME_LAKE", "game_lake:lake")
        return cls(lakechime, group)

    @property
    def location(self) -> str:
        return str(self.lakechime.home / "warehouse" / "game" / "events")

    @property
    def types(self) -> SqlEventTypes:
        return event_types(self.lakechime.platform)

    def come(self, *payloads: bytes) -> None:
        """Events come to the stream's table, in a version of its own, an hour after those
        before.
        """
        self.version += 1
        moment = dt.datetime(2024, 2, 29, self.version, tzinfo=dt.timezone.utc)
        written: list[dict[str, Any]] = []
        for payload in payloads:
            source, one = f"a.jsonl@{len(self.rows)}", scanned(payload, ("type",))
            self.rows.append(Row(self.version, source, payload, one))
            is_text = one.reason != "not_utf8"
            written.append(
                {
                    "_src": source,
                    "_ingested_at": moment,
                    "sent_at": moment,
                    "reason": one.reason,
                    "type": one.type,
                    "hash": one.typed_hash,
                    "payload": payload.decode() if is_text else None,
                    "payload_bytes": None if is_text else payload,
                }
            )
        write_deltalake(self.location, pa.Table.from_pylist(written, schema=SCHEMA), mode="append")

    def execute(
        self,
        group: EventGroup | None = None,
        *,
        fails: Mapping[str, str] | None = None,
        waits: Mapping[str, str] | None = None,
    ) -> None:
        """An execution of a group up to the newest version; for some types it fails, or finds that
        they wait.
        """
        group = group or self.group
        self.executions += 1
        names = {row.reported.type for row in self.rows if row.reported.type}
        self.types.register(checked_groups(GAME, [self.group]), names)
        several = self.types.types(group.name).values()
        results = [
            self._step_of(
                group, one, (fails or {}).get(one.type, ""), (waits or {}).get(one.type, "")
            )
            for one in several
        ]
        with writing(self.types.engine) as connection:
            self.types.complete(
                connection,
                group.name,
                f"e{self.executions}",
                GroupResult(types=tuple(results)),
                str(DeltaTable(self.location).metadata().id),
            )

    def _step_of(self, group: EventGroup, one: KnownType, error: str, waits: str) -> TypeResult:
        """What an execution does for a type: it learns, and commits once, where nothing hinders it."""
        rows = [
            row
            for row in self.rows
            if row.reported.type == one.type and row.version > one.checkpoint.version
        ]
        contract, start = group.contract_of(one.type), one.checkpoint.version
        kept = self.types.variations(group.name, [one.type])[one.type]
        first = {
            row.reported.typed_hash: row
            for row in reversed(rows)
            if row.reported.typed_hash not in kept
        }
        found = [] if waits else [row.prototype for row in reversed(first.values())]
        learning = None if waits else learned(one, found, contract)
        if learning is not None:
            self.types.learn(group.name, [learning])
        unmoved = TypeResult(
            type=one.type, table=one.table, start=start, end=start, rows=len(rows) if waits else 0
        )
        if waits or error:
            return replace(unmoved, pending=unmoved.rows, waits=waits, error=error)
        rescued = sum(
            1 for row in rows if shaped(row.event, (learning or one).schema, contract).rescued
        )
        commit_metadata = CommitMetadata(
            consumer=ConsumerId("test", group.name, one.type),
            number=one.checkpoint.commits + 1,
            attempt=1,
            end=Checkpoint(),
        )
        commits = (
            (
                Committed(
                    version=SnapshotId(str(one.checkpoint.commits)), commit_metadata=commit_metadata
                ),
            )
            if rows
            else ()
        )
        return replace(
            unmoved,
            end=self.version,
            rows=len(rows),
            written=len(rows),
            rescued=rescued,
            commits=commits,
        )
