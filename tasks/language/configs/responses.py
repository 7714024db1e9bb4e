"""The section `responses` of params.yaml."""

from pydantic import Field

from tasks.common.config import Config, Seed


class ResponsesConfig(Config):
    """Which prompts, and how responses are sampled."""

    seed: Seed  # all random draws of the stage follow from it
    skip: int = Field(ge=0, le=10**7)  # prompts passed over: those that SFT learned by heart teach preferences little
    prompts: int = Field(ge=1, le=10**7)  # training problems that are answered
    samples: int = Field(ge=2, le=10**5)  # K, responses to each prompt
    temperature: float = Field(gt=0, le=100)  # temperature of sampling; 1 is the model's own distribution
    max_new_tokens: int = Field(ge=1, le=10**5)  # largest number of tokens of an answer; a longer one is cut off
    batch_size: int = Field(ge=1, le=10**6)  # prompts at a time
