"""The branch of the flights lake that follows a database: planes, airlines and bookings of a reservation system."""

import datetime as dt
import re
from collections.abc import Mapping
from pathlib import Path

from lakechime_dagster import (
    Asset,
    CDCMerge,
    ChangeTable,
    Debezium,
    KafkaTopic,
    LakeTable,
    Monitor,
    SnapshotTrigger,
    change_table,
    every,
    sql_table,
)
from lakechime_dagster.errors import InvalidValueError

CDC_SWITCH = "LAKECHIME_DEMO_CDC"  # set to 1, or to the address that Kafka is to have, the lake has this branch
READER_URL = "LAKECHIME_DEMO_READER"  # where the database is read that the tables are compared with, as `lakechime dev` tells Dagster
MINUTES_BEHIND = dt.timedelta(minutes=5)  # an hour is booked in seconds, and the tables are asked for every minute
KAFKA = "127.0.0.1:29092"
PREFIX, DATABASE = "airline", "reservations"  # of the topics: airline.reservations.bookings

ABOUT = {
    "airlines": ("carrier", "The airlines, as the reservation system knows them now; one is renamed on the second day."),
    "planes": ("tailnum", "The planes; each is entered in the hour of its first flight."),
    "bookings": ("booking", "The bookings as they are now: made, reissued under another number, boarded, cancelled, deleted."),
}


def kafka_address(environment: Mapping[str, str]) -> str | None:
    """Where Kafka is to be, or None where the lake has no such branch.

    Raises:
        InvalidValueError: the switch is neither on nor off, nor an address of this machine.
    """
    value = environment.get(CDC_SWITCH, "").strip()
    if value in ("", "0"):
        return None
    if value == "1":
        return KAFKA
    if not re.fullmatch(r"127\.0\.0\.1:\d{1,5}", value):
        raise InvalidValueError(CDC_SWITCH, value, f"is neither 1 nor an address such as {KAFKA}")
    return value


def followed_tables(kafka: str) -> list[ChangeTable | LakeTable]:
    """The tables of the branch, whose messages are in topics of this broker."""
    return [*(_followed(name, kafka) for name in ABOUT), late_passengers()]


def _followed(name: str, kafka: str) -> ChangeTable:
    key, description = ABOUT[name]
    return change_table(
        f"cdc.{name}",
        source=KafkaTopic(f"{PREFIX}.{DATABASE}.{name}", bootstrap=kafka, every=every(minutes=1)),
        envelope=Debezium(),
        merge=CDCMerge(keys=(key,)),
        monitor=Monitor(database=f"${READER_URL}", table=f"{DATABASE}.{name}", every=every(minutes=10), within=MINUTES_BEHIND),
        asset=Asset(owner="team:sales", description=description),
    )


def late_passengers() -> LakeTable:
    """The table that joins what the database says with what the airports say."""
    return sql_table(
        "gold.late_passengers",
        sql=Path("late_passengers.sql"),
        keys=["carrier"],
        refresh="full",
        trigger=SnapshotTrigger(every=every(minutes=1)),
        asset=Asset(owner="team:analytics"),
    )
