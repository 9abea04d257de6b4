"""Passes that remove work: constants, equal computations, what nobody reads."""
