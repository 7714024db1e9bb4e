"""Preferences: a noisy annotator ranks the responses of each prompt; or pairs are what people judged, or come from
files or a hub; or a mixture of these.

Train and test are split by prompt, so that a held-out pair never shares its prompt with a training pair.
"""

import json
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pandas as pd

from tasks.common import tables, tracking
from tasks.common.errors import DataError, WaitingError
from tasks.common.tables import Record
from tasks.language.configs.preferences import PreferencesConfig, Source
from tasks.language.data import annotated_pairs, forms, imported_pairs, splits
from tasks.language.data.annotated_pairs import Perception
from tasks.language.data.comparison_rows import unify_comparison_columns
from tasks.language.data.rows import Row, fetch_hub_rows, read_files
from tasks.language.judgements import judged_pairs, judgement_log
from tasks.language.tables.preferences import Annotations, Comparisons, Rankings, get_strength_level
from tasks.language.tables.problems import Problems
from tasks.language.tables.responses import Responses
from tasks.stage import Metrics, main

SAMPLE_ROWS = 50  # of the rankings or pairs shown in MLflow
STRONG = 2  # the level from which on one response is better and not only slightly better
METRICS = {
    "pairs/train": "The number of comparisons that are trained on.",
    "pairs/test": "The number of comparisons whose prompts are held out.",
    "ties": "The share of all pairs of a ranking's responses that tie in rank, from 0 to 1; a pairwise "
    "judgement ranks two.",
    "flipped": "The share of the comparisons with different points whose chosen response has fewer: the "
    "annotator's noise, or where people see it otherwise.",
    "equal_scores": "The share of the comparisons whose two responses have equal points.",
    "strong": "The share of the comparisons where one response is better and not only slightly better.",
    "score/CRITERION": "The mean points of the annotator for this criterion.",
    "score/total": "The mean points of the annotator, of 10.",
    "equal_texts": "The number of given or judged pairs left out, since both responses are one text.",
    "duplicates": "The number of given rows left out, since they repeat another one.",
    "leaked": "The number of pairs left out of training, since their prompt is held out.",
    "left_out": "The number of given rows left out, since their chosen answer is empty.",
    "contradicted": "The number of given pairs whose rejected response has the higher of the given scores.",
    "given_scores": "The share of the given pairs whose chosen response has the higher of the given scores; a tie "
    "counts half.",
    "judgements/pairwise": "The number of people's judgements of two answers that count.",
    "judgements/ranking": "The number of people's rankings that count.",
    "judgements/edit": "The number of people's better answers that count.",
    "people": "The number of people who judged.",
    "both_bad": "The number of judgements that both answers are bad; they give no pair.",
    "sources/SOURCE": "The number of comparisons of a mixture that come from this source.",
}


@dataclass
class PreferencePart:
    """What one source gives: rows of Comparisons and Rankings, the prompts that are held out, and metrics of its
    own.
    """

    pairs: list[Record]
    held_out: set[str]
    rankings: list[Record] = field(default_factory=list)
    annotations: list[Record] = field(default_factory=list)
    prompts: set[str] = field(default_factory=set)  # that people judged
    metrics: Metrics = field(default_factory=dict)


@dataclass(frozen=True)
class SourceInputs:
    """Where a source's data is."""

    responses: Path
    pairs: Path
    judgements: Path
    problems: Path


def run(
    config: PreferencesConfig, responses: Path, pairs: Path, judgements: Path, problems: Path, out: Path
) -> Metrics:
    """Write train.parquet and test.parquet (schema Comparisons), rankings.parquet (Rankings) and annotations.parquet
    (Annotations).

    The latter two are there where somebody ranked. `responses` is where the pairs, or what is ranked, come from,
    `pairs` has the files of a mixture and `judgements` what people said.
    """
    inputs = SourceInputs(responses, pairs if config.source == "mixture" else responses, judgements, problems)
    parts = {name: SOURCES[name](config, inputs) for name in config.sources}
    whole = _merge_source_parts(config, parts) if config.source == "mixture" else parts[config.source]
    compared = pd.DataFrame(whole.pairs, columns=None if whole.pairs else list(Comparisons.to_schema().columns))
    in_test = compared["prompt_id"].isin(whole.held_out)
    for split, part in (("training", compared[~in_test]), ("test", compared[in_test])):
        if part.empty:
            raise DataError(f"preferences: no {split} pairs: all responses to those prompts tie, or are equal texts")
    if whole.annotations:
        tables.write_table(Annotations, pd.DataFrame(whole.annotations), out / "annotations.parquet")
    if whole.rankings:
        tables.write_table(Rankings, pd.DataFrame(whole.rankings), out / "rankings.parquet")
    tables.write_table(Comparisons, compared[~in_test], out / "train.parquet")
    tables.write_table(Comparisons, compared[in_test], out / "test.parquet")
    return {
        "pairs": {"train": int((~in_test).sum()), "test": int(in_test.sum())},
        "strong": _compute_strong_share(compared),
        **_compute_tie_metrics(whole.rankings),
        **_compute_score_metrics(compared, set(parts)),
        **whole.metrics,
    }


def build_annotated_preferences(config: PreferencesConfig, inputs: SourceInputs) -> PreferencePart:
    """The responses, ranked and paired by the simulated annotator."""
    sampled = _load_responses_if_present(inputs.responses)
    if sampled is None:
        wanted = f"expected data/responses as preferences.path with source {config.source}"
        raise DataError(f"{inputs.responses}: no responses.parquet; {wanted}")
    sees = Perception(
        config.criteria, config.temperature, config.length_bonus, config.tie_margin, config.strengths.bounds
    )
    annotation = annotated_pairs.annotate_responses(
        sampled, _load_training_problems_by_id(inputs.problems), sees, config.test_share, config.seed
    )
    tracking.record_table(pd.DataFrame(annotation.texts[:SAMPLE_ROWS]).fillna(""), "rankings.json")
    points = pd.DataFrame([json.loads(row["points"]) for row in annotation.annotations])
    scores = {**points.mean(), "total": points.sum(axis=1).mean()}
    return PreferencePart(
        annotation.pairs,
        annotation.held_out,
        annotation.rankings,
        annotation.annotations,
        metrics={"score": {name: float(mean) for name, mean in scores.items()}},
    )


def build_judged_preferences(config: PreferencesConfig, inputs: SourceInputs) -> PreferencePart:
    """What people judged. WaitingError while there is too little.

    Prompts of the responses are held out as the annotator's are. Others, whose number grows with the record, are held
    out by a draw of their own each, so that none changes sides when more is judged.
    """
    judgement_record = judgement_log.read_judgement_record(inputs.judgements)
    missing = config.minimum - len(judged_pairs.select_counted_judgements(judgement_record))
    if missing > 0:
        raise WaitingError(f"waiting for {missing} more: posttrain label")
    sampled = _load_responses_if_present(inputs.responses)
    ids: dict[tuple[str, str], str] = {}
    held: set[str] = set()
    if sampled is not None:
        turns = sampled["history"] if "history" in sampled else [""] * len(sampled)
        ids = {
            (text, before): name
            for text, before, name in zip(sampled["prompt"], turns, sampled["prompt_id"], strict=True)
        }
        rng = np.random.default_rng(config.seed)
        held = splits.draw_held_out_prompts(sampled["prompt_id"].unique(), config.test_share, rng)
    judged_set = judged_pairs.build_judged_pairs(
        judgement_record, _load_training_problems_by_id(inputs.problems), ids, config.disagreement
    )
    others = set(judged_set.prompts) - set(ids.values())
    held |= {name for name in others if _derive_unit_number_from_name(config.seed, name) < config.test_share}
    tracking.record_table(pd.DataFrame(judged_set.pairs[:SAMPLE_ROWS]), "pairs.json")
    rankings = [{**row, "held_out": row["prompt_id"] in held} for row in judged_set.rankings]
    metrics: Metrics = {
        "judgements": judged_set.judgements,
        "people": judged_set.people,
        "both_bad": judged_set.both_bad,
        "equal_texts": judged_set.equal,
    }
    return PreferencePart(judged_set.pairs, held, rankings, prompts=set(judged_set.prompts), metrics=metrics)


def read_pair_files(config: PreferencesConfig, inputs: SourceInputs) -> PreferencePart:
    """Pairs in files."""
    return _build_given_pair_preferences(config, read_files(inputs.pairs), str(inputs.pairs))


def fetch_hub_pairs(config: PreferencesConfig, inputs: SourceInputs) -> PreferencePart:
    """Pairs of a hub's data set."""
    rows = fetch_hub_rows(config.hub_id, config.hub_config, config.hub_revision, config.hub_split)
    return _build_given_pair_preferences(config, rows, config.hub_id)


SOURCES: dict[Source, Callable[[PreferencesConfig, SourceInputs], PreferencePart]] = {
    "annotator": build_annotated_preferences,
    "people": build_judged_preferences,
    "files": read_pair_files,
    "hub": fetch_hub_pairs,
}


def _build_given_pair_preferences(config: PreferencesConfig, rows: Iterable[Row], source: str) -> PreferencePart:
    pair_set = imported_pairs.parse_and_split_pairs(rows, config.test_share, config.seed, source)
    tracking.record_table(pd.DataFrame(pair_set.train[:SAMPLE_ROWS]), "pairs.json")
    for line in pair_set.lines("preferences"):
        print(line, file=sys.stderr, flush=True)
    metrics: Metrics = {
        "equal_texts": pair_set.equal,
        "duplicates": pair_set.duplicates,
        "leaked": pair_set.leaked,
        "left_out": pair_set.omissions.left_out.total(),
        "contradicted": pair_set.contradicted,
    }
    return PreferencePart(
        [*pair_set.train, *pair_set.test], {row["prompt_id"] for row in pair_set.test}, metrics=metrics
    )


def _merge_source_parts(config: PreferencesConfig, parts: dict[Source, PreferencePart]) -> PreferencePart:
    """The shares of all sources as one.

    Where people judged a prompt the annotator's word on it is left out, and what one source holds out no other trains
    on.
    """
    selected = {name: _sample_source_share(config, name, parts[name]) for name in parts}
    if "people" in selected and "annotator" in selected:
        judged_by_people = selected["people"].prompts
        selected["annotator"] = _filter_part_by_prompt(
            selected["annotator"], lambda prompt: prompt not in judged_by_people
        )
    held_out = {name for part in selected.values() for name in part.held_out}
    rows = [row for part in selected.values() for row in part.pairs]
    held_texts = {_make_prompt_key(row) for row in rows if row["prompt_id"] in held_out}
    kept = [row for row in rows if row["prompt_id"] in held_out or _make_prompt_key(row) not in held_texts]
    rankings = [row for part in selected.values() for row in part.rankings]
    optional = ("history", "tokens", "score")
    absent = {name for name in optional if any(name not in row for row in rankings)}
    metrics: dict[str, Metrics | float] = {}
    for part in selected.values():
        metrics |= part.metrics
    counts: Metrics = {name: len(part.pairs) for name, part in selected.items()}
    return PreferencePart(
        unify_comparison_columns(kept),
        held_out,
        [{name: value for name, value in row.items() if name not in absent} for row in rankings],
        [row for part in selected.values() for row in part.annotations],
        metrics={**metrics, "sources": counts, "leaked": len(rows) - len(kept)},
    )


def _sample_source_share(config: PreferencesConfig, source: Source, part: PreferencePart) -> PreferencePart:
    """The share of a source's prompts that the mixture takes; prompts of files and hubs get the source's name before
    their own.
    """
    if source in ("files", "hub"):
        named = [
            {**row, "prompt_id": f"{source}/{row['prompt_id']}", "comparison_id": f"{source}/{row['comparison_id']}"}
            for row in part.pairs
        ]
        part = replace(part, pairs=named, held_out={f"{source}/{name}" for name in part.held_out})
    share = config.sources[source]
    if share == 1:
        return part
    prompts = np.array(sorted({row["prompt_id"] for row in (*part.pairs, *part.rankings)}), dtype=object)
    rng = np.random.default_rng([config.seed, [*SOURCES].index(source)])
    chosen = set(rng.permutation(prompts)[: max(1, round(share * len(prompts)))])
    return _filter_part_by_prompt(part, lambda prompt: prompt in chosen)


def _filter_part_by_prompt(part: PreferencePart, wanted: Callable[[str], bool]) -> PreferencePart:
    return replace(
        part,
        pairs=[row for row in part.pairs if wanted(row["prompt_id"])],
        rankings=[row for row in part.rankings if wanted(row["prompt_id"])],
        prompts={name for name in part.prompts if wanted(name)},
    )


def _make_prompt_key(row: Record) -> tuple[str, ...]:
    return forms.build_prompt_key(row["prompt"], row.get("history", ""))


def _load_responses_if_present(responses: Path) -> pd.DataFrame | None:
    file = responses / "responses.parquet"
    return tables.read_table(Responses, file) if file.is_file() else None


def _load_training_problems_by_id(problems: Path) -> dict[str, Record]:
    return {
        row["problem_id"]: row for row in tables.list_records(tables.read_table(Problems, problems / "train.parquet"))
    }


def _derive_unit_number_from_name(seed: int, name: str) -> float:
    """A number from 0 to 1 that seed and name alone decide."""
    return float(np.random.default_rng([seed, *name.encode()]).random())


def _compute_tie_metrics(rankings: list[Record]) -> Metrics:
    if not rankings:
        return {}
    ranked = pd.DataFrame(rankings)
    sizes = ranked.groupby("ranking_id").size()
    tied = ranked.groupby(["ranking_id", "rank"]).size()
    possible = (sizes * (sizes - 1) // 2).sum()
    return {"ties": float((tied * (tied - 1) // 2).sum() / max(possible, 1))}


def _compute_score_metrics(compared: pd.DataFrame, sources: set[Source]) -> Metrics:
    """METRICS of the scores of the responses, which are the annotator's points unless somebody gave others.

    As a measure for `flipped`: two annotators who each contradict their points in 15 % of the pairs agree with each
    other in 75 %; people did in 73 % (arXiv:2203.02155, section 3.4).
    """
    if "chosen_score" not in compared:
        return {}
    gap = compared["chosen_score"] - compared["rejected_score"]
    if sources & {"files", "hub"}:
        return {"given_scores": float((gap > 0).mean() + (gap == 0).mean() / 2)}
    flipped = float((gap[gap != 0] < 0).mean()) if gap.any() else 0.0
    return {"flipped": flipped, "equal_scores": float((gap == 0).mean())}


def _compute_strong_share(compared: pd.DataFrame) -> float:
    return float((compared["strength"].map(get_strength_level) >= STRONG).mean())


if __name__ == "__main__":
    main(run)
