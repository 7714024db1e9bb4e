"""The settings that small actor-critics of several tests share."""

CRITICS = {
    "gamma": 0.9,
    "target_rate": 0.1,
    "critics": 2,
    "learning_rate": 0.01,
    "critic_learning_rate": 0.01,
}
