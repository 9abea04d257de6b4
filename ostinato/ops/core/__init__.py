"""What all rules share: values, sizes, the builder of loop programs, the registry."""
