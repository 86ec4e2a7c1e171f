"""`lakechime dev`: a whole deployment on one machine, ended by one Ctrl-C."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lakechime_dagster.cli.common import note, relay, say
from lakechime_dagster.cli.demo import DATABASE_URL, DEMO_LAKE
from lakechime_dagster.errors import LakeChimeError, needs
from lakechime_dagster.settings import (
    MARKER,
    Settings,
    lake_name,
    load_settings,
    make_home,
    metastore_file,
    own_definitions,
    project_folder,
)

if TYPE_CHECKING:
    from lakechime_dagster.demo.servers import Metastore, Reservations, Server
    from lakechime_dagster.spark.warm import WarmHost


# signal, seconds to wait for its effect
ENDS = ((signal.SIGINT, 12.0), (signal.SIGTERM, 5.0), (signal.SIGKILL, 5.0))
LOOK_SECONDS = 0.05


@dataclass(frozen=True)
class Child:
    """A running child."""

    name: str
    process: subprocess.Popen[str]

    @property
    def code(self) -> int | None:
        """Its exit code, None while it runs."""
        return self.process.poll()


def start_child(
    name: str,
    command: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str],
    show: Callable[[str], None],
) -> Child:
    """Start a child in its own session, so that a Ctrl-C of the terminal reaches it through us
    only.

    The caller must have handlers for its signals: a handled signal has its default effect again in
    the child, an ignored one, as a background job of a script has it, would stay ignored.
    """
    process = subprocess.Popen(
        list(command),
        cwd=cwd,
        env=dict(env),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        encoding="utf-8",
        errors="replace",
        start_new_session=True,
    )
    child = Child(name, process)
    threading.Thread(target=_show_lines, args=(child, show), daemon=True).start()
    return child


def end_children(
    children: Sequence[Child], ends: Sequence[tuple[signal.Signals, float]] = ENDS
) -> None:
    """End all children with everything they started: interrupted first, then terminated, then
    killed.
    """
    for number, seconds in ends:
        for child in children:
            _signal_group(child, number)
        end = time.monotonic() + seconds
        while any(_lives(child) for child in children) and time.monotonic() < end:
            time.sleep(LOOK_SECONDS)
        if not any(_lives(child) for child in children):
            return


def _show_lines(child: Child, show: Callable[[str], None]) -> None:
    assert child.process.stdout is not None  # it is a pipe
    for line in child.process.stdout:
        show(f"{child.name:<8}| {line.rstrip()}")


def _lives(child: Child) -> bool:
    """Whether the child or something of its group still runs."""
    child.process.poll()  # takes note of its end, so that it is no zombie in its group
    try:
        os.killpg(child.process.pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return child.process.returncode is None
    return child.process.returncode is None or sys.platform != "darwin"


def _signal_group(child: Child, number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(child.process.pid, number)


LOCATIONS = {
    "lakechime_dagster": "lakechime_dagster.definitions",
    "outside": "lakechime_dagster.outside",
}
HOST = "127.0.0.1"
LINEAGE_PORT = 9465  # of the page of lineage, if it is free
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
DEV_LOOK_SECONDS = 0.2
QUIET = (
    "Checking for new runs for sensor",
    " skipped: ",
    "SupersessionWarning",
    "return callback(",
    "Found a dagster instance configuration",
    "BetaWarning",
    "return fn(",
    "runs for monitoring",
    "Checking run ",
    "Priority sorting and checking tag concurrency limits",
    "currently in progress. Maximum is",
    "The code location name ",  # each load of a project whose folder has another name than its module
)


def dev(
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port of the Dagster UI.")] = 3000,
    speed: Annotated[
        float, typer.Option(min=0.001, help="Hours of 2013 that the demo replays per second.")
    ] = 0.2,
    no_replay: Annotated[
        bool, typer.Option("--no-replay", help="Do not replay the demo's data.")
    ] = False,
    verbose: Annotated[
        bool,
        typer.Option(
            "--verbose", help="Show every line of Dagster, also of ticks that launch nothing."
        ),
    ] = False,
) -> None:
    """Run the lake here: store, warm Spark driver, Dagster with its UI, and the demo's replay
    and metastore; Ctrl-C ends all of it.
    """
    with needs("`lakechime dev`"):
        import dagster_webserver  # noqa: F401 - Dagster starts it
    folder = project_folder()
    os.chdir(folder)  # where .env is, and what relative paths of the settings mean
    settings = load_settings()
    _check_port(port)
    lineage_port = (
        0 if settings.lineage_url or find_spec("fastapi") is None else free_port(LINEAGE_PORT)
    )
    with ExitStack() as stack:
        stack.enter_context(_only_one(settings.home))
        own = own_definitions(settings)
        if own is None and lake_name(settings) is None and not (folder / MARKER).is_file():
            from lakechime_dagster.tables.lake import NO_LAKE

            raise LakeChimeError(NO_LAKE)
        is_demo = own is None and lake_name(settings) == DEMO_LAKE
        stop = _stop_on_signals()
        reservations = stack.enter_context(_reservations(settings)) if is_demo else None
        metastore = stack.enter_context(_metastore(settings)) if is_demo else None
        servers = (*(reservations.servers if reservations else ()), *filter(None, [metastore]))
        deployment = Deployment(
            settings,
            folder,
            port,
            speed if is_demo and not no_replay else None,
            verbose,
            lineage_port=lineage_port,
            reservations=reservations,
            servers=servers,
        )
        code = deployment.run(stop)
    raise typer.Exit(code)


@dataclass
class Deployment:
    """What `lakechime dev` runs; `speed` is None when nothing is to be replayed, `reservations`
    when no database is replicated. `servers` run already, and are watched.

    The page of lineage is served at `lineage_port`; with 0 another process serves it, or none.
    """

    settings: Settings
    folder: Path
    port: int
    speed: float | None
    verbose: bool = False
    ending: bool = False
    lineage_port: int = 0
    reservations: "Reservations | None" = None
    servers: "Sequence[Server | Metastore]" = ()

    def run(self, stop: threading.Event) -> int:
        """Run until `stop` is set, or until Dagster ends; the exit code."""
        _prepare_store(self.settings)
        write_dagster_home(self.settings.dagster_home, self.folder)
        host = _start_warm(self.settings)
        children: list[Child] = []
        try:
            where = ["-w", str(self._workspace()), "--host", HOST, "--port", str(self.port)]
            dagster = self._child("dagster", [*_python("dagster"), "dev", *where])
            children.append(dagster)
            return self._watch(dagster, children, host, stop)
        finally:
            self.ending = True
            note("lakechime| ending: runs that are at work are tried again at the next start")
            end_children(children)
            if host is not None:
                host.stop()
            note("lakechime| all of it has ended")

    def _watch(
        self, dagster: Child, children: list[Child], host: "WarmHost | None", stop: threading.Event
    ) -> int:
        is_announced = False
        servers = list(self.servers)
        while not stop.wait(DEV_LOOK_SECONDS):
            if dagster.code is not None:
                note(
                    f"error: Dagster ended by itself with exit code {dagster.code}; its last lines "
                    f"above say why"
                )
                return 1
            if not is_announced and _answers(self.port):
                is_announced = True
                self._announce()
                if self.lineage_port:
                    serve = ["serve", "--host", HOST, "--port", str(self.lineage_port)]
                    children.append(
                        self._child("lineage", [*_python("lakechime_dagster.cli.main"), *serve])
                    )
                if self.speed is not None:
                    replay = ["demo", "--speed", str(self.speed)]
                    children.append(
                        self._child("replay", [*_python("lakechime_dagster.cli.main"), *replay])
                    )
            for child in [
                child for child in children if child is not dagster and child.code is not None
            ]:
                children.remove(child)
                what = (
                    "has written everything"
                    if child.code == 0
                    else f"ended with exit code {child.code}; the rest continues"
                )
                note(f"lakechime| {child.name} {what}")
            for server in [server for server in servers if not server.is_running]:
                servers.remove(server)
                note(
                    f"lakechime| {server.name} ended ({server.log} says why); what needs it waits "
                    f"for the next start"
                )
            if host is not None and host.process.poll() is not None:
                note(
                    f"lakechime| the warm Spark driver ended ({host.log_file} says why); runs "
                    f"start their own, more slowly"
                )
                host = None
        return 0

    def _child(self, name: str, command: list[str]) -> Child:
        return start_child(name, command, cwd=self.folder, env=self._environment(), show=self._show)

    def _show(self, line: str) -> None:
        """A child's line, unless it says nothing new; what Dagster says about being ended is of no
        use to anybody.
        """
        if self.verbose or not (self.ending or is_noise(line)):
            relay(line)

    def _environment(self) -> Mapping[str, str]:
        from lakechime_dagster.demo.flights import READER_URL

        system = self.reservations
        page = (
            {"LAKECHIME_LINEAGE_URL": f"http://{HOST}:{self.lineage_port}"}
            if self.lineage_port
            else {}
        )
        database = {DATABASE_URL: system.url, READER_URL: system.reader_url} if system else {}
        return (
            os.environ
            | database
            | page
            | {
                "DAGSTER_HOME": str(self.settings.dagster_home),
                "LAKECHIME_HOME": str(self.settings.home),
                "LAKECHIME_WEBSERVER_URL": self.settings.webserver_url
                or f"http://{HOST}:{self.port}",
                "PYTHONUNBUFFERED": "1",
                "PYTHONPATH": os.pathsep.join(
                    [
                        str(self.folder),
                        str(self.folder / "src"),
                        *filter(None, [os.environ.get("PYTHONPATH")]),
                    ]
                ),
            }
        )

    def _workspace(self) -> Path:
        """The project's workspace file; where there is none, one in the home folder, for the
        project's definitions or the package's.
        """
        own = self.folder / MARKER
        if own.is_file():
            return own
        path = self.settings.home / MARKER
        path.write_text(
            workspace_text(self.folder, own_definitions(self.settings)), encoding="utf-8"
        )
        return path

    def _announce(self) -> None:
        say(f"\n  The UI is at http://{HOST}:{self.port}\n")
        if self.lineage_port:
            page = f"http://{HOST}:{self.lineage_port}/lineage"
            say(
                f"  Columns      {page}: what each is computed from, and who reads it; every asset "
                f"links to it"
            )
        say(
            "  Lineage      the lake's tables; each says when it last fired, what it read and what "
            "it waits for"
        )
        say(
            "  Runs         launched by themselves as data changes; tags name consumer and "
            "execution"
        )
        say("  Automation   the triggers; a tick that launched nothing says why")
        say("  lakechime status, lakechime trigger show NAME: the same from a second terminal")
        say("  Ctrl-C ends all of it\n")


def is_noise(line: str) -> bool:
    """Whether a line of Dagster says that nothing happened; of the steps of runs only begin and end
    of the run are news.
    """
    return any(text in line for text in QUIET) or (" - DEBUG - " in line and " - RUN_" not in line)


def write_dagster_home(home: Path, folder: Path) -> None:
    """Put the project's dagster.yaml, else the package's, into the Dagster home: Dagster reads it
    nowhere else.
    """
    home.mkdir(parents=True, exist_ok=True)
    own = folder / "dagster.yaml"
    text = own.read_text(encoding="utf-8") if own.is_file() else dagster_yaml()
    source = str(own) if own.is_file() else "lakechime-dagster"
    (home / "dagster.yaml").write_text(
        f"# A copy from {source}, written at each start of `lakechime dev`.\n{text}",
        encoding="utf-8",
    )


def dagster_yaml() -> str:
    """The Dagster instance that the package brings."""
    return files("lakechime_dagster.cli").joinpath("dagster.yaml").read_text(encoding="utf-8")


def workspace_text(folder: Path, own: str | None = None) -> str:
    """A workspace that imports from a project's folder: the module of its own definitions, or the
    package's; and `outside`.
    """
    modules = {own.partition(".")[0]: own, "outside": LOCATIONS["outside"]} if own else LOCATIONS
    quoted = str(folder).replace("'", "''")
    locations = [
        f"  - python_module:\n      module_name: {module}\n      working_directory: '{quoted}'\n   "
        f"   location_name: {name}\n"
        for name, module in modules.items()
    ]
    return "".join(["load_from:\n", *locations])


def _check_port(port: int) -> None:
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((HOST, port))
        except OSError as error:
            remedy = "end what uses it, or choose another one with --port"
            raise LakeChimeError(
                f"port {port} of {HOST} cannot be used ({error.strerror}); {remedy}"
            ) from None


def free_port(wanted: int) -> int:
    """A port of this machine that nobody listens at: the wanted one if it is free."""
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((HOST, wanted))
        except OSError:
            listener.bind((HOST, 0))
        return int(listener.getsockname()[1])


def _answers(port: int) -> bool:
    """Whether something listens there, which is the UI since the port was free."""
    try:
        socket.create_connection((HOST, port), timeout=1).close()
    except OSError:
        return False
    return True


@contextmanager
def _only_one(home: Path) -> Iterator[None]:
    """Two deployments in one home would replay and serve the same lake twice."""
    from lakechime_dagster.lock import locked

    try:
        make_home(home)
        with locked(home / "dev.lock", 0):
            yield
    except TimeoutError:
        raise LakeChimeError(
            f"another `lakechime dev` runs in {home}; end it, or set LAKECHIME_HOME to another "
            f"folder"
        ) from None
    except OSError as error:
        raise LakeChimeError(f"the home folder {home} cannot be used: {error.strerror}") from None


def _stop_on_signals() -> threading.Event:
    stop = threading.Event()
    for number in SIGNALS:
        signal.signal(number, lambda *_: stop.set())
    return stop


def _prepare_store(settings: Settings) -> None:
    from lakechime_dagster.dce.engine import open_engine, upgrade

    upgrade(open_engine(settings.store_url))
    note(
        f"lakechime| store {settings.shown_store_url}, lake "
        f"{own_definitions(settings) or settings.lake}, home {settings.home}"
    )


def _start_warm(settings: Settings) -> "WarmHost | None":
    """Look for Java and the jars, which every local run needs, and start the driver that they
    share.
    """
    from lakechime_dagster.spark.jvm import ensure_jars, find_java
    from lakechime_dagster.spark.warm import start_warm_driver

    if settings.spark.driver not in ("warm", "local"):
        return None
    java = find_java(settings.spark.java)
    ensure_jars(settings.jars, lambda: java, note)
    if settings.spark.driver == "local":
        return None
    host = start_warm_driver(settings.spark, settings.home, settings.jars)
    note(f"lakechime| a warm Spark driver is starting (its log: {host.log_file})")
    return host


@contextmanager
def _reservations(settings: Settings) -> "Iterator[Reservations | None]":
    """The database that the demo's lake follows, with what brings its changes; None where it
    follows none.
    """
    from lakechime_dagster.demo.flights import kafka_address
    from lakechime_dagster.demo.servers import (
        STACK_FILE,
        check_parts,
        ensure_server_jars,
        reservations,
    )
    from lakechime_dagster.spark.jvm import find_java

    kafka = kafka_address(os.environ)
    if kafka is None:
        yield None
        return
    check_parts(kafka)
    java = find_java(settings.spark.java)
    jars = ensure_server_jars(STACK_FILE, settings.jars.parent, java, note)
    folder = settings.home / "reservations"
    note(f"lakechime| MariaDB, Debezium and Kafka ({kafka}) are starting (their logs: {folder})")
    with reservations(folder, kafka, jars, java) as running:
        yield running


@contextmanager
def _metastore(settings: Settings) -> "Iterator[Metastore | None]":
    """The metastore of the demo's Hive table, found by all commands of the home; None where there
    is another one, or none can be.
    """
    file = metastore_file(settings.home)
    # one that was killed has left its file
    is_other = settings.metastore and not (file.exists() and file.read_text() == settings.metastore)
    if is_other or find_spec("hive_metastore") is None:
        yield None
        return
    from lakechime_dagster.demo.servers import METASTORE_FILE, ensure_server_jars, hive_metastore
    from lakechime_dagster.spark.jvm import find_java

    java = find_java(settings.spark.java)
    with ExitStack() as stack:
        try:
            jars = ensure_server_jars(METASTORE_FILE, settings.jars.parent, java, note)
            running = stack.enter_context(hive_metastore(settings.home / "metastore", jars, java))
        except LakeChimeError as error:
            note(f"lakechime| the lake is without its Hive table: {error}")
            yield None
            return
        note(f"lakechime| a Hive metastore is starting ({running.url}; its log: {running.log})")
        file.write_text(running.url, encoding="utf-8")
        try:
            yield running
        finally:
            file.unlink(missing_ok=True)


def _python(module: str) -> list[str]:
    return [sys.executable, "-m", module]
