"""The live service: sessions, the hub that owns them, and the WebSocket server."""
