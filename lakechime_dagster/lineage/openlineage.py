"""Run events of OpenLineage."""

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from lakechime_dagster.errors import InvalidValueError
from lakechime_dagster.lineage import facts
from lakechime_dagster.lineage.columns import READ, ColumnRef, Kind, Names, Producer, Source, external
from lakechime_dagster.lineage.facts import Fact, Moment, Name, RunState, ToldRun, to_milliseconds
from lakechime_dagster.lineage.sql_statements import SqlReader

VERSIONS = ("1", "2")  # of the specification, of which we know what events mean
_VERSION = re.compile(r"/spec/(\d+)-\d+-\d+/")
_DATASET = Field(min_length=1, max_length=2048)


class Part(BaseModel):
    """What all parts of an event have: fields that we do not know are the producer's affair."""

    model_config = ConfigDict(extra="ignore", frozen=True, defer_build=True)


class Transformation(Part):
    type: str = "DIRECT"
    subtype: str = ""
    masking: bool | None = None


class InputField(Part):
    namespace: str = Field(max_length=2048)
    name: str = _DATASET
    field: str = ""
    transformations: list[Transformation] = Field(default_factory=list)


class FieldLineage(Part):
    inputFields: list[InputField] = Field(default_factory=list)  # noqa: N815 - theirs
    transformationType: str | None = None  # noqa: N815 - of versions before 1-1
    transformationDescription: str | None = None  # noqa: N815


class ColumnLineageFacet(Part):
    fields: dict[str, FieldLineage] = Field(default_factory=dict)
    dataset: list[InputField] = Field(default_factory=list)


class SchemaField(Part):
    name: str


class SchemaFacet(Part):
    fields: list[SchemaField] = Field(default_factory=list)


class Identifier(Part):
    namespace: str
    name: str


class SymlinksFacet(Part):
    identifiers: list[Identifier] = Field(default_factory=list)


class Owner(Part):
    name: Name


class OwnershipFacet(Part):
    owners: list[Owner] = Field(default_factory=list)


class DatasetFacets(Part):
    columnLineage: ColumnLineageFacet | None = None  # noqa: N815
    schema_: SchemaFacet | None = Field(default=None, alias="schema")
    symlinks: SymlinksFacet | None = None
    ownership: OwnershipFacet | None = None


class Dataset(Part):
    namespace: str = Field(max_length=2048)
    name: str = _DATASET
    facets: DatasetFacets = Field(default_factory=DatasetFacets)


class SqlFacet(Part):
    query: str
    dialect: str | None = None


class JobType(Part):
    integration: str = ""


class JobFacets(Part):
    sql: SqlFacet | None = None
    ownership: OwnershipFacet | None = None
    jobType: JobType | None = None  # noqa: N815


class Job(Part):
    namespace: Name
    name: Name
    facets: JobFacets = Field(default_factory=JobFacets)


class ParentJob(Part):
    namespace: str
    name: str


class ParentFacet(Part):
    job: ParentJob


class RunFacets(Part):
    parent: ParentFacet | None = None


class Run(Part):
    runId: Name  # noqa: N815
    facets: RunFacets = Field(default_factory=RunFacets)


class RunEvent(Part):
    eventType: RunState | None = None  # noqa: N815
    eventTime: Moment  # noqa: N815
    run: Run
    job: Job
    inputs: list[Dataset] = Field(default_factory=list)
    outputs: list[Dataset] = Field(default_factory=list)
    schemaURL: str = ""  # noqa: N815


def is_event(document: dict[str, Any]) -> bool:
    """Whether this is meant as an event of OpenLineage."""
    return any(name in document for name in ("eventType", "eventTime", "schemaURL", "job"))


def check_version(document: dict[str, Any]) -> None:
    """Refuse events of a specification, or of a kind, of which we do not know what they mean.

    Raises:
        InvalidValueError: naming what is known.
    """
    url = document.get("schemaURL", "")
    found = _VERSION.search(url) if isinstance(url, str) else None
    if url and (found is None or found[1] not in VERSIONS):
        raise InvalidValueError("schemaURL", url, f"is not a version that is known here; send events of version {' or '.join(VERSIONS)}")
    if "run" not in document:
        raise InvalidValueError("run", None, "is missing; only run events are read, neither those of jobs nor those of data sets alone")


def told_by(event: RunEvent, names: Names, reader: SqlReader) -> ToldRun:
    """What an event tells of its run; SQL of it that cannot be read is an unknown of the run, and nothing else of it is lost."""
    known = {(one.namespace, one.name): _name(one, names) for one in (*event.inputs, *event.outputs)}
    told: set[Fact] = {facts.reads(known[one.namespace, one.name]) for one in event.inputs}
    for one in event.outputs:
        told |= set(_of_output(known[one.namespace, one.name], one, known, names))
    told |= set(_of_job(event, [known[one.namespace, one.name] for one in event.outputs], reader))
    if event.eventType is RunState.COMPLETE:
        told.add(facts.done(to_milliseconds(event.eventTime)))
    parent = event.run.facets.parent
    if parent is not None:
        told.add(facts.link("parent", external(parent.job.namespace, parent.job.name)))
    return ToldRun(producer=Producer(namespace=event.job.namespace, job=event.job.name), run_id=event.run.runId, facts=frozenset(told))


def _name(one: Dataset, names: Names) -> str:
    """The table of the lake that is meant, by its name or by another name of it; else one outside."""
    symlinks = one.facets.symlinks.identifiers if one.facets.symlinks else []
    for namespace, name in [(one.namespace, one.name), *((other.namespace, other.name) for other in symlinks)]:
        found = names.of_dataset(namespace, name)
        if found is not None:
            return found
    return external(one.namespace, one.name)


def _of_output(target: str, one: Dataset, known: dict[tuple[str, str], str], names: Names) -> Iterator[Fact]:
    yield facts.writes(target)
    if one.facets.schema_:
        yield from (facts.has_column(target, field.name) for field in one.facets.schema_.fields)
    if one.facets.ownership:
        yield from (facts.owner(owner.name) for owner in one.facets.ownership.owners)
    lineage = one.facets.columnLineage
    if lineage is None:
        return
    for column, field in lineage.fields.items():
        yield facts.has_column(target, column)
        older = [Transformation(type="DIRECT", subtype=(field.transformationType or "").replace("MASKED", "TRANSFORMATION"))]
        for given in field.inputFields:
            for source in _sources(given, given.transformations or older, known, names):
                is_one_column = source.kind.is_direct or given.field
                yield facts.comes_from(target, column, source) if is_one_column else facts.decides(target, source)
    for given in lineage.dataset:
        yield from (facts.decides(target, source) for source in _sources(given, given.transformations, known, names))


def _sources(given: InputField, transformations: list[Transformation], known: dict[tuple[str, str], str], names: Names) -> Iterator[Source]:
    place = (given.namespace, given.name)
    table = known.get(place) or names.of_dataset(*place) or external(*place)
    for one in transformations or [Transformation(type="INDIRECT", subtype="FILTER")]:
        yield Source(ColumnRef(table, given.field or None), _kind(one), bool(one.masking))


def _kind(one: Transformation) -> Kind:
    """By their words; of what is not said closer it is said as little as can be."""
    try:
        kind = Kind(one.subtype.lower())
    except ValueError:
        kind = Kind.TRANSFORMATION if one.type.upper() == "DIRECT" else Kind.FILTER
    if kind.is_direct != (one.type.upper() == "DIRECT"):
        return Kind.TRANSFORMATION if one.type.upper() == "DIRECT" else Kind.FILTER
    return kind


def _of_job(event: RunEvent, outputs: list[str], reader: SqlReader) -> Iterator[Fact]:
    job = event.job.facets
    if job.ownership:
        yield from (facts.owner(owner.name) for owner in job.ownership.owners)
    if job.sql is None:
        return
    dialect = job.sql.dialect or (job.jobType.integration if job.jobType else "")
    namespace = next((one.namespace for one in (*event.outputs, *event.inputs)), event.job.namespace)
    try:
        _, statements = reader.read(job.sql.query, dialect.lower(), namespace)
    except InvalidValueError as error:
        yield from (facts.untold(target, f"its SQL {error.remedy}") for target in outputs)
        return
    written = {one.target for one in statements if one.target != READ}
    if len(outputs) == len(written) == 1:  # the same table, by whatever name the SQL calls it
        statements = tuple(replace(one, target=outputs[0]) if one.target != READ else one for one in statements)
    yield from facts.of_statements(statements)
