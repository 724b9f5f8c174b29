"""Solves mixed-integer programs with HiGHS (scipy.optimize.milp).

Reads a JSON list of programs, minimise c x with A x <= b and 0 <= x <= u, where `integer` says which
x are whole; A is a list of [row, column, value]. Writes a JSON list of the optimal x, null where
there is none.
"""
import json
import sys

import numpy
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import coo_matrix


def solve(program):
    rows, columns, values = zip(*program["a"])
    shape = (len(program["b"]), len(program["c"]))
    matrix = coo_matrix((values, (rows, columns)), shape=shape).tocsc()
    result = milp(
        c=numpy.array(program["c"], dtype=float),
        constraints=LinearConstraint(matrix, -numpy.inf, program["b"]),
        integrality=program["integer"],
        bounds=Bounds(0, program["u"]),
        options={"mip_rel_gap": 0},
    )
    return None if result.status != 0 else [float(x) for x in result.x]


json.dump([solve(program) for program in json.load(sys.stdin)], sys.stdout)
