"""What is declared personal is known under the names by which lineage reports columns, also of
messages and of events.
"""

from lakechime_dagster.governance.tags import declared_tags, public_tables, within_reach
from lakechime_dagster.tables.cdc import CDCMerge, SourceSchema, cdc_table
from lakechime_dagster.tables.databases import Debezium
from lakechime_dagster.tables.declare import sql_table
from lakechime_dagster.tables.events import EventGroup, EventStream, event_group, event_stream
from lakechime_dagster.tables.lake import Lake, Table
from lakechime_dagster.tables.options import Asset, personal
from lakechime_dagster.tables.sources import JsonLines
from lakechime_dagster.tables.tables import SourceTable

EMAIL, PHONE = personal("email"), personal("phone")
GAME = event_stream("game", source=JsonLines("in"))


def tags(*declared: Table | EventStream | EventGroup) -> dict[str, str]:
    return {
        str(ref): category for ref, category in declared_tags(Lake("shop", list(declared))).items()
    }


def test_columns_of_sources_and_of_computed_tables_are_known_by_their_names() -> None:
    letters = SourceTable("bronze.letters", asset=Asset(columns={"payload:$.to": EMAIL}))
    copied = sql_table(
        "silver.letters",
        sql="SELECT id, author FROM bronze.letters",
        refresh="full",
        asset=Asset(columns={"author": PHONE}),
    )
    assert tags(letters, copied) == {
        "bronze.letters.payload:$.to": "email",
        "silver.letters.author": "phone",
    }


def test_what_a_table_that_follows_a_database_declares_is_personal_in_its_messages_by_the_names_there() -> (
    None
):
    table = cdc_table(
        "silver.people",
        source=JsonLines("in"),
        envelope=Debezium(),
        merge=CDCMerge(keys=("phone",)),
        schema=SourceSchema(names={"mail": "email"}),
        asset=Asset(columns={"email": EMAIL, "Phone": PHONE}),
    )
    assert tags(table) == {
        "silver.people.email": "email",
        "silver.people.Phone": "phone",
        "silver.people__changes.$.mail": "email",
        "silver.people__changes.value:$..mail": "email",
        "silver.people__changes.$.Phone": "phone",
        "silver.people__changes.value:$..Phone": "phone",
        "silver.people__changes.key:$..Phone": "phone",
    }


def test_paths_of_a_group_are_personal_in_the_events_of_its_stream() -> None:
    assert tags(GAME, event_group("shop", GAME, columns={"/user/email": EMAIL})) == {
        "game.events.$.user.email": "email",
        "game.events.payload:$.user.email": "email",
    }


def test_within_reach_is_what_reads_personal_columns_or_reads_what_does() -> None:
    people, visits, logins = (
        SourceTable("bronze.people", asset=Asset(columns={"email": EMAIL})),
        SourceTable("bronze.visits"),
        SourceTable("shop.login"),
    )
    group = event_group("shop", GAME, columns={"/user/email": EMAIL})
    reads = {
        "silver.a": "bronze.people",
        "gold.b": "silver.a",
        "silver.c": "bronze.visits",
        "silver.d": "shop.login",
        "gold.open": "silver.c",
    }
    made = [
        sql_table(
            name, sql=f"SELECT x FROM {of}", refresh="full", asset=Asset(public=name == "gold.open")
        )
        for name, of in reads.items()
    ]
    lake = Lake("shop", [people, visits, logins, GAME, group, *made])
    assert within_reach(lake) == {"silver.a", "gold.b", "silver.d"}
    assert public_tables(lake) == {"gold.open"}
