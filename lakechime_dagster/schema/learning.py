"""From new variations to the next layout of a type: what a step finds out before it touches a table."""

from collections.abc import Iterator, Sequence

from lakechime_dagster.lake.contracts import Contract
from lakechime_dagster.schema.breaking import breaking
from lakechime_dagster.schema.layout import Column, Holds, Layout, next_layout
from lakechime_dagster.schema.observed import observed_of
from lakechime_dagster.schema.repository import KnownType, Learning, Prototype


def learned(known: KnownType, found: Sequence[Prototype], contract: Contract) -> Learning | None:
    """What variations that were not known tell of a type; None where there is nothing to keep, as the type is known already."""
    observed, enlarging, others = known.observed, list[Prototype](), list[Prototype]()
    for one in found:
        (enlarging if observed.is_enlarged_by(one.variation) else others).append(one)
        observed = observed.joined(observed_of(one.variation, one.position))
    layout = next_layout(known.layout, observed, contract)
    is_new = layout != known.layout
    if not found and not is_new and known.layout_version:
        return None
    decision = "\n".join(f"+ {name} {holds}" for name, holds in gained(known.layout, layout)) or "no column"
    return Learning(
        type=known.type, table=known.table, home=known.home, place=known.place, prototypes=(*enlarging, *others), enlarging=len(enlarging),
        observed=observed, layout=layout, is_new_layout=is_new or not known.layout_version, before=known.layout_version, decision=decision,
        breaking=breaking(known.observed, known.layout, [(one.variation, one.producer) for one in found], layout, contract),
    )  # fmt: skip


def registered(known: KnownType) -> Learning | None:
    """A type that waits for a table, kept with its place, so that nothing of it is lost once it gets one; None where it has one."""
    if known.layout_version:
        return None
    return Learning(
        type=known.type, table=known.table, home=known.home, place=known.place, prototypes=(), enlarging=0, observed=known.observed,
        layout=known.layout, is_new_layout=False, before=0,
    )  # fmt: skip


def gained(before: Layout, after: Layout) -> list[tuple[str, str]]:
    """The columns of single values that only the later layout has: the name, with those that it lies in, and what it holds."""
    had = dict(columns_of(before.columns))
    return [(name, holds) for name, holds in columns_of(after.columns) if name not in had]


def columns_of(columns: Sequence[Column], within: str = "") -> Iterator[tuple[str, str]]:
    """The columns of single values, each with the names of what it lies in before it."""
    for column in columns:
        name = f"{within}.{column.name}" if within and column.name else within + (column.name or "[]")
        if column.holds is Holds.OBJECT:
            yield from columns_of(column.fields, name)
        elif column.holds is Holds.ARRAY and column.element is not None:
            yield from columns_of((column.element,), name)
        else:
            yield name, column.holds.value
