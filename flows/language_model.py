"""The language-model flow: from problems and a pretrained model to preference-tuned policies and a report.

dvc.yaml holds the graph: every stage that the report needs, directly or not, is part of the flow.
"""

from functools import partial

from flows.engine.prefect_flow import run_flow

TARGETS = ("report",)
run = partial(run_flow, flow_name="language")
