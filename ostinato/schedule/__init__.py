"""Decide where and in what order a loop program computes; never what. Results keep their bits."""
