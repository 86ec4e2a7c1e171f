"""A digest of the code of a table, equal as long as it says the same: neither comments nor docstrings nor layout count."""

import ast
import hashlib
import inspect
import textwrap
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import sqlglot
from sqlglot.errors import SqlglotError

from lakechime_dagster.lake.sql import DIALECT
from lakechime_dagster.lake.tables import LakeTable

DIGITS = 16
DOCUMENTED = (ast.Module, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def code_digest(table: LakeTable) -> str:
    """The digest of a table's SQL, or of its function and of the module that this is in, whose other functions it may call."""
    if table.sql is not None:
        return _digest(_said_of_sql(table.sql))
    return "" if table.compute is None else _digest_of(table.compute)


def _said_of_sql(sql: str) -> str:
    try:
        return ";".join(one.sql(dialect=DIALECT, comments=False) for one in sqlglot.parse(sql, dialect=DIALECT) if one is not None)
    except SqlglotError:
        return sql


def _digest_of(function: Callable[..., Any]) -> str:
    function = inspect.unwrap(function)
    module = inspect.getmodule(function)
    for of in (module, function):
        try:
            return _digest_of_source(inspect.getsource(of))  # type: ignore[arg-type]
        except (OSError, TypeError, SyntaxError):
            continue  # such as typed in a shell
    code = getattr(function, "__code__", None)
    return _digest(repr((code.co_code, code.co_names, code.co_consts)) if code is not None else repr(type(function)))


@lru_cache(maxsize=64)  # a module holds many tables
def _digest_of_source(source: str) -> str:
    return _digest(ast.dump(_without_docstrings(ast.parse(textwrap.dedent(source)))))


def _without_docstrings(tree: ast.AST) -> ast.AST:
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if (
            isinstance(node, ast.Module | ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef)
            and body
            and ast.get_docstring(node) is not None
        ):
            node.body = body[1:]
    return tree


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:DIGITS]
