"""A table of a real PostgreSQL and the messages of its changes, which stand where the server's own
log has the changes.

They are read from the log as Debezium's connector reads them (`pgoutput`), and written as it writes
them: recorded messages report in `sequence` where the transaction before had ended, and where the
change itself lies.
"""

import json
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
from deltalake import write_deltalake

from lakechime_dagster.cdc.job import MessageFormat
from lakechime_dagster.cdc.record import Record
from lakechime_dagster.cdc.service import ReplicaTables
from lakechime_dagster.tables.databases import Database, Debezium, Monitor
from tests.cdc.factories import WAL, encoded, envelope_schema, struct
from tests.cdc.merge.lake import changes_in, kept_of, rows_in
from tests.support.refreshes import open_log
from tests.support.replica import append_messages, read, replica_tables

FORMAT = MessageFormat(envelope=Debezium(), keys=("id",))
ID = ("id", "int32", False)
SCHEMA, KEY_SCHEMA = envelope_schema(ID, ("note", "string", True)), struct(ID)
SLOT = "orders"
LOST = "lost"  # begins the notes of rows of which no message comes
Row = dict[str, Any]


@dataclass
class Log:
    """What the log of a server reports of the table `orders`, from a slot of it."""

    connection: psycopg.Connection
    relation: int  # the number of the table
    before: int | None = None  # where the transaction before had ended
    transaction: int = 0
    offset: int = 0

    def messages(self) -> list[Record]:
        """Of all that was committed since they were asked for."""
        found = self.connection.execute(
            "SELECT lsn - '0/0', data"
            " FROM pg_logical_slot_get_binary_changes(%s, NULL, NULL, 'proto_version', '1', "
            "'publication_names', %s)",
            (SLOT, SLOT),
        )
        return [message for lsn, data in found for message in self._reported(int(lsn), data)]

    def _reported(self, lsn: int, data: bytes) -> Iterator[Record]:
        kind = data[:1]
        if kind == b"B":
            self.transaction = _int(data, 17)
        elif kind == b"C":
            self.before = (
                lsn  # as Debezium takes it from the checkpoint at which the end is reported
            )
        elif kind == b"T" and self.relation in [_int(data, at) for at in range(6, len(data), 4)]:
            yield self._message("t", lsn, None, None)
        elif _int(data, 1) == self.relation:
            yield from self._of_row(kind, lsn, data)

    def _of_row(self, kind: bytes, lsn: int, data: bytes) -> Iterator[Record]:
        if kind == b"I":
            yield self._message("c", lsn, None, _row(data, 6)[0])
        elif kind == b"D":
            yield self._message("d", lsn, _row(data, 6)[0], None)
        elif kind == b"U":
            old, at = _row(data, 6) if data[5:6] in b"KO" else (None, 5)
            new, _ = _row(data, at + 1)
            if old is None:
                yield self._message("u", lsn, None, new)
            else:  # the key changed
                yield self._message("d", lsn, old, None)
                yield self._message(
                    "c",
                    lsn,
                    None,
                    new,
                    {"__debezium.oldkey": encoded({"id": old["id"]}, KEY_SCHEMA)},
                )

    def _message(
        self,
        op: str,
        lsn: int,
        before: Row | None,
        after: Row | None,
        headers: dict[str, bytes] | None = None,
    ) -> Record:
        sequence = json.dumps([None if self.before is None else str(self.before), str(lsn)])
        source = {
            **WAL,
            "schema": "public",
            "sequence": sequence,
            "lsn": lsn,
            "txId": self.transaction,
            "snapshot": "false",
        }
        payload = {"before": before, "after": after, "source": source, "op": op, "ts_ms": lsn}
        key = before or after
        self.offset += 1
        return Record(
            topic="orders",
            topic_id="t",
            offset=self.offset,
            value=encoded(payload, SCHEMA),
            headers=headers or {},
            key=None if key is None else encoded({"id": key["id"]}, KEY_SCHEMA),
        )


def _int(data: bytes, at: int, size: int = 4) -> int:
    return int.from_bytes(data[at : at + size], "big")


def _row(data: bytes, at: int) -> tuple[Row, int]:
    """The row that begins there, and where it ends."""
    values, at = list[str | None](), at + 2
    for _ in range(_int(data, at - 2, 2)):
        kind, at = data[at : at + 1], at + 1
        assert kind in b"nt"
        size = _int(data, at) if kind == b"t" else -4
        values.append(data[at + 4 : at + 4 + size].decode() if kind == b"t" else None)
        at += 4 + size
    identity, note = values
    assert identity is not None
    return {"id": int(identity), "note": note}, at


@dataclass
class WalShop:
    """The table `orders` of PostgreSQL, sessions that write to it, and the lake's messages of
    it.
    """

    url: str
    folder: Path
    log: Log
    sessions: Sequence[psycopg.Connection]
    reported: list[Record] = field(default_factory=list)

    def run(self, *statements: str, session: int = 0) -> None:
        for statement in statements:
            self.sessions[session].execute(statement.encode())

    def refresh(self, *, most: int | None = None) -> None:
        """The lake gets the messages that came, at most so many, but not those of lost rows."""
        self.reported += self.log.messages()
        now = self.reported[:most]
        del self.reported[: len(now)]
        if kept := [one for one in now if f'"note": "{LOST}' not in (one.value or b"").decode()]:
            append_messages(str(self.folder / "orders__changes"), kept, FORMAT)

    @property
    def tables(self) -> ReplicaTables:
        rows, bronze, state = (
            open_log(str(self.folder / f"orders{suffix}"), f"orders{suffix}")
            for suffix in ("", "__changes", "__state")
        )
        return replica_tables(rows, bronze, state, FORMAT)

    @property
    def monitor(self) -> Monitor:
        return Monitor(database=Database(self.url, "public.orders"))

    @property
    def rows(self) -> dict[int, str | None]:
        """The database's."""
        return dict(self.log.connection.execute("SELECT id, note FROM orders").fetchall())

    @property
    def replica(self) -> dict[int, str | None]:
        """What all messages of the lake mean, in whatever order they come."""
        records = [
            Record(
                topic=row["topic"],
                topic_id=row["topic_id"],
                offset=row["offset"],
                value=row["value"].encode(),
                key=None if row["key"] is None else row["key"].encode(),
                headers={one["key"]: one["value"] for one in row["headers"]},
            )
            for row in read(str(self.folder / "orders__changes"))
        ]
        changes = changes_in(FORMAT.reader(), records)
        found, backwards = (
            {key[0]: row["note"] for key, row in rows_in(kept_of(some)).items()}
            for some in (changes, changes[::-1])
        )
        assert found == backwards
        return found


@contextmanager
def a_wal_shop(url: str, folder: Path, *, sessions: int = 4) -> Iterator[WalShop]:
    """A shop in an empty database, with a slot and without rows."""
    write_deltalake(
        str(folder / "orders"),
        pa.table({"id": pa.array([], pa.int32()), "note": pa.array([], pa.string())}),
    )
    flushed = "-c synchronous_commit=on"  # what a slot reports was written
    connections = [
        psycopg.connect(url, autocommit=True, options=flushed) for _ in range(sessions + 1)
    ]
    try:
        connection, *others = connections
        connection.execute("CREATE TABLE orders (id INT PRIMARY KEY, note TEXT)")
        connection.execute("CREATE TABLE others (id INT PRIMARY KEY)")
        connection.execute(f"CREATE PUBLICATION {SLOT} FOR ALL TABLES".encode())
        connection.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", (SLOT,))
        found = connection.execute("SELECT 'orders'::regclass::oid").fetchone()
        assert found is not None
        yield WalShop(url, folder, Log(connection, found[0]), others)
    finally:
        for one in connections[1:]:
            one.close()
        connections[0].execute("SELECT pg_drop_replication_slot(%s)", (SLOT,))
        connections[0].close()


class Writer:
    """A session that writes to orders, in transactions; what it would have to wait for it
    leaves.
    """

    def __init__(self, shop: WalShop, number: int, chance: random.Random) -> None:
        self.shop, self.number, self.chance = shop, number, chance
        self.is_open = self.is_lost = self.is_alone = False
        self.made = 0
        shop.run("SET lock_timeout = '1ms'", session=number)

    def write(self, *, loses: bool = False) -> None:
        if not self.is_open:
            self.is_open, self.is_lost = True, loses and self.chance.random() < 0.5
            self.shop.run("BEGIN", session=self.number)
        key, other, self.made = (
            self.chance.randint(1, 10),
            self.chance.randint(1, 20),
            self.made + 1,
        )
        note = f"{'lost' if self.is_lost else 'reported'} {self.number}.{self.made}"
        statements = [
            (
                f"INSERT INTO orders VALUES ({key}, '{note}') ON CONFLICT (id) DO UPDATE SET note = "
                f"excluded.note"
            ),
            f"UPDATE orders SET note = '{note}' WHERE id = {key}",
            f"INSERT INTO others VALUES ({self.number * 1_000_000 + self.made})",
        ]
        if not self.is_lost:  # whose messages have no note
            statements += [
                f"DELETE FROM orders WHERE id = {key}",
                f"UPDATE orders SET id = {other}, note = '{note}' WHERE id = {key}",
            ]
            statements += ["TRUNCATE orders"] if self.chance.random() < 0.05 else []
        statement = self.chance.choice(statements)
        self.is_alone |= statement.startswith("TRUNCATE")
        try:
            self.shop.run(statement, session=self.number)
        except (
            psycopg.errors.LockNotAvailable,
            psycopg.errors.UniqueViolation,
            psycopg.errors.DeadlockDetected,
        ):
            self.end(how="ROLLBACK")

    def end(self, how: str = "COMMIT") -> None:
        if self.is_open:
            self.is_open = self.is_alone = False
            self.shop.run(how, session=self.number)


def work(writers: Sequence[Writer], chance: random.Random, *, loses: bool = False) -> None:
    """The writers write, and end their transactions, as it comes; in the end none locks the table
    out.
    """
    for _ in range(chance.randrange(20)):
        writer = chance.choice(writers)
        if chance.random() < 0.3:
            writer.end()
        else:
            writer.write(loses=loses)
    for writer in writers:
        if writer.is_alone:
            writer.end()
