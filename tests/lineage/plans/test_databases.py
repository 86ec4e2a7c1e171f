"""A table of a database has the name that OpenLineage gives it, and one of another catalog that of
its catalog too.
"""

import pytest

from lakechime_dagster.lineage.columns import Names
from lakechime_dagster.lineage.plan_dump import data_set_of, location_of


@pytest.mark.parametrize(
    ("database", "table", "name"),
    [
        ("postgresql://db/crm", "public.users", "postgres://db:5432/crm.public.users"),
        ("postgresql://db:6432/crm", '"public"."Users"', "postgres://db:6432/crm.public.Users"),
        ("mysql://db/shop", "orders", "mysql://db:3306/shop.orders"),
        ("mariadb://db/shop", "`other`.`orders`", "mysql://db:3306/other.orders"),
        ("sqlserver://db/crm", "[dbo].[users]", "mssql://db:1433/crm.dbo.users"),
        ("oracle://db:1521/sales", "hr.staff", "oracle://db:1521/sales.hr.staff"),
        ("h2:mem:shop", "ORDERS", "h2:mem:shop/ORDERS"),
    ],
)
def test_a_table_of_a_database_has_the_name_that_openlineage_gives_it(
    database: str, table: str, name: str
) -> None:
    assert "/".join(data_set_of(database, table)) == name


def test_it_is_a_table_of_the_lake_by_its_alias_alone_and_not_by_a_like_name() -> None:
    location = location_of(
        {"relation": {"o": "JDBCRelation", "database": "mysql://db/shop", "table": "shop.orders"}}
    )
    assert location.named(Names(tables=("shop.orders",))) == ("mysql://db:3306/shop.orders", False)
    aliased = Names(tables=("bronze.orders",), aliases={"mysql://db:3306/shop.*": "bronze.*"})
    assert location.named(aliased) == ("bronze.orders", True)
