"""Traces of the PyTorch profiler: read, given to the processes they are of, and drawn under their spans."""
