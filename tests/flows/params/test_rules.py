"""Faults that can be known before a run are told before it: one line with the key and what was expected."""

import contextlib
import shutil
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from flows.params import editing
from flows.params.files import ParameterError
from tasks.common.config_faults import parse_stage_config
from tasks.language.configs.parts.names import SUCH_AS, list_policy_names, list_reward_names
from tests import extensions, repository
from tests.conftest import PARAMS, SECTIONS
from tests.test_contract import PIPELINE

ROOT = Path(__file__).parents[3]
POLICIES = [f"evaluate@{name}" for name in PARAMS["report"]["policies"]]
STAGES = {*PIPELINE["stages"], *POLICIES, "transitions@graph-60"} - {"evaluate", *extensions.STAGES}
SET = "location: '', hub_config: null, hub_revision: null, hub_split: null, weight: 1.0, reward: policy"
MIXED = f"{{name: a, source: problems, {SET}}}"

REWARDS = " or ".join([*list_reward_names(), SUCH_AS])
SINGLE = {  # checked by the section's Config alone, so that the setting itself is refused
    "pretrained.heads=3": "expected twice its number to divide width = 128, got 3",
    "pretrained.heads=128": "expected twice its number to divide width = 128, got 128",
    "decision_transformer.heads=3": "expected a divisor of width = 64, got 3",
    "evaluate.pass_at=[1, 16]": "expected at most samples = 4 in each place, got [1, 16]",
    "ppo.minibatches=97": "expected at most prompts_per_step x samples = 96, got 97",
    f"mixture.datasets=[{MIXED}, {MIXED}]": "expected different names; 2 are 'a'",
    f"mixture.datasets=[{MIXED.replace('source: problems', 'source: file').replace(chr(39) * 2, '../x')}]": (
        "datasets.0.location: expected a file below mixture.path, where changes are noticed, got '../x'"
    ),
    "branches.transitions.graph-60={environment: graph, source: d4rl, location: ../x, steps: null, episodes: null}": (
        "graph-60.location: expected a place below transitions.path, where changes are noticed, got '../x'"
    ),
    'grpo.reward={"mine.py:f": 1.0}': (f"mine.py:f: unknown; expected {REWARDS}"),
    "grpo.reward_seconds=0": "expected a number above 0 and of at most 1000000, got 0",
    "ppo.reward_files=": "expected text, got null",
    f"mixture.datasets=[{MIXED.replace('reward: policy', 'reward: praise')}]": (
        f"datasets.0.reward: expected policy or {REWARDS}, got 'praise'"
    ),
    "report.baseline=ppo2": f"expected {' or '.join(list_policy_names())} (did you mean ppo?), got 'ppo2'",
    "report.policies=[sft, foo]": "policies.1: expected dpo or grpo or ",
    "report.policies=[sft, sft]": "expected a list of at least 1 items and with none twice, got ",
    "evaluate.pass_at=[0]": "expected a whole number of at least 1, got 0",
    "sft.seed=-1": "expected a whole number of at least 0 and below 4294967296, got -1",
    "grpo.seed=9223372036854775808": "expected a whole number of at least 0 and below 4294967296",
    "problems.test=1000000000000": "expected a whole number of at least 1 and of at most 10000000",
    "pretrained.layers=100000": "expected a whole number of at least 1 and of at most 1000, got 100000",
    "responses.max_new_tokens=100000000": "expected a whole number of at least 1 and of at most 100000",
    "bc.seeds=[1, 1]": "expected a list of at least 1 items and with none twice, got ",
    "bc.hidden=[]": "expected a list of at least 1 items and of at most 100 items, got ",
    "bc.hidden=[0]": "expected a whole number of at least 1 and of at most 100000, got 0",
    "bc.shares={BC: 2.0}": "expected a number above 0 and of at most 1, got 2.0",
    "bc.shares={BC: 0.0}": "expected a number above 0 and of at most 1, got 0.0",
    "responses.temperature=1e308": "expected a number above 0 and of at most 100, got 1e",
}
USED = {  # what the file rewards/mine.py holds -> what is said of the function f in it
    "def f(prompts, responses, **columns): ...": "",
    "def g(responses): ...": "grpo.reward: rewards/mine.py:f: rewards/mine.py has no function f (there are g)",
    "def f(prompts): ...": "grpo.reward: rewards/mine.py:f: rewards/mine.py:1: f takes no responses; expected def f(",
    "": "grpo.reward: rewards/mine.py:f: rewards/mine.py has no function f",
    "def f(": "grpo.reward: rewards/mine.py:f: rewards/mine.py:1: not valid Python: ",
}
TOGETHER = {
    "responses.skip=20000": "responses.skip: expected less than problems.train = 12000, got 20000",
    "branches.sft_control={sft_flat: {epochs: 2}}": "report.policies.1: sft_matched is not in "
    "branches.sft_control, which has sft_flat",
    "sft_control.skip=20000": "sft_control.skip: expected less than problems.train = 12000, got 20000",
    "mixture.skip=20000": "mixture.skip: expected less than problems.train = 12000, got 20000",
    f"mixture.datasets=[{MIXED.replace('source: problems', 'source: file').replace(chr(39) * 2, 'x.jsonl')}]": (
        "mixture.datasets.0.location: data/raw/prompts/x.jsonl does not exist"
    ),
    f"mixture.datasets=[{MIXED.replace('reward: policy', 'reward: reward_model')}]": (
        "rejection_sft.reward_model_path: expected a folder with a model, since a data set of the mixture asks for it"
    ),
    **{
        f"{name}.reward.reward_model=1.0": f"{name}.reward_model_path: expected a folder with a model, since "
        "reward.reward_model counts (such as data/reward_model), got 'data/raw/reward_model'"
        for name in ("rejection_sft", "reinforce", "grpo")
    },
    "ppo.reward={process: 1.0}": (
        "ppo.reward_model_path: expected a reward model of objective process, since reward.process counts, got "
        "'data/reward_model', of "
        "objective pairs"
    ),
    "grpo.reward.outcome=0.5": "grpo.reward_model_path: expected a folder with a model, since reward.outcome counts ",
    f"mixture.datasets=[{MIXED.replace('reward: policy', 'reward: process')}]": (
        "rejection_sft.reward_model_path: expected a folder with a model, since a data set of the mixture asks for it"
    ),
    "ppo.reward_model_path=data/grpo": "ppo.reward_model_path: expected a folder with a model, since "
    "reward.reward_model",
    "reward_model.data=data/grpo": "reward_model.data: expected a folder with preferences with objective pairs ",
    "grpo.supervision=process": "grpo.supervision: expected outcome where reward does not count process, got 'process'",
    "reward_model.data=data/solutions": (
        "reward_model.data: expected a folder with preferences with objective pairs (such as data/preferences), "
        "got 'data/solutions'"
    ),
    "reward_model.data=elsewhere": (
        "reward_model.data: expected a folder with preferences with objective pairs (such as data/preferences), "
        "got 'elsewhere'"
    ),
    "branches.transitions.graph-60={environment: graph, source: d4rl, location: x, steps: null, episodes: null}": (
        "branches.transitions.graph-60.location: data/raw/transitions/x does not exist"
    ),
    "branches.expert_episodes.rooms.kind=environments/none.py:Maze": (
        "branches.expert_episodes.rooms.kind: environments/none.py does not exist"
    ),
    "offline_report.expectations=[{dataset: graph-60, higher: DTX, lower: BC}]": (
        "offline_report.expectations.0.higher: expected a policy measured on graph-60 (did you mean DT?), got 'DTX'"
    ),
    "offline_report.expectations=[{dataset: graph-60, higher: DT, lower: CQL}]": (
        "offline_report.expectations.0.lower: expected a policy measured on graph-60"
    ),
    "offline_report.expectations=[{dataset: LunarLander-v3-random, higher: DT, lower: BC}]": (
        "offline_report.expectations.0.dataset: expected a data set of offline_report.policies (did you mean "
    ),
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    repository.write_params(tmp_path)
    return tmp_path


@pytest.mark.parametrize("setting", SINGLE)
def test_a_value_that_cannot_be(root: Path, setting: str) -> None:
    with pytest.raises(ParameterError) as caught:
        editing.edit_params(root, SECTIONS, [editing.parse_setting(setting)])
    key, expected = setting.partition("=")[0], SINGLE[setting]
    assert str(caught.value).startswith(f"--set {key}")
    assert expected in str(caught.value)
    assert (root / "params.yaml").read_bytes() == repository.params_text().encode()


@pytest.mark.parametrize("setting", TOGETHER)
def test_values_that_do_not_fit_together(root: Path, setting: str) -> None:
    editing.edit_params(root, SECTIONS, [editing.parse_setting(setting)])
    with pytest.raises(ParameterError) as caught:
        editing.check_params_consistency(root, SECTIONS, STAGES, STAGES)
    assert str(caught.value).startswith(f"params.yaml: {TOGETHER[setting]}")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("method", "hint"), [("cqk", "did you mean cql?"), ("returns", "there are ")])
def test_a_method_is_a_stage_that_learns_from_data_sets(root: Path, method: str, hint: str) -> None:
    key = "offline_report.policies.bc-graph-60.method"
    with pytest.raises(ParameterError) as caught:
        editing.edit_params(root, SECTIONS, [editing.parse_setting(f"{key}={method}")])
    assert str(caught.value).startswith(f"--set {key}: expected a method ({hint}")
    assert str(caught.value).endswith(f", got {method!r}")


def test_a_function_is_below_the_files_whose_changes_are_noticed(root: Path) -> None:
    for setting in ('ppo.reward={"rewards/mine.py:f": 0.0, verifiable: 1.0}', "ppo.reward_files=rewards/none"):
        editing.edit_params(root, SECTIONS, [editing.parse_setting(setting)])
    counted = [editing.parse_setting('ppo.reward={"rewards/a/mine.py:f": 1.0}')]
    with pytest.raises(ParameterError) as caught:
        editing.edit_params(root, SECTIONS, counted)
    assert str(caught.value) == (
        "params.yaml: ppo.reward_files: expected rewards/a/mine.py or a folder that holds it, since reward counts "
        "it, got 'rewards/none'"
    )
    editing.edit_params(root, SECTIONS, [*counted, editing.parse_setting("ppo.reward_files=rewards/a")])


@pytest.mark.parametrize("text", [*USED, None])
def test_a_function_that_cannot_be_a_reward(root: Path, text: str | None) -> None:
    settings = ['grpo.reward={"rewards/mine.py:f": 1.0}', "grpo.reward_files=rewards/mine.py"]
    editing.edit_params(root, SECTIONS, [*map(editing.parse_setting, settings)])
    expected = "grpo.reward: rewards/mine.py:f: rewards/mine.py does not exist"
    if text is not None:
        (root / "rewards").mkdir()
        (root / "rewards/mine.py").write_text(text)
        expected = USED[text]
    if not expected:
        editing.check_params_consistency(root, SECTIONS, STAGES, STAGES)
        return
    with pytest.raises(ParameterError) as caught:
        editing.check_params_consistency(root, SECTIONS, STAGES, STAGES)
    assert str(caught.value).startswith(f"params.yaml: {expected}")
    assert "\n" not in str(caught.value)


def test_a_function_of_the_mixture_is_a_dep_of_all_policies(root: Path) -> None:
    mixed = MIXED.replace("reward: policy", "reward: 'rewards/mine.py:f'")
    editing.edit_params(root, SECTIONS, [editing.parse_setting(f"mixture.datasets=[{mixed}]")])
    with pytest.raises(
        ParameterError, match=r"mixture.datasets.0.reward: rewards/mine.py:f: rewards/mine.py does not exist"
    ):
        editing.check_params_consistency(root, SECTIONS, STAGES, STAGES)
    (root / "rewards").mkdir()
    (root / "rewards/mine.py").write_text("def f(responses): ...")
    for name in ("rejection_sft", "reinforce", "ppo", "grpo"):
        with pytest.raises(ParameterError) as caught:
            editing.check_params_consistency(root, SECTIONS, STAGES, STAGES)
        assert str(caught.value) == (
            f"params.yaml: {name}.reward_files: expected rewards/mine.py or a folder that holds it, since a data "
            "set of the mixture "
            "asks for rewards/mine.py:f, got 'rewards/none'"
        )
        editing.edit_params(root, SECTIONS, [editing.parse_setting(f"{name}.reward_files=rewards")])
    editing.check_params_consistency(root, SECTIONS, STAGES, STAGES)


def test_what_no_stage_needs_is_not_asked(root: Path) -> None:
    editing.edit_params(root, SECTIONS, [editing.parse_setting("responses.skip=20000")])
    editing.check_params_consistency(root, SECTIONS, STAGES - {"responses"}, STAGES)


@pytest.mark.parametrize("section", ["responses", "mixture"])
def test_problems_that_are_there_already_are_counted(root: Path, section: str) -> None:
    """Those of files or of a hub are known once their stage has run, and not if it will run again."""
    for setting in ("problems.source=hub", f"{section}.skip=6973"):
        editing.edit_params(root, SECTIONS, [editing.parse_setting(setting)])
    editing.check_params_consistency(root, SECTIONS, STAGES, STAGES - {"problems"})
    (root / "data/metrics").mkdir(parents=True)
    (root / "data/metrics/problems.json").write_text('{"train": 6973}')
    line = f"{section}.skip: expected less than the 6,973 training problems that there are, got 6973"
    with pytest.raises(ParameterError, match=rf"^params.yaml: {line}$"):
        editing.check_params_consistency(root, SECTIONS, {section}, STAGES - {"problems"})
    editing.check_params_consistency(root, SECTIONS, STAGES, STAGES)
    editing.edit_params(root, SECTIONS, [editing.parse_setting(f"{section}.skip=6972")])
    editing.check_params_consistency(root, SECTIONS, {section}, STAGES - {"problems"})


def test_a_model_in_the_folder_or_of_a_stage_will_do(root: Path) -> None:
    for setting in ("grpo.reward.reward_model=1.0", "grpo.reward_model_path=models/mine"):
        editing.edit_params(root, SECTIONS, [editing.parse_setting(setting)])
    with pytest.raises(ParameterError, match=r"grpo.reward_model_path: expected a folder with a model"):
        editing.check_params_consistency(root, SECTIONS, STAGES, STAGES)
    (root / "models/mine").mkdir(parents=True)
    (root / "models/mine/config.json").write_text("{}")
    editing.check_params_consistency(root, SECTIONS, STAGES, STAGES)
    editing.edit_params(root, SECTIONS, [editing.parse_setting("grpo.reward_model_path=data/reward_model")])
    editing.check_params_consistency(root, SECTIONS, STAGES, STAGES)


def test_a_reward_model_of_the_objective_that_the_reward_asks_for_will_do(root: Path) -> None:
    """One of the pipeline is known by reward_model.objective, another by its config.json."""
    learned = ["objective=process", "data=data/solutions", "kind=head", "likelihood=0.0"]
    edits = ["ppo.reward={process: 1.0}", *(f"reward_model.{one}" for one in learned)]
    editing.edit_params(root, SECTIONS, [editing.parse_setting(one) for one in edits])
    editing.check_params_consistency(root, SECTIONS, STAGES | {"solutions"}, STAGES | {"solutions"})
    editing.edit_params(
        root, SECTIONS, [*map(editing.parse_setting, ("ppo.reward={outcome: 1.0}", "ppo.reward_model_path=mine"))]
    )
    (root / "mine").mkdir()
    for config, fault in {
        "{": "got 'mine', of objective pairs",
        "[]": "got 'mine', of objective pairs",
        '{"reward_objective": "process"}': "expected a reward model of objective outcome, .*, of objective process",
        '{"reward_objective": "outcome"}': "",
    }.items():
        (root / "mine/config.json").write_text(config)
        with pytest.raises(ParameterError, match=fault) if fault else contextlib.nullcontext():
            editing.check_params_consistency(root, SECTIONS, {"ppo", "mixture"}, STAGES)


def test_a_link_below_the_folder_may_lead_to_a_file_elsewhere(
    root: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    raw = root / "data/raw/transitions"
    raw.mkdir(parents=True)
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "mine.hdf5"
    elsewhere.touch()
    (raw / "mine.hdf5").symlink_to(elsewhere)
    entry = "{environment: graph, source: d4rl, location: mine.hdf5, steps: null, episodes: null}"
    editing.edit_params(root, SECTIONS, [editing.parse_setting(f"branches.transitions.graph-60={entry}")])
    editing.check_params_consistency(root, SECTIONS, STAGES, STAGES)


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        (
            ["objective=outcome", "kind=head", "likelihood=0.0"],
            "reward_model.data: expected a folder with solutions with objective outcome (such as data/solutions), "
            "got 'data/preferences'",
        ),
        (
            ["objective=process", "kind=head", "likelihood=0.0", "data=mine"],
            "reward_model.data: expected a folder with solutions with objective process (such as "
            "data/solutions), got 'mine'",
        ),
        (
            ["objective=ranking"],
            "reward_model.objective: expected pairs with preferences.source files, which holds no rankings",
        ),
    ],
)
def test_a_reward_model_learns_from_what_its_objective_asks_for(root: Path, settings: list[str], line: str) -> None:
    edits = ["preferences.source=files", *(f"reward_model.{one}" for one in settings)]
    editing.edit_params(root, SECTIONS, [editing.parse_setting(one) for one in edits])
    with pytest.raises(ParameterError) as caught:
        editing.check_params_consistency(root, SECTIONS, STAGES, STAGES)
    assert str(caught.value).startswith(f"params.yaml: {line}")
    fitting = "reward_model.objective=pairs" if "ranking" in settings[0] else "reward_model.data=data/solutions"
    editing.edit_params(root, SECTIONS, [editing.parse_setting(fitting)])
    editing.check_params_consistency(root, SECTIONS, STAGES, STAGES)


def test_labels_of_whole_answers_make_no_model_of_steps(root: Path) -> None:
    learned = ["reward_model.objective=process", "reward_model.data=data/solutions", "solutions.source=files"]
    editing.edit_params(root, SECTIONS, [editing.parse_setting(one) for one in learned])
    with pytest.raises(ParameterError, match=r"reward_model\.objective: expected outcome with solutions\.source files"):
        editing.check_params_consistency(root, SECTIONS, STAGES | {"solutions"}, STAGES)
    editing.edit_params(root, SECTIONS, [editing.parse_setting("reward_model.objective=outcome")])
    editing.check_params_consistency(root, SECTIONS, STAGES | {"solutions"}, STAGES)


def test_a_method_may_be_expected_to_beat_the_data(root: Path) -> None:
    for side in ("data mean", "data best", "greedy behaviour"):
        text = f"offline_report.expectations=[{{dataset: graph-60, higher: {side}, lower: Q-learning}}]"
        editing.edit_params(root, SECTIONS, [editing.parse_setting(text)])
        editing.check_params_consistency(root, SECTIONS, STAGES, STAGES)


@pytest.mark.tree
@pytest.mark.parametrize("name", [None, *repository.presets()])
def test_the_defaults_and_every_preset_fit(root: Path, name: str | None) -> None:
    """They are valid for the command line, for the stages themselves, and together."""
    for folder in ("presets", "tasks"):
        (root / folder).symlink_to(ROOT / folder)
    shutil.copytree(ROOT / "environments", root / "environments")  # of a link the changes would go unnoticed
    if name:
        assert editing.edit_params(root, SECTIONS, editing.load_preset_edits(root, SECTIONS, name))
        laid, values = YAML(typ="safe").load(repository.preset_file(name)), YAML(typ="safe").load(root / "params.yaml")
        for stage in {*laid, *laid.get("branches", ())} - {"branches"}:
            assert parse_stage_config(stage, SECTIONS, values)
    if name == "lecture-mixture":  # its files are the user's
        with pytest.raises(ParameterError, match=r"instructions.jsonl does not exist"):
            editing.check_params_consistency(root, SECTIONS, STAGES, STAGES)
        for file in ("instructions", "math", "code", "chat"):
            (root / f"data/raw/prompts/{file}.jsonl").parent.mkdir(parents=True, exist_ok=True)
            (root / f"data/raw/prompts/{file}.jsonl").touch()
    editing.check_params_consistency(root, SECTIONS, STAGES, STAGES)
