"""C libraries of models, compiled ahead of time."""
