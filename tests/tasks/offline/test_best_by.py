from tasks.offline.offline_report import format_best_variants
from tasks.offline.reporting.results import VariantResult


def test_the_best_of_each_data_set_is_named_by_the_measure_asked_for():
    found = [
        VariantResult("a", "d", "e", "BC", float("nan"), True, (10.0, 30.0)),
        VariantResult("a", "d", "e", "DT", float("nan"), True, (25.0, 35.0)),
        VariantResult("b", "f", "e", "BC", float("nan"), True, (5.0,)),
    ]
    data = {name: {"reference": {"low": 0.0, "high": 50.0, "random": 0.0, "expert": 50.0}} for name in ("d", "f")}
    start = "in the environment, which no offline method sees, the best is"
    assert format_best_variants(found, data, "return") == [f"By mean return {start} DT on d (30.0), BC on f (5.0)."]
