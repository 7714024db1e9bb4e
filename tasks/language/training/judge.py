"""How the answers of a policy are judged: by its stage's reward, or by what the data set of a prompt asks for."""

import json
import math
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from tasks.algorithms.language import accumulation, reward_model, step_rewards
from tasks.algorithms.language.causal_lm import PretrainedModel
from tasks.algorithms.language.completions import Completions
from tasks.algorithms.language.experience import StepRewards
from tasks.common import models, tables
from tasks.common.errors import ConfigError, DataError
from tasks.common.tables import Record
from tasks.common.tokenizers import Tokenizer
from tasks.language.configs.parts.names import list_reward_names
from tasks.language.configs.parts.policies import SamplingConfig
from tasks.language.configs.parts.python_rewards import BY_MODEL, is_python_reward
from tasks.language.data import chat
from tasks.language.rewards import reward_model_files, weighted_rewards
from tasks.language.rewards.answers import remove_thinking_blocks
from tasks.language.rewards.by_name.rubric import rubric
from tasks.language.rewards.python_functions import PythonFunction
from tasks.language.rewards.reward import AnsweredProblem
from tasks.language.rewards.verifier import Verifier
from tasks.language.training.trained_model import get_frozen_model_dtype

SCORED_AT_ONCE = 128  # responses that the reward model reads in one pass; changes speed only
METRICS = {f"rewards/{name}": text for name, text in weighted_rewards.METRICS.items()}


class Judge:
    """Scores responses by a stage's reward, or by the one that a prompt's data set asks for."""

    def __init__(
        self,
        weights: Mapping[str, weighted_rewards.Weights],
        scorer: PretrainedModel | None,
        tokenizer: Tokenizer,
        verifier: Verifier,
        functions: Mapping[str, PythonFunction],
        helpers: Mapping[str, Any],
        *,
        columns: Collection[str],
        strip_thinking: bool,
        graded: bool = False,
    ) -> None:
        """`weights` are by the reward that a prompt's data set asks for; `scorer` is needed where one of them counts
        it.

        `functions` has each function in Python that counts; for them each prompt has all of `columns`. `helpers` has
        those of the rewards that count. With `graded` the rubric is computed for all answers, even where it counts for
        none.
        """
        self.weights = weights
        self.scorer = scorer
        self.tokenizer = tokenizer
        self.verifier = verifier
        self.functions = functions
        self.helpers = helpers
        self.columns = columns
        self.strip_thinking = strip_thinking
        self.graded = graded or any(counted.get("rubric") for counted in weights.values())
        by_name = weighted_rewards.load_counted_rewards(collect_counted_rewards(weights))
        self.by_columns = {name: reward for name, reward in by_name.items() if reward.columns is not None}
        self.unreadable: set[str] = set()  # prompts whose reference cannot be read, once they are known
        self.by_model = [name for name in BY_MODEL if any(counted.get(name) for counted in weights.values())]

    @property
    def has_step_rewards(self) -> bool:
        """Whether the reward model is one of steps."""
        return self.scorer is not None and _is_process_reward_model(self.scorer)

    def copy_with_rubric(self) -> "Judge":
        """The same judge, which also computes the rubric's points of every answer."""
        return Judge(
            self.weights,
            self.scorer,
            self.tokenizer,
            self.verifier,
            self.functions,
            self.helpers,
            columns=self.columns,
            strip_thinking=self.strip_thinking,
            graded=True,
        )

    def check(self, prompts: Sequence[Record]) -> None:
        """DataError with one line where a prompt has not what its reward reads: an answer, or columns of their own."""
        for row in prompts:
            if wrong := weighted_rewards.find_prompt_fault(
                row, _parse_further_columns(row), self.weights[row["reward"]]
            ):
                raise DataError(f"prompts: {row['prompt_id']}: {wrong}")

    def list_missing_rewards(self, reward: str, parts: Mapping[str, float]) -> list[str]:
        """Why a response has no reward: the rewards that count for its prompt, which asks for `reward`, and are nan
        among its `parts`.

        One by columns that the prompt lacks is not why, unless there is no other.
        """
        names = [
            name for name, weight in self.weights[reward].items() if weight and math.isnan(parts.get(name, math.nan))
        ]
        return [name for name in names if name not in self.by_columns] or names

    def seconds(self) -> dict[str, float]:
        """The time that each function in Python took since this was asked last; for tracking alone, as no out may hold
        it.
        """
        seconds_spent = {f"{name}/seconds": function.spent for name, function in self.functions.items()}
        for function in self.functions.values():
            function.spent = 0.0
        return seconds_spent

    def __call__(
        self, prompts: Sequence[Record], responses: Completions, ended: Sequence[bool]
    ) -> weighted_rewards.Rewards:
        """The reward (N,) and its parts of N responses; `asked[n]` is the row of Prompts that response n answers.

        A part that counts for some prompts is computed for all, so that each step has the same parts.
        """
        texts = [
            chat.decode_response(self.tokenizer, row[kept], complete)
            for row, kept, complete in zip(responses.tokens, responses.mask, ended, strict=True)
        ]
        if self.strip_thinking:
            texts = [*map(remove_thinking_blocks, texts)]
        empty = dict.fromkeys(self.columns)
        answered = [
            AnsweredProblem(
                row["question"], row["solution"], row["answer"], text, complete, empty | _parse_further_columns(row)
            )
            for row, text, complete in zip(prompts, texts, ended, strict=True)
        ]
        kinds = [row["reward"] for row in prompts]
        scores, at_ends = (None, None) if self.scorer is None else _score_responses(self.scorer, responses)
        total = torch.zeros(len(texts))
        others = torch.zeros(len(texts))
        logged = [name for function in self.functions for name in (function, function + weighted_rewards.FAILED)]
        for name, reward in self.by_columns.items():
            logged += (name, *reward.further)
        parts = {name: torch.full((len(texts),), torch.nan) for name in logged}
        for kind in sorted(set(kinds)):
            rows = torch.tensor([index for index, other in enumerate(kinds) if other == kind])
            part = weighted_rewards.compute_weighted_rewards(
                [answered[row] for row in rows.tolist()],
                self.weights[kind],
                self.verifier,
                None if scores is None else dict.fromkeys(self.by_model, scores[rows]),
                self.functions,
                self.helpers,
            )
            total[rows] = part.total
            others[rows] = part.others
            for name, values in part.parts.items():
                parts.setdefault(name, torch.full((len(texts),), torch.nan))[rows] = values
        if self.graded:
            left = [index for index, kind in enumerate(kinds) if not self.weights[kind].get("rubric")]
            points = torch.tensor([rubric(answered[index]) for index in left])
            parts.setdefault("rubric", torch.zeros(len(texts)))[left] = points
        self._warn_of_unreadable_answers(prompts, parts["verifiable"])
        steps = None if at_ends is None else self._build_step_rewards(kinds, at_ends, others)
        return weighted_rewards.Rewards(total, others, parts, steps)

    def _warn_of_unreadable_answers(self, prompts: Sequence[Record], right: Tensor) -> None:
        """A line on standard error for each prompt that has no reward since its answer is no reference that can be
        read.
        """
        for row, verdict in zip(prompts, right.tolist(), strict=True):
            prompt_id = row["prompt_id"]
            counts = self.weights[row["reward"]].get("verifiable")
            if counts and math.isnan(verdict) and prompt_id not in self.unreadable:
                self.unreadable.add(prompt_id)
                text = (
                    f"prompts: {prompt_id}: the answer {row['answer']!r:.60} cannot be read: its "
                    "responses have no reward"
                )
                print(text, file=sys.stderr, flush=True)

    def _build_step_rewards(self, kinds: Sequence[str], at_ends: Tensor, others: Tensor) -> StepRewards:
        """The rewards of steps and of responses, with what each weighs in the reward that is paid for the prompt."""
        weights = [self.weights[kind] for kind in kinds]
        process = [prompt_weights.get("process", 0.0) for prompt_weights in weights]
        rest = [
            sum(weight for name, weight in prompt_weights.items() if name != "process") for prompt_weights in weights
        ]
        return StepRewards(at_ends, torch.tensor(process), others, torch.tensor(rest, dtype=torch.float32))


def _parse_further_columns(row: Record) -> dict[str, object]:
    """The row's further columns; none where its data set has none."""
    text = row.get("columns")
    columns: dict[str, object] = json.loads(text) if text else {}
    return columns


def collect_further_columns(table: pd.DataFrame) -> set[str]:
    """The names of the further columns that some of the prompts have."""
    return {name for row in tables.list_records(table) for name in _parse_further_columns(row)}


def get_reward_model_objective(scorer: PretrainedModel) -> str:
    """What a reward model was trained on: outcome or process; else pairs, with which rankings are meant too."""
    model_objective: str = getattr(scorer.config, reward_model.OBJECTIVE, "pairs")
    return model_objective


@torch.no_grad()
def _score_responses(scorer: PretrainedModel, responses: Completions) -> tuple[Tensor, Tensor | None]:
    """The score of each response (N,); by a process reward model also of each step (N, L), nan where none ends."""
    scores = torch.zeros(len(responses))
    at_ends = torch.full(responses.mask.shape, torch.nan)
    for rows in accumulation.cut_into_micro_batches(responses, torch.arange(len(responses)), SCORED_AT_ONCE):
        part = responses.rows(rows)
        if _is_process_reward_model(scorer):
            step_scores = step_rewards.score_steps(scorer, part)
            ends = step_rewards.find_model_step_ends(scorer, part)
            at_ends[rows, : ends.shape[1]] = step_scores.masked_fill(~ends, torch.nan).cpu()
            scores[rows] = step_rewards.combine_step_scores(
                step_scores, ends, getattr(scorer.config, step_rewards.STEP_SCORE)
            ).cpu()
        else:
            scores[rows] = reward_model.score_responses(scorer, part).cpu()
    return scores, at_ends if _is_process_reward_model(scorer) else None


def _is_process_reward_model(scorer: PretrainedModel) -> bool:
    return get_reward_model_objective(scorer) == "process"


def check_reward_model_objective(scorer: Path, model_objective: str, wanted: Sequence[str]) -> None:
    """ConfigError with one line where a reward that counts needs a reward model of another objective than
    `model_objective`.
    """
    for name in wanted:
        if name not in ("reward_model", model_objective):
            raise ConfigError(
                f"params.yaml: reward_model_path: {scorer} is a reward model of objective {model_objective}, but "
                f"the reward {name} asks for one "
                f"of objective {name}; expected a model of reward_model.objective {name}"
            )


def collect_counted_rewards(weights: Mapping[str, weighted_rewards.Weights]) -> weighted_rewards.Weights:
    """The rewards that count for some prompts, whatever the data sets of these ask for."""
    return {name: 1.0 for counted in weights.values() for name, weight in counted.items() if weight}


@contextmanager
def open_judge(
    config: SamplingConfig,
    kinds: Collection[str],
    tokenizer: Tokenizer,
    scorer: Path,
    files: Path,
    columns: Collection[str] = (),
) -> Iterator[Judge]:
    """The judge for prompts whose rewards are `kinds`; the reward model at `scorer` is loaded only where one asks for
    it.

    `files` is the file or folder of the functions in Python that count, `columns` what they may ask for besides the
    usual.
    """
    if unknown := {kind for kind in kinds if not is_python_reward(kind)} - {"policy", *list_reward_names()}:
        raise DataError(f"prompts: the reward of some is {min(unknown)}, of which nothing is known")
    counted: dict[str, weighted_rewards.Weights] = {kind: {kind: 1.0} for kind in kinds}
    if "policy" in kinds:
        counted["policy"] = config.reward
    wanted = [name for name in BY_MODEL if any(part.get(name) for part in counted.values())]
    if wanted and not (scorer / "config.json").is_file():
        raise ConfigError(
            f"params.yaml: reward_model_path: {scorer} holds no config.json, but the reward asks for a reward model; "
            "that of the pipeline is in data/reward_model"
        )
    model = reward_model_files.load_reward_model(scorer, get_frozen_model_dtype(config.training)) if wanted else None
    if wanted and models.load_tokenizer(scorer).get_vocab() != tokenizer.get_vocab():
        raise DataError(f"{scorer}: the reward model has another tokenizer than the policy that it is to score")
    if model is not None:
        check_reward_model_objective(scorer, get_reward_model_objective(model), wanted)
    python_names = sorted({name for part in counted.values() for name in part if part[name] and is_python_reward(name)})
    functions = {name: PythonFunction(name, files, config.reward_seconds) for name in python_names}
    with ExitStack() as ending:
        for function in functions.values():
            ending.callback(function.close)
        verifier = ending.enter_context(Verifier())
        helpers = ending.enter_context(weighted_rewards.open_reward_helpers(collect_counted_rewards(counted)))
        strip = config.strip_thinking
        yield Judge(counted, model, tokenizer, verifier, functions, helpers, columns=columns, strip_thinking=strip)
