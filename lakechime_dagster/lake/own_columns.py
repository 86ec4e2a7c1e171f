"""The columns that a table that follows a database has beside those of its database's table."""

START_AT, END_AT, START_SEQ, END_SEQ = SPAN = ("__START_AT", "__END_AT", "__START_SEQ", "__END_SEQ")  # of a row of a history
DELETED_AT = "__DELETED_AT"  # of a row that stays though the database deleted it: when that was; null of one that is there
HIDDEN = "__cdc"  # what is known of a row beside its values; see `cdc.wire.image_text`
OWN_COLUMNS = frozenset((*SPAN, DELETED_AT, HIDDEN))
_OWN = {name.lower() for name in OWN_COLUMNS}


def is_own_column(name: str) -> bool:
    """Whether a name is that of one of them, in letters of whatever case: Spark takes names for one that differ in that alone."""
    return name.lower() in _OWN
