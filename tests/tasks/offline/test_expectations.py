"""The expectations of offline methods in params.yaml and the presets, which the report judges."""

import pytest
from ruamel.yaml import YAML

from tests import extensions, repository
from tests.clone import ROOT
from tests.conftest import PARAMS


def test_the_default_report_judges_what_it_compares():
    section = PARAMS["offline_report"]
    compared = {one["dataset"] for one in section["policies"].values()}
    assert {one["dataset"] for one in section["expectations"]} <= compared


HARD = {  # what a method's paper says of it, and cloning may refute
    "cql": ("CQL", "BC"),
    "awr": ("AWR", "BC"),
    "iql": ("IQL", "BC"),
    "decision_transformer": ("DT", "10%BC"),
    **extensions.entries("HARD"),
}


@pytest.mark.parametrize("file", ["params.yaml", *(str(file.relative_to(ROOT)) for file in repository.preset_files())])
def test_the_expectations_that_hurt_are_asked_too(file):
    text = repository.params_text() if file == "params.yaml" else (ROOT / file).read_text()
    section = YAML(typ="safe").load(text).get("offline_report", {"policies": {}, "expectations": []})
    compared = {(one["method"], one["dataset"]) for one in section["policies"].values()}
    asked = {(one["dataset"], one["higher"], one["lower"]) for one in section["expectations"]}
    wanted = {(data, *HARD[method]) for method, data in compared if method in HARD and ("bc", data) in compared}
    assert wanted - asked == set()
