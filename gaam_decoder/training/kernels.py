"""Arithmetic compiled for the shapes that it meets, and as it stands where a compiler fails."""

from __future__ import annotations

import types
import warnings
from collections.abc import Callable
from typing import Any

import torch

from gaam_cache.errors import GaamWarning


class Kernels:
    """Runs methods, compiled if asked.

    Args:
        compiled: whether to hand them to ``torch.compile``.

    Attributes:
        compiled: turns False, with a warning, when the compiler fails.
    """

    def __init__(self, compiled: bool) -> None:
        self.compiled = compiled
        self._kernels: dict[Any, Callable[..., Any]] = {}
        if compiled:
            _prepare_compiler()

    def run(self, function: Callable[..., Any], shapes: Any, *arguments: Any) -> Any:
        """Call a method.

        Args:
            function: the method, of an object that does not change between calls.
            shapes: everything that can change between calls beside the numbers in tensors.
            arguments: tensors, and dicts of them.
        """
        if self.compiled:
            try:
                return self._kernel(function, shapes)(*arguments)
            except _compiler_errors() as error:  # before anything has been computed
                first = str(error).strip().splitlines()[0]
                warnings.warn(f"not compiled, so slower: {first}", GaamWarning, stacklevel=2)
                self.compiled = False
        return function(*arguments)

    def _kernel(self, function: Callable[..., Any], shapes: Any) -> Callable[..., Any]:
        """The compiled form of a method for inputs of these shapes.

        All that can change between calls is in ``shapes``. torch would check hundreds of other
        things at every call, which takes as long as a small step; so every shape gets a copy of
        the function, and nothing is checked.
        """
        key = (function.__name__, shapes)
        if key not in self._kernels:
            assert isinstance(function, types.MethodType)
            plain = function.__func__
            assert isinstance(plain, types.FunctionType)
            code = plain.__code__.replace()  # a new object: torch keeps what it compiled by it
            copy = types.FunctionType(code, plain.__globals__, plain.__name__)
            options: dict[str, Any] = {}
            if hasattr(torch.compiler, "skip_all_guards_unsafe"):
                options = {"guard_filter_fn": torch.compiler.skip_all_guards_unsafe}
            self._kernels[key] = torch.compile(
                types.MethodType(copy, function.__self__),
                fullgraph=True,
                dynamic=False,
                options=options,
            )
        return self._kernels[key]


def _prepare_compiler() -> None:
    """Spare the compiler what takes seconds and is not needed."""
    import torch._inductor.config as inductor

    # torch otherwise compiles and loads a trial program for every vector extension of the CPU; a
    # compiler too old for the best of them fails here, and the step then runs without one
    if hasattr(inductor.cpp, "vec_isa_ok") and inductor.cpp.vec_isa_ok is None:
        inductor.cpp.vec_isa_ok = True
    # true of every cache in float16 that is trained on in bfloat16, and nothing to worry about
    warnings.filterwarnings("ignore", message="bf16 and fp16 are mixed")


def _compiler_errors() -> tuple[type[Exception], ...]:
    from torch._dynamo.exc import TorchDynamoException
    from torch._inductor.exc import CppCompileError, InvalidCxxCompiler

    return TorchDynamoException, CppCompileError, InvalidCxxCompiler
