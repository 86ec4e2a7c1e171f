"""The tables beside a table, in which its rows and messages stand too: what is searched there for the keys of its columns."""

from collections.abc import Iterable, Mapping

from lakechime_dagster.lake.change_tables import STATE, ChangeTable
from lakechime_dagster.lake.lake import Lake
from lakechime_dagster.lake.names import folded
from lakechime_dagster.lake.personal import column_of
from lakechime_dagster.lake.tables import LakeTable
from lakechime_dagster.lineage.personal.keys import Key, Place, Searched

QUARANTINE = "__quarantine"
ANYWHERE = "$.."


def searched_beside(lake: Lake, keys: Mapping[str, Mapping[str, Iterable[Key]]]) -> tuple[Searched, ...]:
    """The tables beside those of a lake that have keys by table and column."""
    found: list[Searched] = []
    for table in lake.tables:
        places = [Place(name, key) for name, several in keys.get(table.name, {}).items() for key in several]
        if places and isinstance(table, LakeTable):
            found.append(_refused_rows(table.name, places))
        elif places and isinstance(table, ChangeTable):
            found += _of_changes(table, places)
    return tuple(found)


def _refused_rows(table: str, places: Iterable[Place]) -> Searched:
    """Rows of a computed table that it refused, as JSON texts."""
    within = (Place(f"row:$.{place.name.replace(':$', '')}", place.key) for place in places)
    return Searched(table=table + QUARANTINE, places=tuple(within), is_text=True, texts=("row",))


def _of_changes(table: ChangeTable, places: Iterable[Place]) -> Iterable[Searched]:
    """The messages of a table that follows a database, what is remembered and what it refused; a field may stand anywhere in them."""
    there = {folded(here): name for name, here in table.names.items()}
    keys = {folded(one) for one in table.keys}
    messages, remembered, refused = list[Place](), list[Place](), list[Place]()
    for name, key in places:
        column = column_of(name)
        for field in sorted({column, there.get(folded(column), column)}):
            anywhere = f"{ANYWHERE}{field}"
            messages += [Place(f"value:{anywhere}", key), Place(f"key:{anywhere}", key)]
            remembered.append(Place(f"columns:{anywhere}", key))
            refused.append(Place(f"row:{anywhere}", key))
        if folded(column) in keys:
            messages += [Place("row_key", key)]
            remembered += [Place("key", key), Place("continues", key)]
            refused.append(Place("row:$.key", key))
    yield Searched(table=table.bronze.name, places=tuple(messages), is_text=True, texts=("value",))
    yield Searched(table=table.name + STATE, places=tuple(remembered), is_text=True, texts=("columns",))
    yield Searched(table=table.name + QUARANTINE, places=tuple(refused), is_text=True, texts=("row",))
