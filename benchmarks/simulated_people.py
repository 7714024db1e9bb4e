"""Simulated people who judge pairs of responses by the rubric, each with an accuracy: a record as the labelling page
writes it.
"""

import itertools
import json
import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from tasks.common import tables
from tasks.language.judgements.lines import compute_item_id
from tasks.language.rewards import rubric
from tasks.language.tables.problems import Problems
from tasks.language.tables.responses import Responses

AT = "2026-01-01T00:00:00Z"
PLACE = Path("data/raw/judgements/simulated.jsonl")


def make_judgements_writer(accuracies: Sequence[float], judgements: int, overlap: int) -> Callable[[Path], None]:
    """A function that writes the record of such people in a clone: `judgements` in all, each pair judged by `overlap`
    of them.

    A person of accuracy p prefers the response with more rubric points with probability p. Pairs with equal points are
    not asked.
    """

    def write(folder: Path) -> None:
        rng = random.Random(f"{judgements} {overlap}")
        pairs = _iterate_response_pairs(folder, rng)
        lines: list[dict[str, object]] = []
        for number in range(judgements // overlap):
            prompt_id, prompt, answers, better = next(pairs)
            item = compute_item_id("pairwise", prompt, "", [str(answer["text"]) for answer in answers])
            about = {"mode": "pairwise", "prompt_id": prompt_id, "prompt": prompt, "history": ""}
            lines.append({"kind": "item", "item": item, **about, "answers": answers, "gold": None})
            for turn in range(overlap):
                person = (number + turn) % len(accuracies)
                side = better if rng.random() < accuracies[person] else 1 - better
                lines.append(
                    {
                        "kind": "judgement",
                        "judgement": f"{rng.getrandbits(128):032x}",
                        "item": item,
                        "person": f"person-{person + 1}",
                        "mode": "pairwise",
                        "order": [0, 1],
                        "value": {"strength": f"{'ab'[side]} better"},
                        "seconds": 1.0,
                        "repeat": 0,
                        "at": AT,
                    }
                )
        place = folder / PLACE
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))

    return write


def _iterate_response_pairs(
    folder: Path, rng: random.Random
) -> Iterator[tuple[str, str, list[dict[str, object]], int]]:
    """Pairs of responses to one prompt that the rubric tells apart, prompts in random order: id, prompt, answers, place
    of the better.
    """
    known = {
        row["problem_id"]: row
        for row in tables.list_records(tables.read_table(Problems, folder / "data/problems/train.parquet"))
    }
    rows = tables.list_records(tables.read_table(Responses, folder / "data/responses/responses.parquet"))
    prompts = [[*group] for _, group in itertools.groupby(rows, key=lambda row: row["prompt_id"])]
    rng.shuffle(prompts)
    for group in itertools.chain.from_iterable(itertools.repeat(prompts)):
        first, second = rng.sample(group, 2)
        problem = known[first["prompt_id"]]
        points = [
            rubric.score_response(
                problem["question"], problem["solution"], problem["answer"], row["response"], row["ended"]
            ).total
            for row in (first, second)
        ]
        if points[0] == points[1]:
            continue
        answers = [
            {
                "sample": int(row["sample"]),
                "source": "sft",
                "text": row["response"],
                "ended": bool(row["ended"]),
                "tokens": [int(token) for token in row["tokens"]],
            }
            for row in (first, second)
        ]
        yield first["prompt_id"], first["prompt"], answers, int(points[1] > points[0])
