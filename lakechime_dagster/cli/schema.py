"""`lakechime schema`: event streams, the types of their events, and what was refused."""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from lakechime_dagster.cli import common
from lakechime_dagster.cli.common import (
    MAX_LIMIT,
    DryRun,
    Json,
    Reason,
    Who,
    answer,
    count,
    declared_lake,
    note,
    one_line,
    open_platform,
    print_documents,
    print_facts,
    print_json,
    print_table,
    record,
    say,
    when,
    would,
)
from lakechime_dagster.dce.partitions import printable
from lakechime_dagster.errors import LakeChimeError, NotFoundError, shown

if TYPE_CHECKING:
    from lakechime_dagster.runtime.platform import Platform
    from lakechime_dagster.silver.requests import GroupedType
    from lakechime_dagster.silver.results import Verified
    from lakechime_dagster.silver.schema import Column, TypeCheckpoint
    from lakechime_dagster.silver.service import Streamed
    from lakechime_dagster.tables.events import EventGroup
    from lakechime_dagster.triggers.registry import By

app = typer.Typer(
    name="schema", help="Event streams: show their types and what was refused, replay, verify."
)

TypeName = Annotated[
    str, typer.Argument(metavar="TYPE", help="The type as its events spell it, or its table.")
]
OfGroup = Annotated[
    str | None,
    typer.Option("--group", metavar="GROUP", help="The type's group, where several have it."),
]
NO_STREAM = (
    'the lake declares no event stream; add event_stream("game", source=JsonLines("in")) to its '
    "list, "
    "and an event_group(…) where types belong together"
)
MAX_PAST = 10  # of the schema versions and requests of a type, that people are shown
INDENT = "  "
# why a type waits, by the code of the reason
_WHY = {
    "frozen": 'its contract forbids new tables: Contract(tables="freeze")',
    "type_cap": ("the group has max_types tables; give its Contract a larger max_types"),
}
Found = TypeVar("Found")


def _groups(platform: "Platform") -> "dict[str, EventGroup]":
    """The groups of the lake's streams by name."""
    return {
        group.name: group
        for group in sorted(declared_lake(platform.settings).groups, key=lambda group: group.name)
    }


def _one(what: str, name: str, several: Mapping[str, Found]) -> Found:
    """The one of that name.

    Raises:
        NotFoundError: naming the one that is nearest, or those that are there.
    """
    if name not in several:
        raise NotFoundError(
            f"the lake declares no {what} {shown(name)}; {common.nearest(name, several)}"
            if several
            else NO_STREAM
        )
    return several[name]


def _selected(platform: "Platform", group: str | None) -> "list[EventGroup]":
    """The group of that name, or all."""
    groups = _groups(platform)
    return [*groups.values()] if group is None else [_one("event group", group, groups)]


def _type(platform: "Platform", name: str, group: str | None) -> "GroupedType":
    """The type of that name, or of the table of that name.

    Raises:
        NotFoundError: naming the one that is nearest, or those that are there.
        BadParameter: types of several streams have it, and no group is named.
    """
    from lakechime_dagster.silver.requests import types_of

    several = [one for each in _selected(platform, group) for one in types_of(platform, each)]
    found = [one for one in several if one.known.type == name] or [
        one for one in several if one.known.table == name
    ]
    if len(found) > 1:
        having = " and ".join(one.group.name for one in found)
        raise common.wrong("--group", f"{shown(name)} is a type of {having}; say which")
    if not found:
        where = f"event group {group} has no" if group is not None else "no event group has an"
        raise NotFoundError(
            f"{where} event of type {shown(name)}; "
            f"{common.nearest(name, {one.known.type for one in several})}"
        )
    return found[0]


@app.command()
def show(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[NAME]",
            help="A group lists its types; a type, or its table, is shown; all unless given.",
        ),
    ] = None,
    group: OfGroup = None,
    quarantine: Annotated[
        bool,
        typer.Option(
            "--quarantine",
            help="Show what a stream, or the stream of a group, refused; IT MAY HOLD PERSONAL DATA.",
        ),
    ] = False,
    limit: Annotated[
        int, typer.Option(min=1, max=MAX_LIMIT, help="At most so many refused rows.")
    ] = 20,
    as_json: Json = False,
) -> None:
    """List the types of events with their tables and progress, show one, or show what a stream
    refused.

    A type is shown with its columns, what was observed, schema versions and requests.
    """
    platform = open_platform()
    if quarantine:
        if name is None:
            raise common.wrong("--quarantine", "name a stream or a group")
        _show_quarantine(platform, name, limit, as_json)
    elif name is None or (group is None and name in _groups(platform)):
        _list(platform, name or group, as_json)
    else:
        _show_type(platform, _type(platform, name, group), as_json)


def _list(platform: "Platform", group: str | None, as_json: bool) -> None:
    """Types; `written` and `rescued` are numbers of rows, and a rescued row is written too."""
    from lakechime_dagster.silver.requests import types_of
    from lakechime_dagster.silver.service import Streamed

    groups = _selected(platform, group)
    tables = {each.stream.table.name: each.stream.table for each in groups}
    newest = {each: _newest(Streamed(platform, table)) for each, table in tables.items()}
    documents = [
        _document(one, newest[each.stream.table.name])
        for each in groups
        for one in types_of(platform, each)
    ]
    failed = {each.name: each.problem for each in groups if each.problem}
    if as_json:
        print_json({"types": documents} | ({"failed_groups": failed} if failed else {}))
        return
    for name, problem in failed.items():
        say(f"group {name} failed, and its events wait in the stream's table: {problem}")
    rows = [one | {"state": _state(one)} for one in documents]
    empty = (
        f"no event was read yet for {', '.join(one.name for one in groups)}"
        if groups
        else NO_STREAM
    )
    print_documents(
        rows,
        "group type table schema_version columns checkpoint behind written rescued state",
        empty=empty,
    )


def _newest(stream: "Streamed") -> "TypeCheckpoint | None":
    """Where a stream's table ends; one that cannot be read must not hide what the store knows."""
    try:
        return stream.newest()
    except LakeChimeError as error:
        note(f"warning: {one_line(str(error))}")
        return None


def _document(one: "GroupedType", newest: "TypeCheckpoint | None") -> dict[str, Any]:
    """A type as JSON; `newest` is where its stream's table ends, if that is known."""
    known = one.known
    return {
        "group": one.group.name,
        **record(known, "type table schema_version"),
        "columns": known.schema.leaves,
        "checkpoint": known.checkpoint.version if known.checkpoint.version >= 0 else None,
        "newest": newest.version if newest else None,
        "behind": one.behind(newest) if newest else None,
        **record(known, "written rescued discarded"),
        "waiting": known.pending,
        "state": one.state.value,
        **record(one, "reason left"),
        "failures": known.failures,
        "due_ts": known.due_ts or None,
    }


def _state(document: Mapping[str, Any]) -> str:
    """The state of a type, and why, for people."""
    if document["left"]:
        waiting = f", {count(document['waiting'], 'row')} waiting" if document["waiting"] else ""
        return f"{document['state']}: {document['left']}{waiting}"
    reason = document["reason"]
    return (
        f"{document['state']}: {_WHY.get(reason, one_line(reason))}"
        if reason
        else document["state"]
    )


def _show_type(platform: "Platform", one: "GroupedType", as_json: bool) -> None:
    from lakechime_dagster.silver.requests import event_types
    from lakechime_dagster.silver.service import Streamed

    types, name, observed = (
        event_types(platform),
        (one.group.name, one.known.type),
        dict[str, list[str]](),
    )
    for path, kind in sorted(one.known.observed.kinds):
        observed.setdefault(path, []).append(kind)
    document = _document(one, _newest(Streamed(platform, one.group.stream.table))) | {
        "schema": one.known.schema.to_json(),
        "observed": [{"path": path, "kinds": kinds} for path, kinds in observed.items() if path],
        "contract": one.group.contract_of(one.known.type).to_json(),
        "requests": _requests(platform, one.known.table),
        "schemas": types.history(*name)[::-1],
    }
    if as_json:
        print_json(document)
        return
    table = one.group.stream.table.name
    checkpoint = (
        f"nothing of {table} was read yet"
        if document["checkpoint"] is None
        else f"version {document['checkpoint']} of {table}"
    )
    checkpoint += f", {count(document['behind'], 'version')} behind" if document["behind"] else ""
    print_facts(
        {
            **record(one.known, "type table"),
            "group": one.group.name,
            "schema version": one.known.schema_version,
            "checkpoint": checkpoint,
            "rows": f"{one.known.written:,} written, {one.known.rescued:,} of them with rescued data",
            "state": _state(document),
        }
    )
    say("\ncolumns:")
    print_table(
        ["column", "holds", "field", "variant of"], _tree(one.known.schema.columns), empty="none"
    )
    contract = [{"of": of, "rule": rule} for of, rule in _rules(document["contract"])]
    sections = (
        (
            "observed",
            [
                {"path": each["path"], "kinds": ", ".join(each["kinds"])}
                for each in document["observed"]
            ],
            "path kinds",
        ),
        ("contract", contract, "of rule"),
        (
            "schema versions",
            [
                each | {"decision": ", ".join(each["decision"].splitlines())}
                for each in document["schemas"][:MAX_PAST]
            ],
            "version made_ts actor decision",
        ),
    )
    for title, several, facts in sections:
        if several:
            say(f"\n{title}:")
            print_documents(several, facts)
    _print_requests(document["requests"], "replaced added removed")


def _tree(columns: "tuple[Column, ...]", level: int = 0) -> Iterator[tuple[str, str, str, str]]:
    """Columns, each followed by those within it: name, what it holds, the field if it has another
    name, and of what it is a variant.
    """
    from lakechime_dagster.tables.events import column_of

    for one in columns:
        inner, holds = one, [one.holds.value]
        while inner.element is not None:
            inner = inner.element
            holds.append(inner.holds.value)
        field = json.dumps(one.field, ensure_ascii=False) if one.field != one.name else ""
        yield (
            INDENT * level + one.name,
            " of ".join(holds),
            field,
            column_of(one.field) if one.is_variant else "",
        )
        yield from _tree(inner.fields, level + 1)


def _rules(contract: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The rules of a contract that are not the default: of what, and the rule."""
    modes = [
        (of, contract[of]) for of in ("tables", "columns", "kinds") if contract[of] != "evolve"
    ]
    numbers = [("numbers", "double first")] if contract["double first"] else []
    return [*modes, *numbers, *contract["pins"].items()]


def _requests(platform: "Platform", table: str) -> list[dict[str, Any]]:
    """The requests for a table, the newest first, with their results."""
    from lakechime_dagster.silver.requests import event_requests

    return [
        {
            "request": each.request.request_id,
            "kind": each.request.kind.value,
            **record(each, "who reason asked_ts done_ts"),
            **{
                rows: getattr(each.done, rows) if each.done else None
                for rows in ("replaced", "added", "removed")
            },
        }
        for each in reversed(event_requests(platform).of(table))
    ]


def _print_requests(several: list[dict[str, Any]], rows: str) -> None:
    if not several:
        return
    say("\nrequests:")
    done = [
        "waiting"
        if one["done_ts"] is None
        else "cancelled"
        if one["added"] is None
        else when(one["done_ts"])
        for one in several[:MAX_PAST]
    ]
    documents = [one | {"done": end} for one, end in zip(several, done, strict=False)]
    print_documents(documents, f"request kind asked_ts who reason done {rows}")


def _say_hidden(hidden: int, what: str) -> None:
    if hidden > 0:
        say(f"{count(hidden, what)} not shown; --limit shows more")


def _show_quarantine(platform: "Platform", name: str, limit: int, as_json: bool) -> None:
    """Refused rows by reason, and the newest ones, cut at 200 characters; of a group also the types
    that wait or failed.
    """
    from lakechime_dagster.silver.requests import TypeState, types_of
    from lakechime_dagster.silver.service import Streamed

    groups = _groups(platform)
    streams = {group.stream.name: group.stream for group in groups.values()}
    stream = _one(
        "event stream or group",
        name,
        streams | {each: group.stream for each, group in groups.items()},
    )
    streamed = Streamed(platform, stream.table)
    reasons, refused = streamed.refused_by_reason(), streamed.refused(limit)
    document: dict[str, Any] = {
        "stream": stream.name,
        "table": stream.table.name,
        "total": sum(reasons.values()),
        "reasons": reasons,
        "refused": [
            row
            | {
                moment: row[moment] and row[moment].isoformat()
                for moment in ("_ingested_at", "sent_at")
            }
            for row in refused
        ],
        "requests": _requests(platform, stream.table.name),
    }
    if name in groups:
        newest, types = _newest(streamed), types_of(platform, groups[name])
        document |= {
            "group": name,
            "types": [_document(one, newest) for one in types if one.state is not TypeState.OK],
        }
    if as_json:
        print_json(document)
        return
    counts = [{"reason": reason, "rows": rows} for reason, rows in reasons.items()]
    print_documents(counts, "reason rows", empty=f"{stream.table.name} has refused nothing")
    if refused:
        say("\nnewest first:")
    for row in document["refused"]:
        say(f"{printable(row['_src'])} {row['reason']}, ingested {row['_ingested_at']}")
        say(INDENT + printable(row["payload"]))
    _say_hidden(document["total"] - len(refused), "older one")
    _print_requests(document["requests"], "added")
    if name in groups:
        say(f"\ntypes of {name} that wait or failed:")
        print_documents(
            [one | {"state": _state(one)} for one in document["types"]],
            "type table waiting due_ts state",
            empty="none",
        )


@app.command()
def replay(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help=(
                "A type as its events spell it, or its table; with --quarantine a stream, with "
                "--failed also a group."
            ),
        ),
    ],
    reason: Reason,
    rebuild: Annotated[
        bool,
        typer.Option(
            "--rebuild", help="Rebuild the table, columns and rows, in one commit that replaces it."
        ),
    ] = False,
    quarantine: Annotated[
        bool, typer.Option("--quarantine", help="Reprocess what a stream refused.")
    ] = False,
    failed: Annotated[
        bool,
        typer.Option(
            "--failed",
            help="Only try what failed again now, as after a repair, before its pause ends.",
        ),
    ] = False,
    cancel: Annotated[
        bool, typer.Option("--cancel", help="Cancel the request that waits.")
    ] = False,
    who: Who = None,
    group: OfGroup = None,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Read earlier events of a type again, and repair the rows that they would have now, or
    reprocess what a stream refused.

    The next execution of the group or stream does it. Correct rows are not changed, missing rows
    are added, and nothing is deleted. `--rebuild` computes the table again from the stream's table
    in one commit that replaces it; rows whose events the stream no longer has are lost. A dry run
    computes what would change, which starts Spark. Without `--failed` a type that failed is tried
    again after 10 s, 1, 5 and then 15 minutes.
    """
    from lakechime_dagster.silver.results import RequestKind

    if sum((quarantine, rebuild, failed)) > 1:
        raise common.wrong(
            "--quarantine, --rebuild, --failed", "are different requests; give one of them"
        )
    if failed and cancel:
        raise common.wrong(
            "--failed", "cannot be cancelled: the next execution does it; leave --cancel out"
        )
    platform = open_platform(dry_run=dry_run)
    by = common.by(who, reason)
    if failed:
        _retry(platform, name, group, dry_run=dry_run, as_json=as_json)
    elif quarantine:
        streams = {each.stream.name: each.stream for each in _groups(platform).values()}
        table = _one("event stream", name, streams).table
        about = {"stream": name, "table": table.name, "dry_run": dry_run}
        done_by = (
            f"{table.name}, which its sensor launches; `lakechime schema show {name} --quarantine`"
        )
        if dry_run and not cancel:
            _would_reprocess(platform, name, about, as_json=as_json)
        else:
            _request(
                platform,
                table.name,
                RequestKind.REPROCESS,
                by,
                about,
                done_by,
                cancel=cancel,
                as_json=as_json,
            )
    else:
        one = _type(platform, name, group)
        about = {
            "group": one.group.name,
            "type": one.known.type,
            "rebuild": rebuild,
            "dry_run": dry_run,
        }
        if not cancel and not (
            (one.known.schema_version or one.known.error)
            if rebuild
            else one.known.checkpoint.commits
        ):
            raise NotFoundError(
                f"{shown(one.known.type)} has no table, so that there is nothing to replay into; "
                f"see `lakechime schema show`"
            )
        done_by = (
            f"{one.group.name}, which its sensor launches; `lakechime schema show "
            f"{printable(one.known.table)}`"
        )
        if dry_run and not cancel:
            _would_change(platform, one, about, as_json=as_json)
        else:
            kind = RequestKind.REBUILD if rebuild else RequestKind.REPLAY
            _request(
                platform, one.known.table, kind, by, about, done_by, cancel=cancel, as_json=as_json
            )


def _request(
    platform: "Platform",
    table: str,
    kind: Any,
    by: "By",
    about: Mapping[str, Any],
    done_by: str,
    *,
    cancel: bool,
    as_json: bool,
) -> None:
    """Ask for a replay, a rebuild or reprocessing of a table, or cancel it."""
    from lakechime_dagster.silver.requests import event_requests

    requests = event_requests(platform)
    if cancel:
        number = requests.cancel(table, by, dry_run=about["dry_run"])
        answer(
            as_json,
            {**about, "cancelled": number},
            f"request {number} for {printable(table)} {would(about['dry_run'])} cancelled",
        )
        return
    asked = requests.ask(table, kind, by).request
    sentence = (
        f"{asked.kind} {asked.request_id} of {printable(table)} is done by the next execution of "
        f"{done_by} shows the result"
    )
    answer(as_json, {**about, "request": asked.request_id}, sentence)


def _retry(
    platform: "Platform", name: str, group: str | None, *, dry_run: bool, as_json: bool
) -> None:
    """Let the next execution try the failed types of a group, or one failed type, which is launched
    at once.
    """
    from lakechime_dagster.silver.requests import TypeState, event_types, types_of

    groups = _groups(platform)
    several = (
        types_of(platform, groups[name])
        if group is None and name in groups
        else [_type(platform, name, group)]
    )
    failed = [one for one in several if one.state is TypeState.FAILED]
    if not failed:
        raise NotFoundError(
            f"no type of {printable(name)} failed, so that there is nothing to try again; see "
            f"`lakechime schema show`"
        )
    owner, types = failed[0].group.name, [one.known.type for one in failed]
    if not dry_run:
        types = event_types(platform).retry(owner, types)
    sentence = (
        f"{', '.join(map(printable, types))} {would(dry_run)} tried by the next execution of "
        f"{owner}, which its sensor launches"
    )
    answer(as_json, {"group": owner, "types": types, "dry_run": dry_run}, sentence)


def _would_reprocess(
    platform: "Platform", name: str, about: Mapping[str, Any], *, as_json: bool
) -> None:
    from lakechime_dagster.silver.service import would_reprocess

    table = next(
        group.stream.table for group in _groups(platform).values() if group.stream.name == name
    )
    found = would_reprocess(platform, table, note)
    kinds = [{"reason": reason, "type": kind, "rows": rows} for reason, kind, rows in found.kinds]
    answer(
        as_json,
        {**about, "rows": found.rows, "kinds": kinds},
        f"{count(found.rows, 'row')} of {table.name} would be reprocessed",
    )
    if kinds and not as_json:
        print_documents(kinds, "reason type rows")


def _would_change(
    platform: "Platform", one: "GroupedType", about: Mapping[str, Any], *, as_json: bool
) -> None:
    from lakechime_dagster.silver.service import Streamed, would_rebuild, would_replay

    if about["rebuild"]:
        newest = Streamed(platform, one.group.stream.table).newest()
        if newest is None:
            raise NotFoundError(
                f"{one.group.stream.table.name} does not exist, so that there is nothing to "
                f"rebuild from"
            )
        found = would_rebuild(platform, one.group, one.known, newest, note)
    else:
        found = would_replay(platform, one.group, one.known, note)
    document = {**about, **record(found, "replaced added removed"), "same": found.is_same}
    document |= {"gained": _columns(found.gained), "lost": _columns(found.lost)}
    columns = [
        *(f"\n+ {name} {holds}" for name, holds in found.gained),
        *(f"\n- {name} {holds}" for name, holds in found.lost),
    ]
    rows = (
        f"{count(found.replaced, 'row')} of {one.known.table} would be replaced, {found.added:,} "
        f"added, {found.removed:,} removed"
    )
    answer(
        as_json,
        document,
        f"{one.known.table} would stay as it is" if found.is_same else rows + "".join(columns),
    )


def _columns(several: Iterable[tuple[str, str]]) -> list[dict[str, str]]:
    return [{"name": name, "holds": holds} for name, holds in several]


OfName = Annotated[
    str | None,
    typer.Argument(
        metavar="[GROUP|TYPE]", help="A group, a type, or a type's table; all groups unless given."
    ),
]
Sample = Annotated[
    int,
    typer.Option(
        "--sample", min=0, max=1_000_000, help="Rows of each type whose values are compared."
    ),
]
Values = Annotated[
    bool, typer.Option("--values", help="Show wrong values; THEY MAY BE PERSONAL DATA.")
]


@app.command()
def verify(
    name: OfName = None,
    sample: Sample = 100,
    values: Values = False,
    group: OfGroup = None,
    as_json: Json = False,
) -> None:
    """Compare the tables of types with their stream's table: no event lost, no row twice or without
    event, no value changed.

    Events are compared by their `_src`, and values in a new sample of rows of each type. It starts
    Spark and reads everything; nothing is written, and runs continue. The exit code is 1 when
    something is wrong, or a type could not be read.
    """
    from lakechime_dagster.silver.service import verified

    platform = open_platform()
    groups, names = _selected(platform, group), None
    if not groups:
        raise NotFoundError(NO_STREAM)
    if name is not None and group is None and name in _groups(platform):
        groups = _selected(platform, name)
    elif name is not None:
        one = _type(platform, name, group)
        groups, names = [one.group], [one.known.type]
    documents = [
        {"group": each.name} | _verified_document(found, with_values=values)
        for each in groups
        for found in verified(
            platform, each, note, names=names, sample=sample, seed=platform.store.now()
        )
    ]
    if values:
        note("warning: values are shown as they were received, and may be personal data")
    if as_json:
        print_json({"types": documents})
    else:
        _print_verified(documents)
    if any(each["faults"] or each["unread"] for each in documents):
        raise typer.Exit(1)


def _verified_document(one: "Verified", *, with_values: bool) -> dict[str, Any]:
    """The result for a type, as JSON; with values only on request."""
    examples = [
        {"fault": each.fault.value, "_src": each.source, "path": each.pointer}
        | ({"value": each.value} if with_values else {})
        for each in one.examples
    ]
    facts = record(one, "type table version checkpoint events rows discarded gone sampled unread")
    return facts | {
        "faults": {fault.value: number for fault, number in one.faults.items()},
        "examples": examples,
    }


def _print_verified(documents: list[dict[str, Any]]) -> None:
    rows = [{**one, "is": _verdict(one)} for one in documents]
    print_documents(
        rows, "type table events rows discarded sampled is", empty="no type has a table yet"
    )
    for one in documents:
        if one["gone"]:
            say(
                f"{one['table']}: {count(one['gone'], 'row')} older than all events in the "
                f"stream's table"
            )
        for each in one["examples"]:
            value = f" {printable(each['value'])}" if each.get("value") else ""
            say(
                (
                    f"{one['table']}: {each['fault']} {printable(each['_src'])} "
                    f"{printable(each['path'])}"
                ).rstrip()
                + value
            )


def _verdict(one: Mapping[str, Any]) -> str:
    if one["unread"]:
        return f"not read: {one['unread']}"
    return ", ".join(f"{number:,} {fault}" for fault, number in one["faults"].items()) or "whole"
