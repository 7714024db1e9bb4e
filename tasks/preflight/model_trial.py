"""The model that a run starts from, tried on itself before anything is trained: its tokens, and twenty of them beyond
each threshold.

Where attention or positions change at some length (a sliding window, a scaled rotary embedding), a sampler with a cache
and a trainer without one may come to differ, and nothing fails: the ratios of policies are wrong, that is all. So the
probabilities of the same tokens are compared: as they were sampled, as training sees them, in one pass without a cache,
and by transformers' `generate`.
"""

import json
import math
import re
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from tasks.common.errors import DataError
from tasks.common.tokenizers import Tokenizer

SECONDS = 60  # for all of it
LONGEST = 4096  # tokens; a threshold above is not tried
# tokens sampled behind a threshold, and up to it
BEYOND = 20
BEFORE = 4
SHORT = 8  # tokens of a prompt below all thresholds
NEAR = 0.05  # nats; in fp32 rounding makes a hundredth of it
KEYS = re.compile(r"window|chunk|original_max_position|^local_attention$|index_topk$|floor_scale")  # of config.json
OTHERS = re.compile(r"layers|pattern|feed_forward|lm_head")  # in names that look like these, and are no lengths


class Threshold(NamedTuple):
    """A length at which the model does something else."""

    length: int  # tokens
    key: str  # in config.json


@dataclass
class Trial:
    """What came out so far."""

    planned: list[Threshold]  # from the shortest on
    left: list[str]  # thresholds that cannot be tried, and why
    agreed: list[Threshold] = field(default_factory=list)
    failed: dict[Threshold, str] = field(default_factory=dict)  # with what went wrong
    largest: float = 0.0  # difference, in nats

    def lines(self) -> Iterator[str]:
        """What agrees, and what was not tried."""
        if self.agreed:
            where = [
                f"beyond {threshold.length:,} ({threshold.key})" if threshold.key else f"behind {SHORT}"
                for threshold in self.agreed
            ]
            ways = "sampling, training and transformers' generate agree"
            yield f"model: {ways} on {BEYOND} tokens {', '.join(where)}, to {self.largest:.1g} nats"
        late = [
            f"{threshold.key} = {threshold.length:,}" * bool(threshold.key)
            + f" ({self.failed.get(threshold, f'{SECONDS} s were over')})"
            for threshold in self.planned
            if threshold not in self.agreed
        ]
        if late or self.left:
            yield f"model: not tried: {', '.join([*late, *self.left])}"


def list_length_thresholds(config: Mapping[str, Any]) -> list[Threshold]:
    """Those that a config (as a dictionary) names at any depth, from the shortest on; of equal lengths the first."""
    keys: dict[int, str] = {}
    for key, value in config.items():
        if isinstance(value, Mapping):
            keys |= {length: name for length, name in reversed(list_length_thresholds(value)) if length not in keys}
        elif KEYS.search(str(key)) and not OTHERS.search(str(key)) and type(value) is int and value > 0:
            keys.setdefault(value, key)
    return [Threshold(length, keys[length]) for length in sorted(keys)]


def plan_trial(config: Any) -> Trial:
    """Of a model's config, that of its text."""
    text = config.get_text_config()
    positions = getattr(text, "max_position_embeddings", None)
    config_thresholds = list_length_thresholds(text.to_dict())
    short = not any(
        threshold.length < SHORT + BEFORE + BEYOND for threshold in config_thresholds
    )  # else the first prompt is beyond one already
    trial = Trial([Threshold(SHORT + BEFORE, "")] if short else [], [])
    for threshold in config_thresholds:
        if threshold.length > LONGEST:
            trial.left.append(f"{threshold.key} = {threshold.length:,} (beyond {LONGEST:,} tokens)")
        elif positions is not None and threshold.length + BEYOND > positions:
            trial.left.append(f"{threshold.key} = {threshold.length:,} (the model has {positions:,} positions)")
        else:
            trial.planned.append(threshold)
    return trial


def iterate_loaded_model_lines(model: Any, tokenizer: Tokenizer) -> Iterator[str]:
    """A line each on its positions, its rows without a token, and how its texts and answers end."""
    from tasks.common import models
    from tasks.language.data import chat

    positions = chat.get_max_positions(model)
    spare = len(models.find_unused_head_rows(model, tokenizer))
    reads = "any number of tokens" if positions is None else f"{positions:,} tokens"
    rows = len((model.get_output_embeddings() or model.get_input_embeddings()).weight)
    unused = (
        f"{spare:,} of its {rows:,} rows have no token and are never sampled"
        if spare
        else f"each of its {rows:,} rows has a token"
    )
    yield f"model: {model.config.model_type}, {model.num_parameters():,} weights, reads {reads}; {unused}"
    ends = ", ".join(repr(tokenizer.decode([token])) for token in sorted(chat.end_tokens(model, tokenizer)))
    closed = tokenizer("text", add_special_tokens=True)["input_ids"]
    behind = closed[len(closed) - chat.count_trailing_tokens(tokenizer) :]
    note = (
        f"; its tokenizer puts {tokenizer.decode(behind)!r} behind every text, which prompts leave out"
        if behind
        else ""
    )
    yield f"model: an answer ends with {ends}{note}"


def measure_logp_differences(model: Any, prompt: list[int], pad: int) -> dict[str, float]:
    """How far a token's log-probabilities in training are from those of sampling, of one pass and of `generate`: the
    largest differences, in nats.

    A short prompt stands beside this one in the batch, so that rows are padded.
    """
    import torch

    from tasks.algorithms.language.completions import compute_token_logps, make_completions
    from tasks.algorithms.language.rollouts import sample_rollouts

    prompts = [prompt, prompt[:SHORT]]
    new = BEFORE + BEYOND
    with torch.no_grad():
        [drawn] = sample_rollouts(
            model, prompts, samples=2, max_new_tokens=new, temperature=1.0, end_tokens=(), seed=0, batch_size=2
        )
        trained = compute_token_logps(model, drawn.completions(prompts, pad)).cpu()
        whole = torch.tensor([prompt + drawn.responses()[0]], device=next(model.parameters()).device)
        logits = model(input_ids=whole, use_cache=False, logits_to_keep=new + 1).logits[0, :-1].float().cpu()
        alone = logits.log_softmax(-1).gather(1, drawn.tokens[0].unsqueeze(1)).squeeze(1)
        out = model.generate(
            whole[:, : len(prompt)],
            attention_mask=torch.ones_like(whole[:, : len(prompt)]),
            **{"do_sample": False, "max_new_tokens": new, "min_new_tokens": new, "pad_token_id": pad, "num_beams": 1},
            **{"return_dict_in_generate": True, "output_logits": True},
        )
        new_tokens = out.sequences[0, len(prompt) :].cpu()
        generated = (
            torch.stack(out.logits, dim=1)[0]
            .float()
            .cpu()
            .log_softmax(-1)
            .gather(1, new_tokens.unsqueeze(1))
            .squeeze(1)
        )
        again = compute_token_logps(model, make_completions([prompt], [0], [new_tokens.tolist()], pad)).cpu()[0]
    return {
        "sampling": (drawn.logps - trained).abs().max().item(),
        "a pass without a cache": (alone - trained[0]).abs().max().item(),
        "transformers' generate": (generated - again).abs().max().item(),
    }


def try_planned_thresholds(model: Any, tokenizer: Tokenizer, name: str, trial: Trial) -> None:
    """Try what is planned, and note what agrees; DataError with one line where two ways differ."""
    import torch

    tokens = sorted({*tokenizer.get_vocab().values()} - {*tokenizer.all_special_ids})
    draws = torch.randint(len(tokens), (LONGEST,), generator=torch.Generator().manual_seed(0)).tolist()
    for threshold in trial.planned:
        where = (
            f"beyond {threshold.length:,} tokens (config.json: {threshold.key})"
            if threshold.key
            else f"behind {SHORT} tokens"
        )
        wanted = (
            f": keep prompts and answers together below {threshold.length:,} tokens, or take another model"
            if threshold.key
            else ""
        )
        prompt = [tokens[draw] for draw in draws[: max(1, threshold.length - BEFORE)]]
        try:
            differences = measure_logp_differences(model, prompt, tokenizer.pad_token_id)
        except (
            AttributeError,
            IndexError,
            KeyError,
            NotImplementedError,
            RuntimeError,
            TypeError,
            ValueError,
        ) as error:
            trial.failed[threshold] = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
            continue
        for what, value in differences.items():
            if not value <= NEAR:
                raise DataError(
                    f"{name}: {where} a token's log-probability differs by {value:.2g} nats between training and "
                    f"{what}; expected the "
                    f"same{wanted}"
                )
            trial.largest = max(trial.largest, value)
        trial.agreed.append(threshold)


def iterate_model_trial_lines(config: Any) -> Iterator[str]:
    """What the trial of the model of the section `pretrained` says; DataError or ConfigError with one line where it
    fails.
    """
    from transformers.utils import logging

    from tasks.common import models
    from tasks.language.training import starting_model

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    name = config.path if config.init == "directory" else config.hub_id
    folder = (
        Path(config.path)
        if config.init == "directory"
        else _find_cached_model_folder(config.hub_id, config.hub_revision)
    )
    if folder is None:
        yield f"model: not tried, since the weights of {name} are not on this machine yet"
        return
    needed = 4 * _count_stored_weights(folder)
    free = _read_free_memory()
    if free is not None and needed > free:
        yield f"model: not tried, since it needs {needed / 1e9:.1f} GB of memory, and {free / 1e9:.1f} GB are free"
        return
    notes = list[str]()
    trial = None
    with suppress(_OverError), _limit_time(SECONDS):
        loaded, tokenizer = starting_model.load_model_from_folder(
            folder, f"params.yaml: pretrained.{'path' if config.init == 'directory' else 'hub_id'}"
        )
        model = models.prepare_model_on_device(loaded, tokenizer)
        notes = [*iterate_loaded_model_lines(model, tokenizer)]
        trial = plan_trial(model.config)
        try_planned_thresholds(model, tokenizer, name, trial)
    yield from notes
    yield from trial.lines() if trial else [f"model: not tried, since to load it took more than {SECONDS} s"]


class _OverError(BaseException):
    """The time is over; no library takes it for a fault of its own."""


@contextmanager
def _limit_time(seconds: float) -> Iterator[None]:
    """In the block _OverError is raised between two operations once the time is over."""

    def stop(*_: object) -> None:
        raise _OverError

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _find_cached_model_folder(hub_id: str, revision: str) -> Path | None:
    """The folder of a model of the hub on this machine; None where its weights are not there."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        folder = Path(snapshot_download(hub_id, revision=revision, local_files_only=True))
    except (LocalEntryNotFoundError, OSError, ValueError):
        return None
    index = folder / "model.safetensors.index.json"
    names = {*json.loads(index.read_text())["weight_map"].values()} if index.is_file() else {"model.safetensors"}
    return folder if all((folder / name).is_file() for name in names) else None


def _count_stored_weights(folder: Path) -> int:
    """How many weights the files hold; 0 where they cannot be read, which whoever loads them says better."""
    from safetensors import SafetensorError, safe_open

    count = 0
    with suppress(OSError, SafetensorError):
        for file in folder.glob("*.safetensors"):
            with safe_open(file, "pt") as opened:
                count += sum(math.prod(opened.get_slice(key).get_shape()) for key in opened.keys())  # noqa: SIM118
    return count


def _read_free_memory() -> int | None:
    """Bytes, as Linux says; None on other systems."""
    file = Path("/proc/meminfo")
    match = re.search(r"MemAvailable:\s+(\d+) kB", file.read_text()) if file.is_file() else None
    return 1024 * int(match[1]) if match else None
