"""Types that change their group: which group has each by what is declared, whoever had it until now."""

import json
from collections.abc import Iterable
from dataclasses import dataclass

from lakechime_dagster.lake.events import EventGroup, owner_of
from lakechime_dagster.schema.repository import KnownType


@dataclass(frozen=True, kw_only=True)
class HeldType:
    """A type that came, and the group that has it by now.

    Attributes:
        home: The group in whose folder its table lies.
        uid: Of the stream's table up to which it was read.
        has_table: Whether its table is there, or may be made at any moment.
    """

    type: str
    group: str
    home: str
    uid: str | None = None
    has_table: bool = True


@dataclass(frozen=True, kw_only=True)
class Move:
    """A type that another group is to have, with its place and all that is known of it; `home` is where its table lies then."""

    held: HeldType
    group: str
    home: str


def moves_of(groups: Iterable[EventGroup], held: Iterable[HeldType], uid: str | None) -> list[Move]:
    """The types of a stream that another group of it is to have than the one that has them by now, each with its table's place.

    A table stays where it lies, whatever is declared: of one that is declared elsewhere the type waits (`misplaced`). Where two
    groups wrote a type that a third is to have, it gets the one whose table lies where it is declared.

    Args:
        groups: All of the stream.
        held: The types of a deployment.
        uid: Of the stream's table, which tells its types from those of other streams, whatever their groups were called.
    """
    several, types = list(groups), list(held)
    names, homes = {one.name for one in several}, {home for one in several for home in one.homes}
    there = {(one.group, one.type) for one in types}
    found: dict[str, Move] = {}
    for one in types:
        if one.group not in names and one.home not in homes and (uid is None or one.uid != uid):
            continue
        owner = owner_of(several, one.type)
        declared = owner.home_of(one.type)
        move = Move(held=one, group=owner.name, home=one.home if one.has_table else declared)
        if (move.group, move.home) == (one.group, one.home) or (one.group != owner.name and (owner.name, one.type) in there):
            continue
        if one.type not in found or move.home == declared:
            found[one.type] = move
    return list(found.values())


def misplaced(group: EventGroup, known: KnownType) -> str:
    """Why a type must wait that has a table elsewhere than it is declared, and what helps; empty where it has not."""
    home, name = known.home or group.name, json.dumps(known.type, ensure_ascii=False)
    if home == group.home_of(known.type):
        return ""
    remedy = f'declare it as moved={{{name}: "{home}"}}' if home != group.name else f"take {name} out of its moved="
    return f"its table is {home}.{known.table}, and group {group.name} is declared to write another; {remedy}"
