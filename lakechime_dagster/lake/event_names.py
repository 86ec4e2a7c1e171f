"""Names of tables for types of events, and of columns for fields: each of its own, and known again.

Column names hold what every reader of Delta and Parquet takes without column mapping. What they cannot hold is told by the code
of its character, `_x20_` for a space, from which the field's own name is read back.
"""

import re
from hashlib import sha256

from lakechime_dagster.lake.names import RESERVED

MAX_TABLE = 80  # characters of a table's name
MAX_COLUMN = 128
SIBLING = "__v_"  # between a column's name and the kind of the values that the column itself cannot hold
_DIGITS = 12  # of a digest
_WORDS = re.compile(r"[a-z0-9]+([._][a-z0-9]+)*", re.ASCII)
_DIGESTED = re.compile(rf"__[0-9a-f]{{{_DIGITS}}}$")
_CODE = re.compile(r"_x([0-9a-f]+)_")
_LIKE_CODE = re.compile(r"_x[0-9a-f]+(?![^\W_])")  # with an underscore behind it, its own or a code's, it would be read as one
_NAMELESS = "_x_"  # of the field without a name


def table_of(type_name: str) -> str:
    """The name of the table of a type: of `[a-z0-9_]`, at most `MAX_TABLE` characters, no two types of one.

    Words with single underscores and dots between them are kept, a dot as two underscores. Of any other name a digest stands
    behind what is left of it; a kept one never ends as such a one does, nor as tables that come beside others.
    """
    plain = type_name.replace(".", "__")
    is_taken = _DIGESTED.search(plain) or plain.endswith(tuple(RESERVED))
    if _WORDS.fullmatch(type_name) and len(plain) <= MAX_TABLE and not is_taken:
        return plain
    return _with_digest(re.sub(r"[^a-z0-9_]", "_", type_name.lower()), type_name, MAX_TABLE)


def column_of(field: str) -> str:
    """The name of the column of a field: its own, with codes for what no name of a column may hold.

    It begins as no technical column does, and holds no `SIBLING`. One longer than `MAX_COLUMN` is cut, with a digest of the
    field's name behind it.
    """
    if not field:
        return _NAMELESS
    coded = "".join(one if _is_kept(field, at) else f"_x{ord(one):x}_" for at, one in enumerate(field))
    return coded if len(coded) <= MAX_COLUMN else _with_digest(coded, field, MAX_COLUMN)


def field_of(column: str) -> str:
    """The name of the field of a column that is not cut."""
    return "" if column == _NAMELESS else _CODE.sub(lambda code: chr(int(code[1], 16)), column)


def _is_kept(field: str, at: int) -> bool:
    """Whether a character stands for itself; an underscore does not where one would be read as something else."""
    if field[at] != "_":
        return field[at].isalnum()
    return at > 0 and not _LIKE_CODE.match(field, at) and not field.startswith(SIBLING, at)


def _with_digest(text: str, name: str, length: int) -> str:
    digest = sha256(name.encode(errors="surrogatepass")).hexdigest()[:_DIGITS]
    return f"{text[: length - _DIGITS - 2]}__{digest}"
