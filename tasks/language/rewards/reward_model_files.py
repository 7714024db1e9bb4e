"""Reward models as files: language models that score by their log-probabilities, and classifiers with a linear head."""

import sys
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, NoReturn

from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification
from transformers.modeling_layers import GenericForSequenceClassification
from transformers.models.auto.modeling_auto import MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING, MODEL_MAPPING

from tasks.algorithms.language.causal_lm import PretrainedClassifier, PretrainedModel
from tasks.algorithms.language.reward_model import OBJECTIVE
from tasks.algorithms.language.step_rewards import BETA, BLANKS, BREAKS, CLASSES, STEP_SCORE, STEP_SCORES, THRESHOLD
from tasks.common import model_files, models
from tasks.common.errors import DataError
from tasks.common.tokenizers import Tokenizer

OUTPUTS = {"outcome": 1, "process": len(CLASSES)}  # of the head, by the objective that config.json names


def load_reward_model(path: Path, dtype: str = "float32") -> PretrainedModel:
    """What algorithms.reward_model.score reads: a language model whose config says so, else a classifier; in evaluation
    mode.
    """
    config = model_files.load_model_config(path)
    _check_reward_config(path, config)
    if getattr(config, BETA, None) is None:
        return load_classifier(path, dtype=dtype, outputs=OUTPUTS.get(getattr(config, OBJECTIVE, None) or "", 1))
    model: PretrainedModel = model_files.load_checked_model(AutoModelForCausalLM, path, dtype=dtype)
    return models.prepare_model_on_device(model, models.load_tokenizer(path))


def load_classifier(
    path: Path, new: Collection[str] = (), dtype: str = "float32", outputs: int = 1
) -> PretrainedClassifier:
    """A sequence classifier with so many outputs, in evaluation mode; DataError with one line if it has no head
    `score`.

    `new` are weights that the folder's model may lack.
    """
    model: PretrainedClassifier = model_files.load_checked_model(
        _get_or_create_classifier_class(path), path, new, num_labels=outputs, dtype=dtype
    )
    if not hasattr(model, "score"):
        raise DataError(
            f"{path}: model type {model.config.model_type}: {type(model).__name__} has no linear head "
            "`score` on its last "
            "token's state, which a reward model is read by"
        )
    return models.prepare_model_on_device(model)


def set_reward_config(model: PretrainedModel, objective: str, step_score: str, tokenizer: Tokenizer) -> None:
    """Write to the model's config by what objective it is trained, and what `score` needs to know for it."""
    clear_reward_config(model)
    if objective in OUTPUTS:
        setattr(model.config, OBJECTIVE, objective)
        setattr(model.config, BREAKS, list_line_break_tokens(tokenizer))
    if objective == "process":
        setattr(model.config, STEP_SCORE, step_score)
        setattr(model.config, BLANKS, list_blank_tokens(tokenizer))
    if objective == "process" and hasattr(model, "score"):
        names = dict(enumerate(CLASSES))
        vars(model.config).update(id2label=names, label2id={name: number for number, name in names.items()})


def clear_reward_config(model: PretrainedModel) -> None:
    """Take from the model's config all that says how a reward model scores: a policy may be a reward model of another
    kind.
    """
    for name in (BETA, THRESHOLD, OBJECTIVE, STEP_SCORE, BREAKS, BLANKS):
        vars(model.config).pop(name, None)


def list_line_break_tokens(tokenizer: Tokenizer) -> list[int]:
    """The tokens whose text holds a line break."""
    return [number for number, text in _iterate_token_texts(tokenizer) if "\n" in text]


def list_blank_tokens(tokenizer: Tokenizer) -> list[int]:
    """The tokens that show nothing: white space, and special ones."""
    return [number for number, text in _iterate_token_texts(tokenizer) if not text.strip()]


def _iterate_token_texts(tokenizer: Tokenizer) -> Iterator[tuple[int, str]]:
    """Each token with its text; special ones have none."""
    for number in range(len(tokenizer)):
        yield number, tokenizer.decode([number], skip_special_tokens=True)


def _check_reward_config(path: Path, config: Any) -> None:
    """DataError with one line where config.json is not that of a reward model."""

    def refuse(name: str, expected: str) -> NoReturn:
        raise DataError(f"{path}: config.json: {name}: expected {expected}, got {getattr(config, name, None)!r}")

    objective = getattr(config, OBJECTIVE, None)
    headed = getattr(config, BETA, None) is None
    for name in () if headed else (BETA,) if objective is None else (BETA, THRESHOLD):
        number = getattr(config, name, None)
        if not isinstance(number, int | float) or isinstance(number, bool) or not 0 < number <= sys.float_info.max:
            refuse(name, "a number above 0")
    if objective is None:
        return
    if objective not in [*OUTPUTS]:
        refuse(OBJECTIVE, " or ".join(OUTPUTS))
    if headed and config.num_labels != OUTPUTS[objective]:
        refuse("num_labels", f"{OUTPUTS[objective]} with {OBJECTIVE} {objective}")
    if objective == "process":
        if getattr(config, STEP_SCORE, None) not in [*STEP_SCORES]:
            refuse(STEP_SCORE, " or ".join(STEP_SCORES))
        for name in (BREAKS, BLANKS):
            tokens = getattr(config, name, None)
            if not isinstance(tokens, list) or not all(type(token) is int and 0 <= token < 2**31 for token in tokens):
                raise DataError(f"{path}: config.json: {name}: expected a list of token ids")


def _get_or_create_classifier_class(path: Path) -> Any:
    """Transformers' class for sequence classification, or for a type that has none the same head on the model's own
    body.
    """
    config = model_files.load_model_config(path)
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
