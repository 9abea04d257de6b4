"""Sizes: one algebra of what only a run tells, which all other rooms use.

dims: polynomials of run-time dimensions, with quotients, minima and maxima as further symbols.
substitution: numbers, bounds and other sizes in place of symbols.
strides: strides of views. progressions: integers evenly spaced along every axis.
"""
