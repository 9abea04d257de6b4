"""Resampling: Resize and Upsample."""
