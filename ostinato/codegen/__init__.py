"""From a scheduled loop program to machine code."""
