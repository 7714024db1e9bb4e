"""The parameters of this repository's own stages: each fault is told in one line, before anything runs."""

import json
from copy import deepcopy
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from flows.params import checking, editing
from flows.params.files import ParameterError
from tasks.language.configs.parts.names import SUCH_AS, list_reward_names
from tests import repository
from tests.conftest import SECTIONS
from tests.flows.params.conftest import parsed_once  # noqa: F401  # a fixture

pytestmark = pytest.mark.tree
ROOT = Path(__file__).parent.parent
IMPORT = "branches.transitions.x={environment: Hopper-v5, source: d4rl, location: it.hdf5, steps: null, episodes: null}"
SET = (
    "{name: a, source: problems, location: '', hub_config: null, hub_revision: null, hub_split: null, "
    "weight: 1.0, reward: policy}"
)
REWARDS = " or ".join([*list_reward_names(), SUCH_AS])


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        (["grpo.aggregation=foo"], "grpo.aggregation: expected 'grpo' or 'bnpo' or 'dr_grpo' or 'dapo', got 'foo'"),
        (["grpo.reward.verifiable=-1"], "grpo.reward.verifiable: expected a number of at least 0, got -1"),
        (["grpo.reward.verifable=1"], f"grpo.reward.verifable: unknown (did you mean verifiable?); expected {REWARDS}"),
        (["grpo.reward=1"], f"grpo.reward: expected a number of at least 0 for any of {REWARDS}, got 1"),
        (["grpo.reward.verifiable=0"], 'grpo.reward: expected one weight above 0, got {"verifiable": 0}'),
        (["grpo.samples=1"], "grpo.samples: expected a whole number of at least 2 and of at most 100000, got 1"),
        (
            ["reinforce.keep=best", "reinforce.evaluate_every=0"],
            "reinforce.evaluate_every: expected at least 1 with keep best, got 0",
        ),
        (["reinforce.baseline=mean"], "reinforce.baseline: expected 'none' or 'running_mean' or 'critic', got 'mean'"),
        (["ppo.kl_target=high"], "ppo.kl_target: expected a number above 0 or null, got 'high'"),
        (["ppo.kl_target=0"], "ppo.kl_target: expected a number above 0 or null, got 0"),
        (["ppo.clip_ratio=1"], "ppo.clip_ratio: expected a number above 0 and below 1, got 1"),
        (
            ["rejection_sft.minimum_reward=best"],
            "rejection_sft.minimum_reward: expected a number, got 'best'",
        ),
        (
            ["evaluate.temperatures=[0.5, 0]"],
            "evaluate.temperatures.1: expected a number above 0 and of at most 100, got 0",
        ),
        (
            ["evaluate.candidates=[0.5, 0.5]"],
            "evaluate.candidates: expected a list of at least 1 items and with none twice, got [0.5, 0.5]",
        ),
        (["evaluate.temperature=0.5"], "evaluate.temperature: unknown parameter; did you mean evaluate.temperatures?"),
        (["mixture.datasets=[]"], "mixture.datasets: expected a list of at least 1 items, got []"),
        (["dpo.gamma=0.5"], "dpo.gamma: expected 0 with loss sigmoid or ipo, got 0.5"),
        (
            ["reward_model.kind=head", "reward_model.likelihood=0.5"],
            "reward_model.likelihood: expected 0.0 with kind head, got 0.5",
        ),
        (
            ["dpo.loss=ipo", "dpo.label_smoothing=0.1"],
            "dpo.label_smoothing: expected 0 with loss ipo or simpo, got 0.1",
        ),
        (
            ["dpo.loss=simpo", "dpo.length_normalised=false"],
            "dpo.length_normalised: expected true with loss simpo, got false",
        ),
        (
            ["ppo.kl_coefficient=0", "ppo.kl_target=0.5"],
            "ppo.kl_target: expected null with kl_coefficient 0, got 0.5",
        ),
        (
            ["mixture.datasets=[" + SET.replace("''", "x.jsonl") + "]"],
            "mixture.datasets.0.location: expected '' with source problems, got 'x.jsonl'",
        ),
        (
            [IMPORT.replace("d4rl", "medium-replay")],
            "branches.transitions.x.location: expected null with source random or medium or medium-replay or "
            "medium-expert or expert, got 'it.hdf5'",
        ),
        (
            ["mixture.datasets=[{name: a}]"],
            "mixture.datasets.0.source: missing; expected 'problems' or 'file' or 'hub'",
        ),
        (
            [f"mixture.datasets=[{SET}, {SET.replace('problems', 'web')}]"],
            "mixture.datasets.1.source: expected 'problems' or 'file' or 'hub', got 'web'",
        ),
        (
            [f"mixture.datasets=[{SET.replace('1.0', '0')}]"],
            "mixture.datasets.0.weight: expected a number above 0, got 0",
        ),
        (
            [IMPORT.replace("it.hdf5", "null")],
            "branches.transitions.x.location: expected text of what is imported, got null",
        ),
        (
            [IMPORT.replace("d4rl", "minari-remote").replace("it.hdf5", "null")],
            "branches.transitions.x.location: expected text of what is imported, got null",
        ),
        (
            [IMPORT.replace("d4rl", "random").replace("it.hdf5", "null")],
            "branches.transitions.x.episodes: expected a whole number of at least 1 here or in steps, got null",
        ),
        (
            [IMPORT.replace("Hopper-v5", "Hoper-v5")],
            "branches.transitions.x.environment: expected a key of branches.behaviour (did you mean Hopper-v5?), "
            "got 'Hoper-v5'",
        ),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_a_wrong_value_is_one_line_and_the_file_stays(tmp_path, settings, line):
    repository.write_params(tmp_path)
    with pytest.raises(ParameterError) as told:
        editing.edit_params(tmp_path, SECTIONS, [editing.parse_setting(text) for text in settings])
    assert str(told.value) == f"--set {line}"
    assert (tmp_path / "params.yaml").read_bytes() == repository.params_text().encode()


@pytest.mark.parametrize(
    "setting",
    [
        "ppo.kl_target=0.5",
        "ppo.kl_target=null",
        "grpo.reward.rubric=0.5",
        f"mixture.datasets=[{SET}]",
        "ppo.keep=best",
        IMPORT,
        IMPORT.replace("d4rl", "medium-replay").replace("it.hdf5", "null"),
        IMPORT.replace("d4rl", "random").replace("it.hdf5", "null").replace("episodes: null", "episodes: 9"),
    ],
)
def test_a_right_value_is_taken(tmp_path, setting):
    repository.write_params(tmp_path)
    editing.edit_params(tmp_path, SECTIONS, [editing.parse_setting(setting)])
    editing.check_params(tmp_path, SECTIONS)


@pytest.fixture(scope="module")
def known():
    """params.yaml."""
    return YAML(typ="safe").load(repository.params_text())


def idle(known, settings):
    """Each parameter that has no effect with these settings, and the values that cause it."""
    data = deepcopy(known)
    for text in settings:
        change = editing.parse_setting(text)
        *above, last = change.key
        section = data
        for part in above:
            section = section[part]
        section[last] = change.value
    return {".".join(key): why for keys, why in checking.find_idle_params(data, SECTIONS) for key in keys}


OTHERS = "mixture.datasets=[" + SET.replace("problems", "file") + ", " + SET.replace("problems", "hub") + "]"


@pytest.mark.parametrize(
    ("settings", "why", "keys"),
    [
        (["ppo.kl_target=null"], "ppo.kl_target null", "ppo.kl_rate"),
        (["reward_model.kind=head", "reward_model.likelihood=0.0"], "reward_model.kind head", "reward_model.beta"),
        (["ppo.epochs=1", "ppo.minibatches=1"], "ppo.epochs 1 and ppo.minibatches 1", "ppo.clip_ratio ppo.clip_value"),
        (["grpo.updates=1"], "grpo.updates 1", "grpo.clip_low grpo.clip_high"),
        (
            ["reinforce.baseline=none"],
            "reinforce.baseline none",
            "reinforce.critic_learning_rate reinforce.critic_updates",
        ),
        (
            ["reinforce.variance_every=0"],
            "reinforce.baseline critic and reinforce.variance_every 0",
            "reinforce.mean_rate",
        ),
        (["reinforce.variance_every=0"], "reinforce.variance_every 0", "reinforce.variance_parts"),
        (["grpo.evaluate_every=0"], "grpo.evaluate_every 0", "grpo.evaluate_prompts"),
        ([], "problems.source generated", "problems.path problems.hub_id problems.hub_config problems.hub_revision"),
        (
            ["problems.source=files"],
            "problems.source files",
            "problems.hub_id problems.one_step problems.two_steps problems.three_steps problems.largest "
            "problems.other_kinds "
            "problems.habits",
        ),
        ([], "pretrained.init scratch", "pretrained.path pretrained.hub_id pretrained.hub_revision"),
        (
            ["pretrained.init=directory"],
            "pretrained.init directory",
            "pretrained.hub_id pretrained.width pretrained.layers pretrained.heads pretrained.context "
            "pretrained.initializer_range pretrained.batch_size pretrained.steps pretrained.learning_rate "
            "pretrained.clip "
            "pretrained.training",
        ),
        (
            [],
            "mixture.datasets.*.source problems",
            "mixture.path mixture.hub_config mixture.hub_revision mixture.validation_share",
        ),
        ([OTHERS], "mixture.datasets.*.source file or hub", "mixture.skip"),
        ([], "sft.max_length null", "sft.truncation"),
        ([], "preferences.source annotator", "preferences.hub_id preferences.hub_split"),
        (
            ["preferences.source=files"],
            "preferences.source files",
            "preferences.temperature preferences.length_bonus preferences.tie_margin preferences.strengths "
            "preferences.hub_revision",
        ),
        (
            [],
            "demonstrations.source problems",
            "demonstrations.path demonstrations.hub_id demonstrations.hub_config demonstrations.validation_share",
        ),
        (["demonstrations.source=hub"], "demonstrations.source hub", "demonstrations.path"),
        ([], "dqn.variants.*.online false", "dqn.exploration"),
        (
            [],
            "decision_transformer.variants.*.text 0.0",
            "decision_transformer.text",
        ),
        (
            [],
            "decision_transformer.variants.*.init random",
            "decision_transformer.synthetic",
        ),
    ],
    ids=lambda value: "" if isinstance(value, list) else value.split(" ")[0],
)
def test_what_does_nothing_is_known(known, settings, why, keys):
    found = idle(known, settings)
    assert {key: found.get(key) for key in keys.split()} == dict.fromkeys(keys.split(), why)


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ([], "grpo.clip_low"),
        ([], "ppo.kl_rate"),
        (["reward_model.kind=log_probability", "reward_model.likelihood=1.0"], "reward_model.beta"),
        (["ppo.epochs=1"], "ppo.clip_ratio"),
        (["ppo.minibatches=1"], "ppo.clip_ratio"),
        ([], "reinforce.mean_rate"),  # the variance with it is still measured
        (["reinforce.baseline=running_mean", "reinforce.variance_every=0"], "reinforce.mean_rate"),
        ([], "reinforce.critic_updates"),
        (["problems.source=files"], "problems.path"),
        ([OTHERS.replace("file", "problems")], "mixture.skip"),
        ([OTHERS], "mixture.validation_share"),
        (["sft.max_length=64"], "sft.truncation"),
        (["preferences.source=files"], "preferences.path"),
        ([], "preferences.path"),
        (["demonstrations.source=files"], "demonstrations.validation_share"),
        (
            [
                "dqn.variants={a: {double: true, target: true, replay: true, online: true, relabel: none}, b: "
                "{double: true, target: true, replay: true, online: false, relabel: none}}"
            ],
            "dqn.exploration",
        ),
        (
            ["decision_transformer.variants={a: {init: random, text: 0.0}, b: {init: synthetic, text: 0.0}}"],
            "decision_transformer.synthetic",
        ),
    ],
)
def test_what_does_something_is_known_too(known, settings, key):
    assert key not in idle(known, settings)


def test_an_edit_says_what_does_nothing_by_it(tmp_path):
    """It names parameters that were changed or had an effect before; `posttrain status` names the rest."""
    repository.write_params(tmp_path)

    def said(*settings):
        return editing.edit_params(tmp_path, SECTIONS, [editing.parse_setting(text) for text in settings])

    nothing = "grpo.clip_low, grpo.clip_high do nothing with grpo.updates 1"
    assert said("grpo.updates=1") == ["grpo.updates: 2 -> 1", nothing]
    assert said("grpo.beta=0.5") == ["grpo.beta: 0.0 -> 0.5"]
    assert said("grpo.clip_low=0.1") == [
        "grpo.clip_low: 0.2 -> 0.1",
        "grpo.clip_low does nothing with grpo.updates 1",
    ]
    assert said("grpo.updates=2") == ["grpo.updates: 1 -> 2"]
    assert said("dqn.exploration.warmup=5")[1] == "dqn.exploration does nothing with dqn.variants.*.online false"
    said("grpo.updates=1")
    own = "sft.truncation does nothing with sft.max_length null"
    assert editing.list_idle_param_warnings(tmp_path, SECTIONS, {"grpo", "sft"}) == [nothing, own]
    committed = repository.params_text()
    assert editing.list_idle_param_warnings(tmp_path, SECTIONS, {"grpo", "sft"}, committed) == [nothing], (
        "the default says none"
    )
    said("sft.truncation=left")
    assert editing.list_idle_param_warnings(tmp_path, SECTIONS, {"grpo", "sft"}, committed) == [nothing, own]


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ("cql.datasets=[graph-60]", "--set cql.datasets: unknown parameter; expected as branches.cql"),
        ("agents.policies={}", "--set agents.policies: unknown parameter; expected as branches.agents"),
        ("agents.polices={}", "--set agents.polices: unknown parameter; did you mean branches.agents?"),
        ("branches.dqm=[graph-60]", "--set branches.dqm: unknown stage (did you mean dqn?)"),
        ("branches.dpo=[a]", "--set branches.dpo: unknown stage"),
        ("branches.cql=graph-60", "--set branches.cql: expected a list with none twice, got 'graph-60'"),
        ("branches.cql=[a, a]", "--set branches.cql: expected a list with none twice"),
        ("branches.agents.new.lam=0.5", "--set branches.agents.new: no such entry"),
    ],
)
def test_what_a_stage_is_run_for_stands_in_the_section_branches(tmp_path, setting, expected):
    before = repository.write_params(tmp_path).read_text()
    with pytest.raises(ParameterError) as caught:
        editing.edit_params(tmp_path, SECTIONS, [editing.parse_setting(setting)])
    assert str(caught.value).startswith(expected)
    assert (tmp_path / "params.yaml").read_text() == before


def test_a_value_that_a_section_takes_in_is_set_for_that_section_alone(tmp_path):
    file = repository.write_params(tmp_path)
    before = YAML(typ="safe").load(file)
    said = editing.edit_params(tmp_path, SECTIONS, [editing.parse_setting("iql.steps=7")])
    assert said == ["iql.steps: 10000 -> 7"]
    after = YAML(typ="safe").load(file)
    assert after == {**before, "iql": {**before["iql"], "steps": 7}}
    [told] = editing.edit_params(tmp_path, SECTIONS, [editing.parse_setting("dpo.training.optimizer=muon")])
    assert told == "dpo.training.optimizer: 'adamw' -> 'muon'"
    changed = YAML(typ="safe").load(file)
    assert {name for name in changed if changed[name] != after[name]} == {"dpo"}


@pytest.mark.parametrize("name", ["simpo", "ipo", "tiny", "qwen-gsm8k"])
def test_no_preset_sets_what_does_nothing_by_it(known, name):
    edits = editing.load_preset_edits(ROOT, SECTIONS, name)
    found = idle(known, [f"{'.'.join(edit.key)}={json.dumps(edit.value)}" for edit in edits])
    assert found.keys() & {".".join(edit.key) for edit in edits} == set()
