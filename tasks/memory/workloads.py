"""What a stage of the language flow holds and passes through at once, from its section of params.yaml and options that
replace its values.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from tasks.common.errors import ConfigError
from tasks.language.configs.parts.python_rewards import BY_MODEL
from tasks.memory.shapes import Shape

Device = Literal["cpu", "cuda"]
Shard = Literal["", "optimizer", "model"]
TRAINED_BY_REWARD = ("reinforce", "ppo", "grpo")
SUPERVISED = ("pretrained", "sft", "rejection_sft")
PAIRWISE = ("reward_model", "dpo")
SAMPLED = ("responses", "evaluate")
STAGES = (*SUPERVISED, *PAIRWISE, *TRAINED_BY_REWARD, *SAMPLED)
PRECISIONS = ("fp32", "bf16", "pure_bf16", "fp16")
ASSUMED = 2048  # tokens of a sequence, where neither params.yaml nor an option says it and the model takes more


@dataclass(frozen=True)
class MemoryOptions:
    """What the command line says in place of params.yaml; None where it says nothing."""

    precision: str | None = None
    lora_rank: int | None = None  # 0 for none
    sequence: int | None = None
    batch: int | None = None
    micro_batch: int | None = None
    checkpointing: bool | None = None
    all_models: bool = False  # a reference and a reward model even where the parameters need none


@dataclass(frozen=True)
class Workload:
    """One stage on one model: all that memory depends on."""

    stage: str
    shape: Shape
    precision: str
    optimizer: str  # adamw | muon | none, where nothing is trained
    checkpointing: bool
    rank: int  # of LoRA; 0 for none
    batch: int  # sequences that an optimizer step learns from, on all devices together
    micro_batch: int | None  # sequences in one pass of one device, at most; None where `accumulate` says it
    accumulate: int  # parts of a device's share of the batch
    prompt: int  # tokens
    answer: int  # tokens behind the prompt
    whole: bool  # a sequence is one row, and no prompt is read once for several answers
    samples: int  # answers to a prompt, which share its pass
    sampled: int  # answers that are sampled side by side, on all devices together; 0 for none
    devices: int = 1
    shard: Shard = ""  # what the devices divide besides the batch
    device: Device = "cuda"
    reference: bool = False
    critic: bool = False
    scorer: Shape | None = None  # the reward model
    scores_tokens: bool = True  # the reward model reads all its logits; false for a head on the last state
    best: bool = False  # the best weights so far are kept beside
    variances: int = 0  # sums of gradients, as REINFORCE compares its baselines
    assumed: str = ""  # what neither params.yaml nor an option said

    @property
    def trained(self) -> bool:
        """Whether the stage trains its model."""
        return self.optimizer != "none"

    @property
    def rows(self) -> int:
        """Sequences in one pass of one device.

        The answers to a prompt that are compared with each other stay together.
        """
        device_batch = -(-self.batch // self.devices)
        together = self.samples if self.stage in PAIRWISE else 1
        whole = together * -(-device_batch // (together * self.accumulate))
        return min(whole, self.micro_batch or whole)

    @property
    def parts(self) -> int:
        """Passes for one optimizer step on one device."""
        return -(-self.batch // (self.devices * self.rows))

    @property
    def prompts(self) -> int:
        """Distinct prompts in one pass."""
        return -(-self.rows // self.samples)

    @property
    def sampled_per_device(self) -> int:
        """Answers that are sampled side by side on one device."""
        return -(-self.sampled // self.devices)


def build_workload(stage: str, shape: Shape, sections: Mapping[str, Any], options: MemoryOptions) -> Workload:
    """The stage as `sections`, the sections as Configs, and the options say; ConfigError for what it cannot do."""
    section = sections[stage]
    if stage in SAMPLED:
        if options.lora_rank:
            raise ConfigError(f"--lora-rank: {stage} trains nothing")
        return _build_sampling_workload(stage, shape, section, options)
    training = section.training
    lora = getattr(section, "lora", None)
    rank = (lora.rank if lora else 0) if options.lora_rank is None else options.lora_rank
    if rank and stage == "pretrained":
        raise ConfigError("--lora-rank: pretrained trains all weights")
    common: dict[str, Any] = {
        "precision": options.precision or training.precision,
        "optimizer": training.optimizer,
        "checkpointing": training.gradient_checkpointing if options.checkpointing is None else options.checkpointing,
        "rank": rank,
    }
    if stage in TRAINED_BY_REWARD:
        return _build_reward_training_workload(stage, shape, sections, options, common)
    answers = _count_answers_per_prompt(sections) if stage in PAIRWISE else 1
    rows = section.prompts_per_batch if stage in PAIRWISE else section.batch_size
    batch = (options.batch or rows) * answers
    if stage == "rejection_sft":
        prompt, answer, assumed = _get_prompt_and_answer_lengths(stage, shape, section, options)
    else:
        length, assumed = _get_sequence_length(stage, shape, section, options)
        prompt = length // 2 if stage in PAIRWISE else 0
        answer = length - prompt
    return Workload(
        stage, shape, **common, batch=batch, micro_batch=options.micro_batch, accumulate=training.accumulate,
        prompt=prompt, answer=answer, samples=answers,
        whole=stage in SUPERVISED, assumed=assumed,
        sampled=section.prompts_per_batch * section.samples if stage == "rejection_sft" else 0,
        scorer=shape if stage == "rejection_sft" and any(map(section.reward.get, BY_MODEL)) else None,
        scores_tokens=sections["reward_model"].kind == "log_probability",
    )  # fmt: skip


def _build_reward_training_workload(
    stage: str, shape: Shape, sections: Mapping[str, Any], options: MemoryOptions, common: Mapping[str, Any]
) -> Workload:
    section = sections[stage]
    prompt, answer, assumed = _get_prompt_and_answer_lengths(stage, shape, section, options)
    batch = (options.batch or section.prompts_per_step) * section.samples
    critic = stage == "ppo" or (stage == "reinforce" and section.baseline == "critic")
    paid = options.all_models or any(map(section.reward.get, BY_MODEL))
    return Workload(
        stage, shape, **common, batch=batch if stage != "ppo" else -(-batch // section.minibatches),
        micro_batch=options.micro_batch or section.micro_batch, accumulate=1, prompt=prompt, answer=answer,
        samples=section.samples, whole=False, sampled=batch, critic=critic, scorer=shape if paid else None,
        reference=options.all_models or stage == "ppo" or bool(stage == "grpo" and section.beta),
        scores_tokens=sections["reward_model"].kind == "log_probability", best=section.keep == "best",
        variances=(3 + critic) * bool(section.variance_every) if stage == "reinforce" else 0, assumed=assumed,
    )  # fmt: skip


def _build_sampling_workload(stage: str, shape: Shape, section: Any, options: MemoryOptions) -> Workload:
    prompt, answer, assumed = _get_prompt_and_answer_lengths(stage, shape, section, options)
    sampled = (options.batch or section.batch_size) * section.samples
    return Workload(
        stage, shape, options.precision or "fp32", "none", False, 0, batch=sampled, micro_batch=None, accumulate=1,
        prompt=prompt, answer=answer, samples=section.samples, whole=False, sampled=sampled, assumed=assumed,
        reference=stage == "evaluate", scorer=shape if stage == "evaluate" else None,
    )  # fmt: skip


def _count_answers_per_prompt(sections: Mapping[str, Any]) -> int:
    """Distinct answers to a prompt in a batch of pairs: all that were ranked, or two."""
    return int(sections["responses"].samples) if sections["preferences"].source == "annotator" else 2


def _get_sequence_length(stage: str, shape: Shape, section: Any, options: MemoryOptions) -> tuple[int, str]:
    specified = options.sequence or (section.context if stage == "pretrained" else getattr(section, "max_length", None))
    if specified:
        return specified, ""
    length = min(shape.context or ASSUMED, ASSUMED)
    return length, f"sequences of {length:,} tokens are assumed; --sequence, or {stage}.max_length, says otherwise"


def _get_prompt_and_answer_lengths(
    stage: str, shape: Shape, section: Any, options: MemoryOptions
) -> tuple[int, int, str]:
    """Tokens of prompt and answer: the prompt has what a whole sequence has beside the answer."""
    answer = section.max_new_tokens
    if options.sequence:
        answer = min(answer, max(1, options.sequence - 1))
        return options.sequence - answer, answer, ""
    prompt = max(1, min(answer, (shape.context or 2 * answer) - answer))
    return prompt, answer, f"prompts of {prompt:,} tokens are assumed; --sequence sets prompt and answer together"


def assign_devices(work: Workload, device: Device, devices: int, shard: Shard) -> Workload:
    """The same on so many devices."""
    return replace(work, device=device, devices=devices, shard=shard)
