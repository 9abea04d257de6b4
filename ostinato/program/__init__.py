"""The loop program: what a model computes, as loops over memory.

    Program = buffers, constants, symbols, body: [Stmt]
    Buffer  = name, dtype, size (elements), kind: input | output | constant | arena
    Stmt    = Kernel | Loop
    Kernel  = axes (parallel), reductions: [Reduce(axes, combine, Expr, chains)], stores: [Store(Access, Expr)]
    Loop    = axis, carries: [(state, next)], body: [Stmt]
    Access  = buffer, offset + sum(axis * stride)
    Expr    = Load(Access) | Const | Index(axis) | Op(name, Exprs) | Cast | Reduced(i)

Sizes, offsets and strides are `dims.Size`: integers or polynomials of run-time symbols. Buffers are flat;
a view (slice, transpose, split, reshape) is nothing but another offset and other strides in an `Access`.
"""
