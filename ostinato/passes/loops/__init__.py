"""Passes that simplify loops and branches, and give loops the form of a Scan."""
