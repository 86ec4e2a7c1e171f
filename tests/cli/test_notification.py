"""`lakechime notification`: a change is drafted, shown, sent to owners by real servers,
acknowledged, and closed.
"""

import logging

import pytest
import sqlalchemy as sa

from lakechime_dagster.dce.engine import writing
from lakechime_dagster.governance.notifications import notifications
from lakechime_dagster.governance.store import change_table, message_table
from lakechime_dagster.lineage.columns import ColumnRef, Consumer, ConsumerKind, Read
from lakechime_dagster.lineage.recording import SqlLineage, keep_reads
from tests.lineage.factories import make_record, make_statement
from tests.support.cli import Answer, Cli
from tests.support.inboxes import MailServer, Webhook

pytestmark = pytest.mark.tier2

HUMID = (
    "bronze.weather.humid",
    "--kind",
    "deprecation",
    "--what",
    "The station stops measuring it.",
    "--action",
    "Use dew points.",
)
WHY = ("--who", "me", "--reason", "it is over")


@pytest.fixture
def cli(
    lakechime: Cli, monkeypatch: pytest.MonkeyPatch, mail_server: MailServer, webhook: Webhook
) -> Cli:
    """The command line of a lake with owners, whose channels are real servers."""
    monkeypatch.setenv("LAKECHIME_LAKE", "tests.cli.weather_lake:lake")
    monkeypatch.setenv(
        "LAKECHIME_NOTIFICATION_URLS",
        '{"team:bi": "$BI_HOOK", "*@*": "$MAIL", "team:ops": "$BI_HOOK"}',
    )
    monkeypatch.setenv("BI_HOOK", webhook.url)
    monkeypatch.setenv("MAIL", mail_server.url("{owner}"))
    return lakechime


def drafted(cli: Cli, *arguments: str) -> Answer:
    return cli(
        "notification", "draft", *(arguments or (*HUMID, "--on", "2100-12-31", "--who", "me"))
    )


def send(cli: Cli, *arguments: str) -> Answer:
    return cli("notification", "send", "1", *arguments)


def states(cli: Cli) -> list[tuple[str, str]]:
    return [
        (one["owner"], one["state"])
        for one in cli("notification", "show", "1", "--json").json["messages"]
    ]


def test_a_draft_notifies_nobody_and_shows_whom_it_affects_and_why(
    cli: Cli, mail_server: MailServer, webhook: Webhook
) -> None:
    assert drafted(cli).out.splitlines() == [
        "change 1 is a draft: Deprecation: bronze.weather.humid on 2100-12-31",
        "`lakechime notification send 1` shows whom it affects",
    ]
    shown = send(cli, "--json").json
    assert [(one["owner"], one["channels"], one["reason"]) for one in shown["recipients"]] == [
        ("ana@example.com", ["$MAIL"], "owns silver.flights"),
        ("team:bi", ["$BI_HOOK"], "owns gold.daily"),
    ]
    assert (shown["unowned"], shown["sent"]) == (["gold.wet"], False)
    assert [(one["owner"], one["problem"]) for one in shown["messages"]] == [
        ("ana@example.com", ""),
        ("team:bi", ""),
    ]
    text = send(cli).out
    assert "nothing was sent: add --yes to send it" in text
    assert (
        "--- to ana@example.com through $MAIL: Deprecation: bronze.weather.humid on 2100-12-31"
        in text
    )
    assert "bo@example.com" not in text
    assert (mail_server.mails, webhook.reported, states(cli)) == ([], [], [])


def test_each_owner_gets_one_message_about_what_is_theirs(
    cli: Cli, mail_server: MailServer, webhook: Webhook
) -> None:
    drafted(cli)
    sent = send(cli, "--yes", "--who", "me")
    assert (sent.code, sent.err) == (0, "")
    ((recipients, mail),) = mail_server.mails
    assert (recipients, mail["Subject"]) == (
        ["ana@example.com"],
        "Deprecation: bronze.weather.humid on 2100-12-31",
    )
    (text,) = mail_server.texts
    assert (
        text.replace("\r", "")
        == """\
The station stops measuring it.

What to do: Use dew points.

When: 2100-12-31

What changes: bronze.weather.humid

Your affected tables:
- silver.flights (layer 1): columns unknown; not certain, as lineage on the way is unknown

Sent by team:ops, me.

Acknowledge it with: lakechime notification ack 1 --owner 'ana@example.com'"""
    )
    assert ["gold.daily" in body for _, body in webhook.reported] == [True]
    assert states(cli) == [("ana@example.com", "sent"), ("team:bi", "sent")]
    again = send(cli, "--yes", "--again")
    assert (again.code, again.out, len(mail_server.mails), len(webhook.reported)) == (
        0,
        "nothing was left to send\n",
        1,
        1,
    )


def test_what_was_not_taken_is_sent_again_and_what_was_is_not(
    cli: Cli, mail_server: MailServer, webhook: Webhook
) -> None:
    drafted(cli)
    mail_server.refused.add("ana@example.com")
    sent = send(cli, "--yes")
    assert (
        sent.code,
        "$MAIL: mailto://… did not take it" in sent.out,
        "1 message of 2 not delivered" in sent.err,
    ) == (1, True, True)
    assert (states(cli)[0], len(webhook.reported)) == (("ana@example.com", "waiting"), 1)
    assert "(waiting: $MAIL: mailto://… did not take it" in send(cli).out
    mail_server.refused.clear()
    assert send(cli, "--yes").code == 0
    assert (len(mail_server.mails), len(webhook.reported)) == (1, 1)


def test_a_url_of_several_recipients_is_refused_as_some_could_get_it_and_others_not(
    cli: Cli, mail_server: MailServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    drafted(cli)
    for url in (
        mail_server.url("a@example.com", "b@example.com"),
        mail_server.url("a@example.com") + "&cc=b@example.com",
    ):
        monkeypatch.setenv("MAIL", url)
        assert (
            "mailto://… is for several recipients; give each a variable of its own"
            in send(cli, "--yes").out
        )
    assert mail_server.mails == []


def test_an_owner_without_a_channel_is_named_to_the_sender(
    cli: Cli, mail_server: MailServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    drafted(cli)
    monkeypatch.setenv("LAKECHIME_NOTIFICATION_URLS", '{"*@*": "$MAIL"}')
    assert (
        "team:bi has no channel in LAKECHIME_NOTIFICATION_URLS; it owns gold.daily" in send(cli).err
    )
    sent = send(cli, "--yes")
    assert (sent.code, len(mail_server.mails)) == (1, 1)
    assert (
        "team:bi was not notified: LAKECHIME_NOTIFICATION_URLS has no channel for it; it owns "
        "gold.daily" in sent.err
    )
    again = send(cli, "--yes")
    # nothing went wrong with this one
    assert (again.code, again.out, again.err) == (0, "nothing was left to send\n", sent.err)


def test_no_secret_of_a_url_is_shown_or_logged(
    cli: Cli, webhook: Webhook, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAKECHIME_LOG_LEVEL", "DEBUG")
    caplog.set_level(logging.DEBUG)
    drafted(cli)
    webhook.closed = True
    answers = [send(cli, "--yes"), cli("notification", "show", "1"), send(cli, "--json")]
    with cli.platform.store.engine.connect() as connection:
        kept = [
            str(row)
            for table in (message_table, change_table)
            for row in connection.execute(sa.select(table))
        ]
    everything = [*(text for one in answers for text in (one.out, one.err)), *kept, caplog.text]
    assert "json://… did not take it" in answers[0].out
    assert not any("secret-path" in one for one in everything)


def test_an_owner_acknowledges_and_the_sender_sees_that(cli: Cli) -> None:
    drafted(cli)
    assert (
        "team:bi was not notified of change 1"
        in cli("notification", "ack", "1", "--owner", "team:bi").err
    )
    send(cli, "--yes")
    acked = cli(
        "notification", "ack", "1", "--owner", "team:bi", "--who", "bea", "--note", "we moved"
    )
    assert acked.out == "bea acknowledged change 1 for team:bi\n"
    shown = cli("notification", "show", "1", "--json").json
    assert [(one["owner"], one["who"], one["note"]) for one in shown["acknowledged"]] == [
        ("team:bi", "bea", "we moved")
    ]
    assert shown["not_acknowledged"] == ["ana@example.com"]
    assert "not yet: ana@example.com" in cli("notification", "show", "1").out
    (listed,) = cli("notification", "show", "--json").json["changes"]
    assert (listed["notified"], listed["acknowledged"]) == (
        ["ana@example.com", "team:bi"],
        ["team:bi"],
    )
    assert cli("notification", "close", "1", "--dry-run", *WHY).out == "change 1 would be closed\n"
    assert cli("notification", "close", "1", *WHY).out == "change 1 is closed\n"
    assert cli("notification", "show").out == "no change is planned\n"
    assert cli("notification", "show", "--all", "--json").json["changes"][0]["state"] == "closed"


def test_where_columns_are_known_only_who_reads_the_column_is_notified(cli: Cli) -> None:
    platform = cli.platform
    lineage, now = SqlLineage(platform.store.engine), platform.store.now()
    for statement in (
        make_statement("silver.flights", damp="bronze.weather.humid", dep="bronze.flights.dep"),
        make_statement("gold.daily", dep="silver.flights.dep"),
        make_statement("gold.wet", wind="bronze.weather.wind"),
    ):
        lineage.record(make_record(statement, namespace="local", job=statement.target, at=now))
    reads = [
        Read(
            consumer=Consumer(kind, "bi", name),
            refs=(ColumnRef("silver.flights", column),),
            at_ms=now - days * 86_400_000,
            owners=owners,
        )
        for kind, name, column, days, owners in (
            (ConsumerKind.DASHBOARD, "Damp", "damp", 30, ("cy@example.com",)),
            (ConsumerKind.DASHBOARD, "Old", "damp", 100, ("dan@example.com",)),
            (ConsumerKind.DASHBOARD, "Departures", "dep", 1, ("eve@example.com",)),
            (ConsumerKind.USER, "fay@example.com", "damp", 30, ()),
        )
    ]
    with writing(platform.store.engine) as connection:
        keep_reads(connection, reads)
    drafted(cli)
    shown = send(cli, "--json").json
    assert [(one["owner"], one["reason"]) for one in shown["recipients"]] == [
        ("ana@example.com", "owns silver.flights"),
        ("cy@example.com", "has Damp, which reads silver.flights.damp"),
        ("fay@example.com", "has fay@example.com, which reads silver.flights.damp"),
    ]
    assert "- silver.flights (layer 1): column damp" in shown["messages"][0]["body"]
    assert "- dashboard Damp reads silver.flights.damp, last on" in shown["messages"][1]["body"]


def test_wrong_arguments_are_named(cli: Cli) -> None:
    for arguments, reported in (
        (
            ("draft", "bronze.wether", *HUMID[1:]),
            "lineage knows no data set 'bronze.wether'; did you mean bronze.weather?",
        ),
        (("draft", *HUMID[:3], "--what", ""), "--what': '' is empty"),
        (("draft", *HUMID, "--on", "soon"), "'soon' does not match the formats '%Y-%m-%d'"),
        (("send", "7"), "there is no change 7; see `lakechime notification show`"),
        (("close", "7", *WHY), "there is no change 7"),
    ):
        answer = cli("notification", *arguments)
        assert (answer.code != 0, reported in " ".join(answer.err.split())) == (True, True), (
            answer.err
        )


def test_a_setting_by_which_nothing_can_be_sent_is_refused_before_anything_is(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, webhook: Webhook
) -> None:
    drafted(cli)
    for value, reported in (
        ("", "no channel is configured: set LAKECHIME_NOTIFICATION_URLS"),
        ("slack://hunter2", "LAKECHIME_NOTIFICATION_URLS '…': is not JSON"),
        ('["hunter2"]', "LAKECHIME_NOTIFICATION_URLS '…': is not a JSON object"),
        ('{"team:bi": "slack://hunter2"}', "has for team:bi what is no $NAME of a variable"),
    ):
        with monkeypatch.context() as patched:
            patched.setenv("LAKECHIME_NOTIFICATION_URLS", value)
            answer = send(cli, "--yes")
        assert (answer.code, reported in answer.err, "hunter2" in answer.err, webhook.reported) == (
            1,
            True,
            False,
            [],
        ), answer.err
    assert notifications(cli.platform).get(1).announced_ts is None
