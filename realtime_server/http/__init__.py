"""Everything over plain HTTP: whole recordings in, texts out, on the engine of the live service."""
