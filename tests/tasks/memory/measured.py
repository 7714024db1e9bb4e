"""A process that does the loop of SFT or GRPO on random tokens, and prints what it held at its peak: a JSON line.

`python -m tests.tasks.memory.measured '{"stage": "sft", ...}'`, with the keys of `Setting` in test_measured.py.
"""

import json
import sys
from pathlib import Path

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from tasks import stage
from tasks.algorithms.common.linear import replace_linear_layers
from tasks.algorithms.common.optimizer import Optimizer, OptimizerSettings
from tasks.algorithms.language import grpo, rollouts, sft
from tasks.algorithms.language.experience import Experience
from tasks.algorithms.language.sequences import make_sequence_batch

STEPS = 2  # from the second on the optimizer's state is there
TINY = {"width": 16, "layers": 1, "heads": 2, "key_heads": 2, "inner": 32, "vocabulary": 64}
TINY_WORK = {
    "batch": 2,
    "length": 8,
    "accumulate": 1,
    "prompts": 2,
    "prompt": 4,
    "samples": 2,
    "answer": 4,
    "micro_batch": 4,
}


def resident(name):
    """VmRSS or VmHWM of this process in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name)) * 1024


def llama(asked):
    config = LlamaConfig(
        vocab_size=asked["vocabulary"],
        hidden_size=asked["width"],
        intermediate_size=asked["inner"],
        num_hidden_layers=asked["layers"],
        num_attention_heads=asked["heads"],
        num_key_value_heads=asked["key_heads"],
        max_position_embeddings=2048,
        tie_word_embeddings=True,
    )
    return replace_linear_layers(LlamaForCausalLM(config)).eval()


def tokens(asked, count):
    return torch.randint(0, asked["vocabulary"], (count,)).tolist()


def run(asked):
    """Two steps of the stage; the lengths of a batch differ by a token, so that rows are padded."""
    model = llama(asked)
    optimizer = Optimizer(model, 1e-4, STEPS, 1.0, OptimizerSettings("adamw", "constant", 0.0, 1.0, (0.9, 0.95), 0.0))
    if asked["stage"] == "sft":
        lengths = [asked["length"] - row % 2 for row in range(asked["batch"])]
        made = ([tokens(asked, length) for length in lengths] for _ in range(STEPS))
        batches = (make_sequence_batch([row[:1] for row in rows], [row[1:] for row in rows], 0) for rows in made)
        return list(sft.fit(model, batches, optimizer, asked["accumulate"]))

    def collect(step):
        prompts = [tokens(asked, asked["prompt"] - row % 2) for row in range(asked["prompts"])]
        [drawn] = rollouts.sample_rollouts(
            model, prompts, samples=asked["samples"], max_new_tokens=asked["answer"], temperature=1.0, end_tokens=(),
            seed=step, batch_size=len(prompts),
        )  # fmt: skip
        found = drawn.completions(prompts, 0)
        return Experience(found, drawn.logps, torch.rand(len(found)), drawn.ended)

    settings = grpo.GrpoSettings(
        "outcome",
        "standardized",
        "dapo",
        1,
        0.2,
        0.28,
        0.0,
        "k3",
        1.0,
        True,
        None,
        asked["answer"],
        False,
        asked["micro_batch"],
    )
    return list(grpo.fit(model, collect, optimizer, settings, start=0, steps=STEPS, reference=None))


def main():
    asked = json.loads(sys.argv[1])
    torch.manual_seed(0)
    stage.keep_freed_memory()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    run(asked | TINY | TINY_WORK)
    base = resident("VmRSS")
    run(asked)
    print(json.dumps({"base": base, "peak": resident("VmHWM")}))


if __name__ == "__main__":
    main()
