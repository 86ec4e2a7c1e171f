"""How far sources have come, by what is remembered of it."""

from lakechime_dagster.cdc.change import Order, order_text
from lakechime_dagster.cdc.state import Role, StateRow, opened_epochs, opened_row, positions_of


def position_row(
    source: str, topic: str, partition: int, epoch: int, position: tuple[int, ...], offset: int
) -> StateRow:
    order = Order(epoch=epoch, position=position, topic=topic, partition=partition, offset=offset)
    return StateRow(Role.POSITION.value, None, source, order_text(order))


def test_the_newest_position_of_each_partition_is_reported() -> None:
    rows = [
        position_row("m.shop.orders", "topic-1", 0, 0, (3, 120), 40),
        position_row("m.shop.orders", "topic-1", 0, 1, (1, 4), 55),
        position_row("m.shop.orders", "topic-1", 1, 0, (3, 7), 9),
        position_row("m.shop.items", "topic-2", 0, 0, (2, 1), 1),
        opened_row("m.shop.orders", 2),
    ]
    assert [
        (one.source, one.topic, one.partition, one.epoch, one.position, one.offset)
        for one in positions_of(rows)
    ] == [
        ("m.shop.items", "topic-2", 0, 0, (2, 1), 1),
        ("m.shop.orders", "topic-1", 0, 1, (1, 4), 55),
        ("m.shop.orders", "topic-1", 1, 0, (3, 7), 9),
    ]
    assert opened_epochs(rows) == {"m.shop.items": 0, "m.shop.orders": 2}
