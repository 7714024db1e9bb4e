"""The section `tokenizer` of params.yaml."""

from pydantic import Field

from tasks.common.config import Config


class TokenizerConfig(Config):
    """How many tokens there are."""

    vocabulary: int = Field(ge=300, le=10**6)  # tokens, the 256 bytes and the special tokens included
