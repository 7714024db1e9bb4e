"""The offline-RL flow: from behaviour policies and the data sets recorded with them to learned policies and a table of scores.

dvc.yaml holds the graph. Of the data sets and policies that params.yaml names, only those that the report needs are made.
"""

from functools import partial

from flows.engine.prefect_flow import run_flow

TARGETS = ("offline_report",)
run = partial(run_flow, flow_name="offline")
