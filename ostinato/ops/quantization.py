"""Quantised ops: scales, zero points, and products of integers."""
