"""Shapes of queries over three small tables, in DataFrames and SQL, each with lineage that a person
can write down.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, cast

import pandas as pd
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

SCHEMAS = {
    "orders": (
        "id int, person int, amount int, day string, tags array<string>, item struct<sku: string, "
        "price: int>"
    ),
    "people": "id int, name string, city string, boss int",
    "visits": "person int, day string, page string",
}


@dataclass(frozen=True)
class Tables:
    """The three tables of one session, as frames and by name in SQL."""

    spark: SparkSession
    orders: DataFrame
    people: DataFrame
    visits: DataFrame

    def sql(self, text: str) -> DataFrame:
        return self.spark.sql(text, orders=self.orders, people=self.people, visits=self.visits)


Shape = Callable[[Tables], DataFrame]
SHAPES: dict[str, Shape] = {}
TEXTS: dict[str, str] = {}


def shape(function: Shape) -> Shape:
    """A shape by the name of its function."""
    SHAPES[function.__name__] = function
    return function


def sql(name: str, text: str) -> None:
    """A shape in SQL, with the names of tables in braces."""
    TEXTS[name] = text
    SHAPES[name] = lambda tables: tables.sql(text)


# --- one table


@shape
def select_and_rename(t: Tables) -> DataFrame:
    return t.orders.select(
        "id",
        F.col("amount").alias("paid"),
        (F.col("amount") + F.col("person")).alias("sum"),
        F.lit(1).alias("one"),
    )


@shape
def columns_added_one_by_one(t: Tables) -> DataFrame:
    frame = t.orders.select("id", "amount")
    for number in range(4):
        frame = frame.withColumn(
            f"c{number}", F.col("amount" if number == 0 else f"c{number - 1}") + number
        )
    return frame


@shape
def column_replaced_and_dropped(t: Tables) -> DataFrame:
    return (
        t.people.withColumn("name", F.upper("city")).withColumnRenamed("boss", "chief").drop("city")
    )


@shape
def filter_and_limit(t: Tables) -> DataFrame:
    return (
        t.orders.where("amount > 3 and day is not null")
        .select("id")
        .orderBy(F.desc("person"))
        .limit(2)
    )


@shape
def case_when(t: Tables) -> DataFrame:
    kind = (
        F.when(F.col("amount") > 5, F.col("day"))
        .when(F.col("person") == 1, "one")
        .otherwise(F.col("item.sku"))
    )
    return t.orders.select("id", kind.alias("kind"))


sql(
    "if_and_nullif",
    "select id, if(amount > 5, person, id) as a, nullif(person, amount) as b, nvl(day, 'none') as "
    "c from {orders}",
)
sql(
    "coalesce_keeps_values",
    "select coalesce(city, name) as c, coalesce(upper(city), 'x') as d from {people}",
)
sql(
    "casts_are_transformations",
    "select cast(id as string) as a, id as b, -amount as c from {orders}",
)


@shape
def hashes_and_masks(t: Tables) -> DataFrame:
    return t.people.select(
        F.sha2("name", 256).alias("a"),
        F.md5("city").alias("b"),
        F.hash("id", "name").alias("c"),
        F.xxhash64("boss").alias("d"),
        F.crc32("name").alias("e"),
        F.mask("city").alias("f"),
        F.concat(F.sha1("name"), "city").alias("g"),
    )


@shape
def struct_fields_stay_apart(t: Tables) -> DataFrame:
    made = t.people.select("id", F.struct("name", F.upper("city").alias("where")).alias("s"))
    return made.select(
        "id", F.col("s.name").alias("n"), F.col("s.where").alias("w"), F.col("s").alias("whole")
    )


@shape
def fields_of_a_struct_added_and_dropped(t: Tables) -> DataFrame:
    return t.orders.select(
        F.col("item").dropFields("price").alias("d"),
        F.col("item").withField("day", F.col("day")).alias("w"),
    )


sql("field_of_a_stored_struct", "select item.price + 1 as p, item as i from {orders}")
sql(
    "arrays_maps_and_lambdas",
    """
    select transform(tags, x -> concat(x, day)) as a, filter(tags, x -> length(x) > amount) as b, map('k', id) as m,
    array(id, person)[0] as f, aggregate(tags, 0, (acc, x) -> acc + length(x) + person) as g from {orders}
""",
)
sql("lateral_column_alias", "select amount + 1 as a, a * person as b from {orders}")
sql(
    "nothing_from_a_column",
    "select 1 as one, current_date() as today, 'x' as x, null as n from {orders}",
)


@shape
def ids_that_spark_makes(t: Tables) -> DataFrame:
    return t.orders.select(
        F.monotonically_increasing_id().alias("row"), F.spark_partition_id().alias("part"), "id"
    )


# --- groups


@shape
def group_by(t: Tables) -> DataFrame:
    return t.orders.groupBy("person").agg(
        F.sum("amount").alias("s"), F.max(F.col("amount") + F.col("id")).alias("m")
    )


@shape
def counts_mask(t: Tables) -> DataFrame:
    return t.orders.groupBy("day").agg(
        F.count("*").alias("all"),
        F.count("amount").alias("some"),
        F.count_distinct("person").alias("people"),
        F.approx_count_distinct("id").alias("about"),
    )


sql(
    "having_and_expression_groups",
    """
    select substr(day, 1, 7) as month, try_divide(sum(amount), count(id)) as mean from {orders} group by substr(day, 1, 7)
    having max(person) > 1
""",
)
sql(
    "aggregate_with_filter",
    "select person, sum(amount) filter (where day > '2') as s, count_if(amount > 2) as c from "
    "{orders} group by person",
)
sql(
    "largest_by",
    "select person, max_by(day, amount) as d, min_by(amount, id) as a from {orders} group by person",
)
sql("total_without_groups", "select sum(amount) as s, count(*) as n from {orders}")


@shape
def distinct_rows(t: Tables) -> DataFrame:
    return t.orders.select("person", "day").distinct()


@shape
def duplicates_dropped(t: Tables) -> DataFrame:
    return t.orders.select("id", "person").dropDuplicates(["person"]).select("person")


@shape
def pivot_with_values(t: Tables) -> DataFrame:
    return t.orders.groupBy("person").pivot("day", ["1", "2"]).agg(F.sum("amount"))


sql(
    "pivot_in_sql",
    "select * from (select person, day, amount, id from {orders}) pivot (sum(amount) as s, max(id) "
    "as i for day in ('1' a, '2' b))",
)
sql(
    "unpivot",
    "select * from (select id, person, amount from {orders}) unpivot (value for which in (person, "
    "amount))",
)


@shape
def melted(t: Tables) -> DataFrame:
    return t.people.unpivot(["id"], ["name", "city"], "which", "what")


sql(
    "rollup",
    "select person, day, sum(amount) as s, grouping_id() as g from {orders} group by rollup "
    "(person, day)",
)
sql(
    "cube_with_grouping",
    "select person, grouping(person) as g, max(id) as m from {orders} group by cube (person, day)",
)
sql(
    "grouping_sets",
    "select person, day, count(*) as n from {orders} group by grouping sets ((person), (day), ())",
)
sql(
    "stacked",
    "select id, k, v from {people} lateral view stack(2, 'name', name, 'city', city) as k, v",
)


# --- windows


@shape
def row_number(t: Tables) -> DataFrame:
    window = Window.partitionBy("person").orderBy("amount", "id")
    return (
        t.orders.select("id", "day", F.row_number().over(window).alias("n"))
        .where("n = 1")
        .drop("n")
    )


sql(
    "ranks_and_lags",
    """
    select id, rank() over (partition by person order by amount) as r, lag(day) over (partition by person order by id) as before,
    sum(amount) over (partition by day) as s, ntile(2) over (order by id) as t,
    dense_rank() over (order by day) as d, percent_rank() over (order by day) as p, cume_dist() over (order by day) as c from {orders}
""",
)
sql(
    "first_and_count_in_a_window",
    """
    select first_value(day) over w as f, count(*) over w as n, id from {orders} window w as (partition by person order by id)
""",
)


# --- several tables


@shape
def join_using(t: Tables) -> DataFrame:
    return t.orders.select(F.col("person").alias("id"), "amount").join(
        t.people.select("id", "name"), "id"
    )


@shape
def join_on_left(t: Tables) -> DataFrame:
    on = (t.orders["person"] == t.people["id"]) & (t.orders["amount"] > 2)
    return t.orders.join(t.people, on, "left").select(
        t.orders["id"], "name", F.coalesce("city", "day").alias("where")
    )


@shape
def full_join_using(t: Tables) -> DataFrame:
    return t.visits.select("person", "page").join(
        t.people.select(F.col("id").alias("person"), "name"), "person", "full"
    )


@shape
def self_join(t: Tables) -> DataFrame:
    a, b = t.people.alias("a"), t.people.alias("b")
    return a.join(b, F.col("a.boss") == F.col("b.id")).select(
        "a.name", F.col("b.name").alias("chief"), "b.city"
    )


sql("cross_join", "select o.id, p.name from {orders} o cross join {people} p")
sql(
    "semi_join",
    "select id, name from {people} left semi join {orders} on {people}.id = {orders}.person and "
    "{orders}.amount > 1",
)
sql("anti_join", "select name from {people} p left anti join {visits} v on p.id = v.person")
sql(
    "natural_join",
    "select * from (select person, page from {visits}) natural join (select person, amount from "
    "{orders})",
)
sql(
    "count_over_a_join",
    "select name, count(*) as n from {people} p join {orders} o on p.id = o.person group by name",
)


@shape
def union_by_position(t: Tables) -> DataFrame:
    return t.people.select("id", "name").union(t.orders.select("person", "day"))


@shape
def union_by_name(t: Tables) -> DataFrame:
    return t.people.select("name", "id").unionByName(
        t.orders.select("id", "amount"), allowMissingColumns=True
    )


@shape
def union_with_itself(t: Tables) -> DataFrame:
    return (
        t.people.select("name", "city")
        .union(t.people.select("city", "name"))
        .union(t.visits.select("page", F.lit("x")))
    )


sql(
    "union_distinct_into_rollup",
    """
    select who, kind, count(who) as n from (select id as who, 'p' as kind from {people} union select person, page from {visits})
    group by rollup (who, kind)
""",
)


@shape
def except_all(t: Tables) -> DataFrame:
    return t.people.select("id", "city").exceptAll(t.visits.select("person", "page"))


sql("intersect_rows", "select id, name from {people} intersect select person, page from {visits}")


# --- subqueries


sql(
    "scalar_subquery",
    "select id, (select max(amount) from {orders} where day > '1') as top from {people}",
)
sql(
    "correlated_subquery",
    "select name, (select sum(amount) from {orders} o where o.person = p.id) as spent from "
    "{people} p",
)
sql(
    "scalar_subquery_in_case",
    """
    select case when (select count(amount) from {orders}) > 7 then (select max(page) from {visits}) else name end as c from {people}
""",
)
sql(
    "exists",
    "select name from {people} p where exists (select 1 from {orders} o where o.person = p.id and "
    "o.amount > 2)",
)
sql(
    "not_in",
    "select name from {people} where id not in (select person from {visits} where page is not null)",
)
sql("in_as_a_value", "select id, id in (select person from {visits}) as visited from {people}")
sql(
    "lateral_join",
    """
    select p.name, o.amount from {people} p, lateral (select amount from {orders} o where o.person = p.id order by day limit 1) o
""",
)
sql(
    "cte_used_twice",
    """
    with big as (select person, amount from {orders} where amount > 2) select a.person, b.amount + 1 as next
    from big a join big b on a.amount = b.person
""",
)
sql(
    "cte_in_a_union",
    "with v as (select person as x, page as y from {visits}) select x, y from v union all select "
    "length(y), 'k' from v",
)
sql(
    "recursive_cte",
    """
    with recursive chain (id, top, depth) as (
        select id, name, 0 from {people} where boss is null union all
        select p.id, c.top, c.depth + 1 from {people} p join chain c on p.boss = c.id)
    select id, top, depth from chain
""",
)


@shape
def nearest_in_time(t: Tables) -> DataFrame:
    left, right = (
        t.orders.select("id", "person"),
        t.people.select(F.col("id").alias("at"), "name", F.col("boss").alias("person")),
    )
    near: Any = left
    return near._joinAsOf(
        right, leftAsOfColumn=left["id"], rightAsOfColumn=right["at"], on="person"
    ).select(left["id"], "name")


sql(
    "values_joined",
    "select p.name, v.label from {people} p join (values (1, 'one'), (2, 'two')) as v (id, label) "
    "on p.id = v.id",
)


# --- rows made of rows


@shape
def explode(t: Tables) -> DataFrame:
    return t.orders.select("id", F.explode("tags").alias("tag"))


sql(
    "explode_outer_with_position",
    "select id, at, upper(tag) as tag from {orders} lateral view outer posexplode(tags) as at, tag",
)
sql(
    "inlined_structs",
    "select id, a, b from {orders} lateral view inline(array(struct(amount as n, day), struct(id "
    "as n, day))) as a, b",
)


# --- views, hints and caches


@shape
def temporary_view(t: Tables) -> DataFrame:
    t.orders.where("amount > 1").createOrReplaceTempView("zoo_big")
    return t.spark.sql("select person, max(amount) as m from zoo_big group by person")


@shape
def cached(t: Tables) -> DataFrame:
    kept = t.people.where("city is not null").select("name", "id").cache()
    kept.unpersist()
    return kept.select("name")


@shape
def hints_and_partitions(t: Tables) -> DataFrame:
    return (
        F.broadcast(t.people.repartition(2, "city").sortWithinPartitions("id"))
        .select("name")
        .coalesce(1)
    )


@shape
def observed(t: Tables) -> DataFrame:
    return t.orders.observe("seen", F.count("*").alias("n")).select("amount")


@shape
def sampled_and_repartitioned(t: Tables) -> DataFrame:
    frame = t.people.sample(fraction=1.0, seed=1).repartition("city").hint("broadcast")
    return frame.select("boss").offset(0)


sql("one_row", "select id, name from {people} union all select 7, 'seven'")
sql("one_row_counted", "select count(*) as n")


@shape
def numbers_joined(t: Tables) -> DataFrame:
    return (
        t.spark.range(3)
        .withColumnRenamed("id", "n")
        .join(t.people, F.col("n") == F.col("boss"))
        .select("n", "name")
    )


@shape
def rows_of_a_program(t: Tables) -> DataFrame:
    return t.people.join(
        t.spark.createDataFrame([(1, "one"), (3, "three")], "id int, label string"), "id"
    ).select("id", "label")


# --- what nobody looks into


def _added(a: int | None, b: int | None) -> int:
    return (a or 0) + (b or 0)


@shape
def python_udf(t: Tables) -> DataFrame:
    twice = F.udf(_added, "int")
    return t.orders.select("id", twice("amount", "person").alias("u"))


@shape
def grouped_pandas_udf(t: Tables) -> DataFrame:
    def middle(values: pd.Series) -> float:
        return float(values.median())

    make: Any = F.pandas_udf
    median = make(middle, "double")
    return t.orders.groupBy("person").agg(median("amount").alias("m"))


@shape
def map_in_pandas(t: Tables) -> DataFrame:
    return t.people.select("id", "name").mapInPandas(lambda frames: frames, "id int, name string")


@shape
def map_in_arrow(t: Tables) -> DataFrame:
    return (
        t.people.select("id", "city")
        .where("boss is null")
        .mapInArrow(lambda batches: batches, "id int, city string")
    )


@shape
def apply_in_pandas(t: Tables) -> DataFrame:
    return (
        t.orders.select("person", "amount")
        .groupBy("person")
        .applyInPandas(lambda frame: frame, "person int, amount int")
    )


@shape
def cogrouped(t: Tables) -> DataFrame:
    left, right = (
        t.visits.select("person", "page").groupBy("person"),
        t.people.select("id", "name").groupBy("id"),
    )
    return left.cogroup(right).applyInPandas(lambda a, b: a, "person int, page string")


@shape
def apply_in_arrow(t: Tables) -> DataFrame:
    return (
        t.orders.select("person", "day")
        .groupBy("person")
        .applyInArrow(lambda table: table, "person int, day string")
    )


@shape
def cogrouped_in_arrow(t: Tables) -> DataFrame:
    left, right = (
        t.visits.select("person", "page").groupBy("person"),
        t.people.select("id").groupBy("id"),
    )
    return left.cogroup(right).applyInArrow(lambda a, b: a, "person int, page string")


class Words:
    """A table function in Python."""

    def eval(self, text: str) -> Iterator[tuple[str, int]]:
        for word in (text or "").split():
            yield word, len(word)


@shape
def python_table_function(t: Tables) -> DataFrame:
    t.spark.udtf.register(
        "zoo_words", cast(Any, F.udtf)(Words, returnType="word string, length int")
    )
    return t.sql("select p.id, w.word, w.length from {people} p, lateral zoo_words(p.name) w")


@shape
def python_udf_in_a_filter(t: Tables) -> DataFrame:
    keep = F.udf(bool, "boolean")
    return t.people.where(keep("city")).select("id")
