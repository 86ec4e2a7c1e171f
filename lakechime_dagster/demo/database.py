"""Writes the reservations into their database, as the application of an airline would: SQL, a transaction per hour."""

from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

import pymysql
from pymysql.cursors import Cursor

from lakechime_dagster.demo.plan import Plan
from lakechime_dagster.demo.reservations import Change, changes
from lakechime_dagster.errors import LakeChimeError

INSERTS = {
    "airlines": "INSERT INTO airlines (carrier, name, changed_at) VALUES (%(carrier)s, %(name)s, %(changed_at)s)",
    "planes": """
        INSERT INTO planes (tailnum, built, manufacturer, model, seats, changed_at)
        VALUES (%(tailnum)s, %(built)s, %(manufacturer)s, %(model)s, %(seats)s, %(changed_at)s)
    """,
    "bookings": """
        INSERT INTO bookings (booking, flight_date, carrier, flight, origin, sched_dep_time, passengers, fare, status, changed_at)
        VALUES (%(booking)s, %(flight_date)s, %(carrier)s, %(flight)s, %(origin)s, %(sched_dep_time)s, %(passengers)s, %(fare)s,
                %(status)s, %(changed_at)s)
    """,
}
UPDATES = {
    "airlines": "UPDATE airlines SET name = %(name)s, changed_at = %(changed_at)s WHERE carrier = %(before)s",
    "bookings": """
        UPDATE bookings SET booking = %(booking)s, status = %(status)s, changed_at = %(changed_at)s WHERE booking = %(before)s
    """,
}
DELETES = {"bookings": "DELETE FROM bookings WHERE booking = %(before)s"}


class ReservationsDatabase:
    """The database at a URL such as mysql://user:password@127.0.0.1:3306/reservations; it knows itself how far it got."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._login = {
            "host": parts.hostname, "port": parts.port or 3306, "user": parts.username, "password": parts.password or "",
            "database": parts.path.strip("/"), "charset": "utf8mb4",
        }  # fmt: skip

    def advance(self, plan: Plan, ticks: int) -> int:
        """Do what is not done yet of the first `ticks` ticks of a plan; the number of rows that were written.

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
            with pymysql.connect(**self._login, connect_timeout=10) as connection, connection.cursor() as cursor:
                yield cursor
        except pymysql.Error as error:
            where = f"the reservations at {self._login['host']}:{self._login['port']}"
            raise LakeChimeError(f"{where} cannot be written: {error.args[-1]}; `lakechime dev` starts this database") from error


def _write(cursor: Cursor, change: Change) -> None:
    if change.after is None:
        cursor.execute(DELETES[change.table], {"before": change.before})
    elif change.before is None:
        cursor.execute(INSERTS[change.table], dict(change.after))
    else:
        cursor.execute(UPDATES[change.table], {**change.after, "before": change.before})
