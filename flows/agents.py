"""The agents flow: from the best play of environments of several turns to policies that learn by acting, and a report.

dvc.yaml holds the graph. Of the environments and policies that params.yaml names, only those that the report needs are made.
"""

from functools import partial

from flows.engine.prefect_flow import run_flow

TARGETS = ("agents_report",)
run = partial(run_flow, flow_name="agents")
