"""Which columns are personal is said of every kind of table, and what would give their values away
is refused.
"""

import re
from collections.abc import Callable
from typing import Any

import pytest

from lakechime_dagster.errors import DeclarationError
from lakechime_dagster.tables.cdc import CDCMerge, CDCTable, cdc_table
from lakechime_dagster.tables.databases import Debezium
from lakechime_dagster.tables.declare import sql_table
from lakechime_dagster.tables.events import event_group, event_stream
from lakechime_dagster.tables.options import Asset, Personal, Storage, personal
from lakechime_dagster.tables.sources import JsonLines
from lakechime_dagster.tables.tables import SourceTable
from tests.support.declaring import grouped
from tests.tables.tables import make_table

EMAIL = personal("email")
GAME = event_stream("game", source=JsonLines("in"))


def followed(**options: Any) -> CDCTable:
    return cdc_table(
        "silver.people",
        source=JsonLines("in"),
        envelope=Debezium(),
        **grouped(**{"merge": CDCMerge(keys=("id",)), **options}),
    )


def sql(text: str = "SELECT id, email FROM bronze.people", **options: Any) -> Any:
    return sql_table("silver.people", sql=text, **grouped(**options))


def test_columns_of_every_kind_of_table_are_tagged() -> None:
    assert SourceTable("bronze.people", asset=Asset(columns={"email": EMAIL})).personal == {
        "email": EMAIL
    }
    assert sql(columns={"email": EMAIL}).personal == {"email": Personal("email")}
    assert make_table(columns={"email": EMAIL}).personal == {"email": EMAIL}
    assert event_group("shop", GAME, columns={"/user/email": EMAIL}).personal == {
        "/user/email": EMAIL
    }


def test_a_column_of_a_followed_table_may_be_renamed_and_personal() -> None:
    table = followed(names={"mail": "email"}, columns={"email": EMAIL, "phone": personal("phone")})
    assert table.names == {"mail": "email"}
    assert table.personal == {"email": EMAIL, "phone": personal("phone")}


REFUSED: list[tuple[Callable[[], object], str]] = [
    (lambda: personal("E-Mail"), "personal(), category: 'E-Mail' is no word of small letters"),
    (lambda: personal(""), "personal(), category: ''"),
    (
        lambda: SourceTable("a.b", asset=Asset(columns={"email": "email"})),  # pyright: ignore[reportArgumentType]
        "a.b, columns: 'email' of 'email' is no personal(",
    ),
    (
        lambda: SourceTable("a.b", asset=Asset(columns=["email"])),  # pyright: ignore[reportArgumentType]
        "a.b, columns: ['email'] is no map of columns",
    ),
    (
        lambda: SourceTable("a.b", asset=Asset(columns={"email": EMAIL, "EMAIL": EMAIL})),
        "names column 'EMAIL' twice",
    ),
    (
        lambda: SourceTable("a.b", asset=Asset(columns={"payload:user": EMAIL})),
        "'payload:user' is no column; write such as",
    ),
    (
        lambda: SourceTable(
            "a.b",
            storage=Storage(partitioned_by={"email": "string"}),
            asset=Asset(columns={"Email": EMAIL}),
        ),
        "'Email' is a partition level",
    ),
    (
        lambda: SourceTable(
            "a.b",
            storage=Storage(partitioned_by={"kapi": "string"}),
            asset=Asset(columns={"kapı": EMAIL}),
        ),
        "is a partition level",
    ),
    (
        lambda: SourceTable("a.b", asset=Asset(columns={"email": EMAIL}, public=True)),
        "a.b, public: is for everybody, and 'email' is personal",
    ),
    (
        lambda: SourceTable("a.b", asset=Asset(public="yes")),  # pyright: ignore[reportArgumentType]
        "a.b, public: 'yes' is neither True nor False",
    ),
    (
        lambda: sql(columns={"mail": EMAIL}),
        "silver.people, columns: 'mail' is no column of it; it has id, email",
    ),
    (lambda: sql(columns={"email": EMAIL}, public=True), "silver.people, public: is for everybody"),
    (
        lambda: make_table(columns={"born": personal("birth_date")}, watermark="born"),
        "watermark: names 'born', which is personal",
    ),
    (
        lambda: followed(columns={"email": EMAIL}, cluster_by=["email"]),
        "cluster_by: names 'email', which is personal",
    ),
    (
        lambda: followed(columns={"email": EMAIL}, public=True),
        "silver.people, public: is for everybody",
    ),
    (
        lambda: followed(
            columns={"email": EMAIL}, merge=CDCMerge(keys=("id",), except_column_list=("email",))
        ),
        "'email' is personal, and merge.column_list leaves it out",
    ),
    (
        lambda: event_group("shop", GAME, columns={"$.email": EMAIL}),
        "shop, columns: '$.email' is no path; write such as '/user/email'",
    ),
    (
        lambda: event_group("shop", GAME, columns={"/email": "email"}),  # pyright: ignore[reportArgumentType]
        "'email' of '/email' is no personal(",
    ),
]


@pytest.mark.parametrize(("declare", "message"), REFUSED, ids=[message for _, message in REFUSED])
def test_what_cannot_be_is_refused_with_the_field(
    declare: Callable[[], object], message: str
) -> None:
    with pytest.raises(DeclarationError, match=re.escape(message)):
        declare()


def test_a_query_that_takes_all_columns_may_have_any_personal_one() -> None:
    assert sql("SELECT * FROM bronze.people", columns={"mail": EMAIL}).personal == {"mail": EMAIL}
