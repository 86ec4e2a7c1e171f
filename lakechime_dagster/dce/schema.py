"""Tables of events in the store."""

from sqlalchemy import (
    JSON,
    Column,
    ForeignKey,
    Identity,
    Index,
    LargeBinary,
    MetaData,
    SmallInteger,
    String,
    Table,
    Text,
    UniqueConstraint,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB

from lakechime_dagster.dce.engine import BIG, StoreNow, TransactionId

DOCUMENT = JSON().with_variant(JSONB(), "postgresql")
metadata = MetaData(
    naming_convention={
        "pk": "%(table_name)s_pk",
        "uq": "%(table_name)s_%(column_0_N_name)s_key",
        "fk": "%(table_name)s_%(column_0_N_name)s_fk",
        "ck": "%(table_name)s_%(constraint_name)s_check",
        "ix": "%(table_name)s_%(column_0_N_name)s",
    }
)

# A table that events speak of. `version` rises with levels and uid: who registers proves that it
# knows the newest.
dce_table = Table(
    "dce_table",
    metadata,
    Column("table_id", BIG, Identity(), primary_key=True),
    Column("cluster", String(128), nullable=False, server_default=text("''")),
    Column("name", String(512), nullable=False),
    Column("levels", DOCUMENT),  # [[name, type], …]; NULL: not declared
    Column("table_uid", String(128)),
    Column("seen", String(128)),  # the snapshot up to which capture has registered every commit
    Column("version", BIG, nullable=False, server_default=text("0")),
    Column("dropped_ts", BIG),  # when its folders were put aside last
    # the one whose events trigger, since the table was migrated first; NULL: as declared
    Column("format", SmallInteger),
    Column("migration", DOCUMENT),  # an open one: `Migration.document`
    UniqueConstraint("cluster", "name"),
    sqlite_autoincrement=True,
)

# When a table became one of another format: up to the position the events of its name are those of
# the old one, from then on of the new one, which had the same rows then.
dce_switch = Table(
    "dce_switch",
    metadata,
    Column("switch_id", BIG, Identity(), primary_key=True),
    Column("table_id", BIG, nullable=False),
    Column("tx_id", BIG, nullable=False),
    Column("seq", BIG, nullable=False),
    Column("switch_ts", BIG, nullable=False, server_default=StoreNow()),
    Column("from_format", SmallInteger, nullable=False),
    Column("from_uid", String(128), nullable=False),
    Column("to_format", SmallInteger, nullable=False),
    Column("to_uid", String(128), nullable=False),
    Column("to_snapshot", String(128), nullable=False),
    sqlite_autoincrement=True,
)
Index("dce_switch_table", dce_switch.c.table_id, dce_switch.c.switch_id)

# What the files of the partitions of a Hive table were when its changes were captured last.
dce_listing = Table(
    "dce_listing",
    metadata,
    Column("table_id", BIG, primary_key=True, autoincrement=False),
    Column("partition_key", String(1024), primary_key=True),  # its values as JSON, as Hive has them
    Column("files", String(64), nullable=False),  # how many there are, and a digest
)

# Events in commit order: (tx_id, seq). Rows are added and compacted, never changed, but for the
# partition keys of a
# table whose levels are declared later and the keys of one whose uid becomes known.
dce_event = Table(
    "dce_event",
    metadata,
    Column("seq", BIG, Identity(), primary_key=True),
    Column("tx_id", BIG, nullable=False, server_default=TransactionId()),
    Column("event_ts", BIG, nullable=False, server_default=StoreNow()),
    # no foreign key: it would lock the table's row once more per event
    Column("table_id", BIG, nullable=False),
    # canonical; '' = unpartitioned
    Column("partition_key", String(512), nullable=False, server_default=text("''")),
    Column("partition_sent", Text),  # as JSON, where it differs from the canonical text
    Column("snapshot_id", String(128)),
    Column("snapshot_ts", BIG),
    Column("prev_snapshot_id", String(128)),
    Column("table_uid", String(128)),
    Column("table_format", SmallInteger, nullable=False),
    Column("operation_type", SmallInteger, nullable=False),
    Column("tags", DOCUMENT, nullable=False),
    # digest of the identity; unique also for amendments
    Column("event_key", LargeBinary(16), nullable=False),
    Column("producer_key", String(512)),
    Column("added_bytes", BIG),  # of the files that the commit added; NULL: not known
    Column("amends_tx", BIG),
    Column("amends_seq", BIG),
    UniqueConstraint("event_key"),
    sqlite_autoincrement=True,
)
Index("dce_event_feed", dce_event.c.tx_id, dce_event.c.seq).ddl_if(dialect="postgresql")
Index("dce_event_table", dce_event.c.table_id, dce_event.c.tx_id, dce_event.c.seq)
Index(
    "dce_event_partition",
    dce_event.c.table_id,
    dce_event.c.partition_key,
    dce_event.c.tx_id,
    dce_event.c.seq,
)
Index("dce_event_time", dce_event.c.event_ts, postgresql_using="brin")
Index(
    "dce_event_amends",
    dce_event.c.amends_seq,
    postgresql_where=dce_event.c.amends_seq.is_not(None),
    sqlite_where=dce_event.c.amends_seq.is_not(None),
)

# Old events that retention has moved here, with all their columns, in fewer indexes.
dce_compacted = Table(
    "dce_compacted",
    metadata,
    Column("seq", BIG, primary_key=True, autoincrement=False),
    Column("tx_id", BIG, nullable=False),
    Column("event_ts", BIG, nullable=False),
    Column("table_id", BIG, nullable=False),
    Column("partition_key", String(512), nullable=False),
    Column("partition_sent", Text),
    Column("snapshot_id", String(128)),
    Column("snapshot_ts", BIG),
    Column("prev_snapshot_id", String(128)),
    Column("table_uid", String(128)),
    Column("table_format", SmallInteger, nullable=False),
    Column("operation_type", SmallInteger, nullable=False),
    Column("tags", DOCUMENT, nullable=False),
    Column("event_key", LargeBinary(16), nullable=False),
    Column("producer_key", String(512)),
    Column("added_bytes", BIG),
    Column("amends_tx", BIG),
    Column("amends_seq", BIG),
    UniqueConstraint("event_key"),
)
Index("dce_compacted_partition", dce_compacted.c.table_id, dce_compacted.c.partition_key)
Index("dce_compacted_table", dce_compacted.c.table_id, dce_compacted.c.tx_id, dce_compacted.c.seq)
Index("dce_compacted_time", dce_compacted.c.event_ts, postgresql_using="brin")
Index(
    "dce_compacted_amends",
    dce_compacted.c.amends_seq,
    postgresql_where=dce_compacted.c.amends_seq.is_not(None),
    sqlite_where=dce_compacted.c.amends_seq.is_not(None),
)

HISTORY = (dce_event, dce_compacted)  # every event is in one of them, with its position

# The partitions that a consumer of a partition trigger stands for, by the text that the levels of
# their table give them.
lc_consumer_partition = Table(
    "lc_consumer_partition",
    metadata,
    Column("consumer_id", BIG, ForeignKey("lc_consumer.consumer_id"), primary_key=True),
    Column("cluster", String(128), primary_key=True),
    Column("table_name", String(512), primary_key=True),
    Column("partition_key", String(512), primary_key=True),
    Index("lc_consumer_partition_of", "table_name", "partition_key"),
)
