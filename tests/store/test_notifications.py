"""Changes go from draft to announced to their end, each message is sent by one sender, and nothing is sent twice automatically."""

import threading
from collections import Counter

import pytest
import sqlalchemy as sa
from sqlalchemy import Engine

from lakechime_dagster.dce.engine import writing
from lakechime_dagster.errors import NotFoundError
from lakechime_dagster.governance.changes import ChangeState, Occasion
from lakechime_dagster.governance.notification_store import (
    ChangeMovedError,
    KeptChange,
    Message,
    MessageState,
    Notifications,
    message_table,
)
from lakechime_dagster.triggers.interventions import By
from tests.lineage.notifications.changes import make_change

ME = By(who="me", reason="it is over")
HOLD = "hold/silver.flights"


def make_message(owner: str = "bo", occasion: Occasion = Occasion.ANNOUNCED) -> Message:
    return Message(occasion=occasion, owner=owner, channel="$MAIL", title="a title", body="a body")


def announced(engine: Engine, *owners: str) -> tuple[Notifications, KeptChange]:
    several = Notifications(engine, "test")
    kept = several.draft(make_change(), "me")
    several.announce(kept, [make_message(owner) for owner in owners or ("bo",)], "ana")
    return several, several.get(kept.change_id)


def states(several: Notifications, kept: KeptChange) -> list[MessageState]:
    return [one.state for one in several.messages(kept.change_id)]


def test_a_change_is_drafted_announced_and_done_and_who_did_it_is_kept(engine: Engine) -> None:
    several, kept = announced(engine)
    assert (kept.state, kept.drafted_by, kept.announced_by) == (ChangeState.ANNOUNCED, "me", "ana")
    done = several.close(kept.change_id, ChangeState.DONE, ME)
    assert (done.state, done.change, done.closed_by, done.reason) == (ChangeState.DONE, make_change(), "me", "it is over")
    assert several.changes(ChangeState.DONE) == several.changes() == [done]
    assert several.changes(ChangeState.DRAFT) == Notifications(engine, "another").changes() == []


def test_an_ended_change_stays_as_it_is(engine: Engine) -> None:
    several, kept = announced(engine)
    several.close(kept.change_id, ChangeState.WITHDRAWN, ME)
    for act in (
        lambda: several.close(kept.change_id, ChangeState.DONE, ME),
        lambda: several.close(kept.change_id, ChangeState.WITHDRAWN, ME),
        lambda: several.amend(kept.change_id, make_change("a.b")),
        lambda: several.announce(kept, [make_message()], "me"),
    ):
        with pytest.raises(ChangeMovedError, match="withdrawn"):
            act()


def test_only_a_draft_is_amended_and_only_what_was_looked_at_is_announced(engine: Engine) -> None:
    several = Notifications(engine, "test")
    kept = several.draft(make_change(), "me")
    with pytest.raises(ChangeMovedError, match="is draft"):
        several.close(kept.change_id, ChangeState.DONE, ME)
    amended = several.amend(kept.change_id, make_change(what="Another thing."))
    with pytest.raises(ChangeMovedError, match="amended meanwhile"):
        several.announce(kept, [make_message()], "me")
    several.announce(amended, [make_message()], "me")
    with pytest.raises(ChangeMovedError, match="is announced"):
        several.amend(kept.change_id, make_change())


def test_another_deployment_has_changes_of_its_own(engine: Engine) -> None:
    _, kept = announced(engine)
    other = Notifications(engine, "other")
    for act in (
        lambda: other.get(kept.change_id),
        lambda: other.close(kept.change_id, ChangeState.WITHDRAWN, ME),
        lambda: other.claim("s", kept.change_id),
    ):
        with pytest.raises(NotFoundError, match="there is no change"):
            act()


def test_an_automatic_draft_is_kept_once_whatever_a_person_made_of_it(engine: Engine) -> None:
    several = Notifications(engine, "test")
    kept, is_new = several.draft_once(HOLD, make_change(), "hold")
    assert (is_new, kept.source, kept.state) == (True, HOLD, ChangeState.DRAFT)
    amended = several.amend(kept.change_id, make_change(what="In other words."))
    assert several.draft_once(HOLD, make_change(), "hold") == (amended, False)
    withdrawn = several.close(kept.change_id, ChangeState.WITHDRAWN, ME)
    assert several.draft_once(HOLD, make_change(), "hold") == (withdrawn, False)


def test_a_message_is_put_once_and_sent_once(engine: Engine) -> None:
    several, kept = announced(engine)
    several.announce(kept, [make_message(), make_message("cy")], "me")
    while (one := several.claim("s", kept.change_id)) is not None:
        several.complete("s", one, None)
    several.announce(kept, [make_message(), make_message("cy")], "me")
    assert states(several, kept) == [MessageState.SENT] * 2
    assert several.claim("t", kept.change_id, again=True) is None


@pytest.mark.dialect
@pytest.mark.several_connections
def test_of_senders_at_once_each_message_has_one(engine: Engine) -> None:
    owners = [f"o{number}" for number in range(20)]
    several, kept = announced(engine, *owners)
    claimed = Counter[str]()

    def work(sender: str) -> None:
        while (one := several.claim(sender, kept.change_id)) is not None:
            claimed[one.message.owner] += 1
            several.complete(sender, one, None)

    threads = [threading.Thread(target=work, args=(f"s{number}",)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert claimed == Counter(owners)


def test_a_message_that_was_not_taken_is_sent_again_by_another_sender_and_not_by_the_same(engine: Engine) -> None:
    several, kept = announced(engine)
    first = several.claim("s", kept.change_id)
    assert first is not None
    several.complete("s", first, "refused")
    assert several.claim("s", kept.change_id) is None
    second = several.claim("t", kept.change_id)
    assert second is not None
    assert (second.attempts, second.problem) == (2, "refused")


def test_what_a_dead_sender_may_have_sent_is_sent_again_only_where_a_person_says_so(engine: Engine) -> None:
    several, kept = announced(engine)
    lost = several.claim("s", kept.change_id)
    assert lost is not None
    assert several.claim("t", kept.change_id, again=True) is None  # its lease is not over
    with writing(engine) as connection:
        connection.execute(sa.update(message_table).values(claimed_ts=0))
    assert several.claim("t", kept.change_id) is None
    assert several.claim("t", kept.change_id, again=True) is not None
    several.complete("s", lost, None)  # too late: another one has it
    assert states(several, kept) == [MessageState.SENDING]


def test_of_a_withdrawn_change_only_the_withdrawal_is_sent(engine: Engine) -> None:
    several, kept = announced(engine, "bo", "cy")
    withdrawal = make_message("bo", Occasion.WITHDRAWN)
    several.close(kept.change_id, ChangeState.WITHDRAWN, ME, [withdrawal])
    one = several.claim("s", kept.change_id)
    assert one is not None
    assert one.message == withdrawal
    assert several.claim("s", kept.change_id) is None


def test_an_owner_who_was_notified_acknowledges_once(engine: Engine) -> None:
    several, kept = announced(engine)
    first = several.acknowledge(kept.change_id, "bo", "bea", "we moved")
    assert several.acknowledge(kept.change_id, "bo", "another") == first
    assert several.acknowledgements(kept.change_id) == [first]
    with pytest.raises(NotFoundError, match="cy was not notified"):
        several.acknowledge(kept.change_id, "cy", "cy")


@pytest.mark.dialect
@pytest.mark.several_connections
def test_automatic_drafts_at_once_leave_one(engine: Engine) -> None:
    several = Notifications(engine, "test")
    barrier, found = threading.Barrier(4), list[bool]()

    def work() -> None:
        barrier.wait()
        found.append(several.draft_once(HOLD, make_change(), "hold")[1])

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (sorted(found), len(several.changes())) == ([False, False, False, True], 1)
