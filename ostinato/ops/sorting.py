"""Order and position: the largest elements, their places, running sums."""
