"""The fold gives the same table for any order and any split of the same changes: that of the
oracle.
"""

import random
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakechime_dagster.cdc.change import (
    DELETE,
    READ,
    REPAIRS,
    UPSERT,
    Change,
    Key,
    Operation,
    Order,
)
from lakechime_dagster.cdc.merge import Kept, RowState, collected, with_changes
from tests.cdc.merge.arrivals import at, follow_in_parts, follow_in_time
from tests.cdc.oracle import done, rows_of

COLUMNS = ("a", "b")
SOURCES = ("s", "t")
SEEDS = st.integers(0, 2**32)
LENGTHS = st.integers(1, 12)


def within(position: int, step: int, rank: int = UPSERT) -> Order:
    """Of several changes of one transaction."""
    return at(position, rank)._replace(position=(position, step))


def upsert(
    position: int, key: Key = (1,), operation: Operation = Operation.UPDATE, **others: object
) -> Change:
    columns = others.pop("columns", None) or {name: (name, position) for name in COLUMNS}
    order = others.pop("order", at(position))
    return Change(source="s", operation=operation, order=order, key=key, columns=columns, **others)  # pyright: ignore[reportArgumentType]


def deletion(position: int, key: Key = (1,)) -> Change:
    return Change(source="s", operation=Operation.DELETE, order=at(position, DELETE), key=key)


def history(dice: random.Random, length: int) -> list[Change]:
    """What databases may do to a few rows: inserts, updates that leave columns out, deletions, key
    changes, truncations, reads.
    """
    changes: list[Change] = []
    for position in range(1, length + 1):
        source = dice.choice(SOURCES)
        key, other = (source, dice.randrange(3)), (source, dice.randrange(3))
        some = {name: (name, position) for name in COLUMNS if dice.random() < 0.5}
        match dice.choice(
            ["create", "read", "update", "update", "delete", "rekey", "rotate", "truncate"]
        ):
            case "create" | "read" as step:
                operation, rank = (
                    (Operation.READ, READ) if step == "read" else (Operation.CREATE, UPSERT)
                )
                whole: dict[str, object] = dict.fromkeys(COLUMNS, ("new", position))
                changes.append(
                    Change(
                        source=source,
                        operation=operation,
                        order=at(position, rank),
                        key=key,
                        columns=whole,
                    )
                )
            case "update":
                changes.append(
                    Change(
                        source=source,
                        operation=Operation.UPDATE,
                        order=at(position),
                        key=key,
                        columns=some,
                    )
                )
            case "delete":
                changes.append(
                    Change(
                        source=source,
                        operation=Operation.DELETE,
                        order=at(position, DELETE),
                        key=key,
                    )
                )
            case "rekey" if key != other:
                changes.append(
                    Change(
                        source=source,
                        operation=Operation.DELETE,
                        order=at(position, DELETE),
                        key=key,
                    )
                )
                changes.append(
                    Change(
                        source=source,
                        operation=Operation.CREATE,
                        order=at(position),
                        key=other,
                        columns=some,
                        continues=key,
                    )
                )
            case "rotate":
                keys = dice.sample([(source, number) for number in range(3)], dice.choice([2, 3]))
                changes += rotation(position, source, keys, some)
            case "truncate":
                changes.append(
                    Change(source=source, operation=Operation.TRUNCATE, order=at(position, DELETE))
                )
            case _:
                pass
    return changes


def rotation(
    position: int, source: str, keys: Sequence[Key], columns: Mapping[str, object]
) -> Iterator[Change]:
    """One statement that gives each key's row the next one's key, in a transaction that checks its
    keys at the end.
    """
    for step, (old, new) in enumerate(zip(keys, [*keys[1:], keys[0]], strict=True)):
        both = {"source": source, "transaction": position}
        yield Change(
            operation=Operation.DELETE, order=within(position, step, DELETE), key=old, **both
        )  # pyright: ignore[reportArgumentType]
        yield Change(
            operation=Operation.CREATE,
            order=within(position, step),
            key=new,
            columns=columns,
            continues=old,
            **both,
        )  # pyright: ignore[reportArgumentType]


class Table:
    """A target that is changed key by key, as the fold says."""

    def __init__(self) -> None:
        self.kept = Kept()
        self.rows: dict[Key, object] = {}
        self.refused: list[str] = []

    def execute(self, changes: Sequence[Change], columns: Collection[str] = COLUMNS) -> "Table":
        step = with_changes(self.kept, changes)
        self.kept = step.kept
        self.refused += [one.reason for one in step.refused]
        for key in step.touched:
            row = self.kept.row_state(key).row(columns)
            self.rows.pop(key, None)
            if row is not None:
                self.rows[key] = row
        return self

    def collect(self, low_watermark: Order) -> "Table":
        for source in SOURCES:
            self.kept = collected(self.kept, source, low_watermark)
        return self


@given(seed=SEEDS, length=LENGTHS)
def test_any_order_and_any_split_of_the_changes_gives_the_same_table(
    seed: int, length: int
) -> None:
    dice = random.Random(seed)
    changes = history(dice, length)
    shuffled = dice.sample(changes, len(changes))
    table = Table()
    follow_in_parts(table, shuffled, dice)
    assert table.rows == rows_of(changes, COLUMNS)
    assert not table.refused


def in_wal(change: Change) -> Change:
    """The same where PostgreSQL reports it: each position is that of a transaction, in which its
    changes have places of their own.
    """
    transaction, *step = change.order.position
    return replace(
        change,
        order=change.order._replace(
            position=(10 * transaction - 10, 10 * transaction + (step[0] if step else 0))
        ),
    )


def readings(
    changes: Sequence[Change], reported: int, cut: int, dice: random.Random
) -> Iterator[Change]:
    """What a repair reports of some keys as they are after the transaction `cut`, of which messages
    had reported up to `reported`.
    """
    table: dict[tuple[str, Key], list[dict[str, object]]] = {}
    for _ in done([one for one in changes if one.order.position[0] < 10 * cut], table):
        pass
    order = Order(position=(10 * reported - 10, 10 * cut + 9), topic=f"{REPAIRS}orders")
    for number, ((source, key), rows) in enumerate(table.items()):
        is_whole = not rows or rows[-1].keys() >= set(COLUMNS)
        if key and is_whole and dice.random() < 0.5:
            at_place = order._replace(rank=READ if rows else DELETE, offset=number)
            operation, columns = (Operation.READ, rows[-1]) if rows else (Operation.DELETE, {})
            yield Change(
                source=source, operation=operation, order=at_place, key=key, columns=columns
            )


@given(seed=SEEDS, length=LENGTHS)
def test_a_repair_of_rows_that_were_right_changes_none_whatever_messages_were_on_their_way(
    seed: int, length: int
) -> None:
    dice = random.Random(seed)
    changes = [in_wal(change) for change in history(dice, length)]
    cut = dice.randint(1, length)
    reported = dice.randint(1, cut)
    repaired = [*changes, *readings(changes, reported, cut, dice)]
    assert Table().execute(dice.sample(repaired, len(repaired))).rows == rows_of(changes, COLUMNS)


def test_a_key_change_takes_the_row_that_was_there_though_a_repair_has_read_the_key_since() -> None:
    """A transaction swaps two keys by way of a third; messages report it when its outcome had been
    read.
    """
    before = [
        upsert(1, (1,), columns={"a": 1, "b": "of 1"}),
        upsert(1, (2,), columns={"a": 2, "b": "of 2"}, order=within(1, 1)),
    ]
    swap = list(rotation(2, "s", [(1,), (0,)], {"a": 1}))[:2]
    for step, (old, new) in enumerate([((2,), (1,)), ((0,), (2,))], start=2):
        swap.append(replace(deletion(2, old), order=within(2, step, DELETE), transaction=2))
        swap.append(
            replace(
                upsert(2, new, columns={"a": step}, continues=old),
                order=within(2, step),
                transaction=2,
            )
        )
    reported = [in_wal(one) for one in [*before, *swap]]
    read = replace(
        upsert(0, (1,), Operation.READ, columns={"a": 2, "b": "of 2"}),
        order=Order(0, (0, 29), READ, f"{REPAIRS}orders"),
    )
    assert Table().execute([*reported, read]).rows == {
        (1,): {"a": 2, "b": "of 2"},
        (2,): {"a": 3, "b": "of 1"},
    }


@given(seed=SEEDS, length=LENGTHS, lateness=st.integers(0, 4))
def test_what_was_collected_makes_no_difference_to_changes_that_come_in_time(
    seed: int, length: int, lateness: int
) -> None:
    dice = random.Random(seed)
    changes = history(dice, length)
    table = Table()
    follow_in_time(table, changes, lateness, dice)
    assert table.rows == rows_of(changes, COLUMNS)
    assert not table.refused


def test_a_key_change_without_positions_goes_on_with_the_row_that_its_deletion_took() -> None:
    """There are other messages between the two."""
    orders = [Order(topic="changes", partition=0, offset=offset) for offset in (0, 1, 5)]
    old, gone = replace(upsert(0), order=orders[0]), replace(deletion(0), order=orders[1])
    new = replace(upsert(0, (2,), columns={"a": 9}, continues=(1,)), order=orders[2])
    assert Table().execute([new, gone, old]).rows == {(2,): {"a": 9, "b": ("b", 0)}}


def test_a_row_that_was_given_a_key_for_a_while_leaves_with_its_own_deletion() -> None:
    """While another row had that key: it leaves first."""
    # the row of 1 to 2, the one that was there to 4, then the first one to 3
    moves = [((1,), (2,)), ((2,), (4,)), ((2,), (3,))]
    changes = [upsert(1, (1,)), upsert(2, (2,))]
    for step, (old, new) in enumerate(moves):
        changes.append(replace(deletion(3, old), order=within(3, step, DELETE), transaction=3))
        changes.append(
            replace(
                upsert(3, new, columns={"c": 3}, continues=old),
                order=within(3, step),
                transaction=3,
            )
        )
    assert Table().execute(changes).rows == {
        (3,): {"a": ("a", 1), "b": ("b", 1)},
        (4,): {"a": ("a", 2), "b": ("b", 2)},
    }
    assert rows_of(changes, COLUMNS) == Table().execute(changes).rows


def test_nothing_of_a_deleted_row_is_kept_once_it_is_final() -> None:
    table = Table().execute([upsert(1), deletion(2), upsert(3, (2,))]).collect(at(10, READ))
    assert table.kept.windows.keys() == {(2,)}
    assert table.kept.windows[(2,)].changes == ()


def test_what_comes_below_the_low_watermark_is_refused_where_its_row_may_have_been_deleted() -> (
    None
):
    table = Table().execute([upsert(1), deletion(3), upsert(2, (2,))]).collect(at(10, READ))
    table.execute([upsert(2), upsert(1, (2,))])
    assert table.rows == {(2,): {"a": ("a", 2), "b": ("b", 2)}}
    (reason,) = table.refused
    assert "is forgotten which rows of 's' were deleted" in reason


def swapped(number: int) -> list[Change]:
    """A transaction that swaps two rows by way of a key that no row has, as a database reports it
    that checks keys at the end.
    """
    changes: list[Change] = []
    for step, (old, new) in enumerate([((1,), (-1,)), ((2,), (1,)), ((-1,), (2,))]):
        gone, come = within(number, step, DELETE), within(number, step)
        changes.append(replace(deletion(number, old), order=gone, transaction=number))
        changes.append(
            upsert(
                number, new, order=come, columns={"b": number}, continues=old, transaction=number
            )
        )
    return changes


@pytest.mark.parametrize("swaps", [50, 400])
def test_work_grows_with_the_changes_where_one_key_is_lent_to_many_rows(
    swaps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, continued = 0, Kept.continued

    def counted(kept: Kept, row_state: RowState, change: Change) -> RowState:
        nonlocal asked
        asked += 1
        assert asked < 20 * swaps, "what came before is asked of again and again"
        return continued(kept, row_state, change)

    monkeypatch.setattr(Kept, "continued", counted)
    rows = [upsert(0, (key,), order=within(0, key), columns={"a": key, "b": 0}) for key in (1, 2)]
    kept = with_changes(
        Kept(), [*rows, *(change for number in range(1, swaps + 1) for change in swapped(number))]
    ).kept
    assert kept.row_state((-1,)).upserted is None
    found = {key: kept.row_state((key,)).row(COLUMNS) for key in (1, 2)}
    assert found == {1: {"a": 1, "b": swaps}, 2: {"a": 2, "b": swaps}}, (
        "an even number of swaps leaves each row where it was"
    )
