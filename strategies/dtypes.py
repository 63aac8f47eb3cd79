"""The dtypes a weight can have, by the name that torch gives them, simplest first."""

from __future__ import annotations

import warnings
from functools import cache

import torch

with warnings.catch_warnings():
    # torch says once a process that this dtype is experimental; said here, it disturbs nobody's run.
    warnings.simplefilter("ignore")
    torch.empty(1, dtype=torch.complex32)

_NAMES = (
    "float32",
    "bfloat16",
    "float16",
    "float64",
    "int8",
    "uint8",
    "bool",
    "int32",
    "int64",
    "int16",
    "uint16",
    "uint32",
    "uint64",
    "float8_e4m3fn",
    "float8_e5m2",
    "float8_e4m3fnuz",
    "float8_e5m2fnuz",
    "float8_e8m0fnu",
    "float4_e2m1fn_x2",
    "complex64",
    "complex128",
    "complex32",
)

DTYPES: dict[str, torch.dtype] = {name: getattr(torch, name) for name in _NAMES if hasattr(torch, name)}
"""Every dtype that is drawn, simplest first. A dtype this torch lacks is left out."""

ALL = tuple(DTYPES)
REAL = ("float32", "float16", "float64")
"""Dtypes with a complex counterpart."""
COMPLEX = ("complex64", "complex128", "complex32")
DIFFERENTIABLE = tuple(name for name, dtype in DTYPES.items() if dtype.is_floating_point or dtype.is_complex)
ARITHMETIC = (
    "float32",
    "bfloat16",
    "float16",
    "float64",
    "int8",
    "uint8",
    "int32",
    "int64",
    "int16",
    "complex64",
)
"""Dtypes that every torch adds, multiplies and casts on a CPU."""
PICKLED = [
    "float32",
    "bfloat16",
    "float16",
    "float64",
    "int8",
    "uint8",
    "bool",
    "int32",
    "int64",
    "int16",
    "complex64",
    "complex128",
]
"""Dtypes with a legacy typed storage, which `pickle` of a tensor goes through."""

_COMPLEX_OF = {"float32": torch.complex64, "float16": torch.complex32, "float64": torch.complex128}
_INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_UNSIGNED = {1: torch.uint8, 2: torch.uint16, 4: torch.uint32, 8: torch.uint64}
REINTERPRETED = tuple(name for name, dtype in DTYPES.items() if dtype.itemsize in _INTEGERS)
"""Dtypes that have a twin: another dtype of the same size."""


@cache
@cache
def name_of(dtype: torch.dtype) -> str:
    """`float32` for `torch.float32`."""
    return str(dtype).removeprefix("torch.")


def twin(dtype: torch.dtype) -> torch.dtype:
    """Another dtype of the same size: a signed integer, or for that one the unsigned one."""
    signed = _INTEGERS[dtype.itemsize]
    return signed if dtype is not signed else _UNSIGNED[dtype.itemsize]


def complex_of(dtype: torch.dtype) -> torch.dtype:
    """The complex dtype whose parts are `dtype`."""
    return _COMPLEX_OF[name_of(dtype)]


def real_of(dtype: torch.dtype) -> torch.dtype:
    """The dtype of the parts of a complex `dtype`."""
    return dtype.to_real()
