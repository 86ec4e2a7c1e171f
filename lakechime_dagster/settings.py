"""Where things are: home, store, warehouse, lake module, deployment, Spark — read from LAKECHIME_*
and .env, validated.

`definitions`, `cli`, `resources` and `lakechime_sensor` load them; `spark` is given its part;
everything else gets values.
"""

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Literal

from dotenv import dotenv_values
from pydantic import Field, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict, SettingsError

from lakechime_dagster.compat import tomllib
from lakechime_dagster.errors import InvalidValueError, without_password
from lakechime_dagster.spark_drivers import REMEDY, is_driver

# shows the lake of LAKECHIME_LAKE, the flights demo where it is not set
SHIPPED = "lakechime_dagster.definitions"
# of a project, as a `pyproject.toml` with a table of Dagster; home folder and `.env` are in the
# project's root
MARKER = "workspace.yaml"
HOME = ".lakechime"

REMEDIES = {  # where a rule's own words do not say what to write
    "conf": 'is not a JSON object of texts; write {"spark.x": "y"}',
    "cores": "write a whole number from 1 on",
    "deployment": 'use letters, digits, ".", "_", "-", at most 64',
    "lineage_stale_days": "write a whole number from 1 on",
    "metastore": "is not the URL of a Hive metastore; write thrift://host:9083",
    "iceberg_catalog": 'is not a JSON object of texts; write {"type": "rest", "uri": "https://…"}',
    "idle_minutes": "write a whole number from 1 on",
    "memory": "write such as 2g or 1500m",
    "webserver_url": "write such as http://127.0.0.1:3000",
}


class SparkSettings(BaseSettings):
    """How runs get a Spark driver (LAKECHIME_SPARK_*)."""

    model_config = SettingsConfigDict(
        env_prefix="LAKECHIME_SPARK_", env_ignore_empty=True, extra="ignore", frozen=True
    )

    driver: str = Field(
        default="warm",
        description=(
            "`warm`: one driver that all local runs share. `local`: a driver of each run. "
            "Otherwise a master URL such as `spark://host:7077`."
        ),
    )
    memory: str = Field(
        default="2g",
        pattern=r"^\d+[mg]$",
        description="Memory of the driver's JVM, such as `2g` or `1500m`.",
    )
    cores: int = Field(
        default_factory=lambda: max(1, min(os.cpu_count() or 1, 4)),
        ge=1,
        description=(
            "Threads of a local driver, and shuffle partitions. Default: the cores of the machine, "
            "at most 4."
        ),
    )
    java: Path | None = Field(
        default=None, description="Home folder of a Java 17 or 21. Default: search for one."
    )
    jars: Path | None = Field(
        default=None,
        description="Folder of Spark's jars. Default: download them into the home folder.",
    )
    conf: dict[str, str] = Field(
        default_factory=dict, description='More Spark configuration, as JSON: `{"spark.x": "y"}`.'
    )
    idle_minutes: int = Field(
        default=60, ge=1, description="The warm driver stops its JVM after this time without use."
    )

    @field_validator("java", "jars")
    @classmethod
    def _absolute(cls, value: Path | None) -> Path | None:
        return value and in_project(value)

    @field_validator("driver")
    @classmethod
    def _known_driver(cls, value: str) -> str:
        if is_driver(value):
            return value
        raise ValueError(REMEDY)


class Settings(BaseSettings):
    """All settings of a deployment (LAKECHIME_*)."""

    model_config = SettingsConfigDict(
        env_prefix="LAKECHIME_", env_ignore_empty=True, extra="ignore", frozen=True
    )

    home: Path = Field(
        default=Path(),
        description="Folder of the store, the warehouse, Dagster's home and Spark's jars. Default: "
        "`.lakechime` in the project's root, "
        "which is the nearest folder with a `workspace.yaml` or a `pyproject.toml` with "
        "`[tool.dg]` or `[tool.dagster]`; "
        "without a project `lakechime` in `DAGSTER_HOME`.",
    )
    lake: str = Field(
        default="lakechime_dagster.demo.flights:lake",
        description=(
            "The lake to run, as `module:attribute`. A project that has definitions of its own "
            "does not need it."
        ),
    )
    store_url: str = Field(
        default="",
        description="URL of the DCE store: `postgresql://user:password@host:5432/database` or "
        "`sqlite:////srv/lake/dce.sqlite`. "
        "Default: SQLite in the home folder.",
    )
    warehouse: str = Field(
        default="",
        description=(
            "Folder or URL of the tables that declare no location. Default: `warehouse` in the "
            "home folder."
        ),
    )
    iceberg_catalog: dict[str, str] = Field(
        default_factory=dict,
        repr=False,
        description="Catalog of the Iceberg tables, as JSON with pyiceberg's properties: "
        '`{"type": "rest", "uri": "https://catalog:8181"}`. '
        "Default: a SQL catalog in the home folder, `iceberg.sqlite`.",
    )
    metastore: str = Field(
        default="",
        pattern=r"^(thrift://[^\s,@]+)?$",
        description="Hive metastore of the Hive tables: `thrift://host:9083`. Default: the one that "
        "`lakechime dev` runs for the demo, else none, so that the changes of Hive tables are not "
        "captured.",
    )
    deployment: str = Field(
        default="local",
        min_length=1,
        max_length=64,
        pattern=r"^[A-Za-z0-9._-]+$",
        description="Name of this installation. Two installations that share a store need two names.",
    )
    cluster: str = Field(
        default="", max_length=128, description="Name of this data platform in events."
    )
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = Field(
        default="WARNING",
        description=(
            "`DEBUG`, `INFO`, `WARNING` or `ERROR`. With `DEBUG`, an unexpected error prints its "
            "stack."
        ),
    )
    alarms: str = Field(
        default="",
        repr=False,
        description="Who receives alarms: `send` for the URLs that the lake declares, or URLs of "
        "apprise, `$NAME` for one in a variable. "
        "Default: a dry run.",
    )
    api_token: str = Field(
        default="",
        repr=False,
        description=(
            "Bearer token that requests to `lakechime serve` must send. Required where other "
            "machines reach it."
        ),
    )
    api_rate: int = Field(
        default=100,
        ge=0,
        description=(
            "Requests a second that each token may send to `lakechime serve`, and after a pause "
            "those of 5 seconds at once; 0 for no limit. More are answered with 429."
        ),
    )
    notification_urls: str = Field(
        default="",
        repr=False,
        description=(
            "Variables that hold the URL of each owner for change notifications, as JSON: "
            '`{"team:bi": "$BI_SLACK"}`.'
        ),
    )
    source_queries: Literal["on", "off"] = Field(
        default="on", description="`off`: no monitor and no command queries a source database."
    )
    lineage_url: str = Field(
        default="",
        description=(
            "Where a browser reaches `lakechime serve`; assets link to it. Default: `lakechime "
            "dev` serves the page."
        ),
    )
    webserver_url: str = Field(
        default="",
        pattern=r"^(https?://\S+)?$",
        description=(
            "Where Dagster's webserver is, to reload the code location `outside`. `lakechime dev` "
            "sets it."
        ),
    )
    lineage_stale_days: int = Field(
        default=35,
        ge=1,
        description="A table without a recorded run for this many days is shown as stale in lineage.",
    )
    # by LAKECHIME_SPARK_*, never by LAKECHIME_SPARK
    spark: Annotated[SparkSettings, NoDecode] = Field(default_factory=SparkSettings)

    @field_validator("lake")
    @classmethod
    def _module_and_attribute(cls, value: str) -> str:
        module, colon, attribute = value.partition(":")
        if not colon or not all(part.isidentifier() for part in (*module.split("."), attribute)):
            raise ValueError("write module:attribute, such as my_package.lake:lake")
        return value

    @model_validator(mode="before")
    @classmethod
    def _defaults_beside_home(cls, values: dict[str, object]) -> dict[str, object]:
        home = in_project(str(values["home"])) if values.get("home") else default_home()[0]
        values["home"] = home
        values["store_url"] = _store_in_project(
            str(values.get("store_url") or f"sqlite:///{home / 'dce.sqlite'}")
        )
        values["warehouse"] = location_in_project(
            str(values.get("warehouse") or home / "warehouse")
        )
        values["iceberg_catalog"] = values.get("iceberg_catalog") or {
            "type": "sql",
            "uri": f"sqlite:///{home / 'iceberg.sqlite'}",
            "warehouse": values["warehouse"],
        }
        with suppress(OSError):
            values["metastore"] = values.get("metastore") or metastore_file(home).read_text("utf-8")
        return values

    @property
    def jars(self) -> Path:
        return self.spark.jars or self.home / "jars"

    @property
    def dagster_home(self) -> Path:
        return self.home / "dagster"

    @property
    def may_ask_sources(self) -> bool:
        return self.source_queries == "on"

    @property
    def shown_store_url(self) -> str:
        return without_password(self.store_url)


def metastore_file(home: Path) -> Path:
    """It has the URL of the demo's metastore while that runs."""
    return home / "metastore.url"


def load_settings(**overrides: object) -> Settings:
    """The settings of this process's environment, and of `.env` in the project's folder for what
    the environment does not say.

    Raises:
        InvalidValueError: naming the variable, its value and the remedy.
    """
    env_file = project_folder() / ".env"
    try:
        spark = SparkSettings(_env_file=env_file)  # type: ignore[call-arg]
        return Settings(_env_file=env_file, **{"spark": spark} | overrides)  # type: ignore[arg-type]
    except UnicodeDecodeError:
        raise InvalidValueError(
            ".env", str(env_file), "is not text in UTF-8; save it as UTF-8"
        ) from None
    except SettingsError as error:
        text = error.__cause__.doc if isinstance(error.__cause__, json.JSONDecodeError) else ""
        field = "iceberg_catalog" if "iceberg_catalog" in str(error) else "spark_conf"
        remedy = REMEDIES[field.removeprefix("spark_")]
        raise InvalidValueError(f"LAKECHIME_{field}".upper(), _shown_conf(text), remedy) from None
    except ValidationError as error:
        first = error.errors()[0]
        field = str(first["loc"][0])
        prefix = "LAKECHIME_SPARK_" if error.title == "SparkSettings" else "LAKECHIME_"
        shown = {
            "store_url": without_password,
            "conf": _shown_conf,
            "iceberg_catalog": _shown_conf,
        }.get(field, lambda value: value)
        remedy = REMEDIES.get(field, first["msg"].removeprefix("Value error, "))
        raise InvalidValueError(f"{prefix}{field}".upper(), shown(first["input"]), remedy) from None


def load_dot_env() -> None:
    """Set the variables of the project's `.env` in this process, as `dagster dev` and `dg` do:
    declarations refer to variables of any name. Those that are set stay as they are.

    `load_settings` reads LAKECHIME_* itself, and reports a file that is not text.
    """
    with suppress(OSError, UnicodeDecodeError):
        for name, value in dotenv_values(project_folder() / ".env").items():
            if value is not None and not name.startswith("LAKECHIME_"):
                os.environ.setdefault(name, value)


def _shown_conf(value: object) -> object:
    """Confs as a message may show them: without their values, which may be secrets."""
    return value if str(value).isalnum() else "…"


def project_folder(start: Path | None = None) -> Path:
    """The root of the project of a folder, by default of the current one; a folder that is in no
    project is its own.
    """
    start = start or Path.cwd()
    return project_root(start) or start


def project_root(start: Path) -> Path | None:
    """The nearest folder, at or above, with a workspace.yaml or a project of Dagster; else with a
    home folder that has a store.
    """
    above = (start, *start.parents)
    root = next(
        (folder for folder in above if (folder / MARKER).is_file() or project_tables(folder)), None
    )
    return root or next(
        (folder for folder in above if (folder / HOME / "dce.sqlite").is_file()), None
    )


def project_tables(folder: Path) -> dict[str, Any]:
    """What `pyproject.toml` of a folder says in `tool.dg` and `tool.dagster`; nothing where there
    is no such file, or it cannot be read.
    """
    try:
        tools = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8")).get(
            "tool", {}
        )
    except (OSError, ValueError):
        return {}
    return {name: tools[name] for name in ("dg", "dagster") if name in tools}


def definitions_module(folder: Path) -> str | None:
    """The module of a project's definitions, as `dg` and `dagster dev` find it; None where
    `pyproject.toml` names none.
    """
    tables = project_tables(folder)
    project = tables.get("dg", {}).get("project", {})
    root = project.get("root_module")
    return project.get("code_location_target_module") or (
        f"{root}.definitions" if root else tables.get("dagster", {}).get("module_name")
    )


def own_definitions(settings: Settings) -> str | None:
    """The module of the project's own definitions, where LAKECHIME_LAKE names no lake."""
    own = definitions_module(project_folder())
    return None if own == SHIPPED or "lake" in settings.model_fields_set else own


def lake_name(settings: Settings) -> str | None:
    """The name of the lake, as `module:attribute`; the demo's only in a project that loads the
    shipped definitions.
    """
    is_asked_for = (
        "lake" in settings.model_fields_set or definitions_module(project_folder()) == SHIPPED
    )
    return settings.lake if is_asked_for else None


def default_home() -> tuple[Path, str]:
    """The home folder where no setting names one, and why it is this: so that no command in a
    sub-folder creates a second store.
    """
    current = Path.cwd()
    if (root := project_root(current)) is not None:
        return (root / HOME).resolve(), f"in the project {root}"
    if dagster_home := os.environ.get("DAGSTER_HOME"):
        return (Path(dagster_home).expanduser() / "lakechime").resolve(), "in DAGSTER_HOME"
    return (current / HOME).resolve(), "in the current folder, which is in no project"


def make_home(home: Path) -> None:
    """Create the home folder where it is missing; git ignores a new one as a whole."""
    try:
        home.mkdir(parents=True)
    except FileExistsError:
        return
    (home / ".gitignore").write_text("*\n", encoding="utf-8")


def in_project(path: str | Path) -> Path:
    """A path as settings mean it, wherever the process stands: a relative one lies in the project's
    folder.
    """
    return (project_folder() / Path(path).expanduser()).resolve()


def location_in_project(location: str) -> str:
    """The same for the location of tables, which may be a URL."""
    return location if ":" in location.partition("/")[0] else str(in_project(location))


def _store_in_project(url: str) -> str:
    """The same for the file of a SQLite store; whatever else the URL may be is judged where the
    store is opened.
    """
    scheme, mark, rest = url.partition(":///")
    file, question, query = rest.partition("?")
    if scheme.partition("+")[0] != "sqlite" or not file or file.startswith((":memory:", "file:")):
        return url
    return f"{scheme}{mark}{in_project(file)}{question}{query}"
