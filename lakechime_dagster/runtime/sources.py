"""Subscriptions that read a message source: whether they fire, what blocks them, and their checkpoints."""

import os
from dataclasses import dataclass, replace

from lakechime_dagster.errors import LakeChimeError
from lakechime_dagster.runtime.platform import Platform
from lakechime_dagster.settings import in_project
from lakechime_dagster.sources.files import OpenFeed
from lakechime_dagster.sources.source import open_feed
from lakechime_dagster.triggers.consumers import FeedLag, LaneState, Place
from lakechime_dagster.triggers.decision import Decision, Firing, LaneView, feed_rests
from lakechime_dagster.triggers.interventions import PlaceAt
from lakechime_dagster.triggers.registry import FlowRow, LaneRow
from lakechime_dagster.triggers.subscription import Flow
from lakechime_dagster.triggers.triggers import SnapshotTrigger, StartFrom


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What asking a flow's feed gave.

    Attributes:
        decision: Whether the flow fires, and why not.
        at_ms: When the feed was asked, by the store's clock; None where it was not.
        held: Why the lane must wait for a person; empty where it need not.
        lane: The lane for which it was asked, where there is one yet.
        lag: What it holds that was not read; None where it was not asked, or a person must decide first.
    """

    decision: Decision
    at_ms: int | None = None
    held: str = ""
    lane: LaneRow | None = None
    lag: FeedLag | None = None


def opened(flow: Flow) -> OpenFeed:
    """The feed of a flow that has one, to be asked."""
    assert flow.feed is not None
    return open_feed(flow.feed, in_project, os.environ, is_ordered_by_position=flow.is_ordered_by_position)


def ask(platform: Platform, flow: Flow, row: FlowRow, asked_ms: int | None = None) -> Asked:
    """Decide for a flow by what its feed holds now; nothing is written.

    The feed is not asked while the lane has an open execution or waits for a person, nor before the next grid point after
    `asked_ms`, where the flow has a schedule; where the last step left something, it is asked at once.

    Raises:
        FeedUnreadableError: the feed cannot be asked.
    """
    assert isinstance(flow.trigger, SnapshotTrigger)
    moment = platform.evaluator.moment(row)
    lane = moment.views.get("", LaneView(place=row.start))
    paced = "" if lane.place.has_more else feed_rests(flow.trigger.every, asked_ms, moment.now)
    rests = moment.blocked or lane.blocked or lane.open or paced
    if rests:
        return Asked(decision=Decision(trigger=flow.name, fires=False, reasons=(rests,)))
    look = opened(flow).look(lane.place.feed)
    came = "" if look.problems else "; ".join(filter(None, (look.came, look.left)))
    reasons = look.problems or (look.came or f"nothing new in {flow.feed}", *filter(None, (look.left, look.rest)))
    firing = Firing(reason=came, settled=lane.settled, feed=look.step_end or look.end, has_more=look.step_end is not None)
    firings = (firing,) if came else ()
    decision = Decision(trigger=flow.name, fires=bool(came), reasons=reasons, firings=firings)
    lag = FeedLag.seen(lane.place.feed, look.end, step=lane.settled, now_ms=moment.now, before=row.feed_lag, has_more=lane.place.has_more)
    return Asked(
        decision=decision,
        at_ms=moment.now,
        held="; ".join(look.problems),
        lane=moment.lanes.get(""),
        lag=None if look.problems else lag,
    )


def hold(platform: Platform, row: FlowRow, asked: Asked) -> None:
    """Let the lane wait for a person, where its feed asks for one."""
    if asked.held and asked.lane is not None:
        platform.ledger.hold(row, asked.lane, asked.held)


def place_kept(platform: Platform, flow: Flow, row: FlowRow) -> PlaceAt | None:
    """Where a lane that its feed holds goes on when a person lets it, what is gone given up; None where it does not move for that.

    Raises:
        FeedUnreadableError: the feed cannot be asked.
    """
    lane = platform.ledger.lanes(row).get("")
    if flow.feed is None or lane is None or lane.state is not LaneState.HELD or (kept := opened(flow).look(lane.place.feed).kept) is None:
        return None
    return lambda connection, held: replace(held.place, feed=kept)


def place_at(platform: Platform, flow: Flow, where: StartFrom) -> PlaceAt:
    """How to find the place to which a person puts a lane; in a feed that is `now` alone, after all that it holds.

    Raises:
        LakeChimeError: a feed is not read again.
        FeedUnreadableError: it cannot be asked.
    """
    if where.where != "now" and (flow.feed is not None or flow.is_stream):
        feed = flow.feed or ", ".join(flow.reads)
        raise LakeChimeError(
            f"{flow.name} adds what its feed brings, so that its rows would be there twice were {feed} read again from "
            f"{where.where}; put the trigger of the table that reads {flow.target or 'it'} back instead, or this one to `now`, "
            "which leaves out what is not read yet"
        )
    if flow.feed is None:
        return platform.evaluator.place_at(flow, where)
    end = opened(flow).look(None).end

    def place(connection: object, lane: LaneRow) -> Place:
        return replace(lane.place, feed=end, has_more=False)

    return place
