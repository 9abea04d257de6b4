"""Quantised ops as their documents define them."""
