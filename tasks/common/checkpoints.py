"""Training that can be killed at any moment and goes on from its last checkpoint, with the same result to the last bit.

A checkpoint is one safetensors file under mlruns/checkpoints: outside the stage's outs, which DVC removes before a run.
Only the same training (`digest`) goes on from it, and it is deleted when the stage has written its outs. Of several
processes the first writes it for all: weights, optimizers and generators are the same on each.
"""

import hashlib
import json
import os
import platform
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from shutil import rmtree
from typing import Protocol

import torch
from pydantic import BaseModel
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from tasks.algorithms.common import distributed, matmul_backend
from tasks.algorithms.common.errors import TrainingError
from tasks.algorithms.common.optimizer import check_finite
from tasks.algorithms.common.precision import TrainedWeights
from tasks.common import models
from tasks.common.pausing import Pause
from tasks.common.tracking import Row, run_and_record_training

FOLDER = Path("mlruns/checkpoints")
EVERY_SECONDS = 30.0  # between two checkpoints; neither this nor SHARE changes an out
LIBRARIES = ("torch", "transformers", "peft", "tokenizers", "numpy", "math-verify", "sympy")  # that can change a result
SHARE = 0.05  # of the time, at most, goes into checkpoints: a large model's are further apart


class Stateful(Protocol):
    """Anything whose state is a flat mapping of tensors, as a torch module's is. Loading copies what it keeps."""

    def state_dict(self) -> Mapping[str, Tensor]:
        """The state; tensors may be views of the live ones."""
        ...

    def load_state_dict(self, state: Mapping[str, Tensor], /) -> object:
        """Load what `state_dict` returned."""
        ...


State = Mapping[str, Stateful | torch.Generator]


class ResumableTraining:
    """One stage's training and its checkpoint file; made by `open_resumable_training`."""

    def __init__(self, name: str, key: str) -> None:
        self.name = name
        self.key = key
        self.path = FOLDER / f"{name}.safetensors"
        self.ours = False  # whether the file is this training's
        self.warned = False

    def run(
        self,
        fit: Callable[[int], Iterable[Row]],
        state: State,
        total: int,
        *,
        ended: bool = False,
        steps_a_row: int = 1,
    ) -> list[Row]:
        """Drain `fit(start)`, which yields the rows of steps start + 1 to `total`, into tracking; returns all rows.

        With `ended` there is a checkpoint after the last row too: for a stage that has more to train after this.
        `state` names all that a step changes, in place: models, optimizers, generators, running means. (torch's own
        generator is added to it.) `fit` is called when the state has been loaded, and must yield between two steps
        only.

        TrainingError with one line naming the step (a row may stand for several) where `fit` cannot go on, or where a
        metric or a weight is not finite. So no checkpoint and no out holds such a number. WaitingError where the
        training is to pause (tasks/common/pausing.py); it goes on from there.
        """
        state = {**state, **_collect_global_generators()}
        earlier = self._load_checkpoint(state)
        for part in state.values():
            if isinstance(part, TrainedWeights):
                part.broadcast()
        rows = list(earlier)
        pause = Pause.asked()
        try:
            if pause is not None and len(rows) >= pause.step(total):
                pause.end(rows, total)
            run_and_record_training(
                self._iterate_with_checkpoints(fit(len(earlier)), rows, state, total, pause), total, earlier
            )
        except TrainingError as error:
            raise TrainingError(f"{self.name}: step {(len(rows) + 1) * steps_a_row}: {error}") from None
        if ended and len(rows) > len(earlier):
            self._write(rows, state)
        return rows

    def remove(self) -> None:
        """Delete the checkpoint, unless it is another training's."""
        if self.ours and distributed.is_main_rank():
            self.path.unlink(missing_ok=True)

    def _iterate_with_checkpoints(
        self, steps: Iterable[Row], rows: list[Row], state: State, total: int, pause: Pause | None
    ) -> Iterator[Row]:
        """Pass on the rows of the steps after `rows`, and add each to `rows` once all its numbers are known to be
        finite.
        """
        due = time.monotonic() + EVERY_SECONDS
        for row in steps:
            for name, value in row.items():
                check_finite(name, value)
            if pause is not None:
                pause.check(row)
            started = time.monotonic()
            pauses = pause is not None and len(rows) + 1 == pause.step(total)
            writes = distributed.broadcast_decision(started >= due) or pauses
            if writes or len(rows) + 1 == total:
                _check_weights_finite(state)
            rows.append(row)
            if writes:
                self._write(rows, state)
                ended = time.monotonic()
                due = ended + max(EVERY_SECONDS, (ended - started) / SHARE)
            yield row
            if pause is not None and pauses:
                pause.end(rows, total)

    def _load_checkpoint(self, state: State) -> list[Row]:
        """Load the checkpoint into `state`; the rows so far, none if there is no checkpoint of this training."""
        if not self.path.exists():
            return []
        try:
            with safe_open(self.path, "pt") as file:
                is_ours = (file.metadata() or {}).get("key") == self.key
                tensors = {name: file.get_tensor(name) for name in file.keys()} if is_ours else {}  # noqa: SIM118
        except (OSError, SafetensorError) as error:
            self._print_note(f"cannot be read ({error}); training starts afresh")
            return []
        if not is_ours:
            self._print_note(
                "is of another training (other parameters, inputs, code, machine or number of processes); this one "
                "starts afresh"
            )
            return []
        rows: list[Row] = json.loads(bytes(tensors.pop("rows").tolist()))
        for name, part in state.items():
            mine = {key.removeprefix(f"{name}/"): t for key, t in tensors.items() if key.startswith(f"{name}/")}
            if isinstance(part, torch.Generator):
                part.set_state(mine["state"].clone())
            else:
                part.load_state_dict(mine)
        self.ours = True
        self._print_note(f"resumed after step {len(rows)}")
        return rows

    def _write(self, rows: list[Row], state: State) -> None:
        """Replace the checkpoint in one step: a reader finds the old one or the new one.

        A full disk is not an error.
        """
        tensors = _collect_state_tensors(state) if distributed.is_main_rank() or distributed.is_state_sharded() else {}
        if not distributed.is_main_rank():
            return
        partial = self.path.with_suffix(".partial")  # a folder: safetensors writes to a random name in it first
        try:
            rmtree(partial, ignore_errors=True)  # of a run that was killed here
            partial.mkdir(parents=True)
            written = partial / "checkpoint"
            save_file({"rows": _encode_text_tensor(json.dumps(rows)), **tensors}, written, {"key": self.key})
            with written.open("rb") as file:
                os.fsync(file.fileno())
            written.replace(self.path)
            self.ours = True
        except (OSError, SafetensorError) as error:
            if not self.warned:
                self._print_note(f"cannot be written ({error}); training goes on, but could not be resumed")
            self.warned = True
        rmtree(partial, ignore_errors=True)

    def _print_note(self, what: str) -> None:
        if distributed.is_main_rank():
            print(f"checkpoint {self.path} {what}", file=sys.stderr, flush=True)


@contextmanager
def open_resumable_training(name: str, config: BaseModel, *inputs: Path) -> Iterator[ResumableTraining]:
    """A stage's training, resumed if it was killed; `name` is the stage's, and `inputs` are all files that it reads.

    Write the outs inside the `with`: only when it ends without an error is the checkpoint removed.
    """
    training = ResumableTraining(name, compute_training_digest(config, inputs))
    yield training
    training.remove()


class Best:
    """The weights with the highest score so far; part of a training's state where the best are kept, not the last."""

    def __init__(self) -> None:
        self.score = -float("inf")
        self.weights: dict[str, Tensor] = {}

    def update_if_better(self, score: float, model: Stateful) -> None:
        """Keep a copy of the model's weights if the score is higher than any before; NaN never is."""
        if score > self.score:
            self.score = score
            self.weights = {name: weight.detach().clone() for name, weight in model.state_dict().items()}

    def restore(self, model: Stateful) -> None:
        """Give the model its best weights back; it stays as it is if none were offered."""
        if self.score > -float("inf"):
            model.load_state_dict(self.weights)

    def state_dict(self) -> dict[str, Tensor]:
        """The score and the weights."""
        return {"score": torch.tensor(self.score, dtype=torch.float64), **self.weights}

    def load_state_dict(self, state: Mapping[str, Tensor], /) -> None:
        """Load what `state_dict` returned."""
        self.score = state["score"].item()
        self.weights = {name: weight.clone() for name, weight in state.items() if name != "score"}


def _check_weights_finite(state: State) -> None:
    """TrainingError where a weight of a model in the state is no finite number."""
    for name, part in state.items():
        if isinstance(part, torch.nn.Module | TrainedWeights):
            for key, tensor in part.state_dict().items():
                if not tensor.isfinite().all():
                    raise TrainingError(f"{name}'s weight {key} is not finite: training has diverged")


def compute_training_digest(config: BaseModel, inputs: Iterable[Path]) -> str:
    """A hash of all that decides a training's result: parameters, inputs, code, library versions, processor, products,
    threads, processes.
    """
    device = models.choose_device()
    chip = torch.cuda.get_device_name(device) if device.startswith("cuda") else torch.backends.cpu.get_cpu_capability()
    parts = [config.model_dump_json(), device, chip, platform.machine(), str(torch.get_num_threads())]
    parts += [f"products by {matmul_backend.get_or_measure_matmul_library()}"]
    parts += [metadata.version(library) for library in LIBRARIES]
    parts += [f"{distributed.get_world_size()} processes"] if distributed.get_world_size() > 1 else []
    parts += ["divided model"] if distributed.is_model_sharded() else []
    for path in (*inputs, _code()):
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if file.is_file() and (path in inputs or file.suffix in (".py", ".json")):
                with file.open("rb") as content:
                    parts += [str(file.relative_to(path)), hashlib.file_digest(content, "sha256").hexdigest()]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _code() -> Path:
    """What says of which code the training is: data/code/STAGE.json of a stage, or all modules of the package."""
    spec = sys.modules["__main__"].__spec__
    recorded = Path(f"data/code/{spec.name.rpartition('.')[2]}.json") if spec is not None else None
    return recorded if recorded is not None and recorded.is_file() else Path(__file__).parents[1]


def _collect_global_generators() -> dict[str, torch.Generator]:
    generators = {"torch": torch.default_generator}
    if torch.cuda.is_available():
        generators["cuda"] = torch.cuda.default_generators[torch.cuda.current_device()]
    return generators


def _encode_text_tensor(text: str) -> Tensor:
    return torch.frombuffer(bytearray(text.encode()), dtype=torch.uint8)


def _collect_state_tensors(state: State) -> dict[str, Tensor]:
    """All tensors of the state by `<name>/<key>`. Tied weights stand there twice: safetensors refuses shared memory."""
    tensors: dict[str, Tensor] = {}
    seen: set[int] = set()
    for name, part in state.items():
        inner = {"state": part.get_state()} if isinstance(part, torch.Generator) else part.state_dict()
        for key, tensor in inner.items():
            address = tensor.untyped_storage().data_ptr()
            tensors[f"{name}/{key}"] = tensor.clone() if address in seen else tensor.contiguous()
            seen.add(address)
    return tensors
