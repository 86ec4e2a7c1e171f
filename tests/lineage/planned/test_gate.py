"""What a change of the code does to each table and its readers, by two manifests."""

from dataclasses import replace

import pytest

from lakechime_dagster.lineage.check import (
    Class,
    Finding,
    compare,
    markdown,
    raised,
    readers_of,
    with_accepted,
)
from lakechime_dagster.lineage.columns import (
    ACTIVE_MS,
    RECIPIENT_MS,
    ColumnRef,
    Consumer,
    ConsumerKind,
    Kind,
    Read,
    Source,
)
from lakechime_dagster.lineage.manifest import Manifest, PlannedColumn, PlannedTable

TYPES = {"id": "long", "amount": "long", "city": "string"}


def make_column(
    name: str, *sources: str, digest: str = "same", kind: Kind = Kind.IDENTITY, **fields: object
) -> PlannedColumn:
    refs = tuple(Source(ColumnRef(*one.rsplit(".", 1)), kind) for one in sources)
    return PlannedColumn(
        column=name,
        type=fields.pop("type", "long"),
        sources=refs,
        digest=digest,
        **fields,  # pyright: ignore[reportArgumentType]
    )


def make_table(
    name: str, *columns: PlannedColumn, reads: str = "", by: str = "", **fields: object
) -> PlannedTable:
    """A computed table; `by` are columns that decide on its rows."""
    indirect = tuple(Source(ColumnRef(*one.rsplit(".", 1)), Kind.FILTER) for one in by.split())
    given = {"code": "code", "rows": "rows", "owner": f"team:{name.split('.')[-1]}"} | fields
    return PlannedTable(
        target=name,
        columns=columns,
        inputs=tuple(reads.split()),
        indirect=indirect,
        **given,  # pyright: ignore[reportArgumentType]
    )


SOURCE = PlannedTable(
    target="bronze.orders",
    columns=tuple(PlannedColumn(column=name, type=kind) for name, kind in TYPES.items()),
)
PAID = make_table(
    "silver.paid",
    make_column("id", "bronze.orders.id"),
    make_column("twice", "bronze.orders.amount", kind=Kind.TRANSFORMATION),
    reads="bronze.orders",
    by="bronze.orders.amount",
)
TOWNS = make_table(
    "gold.towns",
    make_column("total", "silver.paid.twice", kind=Kind.AGGREGATION),
    reads="silver.paid",
)
IDS = make_table("gold.ids", make_column("id", "silver.paid.id"), reads="silver.paid")


def make_manifest(*tables: PlannedTable, **accepted: str) -> Manifest:
    return Manifest(
        lake="shop", tables={table.target: table for table in tables}, accepted=accepted
    )


def with_column(table: PlannedTable, name: str, **changes: object) -> PlannedTable:
    return replace(
        table,
        columns=tuple(
            replace(one, **changes) if one.column == name else one for one in table.columns
        ),
    )  # type: ignore[arg-type]


def found(*after: PlannedTable) -> set[tuple[Class, str, str | None]]:
    """What is found when these are in place of the tables of that name."""
    before = make_manifest(SOURCE, PAID, TOWNS, IDS)
    new = make_manifest(*({**before.tables, **{table.target: table for table in after}}.values()))
    return {(one.kind, one.table, one.column) for one in compare(before, new)}


def test_another_value_hits_the_readers_of_the_column_alone() -> None:
    assert found(with_column(PAID, "twice", digest="other")) == {
        (Class.VALUES, "silver.paid", "twice"),
        (Class.VALUES, "gold.towns", "total"),
    }


def test_other_rows_hit_every_reader() -> None:
    assert found(replace(PAID, rows="other")) == {
        (Class.ROWS, "silver.paid", None),
        (Class.ROWS, "gold.towns", None),
        (Class.ROWS, "gold.ids", None),
    }


def test_a_value_that_decides_on_rows_changes_the_rows_of_who_reads_it() -> None:
    by_total = make_table(
        "gold.large",
        make_column("id", "silver.paid.id"),
        reads="silver.paid",
        by="silver.paid.twice",
    )
    before = make_manifest(SOURCE, PAID, by_total)
    after = make_manifest(SOURCE, with_column(PAID, "twice", digest="other"), by_total)
    assert (Class.ROWS, "gold.large", None) in {
        (one.kind, one.table, one.column) for one in compare(before, after)
    }


def test_another_type_breaks_and_its_readers_have_other_values() -> None:
    assert found(with_column(PAID, "id", type="string")) == {
        (Class.BREAKS, "silver.paid", "id"),
        (Class.VALUES, "gold.ids", "id"),
    }


def test_a_table_that_goes_with_all_its_readers_breaks_none() -> None:
    before = make_manifest(SOURCE, PAID, TOWNS)
    gone = compare(before, make_manifest(SOURCE))
    assert [(one.kind, one.table) for one in gone] == [
        (Class.INFORMS, "gold.towns"),
        (Class.INFORMS, "silver.paid"),
    ]
    without = replace(PAID, columns=PAID.columns[:1])  # its reader goes with the column
    assert {one.kind for one in compare(before, make_manifest(SOURCE, without))} == {Class.INFORMS}
    assert Class.BREAKS in {one.kind for one in compare(before, make_manifest(SOURCE, TOWNS))}


def test_what_does_not_resolve_any_more_breaks_and_who_waits_for_it_is_unsure() -> None:
    broken = replace(TOWNS, columns=(), unknown=("[UNRESOLVED_COLUMN] twice",))
    assert found(broken) == {(Class.BREAKS, "gold.towns", None)}
    paid = replace(PAID, columns=(), unknown=("[UNRESOLVED_COLUMN] amount",))
    waiting = [
        replace(one, columns=(), unknown=("not known until silver.paid is",))
        for one in (TOWNS, IDS)
    ]
    assert {(kind, table) for kind, table, _ in found(paid, *waiting)} >= {
        (Class.BREAKS, "silver.paid"),
        (Class.UNSURE, "gold.towns"),
        (Class.UNSURE, "gold.ids"),
    }


def test_a_column_that_is_gone_breaks_who_read_it_and_informs_if_nobody_did() -> None:
    without = replace(PAID, columns=tuple(one for one in PAID.columns if one.column != "twice"))
    broken = replace(TOWNS, columns=(), unknown=("[UNRESOLVED_COLUMN] twice",))
    assert {
        (Class.INFORMS, "silver.paid", "twice"),
        (Class.BREAKS, "gold.towns", "total"),
    } <= found(without, broken)
    assert found(without, replace(TOWNS, columns=(make_column("total"),)), IDS) == {
        (Class.INFORMS, "silver.paid", "twice")
    }


def test_keys_partitions_and_refresh_mode_change_rows() -> None:
    assert (Class.ROWS, "gold.towns", None) in found(replace(TOWNS, laid_out={"keys": "id"}))


@pytest.mark.parametrize("why", [{"opaque": ("rows of an RDD",)}, {"udfs": ("Python UDF double",)}])
def test_other_code_of_what_cannot_be_reported_is_unsure_and_so_is_who_reads_it(
    why: dict[str, tuple[str, ...]],
) -> None:
    before = with_column(PAID, "twice", **why)
    after = make_manifest(
        SOURCE, with_column(replace(before, code="other"), "twice", digest="other"), TOWNS, IDS
    )
    kinds = {
        (one.kind, one.table, one.column)
        for one in compare(make_manifest(SOURCE, before, TOWNS, IDS), after)
    }
    assert kinds == {(Class.UNSURE, "silver.paid", "twice"), (Class.UNSURE, "gold.towns", "total")}


def test_cosmetic_changes_are_silent_and_nullability_and_order_inform() -> None:
    assert found(replace(PAID, code="written in other words")) == set()
    assert found(with_column(PAID, "id", nullable=False)) == {(Class.INFORMS, "silver.paid", "id")}
    assert found(replace(PAID, columns=PAID.columns[::-1])) == {
        (Class.INFORMS, "silver.paid", None)
    }


def test_a_table_that_is_taken_away_breaks_its_readers() -> None:
    after = make_manifest(SOURCE, TOWNS, IDS)
    kinds = {
        (one.kind, one.table) for one in compare(make_manifest(SOURCE, PAID, TOWNS, IDS), after)
    }
    assert (Class.BREAKS, "silver.paid") in kinds


OPAQUE = make_table(
    "gold.opaque",
    make_column("rdd", opaque=("RDD",)),
    make_column("id", "silver.paid.id"),
    reads="silver.paid",
)
UNKNOWN = make_table(
    "gold.unknown",
    reads="silver.paid",
    unknown=("not known until it runs: its function wants context",),
)
WITHOUT_TWICE = replace(PAID, columns=PAID.columns[:1])


@pytest.mark.parametrize(
    ("paid", "what"),
    [
        (with_column(PAID, "twice", digest="other"), ""),
        (WITHOUT_TWICE, ", which is gone"),
        (with_column(PAID, "twice", type="string"), ""),
    ],
)
def test_a_reader_that_does_not_say_what_it_reads_is_unsure_and_so_is_who_reads_it(
    paid: PlannedTable, what: str
) -> None:
    readers = (
        OPAQUE,
        UNKNOWN,
        make_table("gold.after", make_column("n", "gold.opaque.rdd"), reads="gold.opaque"),
    )
    findings = compare(make_manifest(SOURCE, PAID, *readers), make_manifest(SOURCE, paid, *readers))
    hit = {
        (one.kind, one.table, one.column): one.what
        for one in findings
        if one.table != "silver.paid"
    }
    assert hit == {
        (Class.UNSURE, "gold.opaque", "rdd"): f"may read silver.paid.twice{what}",
        (Class.UNSURE, "gold.unknown", None): f"may read silver.paid.twice{what}",
        (
            Class.UNSURE,
            "gold.after",
            "n",
        ): "reads gold.opaque.rdd, which comes from silver.paid.twice",
    }


def test_who_surely_reads_is_reported_so_though_a_shorter_way_is_not_sure() -> None:
    both = make_table(
        "gold.both",
        make_column("n", "gold.towns.total", opaque=("RDD",)),
        reads="gold.towns silver.paid",
    )
    changed = with_column(PAID, "twice", digest="other")
    findings = compare(
        make_manifest(SOURCE, PAID, TOWNS, both), make_manifest(SOURCE, changed, TOWNS, both)
    )
    assert (Class.VALUES, "gold.both", "n") in {
        (one.kind, one.table, one.column) for one in findings
    }


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (with_column(PAID, "twice", digest="0f"), with_column(PAID, "twice", digest="1f")),
        (replace(PAID, laid_out={"keys": "id"}), replace(PAID, laid_out={"keys": "twice"})),
    ],
)
def test_what_is_accepted_is_reported_again_once_it_is_another_change_of_the_same_position(
    first: PlannedTable, second: PlannedTable
) -> None:
    before = make_manifest(SOURCE, PAID, TOWNS, IDS)
    findings = compare(before, make_manifest(SOURCE, first, TOWNS, IDS))
    agreed = {one.key: "agreed on Monday" for one in findings}
    assert {one.accepted for one in with_accepted(findings, agreed)} == {"agreed on Monday"}
    assert {one.table for one in findings} >= {"silver.paid", "gold.towns"}
    other = compare(before, make_manifest(SOURCE, second, TOWNS, IDS))
    assert {(one.kind, one.ref) for one in other} == {(one.kind, one.ref) for one in findings}
    assert {one.accepted for one in with_accepted(other, agreed)} == {""}


def test_the_report_is_by_owner_and_names_the_way_and_the_command() -> None:
    before = make_manifest(SOURCE, PAID, TOWNS, IDS)
    after = make_manifest(SOURCE, with_column(PAID, "twice", digest="other"), TOWNS, IDS)
    reported = markdown(compare(before, after), {"silver.paid": "snapshot trigger"})
    assert "### team:towns" in reported
    assert "silver.paid.twice → gold.towns.total" in reported
    assert "lakechime backfill run --dry-run --columns silver.paid.twice" in reported
    assert "team:ids" not in reported
    other = markdown(
        compare(before, after), {}, {"silver.paid": "its next run makes all of it again"}
    )
    assert "- silver.paid: its next run makes all of it again" in other
    assert "lakechime backfill" not in other


def test_a_finding_names_the_dashboards_that_read_what_it_is_about_and_no_others() -> None:
    def read(name: str, ref: ColumnRef, at_ms: int = 1_700_000_000_000) -> Read:
        return Read(
            consumer=Consumer(ConsumerKind.DASHBOARD, "bi", name),
            refs=(ref,),
            at_ms=at_ms,
            owners=("ann",),
        )

    findings = compare(
        make_manifest(SOURCE, PAID, TOWNS, IDS),
        make_manifest(SOURCE, with_column(PAID, "twice", digest="other"), TOWNS, IDS),
    )
    reads = [
        read("Totals", ColumnRef("gold.towns", "total")),
        read("Totals", ColumnRef("gold.towns", "total"), 1_600_000_000_000),
        read("Ids", ColumnRef("silver.paid", "id")),
        read("Whole", ColumnRef("silver.paid")),
    ]
    found = readers_of(findings, reads)
    names = {
        finding.table: [one.consumer.name for one in found.get(finding.key, ())]
        for finding in findings
    }
    assert names == {"silver.paid": ["Whole"], "gold.towns": ["Totals"]}
    reported = markdown(findings, {}, readers=found)
    assert "| dashboard Totals of ann (2023-11-14) |" in reported
    assert "Ids" not in reported


@pytest.mark.parametrize(
    ("ref", "days", "kind"),
    [
        (ColumnRef("silver.paid", "twice"), 34, Class.BREAKS),
        (ColumnRef("silver.paid", "twice"), 36, Class.INFORMS),
        (ColumnRef("silver.paid"), 1, Class.UNSURE),
        (ColumnRef("silver.paid", "id"), 1, Class.INFORMS),
    ],
)
def test_a_column_that_is_gone_breaks_a_dashboard_that_read_it_of_late(
    ref: ColumnRef, days: int, kind: Class
) -> None:
    now = 1_700_000_000_000
    read = Read(
        consumer=Consumer(ConsumerKind.DASHBOARD, "bi", "Sales"),
        refs=(ref,),
        at_ms=now - days * ACTIVE_MS,
    )
    (gone,) = compare(make_manifest(SOURCE, PAID), make_manifest(SOURCE, WITHOUT_TWICE))
    (finding,) = raised([gone], [read], now - RECIPIENT_MS)
    assert (gone.kind, finding.kind) == (Class.INFORMS, kind)


@pytest.mark.parametrize("accepted", ["", "agreed on Monday"])
def test_rows_that_older_code_left_are_reported_with_what_rebuilds_them_accepted_or_not(
    accepted: str,
) -> None:
    reported = markdown(
        [
            Finding(
                kind=Class.VALUES, table="gold.towns", column="total", what="w", accepted=accepted
            )
        ],
        {},
    )
    assert (
        "- gold.towns: `lakechime backfill run --dry-run --columns gold.towns.total`"
        in reported.partition("### rows that older code left")[2]
    )


def test_hostile_names_make_no_cell_and_no_tag() -> None:
    reported = markdown(
        [Finding(kind=Class.BREAKS, table="a|b", column="<script>\n|x|`", what="w")], {}
    )
    assert "<script" not in reported
    row = next(line for line in reported.splitlines() if "a\\|b" in line)
    assert row.replace("\\|", "").count("|") == 8
