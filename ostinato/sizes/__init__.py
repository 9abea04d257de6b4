"""Sizes: one algebra of what only a run tells, which all other rooms use."""
