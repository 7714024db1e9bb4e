"""A sampler in bfloat16: it has the policy's weights of now, its log-probabilities differ from the trainer's by
roundings, and weights see them.
"""

import copy

import pandas as pd
import pytest
import torch
from pydantic import ValidationError

from tasks.algorithms.language import rollouts
from tasks.algorithms.language.completions import compute_token_logps
from tasks.common import checkpoints, models, tables
from tasks.language.data import chat
from tasks.language.tables.problems import Prompts
from tasks.language.training import trained_model
from tasks.language.training.environment import SEEDS, SamplingEnvironment
from tasks.language.training.judge import open_judge
from tests.tasks.policies import NO_FILES, configured, marked, train

POLICIES = ("reinforce", "ppo", "grpo")
SAMPLER, WEIGHT = "sampling/logp_difference", "sampling/importance_sampling_ratio/mean"
ADAPTER = {"rank": 2, "alpha": 8.0, "targets": "all-linear", "merge": True}
FEW = {
    "ppo": {"epochs": 1, "minibatches": 2},
    "reinforce": {"baseline": "none", "variance_every": 0},
}  # passes over a batch
SHORT = {"steps": 2, "prompts_per_step": 2, "max_new_tokens": 3, "evaluate_prompts": 2}
PLACES, SAMPLES = [4, 1, 6], 5


@pytest.fixture
def world(ready):
    """An environment that samples in bfloat16 from a model that is trained in fp32."""
    config = configured("grpo", sampler_precision="bf16")
    trained, words = (
        trained_model.load_trainable_model(ready / "pretrained", config.training),
        models.load_tokenizer(ready / "pretrained"),
    )
    table = tables.read_table(Prompts, ready / "mixture/prompts.parquet").head(7)
    with open_judge(config, {"policy"}, words, ready / "reward_model", NO_FILES) as judge:
        yield SamplingEnvironment(trained.model, words, table, judge, config, trained.rounded())


def disturbed(policy, seed):
    """Change the weights in place, as an update does; a fifth of each weight's own size."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in policy.parameters():
            p.mul_(1 + 0.2 * torch.randn(p.shape, generator=generator))


def by_hand(world, draw):
    """What a new model in bfloat16 with the policy's weights samples."""
    model = copy.deepcopy(world.policy)
    for p in model.parameters():
        p.data = p.data.to(torch.bfloat16)
    [found] = rollouts.sample_rollouts(
        model,
        [world.encoded[place] for place in PLACES],
        samples=SAMPLES,
        max_new_tokens=world.config.max_new_tokens,
        temperature=world.config.temperature,
        end_tokens=chat.end_tokens(world.policy, world.tokenizer),
        seed=(world.config.seed * 1_000_003 + draw) % SEEDS,
        batch_size=len(PLACES),
    )
    return found


def test_it_samples_from_the_weights_of_now_in_bfloat16(world):
    """To the bit, after each change of the policy, which itself stays as it is."""
    seen = []
    for draw in (1, 2, 3):
        disturbed(world.policy, draw)
        before = [p.detach().clone() for p in world.policy.parameters()]
        found, expected = world.sample(PLACES, SAMPLES, draw), by_hand(world, draw)
        assert torch.equal(found.completions.tokens, expected.tokens)
        assert torch.equal(found.logps, expected.logps)
        assert all(torch.equal(p, was) for p, was in zip(world.policy.parameters(), before, strict=True))
        seen.append(found.logps)
    stale = copy.deepcopy(world.policy)
    disturbed(world.policy, 4)
    fresh = world.sample(PLACES, SAMPLES, 3)
    world.policy = stale
    assert not torch.equal(world.sample(PLACES, SAMPLES, 3).logps, fresh.logps)
    assert {p.dtype for p in world.rounded.parameters()} == {torch.bfloat16}
    assert {p.dtype for p in world.policy.parameters()} == {torch.float32}


def test_log_probabilities_differ_by_roundings_exactly_where_the_sampler_is_rounded(world):
    """bfloat16 has 8 bits, so a logit of size x is off by up to x / 256; one sampler is the trainer up to the order of
    its sums.
    """

    def apart():
        found = world.sample(PLACES, SAMPLES, 1)
        with torch.no_grad():
            own = compute_token_logps(world.policy, found.completions)
        return (own - found.logps)[found.completions.mask]

    disturbed(world.policy, 1)
    rounded = apart()
    world.rounded = None
    assert apart().abs().max() < 1e-5
    assert 1e-4 < rounded.abs().mean() < 0.05
    assert (rounded != 0).float().mean() > 0.95


@pytest.mark.parametrize("stage", POLICIES)
def test_importance_weights_are_not_one_exactly_where_the_sampler_is_rounded(ready, tmp_path, stage):
    found, changes = {}, {"importance_cap": 5.0, **SHORT, **FEW.get(stage, {})}
    for sampler in ("trainer", "bf16"):
        train(stage, ready, tmp_path / sampler, sampler_precision=sampler, **changes)
        found[sampler] = pd.read_csv(tmp_path / sampler / "curve.csv")
    assert (found["trainer"][SAMPLER] < 1e-5).all()
    assert ((found["trainer"][WEIGHT] - 1).abs() < 1e-5).all()
    assert (found["bf16"][SAMPLER] > 1e-4).all()
    assert ((found["bf16"][WEIGHT] - 1).abs() > 1e-5).any()
    first = [frame.iloc[0] for frame in found.values()]
    assert first[0]["eval_reward"] == first[1]["eval_reward"], "what is evaluated is what is saved"


class Killed(Exception):
    pass


@pytest.mark.parametrize("stage", marked(POLICIES, ["grpo"]))
def test_a_killed_training_goes_on_to_the_same_bytes(ready, tmp_path, monkeypatch, stage):
    """The checkpoint has no rounded weights: they are made anew of the policy's, and of its adapter's where it has
    one.
    """
    options = {"sampler_precision": "bf16", "lora": ADAPTER if stage == "grpo" else None, **SHORT}
    monkeypatch.setattr(checkpoints, "EVERY_SECONDS", 0.0)
    monkeypatch.setattr(checkpoints, "SHARE", float("inf"))
    contents = []
    for name in ("whole", "killed"):
        folder = tmp_path / name
        folder.mkdir()
        monkeypatch.chdir(folder)
        if name == "killed":
            sample, left = SamplingEnvironment.sample, iter(range(2))  # an evaluation and a step

            def dying(self, *given, sample=sample, left=left):
                if next(left, None) is None:
                    raise Killed
                return sample(self, *given)

            with monkeypatch.context() as patch:
                patch.setattr(SamplingEnvironment, "sample", dying)
                with pytest.raises(Killed):
                    train(stage, ready, folder, **options)
            assert [*(folder / "mlruns/checkpoints").iterdir()]
        train(stage, ready, folder, **options)
        contents.append({path.relative_to(folder): path.read_bytes() for path in folder.rglob("*.*") if path.is_file()})
    assert contents[0] == contents[1]


def test_a_trainer_that_is_rounded_already_needs_no_rounded_sampler():
    with pytest.raises(ValidationError, match=r"expected 'trainer' with training\.precision bf16"):
        configured("grpo", sampler_precision="bf16", training={"precision": "bf16"})
