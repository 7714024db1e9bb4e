"""`python -m tasks.export FOLDER OUT`: copy a model with its tokenizer as others load it, and print what it is as JSON.

`posttrain export` starts it. The weights are copied byte for byte, or merged with the adapter beside them; the copy is
loaded once, so that a broken model is not passed on. With `--explain FILE...`, files of metrics, the JSON has a
sentence for each number in them.
"""

import argparse
import json
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from transformers import AutoModelForCausalLM
from transformers.utils import logging

from tasks import metrics
from tasks.algorithms.language.causal_lm import PretrainedModel
from tasks.algorithms.language.reward_model import OBJECTIVE
from tasks.algorithms.language.step_rewards import BETA, THRESHOLD
from tasks.common import adapters, model_files
from tasks.common.config_faults import describe_missing_model
from tasks.common.errors import DataError
from tasks.language.data import chat
from tasks.language.rewards import reward_model_files

# Weights, their index, configs, and the files of tokenizers. No code, no pickles, and nothing else that a stage writes
# beside.
COPIED = (
    "*.safetensors",
    "*.safetensors.index.json",
    "*config.json",
    "*token*.json",
    "vocab.*",
    "merges.txt",
    "*.jinja",
    "*.model",
)


def export_model(folder: Path, out: Path) -> dict[str, Any]:
    """Copy the model to the folder `out`; returns what it is. DataError with one line if it is not whole."""
    if not (folder / "config.json").is_file():
        raise DataError(f"{folder}: {describe_missing_model(folder)}")
    merged = adapters.has_adapter(folder)
    for file in sorted({file for pattern in COPIED for file in folder.glob(pattern)}):
        if not (merged and (file.name.startswith("adapter_") or ".safetensors" in file.name)):
            shutil.copyfile(file, out / file.name)
    config = json.loads((out / "config.json").read_text())
    classifies = "ForSequenceClassification" in str(config.get("architectures"))
    load: Callable[[Path], PretrainedModel] = (
        reward_model_files.load_reward_model if classifies else _load_language_model
    )
    if merged:
        load(folder).save_pretrained(out)
    model = load(out)
    tokenizer = model_files.load_tokenizer(out)
    model_files.check_tokenizer(out, tokenizer, model.get_input_embeddings().num_embeddings)
    if not classifies:
        _write_end_tokens(model, tokenizer, out)
    return {
        "kind": "classifier" if classifies else "log_probability" if BETA in config else "policy",
        "beta": config.get(BETA),
        "threshold": config.get(THRESHOLD),
        "objective": config.get(OBJECTIVE),
        "architecture": type(model).__name__,
        "weights": model.num_parameters(),
        "dtype": config.get("dtype") or "float32",
        "context": getattr(model.config.get_text_config(), "max_position_embeddings", None),
        "chat_template": tokenizer.chat_template is not None,
    }


def _load_language_model(folder: Path) -> PretrainedModel:
    model: PretrainedModel = model_files.load_checked_model(AutoModelForCausalLM, folder, dtype="auto")
    return model


def _write_end_tokens(model: Any, tokenizer: Any, out: Path) -> None:
    """Have `generate` stop where the stages do: generation_config.json names each token that ends an answer."""
    ends = sorted(chat.end_tokens(model, tokenizer))
    declared = model.generation_config.eos_token_id
    if ends != (declared if isinstance(declared, list) else [declared]):
        model.generation_config.eos_token_id = ends
        model.generation_config.save_pretrained(out)


def main(arguments: Sequence[str]) -> None:
    """Export, explain and print."""
    parser = argparse.ArgumentParser(prog="python -m tasks.export", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--explain", type=Path, nargs="*", default=[])
    options = parser.parse_args(arguments)
    logging.disable_progress_bar()
    try:
        facts = export_model(options.folder, options.out)
    except DataError as error:
        raise SystemExit(str(error).replace(str(options.out), str(options.folder))) from None
    print(
        json.dumps(
            {
                **facts,
                "meanings": {file.stem: metrics.read_metric_meanings(file, "language") for file in options.explain},
            }
        )
    )


if __name__ == "__main__":
    main(sys.argv[1:])
