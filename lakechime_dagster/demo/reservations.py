"""The reservation system: which rows of its database change in which hour."""

import csv
import datetime as dt
import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from functools import cache, lru_cache
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
import pymysql
from pymysql.cursors import Cursor

from lakechime_dagster.demo.data import FIRST_DAY, HOURS, data_folder, rows, rows_of
from lakechime_dagster.demo.plan import FLIGHTS, Plan
from lakechime_dagster.errors import LakeChimeError

Row = Mapping[str, Any]

KEYS = {"airlines": "carrier", "planes": "tailnum", "bookings": "booking"}
# the hour of the replay in which a row was written last
CHANGED_AT = ("changed_at", pa.timestamp("us"))
SCHEMAS = {
    "airlines": pa.schema([("carrier", pa.string()), ("name", pa.string()), CHANGED_AT]),
    "planes": pa.schema(
        [
            ("tailnum", pa.string()),
            ("built", pa.int32()),
            ("manufacturer", pa.string()),
            ("model", pa.string()),
            ("seats", pa.int32()),
            CHANGED_AT,
        ]
    ),
    "bookings": pa.schema(
        [
            ("booking", pa.int64()),
            ("flight_date", pa.date32()),
            ("carrier", pa.string()),
            ("flight", pa.int32()),
            ("origin", pa.string()),
            ("sched_dep_time", pa.int32()),
            ("passengers", pa.int32()),
            ("fare", pa.decimal128(8, 2)),
            ("status", pa.string()),
            CHANGED_AT,
        ]
    ),
}

RENAMED = {"FL": (30, "AirTran (Southwest Airlines)")}  # by carrier the tick and the new name
EARLIEST, REFUNDED_AFTER = 12, 6  # hours before and after a flight in which its bookings change
GIVEN_BACK, REISSUED = 0.06, 0.12  # shares of bookings, the second one with the first
REISSUE = 500_000_000  # what is added to the number of a booking that is reissued


@dataclass(frozen=True, kw_only=True)
class Change:
    """A row that is written: `before` is its key until now, None of a new row; `after` None where
    it is deleted.
    """

    table: str
    before: Any = None
    after: Row | None = None


def changes(plan: Plan, tick: int) -> tuple[Change, ...]:
    """What changes in a tick, in order."""
    departures = range(max(0, tick - REFUNDED_AFTER), min(plan.days * HOURS, tick + EARLIEST + 1))
    booked = (
        change
        for departure in departures
        for change in _bookings(plan.seed, departure).get(tick, ())
    )
    return (*_airlines(tick), *(_planes(tick) if tick < plan.days * HOURS else ()), *booked)


def tables_after(plan: Plan, ticks: int) -> dict[str, pa.Table]:
    """The tables after the first `ticks` ticks."""
    tables: dict[str, dict[Any, Row]] = {table: {} for table in KEYS}
    for tick in range(min(ticks, plan.ticks)):
        for change in changes(plan, tick):
            held = tables[change.table]
            if change.before is not None:
                del held[change.before]
            if change.after is not None:
                held[change.after[KEYS[change.table]]] = change.after
    return {
        table: pa.Table.from_pylist(list(held.values()), schema=SCHEMAS[table])
        for table, held in tables.items()
    }


def _airlines(tick: int) -> Iterator[Change]:
    if tick == 0:
        for airline in _read("airlines.csv"):
            yield Change(table="airlines", after={**airline, "changed_at": hour_of(tick)})
    for carrier, (renamed, name) in RENAMED.items():
        if tick == renamed:
            yield Change(
                table="airlines",
                before=carrier,
                after={"carrier": carrier, "name": name, "changed_at": hour_of(tick)},
            )


def _planes(tick: int) -> Iterator[Change]:
    for plane in _first_flown().get(tick, ()):
        yield Change(table="planes", after={**plane, "changed_at": hour_of(tick)})


@cache
def _first_flown() -> dict[int, list[Row]]:
    """The planes by the hour in which each is scheduled first; of some that fly nothing is
    known.
    """
    known = {plane["tailnum"]: plane for plane in _read("planes.csv")}
    seen: dict[int, list[Row]] = {}
    flights = rows(FLIGHTS).select(["tailnum", "flight_date", "hour"]).to_pydict()
    for tailnum, day, hour in zip(*flights.values(), strict=True):  # they are ordered by time
        if (plane := known.pop(tailnum, None)) is not None:
            columns = {
                "tailnum": tailnum,
                "manufacturer": plane["manufacturer"],
                "model": plane["model"],
            }
            numbers = {"built": _number(plane["year"]), "seats": _number(plane["seats"])}
            seen.setdefault((day - FIRST_DAY).days * HOURS + hour, []).append(columns | numbers)
    return seen


@lru_cache(maxsize=2 * (EARLIEST + REFUNDED_AFTER))
def _bookings(seed: int, departure: int) -> dict[int, list[Change]]:
    """All that is ever done for flights of an hour, by tick."""
    dice = random.Random(f"{seed}/bookings/{departure}")
    day, hour = divmod(departure, HOURS)
    done: dict[int, list[Change]] = {}
    number = day * 100_000 + hour * 4_000
    for flight in rows_of(FLIGHTS, FIRST_DAY + dt.timedelta(days=day), hour).to_pylist():
        for _ in range(dice.choice((0, 1, 1, 2))):
            number += 1
            for tick, change in _life_of(number, flight, departure, dice):
                done.setdefault(tick, []).append(change)
    return done


def _life_of(
    number: int, flight: Row, departure: int, dice: random.Random
) -> Iterator[tuple[int, Change]]:
    """What becomes of a booking, in order."""
    made = max(0, departure - dice.randint(1, EARLIEST))
    between = dice.randint(min(made + 1, departure), departure)
    outcome = dice.random()
    row = {
        "booking": number,
        **{
            name: flight[name]
            for name in ("flight_date", "carrier", "flight", "origin", "sched_dep_time")
        },
        "passengers": dice.choice((1, 1, 1, 2, 2, 3, 4)),
        "fare": Decimal(dice.randint(4_900, 89_900)) / 100,
    }
    yield (
        made,
        Change(table="bookings", after=row | {"status": "booked", "changed_at": hour_of(made)}),
    )
    if outcome < GIVEN_BACK:
        yield between, Change(table="bookings", before=number)
        return
    if outcome < REISSUED:
        row["booking"] = number + REISSUE
        yield (
            between,
            Change(
                table="bookings",
                before=number,
                after=row | {"status": "booked", "changed_at": hour_of(between)},
            ),
        )
    status = "cancelled" if flight["dep_time"] is None else "boarded"
    yield (
        departure,
        Change(
            table="bookings",
            before=row["booking"],
            after=row | {"status": status, "changed_at": hour_of(departure)},
        ),
    )
    if status == "cancelled":
        yield departure + REFUNDED_AFTER, Change(table="bookings", before=row["booking"])


def hour_of(tick: int) -> dt.datetime:
    """The hour of 2013 that a tick stands for, by local clocks."""
    return dt.datetime.combine(FIRST_DAY, dt.time()) + dt.timedelta(hours=tick)


@cache
def _read(file: str) -> tuple[dict[str, str], ...]:
    with (data_folder() / file).open(encoding="utf-8", newline="") as source:
        return tuple(csv.DictReader(source))


def _number(text: str) -> int | None:
    return None if text in ("", "NA") else int(text)


INSERTS = {
    "airlines": (
        "INSERT INTO airlines (carrier, name, changed_at) VALUES (%(carrier)s, %(name)s, "
        "%(changed_at)s)"
    ),
    "planes": """
        INSERT INTO planes (tailnum, built, manufacturer, model, seats, changed_at)
        VALUES (%(tailnum)s, %(built)s, %(manufacturer)s, %(model)s, %(seats)s, %(changed_at)s)
    """,
    "bookings": """
        INSERT INTO bookings (booking, flight_date, carrier, flight, origin, sched_dep_time,
                              passengers, fare, status, changed_at)
        VALUES (%(booking)s, %(flight_date)s, %(carrier)s, %(flight)s, %(origin)s,
                %(sched_dep_time)s, %(passengers)s, %(fare)s, %(status)s, %(changed_at)s)
    """,
}
UPDATES = {
    "airlines": (
        "UPDATE airlines SET name = %(name)s, changed_at = %(changed_at)s WHERE carrier = "
        "%(before)s"
    ),
    "bookings": """
        UPDATE bookings SET booking = %(booking)s, status = %(status)s, changed_at = %(changed_at)s
        WHERE booking = %(before)s
    """,
}
DELETES = {"bookings": "DELETE FROM bookings WHERE booking = %(before)s"}


class ReservationsDatabase:
    """The database at a URL such as mysql://user:password@127.0.0.1:3306/reservations; it knows
    itself how far it got.
    """

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._login = {
            "host": parts.hostname,
            "port": parts.port or 3306,
            "user": parts.username,
            "password": parts.password or "",
            "database": parts.path.strip("/"),
            "charset": "utf8mb4",
        }

    def advance(self, plan: Plan, ticks: int) -> int:
        """Do what is not done yet of the first `ticks` ticks of a plan; the number of rows that
        were written.

        Raises:
            LakeChimeError: the database cannot be reached, or refuses.
        """
        written = 0
        with self._transactions() as cursor:
            cursor.execute("SELECT ticks FROM replayed")
            done = (cursor.fetchone() or (0,))[0]
            for tick in range(done, min(ticks, plan.ticks)):
                for change in (due := changes(plan, tick)):
                    _write(cursor, change)
                cursor.execute("UPDATE replayed SET ticks = %s", (tick + 1,))
                cursor.connection.commit()
                written += len(due)
        return written

    @contextmanager
    def _transactions(self) -> Iterator[Cursor]:
        try:
            with (
                pymysql.connect(**self._login, connect_timeout=10) as connection,
                connection.cursor() as cursor,
            ):
                yield cursor
        except pymysql.Error as error:
            where = f"the reservations at {self._login['host']}:{self._login['port']}"
            raise LakeChimeError(
                f"{where} cannot be written: {error.args[-1]}; `lakechime dev` starts this database"
            ) from error


def _write(cursor: Cursor, change: Change) -> None:
    if change.after is None:
        cursor.execute(DELETES[change.table], {"before": change.before})
    elif change.before is None:
        cursor.execute(INSERTS[change.table], dict(change.after))
    else:
        cursor.execute(UPDATES[change.table], {**change.after, "before": change.before})
