"""Settings: what the environment and `.env` say, and how a wrong value is reported."""

import os
from pathlib import Path

import pytest

from lakechime_dagster.errors import InvalidValueError
from lakechime_dagster.settings import Settings, SparkSettings, load_dot_env, load_settings


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project folder with a subfolder, in which this process stands."""
    for name in [
        *(f"LAKECHIME_{field}".upper() for field in Settings.model_fields),
        *(f"LAKECHIME_SPARK_{field}".upper() for field in SparkSettings.model_fields),
    ]:
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "workspace.yaml").write_text("load_from: []\n")
    (tmp_path / "subscriptions" / "daily").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "subscriptions" / "daily")
    return tmp_path


def test_a_dot_env_beside_the_workspace_is_read_from_a_subfolder_for_spark_too(
    project: Path,
) -> None:
    (project / ".env").write_text(
        "LAKECHIME_DEPLOYMENT=prod\nLAKECHIME_SPARK_DRIVER=local\nLAKECHIME_SPARK_CORES=3\nOTHER=1\n"
    )
    settings = load_settings()
    assert (settings.deployment, settings.spark.driver, settings.spark.cores) == (
        "prod",
        "local",
        3,
    )
    assert settings.home == project / ".lakechime"


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("sqlite:///dce.sqlite", "sqlite:///{project}/dce.sqlite"),
        (
            "sqlite+pysqlite:///data/dce.sqlite?mode=rw",
            "sqlite+pysqlite:///{project}/data/dce.sqlite?mode=rw",
        ),
        ("sqlite:///~/dce.sqlite", "sqlite:///{home}/dce.sqlite"),
        ("sqlite:////srv/dce.sqlite", "sqlite:////srv/dce.sqlite"),
        ("sqlite:///file:dce.sqlite?uri=true", "sqlite:///file:dce.sqlite?uri=true"),
        ("sqlite:///:memory:", "sqlite:///:memory:"),
        ("postgresql://db/dce", "postgresql://db/dce"),
    ],
)
def test_the_file_of_a_relative_store_lies_in_the_project_folder(
    project: Path, written: str, meant: str
) -> None:
    (project / ".env").write_text(f"LAKECHIME_STORE_URL={written}\n")
    assert load_settings().store_url == meant.format(project=project, home=Path.home())


def test_variables_of_any_name_are_set_from_dot_env_unless_they_are_set(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / ".env").write_text("OF_THE_FILE=file\nOF_BOTH=file\nLAKECHIME_CLUSTER=file\n")
    monkeypatch.setattr(os, "environ", {"OF_BOTH": "environment"})
    load_dot_env()
    assert os.environ == {"OF_THE_FILE": "file", "OF_BOTH": "environment"}


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16"])
def test_a_dot_env_that_is_not_utf_8_is_reported_with_the_remedy(
    project: Path, encoding: str
) -> None:
    (project / ".env").write_text("LAKECHIME_DEPLOYMENT=Büro\n", encoding=encoding)
    with pytest.raises(InvalidValueError, match=r"\.env.*: is not text in UTF-8; save it as UTF-8"):
        load_settings()


def test_the_environment_wins_over_dot_env(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (project / ".env").write_text("LAKECHIME_DEPLOYMENT=prod\nLAKECHIME_SPARK_DRIVER=local\n")
    monkeypatch.setenv("LAKECHIME_DEPLOYMENT", "test")
    monkeypatch.setenv("LAKECHIME_SPARK_DRIVER", "warm")
    assert (load_settings().deployment, load_settings().spark.driver) == ("test", "warm")
