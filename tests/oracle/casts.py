"""Conversions between element types as their documents define them."""
