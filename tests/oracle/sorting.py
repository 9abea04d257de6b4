"""Order, position and running sums as their documents define them."""
