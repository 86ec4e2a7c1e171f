"""`lakechime notice`: a change is drafted, shown, sent to whom it concerns by real servers, seen, and done."""

import json
import logging
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import sqlalchemy as sa

from lakechime_dagster.lineage.columns import ColumnRef
from lakechime_dagster.lineage.notices.occasions import ANNOUNCED
from lakechime_dagster.lineage.reads import Consumer, ConsumerKind, Read
from lakechime_dagster.resources.notices.sending import notices, outbox
from lakechime_dagster.store.engine import writing
from lakechime_dagster.store.lineage.reads import keep_reads
from lakechime_dagster.store.lineage.records import SqlLineage
from lakechime_dagster.store.notices import schema
from lakechime_dagster.store.notices.outbox import Message
from lakechime_dagster.triggers.grid import from_milliseconds
from tests.lineage.factories import make_record, make_statement
from tests.support.cli import Answer, Cli
from tests.support.inboxes import MailServer, Webhook
from tests.support.tables import write

pytestmark = pytest.mark.tier2

HUMID = ("bronze.weather.humid", "--kind", "deprecation", "--what", "The station stops measuring it.", "--action", "Use dew points.")
WHY = ("--who", "me", "--reason", "it is over")


@pytest.fixture
def notice(lakechime: Cli, monkeypatch: pytest.MonkeyPatch, mail_server: MailServer, webhook: Webhook) -> Cli:
    """The command line of a lake with owners, whose channels are real servers."""
    monkeypatch.setenv("LAKECHIME_LAKE", "tests.cli.weather_lake:lake")
    monkeypatch.setenv("LAKECHIME_NOTICE_URLS", '{"team:bi": "$BI_HOOK", "*@*": "$MAIL", "team:ops": "$BI_HOOK"}')
    monkeypatch.setenv("BI_HOOK", webhook.url)
    monkeypatch.setenv("MAIL", mail_server.url("{owner}"))
    return lakechime


def drafted(notice: Cli, *arguments: str) -> Answer:
    return notice("notice", "draft", *(arguments or (*HUMID, "--on", "2100-12-31", "--who", "me")))


def states(notice: Cli, change: int = 1) -> list[tuple[str, str]]:
    return [(one["owner"], one["state"]) for one in notice("notice", "show", str(change), "--json").json["messages"]]


def let_pass(notice: Cli, column: sa.Column[int]) -> None:
    with writing(notice.platform.store.engine) as connection:
        connection.execute(sa.update(schema.notice_outbox).where(column.is_not(None)).values({column: 0}))


def test_a_draft_tells_nobody_and_shows_whom_it_concerns_and_why(notice: Cli, mail_server: MailServer, webhook: Webhook) -> None:
    assert drafted(notice).out.splitlines() == [
        "change 1, version 1, is planned: Deprecation: bronze.weather.humid on 2100-12-31",
        "`lakechime notice send 1` shows whom it concerns, with --yes it tells them",
    ]
    shown = notice("notice", "send", "1", "--json").json["changes"][0]
    assert [(one["owner"], one["channels"], one["reason"]) for one in shown["told"]] == [
        ("ana@example.com", ["$MAIL"], "owns silver.flights"),
        ("team:bi", ["$BI_HOOK"], "owns gold.daily"),
        ("team:ops", ["$BI_HOOK"], "sends the change, and nobody owns gold.wet"),
    ]
    assert (shown["unowned"], shown["own"]) == (["gold.wet"], ["bronze.weather"])
    told = notice("notice", "send", "1").out
    assert "this is what would be sent; nothing was: say --yes to send it" in told
    assert "--- to ana@example.com: Deprecation: bronze.weather.humid on 2100-12-31" in told
    assert "bo@example.com" not in told
    assert (mail_server.mails, webhook.told, states(notice)) == ([], [], [])


def test_a_column_that_a_table_does_not_have_is_refused_where_its_columns_are_known(notice: Cli) -> None:
    assert drafted(notice).code == 0
    statement = make_statement("silver.flights", damp="bronze.weather.humid")
    SqlLineage(notice.platform.store.engine).record(
        make_record(statement, namespace="local", job="silver.flights", at=notice.platform.store.now())
    )
    refused = notice("notice", "draft", "bronze.weather.humd", "--kind", "incident", "--what", "wrong values")
    assert (refused.code, refused.err.strip()) == (
        3, "error: bronze.weather has no column 'humd' that is known; did you mean humid?"
    )  # fmt: skip
    assert notice("notice", "draft", "bronze.weather.humid", "--kind", "incident", "--what", "wrong values").code == 0


def test_each_owner_is_told_once_of_what_is_theirs_in_plain_text(notice: Cli, mail_server: MailServer, webhook: Webhook) -> None:
    drafted(notice)
    sent = notice("notice", "send", "1", "--yes", "--who", "me")
    assert (sent.code, sent.err) == (0, "")
    ((recipients, mail),) = mail_server.mails
    assert (recipients, mail["Subject"]) == (["ana@example.com"], "Deprecation: bronze.weather.humid on 2100-12-31")
    (text,) = mail_server.texts
    assert (
        text.replace("\r", "")
        == """\
The station stops measuring it.

What to do: Use dew points.

When: 2100-12-31

What changes: bronze.weather.humid

Your tables that it reaches:
- silver.flights (layer 1): columns not known; whether it is, is not sure, as something on the way is not known

Sent by team:ops, me.

Say that you have seen this: lakechime notice ack 1 --owner 'ana@example.com'"""
    )
    assert ["gold.daily" in body for _, body in webhook.told] == [True, False]
    assert states(notice) == [("ana@example.com", "sent"), ("team:bi", "sent"), ("team:ops", "sent")]
    again = notice("notice", "send", "1", "--yes", "--again")
    assert (again.code, again.out, len(mail_server.mails), len(webhook.told)) == (0, "nothing was due\n", 1, 2)


def test_what_was_not_taken_is_told_and_tried_again_and_who_was_told_is_not(
    notice: Cli, mail_server: MailServer, webhook: Webhook
) -> None:  # fmt: skip
    drafted(notice)
    mail_server.refused.add("ana@example.com")
    sent = notice("notice", "send", "1", "--yes")
    assert sent.code == 1
    assert "$MAIL: mailto://… did not take it" in sent.out
    assert "1 message of 3 not taken" in sent.err
    assert (states(notice)[0], len(webhook.told)) == (("ana@example.com", "waiting"), 2)
    mail_server.refused.clear()
    assert notice("notice", "send", "--yes").out == "nothing was due\n"
    assert "mailto://… did not take it" in notice("notice", "send").out
    let_pass(notice, schema.notice_outbox.c.due_ts)
    assert notice("notice", "send", "--yes").code == 0
    assert (len(mail_server.mails), len(webhook.told)) == (1, 2)


def test_a_url_of_several_recipients_is_refused_as_some_could_be_told_and_others_not(
    notice: Cli, mail_server: MailServer, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    drafted(notice)
    for url in (mail_server.url("a@example.com", "b@example.com"), mail_server.url("a@example.com") + "&cc=b@example.com"):
        monkeypatch.setenv("MAIL", url)
        let_pass(notice, schema.notice_outbox.c.due_ts)
        assert "mailto://… is for several recipients; give each a variable of its own" in notice("notice", "send", "1", "--yes").out
    assert mail_server.mails == []


def test_a_sender_that_is_killed_leaves_what_nobody_knows_and_it_is_not_sent_again_by_itself(
    notice: Cli, mail_server: MailServer, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    drafted(notice)

    def killed(url: str, title: str, body: str, **_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("lakechime_dagster.resources.notices.sending.tell", killed)
        notice("notice", "send", "1", "--yes")
    assert states(notice) == [("ana@example.com", "claimed"), ("team:bi", "waiting"), ("team:ops", "waiting")]
    let_pass(notice, schema.notice_outbox.c.lease_until)
    assert states(notice)[0] == ("ana@example.com", "unknown")
    assert notice("notice", "send", "1", "--yes").code == 0
    assert (mail_server.mails, states(notice)[0]) == ([], ("ana@example.com", "unknown"))
    assert "its sender ended before it said whether this was sent" in notice("notice", "send", "1").out
    assert notice("notice", "send", "1", "--yes", "--again").code == 0
    assert len(mail_server.mails) == 1


def test_who_was_not_told_is_not_told_that_it_is_withdrawn(notice: Cli, mail_server: MailServer, webhook: Webhook) -> None:
    drafted(notice)
    platform = notice.platform
    kept = notices(platform).get(1)
    messages = [Message(occasion=ANNOUNCED, owner=owner, channel="$MAIL", title="t", body="b") for owner in ("a@x.com", "b@x.com")]
    notices(platform).announce(kept, messages, "me")
    outbox(platform).claim("somebody")
    assert notice("notice", "withdraw", "1", *WHY).out.startswith("change 1 is withdrawn; 1 message that says so waits")
    notice("notice", "send", "1", "--yes")
    assert [recipients for recipients, _ in mail_server.mails] == [["a@x.com"]]


def test_an_owner_without_a_channel_is_named_to_the_sender(notice: Cli, mail_server: MailServer, monkeypatch: pytest.MonkeyPatch) -> None:
    drafted(notice)
    monkeypatch.setenv("LAKECHIME_NOTICE_URLS", '{"*@*": "$MAIL"}')
    assert "none: nobody is told" in notice("notice", "send", "1").out
    sent = notice("notice", "send", "1", "--yes")
    assert (sent.code, len(mail_server.mails)) == (1, 1)
    assert "team:bi was not told: LAKECHIME_NOTICE_URLS has no channel for it; it owns gold.daily" in sent.err
    again = notice("notice", "send", "1", "--yes")
    assert (again.code, again.out, again.err) == (0, "nothing was due\n", sent.err)  # nothing went wrong with this one


def test_no_secret_of_a_url_is_shown_or_logged(
    notice: Cli, webhook: Webhook, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAKECHIME_LOG_LEVEL", "DEBUG")
    caplog.set_level(logging.DEBUG)
    drafted(notice)
    webhook.closed = True
    answers = [notice("notice", "send", "1", "--yes"), notice("notice", "show", "1"), notice("notice", "send", "1", "--json")]
    with notice.platform.store.engine.connect() as connection:
        kept = [str(row) for table in (schema.notice_outbox, schema.notice_step) for row in connection.execute(sa.select(table))]
    everything = [*(text for one in answers for text in (one.out, one.err)), *kept, caplog.text]
    assert "json://… did not take it" in answers[0].out
    assert not any("secret-path" in one for one in everything)


def test_an_amended_change_is_told_anew(notice: Cli, webhook: Webhook) -> None:
    drafted(notice)
    notice("notice", "send", "1", "--yes")
    amended = notice("notice", "draft", "--change", "1", "--on", "2100-11-30", "--json").json
    assert (amended["version"], amended["state"], amended["what"]) == (2, "planned", "The station stops measuring it.")
    notice("notice", "send", "1", "--yes")
    assert [title for title, _ in webhook.told] == ["Deprecation: bronze.weather.humid on 2100-12-31"] * 2 + [
        "Deprecation: bronze.weather.humid on 2100-11-30"
    ] * 2


def test_who_was_told_is_told_that_a_change_is_withdrawn(notice: Cli, mail_server: MailServer) -> None:
    drafted(notice)
    mail_server.refused.add("ana@example.com")
    notice("notice", "send", "1", "--yes")
    told = notice("notice", "withdraw", "1", *WHY)
    assert told.out == "change 1 is withdrawn; 3 messages that say so wait: `lakechime notice send 1 --yes` sends them\n"
    mail_server.refused.clear()
    assert notice("notice", "send", "1", "--yes").code == 0
    assert mail_server.texts[0].startswith("This change is withdrawn; nothing is to be done.")
    assert notice("notice", "list").out == "no change is planned\n"
    assert notice("notice", "list", "--all", "--json").json["changes"][0]["state"] == "withdrawn"


def test_an_owner_says_that_it_was_seen_and_the_sender_sees_that(notice: Cli) -> None:
    drafted(notice)
    assert "team:bi was not told of version 1" in notice("notice", "ack", "1", "--owner", "team:bi").err
    notice("notice", "send", "1", "--yes")
    assert notice("notice", "ack", "1", "--owner", "team:bi", "--who", "bea", "--note", "we moved").out == (
        "team:bi has seen version 1 of change 1, says bea\n"
    )
    (seen,) = notice("notice", "show", "1", "--json").json["acknowledged"]
    assert (seen["owner"], seen["who"], seen["note"]) == ("team:bi", "bea", "we moved")
    assert "we moved" in notice("notice", "show", "1").out


def test_whoever_has_not_seen_it_is_reminded_once_before_it_comes(notice: Cli, mail_server: MailServer, webhook: Webhook) -> None:
    drafted(notice)
    notice("notice", "send", "1", "--yes")
    notice("notice", "ack", "1", "--owner", "team:bi")
    soon = notice.platform.store.now()
    in_a_week = f"{from_milliseconds(soon + 6 * 86_400_000):%Y-%m-%d}"
    with writing(notice.platform.store.engine) as connection:
        change = connection.execute(sa.select(schema.notice_change.c.change)).scalar_one() | {"on": in_a_week}
        connection.execute(sa.update(schema.notice_change).values(change=change, announced_ts=soon - 20 * 86_400_000))
    shown = notice("notice", "send", "--json").json["changes"]
    assert [(one["occasion"], [told["owner"] for told in one["told"]]) for one in shown] == [
        ("reminder 7", ["ana@example.com", "team:ops"])
    ]
    notice("notice", "send", "--yes")
    notice("notice", "send", "--yes")
    assert (len(mail_server.mails), len(webhook.told)) == (2, 3)
    assert mail_server.mails[1][1]["Subject"].startswith("Reminder: Deprecation")


def test_a_deprecation_is_not_done_while_somebody_reads_it(notice: Cli) -> None:
    drafted(notice)
    notice("notice", "send", "1", "--yes")
    refused = notice("notice", "done", "1", *WHY)
    told = "change 1 is not done: gold.wet, silver.flights (ana@example.com) may still read what it is of; wait until they do not"
    assert (refused.code, refused.err) == (1, f"error: {told}, or say --anyway\n")
    assert notice("notice", "done", "1", "--anyway", "--dry-run", *WHY).out == "change 1 would be done\n"
    assert notice("notice", "done", "1", "--anyway", *WHY).out == "change 1 is done\n"
    assert notice("notice", "show", "1", "--json").json["steps"][-1] | {"ts": 0} == {
        "action": "done", "version": 1, "who": "me", "reason": "it is over", "ts": 0,
    }  # fmt: skip


def test_only_who_reads_what_is_gone_hinders_that_a_change_of_a_schema_is_done(notice: Cli) -> None:
    location = Path(notice.platform.location("bronze.weather"))
    location.mkdir(parents=True)
    columns = pa.schema([("humid", pa.int64()), ("wind", pa.int64())])
    write(location, pa.Table.from_pylist([{"humid": 1, "wind": 1}], columns))
    for change, kind in enumerate(("retention", "schema change", "schema change"), 1):
        drafted(notice, "bronze.weather.humid", "bronze.weather.wind", "--kind", kind, "--what", "It is another thing.", "--who", "me")
        notice("notice", "send", str(change), "--yes")
    assert [notice("notice", "done", change, *WHY).out for change in "12"] == ["change 1 is done\n", "change 2 is done\n"]
    write(location, pa.Table.from_pylist([{"wind": 1}], columns.remove(0)), mode="overwrite", schema_mode="overwrite")
    refused = notice("notice", "done", "3", *WHY)
    assert (refused.code, "gold.wet, silver.flights (ana@example.com) may still read what it is of" in refused.err) == (1, True)


def test_a_day_that_is_over_is_refused_but_of_what_may_have_come_already(notice: Cli) -> None:
    refused = drafted(notice, *HUMID, "--on", "2020-01-01")
    assert refused.code == 2
    assert "'2020-01-01' is over; name a day from" in refused.err
    assert "only incident and backfill may have come already" in refused.err
    assert drafted(notice, *HUMID, "--kind", "incident", "--on", "2020-01-01").code == 0
    assert notice("notice", "draft", "--change", "1", "--what", "It was wrong.").code == 0
    assert notice("notice", "draft", "--change", "1", "--kind", "deprecation").code == 2
    assert drafted(notice).code == 0
    assert notice("notice", "draft", "--change", "2", "--on", "2020-01-01").code == 2


def test_where_runs_told_of_columns_only_who_reads_the_column_is_told_and_what_of(notice: Cli) -> None:
    platform = notice.platform
    lineage, now = SqlLineage(platform.store.engine), platform.store.now()
    for statement in (
        make_statement("silver.flights", damp="bronze.weather.humid", dep="bronze.flights.dep"),
        make_statement("gold.daily", dep="silver.flights.dep"),
        make_statement("gold.wet", wind="bronze.weather.wind"),
    ):
        lineage.record(make_record(statement, namespace="local", job=statement.target, at=now))
    reads = [
        Read(consumer=Consumer(kind, "bi", name), refs=(ColumnRef("silver.flights", column),), at_ms=now - days * 86_400_000, owners=owners)
        for kind, name, column, days, owners in (
            (ConsumerKind.DASHBOARD, "Damp", "damp", 60, ("cy@example.com",)),
            (ConsumerKind.DASHBOARD, "Old", "damp", 100, ("dan@example.com",)),
            (ConsumerKind.DASHBOARD, "Departures", "dep", 1, ("eve@example.com",)),
            (ConsumerKind.USER, "fay@example.com", "damp", 30, ()),
        )
    ]
    with writing(platform.store.engine) as connection:
        keep_reads(connection, reads)
    drafted(notice)
    shown = notice("notice", "send", "1", "--json").json["changes"][0]
    assert [(one["owner"], one["reason"]) for one in shown["told"]] == [
        ("ana@example.com", "owns silver.flights"),
        ("cy@example.com", "has Damp, which reads silver.flights"),
        ("fay@example.com", "reads silver.flights"),
    ]
    assert "- silver.flights (layer 1): column damp" in shown["told"][0]["body"]
    assert "- Damp reads silver.flights (layer 1): column damp, read last on" in shown["told"][1]["body"]


def test_names_that_would_turn_what_is_read_are_shown_by_their_codes(notice: Cli) -> None:
    columns: dict[str, Any] = {"a\u2066b": "bronze.weather.humid"}
    hostile = make_statement("gold.\u202egnp", **columns)
    record = make_record(hostile, namespace="local", job="hostile", owners=("eve\u200b@example.com",))
    SqlLineage(notice.platform.store.engine).record(record)
    drafted(notice, "gold.\u202egnp", *HUMID[1:], "--from", "o\u202eps", "--who", "me")
    told = [notice("notice", *arguments).out for arguments in (("list",), ("show", "1"), ("send", "1"))]
    assert [[one for one in text if not one.isprintable() and one != "\n"] for text in told] == [[]] * 3
    assert ["gold.\\u202egnp" in text for text in told] == [True] * 3
    assert "to eve\\u200b@example.com" in told[2]


def test_an_incident_is_done_whoever_reads(notice: Cli) -> None:
    drafted(notice, "bronze.weather", "--kind", "incident", "--what", "Yesterday is missing.")
    notice("notice", "send", "1", "--yes")
    assert notice("notice", "done", "1", *WHY).code == 0


def test_what_cannot_be_told_is_said(notice: Cli) -> None:
    for arguments, told in (
        (("draft", "bronze.wether", *HUMID[1:]), "no table 'bronze.wether' is known; did you mean bronze.weather?"),
        (("draft", *HUMID[:1], "--kind", "rumour", "--what", "x"), "'rumour' is none of deprecation, retention"),
        (("draft", *HUMID[:1], "--what", "x"), "--kind': is missing"),
        (("draft", "--kind", "incident", "--what", "x"), "OF': is missing"),
        (("draft", *HUMID[:3], "--what", ""), "--what': '' is empty"),
        (("draft", *HUMID, "--on", "soon"), "'soon' is not a date; write such as 2026-12-31"),
        (("draft", "--change", "7", "--what", "x"), "there is no change 7; see `lakechime notice list`"),
        (("send", "7"), "there is no change 7"),
        (("withdraw", "7", *WHY), "there is no change 7"),
        (("done", "7", *WHY), "there is no change 7"),
    ):
        answer = notice("notice", *arguments)
        assert (answer.code != 0, told in " ".join(answer.err.split())) == (True, True), answer.err


def test_a_setting_by_which_nothing_can_be_sent_is_told_before_anything_is(
    notice: Cli, monkeypatch: pytest.MonkeyPatch, webhook: Webhook
) -> None:  # fmt: skip
    drafted(notice)
    for name, value, told in (
        ("LAKECHIME_NOTICE_URLS", "", "no channel is known: set LAKECHIME_NOTICE_URLS"),
        ("LAKECHIME_NOTICE_URLS", "slack://hunter2", "LAKECHIME_NOTICE_URLS '…': is not JSON"),
        ("LAKECHIME_NOTICE_URLS", '["hunter2"]', "LAKECHIME_NOTICE_URLS '…': is not a JSON object"),
        ("LAKECHIME_NOTICE_URLS", '{"team:bi": "slack://hunter2"}', "has for team:bi what is no $NAME of a variable"),
        ("LAKECHIME_NOTICE_KEY", "hunter2", "LAKECHIME_NOTICE_KEY '…': has less than 32 characters"),
        ("LAKECHIME_NOTICE_PAGE", "lake.example.com", "LAKECHIME_NOTICE_PAGE 'lake.example.com': write such as https://lake.example.com"),
    ):
        with monkeypatch.context() as patched:
            patched.setenv(name, value)
            answer = notice("notice", "send", "1", "--yes")
        assert (answer.code, told in answer.err, "hunter2" in answer.err, webhook.told) == (1, True, False, []), answer.err


def test_what_only_the_environment_can_say_is_said_before_and_of_the_message(notice: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    drafted(notice)
    assert notice("notice", "send", "1", "--json").json["problems"] == []
    monkeypatch.delenv("BI_HOOK")
    monkeypatch.setenv("MAIL", "nonsense")
    told = notice("notice", "send", "1").err
    assert "ana@example.com cannot be told from here: $MAIL: what it holds is no URL that apprise takes" in told
    assert [one["owner"] for one in notice("notice", "send", "1", "--json").json["problems"]] == ["team:bi", "team:ops", "ana@example.com"]
    sent = notice("notice", "send", "1", "--yes", "--json").json
    assert [one["problem"] for one in sent["messages"]] == [
        "$MAIL: what it holds is no URL that apprise takes; see https://appriseit.com/services/",
        *["$BI_HOOK: $BI_HOOK is not in the environment; set it to a URL of apprise for one recipient, as mailto://…"] * 2,
    ]


def test_the_link_to_acknowledge_by_is_in_the_message_and_not_in_the_store(
    notice: Cli, mail_server: MailServer, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    monkeypatch.setenv("LAKECHIME_NOTICE_KEY", "k" * 40)
    monkeypatch.setenv("LAKECHIME_NOTICE_PAGE", "https://lake.example.com/")
    drafted(notice)
    notice("notice", "send", "1", "--yes")
    assert "Say that you have seen this: https://lake.example.com/notice/acknowledge?token=" in mail_server.texts[0]
    assert "token=" not in json.dumps(notice("notice", "send", "1", "--json").json)
