"""The networks and their front ends: numpy, onnxruntime or torch, imported lazily; no asyncio."""
