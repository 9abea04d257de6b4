"""Infrastructure of lowering rules: values, sizes, the builder of loop programs, the registry."""
