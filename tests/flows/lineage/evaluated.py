"""A toy pipeline whose evaluations are real tables: two policies that answer the same problems, each as well as its
parameters say.
"""

import shutil
from pathlib import Path

from flows.engine.mlflow_flow_recorder import FlowRecorder
from tests.flows.engine.toy import Toy

HOSTILE = '<script>alert(1)</script>\x1b[31m & "5"'
EVALUATE = """
import json, sys
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import parquet

HOSTILE = ANSWER
policy, out = sys.argv[1], Path("data/evaluate") / sys.argv[1]
params = json.loads(Path("params.yaml").read_text())
section, skill = params["evaluate"], json.loads(Path(f"data/{policy}").read_text().splitlines()[-1].partition(" ")[2])
rng = np.random.default_rng(section["data"])
ids = [f"test-{number}" for number in range(section["problems"])]
asked = [{"problem_id": name, "question": f"What is {a} and 1?", "solution": "", "steps": 1, "answer": str(n)}
         for n, (name, a) in enumerate(zip(ids, rng.permutation(10000)))]
ease = np.random.default_rng(7).random(len(ids))  # of a problem, for every policy
right = ease < skill
answers = [{"problem_id": name, "temperature": 0.0, "sample": 0, "response": HOSTILE + f" #### {one['answer']}",
            "length": 3 + int(good), "ended": True, "steps": False, "strict": bool(good), "lenient": bool(good)}
           for name, one, good in zip(ids, asked, right)]
values = {"strict_greedy": right.astype(float), "length_greedy": 3.0 + right, "strict_mean_at_8_tbest": np.round(ease * skill * 8) / 8}
measures = [{"problem_id": name, "metric": metric, "value": float(value)}
            for metric, column in values.items() for name, value in zip(ids, column)]
out.mkdir(parents=True)
for table, rows in (("asked", asked), ("generations", answers), ("measures", measures)):
    parquet.write_table(pa.Table.from_pylist(rows), out / f"{table}.parquet")
(out / "evaluation.json").write_text(json.dumps({"best_temperature": 0.5, "strict_greedy": {"mean": right.mean()}}))
""".replace("ANSWER", repr(HOSTILE))  # noqa: E501


def evaluated(toy: Toy, empty_mlflow: Path) -> Toy:
    """`sft` and from it `dpo`, each evaluated; every call of `run_recorded` is a pipeline run in MLflow."""
    toy.write("evaluate.py", EVALUATE)
    toy.stage("sft")
    toy.stage("dpo", "sft")
    toy.params |= {"sft": 0.4, "dpo": 0.6, "evaluate": {"problems": 60, "data": 0, "seed": 0}}
    branch = {
        "cmd": "python evaluate.py ${item}",
        "deps": ["evaluate.py", "data/${item}"],
        "params": ["evaluate"],
        "outs": ["data/evaluate/${item}"],
    }
    toy.stages["evaluate"] = {"foreach": ["sft", "dpo"], "do": branch}
    toy.save()
    (toy.root / "mlruns").mkdir()
    shutil.copyfile(empty_mlflow, toy.root / "mlruns/mlflow.db")
    return toy


def run_recorded(toy: Toy) -> str:
    """Bring all stages up to date as one pipeline run; its id."""
    recorder = FlowRecorder(toy.root, "language")
    results = toy.run(recorder=recorder)
    assert not [result for result in results.values() if result.state == "failed"]
    recorder.close(results.values())
    return recorder.parent
