"""Tokenizes payloads in the JVM of a session."""

import hashlib
import logging
import os
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from py4j.protocol import Py4JError
from pyspark.errors import PySparkAttributeError
from pyspark.sql import SparkSession

SOURCE = Path(__file__).with_name("JsonScan.java")
PACKAGE = "lakechime.events"
ROW = "reason STRING, type STRING, producer STRING, hash STRING, names_hash STRING, flags STRING"
JAVA = 8  # of the classes: any Java that runs Spark runs them, whichever compiled them

_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Tokenizer:
    """The tokenizer of one revision, in the JVM of the sessions that it was loaded for."""

    revision: str

    def registered(self, spark: SparkSession, type_field: tuple[str, ...], producer_field: tuple[str, ...]) -> str:
        """The name of a function of this session that makes a struct of `ROW` of a binary payload; anew it is the same one."""
        jvm: Any = spark._jvm
        gateway: Any = spark.sparkContext._gateway
        maker = _loaded(_loader(spark), self.revision).getDeclaredConstructor(gateway.new_array(jvm.java.lang.Class, 0))
        scan = maker.newInstance(gateway.new_array(jvm.java.lang.Object, 0))
        for name in type_field:
            scan = scan.withType(name.encode(errors="surrogatepass"))
        for name in producer_field:
            scan = scan.withProducer(name.encode(errors="surrogatepass"))
        row = jvm.org.apache.spark.sql.types.StructType.fromDDL(ROW)
        function = scan.asFunction(row)
        name = f"lakechime_json_scan_{self.revision}_{_digest(repr((type_field, producer_field)))}"
        session: Any = spark
        session._jsparkSession.udf().register(name, function)
        return name


def load_tokenizer(spark: SparkSession, folder: Path, log: Callable[[str], None] = _logger.warning) -> Tokenizer | None:
    """The tokenizer of this revision, made known to the session's JVM and its executors; None where that cannot be.

    Args:
        spark: A session of the JVM.
        folder: Where jars of tokenizers are kept; one that is there is not compiled again. The executors of a cluster read it
            from the driver for as long as the driver lives.
        log: Told, in one line, why there is none.
    """
    try:
        return Tokenizer(_load(spark, folder))
    except PySparkAttributeError:
        why = "a session of Spark Connect loads no classes"
    except (Py4JError, OSError) as error:
        why = f"Spark does not load our tokenizer: {_first_line(error)}"
    log(f"JSON is read in Python, many times slower, because {why}")
    return None


def _load(spark: SparkSession, folder: Path) -> str:
    source = SOURCE.read_text(encoding="utf-8")
    loader = _loader(spark)  # before its version is asked, which over Spark Connect is another process's
    revision = _digest(f"{spark.version}\0{source}")
    if not _is_known(loader, revision):
        _make_known(spark, _jar(spark, source, revision, folder))
        _loaded(loader, revision)
    return revision


def _jar(spark: SparkSession, source: str, revision: str, folder: Path) -> Path:
    """The jar of a revision, compiled if it is not there; of several processes that do so at once each writes the same."""
    jar = folder / f"json-scan-{revision}.jar"
    if not zipfile.is_zipfile(jar):
        folder.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=".json-scan-", dir=folder)
        with os.fdopen(handle, "wb") as stream, zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
            for class_name, code in _compiled(spark, source.replace(f"package {PACKAGE};", f"package {_package(revision)};")).items():
                archive.writestr(f"{class_name.replace('.', '/')}.class", code)
        Path(name).chmod(0o644)
        Path(name).replace(jar)
    return jar


def _compiled(spark: SparkSession, source: str) -> dict[str, bytes]:
    jvm: Any = spark._jvm
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setTargetVersion(JAVA)
    compiler.cook(source)
    return {str(name): bytes(code) for name, code in compiler.getBytecodes().items()}


def _make_known(spark: SparkSession, jar: Path) -> None:
    """As `ADD JAR` does it, which fails where the path has a space: it escapes it twice."""
    jvm: Any = spark._jvm
    context: Any = spark.sparkContext
    context._jsc.sc().addJar(str(jar.absolute()))
    _loader(spark).addURL(jvm.java.net.URI(jar.absolute().as_uri()).toURL())


def _is_known(loader: Any, revision: str) -> bool:
    try:
        _loaded(loader, revision)
    except Py4JError as error:
        if "ClassNotFoundException" not in _first_line(error):
            raise
        return False
    return True


def _loaded(loader: Any, revision: str) -> Any:
    return loader.loadClass(f"{_package(revision)}.JsonScan")


def _loader(spark: SparkSession) -> Any:
    """What loads the classes that any session of this JVM has added."""
    jvm, session = spark._jvm, cast(Any, spark)
    assert jvm is not None
    return session._jsparkSession.sharedState().jarClassLoader()


def _package(revision: str) -> str:
    return f"{PACKAGE}.r{revision}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:16]


def _first_line(error: Exception) -> str:
    cause = getattr(error, "java_exception", error)
    return next(iter(str(cause).splitlines()), type(error).__name__)
