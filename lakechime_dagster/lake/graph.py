"""The graph of a lake's tables: an order in which inputs come first, and the path of a cycle."""

from collections.abc import Iterable, Mapping


def topological(inputs: Mapping[str, Iterable[str]]) -> tuple[str, ...]:
    """The tables, every input before its readers; among equals in the order given. The graph must have no cycle."""
    ordered: dict[str, None] = {}
    for root in inputs:
        stack = [(root, iter(tuple(inputs.get(root, ()))))]
        while stack:
            table, rest = stack[-1]
            following = next((name for name in rest if name not in ordered and name in inputs), None)
            if following is None:
                ordered[table] = None
                stack.pop()
            else:
                stack.append((following, iter(tuple(inputs[following]))))
    return tuple(ordered)


def find_cycle(inputs: Mapping[str, Iterable[str]]) -> tuple[str, ...] | None:
    """A cycle as the path from a table to itself against the flow of data, or None."""
    done: set[str] = set()
    for root in inputs:
        path = {} if root in done else {root: iter(tuple(inputs[root]))}
        while path:
            table = next(reversed(path))
            following = next((name for name in path[table] if name in inputs and name not in done), None)
            if following is None:
                done.add(table)
                del path[table]
            elif following in path:
                names = list(path)
                return (*names[names.index(following) :], following)
            else:
                path[following] = iter(tuple(inputs[following]))
    return None
