"""Four demo adapters for SmolLM2-135M-Instruct: their data, their training and their scores."""
