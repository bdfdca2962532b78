"""Where bytes come from and where they are kept: base model sources, Turnout's own folder."""
