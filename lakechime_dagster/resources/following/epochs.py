"""Epochs of the sources of a table: what a held step asks about them, and the answer of a person."""

import re
from dataclasses import dataclass

from lakechime_dagster.capture.appending import append_once
from lakechime_dagster.cdc.remembering.places import PartitionPlace, opened_epochs, opened_row, places_of
from lakechime_dagster.errors import LaneConflictError
from lakechime_dagster.resources.following.followed import Followed
from lakechime_dagster.resources.held import ends_of_held
from lakechime_dagster.store.interventions import By, Interventions
from lakechime_dagster.triggers.flow import Flow
from lakechime_dagster.triggers.lanes import Execution, LaneState

_ASKED = re.compile(r"the position of (\S+) goes back")


@dataclass(frozen=True, kw_only=True)
class Epochs:
    """How far the sources of a table have come, and what its lane waits for.

    Attributes:
        places: Of each partition of each source.
        opened: By source the newest epoch that may be entered.
        asks: The source of which a held step asks whether its positions may begin anew; empty where none asks.
        step: That step.
    """

    places: tuple[PartitionPlace, ...]
    opened: dict[str, int]
    asks: str = ""
    step: Execution | None = None

    @property
    def next(self) -> int:
        """The epoch of the source asked about that is not open yet."""
        return max([self.opened.get(self.asks, 0), *(one.epoch for one in self.places if one.source == self.asks)]) + 1


def epochs_of(followed: Followed) -> Epochs:
    """What is remembered of the epochs of a table, and whether its lane waits for an answer."""
    rows = followed.places()
    places, opened = tuple(places_of(rows)), opened_epochs(rows)
    name, ledger = followed.table.name, followed.platform.ledger
    lane, row = followed.lane(name), ledger.flow(name)
    asked = _ASKED.search(lane.state_reason) if lane is not None and lane.state is LaneState.HELD else None
    if asked is None or row is None:
        return Epochs(places=places, opened=opened)
    step = next(iter(ledger.open_executions(row)), None)
    return Epochs(places=places, opened=opened, asks=asked[1], step=step)


def confirm(followed: Followed, flow: Flow, epochs: Epochs, by: By) -> int:
    """Let the source asked about enter its next epoch, and the step be tried again; said twice for one attempt it is said once.

    Raises:
        LaneConflictError: nothing asks for it.
        TableAbsentError: nothing is remembered of the table yet.
    """
    name, ledger = followed.table.name, followed.platform.ledger
    row = ledger.flow(name)
    if row is None or epochs.step is None:
        raise LaneConflictError(f"no step of {name} asks whether positions may begin anew; nothing was changed")
    step, epoch = epochs.step, epochs.next
    told = {"step": step.step, **opened_row(epochs.asks, epoch)._asdict()}
    is_new = append_once(followed.state.log, [told], f"lakechime/epoch/{step.execution_id}", step.attempt)
    Interventions(ledger).resume(row, by, ends=ends_of_held(followed.platform, flow, row))
    return epoch if is_new else epochs.opened[epochs.asks]
