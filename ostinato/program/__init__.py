"""The loop program: what a model computes, as loops over memory.

    Program = inputs, outputs, symbols, definitions, buffers, constants, checks, body: [Stmt]
    Buffer  = name, dtype, size (elements), kind: input | output | constant | arena | size
    Stmt    = Kernel | Loop | Branch | Require
    Kernel  = axes (parallel, or ordered), reductions: [Reduce], stores: [Store], guard, tile
    Reduce  = axes, combine, Expr, factor: Expr, chains
    Store   = Access, Expr, mask, computed index
    Loop    = axis, carries: [(state, next)], body: [Stmt], condition, is_independent, scratch
    Branch  = condition, then: [Stmt], orelse: [Stmt]
    Require = condition, message, is_guard, size
    Access  = buffer, offset + sum(axis * stride)
    Expr    = Load(Access, mask, computed index) | Const | Index(axis) | Extent(size)
            | Op(name, Exprs) | Cast | Reduced(i)

Sizes, offsets and strides are `dims.Size`: integers or polynomials of run-time symbols, which are
dims of inputs, values of elements of small integer inputs, definitions in terms of these, or
computed: a buffer of kind "size" holds the value of the symbol of its name, which a kernel stores,
and whatever mentions the symbol behind that kernel reads it. Memory is laid out before a run, by
the bound that such a buffer has. Buffers are flat; a view (slice, transpose, split, reshape) is
nothing but another offset and other strides in an `Access`.
"""
