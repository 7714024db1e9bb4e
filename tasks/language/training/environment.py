"""Prompts, a policy that answers them and a judge of the answers: what the policy-gradient stages learn from.

Every draw follows from the seed and the step's number alone, so that a training that was killed goes on with the same ones.
"""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pandas as pd
import torch

from tasks.algorithms.common import distributed, sharding
from tasks.algorithms.language import experience, reward_model, rollouts
from tasks.algorithms.language.advantages import increments
from tasks.algorithms.language.causal_lm import PretrainedCausalLM, PretrainedModel
from tasks.algorithms.language.completions import Completions, make_completions
from tasks.algorithms.language.experience import Experience
from tasks.algorithms.language.rollouts import Rollouts
from tasks.common import models, tables
from tasks.common.errors import ConfigError, DataError
from tasks.common.tables import Record
from tasks.common.tokenizers import Tokenizer
from tasks.language.configs.policies import SamplingConfig
from tasks.language.configs.python_rewards import RewardName, is_python
from tasks.language.data import chat, prompts
from tasks.language.rewards import reward_model_files, rewards
from tasks.language.rewards.answers import without_thinking
from tasks.language.rewards.code_tests import CodeJudge
from tasks.language.rewards.python_functions import PythonFunction
from tasks.language.rewards.verifier import Verifier
from tasks.language.training.trained_model import frozen_dtype

SCORED_AT_ONCE = 128  # responses that the reward model reads in one pass; changes speed only
SEEDS = 2**43  # with what sampling adds, a larger number might be no seed for torch
SHOWN = 24  # responses of a step in its table of samples
METRICS = {f"rewards/{name}": text for name, text in rewards.METRICS.items()}


class Judge:
    """Scores responses by a stage's reward, or by the one that a prompt's data set asks for."""

    def __init__(
        self,
        weights: Mapping[str, rewards.Weights],
        scorer: PretrainedModel | None,
        tokenizer: Tokenizer,
        verifier: Verifier,
        functions: Mapping[str, PythonFunction],
        code: CodeJudge | None,
        *,
        columns: Collection[str],
        strip_thinking: bool,
        graded: bool = False,
    ) -> None:
        """`weights` are by the reward that a prompt's data set asks for; `scorer` is needed where one of them counts it.

        `functions` has each function in Python that counts; for them each prompt has all of `columns`. `code` judges programs
        where they count. With `graded` the rubric is computed for all answers, even where it counts for none.
        """
        self.weights, self.scorer, self.tokenizer, self.verifier = weights, scorer, tokenizer, verifier
        self.functions, self.code, self.columns, self.strip_thinking = functions, code, columns, strip_thinking
        self.graded = graded or any(counted.get("rubric") for counted in weights.values())

    def grading(self) -> "Judge":
        """The same judge, which also computes the rubric's points of every answer."""
        return Judge(
            self.weights,
            self.scorer,
            self.tokenizer,
            self.verifier,
            self.functions,
            self.code,
            columns=self.columns,
            strip_thinking=self.strip_thinking,
            graded=True,
        )

    def check(self, asked: Sequence[Record]) -> None:
        """DataError with one line where a prompt has not what its reward reads: an answer, or columns of their own."""
        for row in asked:
            if wrong := rewards.fault(row, _columns(row), self.weights[row["reward"]]):
                raise DataError(f"prompts: {row['prompt_id']}: {wrong}")

    def seconds(self) -> dict[str, float]:
        """The time that each function in Python took since this was asked last; for tracking alone, as no out may hold it."""
        found = {f"{name}/seconds": function.spent for name, function in self.functions.items()}
        for function in self.functions.values():
            function.spent = 0.0
        return found

    def __call__(self, asked: Sequence[Record], responses: Completions, ended: Sequence[bool]) -> rewards.Rewards:
        """The reward (N,) and its parts of N responses; `asked[n]` is the row of Prompts that response n answers.

        A part that counts for some prompts is computed for all, so that each step has the same parts.
        """
        texts = [
            chat.decode(self.tokenizer, row[kept], complete)
            for row, kept, complete in zip(responses.tokens, responses.mask, ended, strict=True)
        ]
        if self.strip_thinking:
            texts = [*map(without_thinking, texts)]
        empty = dict.fromkeys(self.columns)
        answered = [
            rewards.Answered(row["question"], row["solution"], row["answer"], text, complete, empty | _columns(row))
            for row, text, complete in zip(asked, texts, ended, strict=True)
        ]
        kinds = [row["reward"] for row in asked]
        scores = None if self.scorer is None else _scores(self.scorer, responses)
        total = torch.zeros(len(texts))
        logged = [name for function in self.functions for name in (function, function + rewards.FAILED)]
        for kind, (_, _, names) in rewards.BY_COLUMNS.items():
            logged += names if any(counted.get(kind) for counted in self.weights.values()) else ()
        parts = {name: torch.full((len(texts),), torch.nan) for name in logged}
        for kind in sorted(set(kinds)):
            rows = torch.tensor([place for place, other in enumerate(kinds) if other == kind])
            part = rewards.rewards(
                [answered[row] for row in rows.tolist()],
                self.weights[kind],
                self.verifier,
                None if scores is None else scores[rows],
                self.functions,
                self.code,
            )
            total[rows] = part.total
            for name, values in part.parts.items():
                parts.setdefault(name, torch.full((len(texts),), torch.nan))[rows] = values
        if self.graded:
            left = [place for place, kind in enumerate(kinds) if not self.weights[kind].get("rubric")]
            points = torch.tensor([rewards.rubric_reward(answered[place]) for place in left])
            parts.setdefault("rubric", torch.zeros(len(texts)))[left] = points
        return rewards.Rewards(total, parts)


def _columns(row: Record) -> dict[str, object]:
    """The row's further columns; none where its data set has none."""
    text = row.get("columns")
    found: dict[str, object] = json.loads(text) if text else {}
    return found


def further_columns(table: pd.DataFrame) -> set[str]:
    """The names of the further columns that some of the prompts have."""
    return {name for row in tables.records(table) for name in _columns(row)}


@torch.no_grad()
def _scores(scorer: PretrainedModel, responses: Completions) -> torch.Tensor:
    scores = torch.zeros(len(responses))
    for rows in experience.micro_batches(responses, torch.arange(len(responses)), SCORED_AT_ONCE):
        scores[rows] = reward_model.score(scorer, responses.rows(rows)).cpu()
    return scores


class Environment:
    """Samples from the current policy, and has the samples judged."""

    def __init__(
        self,
        policy: PretrainedCausalLM,
        tokenizer: Tokenizer,
        table: pd.DataFrame,
        judge: Judge,
        config: SamplingConfig,
    ) -> None:
        self.policy, self.tokenizer, self.judge, self.config = policy, tokenizer, judge, config
        self.rows = tables.records(table)
        judge.check(self.rows)
        self.encoded = prompts.encode_rows(tokenizer, self.rows)
        lengths = [*map(len, self.encoded)]
        for model in (policy, judge.scorer):
            if model is not None:
                chat.check_positions(model, lengths, "the prompts", config.max_new_tokens, "max_new_tokens")

    def sample(self, places: Sequence[int], samples: int, draw: int, by_line: bool = False) -> Experience:
        """`samples` judged responses to each of the prompts at `places`; `draw` numbers the random draw.

        Each rank samples and judges the answers to its share of the prompts, and has all of them in the end. With `by_line`
        rewards are paid at the end of each line.
        """
        asked = [self.encoded[place] for place in places]
        with sharding.whole(self.policy):
            [drawn] = rollouts.sample(
                self.policy,
                asked,
                samples=samples,
                max_new_tokens=self.config.max_new_tokens,
                temperature=self.config.temperature,
                end_tokens=chat.end_tokens(self.policy, self.tokenizer),
                seed=(self.config.seed * 1_000_003 + draw) % SEEDS,
                batch_size=len(asked),
                shared=True,
            )
        found, judged = self._judged(places[distributed.share(len(places))], drawn, by_line)
        if distributed.size() == 1:
            return found
        whole = drawn.gathered()
        names = distributed.gathered_names(judged.parts)
        unknown = torch.full_like(judged.total, torch.nan)
        columns = {"": judged.total, **{name: judged.parts.get(name, unknown) for name in names}}
        total, *parts = distributed.gathered_columns(columns).values()
        paid = None
        if found.paid is not None:
            room = (0, whole.tokens.shape[1] - found.paid.shape[1])
            paid = distributed.gathered(torch.nn.functional.pad(found.paid, room))
        responses, logged = whole.completions(asked, self.tokenizer.pad_token_id), dict(zip(names, parts, strict=True))
        return Experience(responses, whole.logps, total, whole.ended, rewards.means(logged), paid)

    def _judged(self, places: Sequence[int], drawn: Rollouts, by_line: bool) -> tuple[Experience, rewards.Rewards]:
        """The responses to the prompts at `places`, perhaps none, with their rewards."""
        if not places:
            nothing = Completions(*(torch.zeros(0, 1, dtype=torch.bool),) * 2, torch.zeros(0), drawn.tokens, drawn.mask)
            paid = drawn.logps if by_line else None
            return Experience(nothing, drawn.logps, torch.zeros(0), drawn.ended, {}, paid), rewards.Rewards(
                torch.zeros(0), {}
            )
        responses = drawn.completions([self.encoded[place] for place in places], self.tokenizer.pad_token_id)
        judged = self.judge(
            [self.rows[places[prompt]] for prompt in responses.owner.tolist()], responses, drawn.ended.tolist()
        )
        found = Experience(responses, drawn.logps, judged.total, drawn.ended, rewards.means(judged.parts))
        return self.paid_by_line(places, found) if by_line else found, judged

    def paid_by_line(self, places: Sequence[int], found: Experience) -> Experience:
        """The same responses with rewards paid as they are earned: at each line's end, by how much the line raised the worth.

        The worth of a response up to a line's end is the reward that it would earn if it were cut off there; at its start it is
        0. So the payments add up to the reward (shaping by a potential: Ng, Harada and Russell 1999).
        """
        batch = found.completions
        breaks = [token for token in batch.tokens.unique().tolist() if "\n" in self.tokenizer.decode([token])]
        last = torch.arange(batch.mask.shape[1]) == batch.mask.sum(1, keepdim=True) - 1
        at_break = torch.isin(batch.tokens, torch.tensor(breaks)) & batch.mask & ~last
        rows, ends = (part.tolist() for part in at_break.nonzero(as_tuple=True))
        worth = torch.zeros(batch.mask.shape)
        if rows:
            owner = batch.owner[rows].tolist()
            cut = [batch.tokens[row, : end + 1].tolist() for row, end in zip(rows, ends, strict=True)]
            asked = [self.encoded[place] for place in places]
            responses = make_completions(asked, owner, cut, self.tokenizer.pad_token_id)
            worth[at_break] = self.judge(
                [self.rows[places[prompt]] for prompt in owner], responses, [False] * len(cut)
            ).total
        worth[last] = found.rewards
        return replace(found, paid=increments(worth, at_break | last))

    def shown(self, places: Sequence[int], found: Experience) -> pd.DataFrame:
        """The first responses with their prompts and rewards, for people to read."""
        batch = found.completions
        return pd.DataFrame(
            {
                "prompt": self.rows[places[int(batch.owner[row])]]["question"],
                "response": chat.decode(
                    self.tokenizer, batch.tokens[row][batch.mask[row]].tolist(), bool(found.ended[row])
                ),
                "reward": found.rewards[row].item(),
                "ended": bool(found.ended[row]),
            }
            for row in range(min(SHOWN, len(batch)))
        )

    def of_step(self, step: int, count: int) -> list[int]:
        """The places of step `step`'s `count` prompts: each prompt comes once an epoch, in that epoch's own order."""
        places = []
        orders: dict[int, list[int]] = {}
        for number in range((step - 1) * count, step * count):
            epoch, at = divmod(number, len(self.rows))
            if epoch not in orders:
                generator = torch.Generator().manual_seed(self.config.seed * 1_000_003 + epoch)
                orders[epoch] = torch.randperm(len(self.rows), generator=generator).tolist()
            places.append(orders[epoch][at])
        return places


@contextmanager
def judging(
    config: SamplingConfig,
    kinds: Collection[str],
    tokenizer: Tokenizer,
    scorer: Path,
    files: Path,
    columns: Collection[str] = (),
) -> Iterator[Judge]:
    """The judge for prompts whose rewards are `kinds`; the reward model at `scorer` is loaded only where one asks for it.

    `files` is the file or folder of the functions in Python that count, `columns` what they may ask for besides the usual.
    """
    if unknown := {kind for kind in kinds if not is_python(kind)} - {"policy", *get_args(RewardName)}:
        raise DataError(f"prompts: the reward of some is {min(unknown)}, of which nothing is known")
    counted: dict[str, rewards.Weights] = {kind: {kind: 1.0} for kind in kinds}
    if "policy" in kinds:
        counted["policy"] = config.reward
    wanted = any(part.get("reward_model") for part in counted.values())
    if wanted and not (scorer / "config.json").is_file():
        raise ConfigError(
            f"params.yaml: reward_model_path: {scorer} holds no config.json, but the reward asks for a reward model; "
            "that of the pipeline is in data/reward_model"
        )
    model = reward_model_files.load(scorer, frozen_dtype(config.training)) if wanted else None
    if wanted and models.load_tokenizer(scorer).get_vocab() != tokenizer.get_vocab():
        raise DataError(f"{scorer}: the reward model has another tokenizer than the policy that it is to score")
    own = sorted({name for part in counted.values() for name in part if part[name] and is_python(name)})
    functions = {name: PythonFunction(name, files, config.reward_seconds) for name in own}
    with ExitStack() as ending:
        for function in functions.values():
            ending.callback(function.close)
        verifier = ending.enter_context(Verifier())
        programs = any(part.get("code") for part in counted.values())
        code = ending.enter_context(CodeJudge()) if programs else None
        strip = config.strip_thinking
        yield Judge(counted, model, tokenizer, verifier, functions, code, columns=columns, strip_thinking=strip)
