"""From new variations to the next layout of a type: what a step finds out before it touches a table."""

from collections.abc import Iterator, Mapping, Sequence

from lakechime_dagster.lake.contracts import Contract
from lakechime_dagster.schema.breaking import breaking
from lakechime_dagster.schema.layout import Column, Holds, Layout
from lakechime_dagster.schema.observed import Observed, observed_of
from lakechime_dagster.schema.producers import NOBODY, Accounts, allotted
from lakechime_dagster.schema.repository import KnownType, Learning, Prototype
from lakechime_dagster.schema.variation import Variation


def learned(known: KnownType, found: Sequence[Prototype], contract: Contract, accounts: Accounts | None = None) -> Learning | None:
    """What variations that were not known tell of a type; None where there is nothing to keep, as the type is known already.

    Without `accounts` nobody is told who sends its events, and nothing is withheld.
    """
    found = [one for one in found if not one.is_joined or known.observed.is_enlarged_by(one.variation)]
    observed, enlarging, others = _joined(known.observed, found)
    done = allotted(known.layout, observed, contract, known.withheld, accounts or Accounts())
    layout, is_new = done.layout, done.layout != known.layout
    if not found and not is_new and known.layout_version and done.withheld.keys() == known.withheld.keys():
        return None
    decision = "\n".join(f"+ {name} {holds}" for name, holds in gained(known.layout, layout)) or "no column"
    return Learning(
        type=known.type, table=known.table, home=known.home, place=known.place, prototypes=(*enlarging, *others), enlarging=len(enlarging),
        observed=observed, layout=layout, is_new_layout=is_new or not known.layout_version, before=known.layout_version, decision=decision,
        breaking=breaking(
            known.observed, known.layout, [(one.variation, one.producer) for one in found], layout, contract, frozenset(done.withheld)
        ),
        withheld=done.withheld, withheld_before=known.withheld, brought=None if accounts is None else done.brought,
    )  # fmt: skip


def sent_of(
    found: Sequence[Prototype], known: Mapping[str, Variation], senders: Mapping[str, Sequence[str]]
) -> list[tuple[Variation, Sequence[str]]]:  # fmt: skip
    """Who sends which variation: of the new ones in the order of their first events, then of known ones by who is told to send them."""
    new = [(one.variation, _first_before(one)) for one in sorted(found, key=lambda one: (one.source, one.typed_hash))]
    return [*new, *((known[name], several) for name, several in sorted(senders.items()) if name in known)]


def _first_before(one: Prototype) -> list[str]:
    """Who sent a variation, with him before the others who sent its first event."""
    first = one.producer or NOBODY
    return [first, *(who for who in one.senders if who != first)]


def relearned(known: KnownType, found: Sequence[Prototype], contract: Contract, cap: int | None = None) -> Learning:
    """What all events of a type tell of it, with a layout that is made anew: the same in whatever order and split they came.

    What is withheld stays so, where producers still have a cap.
    """
    observed, enlarging, others = _joined(known.observed, found)
    done = allotted(Layout(), observed, contract, known.withheld, Accounts(cap=cap))
    layout = done.layout
    told = [*(f"+ {name} {holds}" for name, holds in gained(known.layout, layout))]
    told += [f"- {name} {holds}" for name, holds in gained(layout, known.layout)]
    return Learning(
        type=known.type, table=known.table, home=known.home, place=known.place, prototypes=(*enlarging, *others), enlarging=len(enlarging),
        observed=observed, layout=layout, is_new_layout=layout != known.layout, before=known.layout_version,
        decision="\n".join(["rebuild", *told]), withheld=done.withheld, withheld_before=known.withheld,
    )  # fmt: skip


def _joined(observed: Observed, found: Sequence[Prototype]) -> tuple[Observed, list[Prototype], list[Prototype]]:
    """What was observed with more variations, those of them that enlarge it and are to be kept, and the others to be kept."""
    enlarging, others = list[Prototype](), list[Prototype]()
    for one in found:
        if not one.is_joined:
            (enlarging if observed.is_enlarged_by(one.variation) else others).append(one)
        observed = observed.joined(observed_of(one.variation, one.position))
    return observed, enlarging, others


def registered(known: KnownType) -> Learning | None:
    """A type that waits for a table, kept with its place, so that nothing of it is lost once it gets one; None where it has one."""
    if known.layout_version:
        return None
    return Learning(
        type=known.type, table=known.table, home=known.home, place=known.place, prototypes=(), enlarging=0, observed=known.observed,
        layout=known.layout, is_new_layout=False, before=0, withheld=known.withheld, withheld_before=known.withheld,
    )  # fmt: skip


def gained(before: Layout, after: Layout) -> list[tuple[str, str]]:
    """The columns of single values that only the later layout has: the name, with those that it lies in, and what it holds.

    One that a rebuild made to hold something else is another.
    """
    had = {*columns_of(before.columns)}
    return [one for one in columns_of(after.columns) if one not in had]


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
