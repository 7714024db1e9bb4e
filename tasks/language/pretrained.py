"""The model that post-training starts from: trained from scratch on the corpus, or one that exists already.

From scratch it is a Llama-architecture model of about a million weights; `directory` and `hub` take any causal language
model in Hugging Face layout, with its own tokenizer.
"""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import torch
from transformers import LlamaForCausalLM

from tasks.algorithms.common.linear import replace_linear_layers
from tasks.algorithms.common.optimizer import Optimizer, OptimizerSettings
from tasks.algorithms.language import sft
from tasks.algorithms.language.sequences import SequenceBatch, make_sequence_batch
from tasks.common import models, tables
from tasks.common.checkpoints import open_resumable_training
from tasks.common.config import build_settings
from tasks.common.documents import Documents
from tasks.common.errors import DataError
from tasks.common.tokenizers import Tokenizer
from tasks.common.tracking import Row
from tasks.language.configs.pretrained import PretrainedConfig
from tasks.language.training import starting_model
from tasks.language.training.trained_model import TrainedModel
from tasks.stage import Metrics, main

CURVES = sft.METRICS
METRICS = {
    "weights": "The number of the model's weights.",
    "loss": "The mean loss of the last 20 steps, in nats; a model that existed already has none.",
}


def run(config: PretrainedConfig, corpus: Path, tokenizer: Path, raw: Path, out: Path, curves: Path) -> Metrics:
    """Write the model with its tokenizer to `out`, and the training curve to `curves`."""
    torch.manual_seed(config.seed)
    if config.init != "scratch":
        if config.init == "directory":
            model, words = starting_model.load_model_from_folder(raw, "params.yaml: pretrained.path")
        else:
            model, words = starting_model.load_existing_model(config.hub_id, {"revision": config.hub_revision})
        tables.write_curves([], curves)
        models.save_model(model, words, out)
        return {"weights": model.num_parameters()}
    words = models.load_tokenizer(tokenizer)
    new = replace_linear_layers(LlamaForCausalLM(starting_model.build_llama_config(config, words))).to(
        models.choose_device()
    )
    trained = TrainedModel(lambda _: new, config.training)
    texts = tables.read_table(Documents, corpus / "corpus.parquet")["text"].tolist()
    settings = build_settings(config.training, OptimizerSettings)
    optimizer = Optimizer(new, config.learning_rate, config.steps, config.clip, settings)

    def fit(start: int) -> Iterator[Row]:
        return sft.fit(new, iterate_packed_batches(texts, words, config, start), optimizer, config.training.accumulate)

    with open_resumable_training("pretrained", config, corpus, tokenizer) as training:
        rows = training.run(fit, {"model": trained.weights, "optimizer": optimizer}, config.steps)
        tables.write_curves(rows, curves)
        trained.save(words, out)
    return {"weights": new.num_parameters(), "loss": sum(row["loss"] for row in rows[-20:]) / len(rows[-20:])}


def iterate_packed_batches(
    texts: list[str], tokenizer: Tokenizer, config: PretrainedConfig, start: int = 0
) -> Iterator[SequenceBatch]:
    """Documents end to end, each opened by the start token, cut into rows of `context` tokens; every token counts.

    Batches from number `start` on, up to `steps`.
    """
    stream: list[int] = []
    for ids in tokenizer(texts, add_special_tokens=False, split_special_tokens=True)["input_ids"]:
        stream += [tokenizer.bos_token_id, *ids]
    rows = [stream[at : at + config.context] for at in range(0, len(stream) - config.context + 1, config.context)]
    if not rows:
        raise DataError(
            f"data/corpus: {len(stream)} tokens do not fill one row of pretrained.context = {config.context}"
        )
    for chosen in islice(iterate_index_batches(len(rows), config.batch_size, config.seed), start, config.steps):
        yield make_sequence_batch([[]] * config.batch_size, [rows[row] for row in chosen], tokenizer.pad_token_id)


def iterate_index_batches(count: int, size: int, seed: int) -> Iterator[list[int]]:
    """Batches of row numbers without end: each row once before any comes again."""
    generator = torch.Generator().manual_seed(seed)
    order: list[int] = []
    while True:
        while len(order) < size:
            order += torch.randperm(count, generator=generator).tolist()
        yield order[:size]
        order = order[size:]


if __name__ == "__main__":
    main(run, data_parallel=True)
