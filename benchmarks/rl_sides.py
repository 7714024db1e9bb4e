"""The two sides of benchmarks/rl.py, each as a process of its own runs it: our loops, and TRL's trainers.

Both build the same model, prompts and rewards from the same seeds. The gate starts and times each step:
ours is a `next` of the loop, TRL's goes from `on_step_begin` to `on_step_end`, without logging and saving.
"""

import functools
import random
import tempfile
import warnings
from collections.abc import Sequence
from typing import Any, Protocol

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM

from benchmarks.rl_cases import OURS, THEIRS, Case
from tasks.algorithms.common.linear import replace_linear_layers
from tasks.algorithms.common.optimizer import Optimizer, OptimizerSettings
from tasks.algorithms.language import dpo, grpo
from tasks.algorithms.language.completions import make_completions
from tasks.algorithms.language.experience import Experience
from tasks.algorithms.language.pairs import Pairs
from tasks.algorithms.language.rollouts import sample_rollouts

ARCHITECTURES: dict[str, Any] = {"llama": (LlamaConfig, LlamaForCausalLM), "qwen2": (Qwen2Config, Qwen2ForCausalLM)}
# so small that the lengths of responses do not change
LEARNING_RATE = 1e-6
WEIGHT_DECAY = 0.01
CLIP = 1.0
BETAS = (0.9, 0.95)
CLIP_LOW = 0.2
CLIP_HIGH = 0.28
DPO_BETA = 0.1
PAD = 0


class Gate(Protocol):
    """Starts and times one step after another."""

    def report_ready(self) -> None:
        """Report that everything is loaded."""

    def begin(self) -> None:
        """Wait for the turn, then start the clock."""

    def clock(self) -> float:
        """The time in seconds, after the device has finished its work."""

    def sampled(self, seconds: float, tokens: int) -> None:
        """Note the seconds and the number of tokens of this step's sampling."""

    def end(self) -> None:
        """Report the end of the step."""


def build_random_model(case: Case) -> Any:
    """The model, with the same random weights on both sides; with natural lengths, several tokens end a response."""
    config, kind = ARCHITECTURES[case.size.architecture]
    torch.manual_seed(0)
    special = {"pad_token_id": None, "bos_token_id": None, "eos_token_id": None}
    shape = {**case.size.shape, **special, "attn_implementation": case.attention}
    model = kind(config(**shape)).to(case.device, torch.bfloat16 if case.device == "cuda" else torch.float32)
    model.generation_config.eos_token_id = list_end_tokens(case)
    return model


def list_end_tokens(case: Case) -> list[int]:
    """The tokens that end a response: as many as give a random model the wanted lengths, or one that it never
    samples.
    """
    vocabulary = case.size.shape["vocab_size"]
    return list(range(vocabulary - round(vocabulary * case.size.stop), vocabulary)) if case.natural else [vocabulary]


def draw_prompts(case: Case) -> list[list[int]]:
    """Random prompts of equal length."""
    draw = random.Random(1)
    count = case.size.prompts if case.algorithm == "grpo" else case.size.pairs
    return [draw.choices(range(3, case.size.shape["vocab_size"]), k=case.prompt) for _ in range(count)]


def draw_responses(case: Case, count: int, end: int) -> list[list[int]]:
    """Random responses, as long as sampled ones would be; the last token ends each."""
    draw = random.Random(2)
    found = []
    for _ in range(count):
        length = (
            min(case.size.response, 1 + int(draw.expovariate(case.size.stop))) if case.natural else case.size.response
        )
        found.append([*draw.choices(range(3, end), k=length - 1), end])
    return found


def compute_even_token_shares(completion_ids: Sequence[Sequence[int]], **_: Any) -> list[float]:
    """The share of even tokens: cheap to compute, and different within every group."""
    return [sum(token % 2 == 0 for token in response) / len(response) for response in completion_ids]


def build_adamw_optimizer(model: Any, case: Case) -> Optimizer:
    """Ours: AdamW."""
    settings = OptimizerSettings("adamw", "cosine", 0.0, 0.1, BETAS, WEIGHT_DECAY)
    return Optimizer(model, LEARNING_RATE, case.steps, CLIP, settings)


def build_grpo_settings(case: Case) -> grpo.GrpoSettings:
    """GRPO as both sides run it, with TRL's default aggregation."""
    return grpo.GrpoSettings(
        supervision="outcome",
        advantage="standardized",
        aggregation="dapo",
        updates=1,
        clip_low=CLIP_LOW,
        clip_high=CLIP_HIGH,
        beta=0.0,
        kl="k3",
        temperature=1.0,
        old_from_sampler=True,
        importance_cap=None,
        max_new_tokens=case.size.response,
        mask_truncated=False,
        micro_batch=case.size.micro_batch,
    )


def build_dpo_pairs(case: Case) -> tuple[Pairs, list[list[int]]]:
    """One batch of pairs, each with a prompt of its own, and its responses: chosen, rejected, chosen, ..."""
    count = case.size.pairs
    given = draw_responses(case, 2 * count, case.size.shape["vocab_size"] - 1)
    batch = make_completions(draw_prompts(case), [row // 2 for row in range(2 * count)], given, PAD)
    rows = torch.arange(2 * count)
    return Pairs(batch, rows, rows[::2], rows[1::2], torch.ones(count), torch.zeros(count, dtype=torch.bool)), given


DPO_OBJECTIVE = dpo.MarginLoss(
    "sigmoid", beta=DPO_BETA, label_smoothing=0.0, gamma=0.0, length_normalised=False, nll=0.0
)


def run_our_steps(case: Case, gate: Gate) -> None:
    """This repository's loops."""
    model = replace_linear_layers(build_random_model(case)).eval()
    if case.algorithm == "grpo":
        asked = draw_prompts(case)

        def collect(step: int) -> Experience:
            began = gate.clock()
            [rollouts] = sample_rollouts(
                model,
                asked,
                samples=case.size.samples,
                max_new_tokens=case.size.response,
                temperature=1.0,
                end_tokens=list_end_tokens(case),
                seed=step,
                batch_size=len(asked),
            )
            gate.sampled(gate.clock() - began, int(rollouts.mask.sum()))
            rewards = torch.tensor(compute_even_token_shares(rollouts.responses()))
            return Experience(rollouts.completions(asked, PAD), rollouts.logps, rewards, rollouts.ended)

        steps = grpo.fit(
            model,
            collect,
            build_adamw_optimizer(model, case),
            build_grpo_settings(case),
            start=0,
            steps=case.steps,
            reference=None,
        )
    else:
        pairs, _ = build_dpo_pairs(case)
        known = dpo.compute_reference_logps(model, [pairs.responses])
        steps = dpo.fit(
            model, [pairs] * case.steps, build_adamw_optimizer(model, case), reference=known, objective=DPO_OBJECTIVE
        )
    gate.report_ready()
    for _ in range(case.steps):
        gate.begin()
        next(steps)
        gate.end()


def run_trl_steps(case: Case, gate: Gate) -> None:
    """TRL's trainers, as a user would call them."""
    import datasets
    import transformers

    datasets.disable_progress_bars()
    transformers.logging.set_verbosity_error()
    warnings.simplefilter("ignore")

    class Turns(transformers.TrainerCallback):
        def on_step_begin(self, *_: Any, **__: Any) -> None:
            gate.begin()

        def on_step_end(self, *_: Any, **__: Any) -> None:
            gate.end()

    with tempfile.TemporaryDirectory() as folder:
        trainer = (_build_grpo_trainer if case.algorithm == "grpo" else _build_dpo_trainer)(case, gate, folder)
        trainer.add_callback(Turns())
        trainer.remove_callback(transformers.PrinterCallback)
        gate.report_ready()
        trainer.train()


def _build_trainer_arguments(case: Case, folder: str, rows: int) -> dict[str, Any]:
    """The settings of both trainers: our optimizer, no logging, no saving, no recomputation of activations."""
    return {
        "output_dir": folder,
        "use_cpu": case.device == "cpu",
        "bf16": False,  # on a GPU the weights are bf16 themselves, as on our side
        "report_to": [],
        "disable_tqdm": True,
        "activation_checkpointing": False,
        "save_strategy": "no",
        "logging_strategy": "no",
        "max_steps": case.steps,
        "per_device_train_batch_size": min(rows, case.size.micro_batch),
        "gradient_accumulation_steps": max(1, rows // case.size.micro_batch),
        "learning_rate": LEARNING_RATE,
        "lr_scheduler_type": "constant",
        "adam_beta1": BETAS[0],
        "adam_beta2": BETAS[1],
        "weight_decay": WEIGHT_DECAY,
        "max_grad_norm": CLIP,
        "seed": 1,
    }


def _build_grpo_trainer(case: Case, gate: Gate, folder: str) -> Any:
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    model = build_random_model(case)
    tokens = 0

    def counted(completion_ids: Sequence[Sequence[int]], **_: Any) -> list[float]:
        nonlocal tokens
        tokens = sum(map(len, completion_ids))
        gate.sampled(seconds, tokens)
        return compute_even_token_shares(completion_ids)

    seconds = 0.0
    generate = model.generate_batch if case.trl.get("use_transformers_continuous_batching") else model.generate

    @functools.wraps(generate)
    def timed(*given: Any, **named: Any) -> Any:
        nonlocal seconds
        began = gate.clock()
        made = generate(*given, **named)
        seconds = gate.clock() - began
        return made

    setattr(model, generate.__name__, timed)
    args = GRPOConfig(
        **_build_trainer_arguments(case, folder, case.size.prompts * case.size.samples),
        num_generations=case.size.samples,
        max_completion_length=case.size.response,
        epsilon=CLIP_LOW,
        epsilon_high=CLIP_HIGH,
        loss_type="dapo",
        beta=0.0,
        use_bias_correction_kl=False,
        **case.trl,
    )
    rows = Dataset.from_list([{"prompt": format_tokens_as_words(prompt)} for prompt in draw_prompts(case)])
    return GRPOTrainer(
        model, counted, args, rows, processing_class=build_word_tokenizer(case, case.size.shape["vocab_size"])
    )


def _build_dpo_trainer(case: Case, gate: Gate, folder: str) -> Any:
    from datasets import Dataset
    from trl import DPOConfig, DPOTrainer

    args = DPOConfig(
        **_build_trainer_arguments(case, folder, case.size.pairs),
        beta=DPO_BETA,
        precompute_ref_log_probs=True,
        max_length=None,
    )
    _, given = build_dpo_pairs(case)
    asked = draw_prompts(case)
    rows = [
        {
            "prompt": format_tokens_as_words(p),
            "chosen": " " + format_tokens_as_words(c[:-1]),
            "rejected": " " + format_tokens_as_words(r[:-1]),
        }  # TRL adds the end token
        for p, c, r in zip(asked, given[::2], given[1::2], strict=True)
    ]
    tokenizer = build_word_tokenizer(case, case.size.shape["vocab_size"] - 1)
    return DPOTrainer(
        build_random_model(case), args=args, train_dataset=Dataset.from_list(rows), processing_class=tokenizer
    )


def format_tokens_as_words(tokens: Sequence[int]) -> str:
    """Tokens as a text that `words` reads."""
    return " ".join(f"w{token}" for token in tokens)


def build_word_tokenizer(case: Case, end: int) -> Any:
    """A tokenizer with a word for each token of the model, and `end` as its end token."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import WhitespaceSplit
    from transformers import PreTrainedTokenizerFast

    table = {f"w{token}": token for token in range(3, case.size.shape["vocab_size"])}
    table.pop(f"w{end}", None)
    tokenizer = Tokenizer(WordLevel({"<pad>": PAD, "<unknown>": 1, **table, "<end>": end}, unk_token="<unknown>"))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<end>", unk_token="<unknown>"
    )


SIDES = {OURS: run_our_steps, THEIRS: run_trl_steps}
