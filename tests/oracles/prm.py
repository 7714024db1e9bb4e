"""The loss and gradient of TRL's PRMTrainer on a frozen batch of steps: `python -m tests.oracles.prm` wrote them to
prm.json.

TRL 1.13 was the last release with a PRMTrainer, so that this ran once, with that release in place of the one in
requirements.lock.
"""

import json
import math
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from tests.oracles.frozen import OWNER, PAD, PROMPTS, RESPONSES, gradients
from tests.tasks.tiny import SIZES

FILE = Path(__file__).parent / "prm.json"
ENDS = [[0, 1], [2], [1, 3], [0, 2], [1], [0, 1, 4]]  # of the steps of RESPONSES
LABELS = [[2, 0], [1], [2, 2], [2, 0], [0], [2, 1, 0]]  # their classes: bad, neutral, good


def sow(model):
    """Weights that hang on no generator of random numbers: waves, of a length of its own for each weight."""
    with torch.no_grad():
        weights = {name: p for name, p in model.named_parameters() if not name.endswith("bias")}
        for number, p in enumerate((weights[name] for name in sorted(weights)), 1):
            wave = torch.sin(torch.arange(1, p.numel() + 1).double() * 0.7 * math.sqrt(number)).view_as(p)
            p.copy_(0.3 * wave if p.dim() > 1 else 1 + 0.1 * wave)


def summed_up(loss, found):
    """What is kept of a loss and gradients: the gradients' norms, and the head's gradient whole."""
    norms = {name: gradient.norm().item() for name, gradient in found.items()}
    return {"loss": loss, "norms": norms, "head": found["score.weight"].tolist()}


def theirs():
    """By PRMTrainer; the head has a bias there, which is 0."""
    from datasets import Dataset
    from transformers import LlamaConfig, LlamaForTokenClassification
    from trl.experimental.prm import PRMConfig, PRMTrainer

    from tests.oracles.judge import Judge, settings, words

    model = LlamaForTokenClassification(LlamaConfig(**{**SIZES, "num_labels": 3, "pad_token_id": PAD}))
    sow(model)
    torch.nn.init.zeros_(model.score.bias)
    rows = []
    for owner, response, ends, labels in zip(OWNER, RESPONSES, ENDS, LABELS, strict=True):
        asked = PROMPTS[owner]
        told = [-100] * (len(asked) + len(response))
        for end, label in zip(ends, labels, strict=True):
            told[len(asked) + end] = label
        rows.append({"input_ids": asked + response, "labels": told})
    with TemporaryDirectory() as folder:
        args = settings(PRMConfig, Path(folder), gradient_checkpointing=False)
        tokenizer = words()
        tokenizer.padding_side = "right"
        trainer = PRMTrainer(model, args, train_dataset=Dataset.from_list(rows), processing_class=tokenizer)
        judge = Judge(trainer)
        loss, _ = judge(trainer.data_collator(rows))
        found = gradients(trainer.model)
        del found["score.bias"]
        return summed_up(loss, found)


if __name__ == "__main__":
    FILE.write_text(json.dumps(theirs(), indent=1) + "\n")
