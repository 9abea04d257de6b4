"""Resampling and transposed convolution as their documents define them."""
