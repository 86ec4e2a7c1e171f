"""Places of a database's log as the connector tells them."""

import pytest

from lakechime_dagster.cdc.comparing.log_place import BinlogPlace, WalPlace
from lakechime_dagster.cdc.comparing.repair import UnrepairableError, Words, words_of
from lakechime_dagster.cdc.comparing.told_place import cut_at
from tests.cdc.factories import BINLOG, WAL, envelope_schema, make_payload, make_record


def words(**source: object) -> Words:
    return words_of("shop.orders", make_record(make_payload(source=source), schema=envelope_schema()), None)


def test_a_place_of_postgresql_is_above_what_was_told_and_below_what_comes_later() -> None:
    assert cut_at(words(**WAL), WalPlace(500), 90) == {"lsn": 499, "sequence": '["90","499"]', "txId": None}


def test_a_place_of_a_binary_log_is_its_own() -> None:
    assert cut_at(words(**BINLOG), BinlogPlace((12, 345)), 0) == {"file": "mysql-bin.000012", "pos": 345, "row": 0}


def test_a_place_of_another_server_than_the_connectors_is_refused() -> None:
    remedy = r"let Monitor\(database=…\) name the server that the connector reads"
    with pytest.raises(
        UnrepairableError, match=rf"shop\.orders: .* told of log 0/5A, to which the database, at log 0/59, has not .*{remedy}"
    ):
        cut_at(words(**WAL), WalPlace(89), 90)
    with pytest.raises(UnrepairableError, match=rf"its messages are those of mariadb, and log 0/1F4 is no place of it; {remedy}"):
        cut_at(words(**BINLOG), WalPlace(500), 0)
    with pytest.raises(UnrepairableError, match=rf"its messages are those of postgresql, and binlog 12:345 is no place of it; {remedy}"):
        cut_at(words(**WAL), BinlogPlace((12, 345)), 90)
