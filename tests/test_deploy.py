"""deploy/: what can be known of the containers without starting one. README.md there says what that leaves open."""

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from packaging.specifiers import SpecifierSet
from ruamel.yaml import YAML

pytestmark = pytest.mark.tree
ROOT = Path(__file__).parent.parent
DEPLOY = ROOT / "deploy"
COMPOSE: dict[str, Any] = YAML(typ="safe").load(DEPLOY / "compose.yaml")
POOL: dict[str, Any] = json.loads((DEPLOY / "kubernetes/work-pool.json").read_text())
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
LOCKED = set(re.findall(r"^([a-z0-9-]+)==", (ROOT / "requirements.lock").read_text(), re.MULTILINE))
ASKED = re.compile(r"\$\{(\w+)(:[-?][^}]*)?\}")
SECRET = re.compile(r"(?i)password|auth|token|key|connection_url|store_uri")


def test_nothing_is_open_beyond_loopback_unless_asked_for() -> None:
    ports = {name: service.get("ports", []) for name, service in COMPOSE["services"].items()}
    assert ports == {
        "postgres": [],
        "mlflow": ["${BIND:-127.0.0.1}:5000:5000"],
        "prefect": ["${BIND:-127.0.0.1}:4200:4200"],
        "worker": [],
    }
    assert not [name for name, service in COMPOSE["services"].items() if "network_mode" in service]


def test_no_secret_stands_here_and_none_has_a_default() -> None:
    for name, service in COMPOSE["services"].items():
        for variable, value in service.get("environment", {}).items():
            if SECRET.search(variable):
                given = dict(ASKED.findall(value))
                assert given, f"{name}: {variable} has a value of its own"
                assert all(rest.startswith(":?") for rest in given.values()), f"{name}: {variable} has a default"
    example = (DEPLOY / ".env.example").read_text()
    values = dict(line.split("=", 1) for line in example.splitlines() if not line.startswith("#"))
    assert set(values.values()) == {""}
    assert set(values) == {name for name, _ in ASKED.findall((DEPLOY / "compose.yaml").read_text())}
    ignored = (ROOT / ".gitignore").read_text().splitlines()
    assert ".env" in ignored, "in deploy/ too"
    assert "PREFECT_API_AUTH_STRING" not in POOL["variables"]["properties"]["env"]["default"]


def test_the_images_have_the_lock_s_versions() -> None:
    """What is installed is constrained by the lock; our own images are named by this version, Python's is one that we
    support.
    """
    lines = (DEPLOY / "Dockerfile").read_text().splitlines()
    installed = [line for line in lines if "uv pip install" in line]
    assert len(installed) == 2
    assert "RUN pip install --no-cache-dir \"$(grep -o '^uv==[^ ]*' /requirements.lock)\"" in lines
    assert all(
        "--constraint /requirements.lock " in line or "--requirement /requirements.lock" in line for line in installed
    )
    named = installed[0].partition("/requirements.lock ")[2].split()
    assert set(named) <= LOCKED
    assert {"mlflow", "prefect", *extra("servers")} == set(named)
    [python] = [line.split()[1] for line in lines if line.startswith("FROM python:")]
    assert SpecifierSet(PROJECT["requires-python"]).contains(python.removeprefix("python:").removesuffix("-slim"))
    images = {service["image"] for service in COMPOSE["services"].values()}
    version = PROJECT["version"]
    assert images == {"postgres:15", f"posttrain-servers:{version}", f"posttrain-worker:{version}"}
    assert POOL["variables"]["properties"]["image"]["default"] == f"posttrain-worker:{version}"
    targets = {service["build"]["target"] for service in COMPOSE["services"].values() if "build" in service}
    assert targets == {line.split()[-1] for line in lines if line.startswith("FROM ")}
    ignored = (DEPLOY / "Dockerfile.dockerignore").read_text().split("\n")
    assert [line for line in ignored if line and not line.startswith("#")] == ["*", "!requirements.lock"]


def extra(name: str) -> set[str]:
    """The packages of an optional group, with what their own extras bring."""
    found = set(PROJECT["optional-dependencies"][name])
    return {"asyncpg", "psycopg", "psycopg-binary"} if found == {"asyncpg", "psycopg[binary]"} else found


def test_both_servers_databases_are_made() -> None:
    made = {COMPOSE["services"]["postgres"]["environment"]["POSTGRES_DB"]}
    made |= set(re.findall(r"^CREATE DATABASE (\w+);", (DEPLOY / "databases.sql").read_text(), re.MULTILINE))
    addresses = [
        value
        for service in COMPOSE["services"].values()
        for value in service.get("environment", {}).values()
        if value.startswith("postgresql")
    ]
    assert {address.rpartition("/")[2] for address in addresses} == made == {"mlflow", "prefect"}
    assert all(file.split(":")[0] != "./databases.sql" or (DEPLOY / "databases.sql").is_file() for file in mounted())


def mounted() -> list[str]:
    return [volume for service in COMPOSE["services"].values() for volume in service.get("volumes", [])]


@pytest.mark.slow
@pytest.mark.parametrize("server", ["mlflow", "prefect"])
def test_the_servers_options_are_theirs(server: str) -> None:
    """Each option is one that the installed version of the server's own command line knows."""
    words = [word for word in COMPOSE["services"][server]["command"] if not word.startswith("--")]
    command = [sys.executable, "-m", *words, "--help"]
    environ = {**os.environ, "COLUMNS": "200", "NO_COLOR": "1"}
    known = subprocess.run(command, env=environ, capture_output=True, text=True, check=True).stdout
    options = {option.partition("=")[0] for option in COMPOSE["services"][server]["command"] if option.startswith("--")}
    assert options
    assert options <= set(re.findall(r"--[a-z-]+", known))


def test_prefect_renders_the_pool_s_template() -> None:
    """By Prefect's own functions: a JSON schema, whose variables are the placeholders, and what a job gets of it."""
    from prefect.utilities.schema_tools.validation import is_valid_schema
    from prefect.utilities.templating import apply_values, find_placeholders

    variables = POOL["variables"]
    is_valid_schema(variables, preprocess=False)
    asked = {placeholder.name for placeholder in find_placeholders(POOL["job_configuration"])}
    assert asked == set(variables["properties"])
    defaults = {name: value["default"] for name, value in variables["properties"].items() if "default" in value}
    rendered = apply_values(POOL["job_configuration"], defaults | {"name": "sft", "command": ["posttrain"]})
    pod = rendered["job_manifest"]["spec"]["template"]["spec"]
    [container] = pod["containers"]
    assert container["resources"]["limits"] == {"memory": "32Gi", "nvidia.com/gpu": 1}
    assert container["envFrom"] == [{"secretRef": {"name": "posttrain-servers"}}]
    assert container["env"].keys() == {"PREFECT_API_URL", "MLFLOW_TRACKING_URI"}
    assert rendered["job_manifest"]["metadata"]["generateName"] == "sft-"
    assert "serviceAccountName" not in pod, "what is not set is left out"
