"""Who may come in: tokens and their rights, origins of pages, how often one address may ask, TLS."""
