"""A command that explores a protocol and what is left of it without its rules, and prints the shortest way to each counterexample."""

import argparse
import sys
from collections.abc import Callable, Mapping

from tests.models.exploring import Exploration

Explored = Callable[[str, bool], Exploration]


def main(explored: Explored, mutants: Mapping[str, str], variations: Mapping[str, str]) -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--all", action="store_true", help="the protocol, all mutants and all variations")
    parser.add_argument("--broken", choices=sorted({**mutants, **variations}), default="", metavar="NAME", help="one mutant or variation")
    parser.add_argument("--wide", action="store_true", help="more states of what should hold; takes minutes")
    arguments = parser.parse_args()

    def has_problem(name: str) -> bool:
        found = explored(name, arguments.wide)
        meaning = {"": "nothing broken", **mutants, **variations}[name]
        sys.stdout.write(f"{name or 'protocol'} ({meaning}): {found.states} states, {found.problem or 'holds'}\n")
        sys.stdout.writelines(f"  {move}\n" for move in found.path)
        return found.problem is not None

    if not arguments.all:
        return int(has_problem(arguments.broken))
    holds = not has_problem("")
    caught = [has_problem(name) for name in mutants]
    held = [not has_problem(name) for name in variations]
    verdict = "holds" if holds else "FAILS"
    sys.stdout.write(f"protocol {verdict}, {sum(caught)} of {len(caught)} mutants caught, {sum(held)} of {len(held)} variations hold\n")
    return 0 if holds and all(caught) and all(held) else 1
