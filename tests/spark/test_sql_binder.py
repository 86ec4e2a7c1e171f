"""SQL is run as it is written: it gives what Spark gives for the same text over tables of its
catalog.
"""

import re
from collections.abc import Iterator
from typing import Any, cast

import pytest
from pyspark.errors import ParseException
from pyspark.sql import DataFrame, SparkSession

from lakechime_dagster.errors import DeclarationError
from lakechime_dagster.lineage.spark import marked
from lakechime_dagster.spark.session import grouped_by, sql_over
from lakechime_dagster.tables.declare import sql_table
from lakechime_dagster.tables.sql import Unparsed, parse_query, tables_of
from lakechime_dagster.tables.tables import SourceTable

pytestmark = pytest.mark.spark
Frames = dict[str, DataFrame]

TABLES = {
    "sql_s.a": r"""SELECT * FROM VALUES
        (1, 10, 'O''Brien', array(1, 2), map('x', 1), TIMESTAMP '2024-03-31 00:30:00', '{"a": [1, {"b": "x"}], "c": 5}', 1.25BD),
        (1, 20, 'it''s -- no comment', array(), map(), TIMESTAMP '2024-03-31 02:30:00', '{"a": [], "c": 6}', -2.5BD),
        (2, 31, 'tab\tand\\n', array(3, NULL), map('x', 3, 'y', 4), TIMESTAMP '2024-10-27 02:30:00', '[1]', 0BD),
        (NULL, 40, NULL, NULL, NULL, NULL, NULL, NULL)
        AS t(k, v, s, xs, m, at, doc, d)""",
    "sql_s.b": "SELECT * FROM VALUES (1, 'one', 5), (2, 'two', 6), (3, 'three', NULL) AS t(k, name, v)",
    "sql_s.c": """SELECT named_struct('x', 1, 'y', array(named_struct('z', 'q'))) AS st,
        1 AS k, 7 AS `two words`, 8 AS `from`, 9 AS `tick``s`""",
    "sql_t": "SELECT * FROM VALUES (1, 'alone'), (4, 'too') AS t(k, name)",
}

EXPRESSIONS = r"""
'O''Brien'
'a' 'b'
"double ""quoted"" it's"
'it\'s \\ \t \n \u0041 \x41 \101 \% \_'
r'\d+\n', R"raw"
'-- no comment', '/* nor this */', '${not.a.conf}', ';'
X'1F4', x''
'ünï ☃', '😀', 'ı' = 'i'
1L, 2S, 3Y, 1.5D, 2.5F, 3BD, 4.00BD, 1e3, 1E-2, .5, 5.
- 2147483648, 9223372036854775807, 12345678901234567890, -k, + k, - - k
k DIV 2, k % 2, k & 1, k | 6, k ^ 3, ~k, k << 2, k >> 1, k >>> 1
k <=> NULL, k == 1, k <> 1, k != 1, NOT k = 1, !(k = 1)
k IS DISTINCT FROM 1, k IS NOT DISTINCT FROM 1
k BETWEEN 1 AND 2, k NOT BETWEEN 1 AND 2, k IN (1, 2), k NOT IN (3)
s LIKE 'O''%', s LIKE '%\\\\n', s LIKE '%/%' ESCAPE '/', s NOT LIKE 'x'
s LIKE ANY ('O%', 'i%'), s LIKE ALL ('O%'), s NOT LIKE ALL ('x'), s ILIKE 'o%'
s RLIKE r'^\w', s REGEXP 'B', regexp_extract(s, r'(\w+)''(\w+)', 2)
regexp_replace(s, '[a-z]', r'\$')
s || 'x' || k, concat_ws(',', s, 'x')
split(s, ' '), split_part(s, 'B', 2), substr(s, 2), substring(s FROM 2 FOR 3)
position('B' IN s), overlay(s PLACING 'zz' FROM 2 FOR 1)
trim(BOTH 'O' FROM s), trim(LEADING FROM s), ltrim(s), btrim(s, 'O'), char(65), ascii('A')
format_string('%s-%05d', s, v)
s COLLATE UTF8_LCASE = 'o''brien', collation(s COLLATE UNICODE_CI)
CAST(k AS STRING), k::string, try_cast(s AS INT), CAST(v AS DECIMAL(10, 2)), CAST(at AS DATE)
CAST(xs AS ARRAY<STRING>), CAST('1' AS BIGINT)
d * d, d / 3, d + 1, round(d, 1), bround(d), ceil(d), d % 2, CAST(d AS FLOAT)
d::decimal(38, 18) * d
if(k > 1, 'a', 'b'), nvl(k, 0), nvl2(k, 1, 2), ifnull(k, 9), nullif(k, 1), coalesce(k, v)
decode(k, 1, 'one', 'other')
CASE k WHEN 1 THEN 'a' ELSE 'b' END, CASE WHEN k > 1 THEN 1 END
DATE '2024-02-29', DATE'2024-01-01' + 1, TIMESTAMP '2024-03-31 01:30:00 Europe/Berlin'
TIMESTAMP_NTZ '2024-01-01 00:00:00', TIMESTAMP_LTZ '2024-01-01'
at + INTERVAL 1 HOUR 30 MINUTES, at - INTERVAL '1' DAY
at + INTERVAL '1 2:03:04' DAY TO SECOND, at - INTERVAL '2-3' YEAR TO MONTH, INTERVAL 3 DAYS
INTERVAL '10:11:12.5' HOUR TO SECOND, INTERVAL 2 WEEKS, INTERVAL -1 MONTH, at - at
make_interval(0, 1), make_dt_interval(1)
extract(DAY FROM at), extract(SECONDS FROM at), date_part('year', at), year(at), dayofweek(at)
weekday(at), date_trunc('WEEK', at), trunc(at, 'MM')
timestampdiff(HOUR, at, TIMESTAMP '2025-01-01'), timestampadd(MONTH, 1, at)
dateadd(DAY, 1, at), datediff(at, DATE '2024-01-01'), date_add(at, 1)
from_utc_timestamp(at, 'Asia/Tokyo'), to_utc_timestamp(at, 'America/New_York')
convert_timezone('UTC', 'Asia/Kolkata', CAST(at AS TIMESTAMP_NTZ))
date_format(at, "yyyy-MM-dd'T'HH:mm"), to_timestamp('31/12/2024', 'dd/MM/yyyy')
to_date('2024-01'), unix_timestamp(at), make_date(2024, 2, 29), add_months(at, 1)
window(at, '1 hour').start
xs[0], xs[5] IS NULL, m['x'], get(xs, 9), try_element_at(xs, 3), element_at(m, 'x')
array(1, 2)[1], map('k', 1)['k'], size(xs), xs IS NULL
transform(xs, x -> x + k), transform(xs, (x, i) -> x * i), filter(xs, x -> x IS NOT NULL)
exists(xs, x -> x > 1), forall(xs, x -> x > 0)
aggregate(xs, 0, (acc, x) -> acc + coalesce(x, 0), acc -> acc * 2), reduce(xs, 0, (a, x) -> x)
zip_with(xs, xs, (a, b) -> a + b)
map_filter(m, (key, val) -> val > 1), transform_values(m, (key, val) -> val + 1)
transform_keys(m, (k, v) -> upper(k)), map_zip_with(m, m, (k, a, b) -> a)
array_sort(xs, (l, r) -> CASE WHEN l < r THEN 1 ELSE -1 END), sort_array(xs, false)
array_distinct(xs), flatten(array(xs, xs)), slice(xs, 1, 1), sequence(1, 3)
named_struct('a', k, 'b', s).b, struct(k, v AS w).w, struct(k AS `a b`).`a b`, struct(*)
(k, v), named_struct('x', xs).x[0]
from_json(doc, 'a ARRAY<STRING>, c INT').c, from_json('{"a": 1}', 'a INT')
get_json_object(doc, '$.a[1].b'), to_json(struct(k, s)), schema_of_json('{"a": 1}')
variant_get(parse_json(doc), '$.c', 'int'), parse_json(doc):a[1].b::string
parse_json(doc):c::int, to_json(parse_json(doc)), try_parse_json('{x') IS NULL
is_variant_null(parse_json(doc):a), schema_of_variant(parse_json(doc))
typeof(parse_json(doc)), variant_get(parse_json('[1]'), '$[0]', 'int'), parse_json(doc):`a`
hash(k, s), xxhash64(s), md5(s), sha2(s, 256), crc32(s), base64(CAST(s AS BINARY)), hex(s)
unhex('41'), conv('ff', 16, 10), bin(k), to_binary('ff', 'hex')
greatest(k, v), least(k, v), pmod(-7, 3), mod(-7, 3), rint(2.5), sqrt(v), power(2, k)
log(2, 8), sign(-3), factorial(5), width_bucket(5, 0, 10, 4)
(SELECT max(v) FROM sql_s.b), (SELECT name FROM sql_s.b WHERE b.k = a.k)
EXISTS (SELECT 1 FROM sql_s.b WHERE b.k = a.k), k IN (SELECT k FROM sql_s.b)
(SELECT count(*) FROM sql_s.b AS a WHERE a.k = 1), ((SELECT 1))
k AS one, one + 1 AS two, two * one AS three
sql_s.a.k, a.v, `sql_s`.`a`.`s`, sql_s.a.*
* EXCEPT (k, v)
a.* EXCEPT (m), 1 AS m
v AS `from`, v AS `select`, v AS `a.b`, v AS `tick``s`, v `no as`, v value, v AS date
v AS timestamp, v AS user, v AS end_
current_database(), version() IS NULL, typeof(k), assert_true(true), equal_null(k, 1)
elt(2, 'a', 'b'), find_in_set('b', 'a,b'), stack(2, 1, 2)
try_add(k, 1), try_divide(k, 0), try_to_number('x', '99'), to_number('12', '99')
to_char(12, '99')
explode(xs) AS x
posexplode(xs) AS (p, x)
inline(array(struct(k, s))) AS (i, j)
json_tuple(doc, 'a', 'c') AS (ja, jc)
TRANSFORM(k, v) USING 'cat' AS (x INT, y INT)
monotonically_increasing_id() >= 0, spark_partition_id() >= 0, rand(3), randn(5)
uuid() IS NOT NULL, now() IS NOT NULL, current_date IS NOT NULL, current_timestamp() > at
DISTINCT k
ALL k
/* one /* nested */ comment */ k /* , v */
"""

AGGREGATES = r"""
count(*), count(1), count(k), count(DISTINCT k, v), count(DISTINCT k)
count(DISTINCT a.k, a.v), sum(v), sum(DISTINCT k), avg(v), mean(d), min(s), max(xs)
percentile_cont(0.5) WITHIN GROUP (ORDER BY v)
percentile_cont(0.25) WITHIN GROUP (ORDER BY v DESC)
percentile_disc(0.25) WITHIN GROUP (ORDER BY v DESC)
percentile_disc(0.25) WITHIN GROUP (ORDER BY v)
percentile_cont(array(0.1, 0.9)) WITHIN GROUP (ORDER BY v) FILTER (WHERE v > 10)
percentile(v, 0.5), percentile(v, array(0.2, 0.4), 2), approx_percentile(v, 0.5, 100)
median(v), mode(k), mode() WITHIN GROUP (ORDER BY k DESC)
listagg(s, '; ') WITHIN GROUP (ORDER BY v DESC), string_agg(s, ',') WITHIN GROUP (ORDER BY s)
listagg(DISTINCT k::string)
sum(v) FILTER (WHERE k = 1), count(*) FILTER (WHERE s LIKE 'O''%')
collect_list(v) FILTER (WHERE v > 10), any_value(k) IGNORE NULLS IS NOT NULL
first(k, true) IS NULL OR true, last(k) IGNORE NULLS IS NULL OR true, max_by(s, v)
min_by(s, v), bool_and(v > 1), bool_or(v > 30), every(v > 1), some(v > 1), count_if(v > 10)
stddev(v), stddev_pop(v), variance(v), var_pop(v), corr(k, v), covar_samp(k, v), kurtosis(v)
skewness(v), regr_slope(v, k), regr_count(v, k), regr_r2(v, k)
array_sort(collect_set(k)), array_sort(array_agg(v))
map_from_entries(collect_list(struct(v, s))), bit_and(v), bit_or(v), bit_xor(v)
histogram_numeric(v, 2)
approx_count_distinct(k), approx_count_distinct(k, 0.1)
hll_sketch_estimate(hll_sketch_agg(k))
bitmap_count(bitmap_construct_agg(bitmap_bit_position(k)))
schema_of_variant_agg(parse_json(doc)), sum(v) + sum(k) * 2
sum(CASE WHEN k = 1 THEN v ELSE 0 END) / count(*), try_sum(v), try_avg(v)
"""

WINDOWS = r"""
row_number() OVER (PARTITION BY k ORDER BY v DESC)
rank() OVER (ORDER BY k NULLS LAST), dense_rank() OVER (ORDER BY k DESC NULLS FIRST)
percent_rank() OVER (ORDER BY v), cume_dist() OVER (ORDER BY v), ntile(2) OVER (ORDER BY v)
lag(v) OVER (ORDER BY v), lead(v, 2, -1) OVER (PARTITION BY k ORDER BY v)
lag(k) IGNORE NULLS OVER (ORDER BY v DESC), nth_value(v, 2) OVER (ORDER BY v)
first_value(k) IGNORE NULLS OVER (ORDER BY v DESC)
last_value(k) RESPECT NULLS OVER (ORDER BY v), first(k) OVER (ORDER BY v DESC)
any_value(v) OVER (PARTITION BY v)
sum(v) OVER (ORDER BY v ROWS BETWEEN 1 PRECEDING AND CURRENT ROW)
avg(v) OVER (ORDER BY v RANGE BETWEEN 10 PRECEDING AND 10 FOLLOWING)
count(*) OVER (ORDER BY at RANGE BETWEEN INTERVAL 2 HOURS PRECEDING AND CURRENT ROW)
sum(v) OVER (), max(v) OVER (PARTITION BY k, s)
percentile_cont(0.5) WITHIN GROUP (ORDER BY v) OVER (PARTITION BY k)
median(v) OVER (PARTITION BY k)
"""

FROMS = r"""
sql_s.a JOIN sql_s.b USING (k)
sql_s.a AS x JOIN sql_s.b AS y ON x.k = y.k AND y.v > 5
sql_s.a x, sql_s.b y WHERE x.k = y.k
sql_s.a NATURAL JOIN sql_t
sql_s.a CROSS JOIN sql_t
sql_s.a LEFT JOIN sql_s.b ON a.k = b.k
sql_s.a RIGHT OUTER JOIN sql_s.b ON sql_s.a.k = sql_s.b.k
sql_s.a FULL OUTER JOIN sql_s.b USING (k)
sql_s.a LEFT SEMI JOIN sql_s.b ON a.k = b.k
sql_s.a LEFT ANTI JOIN sql_s.b USING (k)
sql_s.a ANTI JOIN sql_s.b ON a.k <=> b.k
sql_s.a a1 JOIN sql_s.a a2 ON a1.k = a2.k AND a1.v < a2.v
(sql_s.a JOIN sql_s.b USING (k)) JOIN sql_t USING (k)
sql_s.a LATERAL VIEW explode(xs) e AS x
sql_s.a LATERAL VIEW OUTER posexplode(xs) e AS p, x LATERAL VIEW explode(map_keys(m)) f AS y
sql_s.a, LATERAL (SELECT name FROM sql_s.b WHERE b.k = a.k) l
sql_s.a LEFT JOIN LATERAL (SELECT max(b.v) AS top FROM sql_s.b WHERE b.k <= a.k) ON true
sql_s.a JOIN LATERAL explode(a.xs) AS e(x)
sql_s.a, LATERAL explode_outer(xs) AS e(x)
range(3) AS r JOIN sql_s.a ON a.k = r.id
explode(array(1, 2)) AS e(k) JOIN sql_s.b USING (k)
VALUES (1, 'x'), (2, 'y') AS l(k, w) JOIN sql_s.a USING (k)
(SELECT k, v FROM sql_s.a WHERE v > 10) AS q
(SELECT * FROM sql_s.a) AS q(k1, v1, s1, xs1, m1, at1, doc1, d1)
(VALUES (1), (2)) AS l(k) NATURAL JOIN sql_s.b
(TABLE sql_s.b)
sql_s.a TABLESAMPLE (50 PERCENT) REPEATABLE (7)
sql_s.a TABLESAMPLE (BUCKET 1 OUT OF 2) REPEATABLE (3) AS x
(SELECT k, v FROM sql_s.a) PIVOT (sum(v) AS s, count(*) AS c FOR k IN (1 AS one, 2))
(SELECT k, v, 'x' AS z FROM sql_s.a) PIVOT (max(v) FOR (k, z) IN ((1, 'x') AS p))
sql_s.b UNPIVOT (val FOR col IN (k, v))
sql_s.b UNPIVOT INCLUDE NULLS (val FOR col IN (k AS `the k`, v))
sql_s.b UNPIVOT ((a, b) FOR col IN ((k, v) AS both))
spark_catalog.sql_s.a AS x WHERE x.k = 1
spark_catalog.sql_s.b WHERE sql_s.b.k = 1 AND b.k = 1 AND spark_catalog.sql_s.b.k = 1
`sql_s`.`a` WHERE `sql_s`.`a`.`k` = 1
sql_s.a WHERE A.K = 1 OR Sql_S.A.v > 1
sql_t WHERE sql_t.name = 'too'
sql_s.c WHERE st.x = 1 AND c.st.y[0].z = 'q' AND sql_s.c.`two words` = 7 AND `from` = 8 AND `tick``s` = 9
sql_s.a WHERE k IN (SELECT k FROM sql_s.b WHERE b.v > a.k) AND NOT EXISTS (SELECT * FROM sql_t WHERE sql_t.k = a.v)
sql_s.a WHERE (k, v) IN (SELECT k, v + 5 FROM sql_s.b)
sql_s.a WHERE v > (SELECT avg(v) FROM sql_s.a AS inner_a WHERE inner_a.k = a.k)
sql_s.a WHERE k NOT IN (SELECT k FROM sql_t WHERE k IS NOT NULL)
sql_s.a WHERE s = 'O''Brien'
sql_s.a WHERE s = "it's -- no comment" -- AND false
sql_s.a WHERE at > TIMESTAMP '2024-03-31 01:00:00 Europe/Berlin'
sql_s.b ORDER BY ALL DESC LIMIT 2 OFFSET 1
sql_s.a ORDER BY v LIMIT ALL
sql_s.a SORT BY v DESC NULLS LAST
sql_s.a DISTRIBUTE BY k
sql_s.a CLUSTER BY k
"""

QUERIES = r"""
SELECT k, sum(v) AS t FROM sql_s.a GROUP BY k HAVING sum(v) > 10 ORDER BY t
SELECT k AS g, count(*) FROM sql_s.a GROUP BY g
SELECT upper(s), sum(v) FROM sql_s.a GROUP BY 1 ORDER BY 2
SELECT k, s, sum(v) FROM sql_s.a GROUP BY ALL
SELECT k, s, sum(v), grouping(k), grouping_id(k, s) FROM sql_s.a GROUP BY GROUPING SETS ((k, s), (k), ())
SELECT k, s, sum(v) FROM sql_s.a GROUP BY ROLLUP (k, s)
SELECT k, s, sum(v) FROM sql_s.a GROUP BY k, s WITH CUBE
SELECT k, s, sum(v) FROM sql_s.a GROUP BY k, s GROUPING SETS ((k), (s))
SELECT k, sum(v) FROM sql_s.a GROUP BY k, CUBE (s), GROUPING SETS ((v), ())
SELECT window.start AS st, window.end, count(*) AS n FROM sql_s.a GROUP BY window(at, '1 hour') ORDER BY st
SELECT window(at, '1 day', '12 hours', '30 minutes').start, k, sum(v) FROM sql_s.a GROUP BY window(at, '1 day', '12 hours', '30 minutes'), k
SELECT window_time(window) AS t, count(*) FROM (SELECT window, v FROM sql_s.a GROUP BY window(at, '1 hour'), v) GROUP BY 1
SELECT session_window.start, count(*) FROM sql_s.a GROUP BY session_window(at, '5 minutes')
SELECT v FROM sql_s.a GROUP BY v HAVING max(k) = 1 AND v IN (SELECT v * 2 FROM sql_s.b UNION SELECT 10)
SELECT /*+ BROADCAST(b) */ a.v, b.name FROM sql_s.a JOIN sql_s.b b ON a.k = b.k
SELECT /*+ BROADCAST(sql_s.b), REPARTITION(2, v) */ a.v, b.name FROM sql_s.a JOIN sql_s.b USING (k)
SELECT /*+ MERGE(x) */ /*+ COALESCE(1) */ x.v FROM sql_s.a x JOIN sql_s.b y ON x.k = y.k
SELECT /*+ SHUFFLE_HASH(y), UNKNOWN_HINT(z) */ x.v FROM sql_s.a x JOIN sql_s.b y ON x.k = y.k
SELECT k FROM sql_s.a UNION SELECT k FROM sql_s.b
SELECT k FROM sql_s.a UNION ALL SELECT k FROM sql_s.b EXCEPT SELECT k FROM sql_t
SELECT k FROM sql_s.a MINUS ALL SELECT k FROM sql_s.b
SELECT k FROM sql_s.a EXCEPT ALL SELECT 1
SELECT k FROM sql_s.a UNION SELECT k FROM sql_s.b INTERSECT SELECT k FROM sql_t
(SELECT k FROM sql_s.a UNION SELECT k FROM sql_s.b) INTERSECT ALL SELECT k FROM sql_t
(SELECT k, v FROM sql_s.a ORDER BY v LIMIT 1) UNION ALL (SELECT k, v FROM sql_s.b ORDER BY k LIMIT 1) ORDER BY k
SELECT k, v FROM sql_s.a UNION SELECT v, k FROM sql_s.b
TABLE sql_s.b
TABLE sql_t UNION TABLE sql_t
(SELECT k FROM sql_s.a)
FROM sql_s.a SELECT k, v WHERE v > 10
FROM sql_s.a |> WHERE v > 10 |> SELECT k, v |> ORDER BY v |> LIMIT 2
FROM sql_s.a |> EXTEND v * 2 AS w |> SET v = v + 1 |> DROP s |> AS q |> SELECT q.k, w, v
FROM sql_s.a |> AGGREGATE sum(v) AS t, count(*) GROUP BY k |> WHERE t > 10
FROM sql_s.a |> JOIN sql_s.b USING (k) |> SELECT k, name |> UNION ALL TABLE sql_t
TABLE sql_s.b |> WHERE k > 1 |> EXTEND length(name) AS n
SELECT k, v FROM sql_s.a |> AGGREGATE max(v) AS v GROUP BY k |> ORDER BY v
WITH x AS (SELECT k FROM sql_s.a) SELECT * FROM x JOIN x AS y USING (k)
WITH b AS (SELECT k, v FROM sql_s.a) SELECT b.k, o.name FROM b JOIN sql_s.b AS o ON b.k = o.k
WITH sql_t AS (SELECT 7 AS k, 'shadow' AS name FROM sql_s.a) SELECT * FROM sql_t
WITH sql_t AS (SELECT k, name FROM sql_t WHERE k = 1) SELECT * FROM sql_t
WITH x AS (WITH sql_t AS (SELECT 1 AS k) SELECT * FROM sql_t) SELECT x.k, o.name FROM x JOIN sql_t AS o USING (k)
WITH x AS (SELECT 1 AS k) SELECT * FROM (WITH x AS (SELECT 2 AS k) SELECT * FROM x JOIN sql_s.b USING (k)) q, x
WITH x(c1, c2) AS (SELECT k, v FROM sql_s.a), y AS (SELECT c1 FROM x WHERE c2 > 10) SELECT * FROM y
WITH X AS (SELECT k FROM sql_s.b) SELECT `x`.k FROM x WHERE k IN (WITH z AS (SELECT k FROM sql_t) SELECT * FROM z)
WITH x AS (SELECT k FROM sql_s.a), x2 AS (SELECT * FROM x UNION ALL SELECT * FROM x) SELECT k, count(*) FROM x2 GROUP BY k
WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 4) SELECT r.n, b.name FROM r JOIN sql_s.b ON r.n = b.k
WITH RECURSIVE r(n) MAX RECURSION LEVEL 10 AS (SELECT min(k) FROM sql_s.b UNION ALL SELECT n + 1 FROM r WHERE n < 4) SELECT n FROM r
SELECT (WITH z AS (SELECT max(k) AS k FROM sql_s.b) SELECT k FROM z) AS top, k FROM sql_t
SELECT * FROM (SELECT k, row_number() OVER (PARTITION BY k ORDER BY v) AS n FROM sql_s.a) WHERE n = 1
SELECT q.k FROM (SELECT k FROM (SELECT k FROM (SELECT * FROM sql_s.a) WHERE v > 10)) q
SELECT a.k, (SELECT count(*) FROM sql_s.b WHERE b.k >= a.k AND b.v > (SELECT min(k) FROM sql_t WHERE sql_t.k <= b.k)) AS n FROM sql_s.a
SELECT st.y[0].z, st.*, c.st.x, `two words`, c.`from`, `tick``s` FROM sql_s.c
SELECT c.* EXCEPT (st.x, k) FROM sql_s.c
SELECT count(*) FROM sql_s.a WHERE 'a' = "a" AND "it's" = 'it''s'
SELECT 1 AS `1`, 'x' AS `ü`, 2 AS `A` FROM sql_t
SELECT k FROM sql_s.a;
SELECT sum(v) OVER w, count(*) OVER (w) FROM sql_s.a WINDOW w AS (PARTITION BY k)
SELECT sum(v) OVER w, count(*) OVER u FROM sql_s.a WINDOW w AS (PARTITION BY k ORDER BY v), u AS (PARTITION BY v)
SELECT _metadata.file_name IS NOT NULL FROM sql_s.a
SELECT s, CASE WHEN s LIKE '%--%' THEN '--' ELSE '/*' END AS mark, '*/' AS close FROM sql_s.a /* FROM sql_s.b */ WHERE k = 1 -- and so on
"""


LINES = "-- the last; of all\nSELECT k, -- , v\r\n 'two\nlines' AS `--`\tFROM\n sql_s.a\n/* ; */"


def statements() -> list[str]:
    """A statement for each line above."""
    listed = [
        line for block in (EXPRESSIONS, AGGREGATES, WINDOWS) for line in block.strip().splitlines()
    ]
    sources = [f"SELECT * FROM {line}" for line in FROMS.strip().splitlines()]
    return [
        *(f"SELECT {line} FROM sql_s.a" for line in listed),
        *sources,
        *QUERIES.strip().splitlines(),
        LINES,
    ]


@pytest.fixture(scope="module")
def catalog(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Frames]:
    """The tables in the session's catalog, and each as a frame by whatever name a statement may
    call it.
    """
    spark.sql("CREATE DATABASE sql_s")
    for name, rows in TABLES.items():
        path = str(tmp_path_factory.mktemp(name))
        spark.sql(rows).coalesce(1).write.mode("overwrite").parquet(path)
        spark.sql(f"CREATE TABLE {name} USING parquet LOCATION '{path}'")
    frames = {name: marked(spark.table(name), name, name) for name in TABLES}
    yield frames | {f"spark_catalog.{name}": frame for name, frame in frames.items()}
    spark.sql("DROP DATABASE sql_s CASCADE")
    spark.sql("DROP TABLE sql_t")


def plan_of(frame: DataFrame, stage: str) -> Any:
    """The plan of a frame as Spark has it: analyzed or optimizedPlan."""
    return getattr(cast(Any, frame)._jdf.queryExecution(), stage)()


def difference(bound: DataFrame, plain: DataFrame) -> str:
    """How a query differs from the same over tables of the catalog; "" where Spark plans the same,
    or gives the same rows.
    """
    if bound.schema != plain.schema:
        return f"{bound.schema.simpleString()} instead of {plain.schema.simpleString()}"
    if any(
        plan_of(bound, stage).sameResult(plan_of(plain, stage))
        for stage in ("analyzed", "optimizedPlan")
    ):
        return ""
    given, right = (sorted(map(repr, frame.collect())) for frame in (bound, plain))
    return "" if given == right else f"{given} instead of {right}"


def test_a_statement_gives_over_bound_tables_what_it_gives_over_tables_of_the_catalog(
    spark: SparkSession, catalog: Frames
) -> None:
    wrong = {}
    for sql in statements():
        query = parse_query("gold.t", sql)
        inputs = TABLES if isinstance(query, Unparsed) else tables_of(query)
        problem = difference(
            sql_over(spark, "gold.t", sql, {name: catalog[name] for name in inputs}), spark.sql(sql)
        )
        if problem:
            wrong[sql] = problem
    assert wrong == {}


@pytest.mark.tier1
def test_strings_percentiles_and_variants_are_computed_as_written(
    spark: SparkSession, catalog: Frames
) -> None:
    sql = r"""
        SELECT count_if(s = 'O''Brien'), count_if(s = "it's -- no comment"), percentile_cont(0.5) WITHIN GROUP (ORDER BY v),
            percentile_disc(0.25) WITHIN GROUP (ORDER BY v DESC), max(typeof(parse_json(doc))) FROM sql_s.a"""
    assert [tuple(row) for row in sql_over(spark, "gold.t", sql, catalog).collect()] == [
        (1, 1, 25.5, 40.0, "variant")
    ]


REFUSED = {
    "SELECT * FROM sql_s.a, sql_s.a AS b, other.x": "reads other.x as Spark parses it, which is no input",
    "SELECT * FROM sql_s.a VERSION AS OF 3": "reads a table AS OF",
    "SELECT * FROM sql_s.a WITH ('versionAsOf' = '3')": "reads sql_s.a with options",
    "SELECT * FROM STREAM sql_s.a": "reads the stream sql_s.a",
    "SELECT * FROM IDENTIFIER('sql_s.a')": "names a table by IDENTIFIER()",
    "FROM sql_s.a INSERT INTO sql_s.b SELECT k, s, v": "is InsertIntoStatement",
    "SHOW TABLES": "is ShowTables",
}


@pytest.mark.tier1
def test_what_reads_or_writes_anything_but_the_inputs_is_refused_before_it_runs(
    spark: SparkSession, catalog: Frames
) -> None:
    for sql, why in REFUSED.items():
        with pytest.raises(DeclarationError, match=re.escape(f"gold.t, sql: {why}")):
            sql_over(spark, "gold.t", sql, catalog)
    with pytest.raises(ParseException, match="PARSE_SYNTAX_ERROR"):
        sql_over(spark, "gold.t", "SELECT k FROM sql_s.a WHERE k >", catalog)


def test_a_table_is_called_in_letters_of_whatever_case_unless_spark_is_exact(
    spark: SparkSession, catalog: Frames
) -> None:
    sql = "SELECT A.k FROM SQL_S.A"
    assert sql_over(spark, "gold.t", sql, catalog).count() == 4
    spark.conf.set("spark.sql.caseSensitive", "true")
    try:
        with pytest.raises(DeclarationError, match=r"reads SQL_S\.A as Spark parses it"):
            sql_over(spark, "gold.t", sql, catalog)
    finally:
        spark.conf.unset("spark.sql.caseSensitive")


@pytest.mark.tier1
def test_the_keys_of_groups_are_given_over_one_input_as_the_query_says_them(
    spark: SparkSession, catalog: Frames
) -> None:
    sql = r"""
        WITH x AS (SELECT 1) SELECT /*+ BROADCAST(b) */ concat(a.s, ' O''', "'", r'\d') AS name, b.k, parse_json(a.doc):c::int AS c, count(*) AS n
        FROM sql_s.a a JOIN sql_s.b AS b ON a.k = b.k GROUP BY ALL HAVING count(*) > 0 ORDER BY n"""
    only_b = [SourceTable("sql_s.b").snapshot()]
    table = sql_table(
        "gold.t", sql=sql, keys=["name", "k", "c"], refresh="affected_keys", reads=only_b
    )
    given = grouped_by(spark, sql, table.key_columns["sql_s.a"])
    keys = catalog["sql_s.a"].select(*[given[key].alias(key) for key in table.keys]).collect()
    assert [tuple(row) for row in keys][:2] == [
        (r"O'Brien O''\d", 1, 5),
        (r"it's -- no comment O''\d", 1, 6),
    ]
