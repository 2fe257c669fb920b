"""Decides; never touches a socket, a clock, a model or a thread. Standard library and numpy only."""
