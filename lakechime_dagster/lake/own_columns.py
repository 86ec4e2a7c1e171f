"""The names of columns that a CDC table has beside those of its database's table, and those that it cannot have."""

from lakechime_dagster.lake.names import folded

START_AT, END_AT, START_SEQ, END_SEQ = SPAN = ("__START_AT", "__END_AT", "__START_SEQ", "__END_SEQ")  # of a row of a history
DELETED_AT = "__DELETED_AT"  # of a row that stays though the database deleted it: when that was; null of one that is there
HIDDEN = "__cdc"  # what is known of a row beside its values; see `cdc.wire.image_text`
OWN_COLUMNS = frozenset((*SPAN, DELETED_AT, HIDDEN))
_OWN = {folded(name) for name in OWN_COLUMNS}
_OF_DELTA = {  # which a MERGE, its deletion vectors or the change data feed add to rows while they work
    "_metadata", "_change_type", "_commit_version", "_commit_timestamp", "_row_id_", "_file_name_", "_source_row_present_",
    "_target_row_present_", "_row_dropped_", "__delta_internal_is_row_deleted", "_tmp_metadata_row_index", "filepath",
    "deletionvectorid", "rowindexcol",
}  # fmt: skip
_OF_WRITES = "__lakechime_"  # what those begin with that our own writes add
_CHARACTERS = " ,;{}()\n\t="  # which no name in a Delta table has, nor one in a struct


def is_own_column(name: str) -> bool:
    """Whether a name is that of one of them, in letters of whatever case: Spark takes names for one that differ in that alone."""
    return folded(name) in _OWN


def why_refused(name: str) -> str | None:
    """Why a table cannot have a column of this name; None where it can."""
    if is_own_column(name) or folded(name).startswith(_OF_WRITES):
        return "CDC tables have columns of that name themselves"
    if folded(name) in _OF_DELTA:
        return "Delta has columns of that name"
    if "`" in name:
        return "a MERGE of Delta does not find a name with a backtick"
    return refused_characters(name)


def refused_characters(name: str) -> str | None:
    """Why a column, or a field of a struct, cannot have this name in a Delta table; None where it can."""
    found = [one for one in _CHARACTERS if one in name]
    return f"Delta takes no {', '.join(map(repr, found))} in names" if found else None
