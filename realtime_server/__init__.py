"""A live speech recognition server: audio in over a WebSocket, locked sentences and a moving partial out."""

__version__ = "0.1.0"
