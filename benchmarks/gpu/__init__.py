"""Fun-ASR-Nano on a GPU; see __main__.py."""
