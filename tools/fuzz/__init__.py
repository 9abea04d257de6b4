"""Searches for what breaks: damaged files, random graphs, random streams."""
