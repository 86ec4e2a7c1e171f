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


def check_moved(groups: Iterable[EventGroup], streams: Iterable[EventStream]) -> None:
    """Refuse what no group can take over: a type that another has, and tables of another stream.

    Raises:
        DeclarationError: naming the group, the type and the remedy.
    """
    several, names = list(groups), {stream.name.casefold(): stream for stream in streams}
    homes: dict[str, EventGroup] = {}
    for group in several:
        for pattern, home in group.moved.items():
            owner = group if "*" in pattern else owner_of([one for one in several if one.stream == group.stream], pattern)
            if owner.name != group.name:
                raise DeclarationError(group.name, "moved", f"{shown(pattern)} is a type of {owner.name}, which says more of its name")
            if home.casefold() in names:
                raise DeclarationError(group.name, "moved", f"{home} is a stream, which has no types of its own; leave it out")
        for home in group.homes:
            other = homes.setdefault(home.casefold(), group)
            if other.stream != group.stream:
                problem = f"tables of {home} are filled from {other.stream.name} by {other.name}; a table is of one stream"
                raise DeclarationError(group.name, "moved", problem)
