"""Which changes are lost, by what transactions say they had and what came of them."""

from collections.abc import Mapping
from typing import Any

import pytest

from lakechime_dagster.cdc.monitor import Arrived, Counted, End, Within, counted

NOW = 1_700_000_000_000
MINUTE = 60_000
ORDERS = "m.shop.orders"


def end(transaction: str, at: int, topic: str = "m.transaction", **counts: int) -> End:
    """So many minutes ago."""
    return End(
        (topic, 0, 7),
        NOW - at * MINUTE,
        transaction,
        {f"shop.{table}": count for table, count in counts.items()},
    )


def looked(
    *ends: End,
    changes: Mapping[tuple[str, str], int],
    newest: Mapping[str, Mapping[Any, int]],
    **came: Any,
) -> Counted:
    times = {
        source: {part: NOW - at * MINUTE for part, at in of.items()}
        for source, of in newest.items()
    }
    found = Arrived(
        changes={Within(*key): count for key, count in changes.items()},
        newest=times,
        **{"outside": {}, **came},
    )
    return counted(ends, found, NOW, 15 * MINUTE)


def test_an_end_that_is_sent_again_and_reports_but_the_rest_does_not_make_the_transaction_smaller() -> (
    None
):
    """As Debezium does that begins again amid one (recorded)."""
    first, again = end("t", 9, orders=600), end("t", 5, orders=2)
    for ends in ((first, again), (again, first)):
        (lacking,) = looked(
            *ends, changes={(ORDERS, "t"): 599}, newest={ORDERS: {("o", 0): 4}}
        ).lacking
        assert (lacking.expected, lacking.found, lacking.end, lacking.is_sure) == (
            600,
            599,
            again,
            True,
        )


def test_it_is_sure_only_once_every_partition_has_brought_a_later_change() -> None:
    wanted = {"changes": {(ORDERS, "t"): 1}}
    passed = looked(end("t", 5, orders=2), newest={ORDERS: {("o", 0): 4, ("o", 1): 3}}, **wanted)
    behind = looked(end("t", 5, orders=2), newest={ORDERS: {("o", 0): 4, ("o", 1): 6}}, **wanted)
    as_late = looked(end("t", 5, orders=2), newest={ORDERS: {("o", 0): 4, ("o", 1): 5}}, **wanted)
    late = looked(end("t", 16, orders=2), newest={ORDERS: {("o", 0): 4, ("o", 1): 17}}, **wanted)
    assert [
        [one.is_sure for one in found.lacking] for found in (passed, behind, as_late, late)
    ] == [[True], [], [], [False]]
    assert [found.on_their_way for found in (passed, behind, as_late, late)] == [0, 1, 1, 0]


def test_a_topic_of_transactions_reports_the_sources_of_its_server() -> None:
    newest = {f"{server}.shop.orders": {("o", 0): 1} for server in ("east", "west", "west2")}
    changes = {("east.shop.orders", "t"): 1, ("west.shop.orders", "t"): 1}
    own = looked(end("t", 5, "west.transaction", orders=2), changes=changes, newest=newest)
    assert [one.source for one in own.lacking] == ["west.shop.orders"]
    routed = looked(
        end("t", 5, "all-transactions", orders=2),
        changes={("east.shop.orders", "t"): 1},
        newest={"east.shop.orders": {("o", 0): 1}},
    )
    assert [one.source for one in routed.lacking] == ["east.shop.orders"]


def test_a_source_of_which_nothing_came_at_all_lacks_it_once_it_is_late() -> None:
    wanted = {"changes": {}, "newest": {ORDERS: {}}}
    assert looked(end("t", 14, orders=1), **wanted).on_their_way == 1
    assert [str(one) for one in looked(end("t", 16, orders=1), **wanted).lacking] == [
        "m.shop.orders: of transaction t, which ended at m.transaction[0]@7, 0 of 1 changes arrived"
    ]


@pytest.mark.parametrize(("outside", "problems"), [({ORDERS: 3}, 1), ({}, 0)])
def test_of_a_source_whose_changes_report_no_transaction_nothing_is_known(
    outside: Mapping[str, int], problems: int
) -> None:
    found = looked(end("t", 16, orders=1), changes={}, newest={ORDERS: {}}, outside=outside)
    assert (len(found.problems), len(found.lacking)) == (problems, 1 - problems)
