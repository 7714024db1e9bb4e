"""What each metric means: the pages of docs/metrics, from constants of the stages.

A stage explains in METRICS what its `run` returns, in CURVES the columns of its .csv files with a column `step`, and in
HEADLINE what `dvc metrics show` prints of a report. A slash in a name leads into a dictionary, a capital word stands
for a key.
"""

import functools
import importlib
import json
import pkgutil
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tasks import reference_pages
from tasks.extension_modules import import_extension_modules
from tasks.reference_pages import DocumentedStage

PLACEHOLDERS = {  # a capital word of a name: what may stand there (a regular expression), and what it is
    "AGENT": ("[A-Za-z0-9_-]+", "a policy, by its name in agents_report.policies"),
    "CLASS": ("bad|neutral|good", "what a step is: `bad`, `neutral` or `good`"),
    "CRITERION": (
        "named|valid|brief|ordered|correctness|reasoning|clarity",
        "a criterion of the annotator: `named`, `valid`, `brief`, `ordered`; of the rubric `correctness`, "
        "`reasoning`, `clarity`",
    ),
    "DATASET": ("[^/]+", "a data set, by its name in params.yaml"),
    "ESTIMATE": (
        "mean|low|high",
        "`mean`, or `low` or `high`, the bounds of its 95 % interval over problems (in `behaviour` over episodes)",
    ),
    "EVENT": (r"\w+", "what an environment of agents counts, such as `won`"),
    "FUNCTION": (
        r"[\w/-]+\.py:\w+",
        "a reward in Python as params.yaml names it, without its `rewards/`: `mine.py:politeness`",
    ),
    "K": (r"\d+", "a number of answers, such as `8`"),
    "LEVEL": (
        "negligibly|slightly|better|significantly",
        "by how much one response is better: `negligibly`, `slightly`, `better` without more, or `significantly`",
    ),
    "METRIC": (
        r"(?:strict|rubric|gold|manner|reference|reward|length|ended)_[\w.]+",
        "a metric of `evaluate` that begins with `strict_`, `rubric_`, `gold_` or `manner_`, or where no right "
        "answers are known with `reference_`, `reward_`, `length_` or `ended_`; `gained` and `lost` are there if "
        "each problem is either right or wrong by it",
    ),
    "POLICY": ("[a-z_]+", "a stage whose policy is evaluated"),
    "SOURCE": ("annotator|people|files|hub", "a source of a mixture of preferences"),
    "SPLIT": ("train|validation", "a split of games"),
    "STRATUM": (
        "all|neither_shows_steps|one_shows_steps|both_show_steps",
        "`all` pairs, or those where `neither_shows_steps`, `one_shows_steps` or `both_show_steps`: how many of "
        "the two answers have a worked step",
    ),
    "T": (r"t\d+\.\d+|tbest", "a temperature: `t0.5`, or `tbest` for the policy's own best one"),
    "TIER": ("random|medium|expert", "a policy that data sets are recorded with: `random`, `medium` or `expert`"),
    "VARIANT": (
        "[^/]+",
        "a variant of the method, by its name in params.yaml; in `returns` with the return that it "
        "was asked for, if any",
    ),
}
HOME = Path(__file__).parent
REWARD, REWARDS = (
    "REWARD",
    "tasks.language.rewards.by_name",
)  # what stands for all that the files of this folder explain
INTRODUCTION = f"""\
{reference_pages.NOTE}
# Metrics

Each stage has a page with the metrics that it logs. `make contract` writes the pages from METRICS, CURVES and HEADLINE
in the modules of stages and algorithms."""
EXPLANATIONS = """\

## Curves

A curve has a row for each step, in data/curves/STAGE.csv or, of the offline flow, in the .csv files of data/STAGE/KEY.
MLflow has it too; there a metric of an offline learner is called `VARIANT/seed-N/NAME`. Losses in a row of an offline
learner are means over `log_every` gradient steps. In the language flow a metric that is not measured at every step
(`eval_*`, `grad_variance/*`) keeps its last value in between.

MLflow alone has these metrics:

| metric | logged for | meaning |
|---|---|---|
| `rewards/FUNCTION/seconds` | rewards in Python | Time that the reward took since the step before, \
validation included. No out may hold a time. |
| `system/processes`, `system/threads`, `system/gpus` | stages that may be several processes | Processes, \
threads of each, and GPUs, on which bits depend. |
| `system/gpu_peak_memory_megabytes` | stages that used a GPU | The most that the tensors of the first process \
held there. |
| `system/peak_memory_megabytes` | stages that `posttrain run` started | The most resident memory that the \
processes of the stage had together. A stage that starts warm shares what its server has imported, and that counts \
too; `--cold` leaves it out. |

## Results

A result is a number that a stage reports at its end, in data/metrics/STAGE.json or STAGE@KEY.json. Where a row names
both a curve and a result, the result is the end of the curve: the mean over its last tenth in the language flow, over
the seeds' last rows in the offline flow.

## Names

Names of the language flow are TRL's where TRL logs the same; another name in TRL or d3rlpy stands in brackets. A word
in capitals stands for something that the page explains below its tables.
"""


@functools.cache
def load_all_placeholders() -> dict[str, tuple[str, str]]:
    """PLACEHOLDERS and those of extensions."""
    words = dict(PLACEHOLDERS)
    for module in import_extension_modules("placeholders"):
        words |= module.PLACEHOLDERS
    return words


def compile_metric_pattern(name: str) -> re.Pattern[str]:
    """What the metrics that this name explains may be called."""
    parts = re.split("([A-Z]+)", name)
    words = load_all_placeholders()
    return re.compile("".join(f"(?:{words[part][0]})" if part.isupper() else re.escape(part) for part in parts))


def expand_reward_names(explained: Mapping[str, str]) -> dict[str, str]:
    """The same metrics, each reward of the repository's by its name, as the METRICS of its file explain it."""
    names: dict[str, str] = {}
    for name, meaning in explained.items():
        if REWARD in name:
            for reward in pkgutil.iter_modules(importlib.import_module(REWARDS).__path__, f"{REWARDS}."):
                metrics: Mapping[str, str] = importlib.import_module(reward.name).METRICS
                names |= {name.replace(REWARD, column): text for column, text in metrics.items()}
        else:
            names[name] = meaning
    return names


def render_metric_pages(stages: Mapping[str, DocumentedStage]) -> dict[str, str]:
    """Name of each page of docs/metrics -> its text; the stages are in the order of dvc.yaml."""
    index = "\n".join([INTRODUCTION, *reference_pages.render_index_lines(stages), EXPLANATIONS])
    return {
        reference_pages.INDEX: index,
        **{f"{name}.md": _render_stage_page(name, stage) for name, stage in stages.items()},
    }


def _render_stage_page(name: str, stage: DocumentedStage) -> str:
    module = importlib.import_module(stage.module)
    curves = expand_reward_names(getattr(module, "CURVES", {}))
    results = expand_reward_names(module.METRICS)
    headline: Mapping[str, str] = getattr(module, "HEADLINE", {})
    lines = [
        reference_pages.NOTE,
        f"# Metrics of {name}",
        "",
        f"{stage.purpose}. [Parameters of {name}](../parameters/{name}.md), [all stages]({reference_pages.INDEX})",
        "",
        f"A [curve]({reference_pages.INDEX}#curves) has a row for each step. "
        f"A [result]({reference_pages.INDEX}#results) is reported once, at the end.",
        "",
        *_render_metric_table(curves, results),
    ]
    if headline:
        rows = [(f"`{metric}`", meaning) for metric, meaning in headline.items()]
        lines += [
            "",
            "`dvc metrics show` prints:",
            "",
            *reference_pages.render_reference_table(("metric", "meaning"), rows),
        ]
    if words := _select_used_placeholders(*curves, *results, *headline):
        rows = [(word, meaning) for word, (_, meaning) in words.items()]
        lines += [
            "",
            "Words in capitals stand for:",
            "",
            *reference_pages.render_reference_table(("word", "what it stands for"), rows),
        ]
    return "\n".join(lines) + "\n"


def _select_used_placeholders(*names: str) -> dict[str, tuple[str, str]]:
    """The capital words of these names, as all_placeholders has them."""
    words = set(re.findall("[A-Z]+", " ".join(names)))
    return {word: placeholder for word, placeholder in load_all_placeholders().items() if word in words}


def _render_metric_table(curves: Mapping[str, str], results: Mapping[str, str]) -> list[str]:
    """The table of a stage's metrics; where curves and their ends have the same names, each name stands in it once."""
    rows = [*_iterate_curve_result_pairs(curves, results)]
    if not curves or any(curve and result and curve != result for curve, result, _ in rows):
        return reference_pages.render_reference_table(("curve", "result", "meaning"), rows)
    merged = [(curve or result, _describe_report_kind(curve, result), meaning) for curve, result, meaning in rows]
    return reference_pages.render_reference_table(("metric", "reported as", "meaning"), merged)


def _describe_report_kind(curve: str, result: str) -> str:
    if curve and result:
        return "curve and result"
    return "curve" if curve else "result"


def _iterate_curve_result_pairs(
    curves: Mapping[str, str], results: Mapping[str, str]
) -> Iterator[tuple[str, str, str]]:
    """Name as a curve, name as a result, meaning: one row where a curve's end is a result."""
    left = dict(results)
    for name, meaning in curves.items():
        result = next((other for other in left if left[other] == meaning), "")
        left.pop(result, None)
        yield f"`{name}`", f"`{result}`" if result else "", meaning
    yield from (("", f"`{name}`", meaning) for name, meaning in left.items())


def read_metric_meanings(file: Path, flow: str) -> dict[str, str]:
    """Name of each number in a stage's file of metrics -> its sentence in the METRICS of the stage, which is one of
    this flow or of an extension.
    """
    stage = file.stem.partition("@")[0]
    files = [HOME / flow / f"{stage}.py", *HOME.glob(f"extensions/*/{stage}.py")]
    module = next((path for path in files if path.is_file()), None)
    if module is None:
        return {}
    name = ".".join((HOME.name, *module.relative_to(HOME).with_suffix("").parts))
    explained = expand_reward_names(importlib.import_module(name).METRICS)
    sentences = {}
    for name in _iterate_metric_names(json.loads(file.read_text())):
        meaning = next((text for key, text in explained.items() if compile_metric_pattern(key).fullmatch(name)), None)
        if meaning is not None:
            sentences[name] = meaning
    return sentences


def _iterate_metric_names(numbers: Mapping[str, Any], above: str = "") -> Iterator[str]:
    for name, value in numbers.items():
        if isinstance(value, Mapping):
            yield from _iterate_metric_names(value, f"{above}{name}/")
        else:
            yield f"{above}{name}"
