"""Who sent what a step rescued, and who brought conflicts, for people who look at a group in Dagster."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from lakechime_dagster.schema.results import TypeResult

MAX_SHOWN = 50  # producers
UNTOLD = "(none)"  # whose events tell no producer
HEAD = ("| producer | types | events | rows rescued | values by reason | columns brought | conflicts |", "|---|---|---|---|---|---|---|")


@dataclass
class _Told:
    types: set[str] = field(default_factory=set)
    counts: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)


def producers_table(results: Iterable[TypeResult]) -> str:
    """The producers of whose events a step rescued something, or who brought conflicts: those first who did so most."""
    found: dict[str, _Told] = {}
    for one in results:
        for who in {**one.producers, **one.brought}:
            told = found.setdefault(who, _Told())
            sent, brought = one.producers.get(who), one.brought.get(who)
            told.types.add(one.type)
            told.counts.update({"events": sent.events, "rescued": sent.rescued} if sent is not None else {})
            told.counts.update({"columns": brought.columns, "conflicts": brought.conflicts} if brought is not None else {})
            told.reasons.update({reason.value: values for reason, values in sent.reasons.items()} if sent is not None else {})
    odd = {who: told for who, told in found.items() if told.counts["rescued"] or told.counts["conflicts"]}
    ordered = sorted(odd, key=lambda who: (-odd[who].counts["rescued"], -odd[who].counts["conflicts"], who))
    more = [f"and {len(ordered) - MAX_SHOWN} more"] if len(ordered) > MAX_SHOWN else []
    return "\n".join([*HEAD, *(_row(who, odd[who]) for who in ordered[:MAX_SHOWN]), *more]) if ordered else "none"


def _row(who: str, told: _Told) -> str:
    reasons = ", ".join(f"{reason} {values}" for reason, values in sorted(told.reasons.items()))
    counts = told.counts
    cells = (who or UNTOLD, len(told.types), counts["events"], counts["rescued"], reasons, counts["columns"], counts["conflicts"])
    return "| " + " | ".join(str(cell).replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"
