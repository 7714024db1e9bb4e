"""Decision Transformer: a policy that is asked for a return, from random weights, a language model's or synthetic
text's.
"""

from collections.abc import Iterator
from functools import partial
from itertools import islice
from pathlib import Path

import torch
from torch import Tensor, nn

from tasks.algorithms.offline import decision_transformer as dt
from tasks.algorithms.offline import text_pretraining
from tasks.algorithms.offline.adam import AdamW
from tasks.algorithms.offline.networks.transformer import Transformer
from tasks.algorithms.offline.windows import EpisodeWindows
from tasks.common import model_files, tables
from tasks.common.documents import Documents
from tasks.common.errors import DataError
from tasks.offline.configs.decision_transformer import DecisionTransformerConfig, DTVariant, Init, ReturnTargets
from tasks.offline.datasets.dataset_files import StoredDataset
from tasks.offline.policies import trunks
from tasks.offline.training import learners
from tasks.offline.training.learners import Learner
from tasks.stage import Metrics, main

CURVES = {**dt.METRICS, **learners.METRICS}
METRICS = {f"VARIANT/{name}": text for name, text in {**learners.STEP, **CURVES}.items()}


def run(config: DecisionTransformerConfig, transitions: Path, language: Path, texts: Path, out: Path) -> Metrics:
    """Train every init with every seed; policies and curves go to `out`."""
    dataset_config = config.datasets[transitions.name]
    config = config.model_copy(update={"steps": dataset_config.steps or config.steps})
    variants = {
        name: partial(_build_dt_learner, config, dataset_config, variant, language, texts)
        for name, variant in config.variants.items()
    }
    return learners.train_all_variants("decision_transformer", config, transitions, out, variants, language, texts)


def _build_dt_learner(
    config: DecisionTransformerConfig,
    dataset_config: ReturnTargets,
    variant: DTVariant,
    language: Path,
    texts: Path,
    dataset: StoredDataset,
    seed: int,
    generator: torch.Generator,
) -> Learner:
    device = dataset.transitions.device
    trunk, words = _make_initialized_trunk(
        config, 3 * dataset_config.context, variant.init, language, generator, device
    )
    episodes = EpisodeWindows(dataset.transitions, dataset_config.context)
    model = dt.DecisionTransformer(
        dataset.spaces,
        trunk,
        context=dataset_config.context,
        timesteps=episodes.longest,
        scale=dataset_config.scale,
        targets=dataset_config.targets,
    )
    model.normaliser.fit(dataset.transitions.observations)
    learned = nn.ModuleList([model])
    auxiliary = None
    if variant.text:
        stream, vocabulary = _load_token_stream(config, language, texts)
        words = words or text_pretraining.make_text_model(vocabulary, trunk.width, config.text.length)
        learned.append(words)
        rows = text_pretraining.iterate_random_text_rows(stream, config.text.rows, config.text.length, generator)
        auxiliary = partial(_compute_loss_of_next_text_rows, words, trunk, rows, device)
    learned.to(device)
    optimizer = _make_optimizer(config, learned, config.learning_rate, config.steps, config.warmup)
    batches = episodes.batches(config.batch_size, generator)
    steps = dt.fit(model, optimizer, batches, auxiliary=auxiliary, weight=variant.text)
    return Learner(model, {"model": learned, "optimizer": optimizer}, steps)


def _make_initialized_trunk(
    config: DecisionTransformerConfig,
    window: int,
    init: Init,
    language: Path,
    generator: torch.Generator,
    device: torch.device,
) -> tuple[trunks.Trunk, text_pretraining.Text | None]:
    """The trunk with its first weights, and the language model's token embeddings where it came with some."""
    if all(variant.init != "language" for variant in config.variants.values()):
        trunk: trunks.Trunk = Transformer(config.width, config.layers, config.heads, config.dropout)
    else:
        model = _load_language_model(config, window, language)
        if init == "language":
            return model.trunk, model.text(config.text.length)
        trunk = trunks.build_trunk(model.trunk.sizes)
    if init == "synthetic":
        _pretrain_on_markov_chain(config, trunk, generator, device)
    return trunk, None


def _load_language_model(config: DecisionTransformerConfig, window: int, directory: Path) -> trunks.LanguageModel:
    source, revision = _get_language_model_source(config, directory)
    model = trunks.load_language_model(source, revision)
    reads = any(variant.text for variant in config.variants.values())
    needed = max(window, config.text.length if reads else 0)
    if model.positions is not None and needed > model.longest:
        raise DataError(f"{source}: made for {model.longest} tokens, but context and text need {needed}")
    return model


def _get_language_model_source(config: DecisionTransformerConfig, directory: Path) -> tuple[str | Path, str | None]:
    chosen = config.language
    return (directory, None) if chosen.source == "directory" else (chosen.hub_id, chosen.hub_revision)


def _make_optimizer(
    config: DecisionTransformerConfig, learned: nn.Module, learning_rate: float, steps: int, warmup: int
) -> AdamW:
    return AdamW(
        [p for p in learned.parameters() if p.requires_grad],
        learning_rate,
        clip=config.clip,
        weight_decay=config.weight_decay,
        warmup=warmup,
        steps=steps,
        last=config.last_rate,
    )


def _pretrain_on_markov_chain(
    config: DecisionTransformerConfig, trunk: trunks.Trunk, generator: torch.Generator, device: torch.device
) -> None:
    """Teach the trunk to predict a Markov chain; the embeddings that served for it are forgotten."""
    how = config.synthetic
    words = text_pretraining.make_text_model(how.states, trunk.width, how.length)
    optimizer = _make_optimizer(config, nn.ModuleList([trunk, words]).to(device), how.learning_rate, how.steps, 0)
    for rows in islice(text_pretraining.iterate_markov_chains(how.states, how.rows, how.length, generator), how.steps):
        optimizer.step(words.loss(trunk, rows.to(device)))


def _compute_loss_of_next_text_rows(
    words: text_pretraining.Text, trunk: trunks.Trunk, rows: Iterator[Tensor], device: torch.device
) -> Tensor:
    return words.loss(trunk, next(rows).to(device))


def _load_token_stream(config: DecisionTransformerConfig, language: Path, texts: Path) -> tuple[Tensor, int]:
    """All text as one row of tokens, and the size of their vocabulary."""
    source, revision = _get_language_model_source(config, language)
    tokenizer = model_files.load_tokenizer(source, **({} if revision is None else {"revision": revision}))
    table = texts / "corpus.parquet"
    if table.is_file():
        documents = tables.read_table(Documents, table)["text"].tolist()
    else:
        documents = [file.read_text() for file in sorted(texts.glob("*.txt"))]
    lines = [line for document in documents for line in document.splitlines(keepends=True)]
    ids = tokenizer(lines, add_special_tokens=False)["input_ids"] if lines else []
    stream = torch.tensor([token for line in ids for token in line])
    if len(stream) < config.text.length:
        raise DataError(
            f"{texts}: {len(stream)} tokens of text; decision_transformer.text.length asks for more in a row"
        )
    return stream, len(tokenizer)


if __name__ == "__main__":
    main(run)
