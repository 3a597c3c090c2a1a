"""The HTTP service and its inspector page: `uatlite serve MODEL`. The only room that imports FastAPI."""
