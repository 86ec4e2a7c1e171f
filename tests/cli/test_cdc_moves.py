"""`lakechime cdc rebuild` and `epoch`: a table made anew from its messages, and positions that a person lets begin anew."""

from typing import Any

import pytest
from deltalake import DeltaTable

from lakechime_dagster.cdc.spark_remembered import Seen
from lakechime_dagster.cli.common import subscription_declared
from lakechime_dagster.errors import ConsumerBlockedError
from lakechime_dagster.runtime.execution import RunningExecution, kept
from lakechime_dagster.sensors.tick import RunState, Tick, run_tick
from lakechime_dagster.tables.cdc import CHANGES, STATE
from lakechime_dagster.triggers.consumers import ConsumerState, Execution
from lakechime_dagster.triggers.subscription import Subscription
from tests.cli.shop import NAME, Shop
from tests.cli.test_cdc import told
from tests.sensors.test_tick import ToldRuns
from tests.support.cli import Cli

WHY = ["--reason", "a column was lost", "--who", "ada"]
SOURCE = "m.shop.orders"
BLOCKED = f"{NAME}: in partition 0 of t the position of {SOURCE} goes back from [3, 20] to [1, 4]: `lakechime cdc epoch {NAME} --confirm`"


@pytest.fixture
def shop(lakechime: Cli) -> Shop:
    shop = Shop.declared(lakechime)
    shop.tell(told(1, 10), told(2, 11))
    return shop


@pytest.fixture
def runs() -> ToldRuns:
    return ToldRuns()


def ticked(lakechime: Cli, runs: ToldRuns) -> Tick:
    """The commits of the bronze table are captured, and the sensor of the table looks."""
    lakechime("table", "reconcile", NAME + CHANGES)
    return run_tick(lakechime.platform, subscription_declared(NAME, None), runs)


def completed(lakechime: Cli, runs: ToldRuns) -> Execution:
    (execution,) = ticked(lakechime, runs).launches
    lakechime.platform.ledger.complete(execution, None)
    return execution


def held(lakechime: Cli, runs: ToldRuns, reason: str = BLOCKED) -> None:
    """A step asks for a person."""
    (execution,) = ticked(lakechime, runs).launches
    subscription: Subscription = subscription_declared(NAME, None)
    platform = lakechime.platform
    running = RunningExecution(platform, subscription, platform.ledger.begin(execution.execution_id, f"run-{execution.attempt}"))
    with pytest.raises(ConsumerBlockedError), kept(running, platform.log(NAME), lambda line: None):
        raise ConsumerBlockedError(reason)
    runs.tell(running.execution, RunState.FAILED)


def opened(shop: Shop) -> int:
    """The epoch that a step of Spark finds open."""
    from lakechime_dagster.cdc.service import Followed

    return Seen(places=tuple(Followed(shop.lakechime.platform, shop.table).places())).epochs[SOURCE].opened


def consumer(lakechime: Cli) -> Any:
    row = lakechime.platform.ledger.subscription(NAME)
    assert row is not None
    return lakechime.platform.ledger.consumers(row)[""]


def test_a_rebuild_puts_the_table_back_to_the_beginning_of_its_messages(lakechime: Cli, shop: Shop, runs: ToldRuns) -> None:
    completed(lakechime, runs)
    assert ticked(lakechime, runs).launches == ()
    said = lakechime("cdc", "rebuild", NAME, *WHY)
    assert (said.code, "reads all 2 messages of its bronze table again, and replaces its 2 rows" in said.err) == (1, True)
    assert "nothing was done: say --yes to do it" in said.err
    dry = lakechime("cdc", "rebuild", NAME, *WHY, "--dry-run", "--json").json
    assert (dry["messages"], dry["rows"], dry["remembered"], len(dry["consumers"])) == (2, 2, 2, 1)
    assert ticked(lakechime, runs).launches == ()
    assert lakechime("cdc", "rebuild", NAME, *WHY, "--yes").out.startswith(f"the next run of {NAME} reads all 2 messages")
    (execution,) = ticked(lakechime, runs).launches
    range_ = execution.ranges()[NAME + CHANGES]
    assert (range_.start, range_.end) == (None, "0")


def test_a_table_that_is_held_is_made_anew_once_its_step_was_given_up(lakechime: Cli, shop: Shop, runs: ToldRuns) -> None:
    held(lakechime, runs, f"{NAME}: the table holds rows that were deleted, and is not declared so any more")
    assert "has an open execution; wait for it, or skip it first" in lakechime("cdc", "rebuild", NAME, *WHY, "--yes").err
    (step,) = lakechime("execution", "show", "--json").json["executions"]
    assert lakechime("execution", "skip", step["execution_id"], *WHY).code == 0
    assert lakechime("cdc", "rebuild", NAME, *WHY, "--yes").code == 0
    (execution,) = ticked(lakechime, runs).launches
    assert execution.ranges()[NAME + CHANGES].start is None


def test_a_table_without_messages_is_not_made_anew(lakechime: Cli) -> None:
    Shop.declared(lakechime)
    answer = lakechime("cdc", "rebuild", NAME, *WHY, "--yes")
    assert (answer.code, "holds no message" in answer.err) == (1, True)


def test_epoch_tells_how_far_sources_came_and_why_the_consumer_is_held(lakechime: Cli, shop: Shop, runs: ToldRuns) -> None:
    document = lakechime("cdc", "epoch", NAME, "--json").json
    assert (document["state"], document["asks"], document["opened"]) == (None, None, {SOURCE: 0})
    assert [(one["source"], one["epoch"], one["position"], one["offset"]) for one in document["places"]] == [(SOURCE, 0, [3, 11, 0], 11)]
    held(lakechime, runs)
    document = lakechime("cdc", "epoch", NAME, "--json").json
    assert (document["state"], document["asks"], document["reason"].startswith(BLOCKED)) == ("BLOCKED", SOURCE, True)
    shown = lakechime("cdc", "epoch", NAME).out
    assert all(part in shown for part in ("BLOCKED", "goes back from", SOURCE, "[3, 11, 0]"))


def test_an_epoch_that_is_confirmed_is_open_and_its_step_is_tried_again(lakechime: Cli, shop: Shop, runs: ToldRuns) -> None:
    held(lakechime, runs)
    dry = lakechime("cdc", "epoch", NAME, "--confirm", "--dry-run", "--json").json
    assert (dry["confirmed"], opened(shop), consumer(lakechime).state) == (1, 0, ConsumerState.BLOCKED)
    shop.tell(told(3, 12))
    done = lakechime("cdc", "epoch", NAME, "--confirm", "--who", "ada")
    assert (done.code, f"epoch 1 of {SOURCE} is open" in done.out) == (0, True)
    assert (opened(shop), consumer(lakechime).state) == (1, ConsumerState.ACTIVE)
    (execution,) = ticked(lakechime, runs).launches
    assert (execution.step, execution.attempt) == (1, 2)
    assert lakechime("trigger", "show", NAME, "--json").json["interventions"][0]["who"] == "ada"


def test_an_epoch_is_confirmed_once_for_each_time_it_is_asked_for(lakechime: Cli, shop: Shop, runs: ToldRuns) -> None:
    held(lakechime, runs)
    lakechime("cdc", "epoch", NAME, "--confirm")
    again = lakechime("cdc", "epoch", NAME, "--confirm")
    assert (again.code, "its consumer waits for nobody; nothing was changed" in again.err, opened(shop)) == (1, True, 1)
    held(lakechime, runs)
    assert lakechime("cdc", "epoch", NAME, "--confirm", "--json").json["confirmed"] == 2
    assert opened(shop) == 2


def test_a_confirmation_that_was_cut_short_opens_no_further_epoch(lakechime: Cli, shop: Shop, runs: ToldRuns) -> None:
    held(lakechime, runs)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lakechime_dagster.triggers.interventions.Interventions.resume", _cut_short)
        assert lakechime("cdc", "epoch", NAME, "--confirm").code == 1
    assert (opened(shop), consumer(lakechime).state) == (1, ConsumerState.BLOCKED)
    assert lakechime("cdc", "epoch", NAME, "--confirm", "--json").json["confirmed"] == 1
    assert (opened(shop), consumer(lakechime).state) == (1, ConsumerState.ACTIVE)


def _cut_short(*_: object, **__: object) -> None:
    raise OSError("killed")


def test_what_is_held_for_another_reason_is_not_confirmed(lakechime: Cli, shop: Shop, runs: ToldRuns) -> None:
    held(lakechime, runs, f"{NAME}: amount is decimal(9,3) now")
    answer = lakechime("cdc", "epoch", NAME, "--confirm")
    assert (answer.code, "its consumer is BLOCKED: shop.orders: amount is decimal(9,3) now" in answer.err) == (1, True)
    assert DeltaTable(shop.location(STATE)).version() == 0


def test_another_source_than_the_one_asked_about_is_refused(lakechime: Cli, shop: Shop, runs: ToldRuns) -> None:
    held(lakechime, runs)
    answer = lakechime("cdc", "epoch", NAME, "--confirm", "--source", "m.shop.items")
    assert (answer.code, f"shop.orders asks about {SOURCE}" in answer.err) == (2, True)
    assert lakechime("cdc", "epoch", NAME, "--confirm", "--source", SOURCE).code == 0


def test_nothing_is_confirmed_of_a_table_that_remembers_nothing(lakechime: Cli, shop: Shop, runs: ToldRuns) -> None:
    held(lakechime, runs)
    (lakechime.home / "warehouse/shop/orders__state").rename(lakechime.home / "elsewhere")
    answer = lakechime("cdc", "epoch", NAME, "--confirm")
    assert (answer.code, "shop.orders__state: there is no Delta table" in answer.err) == (1, True)
