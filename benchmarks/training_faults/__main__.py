"""The faults of training, with their cures: `python -m benchmarks.training_faults [NAME ..] --data SEED=DATA [SEED=DATA
..] --scratch FOLDER`.

DATA is the data folder of a run of the default pipeline with that seed in every section, up to `reward_model` and
`evaluate@sft`. Every arm of a fault is trained by the stages' own commands, in a clone below FOLDER, and its numbers go
to benchmarks/results/training_faults/NAME.json. docs/faults/NAME.png is drawn of that file; without --data nothing is
trained, and the pictures are drawn anew.
"""

import argparse
from pathlib import Path

from benchmarks.training_faults import (
    dpo_likelihood,
    end_token,
    format_reward,
    kl_estimators,
    length,
    no_spread,
    pictures,
    sampler,
    workspace,
)

FAULTS = {
    fault.name: fault
    for fault in (
        dpo_likelihood.FAULT,
        end_token.FAULT,
        format_reward.FAULT,
        kl_estimators.FAULT,
        length.FAULT,
        no_spread.FAULT,
        sampler.FAULT,
    )
}


def main() -> None:
    """Run the faults of the command line, or all of them."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.training_faults", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(FAULTS)}; all if none is named")
    parser.add_argument("--data", nargs="+", default=[], metavar="SEED=DATA")
    parser.add_argument("--only", default="", help="arms, with ; between them")
    parser.add_argument("--scratch", type=Path, help="a folder for the clones, which are kept")
    given = parser.parse_args()
    if unknown := {*given.names} - {*FAULTS}:
        parser.error(f"there is no fault {min(unknown)}; expected some of {', '.join(FAULTS)}")
    if given.data and not given.scratch:
        parser.error("--data needs --scratch, a folder for the clones")
    for fault in (FAULTS[name] for name in given.names or FAULTS):
        for word in given.data:
            seed, _, data = word.partition("=")
            arms = given.only.split(";") if given.only else [*fault.arms]
            workspace.run_fault_arms(fault, int(seed), Path(data), given.scratch, arms)
        if results := workspace.load_fault_results(fault.name):
            pictures.save_fault_picture(fault, results, workspace.ROOT / f"docs/faults/{fault.name}.png")


if __name__ == "__main__":
    main()
