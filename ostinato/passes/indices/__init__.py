"""Passes that recognise evenly spaced indices."""
