"""Java classes compiled in the JVM of a session, by the compiler that Spark itself brings, once for each revision of their sources."""

import hashlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast

from pyspark.sql import SparkSession


def kept_in_jvm(
    spark: SparkSession,
    class_name: str,
    sources: Sequence[str],
    keep: Callable[[Any, str], Any],
    *,
    of: str = "",
) -> Any:
    """The object of a class that is kept in the session's JVM, made there once for all clients by this revision of its sources.

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
    """A new object of a class of these sources, each compiled with those before it and what the loader has."""
    for source in sources:
        compiler = context._jvm.org.codehaus.janino.SimpleCompiler()
        compiler.setParentClassLoader(loader)
        compiler.cook(source)
        loader = compiler.getClassLoader()
    maker = loader.loadClass(name).getDeclaredConstructor(context._gateway.new_array(context._jvm.java.lang.Class, 0))
    return maker.newInstance(context._gateway.new_array(context._jvm.java.lang.Object, 0))
