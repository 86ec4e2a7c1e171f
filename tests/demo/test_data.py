"""The raw data: all of it, with keys that hold."""

from importlib import metadata

import duckdb
import pytest

from lakechime_dagster.demo.data import rows
from lakechime_dagster.demo.flights import silver_flights
from lakechime_dagster.demo.verify import BRONZE_KEYS
from lakechime_dagster.errors import NotFoundError


@pytest.mark.parametrize(
    ("table", "keys"),
    [("bronze.flights", silver_flights.keys), *BRONZE_KEYS.items()],
)
def test_keys_are_unique_over_the_whole_year(table: str, keys: tuple[str, ...]) -> None:
    with duckdb.connect() as connection:
        relation = connection.from_arrow(rows(table))
        assert relation.select(*map(duckdb.ColumnExpression, keys)).distinct().count("*").fetchone() == (rows(table).num_rows,)


def test_without_the_data_the_answer_names_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "files", lambda _: None)
    rows.cache_clear()
    with pytest.raises(NotFoundError, match=r"install lakechime-dagster\[demo\]"):
        rows("bronze.flights")
