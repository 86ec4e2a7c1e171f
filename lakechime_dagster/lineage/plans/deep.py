"""Room on the stack for plans that are deeper than Python's usual one."""

import sys
import threading
from collections.abc import Callable
from typing import TypeVar

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
