"""The flow of a sweep: one graph of the stages of all its points, in which what points share runs once."""

from prefect import State, flow

from flows.orchestration.prefect_tasks import run_pipeline


@flow(name="sweep")
def sweep(points: str) -> State[object]:
    """Run what a sweep has planned; `points` says which it has."""
    with run_pipeline("sweep", [points]) as stage:
        return stage.end()
