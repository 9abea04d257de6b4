"""Cases of sums of products named by letters."""

from __future__ import annotations

from typing import Any

from tests.cases.case import Case, In, node

SIZES = ({"N": 3, "T": 70}, {"N": 1, "T": 7}, {"N": 5, "T": 9}, {"N": 0, "T": 8})


def equations() -> list[Case]:
    def case(equation: str, *shapes: tuple[int | str, ...], **demands: Any) -> Case:
        operands = [In(shape) for shape in shapes]
        name = equation.replace(" ", "").replace(",", "_").replace("->", "-to-")
        return node(name, "Einsum", *operands, equation=equation, **{"length": 8, **demands})

    return [
        case("ij,jk->ik", (3, 5), (5, 4)),
        case("ij,jk", (3, 5), (5, 4)),
        case("ba,ca", (3, 5), (4, 5)),
        case("bij,bjk->bik", (2, 3, 5), (2, 5, 4)),
        case("bhqd,bhkd->bhqk", (2, 2, 3, 8), (2, 2, 5, 8)),
        case("i,j->ij", (3,), (20,)),
        case("i,i->", (70,), (70,), length=70),
        case("bi,bi->b", (3, 70), (3, 70), length=70),
        case("ij->ji", (3, 5)),
        case("ij->", (3, 50), length=150),
        case("ij->j", (3, 50)),
        case("ji", (3, 5)),
        case("ii->i", (5, 5), witness=False),
        case("ii->", (5, 5), witness=False),
        case("iji->j", (5, 3, 5), witness=False),
        case("ii,i->i", (5, 5), (5,), witness=False),
        case(",i->i", (), (5,)),
        case("ij,jk,kl->il", (3, 5), (5, 4), (4, 6), length=40),
        case("ijk,jil->kl", (3, 4, 5), (4, 3, 6), length=24),
        case("ab,cd->", (3, 4), (2, 5), length=120),
        case("ab,cd->ad", (3, 4), (2, 5), length=20),
        case(" ij , jk -> k i ", (3, 5), (5, 4)),
        case("...ij,...jk->...ik", (2, 3, 4), (2, 4, 5), ranks=(3,)),
        case("...ij,...jk", (6, 2, 3, 4), (2, 4, 5), ranks=(4,), witness=False),
        case("...ij->...ji", (2, 3, 4), ranks=(3,)),
        case("i...->...", (2, 3, 4), ranks=(2,)),
        case("...,...", (2, 3), (2, 3), ranks=(2,)),
        case("...i,i->...", (4,), (4,), ranks=(0,)),
        case("nti,ij->ntj", ("N", "T", 4), (4, 3), sizes=SIZES, batch=True),
        case("nt,nt->n", ("N", "T"), ("N", "T"), sizes=SIZES, batch=True, length=70),
        case("ij,jk->", (0, 5), (5, 4), witness=False),
        case("ij,kj->ik", (3, 0), (4, 0), witness=False),
        node("double", "Einsum", In((3, 5), "float64"), In((5, 4), "float64"),
             equation="ij,jk->ik", length=5),
        node("int", "Einsum", In((3, 5), "int32", high=9), In((5, 4), "int32", high=9),
             equation="ij,jk->ik", witness=False),
        node("half", "Einsum", In((3, 5), "float16"), In((5, 4), "float16"),
             equation="ij,jk->ik", length=5, witness=False),
    ]  # fmt: skip


CASES = equations()
