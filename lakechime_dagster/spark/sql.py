"""Runs queries as they are written over bound inputs; Java classes compiled in the JVM of a
session.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast
from weakref import WeakKeyDictionary

from pyspark import SparkContext
from pyspark.sql import Column, DataFrame, SparkSession

from lakechime_dagster.errors import DeclarationError


def kept_in_jvm(
    spark: SparkSession,
    class_name: str,
    sources: Sequence[str],
    keep: Callable[[Any, str], Any],
    *,
    of: str = "",
) -> Any:
    """The object of a class that is kept in the session's JVM, made there once for all clients by
    this revision of its sources.

    Args:
        spark: A session of the JVM.
        class_name: The class.
        sources: Each compiled with those before it.
        keep: Keeps a new object in the JVM's properties by a name, and returns what is kept.
        of: Whose it is, where others have one of their own.
    """
    java = cast(Any, spark)._jvm.java.lang
    digest = hashlib.sha256("\0".join((spark.version, *sources)).encode()).hexdigest()
    name = ".".join(filter(None, (class_name, digest[:16], of)))
    found = java.System.getProperties().get(name)
    if found is not None:
        return found
    loader = java.Thread.currentThread().getContextClassLoader()  # which all sessions share
    return keep(made(spark.sparkContext, loader, sources, class_name), name)


def made(context: Any, loader: Any, sources: Iterable[str], name: str) -> Any:
    """A new object of a class of these sources, each compiled with those before it and what the
    loader has.
    """
    for source in sources:
        compiler = context._jvm.org.codehaus.janino.SimpleCompiler()
        compiler.setParentClassLoader(loader)
        compiler.cook(source)
        loader = compiler.getClassLoader()
    maker = loader.loadClass(name).getDeclaredConstructor(
        context._gateway.new_array(context._jvm.java.lang.Class, 0)
    )
    return maker.newInstance(context._gateway.new_array(context._jvm.java.lang.Object, 0))


SOURCE = Path(__file__).with_name("SqlBinder.java")


def sql_over(
    spark: SparkSession, declared: str, sql: str, frames: Mapping[str, DataFrame]
) -> DataFrame:
    """The query over frames by the names of its tables; in it a frame is called as the query calls
    the table.

    Raises:
        DeclarationError: of what is `declared`: for text that is no query, or that reads anything
            but these tables.
        ParseException: for text that is no Spark SQL.
    """
    binder, session = _binder(spark), cast(Any, spark)._jsparkSession
    plan = binder.parsed(session, sql)
    refused = binder.refused(plan)
    if refused is not None:
        raise DeclarationError(
            declared,
            "sql",
            f"{refused}: write one SELECT over tables of the lake, which the run pins",
        )
    is_exact = spark.conf.get("spark.sql.caseSensitive") == "true"
    plans: dict[str, Any] = {}
    for name in binder.tables(plan):
        if (found := _called(name, frames, is_exact)) is None:
            problem = (
                f"reads {name} as Spark parses it, which is no input; the inputs are "
                f"{', '.join(frames)}"
            )
            raise DeclarationError(
                declared, "sql", f"{problem}. Name it in reads=, or add its declaration to the lake"
            )
        plans[name] = cast(Any, frames[found])._jdf.queryExecution().analyzed()
    return DataFrame(binder.bound(session, plan, plans), spark)


def grouped_by(
    spark: SparkSession, sql: str, columns: Mapping[str, Mapping[str, str]]
) -> dict[str, Column]:
    """Columns of a grouped query as terms over one table: by name, with a column for each that the
    term mentions, in lower case.
    """
    binder = _binder(spark)
    plan = binder.parsed(cast(Any, spark)._jsparkSession, sql)
    return {name: Column(binder.grouped_by(plan, name, dict(own))) for name, own in columns.items()}


def _called(name: str, frames: Iterable[str], is_exact: bool) -> str | None:
    """The frame that a name means, in letters of whatever case unless Spark is exact about that."""
    exact = (one for one in frames if one == name)
    folded = (one for one in frames if not is_exact and one.lower() == name.lower())
    return next(exact, next(folded, None))


_binders: WeakKeyDictionary[SparkContext, Any] = WeakKeyDictionary()
"""What binds in the contexts that this process has met."""


def _binder(spark: SparkSession) -> Any:
    """The binder of this revision in the session's JVM, compiled there once for all clients."""
    context = spark.sparkContext
    if (found := _binders.get(context)) is None:
        found = _binders[context] = _looked_up(spark)
    return found


def _looked_up(spark: SparkSession) -> Any:
    def keep(binder: Any, name: str) -> Any:
        cast(Any, spark)._jvm.java.lang.System.getProperties().put(name, binder)
        return binder

    return kept_in_jvm(spark, "lakechime.sql.SqlBinder", [SOURCE.read_text(encoding="utf-8")], keep)
