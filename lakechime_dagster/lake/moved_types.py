"""Types that a group takes over from another, whose tables stay where they are: what may be declared of them."""

from collections.abc import Iterable, Mapping

from lakechime_dagster.errors import DeclarationError, shown
from lakechime_dagster.lake.events import EventGroup, EventStream, owner_of
from lakechime_dagster.lake.names import PART
from lakechime_dagster.lake.type_patterns import is_matched, overlap, specificity

MAX_GROUP_NAME = 40
SHAPE = 'write such as {"shop.buy": "shop"}, a type or a pattern of types and the group that had them first'


def checked_moved(name: str, stream: EventStream, match: str, moved: object) -> dict[str, str]:
    """The types that a group takes over, by pattern, each with the group in whose folder their tables lie.

    Raises:
        DeclarationError: naming the group, the pattern and the remedy.
    """
    if not isinstance(moved, Mapping):
        raise DeclarationError(name, "moved", f"{shown(moved)} is no map of types; {SHAPE}")
    for pattern, home in moved.items():
        if not isinstance(pattern, str) or not pattern:
            raise DeclarationError(name, "moved", f"{shown(pattern)} is no type; {SHAPE}")
        if not isinstance(home, str) or not PART.fullmatch(home) or len(home) > MAX_GROUP_NAME:
            raise DeclarationError(name, "moved", f"{shown(home)} of {pattern} is no name of a group; {SHAPE}")
        if home.casefold() in (name.casefold(), stream.name.casefold()):
            whose = "this group itself" if home.casefold() == name.casefold() else "the stream, which has no types of its own"
            raise DeclarationError(name, "moved", f"{home} of {pattern} is {whose}; leave it out")
        if not (overlap(match, pattern) if "*" in pattern else is_matched(match, pattern)):
            raise DeclarationError(name, "moved", f"{shown(pattern)} is not matched by {match!r}; it is of another group")
    several = list(moved)
    for at, one in enumerate(several):
        for other in several[:at]:
            is_tied = specificity(one) == specificity(other) and overlap(one, other)
            if is_tied and moved[one] != moved[other]:
                raise DeclarationError(name, "moved", f"{one!r} and {other!r} match the same types; make one of them longer")
    return dict(moved)


def check_moved(groups: Iterable[EventGroup], streams: Iterable[EventStream]) -> tuple[EventGroup, ...]:
    """The groups, of which those fail that take over what they cannot: a type that another has, and tables of another stream.

    Raises:
        DeclarationError: naming the group, the type and the remedy, where failures are not kept.
    """
    several, names = list(groups), {stream.name.casefold() for stream in streams}
    streams_of = {group.name.casefold(): group for group in several}
    for group in several:
        for home in group.moved.values():
            streams_of.setdefault(home.casefold(), group)
    found: list[EventGroup] = []
    for group in several:
        beside = [one for one in several if one.stream == group.stream]
        problem = next(filter(None, (_moved_wrongly(group, *one, beside, names, streams_of) for one in group.moved.items())), "")
        found.append(group.failed(DeclarationError(group.name, "moved", problem), moved={}) if problem else group)
    return tuple(found)


def _moved_wrongly(
    group: EventGroup, pattern: str, home: str, beside: list[EventGroup], streams: set[str], having: Mapping[str, EventGroup]
) -> str:
    """Why a group cannot take over types from a home; nothing where it can."""
    owner, other = group if "*" in pattern else owner_of(beside, pattern), having[home.casefold()]
    if owner.name != group.name:
        return f"{shown(pattern)} is a type of {owner.name}, which says more of its name"
    if home.casefold() in streams:
        return f"{home} is a stream, which has no types of its own; leave it out"
    if other.stream != group.stream:
        return f"tables of {home} are filled from {other.stream.name} by {other.name}; a table is of one stream"
    return ""
