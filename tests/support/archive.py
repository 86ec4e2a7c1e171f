"""The classes that Spark loads, as an archive that the JVMs of tests map instead of reading jars:
they start in half the time.

`python -m tests.support.archive` makes it once per Java and set of jars, in half a minute; without
it tests are slower, no more.
"""

import hashlib
import os
import sys
import tempfile
from pathlib import Path

from pyspark.sql import SparkSession

from lakechime_dagster.errors import SparkUnavailableError
from lakechime_dagster.settings import SparkSettings
from lakechime_dagster.spark.driver import connect
from lakechime_dagster.spark.jvm import Java, ensure_jars, find_java, pyspark_home, start_jvm

HOME = Path(__file__).parents[2] / ".lakechime"
JARS = Path(os.environ.get("LAKECHIME_SPARK_JARS") or HOME / "jars")
SHORT_LIVED = (
    # the optimising compiler costs a JVM of minutes more than it gives
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xmn256m"
    # without that compiler the room for code is a fifth of it, and sweeping it never ends
    " -XX:ReservedCodeCacheSize=240m"
)
OPTIMISED = "-XX:TieredStopAtLevel=4"
"""After those, for the third tier: what is compiled twice costs 100 s in a JVM's first minutes, and
is won back after many.
"""
# of an archive of other jars, and of what SHORT_LIVED sets, a JVM reports on its output
QUIET = "-Xlog:disable -Xlog:all=error:stderr"
SECONDS = 180  # of writing the archive, which a busy machine makes slow


def archive_options() -> str:
    """The options by which a JVM maps the archive, and says nothing of it; without the one where
    there is none that an option can name.
    """
    try:
        path = archive_of(find_java())
    except SparkUnavailableError:
        return QUIET
    return (
        f"-XX:SharedArchiveFile={path} {QUIET}"
        if path.is_file() and " " not in str(path)
        else QUIET
    )


def archive_of(java: Java) -> Path:
    """The archive for a Java and the jars as they are: a JVM refuses one that was made with others,
    and reads jars.
    """
    jars = [*(pyspark_home() / "jars").glob("*.jar"), *JARS.glob("*.jar")]
    facts = [
        (
            f"{java.home} "
            f"{(java.home / 'release').read_text() if (java.home / 'release').is_file() else java.version}"
        )
    ]
    facts += sorted(f"{jar} {jar.stat().st_size} {jar.stat().st_mtime_ns}" for jar in jars)
    digest = hashlib.sha256("\n".join(facts).encode()).hexdigest()
    return HOME / f"tests-{digest[:12]}.jsa"


def make() -> None:
    """Make the archive by doing in a JVM once what most tests do; one that was broken off is never
    seen.
    """
    java = find_java()
    ensure_jars(JARS, lambda: java)
    path = archive_of(java)
    if path.is_file() or " " in str(path):
        return
    sys.stderr.write(f"Archiving Spark's classes in {path} (once, half a minute)\n")
    with tempfile.TemporaryDirectory(prefix=".archive-", dir=HOME) as folder:
        fresh = Path(folder) / "classes.jsa"
        os.environ["JAVA_TOOL_OPTIONS"] = f"{SHORT_LIVED} -XX:ArchiveClassesAtExit={fresh}"
        settings = SparkSettings.model_validate({"driver": "local", "memory": "1g", "cores": 2})
        jvm = start_jvm(settings, java, home=Path(folder), jars=JARS)
        connection = connect(jvm.gateway, is_shared=False)
        load_classes(connection.new_session(), f"{folder}/table")
        connection.close()
        jvm.stop(SECONDS)
        if jvm.process.returncode == 0 and fresh.is_file():
            for old in HOME.glob("tests-*.jsa"):
                old.unlink(missing_ok=True)
            fresh.rename(path)


def load_classes(spark: SparkSession, table: str) -> None:
    """Write a Delta table, merge into it and read what changed."""
    rows = spark.range(10).selectExpr(
        "id", "id % 2 AS part", "cast(id AS string) AS text", "current_timestamp() AS at"
    )
    rows.write.format("delta").partitionBy("part").option(
        "delta.enableChangeDataFeed", "true"
    ).save(table)
    rows.createOrReplaceTempView("changes")
    spark.sql(
        f"MERGE INTO delta.`{table}` t USING (SELECT * FROM changes WHERE id > 5) s ON t.id = s.id "
        f"AND t.part = s.part "
        "WHEN MATCHED THEN UPDATE SET text = 'x' WHEN NOT MATCHED THEN INSERT *"
    )
    changed = (
        spark.read.format("delta")
        .option("readChangeFeed", "true")
        .option("startingVersion", "0")
        .load(table)
    )
    changed.groupBy("part").count().join(spark.read.format("delta").load(table), "part").collect()


if __name__ == "__main__":
    make()
