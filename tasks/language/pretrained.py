"""The model that post-training starts from: trained from scratch on the corpus, or one that exists already.

From scratch it is a Llama-architecture model of about a million weights; `directory` and `hub` take any causal language
model in Hugging Face layout, with its own tokenizer.
"""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

from tasks.algorithms.common.linear import with_fast_products
from tasks.algorithms.common.optimizer import Optimizer, OptimizerSettings
from tasks.algorithms.language import sft
from tasks.algorithms.language.causal_lm import PretrainedCausalLM
from tasks.algorithms.language.sequences import Batch, make_batch
from tasks.common import model_files, models, tables
from tasks.common.checkpoints import resumable
from tasks.common.config import settings_of
from tasks.common.documents import Documents
from tasks.common.errors import ConfigError, DataError
from tasks.common.tokenizers import Tokenizer
from tasks.common.tracking import Row
from tasks.language.configs.pretrained import PretrainedConfig
from tasks.language.data import chat
from tasks.language.training import architectures
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
        model, words = existing(config, raw)
        tables.write_curves([], curves)
        models.save_model(model, words, out)
        return {"weights": model.num_parameters()}
    words = models.load_tokenizer(tokenizer)
    new = with_fast_products(LlamaForCausalLM(architecture(config, words))).to(models.device())
    trained = TrainedModel(lambda _: new, config.training)
    texts = tables.read(Documents, corpus / "corpus.parquet")["text"].tolist()
    settings = settings_of(config.training, OptimizerSettings)
    optimizer = Optimizer(new, config.learning_rate, config.steps, config.clip, settings)

    def fit(start: int) -> Iterator[Row]:
        return sft.fit(new, packed(texts, words, config, start), optimizer, config.training.accumulate)

    with resumable("pretrained", config, corpus, tokenizer) as training:
        rows = training.run(fit, {"model": trained.weights, "optimizer": optimizer}, config.steps)
        tables.write_curves(rows, curves)
        trained.save(words, out)
    return {"weights": new.num_parameters(), "loss": sum(row["loss"] for row in rows[-20:]) / len(rows[-20:])}


def architecture(config: PretrainedConfig, tokenizer: Tokenizer) -> LlamaConfig:
    """A Llama with tied embeddings and a feed-forward layer 8/3 as wide as the states, as in arXiv:2302.13971."""
    return LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=config.width,
        intermediate_size=8 * config.width // 3,
        num_hidden_layers=config.layers,
        num_attention_heads=config.heads,
        num_key_value_heads=config.heads,
        max_position_embeddings=config.context,
        initializer_range=config.initializer_range,
        tie_word_embeddings=True,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )


def packed(texts: list[str], tokenizer: Tokenizer, config: PretrainedConfig, start: int = 0) -> Iterator[Batch]:
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
    for chosen in islice(drawn(len(rows), config.batch_size, config.seed), start, config.steps):
        yield make_batch([[]] * config.batch_size, [rows[row] for row in chosen], tokenizer.pad_token_id)


def drawn(count: int, size: int, seed: int) -> Iterator[list[int]]:
    """Batches of row numbers without end: each row once before any comes again."""
    generator = torch.Generator().manual_seed(seed)
    order: list[int] = []
    while True:
        while len(order) < size:
            order += torch.randperm(count, generator=generator).tolist()
        yield order[:size]
        order = order[size:]


def existing(config: PretrainedConfig, raw: Path) -> tuple[PretrainedCausalLM, Tokenizer]:
    """A model that someone trained already, given a chat template and a padding token where it has none."""
    if config.init == "directory":
        name: str | Path = raw
        at: dict[str, Any] = {"local_files_only": True}
        if not (raw / "config.json").is_file():
            raise ConfigError(
                f"params.yaml: pretrained.path: {raw} holds no config.json; expected a model in Hugging Face layout"
            )
    else:
        name, at = config.hub_id, {"revision": config.hub_revision}
    architectures.check_config({"pretrained_model_name_or_path": name, **at})
    model: PretrainedCausalLM = model_files.load(AutoModelForCausalLM, name, **at).eval()
    tokenizer = model_files.load_tokenizer(name, **at)
    architectures.check_model(str(name), model)
    model_files.check_tokenizer(name, tokenizer, model.get_input_embeddings().num_embeddings)
    if tokenizer.chat_template is None:
        tokenizer.chat_template = chat.PLAIN_TEMPLATE
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    ends = sorted(chat.end_tokens(model, tokenizer))
    if len(ends) > 1:  # so that sampling from the trained model stops where it was taught to stop
        model.generation_config.eos_token_id = ends
    return model, tokenizer


if __name__ == "__main__":
    main(run, data_parallel=True)
