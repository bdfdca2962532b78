"""OpenAI's endpoints."""
