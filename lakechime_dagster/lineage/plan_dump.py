"""A dump of an analysed Spark plan as frozen values."""

import re
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from lakechime_dagster.errors import LakeChimeError
from lakechime_dagster.lineage.columns import Names, external, outside

VERSION = 1
SUBQUERIES = frozenset(
    {
        "ScalarSubquery",
        "Exists",
        "ListQuery",
        "LateralSubquery",
        "FunctionTableSubqueryArgumentExpression",
    }
)
Field: TypeAlias = (
    "Node | Unknown | tuple[Field, ...] | Mapping[str, Field] | str | int | float | bool | None"
)


class MissingPartError(LakeChimeError):
    """A dump lacks something that the meaning of a node depends on: what the node gives is not
    known.
    """


@dataclass(frozen=True, slots=True)
class Unknown:
    """An object that the dumper does not know; only its class was kept, since its text could hold
    personal values.
    """

    name: str


@dataclass(frozen=True, slots=True)
class Attribute:
    """A column that a plan node gives; its id is no global key: a union's are those of its first
    child.
    """

    id: int
    name: str


@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """A plan node or an expression: its class, and the parameters that it was made with; `parts`
    are the nodes in these, once looked up.
    """

    name: str
    fields: Mapping[str, Field]
    output: tuple[Attribute, ...] | None = None
    depth: int = 1
    parts: "tuple[Node, ...] | None" = None

    def node(self, field: str) -> "Node":
        """The node that this field holds."""
        value = self.fields.get(field)
        if not isinstance(value, Node):
            raise self.missing(field)
        return value

    def optional(self, field: str) -> "Node | None":
        """The node that this field holds, if it was made with one."""
        return self.node(field) if self.fields.get(field) is not None else None

    def nodes(self, field: str) -> tuple["Node", ...]:
        """The nodes that this field holds, which may be none; that there are none must be said."""
        value = self.fields.get(field)
        if not isinstance(value, tuple) or not all(isinstance(one, Node) for one in value):
            raise self.missing(field)
        return tuple(one for one in value if isinstance(one, Node))

    def lists(self, field: str) -> tuple[tuple["Node", ...], ...]:
        """The lists of nodes that this field holds."""
        value = self.fields.get(field)
        if not isinstance(value, tuple):
            raise self.missing(field)
        return tuple(Node(self.name, {field: one}).nodes(field) for one in value)

    def text(self, field: str) -> str:
        value = self.fields.get(field)
        if not isinstance(value, str):
            raise self.missing(field)
        return value

    def number(self, field: str) -> int:
        value = self.fields.get(field)
        if not isinstance(value, int):
            raise self.missing(field)
        return value

    def names(self, field: str) -> tuple[str, ...]:
        value = self.fields.get(field)
        if not isinstance(value, tuple) or not all(isinstance(one, str) for one in value):
            raise self.missing(field)
        return tuple(str(one) for one in value)

    def children(self) -> tuple["Node", ...]:
        """The nodes in all fields, in the order of the fields."""
        if self.parts is not None:
            return self.parts
        found: list[Node] = []
        _add_nodes(self.fields.values(), found)
        return tuple(found)

    def plans(self) -> tuple["Node", ...]:
        """Those children that are plan nodes."""
        return tuple(child for child in self.children() if child.output is not None)

    def walk(self) -> Iterator["Node"]:
        """This node and all below it, expressions and the plans in them too, each once, however
        many have it as a part.
        """
        waiting: list[Node] = [self]
        met: set[int] = set()
        while waiting:
            node = waiting.pop()
            if id(node) not in met:
                met.add(id(node))
                yield node
                waiting.extend(reversed(node.children()))

    def missing(self, field: str) -> MissingPartError:
        return MissingPartError(f"the dump of {self.name} has no {field}: update the dumper")


@dataclass(frozen=True, slots=True, eq=False)
class Dump:
    """One statement that a driver executed, or one frame: its plan, or why there is none.

    `name` is that of the action, such as `collect`. `is_dynamic` says that its session overwrote
    only partitions of which a write had rows. `is_within` says that another watcher has it too, who
    watched within the one whose dump this is.
    """

    plan: Node | None
    error: str | None = None
    name: str | None = None
    failed: bool = False
    is_dynamic: bool = False
    is_within: bool = False

    @property
    def depth(self) -> int:
        """How many nodes are above each other."""
        return 0 if self.plan is None else self.plan.depth


def dump_of(value: Mapping[str, object]) -> Dump:
    """What the dumper wrote, as read from JSON. What is not of its form is a dump that says so."""
    if value.get("v") != VERSION:
        return Dump(None, f"a dump of version {value.get('v')}, where {VERSION} is read")
    plan, listed, name = value.get("plan"), value.get("nodes"), value.get("name")
    node = _field(plan, _parts(listed))
    error = value.get("error") or (None if isinstance(node, Node) else "a dump without a plan")
    return Dump(
        plan=node if isinstance(node, Node) else None,
        error=None if error is None else str(error),
        name=name if isinstance(name, str) else None,
        failed=value.get("failed") is True,
        is_dynamic=value.get("dynamic") is True,
        is_within=value.get("within") is True,
    )


Parts = list[Field]
"""Nodes that are made already, by their position in the list: no plan is too deep."""


def _parts(listed: object) -> Parts:
    """The nodes of a dump, in whose list each stands behind its parts."""
    parts: Parts = []
    for one in listed if isinstance(listed, list) else ():
        parts.append(_field(one, parts))
    return parts


_PLAIN = (str, int, float, type(None))


def _field(value: object, parts: Parts) -> Field:
    if isinstance(value, dict):
        return _object(value, parts)
    if isinstance(value, list):
        return tuple([_field(one, parts) for one in value])
    return value if isinstance(value, _PLAIN) else None


def _object(value: dict[str, object], parts: Parts) -> Field:
    if "#" in value:
        return parts[int(str(value["#"]))]
    name, fields = value.get("n"), value.get("f")
    if isinstance(name, str) and isinstance(fields, dict):
        read = {key: _field(one, parts) for key, one in fields.items()}
        children: list[Node] = []
        _add_nodes(read.values(), children)
        depth = 1 + max([one.depth for one in children]) if children else 1
        return Node(name, read, _output(name, value.get("out"), children), depth, tuple(children))
    if value.keys() == {"o"}:
        return Unknown(str(value["o"]))
    return {key: _field(one, parts) for key, one in value.items()}


def _output(name: str, stated: object, children: list[Node]) -> tuple[Attribute, ...] | None:
    """The output that is stated, else that of the only plan among the fields; an expression has
    none.
    """
    if isinstance(stated, list):
        return tuple([Attribute(int(one[0]), str(one[1])) for one in stated])
    if name in SUBQUERIES:
        return None
    outputs = [node.output for node in children if node.output is not None]
    return outputs[0] if len(outputs) == 1 else None


def _add_nodes(values: Iterable[Field], found: list[Node]) -> None:
    """Add the nodes among values, and those in lists and maps among them."""
    for value in values:
        if isinstance(value, Node):
            found.append(value)
        elif isinstance(value, tuple):
            _add_nodes(value, found)
        elif isinstance(value, dict):
            _add_nodes(value.values(), found)


SHALLOW = 60
"""Nodes above each other that the usual stack has room for."""

CALLS = 16
"""Calls within each other for one node, at most."""

STACK = 256 << 20
"""Bytes of the stack; only what is used is taken."""

Answer = TypeVar("Answer")
_one_at_a_time = threading.Lock()


def deeply(work: Callable[[], Answer], depth: int) -> Answer:
    """Does this work, in a thread with a large stack if it goes deep."""
    if depth <= SHALLOW:
        return work()
    answers: list[Answer] = []
    problems: list[BaseException] = []

    def run() -> None:
        try:
            answers.append(work())
        except BaseException as problem:  # noqa: BLE001 - it is raised again by who waits
            problems.append(problem)

    with _one_at_a_time:  # both limits are of the process
        limit, size = sys.getrecursionlimit(), threading.stack_size(STACK)
        sys.setrecursionlimit(max(limit, depth * CALLS))
        try:
            thread = threading.Thread(target=run, name="lakechime-plans")
            thread.start()
            thread.join()
        finally:
            threading.stack_size(size)
            sys.setrecursionlimit(limit)
    if problems:
        raise problems[0]
    return answers[0]


_SCHEMES = {"postgresql": "postgres", "sqlserver": "mssql", "mariadb": "mysql"}
_PORTS = {"postgres": 5432, "mysql": 3306, "mssql": 1433, "oracle": 1521}
# whose tables are named with their database already, where they are named in full
_OF_SCHEMAS = ("mysql",)
_QUOTES = str.maketrans("", "", '"`[]')


def data_set_of(database: str, table: str) -> tuple[str, str]:
    """The namespace and the name of a table, of which `database` is the address without
    credentials.

    `postgresql://db/crm` and `public.users` is `postgres://db:5432`, `crm.public.users`.
    """
    name = table.translate(_QUOTES)
    scheme, mark, rest = database.partition("://")
    if not mark:
        return database, name
    scheme = _SCHEMES.get(scheme, scheme)
    host, _, inside = rest.partition("/")
    port = _PORTS.get(scheme)
    host = f"{host}:{port}" if port is not None and ":" not in host else host
    is_whole = not inside or (scheme in _OF_SCHEMAS and "." in name)
    return f"{scheme}://{host}", name if is_whole else f"{inside}.{name}"


SESSION = "spark_catalog"
CATALOG = "catalog"
"""The namespace of tables that only a catalog of Spark knows, without a location."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TableLocation:
    """Where a table is, as far as a plan shows it: its path, what the statement called it, or of a
    database's its namespace and name.

    `roots` are the folders and files that are read as one, or, if `is_grouped`, folders in which
    there are more of them than are listed; `base` is the folder that a program said they are
    partitions of.
    """

    path: str | None = None
    identifier: str | None = None
    data_set: tuple[str, str] | None = None
    roots: tuple[str, ...] = ()
    base: str | None = None
    is_grouped: bool = False

    def named(self, names: Names) -> tuple[str, bool] | None:
        """The name of the table and whether it is one of the lake; None if the location has none."""
        found = (names.at(self.path) if self.path else None) or (
            names.of(self.identifier) if self.identifier else None
        )
        if found is None and self.data_set:
            # a table of the lake that happens to have its name is another one
            found = names.of(external(*self.data_set))
        if found is not None:
            return found, True
        if self.data_set:
            return external(*self.data_set), False
        if self.path:
            return outside(self.path), False
        return (external(CATALOG, self.identifier), False) if self.identifier else None


def location_of(fields: Mapping[str, Field]) -> TableLocation:
    """The location that a leaf, or the target of a command, has: itself, or in what it was made
    with.
    """
    parts = [fields, *(part for key in _PARTS if isinstance(part := fields.get(key), Mapping))]
    identifier = next(
        (_within(fields, text) for part in parts if (text := _text(part.get("identifier")))), None
    )
    read = next((part for part in parts if isinstance(part.get("roots"), tuple)), {})
    by_path = _BY_PATH.fullmatch(identifier or "")
    return TableLocation(
        path=next(
            (text for part in parts if (text := _text(part.get("path")))), by_path and by_path[1]
        ),
        identifier=None if by_path else identifier,
        data_set=next((found for part in parts if (found := _data_set(part))), None),
        roots=_texts(read.get("roots")),
        base=_text(read.get("base")),
        is_grouped=read.get("grouped") is True,
    )


_BY_PATH = re.compile(rf"(?:{SESSION}\.)?\w+\.((?:[A-Za-z][\w+-]*:)?/.*)")
"""A format and a path where a table's name stands, as in `delta.`/lake/orders``, of a table that is made
just now.
"""

_PARTS = ("target", "relation", "table", "catalogTable", "tableMeta")


def _within(fields: Mapping[str, Field], identifier: str) -> str:
    """A table's name within its catalog, where that is not the session's own: a table of another
    one is another table.
    """
    catalog = fields.get("catalog")
    name = catalog.get("catalog") if isinstance(catalog, Mapping) else None
    if not isinstance(name, str) or name == SESSION:
        # as it knows them, however they are written
        return identifier if "/" in identifier else identifier.lower()
    return identifier if identifier.startswith(f"{name}.") else f"{name}.{identifier}"


def _data_set(part: Mapping[str, Field]) -> tuple[str, str] | None:
    database, table = part.get("database"), part.get("table")
    return (
        data_set_of(database, table)
        if isinstance(database, str) and isinstance(table, str)
        else None
    )


def _texts(value: Field) -> tuple[str, ...]:
    return tuple(one for one in value if isinstance(one, str)) if isinstance(value, tuple) else ()


def _text(value: Field) -> str | None:
    if isinstance(value, tuple) and value:
        # of a path, the folders are the namespace
        return ("/" if "/" in str(value[0]) else ".").join(str(one) for one in value)
    return value.replace("`", "") if isinstance(value, str) and value else None
