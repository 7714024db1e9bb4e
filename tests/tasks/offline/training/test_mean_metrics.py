import torch

from tasks.offline.training import mean_metrics


def steps(*values):
    return ({"loss": torch.tensor(value)} for value in values)


def test_rows_are_means_of_so_many_steps_and_the_rest_is_one_too():
    assert list(mean_metrics.iterate_mean_step_metrics(steps(1.0, 3.0, 5.0, 9.0, 2.0), 2)) == [
        {"loss": 2.0},
        {"loss": 7.0},
        {"loss": 2.0},
    ]


def test_no_step_is_taken_beyond_the_row_that_is_asked_for():
    taken = []

    def watched():
        for number in range(10):
            taken.append(number)
            yield {"loss": torch.tensor(float(number))}

    rows = mean_metrics.iterate_mean_step_metrics(watched(), 3)
    assert next(rows) == {"loss": 1.0}
    assert taken == [0, 1, 2]


def test_the_metrics_of_a_step_are_not_changed():
    first = {"loss": torch.tensor(1.0)}
    list(mean_metrics.iterate_mean_step_metrics([first, {"loss": torch.tensor(2.0)}], 2))
    assert first["loss"] == 1.0
