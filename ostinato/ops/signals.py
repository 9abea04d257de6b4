"""Fourier transforms by plan, framing, and windows."""
