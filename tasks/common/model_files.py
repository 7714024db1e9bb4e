"""Models and tokenizers that somebody else made: whole, finite and without pickles, or one line that says what is
wrong.

transformers itself gives random values to weights that a file lacks, drops surplus ones, and only warns.
"""

import json
import resource
import subprocess
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol, TypeVar

import torch

from tasks.common import adapters
from tasks.common.config_faults import describe_missing_model
from tasks.common.errors import DataError, StageError
from tasks.common.tokenizers import Tokenizer

OTHER_SHAPES = "has weights of other shapes than config.json says"
SHOWN = 3  # names shown of a longer list
# for a chat template to render a question: more is an attack, or an endless loop
SECONDS = 20
MEMORY = 2**30
LONGEST = 2**20  # characters that it may make of a question and an answer
# Of generation_config.json: what has no effect unless do_sample is true, what ends an answer, and tokens.
OF_SAMPLING = {"temperature", "top_p", "min_p", "top_h", "typical_p", "top_k", "epsilon_cutoff", "eta_cutoff"}
TOKENS = {"bos_token_id", "eos_token_id", "pad_token_id"}
ENDS = {*TOKENS, "stop_strings", "max_length", "max_new_tokens"}
QUESTION = "How many apples are 2 and 3 apples?"
ANSWER = "There are 5 apples."


class NamedWeights(Protocol):
    """A model whose weights have names."""

    base_model_prefix: str  # of the names of its body's weights

    def named_parameters(self) -> Iterator[tuple[str, torch.nn.Parameter]]:
        """The weights with their names."""
        ...

    def parameters(self) -> Iterator[torch.nn.Parameter]:
        """The weights."""
        ...

    def named_modules(self) -> Iterator[tuple[str, torch.nn.Module]]:
        """All parts with their names."""
        ...

    def get_submodule(self, target: str) -> torch.nn.Module:
        """The part of this name."""
        ...


Model = TypeVar("Model", bound=NamedWeights)
Loaded = TypeVar("Loaded", covariant=True)


class AutoClass(Protocol[Loaded]):
    """One of transformers' Auto classes, or a class of models."""

    def from_pretrained(self, source: str | Path, **arguments: Any) -> tuple[Loaded, Mapping[str, Any]]:
        """The model, and the report about its files (`output_loading_info`)."""
        ...


def load_checked_model(
    kind: AutoClass[Model], source: str | Path, new: Collection[str] = (), **arguments: Any
) -> Model:
    """A model of an Auto class `kind`, in fp32 unless `arguments` have a dtype, from a folder in Hugging Face layout
    or, with a revision, a hub id.

    `new` are weights of a head: the folder may lack them, or have another head. DataError with one line unless the
    weights fit config.json and are finite. Settings of generation that transformers would not save again are left out,
    which a line on standard error says.
    """
    if isinstance(source, Path):
        arguments["local_files_only"] = True
        _check_weight_files(source)
        _check_layer_count(source)
    adapted = isinstance(source, Path) and adapters.has_adapter(source)
    dtype = arguments.pop("dtype", "float32")
    at = {name: value for name, value in arguments.items() if name in ("revision", "local_files_only")}
    settings = _load_sound_generation_config(source, at)
    with _raise_as_data_error(source):
        model, report = kind.from_pretrained(
            source,
            use_safetensors=True,
            trust_remote_code=False,
            output_loading_info=True,
            ignore_mismatched_sizes=bool(new),  # another head; what else does not fit is refused below
            generation_config=settings,
            **{"dtype": adapters.choose_loading_dtype(dtype) if adapted else dtype, **adapters.NONE, **arguments},
        )
        if adapted:
            adapters.merge_saved_adapter(model, Path(source), dtype)
    _raise_for_names(
        source, "lacks weights of the model that config.json describes", {*report["missing_keys"]} - {*new}
    )
    body = (
        f"{model.base_model_prefix}."  # with another head than it was saved with, the old one's weights are left over
    )
    unused = [name for name in report["unexpected_keys"] if not new or name.startswith(body)]
    _raise_for_names(source, "has weights that the model of config.json does not", unused)
    _raise_for_names(source, OTHER_SHAPES, {name for name, *_ in report["mismatched_keys"]} - {*new})
    broken = [name for name, weight in model.named_parameters() if not torch.isfinite(weight).all()]
    _raise_for_names(source, "has weights that are not finite numbers", broken)
    return model


def _load_sound_generation_config(source: str | Path, at: Mapping[str, Any]) -> Any:
    """The model's settings of generation without those that do not fit together; None where there are none, or all are
    sound.

    Many models ship a temperature beside `do_sample: false`, which transformers reads and does not write. What ends an
    answer is kept.
    """
    file, settings = _read_generation_settings(source, at)
    ends = settings.get("eos_token_id")
    if not all(isinstance(token, int | None) for token in (ends if isinstance(ends, list) else [ends])):
        raise DataError(f"{source}: {file}: eos_token_id is {str(ends)[:40]!r}; expected a token, or several")
    sampling = OF_SAMPLING if settings.get("do_sample") is not True else set()
    for dropped in (set(), sampling, {*settings} - ENDS, {*settings} - TOKENS, {*settings} - {"eos_token_id"}):
        kept = {name: value for name, value in settings.items() if name not in dropped}
        if (sound := _make_generation_config(kept)) is not None:
            break
    left = sorted({*settings} - {*kept})
    if left:
        why = f"{file}: settings that do not fit together are left out"
        print(f"{source}: {why}: {', '.join(left)}", file=sys.stderr, flush=True)
    return sound if left else None


def _read_generation_settings(source: str | Path, at: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """The file that holds settings of generation, in old models config.json, and those that it holds."""
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import EntryNotFoundError
    from transformers import GenerationConfig

    settings = {*GenerationConfig().to_dict()} - {"transformers_version"}
    for file in ("generation_config.json", "config.json"):
        with _raise_as_data_error(f"{source}: {file}"), suppress(EntryNotFoundError, FileNotFoundError):
            path = source / file if isinstance(source, Path) else Path(hf_hub_download(source, file, **at))
            content: dict[str, Any] = json.loads(path.read_text())
            return file, {name: value for name, value in content.items() if name in settings}
    return "config.json", {}


def _make_generation_config(values: Mapping[str, Any]) -> Any:
    """Settings of generation; None where transformers would not save them."""
    from transformers import GenerationConfig

    try:
        config = GenerationConfig(**values)
        config.validate(strict=True)
    except (TypeError, ValueError, AttributeError):
        return None
    return config


def load_model_config(source: str | Path, **arguments: Any) -> Any:
    """What config.json says of a model; DataError with one line if it cannot be read."""
    from transformers import AutoConfig

    if isinstance(source, Path):
        arguments["local_files_only"] = True
    with _raise_as_data_error(source):
        return AutoConfig.from_pretrained(source, trust_remote_code=False, **arguments)


def load_tokenizer(source: str | Path, **arguments: Any) -> Tokenizer:
    """The tokenizer beside a model, of several chat templates with the default one; DataError with one line if none can
    be read.
    """
    from transformers import AutoTokenizer

    if isinstance(source, Path):
        arguments["local_files_only"] = True
    with _raise_as_data_error(source):
        tokenizer: Tokenizer = AutoTokenizer.from_pretrained(source, trust_remote_code=False, **arguments)
        if isinstance(tokenizer.chat_template, dict):
            tokenizer.chat_template = tokenizer.get_chat_template()
    return tokenizer


def check_tokenizer(source: str | Path, tokenizer: Tokenizer, rows: int) -> None:
    """DataError with one line unless it has an end token, no token beyond the model's `rows`, and a usable template."""
    if tokenizer.eos_token_id is None:
        raise DataError(f"{source}: the tokenizer has no end token; expected an eos_token in tokenizer_config.json")
    beyond = {text: token for text, token in tokenizer.get_vocab().items() if token >= rows}
    if beyond:
        text, token = max(beyond.items(), key=lambda item: item[1])
        raise DataError(
            f"{source}: the tokenizer's token {token} ({text!r}) is beyond the model's {rows} embeddings; "
            "expected the tokenizer that the model was trained with"
        )
    if tokenizer.chat_template is not None:
        _check_chat_template(source, tokenizer)


def _check_weight_files(folder: Path) -> None:
    """Before anything reads the weights, check that they are there as safetensors."""
    if adapters.has_adapter(folder) and not (folder / adapters.WEIGHTS).is_file():
        raise DataError(f"{folder}: holds {adapters.FILE}, but no {adapters.WEIGHTS}, as which an adapter is expected")
    weight_files = [file for file in folder.glob("*.safetensors") if file.name != adapters.WEIGHTS]
    if weight_files:
        return
    pickled = sorted(path.name for pattern in ("*.bin", "*.pt", "*.pth", "*.ckpt") for path in folder.glob(pattern))
    if adapters.has_adapter(folder) and not pickled:
        raise DataError(f"{folder}: {describe_missing_model(folder)}")
    what = f"has its weights in {pickled[0]}, a pickle, which can run any code" if pickled else "holds no weights"
    raise DataError(f"{folder}: {what}; expected model.safetensors")


def _check_layer_count(folder: Path) -> None:
    """Before a model is built, check that it has not more layers than weights: a million of them would take an hour and
    all memory.
    """
    from safetensors import safe_open

    layers = getattr(load_model_config(folder).get_text_config(), "num_hidden_layers", None) or 0
    with _raise_as_data_error(folder):
        weights = 0
        for file in folder.glob("*.safetensors"):
            with safe_open(file, "pt") as opened:
                weights += len(opened.keys())
    if layers > weights:
        raise DataError(f"{folder}: config.json describes {layers} layers, and the folder holds {weights} weights")


def _raise_for_names(source: str | Path, what: str, names: Collection[str]) -> None:
    if names:
        shown = ", ".join(sorted(names)[:SHOWN])
        raise DataError(f"{source}: {what}: {shown}{f' and {len(names) - SHOWN} more' if len(names) > SHOWN else ''}")


@contextmanager
def _raise_as_data_error(source: str | Path) -> Iterator[None]:
    try:
        yield
    except StageError:
        raise
    except Exception as error:  # transformers, safetensors, tokenizers and JSON each raise their own
        if "ignore_mismatched_sizes" in str(error):
            raise DataError(f"{source}: {OTHER_SHAPES}") from None
        message = " ".join(str(error).split())[:300]
        raise DataError(f"{source}: cannot be loaded ({type(error).__name__}: {message})") from None


def _check_chat_template(source: str | Path, tokenizer: Tokenizer) -> None:
    """Render it in a child process with little time and memory: a template is a program that somebody else wrote."""
    chats: list[list[dict[str, str]]] = [[{"role": "user", "content": QUESTION}]]
    chats.append([*chats[0], {"role": "assistant", "content": ANSWER}])
    request = {"template": tokenizer.chat_template, "tokens": tokenizer.special_tokens_map, "chats": chats}
    command = [sys.executable, "-m", "tasks.common.model_files"]
    try:
        opening = subprocess.run(
            command, input=json.dumps(request), capture_output=True, text=True, check=False, timeout=3 * SECONDS
        )
    except subprocess.TimeoutExpired:
        raise DataError(f"{source}: its chat template does not come to an end") from None
    if opening.returncode < 0:
        raise DataError(f"{source}: its chat template takes more than {SECONDS} s, or {MEMORY >> 20} MiB")
    if opening.returncode:
        message = " ".join((opening.stderr.splitlines() or ["?"])[-1].split())[:300]
        raise DataError(f"{source}: its chat template cannot be rendered ({message})")
    opened, whole = json.loads(opening.stdout)
    if QUESTION not in opened or QUESTION not in whole or ANSWER not in whole.partition(QUESTION)[2]:
        raise DataError(f"{source}: its chat template drops the question or the answer")


def _render_within_limits(request: dict[str, Any]) -> Sequence[str]:
    """The chats as the template renders them, with limits of time and memory on this process."""
    from transformers.utils.chat_template_utils import render_jinja_template

    memory_used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (memory_used + MEMORY, memory_used + MEMORY))
    texts: list[str] = []
    for chat, opens in zip(request["chats"], (True, False), strict=True):
        rendered, _ = render_jinja_template(
            [chat], chat_template=request["template"], add_generation_prompt=opens, **request["tokens"]
        )
        if len(rendered[0]) > LONGEST:
            raise ValueError(f"it makes {len(rendered[0])} characters of a question of {len(QUESTION)}")
        texts += rendered
    return texts


if __name__ == "__main__":
    try:
        json.dump(_render_within_limits(json.load(sys.stdin)), sys.stdout)
    except Exception as error:  # whatever Jinja or the template itself raises; MemoryError too
        sys.exit(f"{type(error).__name__}: {error}")
