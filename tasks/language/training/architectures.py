"""Which architectures can be sampled from and trained here: those that keep keys and values of each row's tokens.

A prompt is read once, and its cache continued by each of its answers (tasks/algorithms/language/completions.py).
Recurrent models keep a state instead, which cannot be rewound; they are refused before their weights are read.
"""

from collections.abc import Mapping

import torch
from transformers import AutoConfig
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING

from tasks.algorithms.language.causal_lm import PretrainedModel
from tasks.algorithms.language.completions import compute_token_logps, make_completions
from tasks.algorithms.language.rollouts import sample_rollouts
from tasks.algorithms.language.sequences import pack_documents
from tasks.common.errors import DataError

WANTED = "expected an attention model, whose key-value cache has a place for each token of a row"
PROMPTS = [[5, 6, 7], [8]]
ANSWERS = [[9, 5], [6, 7, 8], [9], [5, 5]]
OWNER = [0, 0, 1, 1]
WINDOWS = (
    "sliding_window",
    "attention_chunk_size",
)  # in config.json: tokens that a layer sees; the latter is Llama 4's
NEAR = 0.05  # nats; fp32 differs by a hundredth of it


def check_architecture_config(source: Mapping[str, object]) -> None:
    """DataError with one line where config.json shows that a model cannot be used in this pipeline.

    `source` are the arguments of from_pretrained. Only the config is read, and remote code is never run.
    """
    name = source["pretrained_model_name_or_path"]
    try:
        config = AutoConfig.from_pretrained(**source, trust_remote_code=False)
    except Exception as error:  # for a model type that transformers does not know, a torn file, or impossible values
        raise DataError(f"{name}: config.json: {' '.join(str(error).split())[:300]}") from None
    if type(config) not in MODEL_FOR_CAUSAL_LM_MAPPING:
        raise DataError(f"{name}: model type {config.model_type} is no causal language model, but one is expected")
    if MODEL_FOR_CAUSAL_LM_MAPPING[type(config)]._is_stateful:
        raise DataError(
            f"{name}: model type {config.model_type} is stateful (recurrent, or of linear attention); {WANTED}"
        )


@torch.no_grad()
def check_shared_prompt_sampling(name: str, model: PretrainedModel) -> None:
    """DataError with one line where sampling fails, or answers behind a shared prompt have other probabilities than
    alone.
    """
    batch = make_completions(PROMPTS, OWNER, ANSWERS, pad=0)
    try:
        shared_logps = compute_token_logps(model, batch)
        next(
            sample_rollouts(
                model, PROMPTS, samples=2, max_new_tokens=3, temperature=1.0, end_tokens=(), seed=0, batch_size=2
            )
        )
    except (AttributeError, IndexError, KeyError, NotImplementedError, RuntimeError, TypeError, ValueError) as error:
        what = f"{type(error).__name__}: {' '.join(str(error).split())}"
        raise DataError(
            f"{name}: model type {model.config.model_type} cannot be used here ({what}); {WANTED}"
        ) from None
    for row, (owner, answer) in enumerate(zip(OWNER, ANSWERS, strict=True)):
        whole = torch.tensor([PROMPTS[owner] + answer])
        logps = model(input_ids=whole, use_cache=False).logits[0].log_softmax(-1)
        alone = [logps[len(PROMPTS[owner]) + at - 1, token].item() for at, token in enumerate(answer)]
        if (shared_logps[row, : len(answer)] - torch.tensor(alone)).abs().max() > NEAR:
            raise DataError(
                f"{name}: model type {model.config.model_type}: an answer has other probabilities "
                "behind a prompt that it "
                f"shares than alone; {WANTED}"
            )


@torch.no_grad()
def check_packing_support(name: str, model: PretrainedModel, room: int | None) -> None:
    """DataError with one line where a document behind another one in a row has other logits than alone."""
    for key in WINDOWS:
        window = getattr(model.config.get_text_config(), key, None)
        if isinstance(window, int) and room is not None and window < room:
            raise DataError(
                f"{name}: the model attends to {window} tokens at most (config.json: {key}), which "
                f"rows of {room} packed "
                f"tokens would not keep to; expected sft.packing false, or sft.max_length at most {window}"
            )
    first = ([5, 6, 7], [True] * 3)
    second = ([8, 9, 5, 6], [True] * 4)
    alone = model(**pack_documents([[second]], pad=0).on(model).inputs(), use_cache=False).logits[0]
    try:
        both = model(**pack_documents([[first, second]], pad=0).on(model).inputs(), use_cache=False).logits[
            0, len(first[0]) :
        ]
    except (IndexError, NotImplementedError, RuntimeError, TypeError, ValueError) as error:
        what = f"{type(error).__name__}: {' '.join(str(error).split())}"
        raise DataError(
            f"{name}: model type {model.config.model_type} takes no mask that keeps packed documents apart "
            f"({what}); expected "
            "sft.packing false"
        ) from None
    if (both.log_softmax(-1) - alone.log_softmax(-1)).abs().max() > NEAR:
        raise DataError(
            f"{name}: model type {model.config.model_type}: a document has other probabilities behind another one "
            "in a row than "
            "alone; expected sft.packing false"
        )
