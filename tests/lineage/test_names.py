import pytest

from lakechime_dagster.errors import InvalidValueError
from lakechime_dagster.lineage.columns import Names, external

NAMES = Names(
    ("bronze.flights", "gold.days"),
    locations={"gold.days": "s3a://lake/gold/days"},
    aliases={"hive.*": "*", "pg.public.*": "bronze.*", "reports.Daily": "gold.days"},
)


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("bronze.flights", "bronze.flights"),
        ("BRONZE.Flights", "bronze.flights"),
        ("spark_catalog.bronze.flights", "bronze.flights"),
        ("hive.bronze.flights", "bronze.flights"),
        ("pg.public.flights", "bronze.flights"),
        ("reports.daily", "gold.days"),
        ("flights", None),
        ("hive.flights", None),
    ],
)
def test_a_table_goes_by_its_name_or_by_an_alias(said: str, meant: str | None) -> None:
    assert NAMES.of(said) == meant


@pytest.mark.parametrize(
    "location", ["s3://lake/gold/days", "s3a://lake//gold/days/", "S3N://lake/gold/days"]
)
def test_a_table_goes_by_where_it_lies(location: str) -> None:
    assert NAMES.at(location) == "gold.days"
    scheme, _, path = location.partition("://lake")
    assert NAMES.of_dataset(f"{scheme}://lake", path) == "gold.days"


def test_a_data_set_of_a_namespace_goes_by_its_name_there() -> None:
    assert NAMES.of_dataset("trino://host:8080", "hive.bronze.flights") == "bronze.flights"
    assert NAMES.of_dataset("postgres://db:5432", "shop.orders") is None
    assert external("postgres://db:5432/", "shop.orders") == "postgres://db:5432/shop.orders"


def test_an_alias_of_all_names_below_means_all_names_below() -> None:
    with pytest.raises(InvalidValueError, match="end both with"):
        Names(aliases={"hive.*": "gold.days"})
