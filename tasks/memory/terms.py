"""Bytes of a stage, term by term, as they follow from its shapes; what stands in memory together, and the sum.

Two things are never there at once: what sampling holds (keys and values, its logits), and what a pass with its
gradients does. So the peak is what is always there, and the larger of the two. Devices that divide a model first read
the whole of it, before all else. Of a pass activations, logits and gradients are counted in whole, as they stand
together where a batch is passed in parts. Activations are those that torch keeps for the backward pass of a layer of
transformers: arXiv:2205.05198 counts them for another layer; here a test compares them with torch's own saved tensors.
"""

from typing import Literal, NamedTuple

from tasks.memory.shapes import Shape
from tasks.memory.workloads import Workload

When = Literal["always", "training", "sampling", "loading"]
# bytes of: a weight in the model, its gradient, its master in fp32, one of the optimizer's moments
TRAINED = {"fp32": (4, 4, 0, 4), "bf16": (2, 4, 4, 4), "pure_bf16": (2, 2, 0, 2), "fp16": (2, 2, 0, 2)}
# logits that are kept whole, and in memory at once (tasks/algorithms/language/lm_head.py)
LARGE = 2**26
CHUNK = 2**24
BASE = "interpreter and libraries"
BUCKET = 2**25  # numbers that processes sum in one exchange (tasks/algorithms/common/distributed.py)
FLOAT = 4
DOUBLE = 8
# What glibc's heap held beyond what lived in it, as a share of activations, logits and gradients: a block that was
# freed is not given to one of the same size, since torch asks for aligned ones. Measured on one shape,
# docs/scaling/memory.md says how.
HOLES = {"one pass": 0.21, "several": 0.65}
LECTURES = {"ppo": (2, 2), "grpo": (1, 2)}  # models that are trained, and models that are frozen


class Term(NamedTuple):
    """A part of the memory of one device."""

    name: str
    bytes: int
    when: When
    how: str  # the product that it is


def list_memory_terms(work: Workload, base: int = 0) -> list[Term]:
    """All terms above zero. `base` is what the process needs without a model, on a CPU."""
    all_terms = [
        *([Term(BASE, base, "always", "measured as this was asked")] if base else []),
        *_list_training_state_terms(work),
        *_list_frozen_model_terms(work),
        *_list_training_pass_terms(work),
        *_list_sampling_terms(work),
    ]
    return [term for term in all_terms if term.bytes]


def compute_peak_memory(all_terms: list[Term]) -> tuple[int, When]:
    """The sum at the peak, and which of the phases it is in."""
    phases: tuple[When, ...] = ("training", "sampling")
    sums = {phase: sum(term.bytes for term in all_terms if term.when in ("always", phase)) for phase in phases}
    sums["loading"] = sum(term.bytes for term in all_terms if term.when == "loading" or term.name == BASE)
    largest = max(sums, key=lambda phase: sums[phase])
    return sums[largest], largest


def estimate_lecture_memory(work: Workload) -> dict[str, int]:
    """The estimate of the lectures: weights and Adam's two moments of trained models, weights of frozen ones, and
    nothing else.
    """
    weights = work.shape.weights * TRAINED[work.precision][0]
    trained, frozen = LECTURES[work.stage]
    names = (("weights", "optimizer"), ("critic's weights", "critic's optimizer"))[:trained]
    of_trained = {name: weights * factor for pair in names for name, factor in zip(pair, (1, 2), strict=True)}
    return of_trained | dict.fromkeys(("reference", "reward model")[:frozen], weights)


def count_trained_weights(work: Workload) -> int:
    """Weights that the optimizer updates: all, or those of the adapter."""
    return work.shape.adapter(work.rank) if work.rank else work.shape.weights


def _list_training_state_terms(work: Workload) -> list[Term]:
    """Weights, masters, optimizer and gradients of the policy and its critic."""
    # of the moments; weights and gradients are whole
    shape = work.shape
    split = work.devices if work.shard else 1
    if not work.trained:
        return [
            Term(
                "weights",
                shape.weights * _get_bytes_per_number(work),
                "always",
                f"{shape.weights:,} x {_get_bytes_per_number(work)} bytes",
            )
        ]
    if work.shard == "model" and work.devices > 1:
        return _list_sharded_state_terms(work)
    weight, gradient, master, moment = TRAINED[work.precision]
    trained = count_trained_weights(work)
    shard = f" / {split} devices" if split > 1 else ""
    largest = max(BUCKET, shape.vocabulary * shape.width)  # a weight is in one bucket
    state_terms = [_make_product_term("weights", shape.weights + (trained if work.rank else 0), weight)]
    models = [("", trained)]
    if work.critic:
        critic = trained if work.rank else shape.body
        state_terms.append(_make_product_term("critic's weights", critic, weight))
        models.append(("critic's ", critic))
    for whose, count in models:
        single = (count if work.rank else shape.hidden()) if work.optimizer == "muon" else 0  # weights with one moment
        state_terms += [
            _make_product_term(f"{whose}masters in fp32", count, master),
            _make_product_term(f"{whose}optimizer", 2 * count - single, moment, split, shard),
            _make_product_term(f"{whose}gradients", count, gradient, when="training"),
        ]
    if work.best:
        state_terms.append(_make_product_term("best weights", trained, master or weight))
    if work.devices > 1:
        state_terms.append(_make_product_term("bucket of gradients", min(trained, largest), FLOAT, when="training"))
    state_terms.append(_make_product_term("sums of gradients", work.variances * trained, FLOAT, when="training"))
    return state_terms


def _list_sharded_state_terms(work: Workload) -> list[Term]:
    """The same where devices divide the model: rows of each weight, and what is gathered of it at a time."""
    shape = work.shape
    rows = f" / {work.devices} devices"
    weight, _, master, moment = TRAINED[work.precision]
    kept = master or weight
    outside = shape.weights - shape.layers * shape.layer  # embeddings, head and last norm are gathered as one
    near = 2 * shape.layer + outside
    state_terms = []
    for whose, count in (("", shape.weights), *([("critic's ", shape.body)] if work.critic else [])):
        single = shape.hidden() if work.optimizer == "muon" else 0
        state_terms += [
            _make_product_term(f"{whose}weights", count, kept, work.devices, rows),
            _make_product_term(f"{whose}optimizer", 2 * count - single, moment, work.devices, rows),
            _make_product_term(f"{whose}gradients", count, kept, work.devices, rows, when="training"),
            _make_product_term(f"{whose}gathered weights", near, weight, when="training"),
            _make_product_term(
                f"{whose}gradients that are summed", outside + shape.layer, weight + 2 * FLOAT, when="training"
            ),
            _make_product_term(f"{whose}weights as they are read", count, max(kept, weight), when="loading"),
        ]
    if work.sampled_per_device:
        state_terms.append(_make_product_term("gathered policy", shape.weights, weight, when="sampling"))
    if work.best and work.device == "cpu":
        state_terms.append(_make_product_term("best weights", shape.weights, kept))
    state_terms.append(_make_product_term("sums of gradients", work.variances * shape.weights, FLOAT, when="training"))
    return state_terms


def _list_frozen_model_terms(work: Workload) -> list[Term]:
    """Models that only read: the reference (with LoRA the policy without its adapter, for DPO known beforehand), the
    reward model.
    """
    frozen_terms = []
    if work.reference and not work.rank:
        frozen_terms.append(_make_product_term("reference", work.shape.weights, _get_bytes_per_number(work)))
    if work.scorer is not None:
        frozen_terms.append(_make_product_term("reward model", work.scorer.weights, _get_bytes_per_number(work)))
    return frozen_terms


def _list_training_pass_terms(work: Workload) -> list[Term]:
    """What one pass with gradients keeps."""
    if not work.trained:
        return []
    activation_bytes, how = compute_activation_bytes(work)
    graphs = 2 if work.stage == "ppo" else 1  # the losses of policy and critic stand together
    pass_terms = [
        Term("activations", activation_bytes * graphs, "training", how + (" x 2 models" if graphs == 2 else "")),
        Term("logits", *_compute_logits_memory(work)),
    ]
    if work.device == "cpu" and not (work.shard == "model" and work.devices > 1):  # which gives back what it frees
        share = HOLES["several" if work.parts > 1 or work.stage in ("ppo", "reinforce") else "one pass"]
        gradients = sum(term.bytes for term in _list_training_state_terms(work) if term.name.endswith("gradients"))
        kept = sum(term.bytes for term in pass_terms) + gradients
        pass_terms.append(
            Term("holes in the heap", round(share * kept), "training", f"{share:.0%} of a pass, as measured")
        )
    return pass_terms


def compute_activation_bytes(work: Workload) -> tuple[int, str]:
    """Bytes that the layers keep for the backward pass of one pass of one device, and their product in words."""
    shape = work.shape
    size = _get_bytes_per_number(work)
    rows = work.rows
    apart = work.whole or work.checkpointing  # no prompt is shared
    length = work.prompt + work.answer - (0 if apart else 1)  # behind a shared prompt the last token is not read
    read = length if apart else work.answer - 1
    tokens = rows * read + (0 if apart else work.prompts * work.prompt)
    per = count_layer_bytes_per_token(shape, size, work.rank)
    last = _count_norm_bytes_per_token(shape, size, bool(work.rank))  # behind the layers
    # A mask is one number for each pair of tokens in each layer; keys and values are then repeated for all heads.
    attended = rows * size * (read * length + 2 * length * shape.query_width - 2 * read * shape.key_width)
    if work.checkpointing:
        kept = tokens * shape.layers * size * shape.width + tokens * (per + last) + attended
        return kept, f"{tokens:,} tokens x {shape.layers} layers x {size * shape.width:,} bytes, and one layer in whole"
    kept = tokens * (shape.layers * per + last) + shape.layers * attended
    return kept, f"{tokens:,} tokens x {shape.layers} layers x {per:,} bytes, and masks"


def count_layer_bytes_per_token(shape: Shape, size: int, rank: int = 0) -> int:
    """Bytes that a layer keeps for each token without a mask, at `size` bytes a number.

    Two norms; queries, keys and values as attention reads them, its output and the logarithm of its sum; with a gate:
    the gate, what it becomes, the other half and their product; without: the four numbers of GELU and its output. LoRA
    adds its inner states.
    """
    q = shape.query_width
    k = shape.key_width
    f = shape.inner
    attention = size * (2 * q + 2 * k) + FLOAT * shape.heads
    if shape.kind == "qwen3":
        attention += (FLOAT + size) * (q + k) + FLOAT * (shape.heads + shape.key_heads)
    if shape.kind == "gpt_neox":  # queries and keys stand beside what rotary positions make of them
        attention += size * (q + k)
    forward = {"gpt2": 5 * f, "gpt_neox": 2 * f}.get(shape.kind, 4 * f) * size
    return (
        2 * _count_norm_bytes_per_token(shape, size, bool(rank))
        + attention
        + forward
        + size * rank * len(shape.matrices)
    )


def _count_norm_bytes_per_token(shape: Shape, size: int, frozen: bool) -> int:
    """Llama's norm keeps its input in fp32, a scale, what its weights multiply (for their gradient), and its output."""
    if not shape.gated:
        return 2 * size * shape.width + 2 * size
    return (FLOAT + size * (1 if frozen else 2)) * shape.width + FLOAT


def _compute_logits_memory(work: Workload) -> tuple[int, When, str]:
    """Logits of one pass with what stands beside them: log-probabilities, the gradient, copies where a mask picks
    tokens.
    """
    shape = work.shape
    size = _get_bytes_per_number(work)
    answers = work.rows * work.answer
    positions = work.rows * (work.prompt + work.answer) if work.whole else answers
    if positions * shape.vocabulary >= LARGE and shape.vocabulary:
        states = (positions + 2 * answers) * shape.width * size
        wide = FLOAT * shape.embedding * (not work.rank)  # the head's gradient, summed in fp32
        chunk = CHUNK * (2 * FLOAT + (size if size < FLOAT else 0))
        return states + wide + chunk, "training", "states, a chunk of logits, and the head's gradient"
    if work.stage == "reward_model" and not work.scores_tokens:
        return 0, "training", "a head on the last state has none"
    copies = positions * size + answers * 2 * FLOAT + (0 if work.whole else answers * size)
    return copies * shape.vocabulary, "training", f"{answers:,} tokens x {shape.vocabulary:,}, and copies of them"


def _list_sampling_terms(work: Workload) -> list[Term]:
    """What answers hold while they are sampled: keys and values, and the last token's distribution."""
    rows = work.sampled_per_device
    if not rows:
        return []
    shape = work.shape
    size = _get_bytes_per_number(work)
    prompts = -(-work.sampled_per_device // work.samples)
    shared = work.device == "cpu" and work.samples > 1  # tasks/algorithms/language/shared_prompts.py
    tokens = rows * work.answer + work.prompt * (prompts if shared else rows + prompts)
    cache = 2 * size * shape.key_width * shape.layers * tokens
    chosen = rows * shape.vocabulary * (size + 2 * FLOAT + 2 * DOUBLE)
    read = prompts * work.prompt * size * (4 * shape.width + 2 * shape.inner)
    sampling_terms = [
        Term(
            "keys and values", cache, "sampling", f"{tokens:,} tokens x {shape.layers} layers x 2 x {shape.key_width:,}"
        ),
        Term("reading the prompts", read, "sampling", f"{prompts * work.prompt:,} tokens in one layer"),
        Term("distribution", chosen, "sampling", f"{rows:,} answers x {shape.vocabulary:,} x {size + 24} bytes"),
    ]
    if work.device == "cpu" and not work.trained:
        kept = sum(term.bytes for term in sampling_terms)
        sampling_terms.append(Term("holes in the heap", round(HOLES["one pass"] * kept), "sampling", "as in training"))
    return sampling_terms


def _get_bytes_per_number(work: Workload) -> int:
    """Bytes of a number that the model computes with."""
    return TRAINED[work.precision][0]


def _make_product_term(
    name: str, count: int, size: int, split: int = 1, shard: str = "", when: When = "always"
) -> Term:
    return Term(name, -(-count * size // split), when, f"{count:,} x {size} bytes{shard}")
