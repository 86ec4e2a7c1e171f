"""Every change of a table's schema that the long test makes, and whether messages alone report what
it did to rows.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tests.long.databases import PARTED


@dataclass
class Columns:
    """The columns that were added to a table, and how often others were changed.

    `added` has by name whether its type can still be widened.
    """

    added: dict[str, bool] = field(default_factory=dict)
    made: int = 0
    scale: int = 2
    length: int = 40

    def new(self, *, is_wide: bool = False) -> str:
        self.made += 1
        name = f"extra_{self.made}"
        self.added[name] = not is_wide
        return name

    @property
    def narrow(self) -> str | None:
        """The oldest column of a type that can be widened."""
        return next((name for name, is_narrow in self.added.items() if is_narrow), None)


Statements = Callable[[Columns], str | None]  # None: there is nothing to do that to yet


def add(columns: Columns) -> str:
    return f"ALTER TABLE orders ADD COLUMN {columns.new()} INT"


def add_with_default(columns: Columns) -> str:
    return f"ALTER TABLE orders ADD COLUMN {columns.new()} INT NOT NULL DEFAULT 5"


def drop(columns: Columns) -> str | None:
    if not columns.added:
        return None
    name = next(iter(columns.added))
    del columns.added[name]
    return f"ALTER TABLE orders DROP COLUMN {name}"


def rename(columns: Columns) -> str | None:
    if not columns.added:
        return None
    old = next(iter(columns.added))
    is_narrow = columns.added.pop(old)
    return f"ALTER TABLE orders RENAME COLUMN {old} TO {columns.new(is_wide=not is_narrow)}"


def truncate(_: Columns) -> str:
    return "TRUNCATE TABLE orders"


def index(columns: Columns) -> str:
    columns.made += 1
    return f"CREATE INDEX orders_{columns.made} ON orders (customer)"


def _widen(template: str) -> Statements:
    def widen(columns: Columns) -> str | None:
        name = columns.narrow
        if name is None:
            return None
        columns.added[name] = False
        return template.format(name=name)

    return widen


def _scale(template: str) -> Statements:
    def scale(columns: Columns) -> str | None:
        if columns.scale > 6:
            return None
        columns.scale += 1
        return template.format(precision=10 + columns.scale, scale=columns.scale)

    return scale


def _lengthen(template: str) -> Statements:
    def lengthen(columns: Columns) -> str:
        columns.length += 10
        return template.format(length=columns.length)

    return lengthen


def _add_computed(default: str) -> Statements:
    return lambda columns: (
        f"ALTER TABLE orders ADD COLUMN {columns.new(is_wide=True)} BIGINT NOT NULL DEFAULT "
        f"{default}"
    )


def _rewrite(columns: Columns) -> str | None:
    """Another value in each row, as a type is changed."""
    name = columns.narrow
    if name is None:
        return None
    columns.added[name] = False
    return f"ALTER TABLE orders ALTER COLUMN {name} TYPE BIGINT USING {name} + 1000"


def _truncate_partition(_: Columns) -> str:
    return "ALTER TABLE orders TRUNCATE PARTITION parted"


SAME: Mapping[str, Statements] = {
    "add a column": add,
    "add a column with a default": add_with_default,
    "drop a column": drop,
    "truncate": truncate,
    "create an index": index,
}
REPORTED: Mapping[str, Mapping[str, Statements]] = {  # by database what its messages report
    "mariadb": {
        **SAME,
        "widen a column": _widen("ALTER TABLE orders MODIFY {name} BIGINT"),
        "change a scale": _scale(
            "ALTER TABLE orders MODIFY amount DECIMAL({precision},{scale}) NOT NULL"
        ),
        "lengthen a text": _lengthen(
            "ALTER TABLE orders MODIFY customer VARCHAR({length}) NOT NULL"
        ),
    },
    "postgres": {
        **SAME,
        "widen a column": _widen("ALTER TABLE orders ALTER COLUMN {name} TYPE BIGINT"),
        "change a scale": _scale(
            "ALTER TABLE orders ALTER COLUMN amount TYPE NUMERIC({precision},{scale})"
        ),
        "lengthen a text": _lengthen(
            "ALTER TABLE orders ALTER COLUMN customer TYPE VARCHAR({length})"
        ),
    },
}
UNREPORTED: Mapping[
    str, Mapping[str, Statements]
] = {  # what no message reports of rows that are not touched: a comparison does, a repair mends
    "mariadb": {
        "rename a column": rename,
        "add a computed default": _add_computed("(id + 1)"),
        "truncate a partition": _truncate_partition,
    },
    "postgres": {
        "rename a column": rename,
        "add a computed default": _add_computed(
            "(extract(epoch FROM clock_timestamp()) * 1000)::bigint"
        ),
        "rewrite a column": _rewrite,
    },
}
# the ids of rows that go
EMPTIED: Mapping[str, range] = {
    "truncate": range(PARTED * 2),
    "truncate a partition": range(PARTED, PARTED * 2),
}
