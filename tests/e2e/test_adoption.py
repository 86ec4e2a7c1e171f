"""The wheel in a stock project: installed by `uv add`, and the README's trigger runs there without
Spark.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.missing import missing

ROOT = Path(__file__).parents[2]
UV = Path(sys.executable).with_name("uv")
DRIVE = """
import dagster as dg
from lakechime_dagster import LAKECHIME
from my_project.definitions import defs

loaded = defs()
sensor = loaded.get_sensor_def("features")
with dg.DagsterInstance.ephemeral() as instance:
    context = dg.build_sensor_context(instance=instance, definitions=loaded)
    (request,) = sensor.evaluate_tick(context).run_requests
    from my_project.defs.features import features
    done = dg.materialize([features], instance=instance, tags=request.tags, resources={"lakechime": LAKECHIME})
    again = sensor.evaluate_tick(dg.build_sensor_context(instance=instance, definitions=loaded))
print(done.success, dg.__version__, again.skip_message)
"""


def run(*command: object, cwd: Path, succeeds: bool = True) -> str:
    """What a command prints, outside of this repository's environment."""
    ours = ("VIRTUAL_ENV", "PYTHONPATH", "DAGSTER_HOME")
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in ours and not name.startswith("LAKECHIME_")
    }
    environment = kept | {
        "DAGSTER_DISABLE_TELEMETRY": "yes",
        "UV_PYTHON": sys.executable,
        "PATH": f"{UV.parent}:{kept['PATH']}",
    }
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode == 0) is succeeds, (
        f"{command}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
    )
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder, cwd=ROOT)
    return next(folder.glob("*.whl"))


@pytest.fixture(scope="module")
def stock(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project as Dagster's own scaffold makes it."""
    folder = tmp_path_factory.mktemp("stock")
    try:
        run(
            UV,
            "tool",
            "run",
            "create-dagster@latest",
            "project",
            "--no-uv-sync",
            "my-project",
            cwd=folder,
        )
    except AssertionError as error:
        missing(f"Dagster's scaffold cannot be had: {error}", "connect to the package index")
    return folder / "my-project"


@pytest.mark.services
@pytest.mark.parametrize("dagster", ["dagster>=1.13,<1.14", "dagster==1.13.0"])
def test_a_stock_project_takes_the_wheel_and_its_trigger_runs_without_spark(
    dagster: str, stock: Path, wheel: Path, tmp_path: Path
) -> None:
    project = tmp_path / "my-project"
    shutil.copytree(stock, project)
    described = project / "pyproject.toml"
    described.write_text(re.sub(r'"dagster==[^"]*"', f'"{dagster}"', described.read_text()))
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    trigger = next(block for block in blocks if "lakechime_sensor(" in block)
    (project / "src/my_project/defs/features.py").write_text(trigger)

    run(UV, "add", wheel, cwd=project)
    run(UV, "sync", cwd=project)
    bin_, below = project / ".venv/bin", project / "src/my_project"
    run(bin_ / "dg", "check", "defs", cwd=project)
    run(
        bin_ / "lakechime",
        "dce",
        "register",
        "--table",
        "silver.orders",
        "--snapshot-id",
        "17",
        cwd=below,
    )
    assert run(bin_ / "python", "-c", DRIVE, cwd=project).splitlines()[-1].startswith("True 1.13.")

    assert json.loads(run(bin_ / "lakechime", "status", "--json", cwd=below))["home"] == str(
        project / ".lakechime"
    )
    assert [
        one["name"]
        for one in json.loads(run(bin_ / "lakechime", "trigger", "show", "--json", cwd=below))[
            "triggers"
        ]
    ] == ["features"]
    _check_components(project)
    assert (project / ".lakechime/.gitignore").read_text() == "*\n"
    assert not (below / ".lakechime").exists()
    assert not [
        one
        for one in project.glob(".venv/lib/*/site-packages/*")
        if one.name in ("pyspark", "deltalake", "pandas", "pyarrow")
    ]


def _check_components(project: Path) -> None:
    """A trigger in YAML: listed, scaffolded, checked, with its sensor."""
    dg = project / ".venv/bin/dg"
    listed = {
        one["key"]
        for one in json.loads(run(dg, "list", "components", "--json", cwd=project))["items"]
    }
    kinds = ("Trigger", "SourceTable", "SqlTable", "CDCTable", "EventStream", "Lake")
    assert listed >= {f"lakechime_dagster.{kind}Component" for kind in kinds}
    run(dg, "scaffold", "defs", "lakechime_dagster.TriggerComponent", "another", cwd=project)
    example = project / "src/my_project/defs/another/defs.yaml"
    text = example.read_text().replace("name: features", "name: another")
    example.write_text(text.replace("tables: [", "tabels: ["))
    refused = run(dg, "check", "yaml", cwd=project, succeeds=False)
    assert "attributes.trigger.snapshot_trigger.tabels" in refused
    assert "tabels: [silver.orders]" in refused
    example.write_text(text)
    run(dg, "check", "yaml", cwd=project)
    assert {"features", "another"} <= {
        sensor["name"]
        for sensor in json.loads(run(dg, "list", "defs", "--json", cwd=project))["sensors"]
    }
