"""What people sent goes on by itself: retries and reminders, through real servers; nothing that nobody sent is told."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import dagster as dg
import pytest
import sqlalchemy as sa

from lakechime_dagster.definitions import build_definitions
from lakechime_dagster.resources.notices.sending import notices
from lakechime_dagster.sensors.notice_messages import messages_sensor
from lakechime_dagster.store.engine import writing
from lakechime_dagster.store.notices import schema
from lakechime_dagster.triggers.grid import from_milliseconds
from tests.cli.weather_lake import lake
from tests.lineage.notices.changes import make_change
from tests.support.cli import Cli
from tests.support.inboxes import MailServer, Webhook

CHANNELS = '{"team:bi": "$BI_HOOK", "*@*": "$MAIL"}'


@dataclass
class Daemon:
    """Ticks the sensor, with its cursor."""

    cli: Cli
    instance: dg.DagsterInstance
    cursor: str | None = field(default=None)

    def tick(self) -> str:
        with dg.build_sensor_context(instance=self.instance, cursor=self.cursor) as context:
            result = messages_sensor(lake).evaluate_tick(context)
        self.cursor = result.cursor or self.cursor
        return result.skip_message or ""

    def send(self) -> None:
        """A change that a person drafts and sends."""
        notices(self.cli.platform).draft(make_change(), "me")
        self.cli("notice", "send", "1", "--yes", "--who", "me")

    def let_it_be_time(self) -> None:
        with writing(self.cli.platform.store.engine) as connection:
            connection.execute(sa.update(schema.notice_outbox).values(due_ts=0))

    def let_it_come_in(self, days: int) -> None:
        """Let the change that was announced weeks ago come so soon."""
        now = self.cli.platform.store.now()
        with writing(self.cli.platform.store.engine) as connection:
            change = connection.execute(sa.select(schema.notice_change.c.change)).scalar_one()
            on = f"{from_milliseconds(now + days * 86_400_000):%Y-%m-%d}"
            connection.execute(sa.update(schema.notice_change).values(change=change | {"on": on}, announced_ts=now - 40 * 86_400_000))


@pytest.fixture
def daemon(lakechime: Cli, monkeypatch: pytest.MonkeyPatch, mail_server: MailServer, webhook: Webhook) -> Iterator[Daemon]:
    settings = {"LAKECHIME_LAKE": "tests.cli.weather_lake:lake", "LAKECHIME_NOTICE_URLS": CHANNELS, "BI_HOOK": webhook.url}
    for name, value in (settings | {"MAIL": mail_server.url("{owner}")}).items():
        monkeypatch.setenv(name, value)
    with dg.DagsterInstance.ephemeral(str(lakechime.home)) as instance:
        yield Daemon(lakechime, instance)


@pytest.mark.tier2
def test_what_was_not_taken_is_sent_again_by_itself_when_it_is_time(daemon: Daemon, mail_server: MailServer, webhook: Webhook) -> None:
    mail_server.refused.add("ana@example.com")
    daemon.send()
    assert daemon.tick() == "nothing is due"
    daemon.let_it_be_time()
    assert (
        daemon.tick()
        == "change 1 to ana@example.com is waiting: $MAIL: mailto://… did not take it; check the URL, and that it is reached from here"
    )
    mail_server.refused.clear()
    assert daemon.tick() == "nothing is due"
    daemon.let_it_be_time()
    assert daemon.tick() == "change 1 to ana@example.com is sent"
    assert daemon.tick() == "nothing is due"
    assert (len(mail_server.mails), len(webhook.told)) == (1, 1)


def test_a_draft_and_a_withdrawal_are_told_by_people_alone(daemon: Daemon, mail_server: MailServer, webhook: Webhook) -> None:
    notices(daemon.cli.platform).draft(make_change(), "me")
    assert daemon.tick() == "nothing is due"
    daemon.cli("notice", "send", "1", "--yes")
    daemon.cli("notice", "withdraw", "1", "--reason", "not needed")
    assert (daemon.tick(), len(mail_server.mails), len(webhook.told)) == ("nothing is due", 1, 1)
    webhook.closed = True
    daemon.cli("notice", "send", "1", "--yes")
    webhook.closed = False
    daemon.let_it_be_time()
    assert daemon.tick() == "change 1 to team:bi is sent"
    assert webhook.told[-1][0].startswith("Withdrawn")


def test_whoever_has_not_seen_it_is_reminded_once_each_time(daemon: Daemon, mail_server: MailServer, webhook: Webhook) -> None:
    daemon.send()
    daemon.cli("notice", "ack", "1", "--owner", "team:bi")
    daemon.let_it_come_in(30)
    assert daemon.tick() == "nothing is due"
    daemon.let_it_come_in(6)
    assert daemon.tick() == "change 1: reminder 7, 1 to tell; change 1 to ana@example.com is sent"
    assert daemon.tick() == "nothing is due"
    daemon.cursor = None
    assert daemon.tick() == "nothing is due"
    daemon.let_it_come_in(1)
    assert daemon.tick() == "change 1: reminder 1, 1 to tell; change 1 to ana@example.com is sent"
    assert (len(mail_server.mails), len(webhook.told)) == (3, 1)
    assert mail_server.mails[-1][1]["Subject"].startswith("Reminder: Deprecation")


def test_a_channel_that_this_process_does_not_know_costs_no_attempt(
    daemon: Daemon, mail_server: MailServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    mail_server.refused.add("ana@example.com")
    daemon.send()
    daemon.let_it_be_time()
    monkeypatch.delenv("MAIL")
    assert daemon.tick() == "messages wait, as this process's environment does not hold $MAIL"
    (mail,) = [one for one in daemon.cli("notice", "show", "1", "--json").json["messages"] if one["channel"] == "$MAIL"]
    assert (mail["state"], mail["attempt"]) == ("waiting", 1)


def test_without_channels_nothing_goes_on_by_itself(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    name = "weather__notice_messages"
    assert name in [one.name for one in build_definitions(lake).sensors or ()]
    monkeypatch.delenv("LAKECHIME_NOTICE_URLS")
    assert name not in [one.name for one in build_definitions(lake).sensors or ()]
    assert daemon.tick().startswith("no channel is known: set LAKECHIME_NOTICE_URLS")
