"""Reads a plan from its leaves up, each node in an environment of its own. What is not understood is told, never left out."""

from collections.abc import Iterable, Mapping

from lakechime_dagster.lineage.names import Names
from lakechime_dagster.lineage.plans.dump import Attribute, Dump, MissingPartError, Node
from lakechime_dagster.lineage.plans.expressions import EXPRESSIONS, value_of
from lakechime_dagster.lineage.plans.expressions import Rule as ExpressionRule
from lakechime_dagster.lineage.plans.frames import Frame, Scope, columns_of
from lakechime_dagster.lineage.plans.leaves import stated_rows
from lakechime_dagster.lineage.plans.nodes import NODES, everything, nothing
from lakechime_dagster.lineage.plans.nodes import Rule as NodeRule
from lakechime_dagster.lineage.plans.places import Place, place_of
from lakechime_dagster.lineage.plans.roots import DataSets, read_at
from lakechime_dagster.lineage.plans.values import Value

CHECKPOINTS = frozenset({"checkpoint", "localCheckpoint"})
"""The names of actions that keep rows, which later statements read without their plan."""


BATCHES = frozenset({"WriteToMicroBatchDataSourceV1", "WriteToMicroBatchDataSource"})
"""The commands that write a batch of a stream, or hand it to a function, which reads it without its plan too."""


class Checkpoints:
    """The plans of what was checkpointed, and of batches of streams.

    An RDD is known by the ids of its columns, which a self join renews on one side.
    """

    def __init__(self, dumps: Iterable[Dump]) -> None:
        plans = [dump.plan for dump in dumps if dump.plan]
        kept = {_ids(dump.plan.output or ()): dump.plan for dump in dumps if dump.plan and dump.name in CHECKPOINTS}
        batches = [plan.fields.get("query") for plan in plans if plan.name in BATCHES]
        kept |= {_ids(batch.output or ()): batch for batch in batches if isinstance(batch, Node)}
        self._by_ids = kept
        self._by_rdd: dict[int, Node] = {}
        for node in (node for plan in plans for node in plan.walk() if node.name == "LogicalRDD") if kept else ():
            rdd, plan = rdd_of(node), kept.get(_ids(node.output or ()))
            if rdd is not None and plan:
                self._by_rdd[rdd] = plan

    def plan(self, leaf: Node) -> Node | None:
        """The plan whose rows this leaf reads."""
        rdd = rdd_of(leaf)
        return self._by_ids.get(_ids(leaf.output or ())) or (None if rdd is None else self._by_rdd.get(rdd))


class Reading:
    """Reads the plans of one dump.

    `tables` are the data sets that were met, `outside` those of them that have no name in the lake. `is_dynamic` says that an
    overwrite replaced partitions alone, where the statement does not say otherwise.
    """

    def __init__(
        self,
        plan: Node,
        names: Names,
        checkpoints: Checkpoints,
        nodes: Mapping[str, NodeRule] = NODES,
        expressions: Mapping[str, ExpressionRule] = EXPRESSIONS,
        *,
        is_dynamic: bool = False,
    ) -> None:
        self.is_dynamic = is_dynamic
        self.tables: set[str] = set()
        self.outside: set[str] = set()
        self._names = names
        self._checkpoints = checkpoints
        self._nodes = nodes
        self._expressions = expressions
        self._definitions = {node.number("id"): node for node in plan.walk() if node.name == "CTERelationDef"}
        self._stated = stated_rows(plan)
        self._defined: dict[int, Frame] = {}
        self._loops: dict[int, Frame] = {}

    def read(self, plan: Node) -> Frame:
        """What a whole plan gives."""
        return self.frame(plan, self.scope())

    def scope(self, *frames: Frame) -> Scope:
        """For expressions of a command over these frames."""
        return Scope(self, {}, {}).over(*frames) if frames else Scope(self, {}, {})

    def frame(self, plan: Node, scope: Scope) -> Frame:
        """What a node gives; of one without a rule, and of one whose dump lacks a part, that it is not known."""
        here = Scope(self, scope.outer, {})
        rule = self._nodes.get(plan.name)
        if rule is None:
            reason = f"unknown plan node {plan.name}"
            return everything(plan, here, reason) if plan.plans() else nothing(plan, reason)
        try:
            found = rule(plan, here)
        except MissingPartError as problem:
            return everything(plan, here, str(problem))
        except ValueError:  # lists that must be of one length are not
            return everything(plan, here, f"the dump of {plan.name} does not fit together")
        if plan.output is not None and len(found.columns) != len(plan.output):
            return everything(plan, here, f"the dump of {plan.name} does not fit together")
        return found

    def value(self, expression: Node, scope: Scope) -> Value:
        """What an expression came from."""
        try:
            return value_of(expression, scope, self._expressions)
        except MissingPartError as problem:
            return scope.values(expression.children()).because(str(problem))

    def data_sets(self, leaf: Node) -> DataSets:
        """The data sets that a leaf reads, as far as it tells them."""
        found = DataSets(names=(leaf.text("name"),)) if leaf.name == "Table" else read_at(place_of(leaf.fields), self._names)
        self.tables.update(found.names)
        self.outside.update(found.outside)
        return found

    def is_stated(self, rows: int) -> bool:
        """Whether the rows of this number stand in a text of SQL."""
        return rows in self._stated

    def named(self, place: Place) -> str | None:
        """The name of a data set, which is counted if it is outside the lake."""
        name, is_known = place.named(self._names) or (None, True)
        if name is not None and not is_known:
            self.outside.add(name)
        return name

    def defined(self, cte: int, scope: Scope) -> Frame:
        """What a common table expression gives, read once."""
        if cte not in self._defined:
            definition = self._definitions.get(cte)
            if definition is None:
                raise MissingPartError(f"the dump has no definition of the common table expression {cte}")
            self._defined[cte] = self.frame(definition.node("child"), scope)
        return self._defined[cte]

    def loop(self, plan: Node, scope: Scope) -> Frame:
        """What a recursive query gives: what its first part gives, and what comes of it by the other as long as that is more."""
        anchor = scope.frame(plan.node("anchor")).renamed(plan.output or ())
        number = plan.number("id")
        found, before = anchor, None
        while found != before:
            before = self._loops[number] = found
            again = scope.frame(plan.node("recursion")).renamed(plan.output or ())
            columns = (one.value.beside(other.value) for one, other in zip(found.columns, again.columns, strict=True))
            merged = Frame(found.columns, found.indirect.beside(again.indirect), found.rows.beside(again.rows))
            found = merged.giving(columns_of(plan.output or (), columns))
        return found

    def looped(self, number: int) -> Frame:
        """What a recursive query has given so far."""
        if number not in self._loops:
            raise MissingPartError(f"the dump has no recursive query {number}")
        return self._loops[number]

    def checkpointed(self, leaf: Node) -> Frame | None:
        """What the plan gave whose rows this leaf reads, if they were checkpointed meanwhile."""
        plan = self._checkpoints.plan(leaf)
        return None if plan is None else self.read(plan).renamed(leaf.output or ())


def rdd_of(leaf: Node) -> int | None:
    """The id of the RDD that a leaf reads."""
    rdd = leaf.fields.get("rdd")
    number = rdd.get("rdd") if isinstance(rdd, Mapping) else rdd
    return number if isinstance(number, int) else None


def _ids(output: Iterable[Attribute]) -> tuple[int, ...]:
    return tuple(one.id for one in output)
