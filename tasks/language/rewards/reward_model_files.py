"""Reward models as files: language models that score by their log-probabilities, and classifiers with a linear head."""

from collections.abc import Collection
from pathlib import Path
from typing import Any

from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification
from transformers.modeling_layers import GenericForSequenceClassification
from transformers.models.auto.modeling_auto import MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING, MODEL_MAPPING

from tasks.algorithms.language.causal_lm import PretrainedClassifier, PretrainedModel
from tasks.algorithms.language.reward_model import BETA
from tasks.common import model_files, models
from tasks.common.errors import DataError


def load(path: Path, dtype: str = "float32") -> PretrainedModel:
    """What algorithms.reward_model.score reads: a language model whose config says so, else a classifier; in evaluation mode."""
    config = model_files.load_config(path)
    beta = getattr(config, BETA, None)
    if beta is None:
        return load_classifier(path, dtype=dtype)
    if not isinstance(beta, int | float) or not 0 < beta < float("inf"):
        raise DataError(f"{path}: config.json: {BETA}: expected a number above 0, got {beta!r}")
    model: PretrainedModel = model_files.load(AutoModelForCausalLM, path, dtype=dtype)
    return models.placed(model)


def load_classifier(path: Path, new: Collection[str] = (), dtype: str = "float32") -> PretrainedClassifier:
    """A sequence classifier with one output, in evaluation mode; DataError with one line if it has no head `score`.

    `new` are weights that the folder's model may lack.
    """
    model: PretrainedClassifier = model_files.load(_classifier(path), path, new, num_labels=1, dtype=dtype)
    if not hasattr(model, "score"):
        raise DataError(
            f"{path}: model type {model.config.model_type}: {type(model).__name__} has no linear head `score` on its last "
            "token's state, which a reward model is read by"
        )
    return models.placed(model)


def _classifier(path: Path) -> Any:
    """Transformers' class for sequence classification, or for a type that has none the same head on the model's own body."""
    config = model_files.load_config(path)
    if type(config) in MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING:
        return AutoModelForSequenceClassification
    if type(config) not in MODEL_MAPPING:
        raise DataError(
            f"{path}: model type {config.model_type} has no body in transformers that a reward model could be"
        )
    body = MODEL_MAPPING[type(config)]
    base = body.__mro__[1]  # such as GranitePreTrainedModel, which knows how weights are named
    name = f"{body.__name__.removesuffix('Model')}ForSequenceClassification"
    return type(name, (GenericForSequenceClassification, base), {"base_model_prefix": base.base_model_prefix})
