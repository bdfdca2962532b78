"""Between text and token ids: tokenizer, chat template, detokenising, stop strings."""
