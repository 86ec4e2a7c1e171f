"""Accounts that write tables: what is declared, and what a session gets of it."""

import re
from collections.abc import Callable
from pathlib import Path

import dagster as dg
import pytest

from lakechime_dagster.definitions import build_definitions
from lakechime_dagster.errors import DeclarationError
from lakechime_dagster.tables.declare import sql_table
from lakechime_dagster.tables.lake import Lake
from lakechime_dagster.tables.names import Account
from lakechime_dagster.tables.options import Storage
from lakechime_dagster.tables.tables import SourceTable

WRITER = Account("shop-writer", {"fs.s3a.access.key": "$SHOP_KEY", "fs.s3a.endpoint": "https://store"})


def test_a_session_gets_the_settings_and_a_file_system_of_its_own() -> None:
    found = WRITER.confs("s3a://lake/shop/orders", {"SHOP_KEY": "secret"})
    assert found == {"fs.s3a.impl.disable.cache": "true", "fs.s3a.access.key": "secret", "fs.s3a.endpoint": "https://store"}
    assert "fs.s3a" not in repr(WRITER)


@pytest.mark.parametrize("location", ["/lake/orders", "lake/orders", "file:///lake/orders", "hdfs://names/lake/orders"])
def test_an_account_that_has_no_effect_is_refused(location: str) -> None:
    settings = {"fs.permissions.umask-mode": "077", **WRITER.settings}
    writer = Account("shop-writer", settings)
    with pytest.raises(DeclarationError, match=r"a\.b, write_as: fs\.s3a\.access\.key of Account\('shop-writer'\) has no effect at"):
        sql_table("a.b", sql="SELECT n FROM a.c", storage=Storage(write_as=writer, location=location))
    with pytest.raises(DeclarationError, match="has no effect"):
        writer.confs(location, {"SHOP_KEY": "secret"})
    assert Account("shop-writer", {"fs.permissions.umask-mode": "077"}).confs(location, {})["fs.permissions.umask-mode"] == "077"


def test_an_account_that_has_no_effect_in_the_warehouse_is_refused_at_loading(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    lake = Lake("shop", [SourceTable("a.c"), sql_table("a.b", sql="SELECT n FROM a.c", storage=Storage(write_as=WRITER))])
    monkeypatch.setenv("LAKECHIME_WAREHOUSE", str(tmp_path))
    with pytest.raises(DeclarationError, match=r"a\.b, write_as: fs\.s3a"):
        build_definitions(lake)
    monkeypatch.setenv("LAKECHIME_WAREHOUSE", "s3a://lake")
    assert build_definitions(lake).resolve_asset_graph().has(dg.AssetKey(["a", "b"]))


WRONG: list[tuple[Callable[[], object], str]] = [
    (lambda: Account(" ", {"fs.a": "b"}), "Account, name: ' ' is no name, such as shop-writer"),
    (lambda: Account("a", {}), "Account, settings: is no map of settings, such as {'fs.s3a.access.key': '$SHOP_KEY'}"),
    (lambda: Account("a", {"spark.x": "b"}), "Account, settings: 'spark.x' is none of a file system's, which begin with fs."),
    (lambda: Account("a", {"fs.x": 5}), "Account, settings: the value of fs.x is no text, or $NAME of a variable"),  # type: ignore[dict-item]
    (
        lambda: sql_table("a.b", sql="SELECT n FROM a.c", storage=Storage(write_as="x")),  # type: ignore[arg-type]
        "a.b, write_as: 'x' is no Account(name, {'fs.…': …})",
    ),
]


@pytest.mark.parametrize(("declare", "said"), WRONG, ids=[said[:40] for _, said in WRONG])
def test_what_cannot_work_is_refused(declare: Callable[[], object], said: str) -> None:
    with pytest.raises(DeclarationError, match=re.escape(said)):
        declare()
