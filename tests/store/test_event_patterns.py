"""From where a group looks for types that nobody had read, once the groups of its stream share types in another way."""

from lakechime_dagster.schema.repository import TypePlace
from lakechime_dagster.store.engine import writing
from lakechime_dagster.store.event_patterns import Patterns
from lakechime_dagster.triggers.flow import Flow
from lakechime_dagster.triggers.model import SnapshotTrigger
from tests.support.world import World, elsewhere

EVENTS = "game.events"
BEFORE = {"shop": "shop.*", "rest": "*"}
AFTER = {"shop": "s*", "rest": "*"}


def patterns(world: World) -> Patterns:
    return Patterns(world.engine, world.deployment, EVENTS)


def read(world: World, group: str, by: dict[str, str]) -> None:
    """A step of a group reads all that there is."""
    flow = Flow(name=group, trigger=SnapshotTrigger([EVENTS]), job="anything", has_types=True)
    for execution in world.fire(flow):
        with writing(world.engine) as connection:
            patterns(world).keep(connection, group, by)
        world.ledger.settle(execution, None)


def unread(world: World, group: str, by: dict[str, str]) -> int | None:
    found = patterns(world).unread_since(group, by)
    return None if found is None else found.version


def test_a_group_looks_back_to_the_oldest_place_until_it_has_read_by_the_new_patterns(world: World) -> None:
    for version, group in ((1, "rest"), (2, "shop")):
        world.change(EVENTS, version)
        read(world, group, BEFORE)
    assert [unread(world, group, BEFORE) for group in BEFORE] == [None, None]
    assert [unread(world, group, AFTER) for group in AFTER] == [1, 1]
    world.change(EVENTS, 3)
    read(world, "shop", AFTER)
    assert [unread(world, group, AFTER) for group in AFTER] == [None, 1]


def test_a_group_that_has_read_nothing_lets_others_look_at_all_and_a_new_one_does_not(world: World) -> None:
    world.change(EVENTS, 1)
    read(world, "shop", BEFORE)
    assert unread(world, "shop", AFTER) == TypePlace().version
    read(world, "rest", BEFORE)
    assert unread(world, "shop", {**BEFORE, "vip": "shop.vip"}) == 1
    assert unread(world, "vip", {**BEFORE, "vip": "shop.vip"}) == TypePlace().version


def test_a_group_that_there_is_no_more_is_looked_behind_too(world: World) -> None:
    world.change(EVENTS, 1)
    read(world, "vip", {**BEFORE, "vip": "shop.vip"})
    world.change(EVENTS, 2)
    for group in BEFORE:
        read(world, group, {**BEFORE, "vip": "shop.vip"})
    assert unread(world, "shop", BEFORE) == 1


def test_groups_of_other_streams_and_deployments_tell_nothing(world: World) -> None:
    world.change(EVENTS, 1)
    for group in BEFORE:
        read(world, group, BEFORE)
    other = Patterns(world.engine, world.deployment, "web.events")
    with writing(world.engine) as connection:
        other.keep(connection, "pages", {"pages": "*"})
    read(elsewhere(world, "production"), "shop", AFTER)
    assert unread(world, "shop", AFTER) == 1
    assert unread(world, "shop", BEFORE) is None
