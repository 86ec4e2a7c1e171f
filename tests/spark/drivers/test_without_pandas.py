"""A driver's client imports no pandas for what needs none, and everything that needs it works."""

from pathlib import Path

import pytest

from tests.support.spark import run_client, small_settings

pytestmark = pytest.mark.spark


def test_calls_with_arguments_import_no_pandas_and_numpy_and_pandas_convert(tmp_path: Path, spark_jars: Path) -> None:
    code = """
        import numpy as np
        from pyspark.sql import functions as F
        with open_here() as driver:
            spark = driver.spark
            say([row.x for row in spark.range(3).withColumn("x", F.lit(7) + F.col("id")).filter(F.col("id") > 0).collect()])
            say(spark.range(1).select(F.lit(np.array([1, 2])).alias("x")).first().x, spark.range(1).select(F.lit(np.int64(3))).first()[0])
            say([name for name in ("pandas", "pyarrow") if name in sys.modules])
            import pandas as pd
            import pyspark.testing.utils
            from pyspark.sql.pandas.utils import require_minimum_pandas_version
            say(require_minimum_pandas_version.__module__, pyspark.testing.utils.have_pandas, pyspark.testing.utils.have_pyarrow)
            say(spark.createDataFrame(pd.DataFrame({"x": [1, 2]})).toPandas().x.sum())
            pyspark.testing.assertSchemaEqual(spark.range(2).schema, spark.range(3).schema)
    """
    said = run_client(code, tmp_path, spark_jars, small_settings())
    assert said == ["[8, 9]", "[1, 2] 3", "[]", "pyspark.sql.pandas.utils True True", "3"]
