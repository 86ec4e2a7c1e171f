"""Whether a text can be read as SQL at all, before it is: its size, its engine, no template; and by what it is known again."""

import logging
import re
from functools import cache
from hashlib import blake2b

import sqlglot
from sqlglot import TokenType, exp
from sqlglot.dialects.dialect import Dialect, Dialects
from sqlglot.errors import SqlglotError
from sqlglot.tokenizer_core import Token

from lakechime_dagster.errors import InvalidValueError

MAX_CHARACTERS = 1_000_000
MAX_TOKENS = 100_000
EXECUTED = "is a template, of which it is not known what ran; send the executed SQL, from the log of the engine"
_TEMPLATES = ("{{", "{%", "[[")
_LITERALS = frozenset(
    kind
    for name in ("STRING", "NUMBER", "BIT_STRING", "HEX_STRING", "BYTE_STRING", "NATIONAL_STRING", "RAW_STRING", "HEREDOC_STRING")
    if (kind := getattr(TokenType, name, None)) is not None
) | frozenset({TokenType.UNICODE_STRING})
_LISTS = frozenset({TokenType.GROUP_BY, TokenType.ORDER_BY})
_IN_LISTS = frozenset({TokenType.COMMA, TokenType.ASC, TokenType.DESC, TokenType.NUMBER, TokenType.VAR, TokenType.DOT})
_NAMED_BY = frozenset({TokenType.ALIAS, TokenType.FROM, TokenType.JOIN, TokenType.INTO, TokenType.TABLE})
_SPELLED = frozenset({TokenType.PIVOT, TokenType.UNPIVOT})

logging.getLogger("sqlglot").addFilter(lambda record: "unsupported syntax" not in record.msg)  # it shows the text, literals and all


def checked_dialect(dialect: object) -> str:
    """The name of an engine's SQL as sqlglot says it.

    Raises:
        InvalidValueError: naming those that there are.
    """
    if not isinstance(dialect, str) or dialect.lower() not in _dialects():
        raise InvalidValueError("dialect", dialect, f"is not known; use one of {', '.join(sorted(_dialects()))}")
    return dialect.lower()


@cache
def _dialects() -> frozenset[str]:
    return frozenset(one.value for one in Dialects if one.value and one.value not in ("prql", "dax", "tableau", "solr"))


def tokens_of(sql: object, dialect: str) -> list[Token]:
    """The words of a text.

    Raises:
        InvalidValueError: too long, a template, or cut off. No part of the text is in the message: its literals are personal.
    """
    if not isinstance(sql, str) or not sql.strip():
        raise InvalidValueError("sql", None if not isinstance(sql, str) else "", "is empty; send the text of a statement")
    if len(sql) > MAX_CHARACTERS:
        raise InvalidValueError("sql", f"of {len(sql):,} characters", f"is too long; at most {MAX_CHARACTERS:,} are read")
    try:
        found = Dialect.get_or_raise(dialect).tokenize(sql)
    except SqlglotError:
        raise InvalidValueError("sql", f"of {len(sql):,} characters", "is cut off, or not of this dialect; send all of it") from None
    if len(found) > MAX_TOKENS:
        raise InvalidValueError("sql", f"of {len(found):,} words", f"is too long; at most {MAX_TOKENS:,} are read")
    _check_template(found, sql)
    return found


def _check_template(found: list[Token], sql: str) -> None:
    """A brace or bracket doubled outside of literals is a template's, but for arrays of arrays, which close as they opened."""
    if not any(mark in sql for mark in _TEMPLATES):
        return
    plain = "".join(" " if token.token_type in _LITERALS else sql[token.start : token.end + 1] for token in found)
    literal = any(token.token_type in _LITERALS and re.search(r"\{\{.*\}\}|\{%.*%\}", token.text, re.DOTALL) for token in found)
    if literal or "{{" in plain or "{%" in plain or re.search(r"\[\[(?=\s*[A-Za-z]\w*\s)", plain):
        raise InvalidValueError("sql", f"of {len(sql):,} characters", EXECUTED)


def fingerprint(tokens: list[Token], dialect: str) -> str:
    """By what a statement is known again: its words without the values of literals, as far as these do not name columns.

    A digest, so that even a value that stands as a name, in a text of another dialect than is said, is kept nowhere.
    """
    spelled = any(token.token_type in _SPELLED for token in tokens)  # there literals become names of columns
    parts = [dialect]
    lists: list[bool] = [False]  # at each depth of parentheses, whether numbers are places of columns
    among: list[bool] = [False]  # likewise, whether this is behind IN
    before: TokenType | None = None
    for token in tokens:
        kind = token.token_type
        if kind is TokenType.L_PAREN:
            lists.append(False)
            among.append(before is TokenType.IN)
        elif kind is TokenType.R_PAREN:
            lists, among = lists[:-1] or [False], among[:-1] or [False]
        elif kind in _LISTS:
            lists[-1] = True
        elif kind not in _IN_LISTS:
            lists[-1] = lists[-1] and not _ends_list(token)
        if kind not in _LITERALS or spelled or before in _NAMED_BY or (kind is TokenType.NUMBER and lists[-1]):
            parts.append(token.text if kind not in _LITERALS else f"={token.text}")
        elif among[-1] and parts[-2:] == ["?", ","]:
            parts.pop()  # one more of a list of any length
        else:
            parts.append("?")
        before = kind
    return blake2b("\x00".join(parts).encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def _ends_list(token: Token) -> bool:
    return token.text.upper() in {"HAVING", "LIMIT", "UNION", "EXCEPT", "INTERSECT", "QUALIFY", "WINDOW", "OFFSET", "FETCH", "SELECT", ";"}


def parsed(sql: str, dialect: str) -> list[exp.Expr]:
    """The statements of a text.

    Raises:
        InvalidValueError: where it does not parse, by line and column, or is nested too deeply.
    """
    try:
        return [one for one in sqlglot.parse(sql, dialect=dialect) if one is not None]
    except SqlglotError as error:
        details = getattr(error, "errors", None) or [{}]
        place = f"at line {details[0].get('line')}, column {details[0].get('col')}" if details[0].get("line") else "somewhere"
        remedy = f"does not parse as {dialect} {place}; send the executed SQL whole, with the dialect of its engine"
        raise InvalidValueError("sql", f"of {len(sql):,} characters", remedy) from None
    except RecursionError:
        raise too_deep(sql) from None


def too_deep(sql: str) -> InvalidValueError:
    return InvalidValueError("sql", f"of {len(sql):,} characters", "is nested too deeply to be read; name a part of it in a WITH")
