"""Metrics for Prometheus from the store alone."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from lakechime_dagster.silver.metrics import GroupMeasures, Measures, TypeMeasures
from lakechime_dagster.triggers.consumers import ConsumerState

MAX_TYPES = 500  # that have a label of their own, the busiest ones
OTHER = "(other)"  # the label of all others of a group, in sum
OF_TYPE = ("group", "type")  # labels
STATES = ("live", "idle", "failed")

Number = Callable[[TypeMeasures], int]
COUNTERS: dict[str, tuple[str, Number]] = {
    "events": (
        "Events that completed executions wrote or discarded.",
        lambda one: one.written + one.discarded,
    ),
    "rows_written": ("Rows of the type's table.", lambda one: one.written),
    "rows_rescued": ("Rows written that have something in _rescued.", lambda one: one.rescued),
    "rows_discarded": ("Events that a contract discarded.", lambda one: one.discarded),
    "columns_added": ("Columns that the type's table gained.", lambda one: one.columns_added),
    "conflicts": ("Variant columns that the type's schema gained.", lambda one: one.conflicts),
    "failures": (
        "Completed executions that could not write the type.",
        lambda one: one.failed_executions,
    ),
}
SUMMED: dict[str, tuple[str, Number]] = {
    "rows_pending": (
        "Events that wait in the stream's table, since the newest execution.",
        lambda one: one.pending,
    ),
    "lag_rows": (
        "Events after the type's checkpoint, as counted by its last execution.",
        lambda one: one.behind,
    ),
    "variations": ("Variations that are kept.", lambda one: one.variations),
}


class StoreCollector(Collector):
    """Queries the store at each scrape."""

    def __init__(self, look: Callable[[], Measures]) -> None:
        self._look = look

    def describe(self) -> Iterable[Metric]:
        """Nothing: the store is not asked before the first scrape."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """All metrics of one moment."""
        found = self._look()
        yield from _of_types(found)
        yield from _of_groups(found)
        yield _of_consumers(found)
        consumers = _gauge("consumers", "Consumers by state.", "state")
        for state in (ConsumerState.ACTIVE, ConsumerState.BLOCKED):
            consumers.add_metric([state.lower()], found.consumers.get(state, 0))
        ticks = _gauge("tick_age_seconds", "Since a trigger was evaluated last.")
        if found.ticked_ts is not None:
            ticks.add_metric([], _seconds(found.now - found.ticked_ts))
        yield from (consumers, ticks)


def _gauge(name: str, meaning: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"lakechime_{name}", meaning, labels=labels)


def _counter(name: str, meaning: str, *labels: str) -> CounterMetricFamily:
    return CounterMetricFamily(f"lakechime_{name}", meaning, labels=labels)


def _of_types(found: Measures) -> Iterator[Metric]:
    """Of the busiest types each, of all others in sum; times of the busiest alone."""
    named, others = found.types[:MAX_TYPES], found.types[MAX_TYPES:]
    for family, several in ((_counter, COUNTERS), (_gauge, SUMMED)):
        for name, (meaning, number) in several.items():
            metric = family(f"type_{name}", meaning, *OF_TYPE)
            totals = Counter[str]()
            for one in named:
                metric.add_metric([one.group, one.type], number(one))
            for one in others:
                totals[one.group] += number(one)
            for group, total in sorted(totals.items()):
                metric.add_metric([group, OTHER], total)
            yield metric
    yield _values_rescued(named, others)
    schema = _gauge("type_schema_version", "The type's newest schema version.", *OF_TYPE)
    commit = _gauge("type_last_commit_timestamp_seconds", "When its table got rows last.", *OF_TYPE)
    lag = _gauge("type_lag_seconds", "How long events of it have waited.", *OF_TYPE)
    for one in named:
        labels = [one.group, one.type]
        schema.add_metric(labels, one.schema_version)
        if one.commit_ts is not None:
            commit.add_metric(labels, _seconds(one.commit_ts))
        waiting = found.waiting_since.get(one.group)
        lag.add_metric(labels, _lag(found.now, one.behind_ts, waiting))
    yield from (schema, commit, lag)


def _values_rescued(named: Sequence[TypeMeasures], others: Sequence[TypeMeasures]) -> Metric:
    """By type and reason; a reason without rescued values is left out."""
    metric = _counter("type_values_rescued", "Values in _rescued, by reason.", *OF_TYPE, "reason")
    totals: Counter[tuple[str, str, str]] = Counter()
    for label, several in (("", named), (OTHER, others)):
        for one in several:
            for reason, values in one.reasons.items():
                totals[one.group, label or one.type, reason] += values
    for labels, values in sorted(totals.items()):
        metric.add_metric(labels, values)
    return metric


def _of_groups(found: Measures) -> Iterator[Metric]:
    state = _gauge("group_state", "1 for the state in which the group is.", "group", "state")
    opened = _gauge(
        "group_open_seconds", "Since its open execution was claimed; 0 without one.", "group"
    )
    refused = _counter("group_events_refused", "Events of no type, by reason.", "group", "reason")
    seconds = _counter(
        "group_phase_seconds", "Duration of completed executions, by phase.", "group", "phase"
    )
    for one in found.groups:
        for name in STATES:
            state.add_metric(
                [one.group, name], name == _state(one, is_behind=one.group in found.waiting_since)
            )
        opened.add_metric([one.group], _lag(found.now, one.open_ts))
        for metric, totals in ((refused, one.refused), (seconds, one.seconds)):
            for label, total in sorted(totals.items()):
                metric.add_metric([one.group, label], total)
    yield from (state, opened, refused, seconds)


def _of_consumers(found: Measures) -> Metric:
    """Of each consumer and each source that it reads, in several units."""
    lag = _gauge(
        "consumer_lag",
        "What a consumer has not consumed of a source.",
        "consumer",
        "source",
        "unit",
    )
    # which reads events and can write none
    stuck = {one.group: one.stuck_ts for one in found.groups}
    for one in found.lags:
        waited = {"seconds": _lag(found.now, one.since_ts, stuck.get(one.consumer))}
        for unit, number in {**one.amounts, **waited}.items():
            lag.add_metric([one.consumer, one.source, unit], number)
    return lag


def _state(one: GroupMeasures, *, is_behind: bool) -> str:
    """Failed where a person or another attempt is needed, live where there is work, else idle."""
    if one.state is ConsumerState.BLOCKED or one.attempt > 1 or one.stuck_ts is not None:
        return "failed"
    return "live" if one.open_ts is not None or is_behind else "idle"


def _lag(now: int, *since: int | None) -> float:
    return _seconds(max(0, 0, *(now - moment for moment in since if moment is not None)))


def _seconds(milliseconds: int) -> float:
    return milliseconds / 1000
