"""`python -m tasks.memory`: what it takes from params.yaml and dvc.yaml, what options replace, and its one-line
faults.
"""

import json
import re
import shutil
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from tasks.common.errors import StageError
from tasks.memory import __main__ as plans
from tasks.memory import sources
from tasks.memory.workloads import STAGES
from tests.conftest import PARAMS, SECTIONS

ROOT = Path(__file__).parents[3]
NAMES = (*STAGES, "tokenizer", "preferences")
READ = plans.read_memory_sections


@pytest.fixture(scope="module")
def machines():
    """dvc.yaml with nothing but what its stages ask for: of the whole file, most of a test's time would go into reading
    it.
    """
    stages = YAML(typ="safe").load(ROOT / "dvc.yaml")["stages"]
    asked = {name: {"meta": stage.get("do", stage).get("meta")} for name, stage in stages.items()}
    return json.dumps({"stages": {name: {"do": own} if "do" in stages[name] else own for name, own in asked.items()}})


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch, machines):
    """A clone in which nothing has run, on a machine without a GPU."""
    shutil.copy(ROOT / "params.yaml", tmp_path)
    (tmp_path / "dvc.yaml").write_text(machines)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    given = {name: kind.model_validate(PARAMS[name]) for name, kind in SECTIONS.items() if name in NAMES}
    monkeypatch.setattr(plans, "read_memory_sections", lambda: given)


def told(*arguments):
    return list(plans.iterate_memory_report_lines(plans.parse_memory_arguments([*arguments])))


def documents(*arguments):
    [line] = told(*arguments, "--json", "--device-memory=80GB")
    return json.loads(line)


def by_name(document):
    return {term["name"]: term["bytes"] for term in document["terms"]}


def test_every_stage_that_holds_a_model_is_planned_from_its_section():
    found = {one["stage"]: one for one in documents(*STAGES)}
    assert [*found] == [*STAGES]
    for stage, one in found.items():
        assert one["total"] > 0, stage
        assert one["fits"], stage
        own = SECTIONS["pretrained"].model_validate(PARAMS["pretrained"])
        width, inner = own.width, 8 * own.width // 3
        layer = 4 * width**2 + 3 * width * inner + 2 * width
        assert one["weights"] == PARAMS["tokenizer"]["vocabulary"] * width + own.layers * layer + width
    assert by_name(found["ppo"]).keys() >= {"critic's weights", "reference", "reward model", "keys and values"}
    assert "reference" not in by_name(found["grpo"]), "its beta is 0"
    assert "reward model" not in by_name(found["grpo"])
    assert "optimizer" not in by_name(found["responses"])


def test_sections_are_read_as_a_stage_reads_them():
    assert READ() == plans.read_memory_sections()
    file = Path("params.yaml")
    file.write_text(file.read_text().replace("  beta: 0.1  ", "  beta: -1  ", 1))
    with pytest.raises(StageError, match=r"^params.yaml: dpo.beta: expected"):
        READ()
    file.write_text("[]")
    with pytest.raises(StageError, match=r"^params.yaml: "):
        READ()


def test_the_lectures_example():
    """PPO of four models of 8 billion weights in fp16: 128 GB; GRPO without a critic: 80 GB. The whole figure is
    beside.
    """
    for stage, total in (("ppo", "128.0 GB"), ("grpo", "80.0 GB")):
        asked = (stage, "--model=8B", "--precision=fp16", "--lectures", "--device-memory=80GB")
        lines = told(*asked)
        last = next(line for line in lines if "as the lectures count" in line)
        assert total in last
        [one] = documents(*asked[:-1])
        assert one["lectures"] == float(total.split()[0]) * 1e9
        assert one["total"] > one["lectures"] + 16e9, "gradients alone are 16 GB"
        assert sum("16.0 GB     16.0 GB" in line for line in lines) >= 3


def test_options_replace_what_params_say():
    [usual], [changed] = (
        documents("sft", *more)
        for more in (
            (),
            ("--precision=bf16", "--lora-rank=4", "--sequence=64", "--batch=8", "--devices=2", "--model=50M"),
        )
    )
    assert (usual["precision"], usual["devices"], usual["assumed"] is None) == ("fp32", 1, False)
    assert (changed["precision"], changed["devices"], changed["assumed"]) == ("bf16", 2, None)
    terms = {term["name"]: term for term in changed["terms"]}
    assert terms["activations"]["how"].startswith("256 tokens"), "8 sequences of 64 on two devices"
    assert terms["masters in fp32"]["bytes"] == 2 * terms["optimizer"]["bytes"], (
        "Muon has one moment of each of the adapter's weights, and dvc.yaml divides them between the devices"
    )
    [whole] = documents("sft", "--model=50M", "--precision=bf16", "--checkpointing")
    assert by_name(whole)["masters in fp32"] == 4 * 50 * 10**6
    assert "one layer in whole" in next(term["how"] for term in whole["terms"] if term["name"] == "activations")


def test_devices_are_those_of_dvc_yaml():
    file = Path(shutil.copy(ROOT / "dvc.yaml", "dvc.yaml"))
    before, heading, after = file.read_text().partition("\n  sft:\n")
    for asked, devices, shard in (
        ("gpu: 4", 4, ""),
        ("gpu: 1, processes: 2", 1, ""),
        ("gpu: 0, processes: 3, shard: model", 3, "model"),
        ("gpu: 0", 1, ""),
    ):
        changed = re.sub(r"meta: .*", f"meta: {{resources: {{cpu: 2, {asked}}}}}", after, count=1)
        file.write_text(before + heading + changed)
        assert sources.read_stage_resources("sft") == (devices, "gpu: 0" not in asked, shard)
    assert sources.read_stage_resources("evaluate")[1], "which stands under foreach"


def test_without_a_stage_each_has_a_line():
    *lines, last = told("--model=0.5B", "--device-memory=24GB")
    assert [line.split()[0] for line in lines] == list(STAGES)
    assert any(line.endswith("fits") for line in lines)
    assert any("does not fit into 24.0 GB: --set sft." in line for line in lines)
    assert last.startswith("`posttrain plan-memory STAGE` has the terms")


def test_a_check_names_only_what_does_not_fit():
    check = ("--check", "--model=0.5B", "--device-memory=24GB")
    [line] = told("sft", "problems", "offline_report", *check)
    assert line.startswith("sft needs about ")
    assert "and a device has 24.0 GB: --set sft.training." in line
    assert told("sft", "--check", "--model=10M", "--device-memory=80GB") == []
    assert told("sft", "--check", "--model=8B") == [], "without a GPU there is nothing to check"


def test_on_a_cpu_interpreter_and_libraries_are_measured():
    [one] = json.loads(told("responses", "--json")[0])
    assert (one["device"], one["memory"]) == ("cpu", sources.get_machine_memory())
    assert 5e7 < by_name(one)["interpreter and libraries"] <= sources.measure_resident_memory() * 1.1


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["mixture"], "mixture: expected a stage that holds a language model: pretrained, sft"),
        (["sft", "--model=large"], "--model large: expected a folder with a config.json, a size such as 8B or 350M"),
        (["sft", "--device-memory=80"], "--device-memory 80: expected a size such as 80GB or 24GiB"),
        (["responses", "--lora-rank=4"], "--lora-rank: responses trains nothing"),
        (["pretrained", "--lora-rank=4"], "--lora-rank: pretrained trains all weights"),
        (["dpo", "--lectures"], "--lectures: they count ppo and grpo, not dpo"),
        (["sft", "--batch=0"], "--batch 0: expected at least 1"),
        (["sft", "--sequence=1"], "--sequence 1: expected at least 2"),
        (["sft", "--lora-rank=-1"], "--lora-rank -1: expected at least 0"),
    ],
)
def test_faults_are_one_line(arguments, line):
    with pytest.raises(StageError) as found:
        told(*arguments)
    assert str(found.value).startswith(line)


def test_a_hub_that_is_neither_cached_nor_reachable_is_one_line(monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(StageError, match=r"^some/model: neither cached nor reachable \(ConnectError"):
        told("sft", "--model=some/model", "--device-memory=80GB")
