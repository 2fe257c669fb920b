"""Compute behind small interfaces: recognizers, voice activity scorers; base.py says which."""
