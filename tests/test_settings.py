"""Settings: what the environment and `.env` say, and how a wrong value is told."""

from pathlib import Path

import pytest

from lakechime_dagster.errors import InvalidValueError
from lakechime_dagster.settings import Settings, load_settings


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project folder with a subfolder, in which this process stands."""
    for name in [*(f"LAKECHIME_{field}".upper() for field in Settings.model_fields), "LAKECHIME_SPARK_DRIVER", "LAKECHIME_SPARK_CORES"]:
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "workspace.yaml").write_text("load_from: []\n")
    (tmp_path / "flows" / "daily").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "flows" / "daily")
    return tmp_path


def test_a_dot_env_beside_the_workspace_is_read_from_a_subfolder_for_spark_too(project: Path) -> None:
    (project / ".env").write_text("LAKECHIME_DEPLOYMENT=prod\nLAKECHIME_SPARK_DRIVER=local\nLAKECHIME_SPARK_CORES=3\nOTHER=1\n")
    settings = load_settings()
    assert (settings.deployment, settings.spark.driver, settings.spark.cores) == ("prod", "local", 3)
    assert settings.home == project / ".lakechime"


def test_a_relative_home_lies_in_the_project_folder(project: Path) -> None:
    (project / ".env").write_text("LAKECHIME_HOME=data\n")
    assert load_settings().home == project / "data"


def test_the_environment_wins_over_dot_env(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (project / ".env").write_text("LAKECHIME_DEPLOYMENT=prod\nLAKECHIME_SPARK_DRIVER=local\n")
    monkeypatch.setenv("LAKECHIME_DEPLOYMENT", "test")
    monkeypatch.setenv("LAKECHIME_SPARK_DRIVER", "warm")
    assert (load_settings().deployment, load_settings().spark.driver) == ("test", "warm")


def test_a_wrong_value_in_dot_env_names_its_variable(project: Path) -> None:
    (project / ".env").write_text("LAKECHIME_SPARK_CORES=0\n")
    with pytest.raises(InvalidValueError, match="LAKECHIME_SPARK_CORES '0'"):
        load_settings()
