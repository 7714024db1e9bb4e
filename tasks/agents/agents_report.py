"""The report of the agents flow: what each policy earns in games that nobody trained on, and episodes to read turn by
turn.
"""

from pathlib import Path

from tasks.agents.configs.agents_report import AgentsReportConfig
from tasks.agents.reporting import costs, figures, knowledge_calibration, policy_returns, verdicts
from tasks.common import pages
from tasks.common.errors import ConfigError
from tasks.stage import Metrics, main

HEADLINE = {
    "return": "The mean return over games and seeds, at the temperature at which the policy earns most.",
    "share": "The same as a share of the largest return, by a search that knows the whole game.",
}
METRICS = {f"AGENT/{name}": text for name, text in HEADLINE.items()}


def run(config: AgentsReportConfig, returns: Path, out: Path) -> Metrics:
    """Write agents_report.html, .md and plots from the folders in `returns`."""
    missing = [name for name in config.policies if not (returns / name).is_dir()]
    if missing:
        raise ConfigError(f"params.yaml: agents_report.policies: {missing[0]} was not measured ({returns} lacks it)")
    policies = {
        name: policy_returns.load_policy_episodes(returns / name, name, policy_config)
        for name, policy_config in config.policies.items()
    }
    judged = [verdicts.judge_expectation(expectation, policies) for expectation in config.expectations]
    by_environment: dict[str, list[policy_returns.PolicyEpisodes]] = {}
    for policy in policies.values():
        by_environment.setdefault(policy.environment, []).append(policy)
    rows = {name: policy_returns.build_policy_row(policy) for name, policy in policies.items()}
    tables = {
        environment: {
            "rows": [rows[policy.name] for policy in group],
            "temperatures": group[0].temperatures,
            "counted": sorted({name for policy in group for name in rows[policy.name].counted} - {"told"}),
            "optimum": group[0].optimum,
            "games": int(group[0].episodes["episode"].nunique()),
        }
        for environment, group in by_environment.items()
    }
    knowing_tables, drawn = knowledge_calibration.build_knowledge_view([*policies.values()])
    view = {
        "sentence": verdicts.format_verdict_headline(judged),
        "verdicts": judged,
        "tables": tables,
        "known": knowing_tables,
        "bought": costs.build_cost_table([*policies.values()]),
        "episodes": [
            read
            for policy in policies.values()
            for read in policy_returns.build_readable_episodes(policy, config.shown)
        ],
    }
    templates = Path(__file__).parent / "reporting/templates"
    pages.write_report_pages(
        templates,
        "agents_report",
        view,
        {
            **figures.render_learning_curves([*policies.values()]),
            **drawn,
            **costs.render_cost_figures([*policies.values()]),
        },
        out,
    )
    metrics = {}
    for name, policy in policies.items():
        mean = sum(policy.best()[1]) / len(policy.best()[1])
        metrics[name] = {"return": mean, **({"share": mean / policy.optimum} if policy.optimum > 0 else {})}
    pages.write_metrics(metrics, out)
    return metrics


if __name__ == "__main__":
    main(run)
