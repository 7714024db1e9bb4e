"""Behaviour cloning: a language model learns to act as the expert does; what the environment says is masked from the
loss.
"""

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

import torch
from transformers import LlamaForCausalLM

from tasks.agents.configs.behaviour_cloning import BehaviourCloningConfig
from tasks.agents.playing import episode_files
from tasks.algorithms.agents.transcripts import Transcript, make_transcripts
from tasks.algorithms.common.linear import replace_linear_layers
from tasks.algorithms.common.optimizer import Optimizer, OptimizerSettings
from tasks.algorithms.language import sft
from tasks.algorithms.language.cache import list_unsupported_cache_layers
from tasks.algorithms.language.causal_lm import PretrainedCausalLM
from tasks.algorithms.language.sequences import SequenceBatch, count_batches, iterate_shuffled_batches
from tasks.common import models, tables
from tasks.common.checkpoints import open_resumable_training
from tasks.common.config import build_settings
from tasks.common.errors import ConfigError
from tasks.common.tokenizers import Tokenizer
from tasks.common.tracking import Row
from tasks.language.data import byte_pairs, chat
from tasks.language.training import starting_model
from tasks.language.training.trained_model import TrainedModel
from tasks.stage import Metrics, main

CURVES = sft.METRICS
METRICS = {"weights": "The number of the model's weights.", **sft.HELD_OUT_METRICS}


def run(config: BehaviourCloningConfig, episodes: Path, raw: Path, out: Path) -> Metrics:
    """Clone the play in `episodes`; the model and the training curve go to `out`.

    `raw` is the folder of an existing model.
    """
    torch.manual_seed(config.seed)
    turns = episode_files.read_turns(episodes, "train")
    if overrides := config.sizes.get(out.name):
        config = config.model_copy(update=dict(overrides))
    model, tokenizer = _load_or_create_model(config, episode_files.collect_texts(turns), raw)
    trained = TrainedModel(lambda _: model, config.training)
    learned, held_out = (
        episode_files.encode_transcripts(tokenizer, part)
        for part in (turns, episode_files.read_turns(episodes, "validation"))
    )
    for part in (learned, held_out):
        chat.check_positions(
            model,
            [len(transcript.tokens) for transcript in part],
            "the expert's episodes",
            limited_by="behaviour_cloning.context",
        )
    if not learned and config.init == "scratch":
        raise ConfigError(
            "params.yaml: behaviour_cloning.init: expected directory, since nothing was recorded that a new model "
            "could learn"
        )
    steps = count_batches(len(learned), config.batch_size, config.epochs)
    settings = build_settings(config.training, OptimizerSettings)
    optimizer = Optimizer(model, config.learning_rate, max(1, steps), config.clip, settings)

    def fit(start: int) -> Iterator[Row]:
        batches = islice(_iterate_batches(learned, config, tokenizer.pad_token_id), start, None)
        return sft.fit(model, batches, optimizer, config.training.accumulate)

    with open_resumable_training(f"behaviour_cloning-{out.name}", config, episodes) as training:
        rows = training.run(fit, {"model": trained.weights, "optimizer": optimizer}, steps)
        tables.write_curves(rows, out / "curve.csv")
        size = config.batch_size
        parts = (held_out[at : at + size] for at in range(0, len(held_out), size))
        batches = [make_transcripts(part, tokenizer.pad_token_id).batch() for part in parts]
        held_out_metrics = sft.measure_held_out_loss_and_accuracy(model, batches) if batches else {}
        trained.save(tokenizer, out)
    return {"weights": model.num_parameters(), **held_out_metrics}


def _load_or_create_model(
    config: BehaviourCloningConfig, texts: Sequence[str], raw: Path
) -> tuple[PretrainedCausalLM, Tokenizer]:
    if config.init == "directory":
        model, tokenizer = starting_model.load_model_from_folder(raw, where := "params.yaml: behaviour_cloning.path")
        if others := list_unsupported_cache_layers(model):
            wanted = "plain attention, without a sliding window, so that turns can be played on one key-value cache"
            raise ConfigError(f"{where}: {config.path}: expected {wanted}, got layers with a {' and a '.join(others)}")
        return models.prepare_model_on_device(model, tokenizer), tokenizer
    words: Tokenizer = byte_pairs.train_byte_pair_tokenizer(texts, config.vocabulary)
    new = LlamaForCausalLM(starting_model.build_llama_config(config, words))
    made: PretrainedCausalLM = replace_linear_layers(new).to(models.choose_device())
    return made, words


def _iterate_batches(
    transcripts: Sequence[Transcript], config: BehaviourCloningConfig, pad: int
) -> Iterator[SequenceBatch]:
    generator = torch.Generator().manual_seed(config.seed)
    for rows in iterate_shuffled_batches(len(transcripts), config.batch_size, config.epochs, generator):
        yield make_transcripts([transcripts[row] for row in rows], pad).batch()


if __name__ == "__main__":
    main(run)
