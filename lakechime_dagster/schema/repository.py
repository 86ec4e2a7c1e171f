"""What a group knows of its types, and who keeps it: the store is the truth, which knows a column before any table has it."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from lakechime_dagster.schema.breaking import Breaking
from lakechime_dagster.schema.layout import Layout
from lakechime_dagster.schema.observed import Observed
from lakechime_dagster.schema.producers import Brought, Withheld
from lakechime_dagster.schema.variation import Variation

NOWHERE = -1  # the place of a type of which nothing was read


@dataclass(frozen=True, kw_only=True)
class TypePlace:
    """Up to which version of a stream's table a type's own table holds its rows, and how many commits of the group it has.

    The count is tied to the place: whoever writes what lies behind the place commits under the number that follows, so that
    of all who do one is let in, however long they lived.

    Attributes:
        uid: Of the stream's table.
    """

    uid: str | None = None
    version: int = NOWHERE
    commits: int = 0


@dataclass(frozen=True, kw_only=True)
class KnownType:
    """A type as its group knows it.

    Attributes:
        table: The name of its table within its home.
        home: The group in whose folder its table lies; empty where that is the one that has it.
        layout: The columns of its payload, of which `layout_version` is the number; 0 before the first.
        failures: How often in a row it could not be written; it is not tried again before `due_ts`.
        due_ts: When events that a step left are read at the latest: those of a failed type, and those that are cold. 0 where none are.
        told_ts: When people were told of it last.
        pending: Events that wait for a table, up to where its group has read.
        withheld: What of the observed gets no column, as its producers have brought too many.
    """

    type: str
    table: str
    home: str = ""
    place: TypePlace = field(default_factory=TypePlace)
    layout: Layout = field(default_factory=Layout)
    layout_version: int = 0
    observed: Observed = field(default_factory=Observed)
    failures: int = 0
    due_ts: int = 0
    error: str = ""
    told_ts: int = 0
    pending: int = 0
    withheld: Withheld = field(default_factory=dict, hash=False)

    def is_put_off(self, now_ms: int) -> bool:
        """Whether it failed, and is not tried again yet."""
        return self.failures > 0 and self.due_ts > now_ms


@dataclass(frozen=True, kw_only=True)
class Prototype:
    """A variation that was not known, by one event of it.

    Attributes:
        shape: The event with its values replaced by ones that tell nothing but their kind.
        source: The row's `_src`.
        position: The version of the stream's table with which it came.
        producer: Who sent it; None where the event does not tell.
        senders: All who sent the variation then.
        is_joined: It is no variation of one event: paths and kinds of several, of which the store keeps nothing else.
    """

    typed_hash: str
    names_hash: str
    variation: Variation
    shape: str
    source: str
    position: int
    producer: str | None = None
    senders: tuple[str, ...] = ()
    is_joined: bool = False


def kept_of(found: Iterable[Prototype]) -> dict[str, Variation]:
    """The variations of single events, by hash."""
    return {one.typed_hash: one.variation for one in found if not one.is_joined}


@dataclass(frozen=True, kw_only=True)
class Learning:
    """What a step found out of one type: the observed that includes it, and the layout that has a place for it.

    Attributes:
        place: From which a new type is read.
        prototypes: Of the variations that are new, those first that enlarge what was observed, which are `enlarging` many.
        before: The number of the layout to which it was added.
        decision: What the layout gained, or lost, for people.
        breaking: What of it breaks something.
        withheld: What gets no column, in place of what was withheld before; None of the latter where it makes no difference.
        brought: What each producer brought; None where the stream tells of no producer.
    """

    type: str
    table: str
    home: str = ""
    place: TypePlace
    prototypes: tuple[Prototype, ...]
    enlarging: int
    observed: Observed
    layout: Layout
    is_new_layout: bool
    before: int
    decision: str = ""
    breaking: tuple[Breaking, ...] = ()
    withheld: Withheld = field(default_factory=dict, hash=False)
    withheld_before: Withheld | None = field(default=None, hash=False)
    brought: Mapping[str, Brought] | None = field(default=None, hash=False)

    def known_after(self, known: KnownType, layout_version: int) -> KnownType:
        """The type as the store knows it then."""
        return replace(known, layout=self.layout, layout_version=layout_version, observed=self.observed, withheld=self.withheld)

    def columns_added(self, known: KnownType) -> int:
        """How many columns of single values the layout gained."""
        return self.layout.leaves - known.layout.leaves


class SchemaRepository(Protocol):
    """The types of the groups of one deployment."""

    def types(self, group: str) -> dict[str, KnownType]:
        """What is known of a group's types, by name."""
        ...

    def variations(self, group: str, types: Collection[str]) -> dict[str, dict[str, Variation]]:
        """The variations of these types that are kept, by hash; a type of which none is has an empty map."""
        ...

    def layouts(self, group: str, type_name: str) -> list[Layout]:
        """The layouts of a type, the first one first."""
        ...

    def columns_brought(self, group: str, types: Collection[str]) -> dict[str, dict[str, int]]:
        """How many columns each producer has brought to these types; who has brought none is left out."""
        ...

    def learn(self, group: str, several: Sequence[Learning]) -> dict[str, int]:
        """Keep what was found out, all in one transaction, before any table is touched; the number of each type's layout.

        Raises:
            LaneConflictError: A type's layout, or what is withheld of it, is not what this was added to, or another group has the type
                by now: read anew, and decide again.
        """
        ...

    def propose(self, group: str, one: Learning, replay_id: int) -> int:
        """Keep what a rebuild found out, and the layout that it gives the type's table; the number of that.

        It holds once the table has it, as `adopt` says: until then the type is written as it was.

        Raises:
            LaneConflictError: As of `learn`.
        """
        ...

    def adopt(self, group: str, type_name: str, step: int, version: int) -> None:
        """From now on a layout holds that was proposed, as the type's table has it with the commit of this step; done again nothing."""
        ...
