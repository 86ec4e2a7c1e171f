"""Alarms of checks that fail: once each until they recover, sent by apprise to a real server, or to
nobody in a dry run.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import dagster as dg
import pytest

from lakechime_dagster.errors import ConsumerBlockedError
from lakechime_dagster.sensors.schedules import alarms_sensor
from tests.support.cli import Cli
from tests.support.inboxes import Webhook

KEY = dg.AssetCheckKey(dg.AssetKey(["shop", "orders"]), "keeps_up")


@dataclass
class Watching:
    """The sensor of one check, or of several, its cursor, and the instance in which the checks
    run.
    """

    instance: dg.DagsterInstance
    keys: tuple[dg.AssetCheckKey, ...] = (KEY,)
    alarms: list[str] = field(default_factory=list)
    cursor: str | None = None

    def runs(
        self,
        passed: bool,
        text: str = "west reported nothing",
        *,
        broken: bool = False,
        severity: str = "WARN",
    ) -> None:
        @dg.asset(key=KEY.asset_key)
        def orders() -> None: ...

        @dg.asset_check(asset=orders, name=KEY.name)
        def check() -> dg.AssetCheckResult:
            if broken:
                raise ValueError("the database is away")
            return dg.AssetCheckResult(
                passed=passed, severity=dg.AssetCheckSeverity(severity), description=text
            )

        definitions = dg.Definitions(
            assets=[orders],
            asset_checks=[check],
            jobs=[dg.define_asset_job("checks", dg.AssetSelection.checks(check))],
        )
        definitions.resolve_job_def("checks").execute_in_process(
            instance=self.instance, raise_on_error=False
        )

    def tick(self) -> str:
        with dg.build_sensor_context(instance=self.instance, cursor=self.cursor) as context:
            result = alarms_sensor("shop", self.keys, self.alarms).evaluate_tick(context)
        self.cursor = result.cursor or self.cursor
        return result.skip_message or ""


@pytest.fixture
def watching(lakechime: Cli, tmp_path: Path) -> Iterator[Watching]:
    with dg.DagsterInstance.ephemeral(str(tmp_path)) as instance:
        yield Watching(instance)


def test_a_check_is_reported_once_until_it_recovers_and_then_once_more(
    watching: Watching, webhook: Webhook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPS", webhook.url)
    monkeypatch.setenv("LAKECHIME_ALARMS", "$OPS")
    watching.tick()
    for passed in (True, False, False, True, True, False):
        watching.runs(passed)
        watching.tick()
        watching.tick()
    assert webhook.reported == [
        ("WARN: shop.orders fails keeps_up", "west reported nothing"),
        ("Recovered: shop.orders passes keeps_up", "It had failed: west reported nothing"),
        ("WARN: shop.orders fails keeps_up", "west reported nothing"),
    ]


def test_an_alarm_that_grows_is_sent_and_one_that_only_counts_on_is_not(
    watching: Watching, webhook: Webhook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAKECHIME_ALARMS", webhook.url)
    late, quiet = (
        "orders has been at one execution for 0:37:00",
        "west reported nothing for 1:00:00",
    )
    later = late.replace("37", "49")
    reported = [
        (False, late, "WARN"),
        (False, later, "WARN"),
        (False, f"{later}; {quiet}", "WARN"),
        (False, later, "WARN"),
    ]
    reported += [
        (False, f"{later}; {quiet}", "WARN"),
        (False, later, "ERROR"),
        (False, later, "WARN"),
        (False, later, "ERROR"),
    ]
    for passed, text, severity in reported:
        watching.runs(passed, text, severity=severity)
        watching.tick()
    assert [(title.partition(":")[0], text) for title, text in webhook.reported] == [
        ("WARN", late),
        ("WARN", f"{later}; {quiet}"),
        ("ERROR", later),
    ]
    webhook.closed = True
    watching.runs(False, "the folder is gone", severity="ERROR")
    watching.tick()
    webhook.closed = False
    watching.tick()
    watching.tick()
    # which reached nobody at first
    assert [text for _, text in webhook.reported[3:]] == ["the folder is gone"]


def test_by_default_nobody_is_notified_and_the_sensor_shows_it(
    watching: Watching, webhook: Webhook
) -> None:
    watching.alarms = [webhook.url]
    watching.runs(False)
    assert watching.tick() == (
        "failing: shop.orders keeps_up; dry run: set LAKECHIME_ALARMS to send, or to URLs of "
        "apprise, to notify somebody"
    )
    assert webhook.reported == []
    watching.runs(True)
    assert watching.tick().startswith("no check fails;")


def test_what_reaches_nobody_is_sent_again_and_no_url_is_shown(
    watching: Watching, webhook: Webhook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAKECHIME_ALARMS", webhook.url + "secret")
    watching.runs(False)
    webhook.closed = True
    said = watching.tick()
    assert ("number 1: json://… did not take it" in said, "secret" in said, webhook.reported) == (
        True,
        False,
        [],
    )
    webhook.closed = False
    watching.tick()
    assert len(webhook.reported) == 1


def test_checks_of_a_table_that_fail_for_one_reason_are_one_alarm_and_recover_as_one(
    watching: Watching, webhook: Webhook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAKECHIME_ALARMS", webhook.url)
    names, is_held = ("keeps_up", "is_whole", "is_public"), [True]
    watching.keys = tuple(dg.AssetCheckKey(KEY.asset_key, name) for name in names)

    @dg.asset(
        key=KEY.asset_key,
        check_specs=[dg.AssetCheckSpec(name, asset=KEY.asset_key) for name in names],
    )
    def orders():  # type: ignore[no-untyped-def]
        if is_held[0]:
            raise ConsumerBlockedError("shop.orders is held: note is gone")
        yield dg.MaterializeResult(
            check_results=[
                dg.AssetCheckResult(passed=name != "is_public", check_name=name) for name in names
            ]
        )

    said = ""
    for is_held[0] in (True, False):
        dg.materialize([orders], instance=watching.instance, raise_on_error=False)
        watching.tick()
        said = watching.tick()
    assert [title for title, _ in webhook.reported] == [
        "ERROR: shop.orders fails keeps_up, is_whole, is_public",
        # by what the check itself reports
        "ERROR: shop.orders fails is_public, and it is worse than before",
        "Recovered: shop.orders passes keeps_up, is_whole",
    ]
    assert said.startswith("failing: shop.orders is_public")


@pytest.mark.parametrize(
    ("error", "reported"),
    [
        (
            ConsumerBlockedError("silver.orders is held: note is gone"),
            ": silver.orders is held: note is gone",
        ),
        (ValueError("jane@example.com"), ""),
    ],
)
def test_of_a_table_that_is_blocked_it_is_reported_why_and_of_other_errors_nothing_that_may_be_of_rows(
    watching: Watching,
    webhook: Webhook,
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
    reported: str,
) -> None:
    monkeypatch.setenv("LAKECHIME_ALARMS", webhook.url)

    @dg.asset(key=KEY.asset_key, check_specs=[dg.AssetCheckSpec(KEY.name, asset=KEY.asset_key)])
    def orders():  # type: ignore[no-untyped-def]
        raise error

    run = dg.materialize([orders], instance=watching.instance, raise_on_error=False)
    watching.tick()
    assert webhook.reported == [
        (
            "ERROR: shop.orders fails keeps_up",
            f"the check itself failed in run {run.run_id}{reported}",
        )
    ]
