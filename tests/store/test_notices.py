"""Changes go from planned to announced to their end, each message is sent by one sender, and nothing is sent twice by itself."""

import threading
from collections import Counter

import pytest
import sqlalchemy as sa
from sqlalchemy import Engine

from lakechime_dagster.errors import NotFoundError
from lakechime_dagster.lineage.notices.changes import ChangeState
from lakechime_dagster.lineage.notices.drafts import Again, Drafting
from lakechime_dagster.lineage.notices.occasions import ANNOUNCED, WITHDRAWN
from lakechime_dagster.store.engine import writing
from lakechime_dagster.store.interventions import By
from lakechime_dagster.store.notices import schema
from lakechime_dagster.store.notices.changes import ChangeMovedError, Drafted, KeptChange, NoticeAction, Notices
from lakechime_dagster.store.notices.outbox import MAX_ATTEMPTS, Message, MessageState, Outbox
from lakechime_dagster.store.notices.tally import Tally, tally
from tests.lineage.notices.changes import make_change

ME = By(who="me", reason="it is over")
HOLD = "schema/bronze.weather.humid/7"


def make_message(owner: str = "bo", **fields: str) -> Message:
    return Message(**{"occasion": ANNOUNCED, "owner": owner, "channel": "$BO", "title": "t", "body": "b"} | fields)


def announced(engine: Engine, *owners: str) -> tuple[Notices, Outbox, KeptChange]:
    notices = Notices(engine, "test")
    kept = notices.draft(make_change(), "me")
    notices.announce(kept, [make_message(owner) for owner in owners or ("bo",)], "me")
    return notices, Outbox(engine, "test"), kept


def let_pass(engine: Engine, column: sa.Column[int]) -> None:
    """Some time passes: what is to come at these times has come."""
    with writing(engine) as connection:
        connection.execute(sa.update(schema.notice_outbox).where(column.is_not(None)).values({column: 0}))


def test_a_change_is_drafted_announced_and_done_and_who_did_it_is_kept(engine: Engine) -> None:
    notices, _, kept = announced(engine)
    assert (kept.state, kept.version, notices.get(kept.change_id).state) == (ChangeState.PLANNED, 1, ChangeState.ANNOUNCED)
    done = notices.done(kept.change_id, ME)
    assert (done.state, done.change, done.announced_ts is not None) == (ChangeState.DONE, make_change(), True)
    assert [(step.action, step.who, step.reason, step.change) for step in notices.steps(kept.change_id)] == [
        (NoticeAction.DRAFTED, "me", "", make_change()),
        (NoticeAction.ANNOUNCED, "me", "", None),
        (NoticeAction.DONE, "me", "it is over", None),
    ]
    assert notices.changes(ChangeState.DONE) == notices.changes() == [done]
    assert notices.changes(ChangeState.PLANNED) == Notices(engine, "another").changes() == []


def test_what_said_that_it_is_over_is_over(engine: Engine) -> None:
    notices, _, kept = announced(engine)
    notices.withdraw(kept.change_id, ME)
    for act in (
        lambda: notices.done(kept.change_id, ME), lambda: notices.withdraw(kept.change_id, ME),
        lambda: notices.amend(kept.change_id, make_change("a.b"), "me"), lambda: notices.announce(kept, [make_message()], "me"),
    ):  # fmt: skip
        with pytest.raises(ChangeMovedError, match="withdrawn"):
            act()
    assert notices.get(kept.change_id).state is ChangeState.WITHDRAWN


def test_a_draft_that_nobody_was_told_of_is_not_done(engine: Engine) -> None:
    notices = Notices(engine, "test")
    kept = notices.draft(make_change(), "me")
    with pytest.raises(ChangeMovedError, match="nobody was told"):
        notices.done(kept.change_id, ME)
    assert notices.withdraw(kept.change_id, ME).state is ChangeState.WITHDRAWN


def test_another_deployment_has_changes_of_its_own(engine: Engine) -> None:
    _, _, kept = announced(engine)
    other, others_outbox = Notices(engine, "other"), Outbox(engine, "other")
    with pytest.raises(NotFoundError, match="there is no change"):
        other.get(kept.change_id)
    with pytest.raises(NotFoundError):
        other.withdraw(kept.change_id, ME)
    assert (others_outbox.claim("s"), others_outbox.of(kept.change_id)) == (None, [])


def test_what_drafts_by_itself_drafts_once_and_says_anew_what_changed(engine: Engine) -> None:
    notices = Notices(engine, "test")
    first = notices.draft_of(HOLD, make_change(), "hold")
    assert (first.outcome, first.kept.source) == (Drafting.DRAFTED, HOLD)
    assert notices.draft_of(HOLD, make_change(), "hold") == Drafted(kept=first.kept, outcome=Drafting.KEPT)
    second = notices.draft_of(HOLD, make_change(what="More is gone."), "hold")
    assert (second.outcome, second.kept.change_id, second.kept.version) == (Drafting.RENEWED, first.kept.change_id, 2)
    notices.withdraw(first.kept.change_id, ME)
    assert notices.draft_of(HOLD, make_change(), "hold").kept.state is ChangeState.WITHDRAWN
    assert notices.draft(make_change(), "gate").change_id != notices.draft(make_change(), "gate").change_id


def test_an_amended_change_is_a_draft_again_and_what_waited_is_not_sent(engine: Engine) -> None:
    notices, outbox, kept = announced(engine, "bo", "cy")
    taken = outbox.claim("s")
    assert taken is not None
    assert notices.amend(kept.change_id, make_change(), "me").version == 1
    amended = notices.amend(kept.change_id, make_change(what="Another thing."), "me")
    assert (amended.version, amended.state, amended.announced_ts) == (2, ChangeState.PLANNED, None)
    outbox.settle("s", taken, "refused")
    assert [one.state for one in outbox.of(kept.change_id)] == [MessageState.OBSOLETE] * 2
    with pytest.raises(ChangeMovedError, match="version 2"):
        notices.announce(kept, [], "me")
    assert notices.announce(amended, [make_message("bo")], "me") == 1
    told = outbox.claim("s")
    assert told is not None
    assert (told.version, told.message.owner) == (2, "bo")


def test_a_claimed_message_of_an_amended_change_that_was_lost_is_not_sent_again(engine: Engine) -> None:
    notices, outbox, kept = announced(engine)
    outbox.claim("dead")
    notices.announce(notices.amend(kept.change_id, make_change(what="Another thing."), "me"), [], "me")
    let_pass(engine, schema.notice_outbox.c.lease_until)
    assert outbox.claim("s", again=True) is None
    assert outbox.of(kept.change_id)[0].state is MessageState.UNKNOWN


def test_a_message_is_put_once_and_sent_once(engine: Engine) -> None:
    notices, outbox, kept = announced(engine)
    assert notices.announce(kept, [make_message(), make_message("cy")], "me") == 1
    sent = []
    while (taken := outbox.claim("s", kept.change_id)) is not None:
        sent.append(taken.message.owner)
        assert outbox.settle("s", taken, None) is MessageState.SENT
    assert sent == ["bo", "cy"]
    assert outbox.claim("s", again=True) is None
    assert {one.state for one in outbox.of(kept.change_id)} == {MessageState.SENT}


def test_whoever_has_seen_a_version_sends_nothing_of_what_it_became_meanwhile(engine: Engine) -> None:
    notices, outbox, kept = announced(engine)
    notices.announce(notices.amend(kept.change_id, make_change(what="Another thing."), "me"), [make_message()], "me")
    assert outbox.claim("s", version=1, withdrawn=False) is None
    notices.withdraw(kept.change_id, ME, [make_message(occasion=WITHDRAWN)])
    assert outbox.claim("s", version=2, withdrawn=False) is None
    told = outbox.claim("s", version=2, withdrawn=True)
    assert told is not None
    assert told.message.occasion == WITHDRAWN


def test_it_is_counted_to_whom_the_newest_version_was_sent_and_who_has_seen_it(engine: Engine) -> None:
    notices, outbox, kept = announced(engine, "bo", "cy", "dan")
    notices.announce(kept, [make_message(channel="$ANOTHER")], "me")
    assert tally(engine, "test") == {}
    for problem in (None, None, "refused", None):
        taken = outbox.claim("s")
        assert taken is not None
        outbox.settle("s", taken, problem)
    notices.acknowledge(kept.change_id, "cy", "cy")
    assert tally(engine, "test") == {kept.change_id: Tally(told=2, seen=1)}
    assert tally(engine, "other") == {}
    notices.amend(kept.change_id, make_change(what="Another thing."), "me")
    assert tally(engine, "test") == {}


@pytest.mark.dialect
@pytest.mark.several_connections
def test_of_senders_at_once_each_message_has_one(engine: Engine) -> None:
    _, outbox, kept = announced(engine, *(f"owner{number}" for number in range(12)))
    start, taken = threading.Barrier(4), list[str]()

    def send(sender: str) -> None:
        start.wait()
        while (one := outbox.claim(sender)) is not None:
            taken.append(one.message.owner)
            outbox.settle(sender, one, None)

    senders = [threading.Thread(target=send, args=(f"s{number}",)) for number in range(4)]
    for one in senders:
        one.start()
    for one in senders:
        one.join()
    assert Counter(taken) == {f"owner{number}": 1 for number in range(12)}
    assert all(one.attempt == 1 for one in outbox.of(kept.change_id))


def test_a_sender_that_dies_leaves_a_message_of_which_nobody_knows_and_a_person_may_send_it_again(engine: Engine) -> None:
    _, outbox, kept = announced(engine)
    first = outbox.claim("dead")
    assert first is not None
    assert outbox.claim("s", again=True) is None  # its sender may still be at it
    let_pass(engine, schema.notice_outbox.c.lease_until)
    (known,) = outbox.of(kept.change_id)
    assert (known.state, known.problem) == (MessageState.UNKNOWN, "its sender ended before it said whether this was sent")
    assert outbox.claim("s") is None
    again = outbox.claim("s", again=True)
    assert again is not None
    assert (again.message_id, again.attempt) == (known.message_id, 2)
    outbox.settle("dead", first, "too late")  # another one is at it by now
    outbox.settle("s", again, None)
    assert outbox.of(kept.change_id)[0].state is MessageState.SENT


def test_a_sender_that_was_slow_still_tells_what_came_of_it(engine: Engine) -> None:
    _, outbox, kept = announced(engine)
    slow = outbox.claim("slow")
    assert slow is not None
    let_pass(engine, schema.notice_outbox.c.lease_until)
    assert outbox.of(kept.change_id)[0].state is MessageState.UNKNOWN
    outbox.settle("slow", slow, None)
    assert outbox.of(kept.change_id)[0].state is MessageState.SENT


def test_what_was_not_taken_waits_and_is_given_up_after_some_attempts(engine: Engine) -> None:
    _, outbox, kept = announced(engine)
    states = []
    for _ in range(MAX_ATTEMPTS):
        taken = outbox.claim("s")
        assert taken is not None
        states.append(outbox.settle("s", taken, "the server is away"))
        assert outbox.claim("s") is None  # not before its time
        let_pass(engine, schema.notice_outbox.c.due_ts)
    assert states == [MessageState.WAITING] * (MAX_ATTEMPTS - 1) + [MessageState.FAILED]
    assert (outbox.claim("s"), outbox.of(kept.change_id)[0].problem) == (None, "the server is away")
    assert outbox.claim("t", again=True) is not None


def test_whoever_was_told_is_told_that_it_is_withdrawn_and_others_are_not_told_at_all(engine: Engine) -> None:
    notices, outbox, kept = announced(engine, "bo", "cy")
    taken = outbox.claim("s")
    assert taken is not None
    outbox.settle("s", taken, None)
    notices.withdraw(kept.change_id, ME, [make_message(taken.message.owner, occasion=WITHDRAWN)])
    told = outbox.claim("s")
    assert told is not None
    assert (told.message.owner, told.message.occasion) == ("bo", WITHDRAWN)
    assert outbox.claim("s") is None
    assert [one.state for one in outbox.of(kept.change_id) if one.message.owner == "cy"] == [MessageState.OBSOLETE]


def test_an_owner_who_was_told_acknowledges_once(engine: Engine) -> None:
    notices, _, kept = announced(engine)
    first = notices.acknowledge(kept.change_id, "bo", "bo@example.com", "we have moved")
    assert notices.acknowledge(kept.change_id, "bo", "another", "later") == first
    assert notices.acknowledged(kept.change_id, 1) == [first]
    assert (first.version, first.owner, first.who, first.note) == (1, "bo", "bo@example.com", "we have moved")
    with pytest.raises(NotFoundError, match="cy was not told of version 1 of change"):
        notices.acknowledge(kept.change_id, "cy", "cy")
    with pytest.raises(NotFoundError, match="version 2"):
        notices.acknowledge(kept.change_id, "bo", "bo", version=2)


def test_what_comes_by_itself_writes_over_nothing_that_a_person_wrote_or_told(engine: Engine) -> None:
    notices, outbox = Notices(engine, "test"), Outbox(engine, "test")
    number = notices.draft_of(HOLD, make_change(), "hold").kept.change_id
    written = notices.amend(number, make_change(what="We drop it.", sender="team:ops"), "me")
    kept = notices.draft_of(HOLD, make_change(what="More is gone."), "hold")
    assert (kept.outcome, kept.kept) == (Drafting.KEPT, written)

    notices.announce(written, [make_message()], "me")
    told = notices.draft_of(HOLD, make_change(what="More is gone."), "hold")
    assert (told.outcome, told.kept, told.kept.state) == (Drafting.TOLD, notices.get(number), ChangeState.ANNOUNCED)
    assert outbox.claim("s") is not None
    assert [(step.action, step.version) for step in notices.steps(number)] == [
        (NoticeAction.DRAFTED, 1), (NoticeAction.AMENDED, 2), (NoticeAction.ANNOUNCED, 2)
    ]  # fmt: skip


def test_what_is_done_comes_again_as_another_draft_and_what_a_person_took_back_does_not(engine: Engine) -> None:
    notices = Notices(engine, "test")
    first = notices.draft_of(HOLD, make_change(), "hold", again=Again.AFTER_DONE).kept
    notices.announce(first, [], "me")
    done = notices.done(first.change_id, ME)
    assert notices.draft_of(HOLD, make_change(), "hold") == Drafted(kept=done, outcome=Drafting.OVER)
    second = notices.draft_of(HOLD, make_change(), "hold", again=Again.AFTER_DONE)
    assert (second.outcome, second.kept.change_id != first.change_id) == (Drafting.DRAFTED, True)
    assert notices.draft_of(HOLD, make_change(), "hold", again=Again.AFTER_DONE).kept == second.kept
    withdrawn = notices.withdraw(second.kept.change_id, ME)
    assert notices.draft_of(HOLD, make_change(), "hold", again=Again.AFTER_DONE) == Drafted(kept=withdrawn, outcome=Drafting.OVER)
    assert notices.changes() == [withdrawn, done]


def test_a_source_that_says_another_thing_than_what_is_over_drafts_another_one(engine: Engine) -> None:
    notices, says = Notices(engine, "test"), Again.SAID_OTHERWISE
    first = notices.draft_of("gate/silver.paid", make_change(), "gate", again=says).kept
    notices.amend(first.change_id, make_change(what="We have thought again."), "me")
    notices.withdraw(first.change_id, ME)
    assert notices.draft_of("gate/silver.paid", make_change(), "gate", again=says).outcome is Drafting.OVER
    other = notices.draft_of("gate/silver.paid", make_change(what="It is another code."), "gate", again=says)
    assert (other.outcome, other.kept.version) == (Drafting.DRAFTED, 1)
    renewed = notices.draft_of("gate/silver.paid", make_change(what="It is yet another."), "gate", again=says)
    assert (renewed.outcome, renewed.kept.change_id, renewed.kept.version) == (Drafting.RENEWED, other.kept.change_id, 2)


@pytest.mark.parametrize("was_done", [False, True])
@pytest.mark.dialect
@pytest.mark.several_connections
def test_steps_that_are_held_at_once_leave_one_draft(engine: Engine, was_done: bool) -> None:
    notices, start = Notices(engine, "test"), threading.Barrier(4)
    if was_done:
        notices.announce(notices.draft_of(HOLD, make_change(), "hold").kept, [], "me")
        notices.done(notices.changes()[0].change_id, ME)
    drafted = list[Drafted]()

    def hold() -> None:
        start.wait()
        drafted.append(notices.draft_of(HOLD, make_change(), "hold", again=Again.AFTER_DONE))

    held = [threading.Thread(target=hold) for _ in range(4)]
    for one in held:
        one.start()
    for one in held:
        one.join()
    assert Counter(one.outcome for one in drafted) == {Drafting.DRAFTED: 1, Drafting.KEPT: 3}
    assert [one.kept for one in drafted] == notices.changes(ChangeState.PLANNED) * 4


def test_a_source_may_be_long_and_odd_and_each_is_another_one(engine: Engine) -> None:
    notices, long = Notices(engine, "test"), "schema/bronze.weather." + "é" * 600
    sources = [long, long + "1", "a\nb", "a\0b", "a\N{REPLACEMENT CHARACTER}b", "\ud800"]
    kept = [notices.draft_of(source, make_change(), "hold").kept for source in sources]
    assert len({one.change_id for one in kept}) == len(sources)
    assert [notices.draft_of(source, make_change(), "hold").kept for source in sources] == kept
