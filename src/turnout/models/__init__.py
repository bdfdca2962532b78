"""The base model: a decoder described by data, its weights, and GGUF files turned into Hugging Face folders."""
