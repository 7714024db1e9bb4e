"""What processes hold that divide nothing, the optimizer, or the model: `python -m benchmarks.sharding` writes
benchmarks/results/sharding.json.

Two processes fine-tune a Llama of 46 million random weights on a CPU, turn about with each way to divide. The peak is
of the steps, without loading; plan-memory's is its sum less what the libraries take, on top of what they were measured
to take.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks import result_files
from benchmarks.engine import describe_machine

RESULT = Path(__file__).parent / "results/sharding.json"
WAYS = {"": "nothing", "optimizer": "the optimizer", "model": "the model"}
PROCESSES = 2
ROUNDS = 3
STEPS = 6
VOCABULARY = 4000
WIDTH = 512
INNER = 1365
LAYERS = 14
HEADS = 8
CONTEXT = 128
ROWS = 8
LENGTH = 64
PARAMS = {"batch_size": ROWS, "training": {"precision": "fp32", "optimizer": "adamw"}}


def read_process_status_bytes(key: str) -> int:
    """Bytes of this process that the system tells under this key."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(key))


def train_in_one_process() -> None:
    """One process: its bytes before it has a model, its peak, its seconds, and its last loss, as a line of JSON."""
    import torch
    from ruamel.yaml import YAML
    from transformers import LlamaConfig, LlamaForCausalLM

    from tasks.algorithms.common import distributed
    from tasks.algorithms.common.optimizer import Optimizer, OptimizerSettings
    from tasks.algorithms.language import sft
    from tasks.algorithms.language.sequences import make_sequence_batch
    from tasks.common import processes
    from tasks.common.config import build_settings
    from tasks.language.configs.sft import SftConfig
    from tasks.language.training.trained_model import TrainedModel
    from tasks.stage import keep_freed_memory

    section = YAML(typ="safe").load(Path("params.yaml"))["sft"]
    section["training"] |= PARAMS["training"]
    config = SftConfig.parse_section(section).training
    keep_freed_memory(of_a_divided_model=os.environ[processes.SHARD] == "model")
    torch.set_num_threads(1)
    processes.join_process_group(torch)
    torch.manual_seed(0)
    base = read_process_status_bytes("VmRSS")
    shape = LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=WIDTH, intermediate_size=INNER, num_hidden_layers=LAYERS, num_attention_heads=HEADS,  # noqa: E501
        num_key_value_heads=HEADS, max_position_embeddings=CONTEXT, tie_word_embeddings=True,
    )  # fmt: skip
    model = LlamaForCausalLM(shape)
    trained = TrainedModel(lambda _: model, config)
    optimizer = Optimizer(trained.model, 1e-4, STEPS, 1.0, build_settings(config, OptimizerSettings))
    drawn = torch.Generator().manual_seed(1)
    texts = [torch.randint(VOCABULARY, (ROWS, LENGTH), generator=drawn).tolist() for _ in range(STEPS)]
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins here
    started = time.monotonic()
    rows = list(sft.fit(trained.model, [make_sequence_batch([[]] * ROWS, text, 0) for text in texts], optimizer))
    seconds = (time.monotonic() - started) / STEPS
    if distributed.is_main_rank():
        print(
            json.dumps(
                {"base": base, "peak": read_process_status_bytes("VmHWM"), "seconds": seconds, "loss": rows[-1]["loss"]}
            )
        )
    torch.distributed.destroy_process_group()


def run_sharded_processes(way: str) -> dict[str, float]:
    """What the first of the processes says."""
    with tempfile.TemporaryDirectory() as folder:
        children = []
        for number in range(PROCESSES):
            own = {"RANK": number, "LOCAL_RANK": number, "WORLD_SIZE": PROCESSES, "POSTTRAIN_RANKS": folder}
            environ = {
                **{key: str(value) for key, value in own.items()},
                "POSTTRAIN_SHARD": way,
                "POSTTRAIN_DEVICE": "cpu",
            }
            command = [sys.executable, "-m", "benchmarks.sharding", "--rank"]
            children.append(
                subprocess.Popen(
                    command, env={**os.environ, **environ, "OMP_NUM_THREADS": "1"}, stdout=subprocess.PIPE, text=True
                )
            )
        told = [child.communicate()[0] for child in children]
        assert not any(child.returncode for child in children)
    found: dict[str, float] = json.loads(told[0])
    return found


def estimate_planned_peak(way: str, base: float) -> float:
    """The peak that plan-memory counts, on top of what the libraries take."""
    from tasks.memory import terms
    from tasks.memory.shapes import Shape
    from tasks.memory.workloads import Workload

    shape = Shape("random", "llama", VOCABULARY, WIDTH, LAYERS, HEADS, HEADS, WIDTH // HEADS, INNER, True, CONTEXT)
    work = Workload(
        stage="sft", shape=shape, precision="fp32", optimizer="adamw", checkpointing=False, rank=0, batch=ROWS, micro_batch=None,  # noqa: E501
        accumulate=1, prompt=0, answer=LENGTH, whole=True, samples=1, sampled=0, devices=PROCESSES, device="cpu",
        shard=next(name for name in ("", "optimizer", "model") if name == way),
    )  # fmt: skip
    return terms.compute_peak_memory(terms.list_memory_terms(work, round(base)))[0]


def render(result: Mapping[str, Any]) -> str:
    """benchmarks/sharding.md."""
    lines = [
        "# What processes hold that divide the optimizer or the model",
        "",
        f"Made by `python -m benchmarks.sharding` on {result['machine']}. {PROCESSES} processes of one",
        f"thread each train a Llama of {result['weights'] / 1e6:.1f} million weights in fp32 with AdamW, {ROWS} x "
        f"{LENGTH} tokens a step: SFT, {STEPS} steps. Medians of {result['rounds']}",
        f"(lowest to highest), turn about. Load of the machine when it began: {result['load']:.1f}. The loss of "
        f"the last step was {result['runs'][''][0]['loss']:.5f}",
        "in all runs, to these digits.",
        "",
        "| divided | MB at the peak, of a process | beyond the libraries | plan-memory's sum, MB | seconds a step |",
        "|---|---|---|---|---|",
    ]
    for way, name in WAYS.items():
        of = result["runs"][way]
        peaks = sorted(one["peak"] / 1e6 for one in of)
        times = sorted(one["seconds"] for one in of)
        beyond = statistics.median(one["peak"] - one["base"] for one in of)
        lines.append(
            f"| {name} | {statistics.median(peaks):.0f} ({peaks[0]:.0f} to {peaks[-1]:.0f}) | {beyond / 1e6:,.0f} | "
            f"{result['planned'][way] / 1e6:.0f} | {statistics.median(times):.2f} ({times[0]:.2f} to {times[-1]:.2f}) |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sharding", description=__doc__)
    parser.add_argument("--rank", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--out", type=Path, default=RESULT)
    given = parser.parse_args()
    if given.rank:
        train_in_one_process()
        return
    load = os.getloadavg()[0]
    runs = {way: [] for way in WAYS}
    for _ in range(given.rounds):
        for way, of in runs.items():
            of.append(run_sharded_processes(way))
    losses = {f"{one['loss']:.5f}" for of in runs.values() for one in of}
    assert len(losses) == 1, losses
    result = {
        "machine": describe_machine("torch", "transformers"),
        "load": load,
        "rounds": given.rounds,
        "weights": VOCABULARY * WIDTH + LAYERS * (4 * WIDTH * WIDTH + 3 * WIDTH * INNER + 2 * WIDTH) + WIDTH,
        "planned": {
            way: estimate_planned_peak(way, statistics.median(one["base"] for one in of)) for way, of in runs.items()
        },
        "runs": runs,
    }
    result_files.write_result(given.out, result)
    print(render(result))


if __name__ == "__main__":
    main()
