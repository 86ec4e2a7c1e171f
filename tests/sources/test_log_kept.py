"""What real databases keep of their logs."""

import pytest

from lakechime_dagster.cdc.database import KeptBinlog, log_kept
from lakechime_dagster.errors import SourceUnreadableError
from tests.sources.test_cut import on_postgres
from tests.support.mariadb import CAPTURE_USER, MariaDB

pytestmark = pytest.mark.services


def test_mariadb_tells_its_files_and_how_long_it_keeps_them(mariadb: MariaDB) -> None:
    url = f"mysql+pymysql://{CAPTURE_USER}:{CAPTURE_USER}@127.0.0.1:{mariadb.port}/"
    admin = mariadb.session()
    before = log_kept(url)
    admin.run("FLUSH BINARY LOGS")
    (seconds,) = admin.run("SELECT @@expire_logs_days * 86400")
    after = log_kept(url)
    assert isinstance(before, KeptBinlog)
    assert after == KeptBinlog(oldest=before.oldest, newest=before.newest + 1, seconds=int(float(seconds)) or None)
    admin.run("CREATE USER log_reader@'127.0.0.1' IDENTIFIED BY 'secret'", "GRANT SELECT ON *.* TO log_reader@'127.0.0.1'")
    with pytest.raises(SourceUnreadableError, match="Access denied") as refused:
        log_kept(url.replace(f"{CAPTURE_USER}:{CAPTURE_USER}", "log_reader:secret"))
    assert "secret" not in str(refused.value)
    admin.run("DROP USER log_reader@'127.0.0.1'")
    admin.close()


def test_postgresql_tells_of_the_slots_of_the_database(postgres_url: str) -> None:
    with on_postgres(postgres_url) as database:
        (level,) = database.run("SHOW wal_level")
        assert log_kept(database.url) == ()
        if level == "logical":
            database.run("SELECT pg_create_logical_replication_slot('kept', 'pgoutput')")
            (slot,) = log_kept(database.url)  # type: ignore[misc]
            database.run("SELECT pg_drop_replication_slot('kept')")
            assert (slot.name, slot.is_active, slot.status) == ("kept", False, "reserved")
