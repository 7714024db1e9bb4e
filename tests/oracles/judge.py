"""TRL's trainers on a frozen batch: the loss and gradient that each computes. All of the learning here is TRL's code.

Only public classes and methods are called (`compute_loss` and the data collators). Only the keys of the batch that
GRPOTrainer makes between sampling and its loss are private to TRL, and so depend on the version in requirements.lock.
"""

import copy
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from datasets import Dataset
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from transformers import PreTrainedTokenizerFast
from trl import DPOConfig, DPOTrainer, GRPOConfig, GRPOTrainer, RewardConfig, RewardTrainer
from trl.experimental.cpo import CPOConfig, CPOTrainer
from trl.experimental.utils import DPODataCollatorWithPadding
from trl.trainer.dpo_trainer import DataCollatorForPreference
from trl.trainer.reward_trainer import DataCollatorForPreference as DataCollatorForReward

from tests.oracles.frozen import PAD, gradients


def words():
    """A tokenizer that the trainers require and these tests never use, since the batches are token ids."""
    table = {"<pad>": PAD, "a": 1, "<end>": 2, **{f"w{i}": i for i in range(3, 16)}}
    tokenizer = Tokenizer(WordLevel(table, unk_token="a"))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<end>", unk_token="a")


def settings(kind, folder: Path, **changes):
    """A trainer's arguments for a processor: single precision, no logging, no recomputation."""
    plain = {"use_cpu": True, "bf16": False, "report_to": [], "activation_checkpointing": False, "disable_tqdm": True}
    return kind(output_dir=str(folder), **{**plain, **changes})


class Judge:
    """A copy of `model` in a TRL trainer; calling it with batches gives the sum of their losses and gradients."""

    def __init__(self, trainer):
        self.trainer = trainer

    def __call__(self, *batches):
        self.trainer.model.train()
        self.trainer.model.zero_grad()
        total = 0.0
        for batch in batches:
            loss = self.trainer.compute_loss(self.trainer.model, batch)
            loss.backward()
            total += loss.item()
        return total, gradients(self.trainer.model)

    def logged(self):
        """The metrics of the batches seen since the last time, as TRL logs them."""
        self.trainer.log({"loss": 0.0})
        return self.trainer.state.log_history[-1]


ROWS = Dataset.from_list([{"prompt": "a", "chosen": "w3", "rejected": "w4"}])


def dpo(model, reference, folder, **changes):
    """DPOTrainer; feed it `preference_batch`."""
    args = settings(DPOConfig, folder, **changes)
    return Judge(
        DPOTrainer(copy.deepcopy(model), copy.deepcopy(reference), args, train_dataset=ROWS, processing_class=words())
    )


def preference_batch(prompts, chosen, rejected):
    """The batch that DPOTrainer trains on, by its own collator."""
    rows = [
        {"prompt_ids": p, "chosen_ids": c, "rejected_ids": r} for p, c, r in zip(prompts, chosen, rejected, strict=True)
    ]
    return DataCollatorForPreference(pad_token_id=PAD)(rows)


def simpo(model, folder, **changes):
    """CPOTrainer with SimPO's loss and none of CPO's likelihood term; feed it `labelled_batch`."""
    args = settings(CPOConfig, folder, loss_type="simpo", cpo_alpha=0.0, remove_unused_columns=False, **changes)
    return Judge(CPOTrainer(copy.deepcopy(model), args, train_dataset=ROWS, processing_class=words()))


def labelled_batch(prompts, chosen, rejected):
    """The batch that CPOTrainer trains on, by its own collator: whole sequences, the prompt's labels -100."""
    rows = []
    for p, c, r in zip(prompts, chosen, rejected, strict=True):
        row = {"prompt_input_ids": p, "prompt_attention_mask": [1] * len(p)}
        for side, response in (("chosen", c), ("rejected", r)):
            row[f"{side}_input_ids"] = p + response
            row[f"{side}_attention_mask"] = [1] * len(p + response)
            row[f"{side}_labels"] = [-100] * len(p) + response
        rows.append(row)
    return DPODataCollatorWithPadding(pad_token_id=PAD)(rows)


def reward(model, folder, **changes):
    """RewardTrainer; feed it `scored_batch`."""
    args = settings(RewardConfig, folder, **changes)
    return Judge(RewardTrainer(copy.deepcopy(model), args=args, train_dataset=ROWS, processing_class=words()))


def scored_batch(prompts, chosen, rejected, margins):
    """The batch that RewardTrainer trains on, by its own collator."""
    rows = [
        {"chosen_ids": p + c, "rejected_ids": p + r, "margin": m}
        for p, c, r, m in zip(prompts, chosen, rejected, margins, strict=True)
    ]
    return DataCollatorForReward(pad_token_id=PAD)(rows)


def with_origin(model, folder):
    """A copy of the model with a folder to load it from, which the trainer needs for its reference."""
    model.save_pretrained(folder / "model")
    return type(model).from_pretrained(folder / "model")


def grpo(model, folder, *, micro_batches=1, **changes):
    """GRPOTrainer within an optimizer step of `micro_batches`; feed it that many of `sampled_batch`."""
    policy = with_origin(model, folder)
    sizes = {"per_device_train_batch_size": 2, "num_generations": 2, "gradient_accumulation_steps": micro_batches}
    # By default TRL multiplies the KL term by the ratio since 1.16 (arXiv:2512.02556); GRPO as published does not.
    args = settings(GRPOConfig, folder, **sizes, use_bias_correction_kl=False, **changes)
    trainer = GRPOTrainer(policy, lambda **_: [0.0], args, train_dataset=ROWS, processing_class=words())
    trainer.current_gradient_accumulation_steps = micro_batches  # as Trainer.train sets it before each step
    return Judge(trainer)


def sampled_batch(completions, advantages, old_logps, reference_logps, tokens):
    """The batch that GRPOTrainer makes of its samples, under its own keys; `tokens`: response tokens of the whole
    step.
    """
    return {
        "prompt_ids": completions.prompts[completions.owner],
        "prompt_mask": completions.prompt_mask[completions.owner].long(),
        "completion_ids": completions.tokens,
        "completion_mask": completions.mask.long(),
        "advantages": advantages,
        "old_per_token_logps": old_logps,
        "ref_per_token_logps": reference_logps,
        "num_items_in_batch": torch.tensor(tokens),
    }


def grpo_run(model, folder, samples, rewards, learning_rate, sampled=None, **changes):
    """GRPOTrainer.train, public from end to end: two updates by plain gradient descent on one batch of all prompts.

    `samples` replaces TRL's own: prompt -> its G responses, all tuples of tokens. `rewards` is response -> reward.
    `sampled`, response -> log-probabilities, has TRL correct for a sampler with these as it does for vLLM. Returns the
    two batches that TRL made, under the keys of `sampled_batch`, its log, and the trained weights.
    """
    policy = with_origin(model, folder)
    asked = {" ".join(f"w{token}" for token in prompt): prompt for prompt in samples}
    made = []

    class Witness(GRPOTrainer):
        def compute_loss(self, model, inputs, *rest, **named):
            made.append(inputs)
            return super().compute_loss(model, inputs, *rest, **named)

    def rollout(texts, _):
        left = {text: list(samples[prompt]) for text, prompt in asked.items()}
        responses = [list(left[text].pop(0)) for text in texts]
        blank = [[0.0] * len(response) for response in responses]
        known = blank if sampled is None else [sampled[tuple(response)] for response in responses]
        return {"prompt_ids": [list(asked[text]) for text in texts], "completion_ids": responses, "logprobs": known}

    def reward(completion_ids, **_):
        return [rewards[tuple(response)] for response in completion_ids]

    count = len(next(iter(samples.values())))
    plain = {"per_device_train_batch_size": len(samples) * count, "num_generations": count, "max_steps": 2}
    plain |= {"num_iterations": 2, "max_grad_norm": 0.0, "save_strategy": "no", "logging_steps": 1}
    args = settings(GRPOConfig, folder, **plain, use_bias_correction_kl=False, **changes)
    descent = torch.optim.SGD(policy.parameters(), lr=learning_rate)
    constant = torch.optim.lr_scheduler.ConstantLR(descent, 1.0)
    rows = Dataset.from_list([{"prompt": text} for text in asked])
    trainer = Witness(
        policy, reward, args, rows, processing_class=words(), optimizers=(descent, constant), rollout_func=rollout
    )
    if sampled is not None:  # without vLLM: its weights need no loading, and the samples are given
        trainer.use_vllm, trainer._last_loaded_step = True, -1
        trainer.vllm_generation = SimpleNamespace(sync_weights=lambda *_: None)
    trainer.train()
    return made, trainer.state.log_history, {name: p.detach() for name, p in policy.named_parameters()}


def same(ours, theirs, rtol=2e-4):
    """Fail unless the losses are equal and so is every weight's gradient, and some gradient is not zero.

    An entry may differ by the rounding error of single precision in a sum of terms as large as the largest gradient;
    the actual error depends on the processor.
    """
    largest = max(gradient.abs().max().item() for gradient in theirs[1].values())
    atol = 5e-6 * largest
    assert ours[0] == pytest.approx(theirs[0], rel=rtol, abs=atol)
    assert ours[1].keys() == theirs[1].keys()
    assert largest > 0.002
    for name, gradient in theirs[1].items():
        torch.testing.assert_close(
            ours[1][name], gradient, rtol=rtol, atol=atol, msg=lambda text, n=name: f"{n}: {text}"
        )
