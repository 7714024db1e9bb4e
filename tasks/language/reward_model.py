"""A reward model of answers or of their steps, with its accuracy and calibration on prompts it has not seen."""

from functools import partial
from pathlib import Path

import torch

from tasks.algorithms.common.optimizer import Optimizer, OptimizerSettings
from tasks.algorithms.language import reward_model, reward_model_checks, step_rewards
from tasks.algorithms.language.causal_lm import PretrainedModel
from tasks.common import models, tables
from tasks.common.checkpoints import open_resumable_training
from tasks.common.config import build_settings
from tasks.common.tokenizers import Tokenizer
from tasks.language.configs.reward_model import SOLUTIONS, RewardModelConfig
from tasks.language.reward_modelling import on_pairs, solution_measures
from tasks.language.reward_modelling.objective import Objective
from tasks.language.reward_modelling.on_pairs import OnPairs
from tasks.language.reward_modelling.on_solutions import OnSolutions
from tasks.language.rewards import reward_model_files
from tasks.language.training.trained_model import TrainedModel, get_frozen_model_dtype
from tasks.stage import Metrics, main

CURVES = {**reward_model.METRICS, **reward_model_checks.CALIBRATION, **solution_measures.CALIBRATION}
BEFORE = {
    "accuracy": "The share of the held-out comparisons whose chosen answer scores higher, from 0 to 1; chance is "
    "0.5. Of outcome and process: the share of the held-out answers or steps whose likeliest label is "
    "the one they have.",
    "loss": "The mean of -log sigmoid(r_w - r_l) over held-out comparisons; a model that tells nothing apart has "
    "log 2. Of outcome and process: the mean cross-entropy of the held-out answers' or steps' labels.",
    **on_pairs.BEFORE,
    **solution_measures.BEFORE,
}
METRICS = {
    **BEFORE,
    **on_pairs.METRICS,
    **solution_measures.METRICS,
    "truncated": "The number of training pairs or solutions that were cut off at max_length.",
    "dropped": "The number of training pairs or solutions that were left out, since they are longer.",
    **{
        f"untrained/{name}": "Before training (of a head on pairs: by the mean log-probability of the policy that "
        f"it starts from): {text[0].lower()}{text[1:]}"
        for name, text in BEFORE.items()
    },
}
UNTRAINED = (
    "accuracy",
    "loss",
    "against_points",
    "auc",
    "best_of",
    "first_error",
)  # what is kept of the measures before training


def run(config: RewardModelConfig, policy: Path, examples: Path, out: Path, curves: Path) -> Metrics:
    """Start from `policy`; write the model, calibration.csv, curve.csv and held_out.parquet beside it, and the curve to
    `curves`.
    """
    torch.manual_seed(config.seed)
    tokenizer = models.load_tokenizer(policy)
    generator = torch.Generator().manual_seed(config.seed)
    trained = TrainedModel(
        partial(build_untrained_reward_model, config, policy, generator, tokenizer), config.training, config.lora
    )
    model = trained.model
    objective = _build_objective(config, examples, tokenizer)
    objective.check_positions(model)
    before = objective.measure(_build_likelihood_baseline(config, policy, generator, tokenizer) or model)
    settings = build_settings(config.training, OptimizerSettings)
    optimizer = Optimizer(model, config.learning_rate, objective.steps, config.clip, settings)
    with open_resumable_training("reward_model", config, policy, examples) as training:
        fit = partial(objective.fit, model, optimizer)
        rows = training.run(fit, {"model": trained.weights, "optimizer": optimizer}, objective.steps)
        tables.write_curves(rows, curves)
        trained.save(tokenizer, out)
        tables.write_curves(rows, out / "curve.csv")  # for the report, which reads the model's folder
        after = objective.measure(trained.model)
        objective.write(out)
        more = objective.measure_after_training(trained.model, generator)
    return {
        **after,
        **more,
        "untrained": {name: before[name] for name in UNTRAINED if name in before},
    }


def _build_objective(config: RewardModelConfig, examples: Path, tokenizer: Tokenizer) -> Objective:
    return (OnSolutions if config.objective in SOLUTIONS else OnPairs)(config, examples, tokenizer)


def _build_likelihood_baseline(
    config: RewardModelConfig, policy: Path, generator: torch.Generator, tokenizer: Tokenizer
) -> PretrainedModel | None:
    """What a head on pairs is compared with: the policy's own log-probabilities, since a new head knows nothing; None
    for other models.
    """
    if config.kind != "head" or config.objective in SOLUTIONS:
        return None
    likelihood = config.model_copy(update={"kind": "log_probability"})
    dtype = get_frozen_model_dtype(config.training)
    return build_untrained_reward_model(likelihood, policy, generator, tokenizer, dtype).to(models.choose_device())


def build_untrained_reward_model(
    config: RewardModelConfig, policy: Path, generator: torch.Generator, tokenizer: Tokenizer, dtype: str
) -> PretrainedModel:
    """The policy as a reward model: its own log-probabilities, or a new head on its body."""
    if config.kind == "head":
        outputs = reward_model_files.OUTPUTS.get(config.objective, 1)
        classifier = reward_model_files.load_classifier(policy, new=["score.weight"], dtype=dtype, outputs=outputs)
        reward_model_files.set_reward_config(classifier, config.objective, config.step_score, tokenizer)
        classifier.config.pad_token_id = tokenizer.pad_token_id
        reward_model.initialise_score_head(classifier, generator)
        return classifier
    model = models.load_model(policy, dtype)
    reward_model_files.set_reward_config(model, config.objective, config.step_score, tokenizer)
    model.config.pad_token_id = tokenizer.pad_token_id
    setattr(model.config, step_rewards.BETA, config.beta)
    if config.objective in SOLUTIONS:
        setattr(model.config, step_rewards.THRESHOLD, config.threshold)
    return model


if __name__ == "__main__":
    main(run, data_parallel=True)
