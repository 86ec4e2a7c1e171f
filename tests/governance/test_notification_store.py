"""Changes go from draft to announced to their end, each message is sent by one sender, and nothing
is sent twice automatically.
"""

from concurrent.futures import ThreadPoolExecutor

import pytest
import sqlalchemy as sa
from sqlalchemy import Engine

from lakechime_dagster.dce.engine import writing
from lakechime_dagster.errors import NotFoundError
from lakechime_dagster.governance.changes import ChangeState
from lakechime_dagster.governance.store import (
    ChangeMovedError,
    KeptChange,
    Message,
    MessageState,
    Notifications,
    message_table,
)
from lakechime_dagster.triggers.registry import By
from tests.governance.factories import make_change

ME = By(who="me", reason="it is over")


def make_message(owner: str = "bo") -> Message:
    return Message(owner=owner, channel="$MAIL", title="a title", body="a body")


def announced(engine: Engine, *owners: str) -> tuple[Notifications, KeptChange]:
    several = Notifications(engine, "test")
    kept = several.draft(make_change(), "me")
    several.announce(kept, [make_message(owner) for owner in owners or ("bo",)], "ana")
    return several, several.get(kept.change_id)


def test_a_change_is_drafted_announced_and_closed_and_who_did_it_is_kept(engine: Engine) -> None:
    several, kept = announced(engine)
    assert (kept.state, kept.drafted_by, kept.announced_by) == (ChangeState.ANNOUNCED, "me", "ana")
    closed = several.close(kept.change_id, ME)
    assert (closed.state, closed.change, closed.closed_by, closed.reason) == (
        ChangeState.CLOSED,
        make_change(),
        "me",
        "it is over",
    )
    assert several.changes(ChangeState.CLOSED) == several.changes() == [closed]
    assert several.changes(ChangeState.DRAFT) == Notifications(engine, "another").changes() == []
    assert not several.claim(several.messages(kept.change_id)[0])
    for act in (
        lambda: several.close(kept.change_id, ME),
        lambda: several.announce(kept, [make_message()], "me"),
    ):
        with pytest.raises(ChangeMovedError, match="closed"):
            act()


def test_another_deployment_has_changes_of_its_own(engine: Engine) -> None:
    _, kept = announced(engine)
    other = Notifications(engine, "other")
    for act in (lambda: other.get(kept.change_id), lambda: other.close(kept.change_id, ME)):
        with pytest.raises(NotFoundError, match="there is no change"):
            act()


def send_all(
    several: Notifications, kept: KeptChange, problem: str | None = None, *, again: bool = False
) -> list[str]:
    """The owners whose messages this sender claims, and what becomes of these."""
    claimed = [one for one in several.messages(kept.change_id) if several.claim(one, again=again)]
    for one in claimed:
        several.complete(one, problem)
    return [one.owner for one in claimed]


def test_a_message_is_put_once_and_sent_once_and_again_where_it_was_not_taken(
    engine: Engine,
) -> None:
    several, kept = announced(engine)
    assert send_all(several, kept, "refused") == ["bo"]
    several.announce(kept, [make_message(), make_message("cy")], "me")
    assert send_all(several, kept) == ["bo", "cy"]
    assert [(one.state, one.attempts) for one in several.messages(kept.change_id)] == [
        (MessageState.SENT, 2),
        (MessageState.SENT, 1),
    ]
    assert send_all(several, kept, again=True) == []


@pytest.mark.dialect
@pytest.mark.several_connections
def test_of_senders_at_once_each_message_has_one(engine: Engine) -> None:
    owners = [f"o{number}" for number in range(20)]
    several, kept = announced(engine, *owners)
    with ThreadPoolExecutor(4) as threads:
        claimed = [
            owner
            for found in threads.map(lambda _: send_all(several, kept), range(4))
            for owner in found
        ]
    assert sorted(claimed) == sorted(owners)


def test_what_a_dead_sender_may_have_sent_is_sent_again_only_where_a_person_says_so(
    engine: Engine,
) -> None:
    several, kept = announced(engine)
    (one,) = several.messages(kept.change_id)
    assert several.claim(one)
    # its lease is not over
    assert not several.claim(several.messages(kept.change_id)[0], again=True)
    with writing(engine) as connection:
        connection.execute(sa.update(message_table).values(claimed_ts=0))
    (lost,) = several.messages(kept.change_id)
    assert not several.claim(lost)
    assert several.claim(lost, again=True)
    several.complete(one, None)  # too late: another one has it
    assert [each.state for each in several.messages(kept.change_id)] == [MessageState.SENDING]


def test_an_owner_who_was_notified_acknowledges_once(engine: Engine) -> None:
    several, kept = announced(engine)
    send_all(several, kept, "refused")
    with pytest.raises(NotFoundError, match="bo was not notified"):
        several.acknowledge(kept.change_id, "bo", "bea")
    send_all(several, kept)
    first = several.acknowledge(kept.change_id, "bo", "bea", "we moved")
    assert several.acknowledge(kept.change_id, "bo", "another") == first
    assert several.acknowledgements(kept.change_id) == [first]
    with pytest.raises(NotFoundError, match="cy was not notified"):
        several.acknowledge(kept.change_id, "cy", "cy")
