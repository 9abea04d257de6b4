"""Fourier transforms, framing and windows as their documents define them."""
