"""Wrong answers that grow under GRPO's own aggregation: `python -m benchmarks.training_faults.length_of_wrong`.

Draws docs/faults/length-of-wrong.png: on the left a policy that is a table
(tests/tasks/algorithms/language/test_faults.py), trained anew in some seconds; on the right the default model by
presets/fault-length-of-wrong.yaml, without and with its cure, whose curves are in
benchmarks/results/training_faults/length-of-wrong.json.
"""

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from benchmarks.training_faults import pictures, workspace
from tasks.common import plots

ARMS = {  # name -> its settings, and what the default model's curves are called
    "a mean over each answer, standardized": ({"aggregation": "grpo", "advantage": "standardized"}, "grpo"),
    "Dr. GRPO: a constant, centered": ({"aggregation": "dr_grpo", "advantage": "centered"}, "dr_grpo"),
}
TARGET = workspace.ROOT / "docs/faults/length-of-wrong.png"


def main() -> None:
    """Train the table, and draw."""
    from tests.tasks.algorithms.language import test_faults

    with mpl.rc_context(pictures.STYLE):
        figure = Figure(figsize=pictures.SIZE, dpi=pictures.DPI, layout="constrained")
        left, right = figure.subplots(1, 2)
        results = workspace.load_fault_results("length-of-wrong")
        for colour, (name, (settings, kept)) in zip(plots.cycle_colours(len(ARMS)), ARMS.items(), strict=True):
            table = np.array(test_faults.lengths(**settings))
            curve = results[kept]["0"]["curve"]
            for column, (kind, dashes) in enumerate((("right", "--"), ("wrong", "-"))):
                left.plot(table[:, column], linestyle=dashes, color=colour, label=f"{kind}, {name}")
                values = pictures.compute_running_mean(np.array(curve[f"completions/mean_length_{kind}"]), 10)
                right.plot(curve["step"], values, linestyle=dashes, color=colour)
        left.set(title="a table: expected length of answers, tokens", xlabel="step")
        right.set(title="the default model: length of samples, tokens", xlabel="step")
        pictures.add_shared_legend(figure, left, 2)
        TARGET.parent.mkdir(exist_ok=True)
        figure.savefig(TARGET, metadata={"Software": None})


if __name__ == "__main__":
    main()
