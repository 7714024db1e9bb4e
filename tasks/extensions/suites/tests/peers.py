"""What lm-evaluation-harness and Qwen2.5-Math's evaluation say of frozen rows and answers: `python -m
tasks.extensions.suites.tests.peers` wrote peers.json.

It ran once, with lm-eval 0.4.13 and evalscope 0.17.1 (whose math_parser is a copy of Qwen2.5-Math's
evaluation/parser.py and grader.py), which the tests do not need. lm-eval's own task files were used; only their data
sets were replaced by the rows here, or by the first rows of ARC where a folder with ARC's files was named.
"""

import json
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tasks.extensions.suites.tests.peer_rows import ARC, ARC_EXAMPLES, GSM8K_ANSWERS, LETTERS, QWEN_ANSWERS
from tasks.extensions.suites.tests.peer_rows import save_qwen2 as save

FILE = Path(__file__).parent / "peers.json"
FIRST = 40  # of ARC's rows
SHOTS = 2


def on_hub(row: dict[str, Any]) -> dict[str, Any]:
    """A row of ARC's own files in the form that the hub has, which lm-eval reads."""
    choices = row["question"]["choices"]
    labels = [one["label"] for one in choices]
    key = row["answerKey"]
    return {
        "question": row["question"]["stem"],
        "choices": {name: [one[name] for one in choices] for name in ("text", "label")},
        "answerKey": key if key in labels else labels["ABCD".index(key)],  # some rows of the files number their choices
    }


def task(file: str, rows: list[dict[str, Any]], examples: list[dict[str, Any]], shots: int, folder: Path) -> Any:
    """One of lm-eval's tasks by its file, on these rows."""
    import lm_eval
    import yaml
    from lm_eval.api.task import ConfigurableTask

    place = Path(lm_eval.__file__).parent / "tasks" / file
    config = yaml.safe_load(place.read_text())
    while "include" in config:
        base = yaml.safe_load((place.parent / config.pop("include")).read_text())
        config = {**base, **config}
    files = {}
    for split, own in (("test", rows), ("train", examples)):
        files[split] = str(folder / f"{split}.jsonl")
        Path(files[split]).write_text("".join(json.dumps(one) + "\n" for one in own))
    config |= {"dataset_path": "json", "dataset_name": None, "dataset_kwargs": {"data_files": files}}
    config |= {"validation_split": None, "fewshot_split": "train", "num_fewshot": shots, "tag": None}
    config["fewshot_config"] = {"sampler": "first_n"}
    return ConfigurableTask(config=config)


def likelihoods(model: Path, file: str, rows: list[dict[str, Any]], examples: list[dict[str, Any]], shots: int) -> Any:
    """For each row the log-likelihoods of its choices, acc and acc_norm."""
    from lm_eval.evaluator import simple_evaluate
    from lm_eval.models.huggingface import HFLM

    with TemporaryDirectory() as folder:
        own = task(file, rows, examples, shots, Path(folder))
        lm = HFLM(pretrained=str(model), device="cpu", dtype="float32", batch_size=1)
        found = simple_evaluate(lm, tasks=[own], num_fewshot=shots, log_samples=True, bootstrap_iters=0)
    [samples] = found["samples"].values()
    samples.sort(key=lambda one: one["doc_id"])
    return [
        {
            "log_likelihoods": [float(value) for value, _ in one["filtered_resps"]],
            "acc": one["acc"],
            "acc_norm": one["acc_norm"],
        }
        for one in samples
    ]


def exact(file: str, docs: list[dict[str, Any]], responses: list[str]) -> dict[str, list[float]]:
    """exact_match of frozen responses by each of the task's filters."""
    with TemporaryDirectory() as folder:
        own = task(file, docs, docs, 0, Path(folder))
    found = {}
    for ensemble in own._filters:
        texts = [[text] for text in responses]
        for step in ensemble.filters:
            texts = list(step().apply(texts, docs))
        scores = [
            own.process_results(doc, [text] if isinstance(text, str) else text)
            for doc, text in zip(docs, texts, strict=True)
        ]
        found[ensemble.name] = [float(one["exact_match"]) for one in scores]
    return found


def qwen() -> list[list[Any]]:
    """What Qwen2.5-Math's parser takes as the answer, and whether its grader holds it to be right."""
    from importlib.machinery import PathFinder
    from importlib.util import module_from_spec

    # The package itself needs others to be imported at all; its parser stands alone.
    package = PathFinder.find_spec("evalscope")
    assert package is not None
    assert package.submodule_search_locations is not None
    spec = PathFinder.find_spec("math_parser", [f"{place}/metrics" for place in package.submodule_search_locations])
    assert spec is not None
    assert spec.loader is not None
    parser: Any = module_from_spec(spec)
    spec.loader.exec_module(parser)
    found = []
    for gold, response in QWEN_ANSWERS:
        answer = parser.strip_answer_string(parser.extract_answer(response))
        found.append([answer, bool(parser.math_equal(answer, parser.strip_answer_string(gold)))])
    return found


def theirs(shared: Path | None) -> dict[str, Any]:
    """All of it."""
    rows, examples = [on_hub(one) for one in ARC], [on_hub(one) for one in ARC_EXAMPLES]
    golds = [{"question": "", "answer": gold} for gold, _ in GSM8K_ANSWERS]
    with TemporaryDirectory() as folder:
        save(Path(folder))
        found: dict[str, Any] = {
            "qwen2": {
                str(shots): likelihoods(Path(folder), "arc/arc_easy.yaml", rows, examples, shots)
                for shots in (0, SHOTS)
            },
            "gsm8k": exact("gsm8k/gsm8k.yaml", golds, [text for _, text in GSM8K_ANSWERS]),
            "letters": exact("arc/arc_challenge_chat.yaml", rows[:1] * len(LETTERS), LETTERS),
            "qwen": qwen(),
        }
        if shared is not None:
            for kind in ("easy", "challenge"):
                lines = (shared / f"data/arc/{kind}_test.jsonl").read_text().splitlines()[:FIRST]
                own = [on_hub(json.loads(line)) for line in lines]
                for name, model in (("stories260K", shared / "models/stories260K"), ("qwen2", Path(folder))):
                    found[f"{name}/{kind}"] = likelihoods(model, f"arc/arc_{kind}.yaml", own, examples, 0)
    return found


if __name__ == "__main__":
    FILE.write_text(json.dumps(theirs(Path(sys.argv[1]) if sys.argv[1:] else None), indent=1) + "\n")
