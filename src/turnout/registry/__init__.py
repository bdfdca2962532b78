"""Which adapters and versions there are."""
