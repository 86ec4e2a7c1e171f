"""Tables that were dropped: their folders are put aside in a moment, and removed by a later maintenance when their time is over.

Until then a folder is renamed back to undo it. The name of each says until when it stays: nothing else remembers it.
"""

import datetime as dt
import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from lakechime_dagster.errors import LakeChimeError, LaneConflictError, NotFoundError
from lakechime_dagster.lake.change_tables import CHANGES, STATE
from lakechime_dagster.resources.platform import Platform
from lakechime_dagster.store.interventions import By, Interventions
from lakechime_dagster.store.lanes_at import lanes_at
from lakechime_dagster.store.ledger_rows import FlowRow
from lakechime_dagster.triggers.grid import from_milliseconds

BESIDE = ("", CHANGES, STATE, "__quarantine")  # what the names of a table's own folders end with
UNTIL = "__dropped_until_"
TIME = "%Y%m%dT%H%M%SZ"
_ASIDE = re.compile(rf"\w+{UNTIL}(\d{{8}}T\d{{6}}Z)", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class Dropped:
    """A folder that was put aside, and until when it stays."""

    folder: Path
    until: dt.datetime


@dataclass(frozen=True, kw_only=True)
class Drop:
    """What dropping a table takes: its folders, and the flows that write them."""

    table: str
    folders: tuple[Path, ...]
    flows: tuple[FlowRow, ...]


def to_drop(platform: Platform, table: str) -> Drop:
    """What is to be dropped of a table that is declared no more.

    Raises:
        NotFoundError: nothing of it lies in the warehouse.
        LaneConflictError: another lane is at it.
        LakeChimeError: the warehouse is no local folder.
    """
    own = (table, table + CHANGES)
    lanes = [lane for name in own for lane in lanes_at(platform.store.engine, name, platform.settings.cluster)]
    others = [one.lane for one in lanes if one.lane.flow not in own or one.lane.deployment != platform.ledger.deployment]
    if others:
        names = ", ".join(sorted({f"{lane.flow} of {lane.deployment}" for lane in others}))
        raise LaneConflictError(f"{table} is used by {names}; remove these from the code first, and `lakechime trigger forget` each")
    place = platform.location(table)
    if "://" in place:
        raise LakeChimeError(f"{table} lies in {place}, where a folder cannot be renamed in a moment; remove it there by its own tools")
    folders = tuple(folder for suffix in BESIDE if (folder := Path(place + suffix)).is_dir())
    if not folders:
        raise NotFoundError(f"nothing of {table} lies at {place}; what was declared with another location is to be removed by hand")
    flows = [flow for name in own if (flow := platform.ledger.flow(name)) is not None]
    return Drop(table=table, folders=folders, flows=tuple(flows))


def drop(platform: Platform, what: Drop, keep_for: dt.timedelta, by: By, *, dry_run: bool = False) -> list[Dropped]:
    """Forget the lanes of a table, and put its folders aside. A drop that was interrupted is completed by another one.

    Raises:
        LaneConflictError: one of its lanes is at work; nothing was done.
    """
    people = Interventions(platform.ledger)
    for is_dry in (True, False)[: 1 if dry_run else 2]:  # all of them can be forgotten, or none is
        for flow in what.flows:
            people.forget(flow, by, dry_run=is_dry)
    until = from_milliseconds(platform.store.now()).replace(microsecond=0) + keep_for
    aside = [Dropped(folder=folder.with_name(f"{folder.name}{UNTIL}{until:{TIME}}"), until=until) for folder in what.folders]
    if not dry_run:
        platform.store.note_dropped(what.table, platform.settings.cluster)
        for folder, put in zip(what.folders, aside, strict=True):
            folder.rename(put.folder)
    return aside


def dropped(platform: Platform) -> list[Dropped]:
    """The folders of the warehouse that were put aside, those first that go first."""
    return sorted(_aside(platform.settings.warehouse), key=lambda one: (one.until, one.folder))


def dropped_tables(platform: Platform) -> dict[str, Dropped]:
    """What was put aside by the name of its table, or of what is its own; of one that was dropped twice the newer one."""
    warehouse = platform.settings.warehouse
    return {".".join(one.folder.relative_to(warehouse).parts).partition(UNTIL)[0]: one for one in dropped(platform)}


def expired(platform: Platform) -> list[Dropped]:
    """The folders whose time is over."""
    now = from_milliseconds(platform.store.now())
    return [one for one in dropped(platform) if one.until <= now]


def remove_expired(platform: Platform) -> list[Dropped]:
    """Remove the folders whose time is over; those that could not be removed whole are tried again by the next one."""
    over = expired(platform)
    for one in over:
        shutil.rmtree(one.folder, ignore_errors=True)
    return [one for one in over if not one.folder.exists()]


def _aside(warehouse: str) -> Iterator[Dropped]:
    """What lies between the tables of a local warehouse."""
    for place, folders, _ in os.walk(warehouse):
        for name in folders:
            if (found := _ASIDE.fullmatch(name)) and not Path(place, name).is_symlink():
                yield Dropped(folder=Path(place, name), until=dt.datetime.strptime(found[1], TIME).replace(tzinfo=dt.timezone.utc))
        if "_delta_log" in folders:
            folders.clear()
        folders[:] = [name for name in folders if not _ASIDE.fullmatch(name)]
