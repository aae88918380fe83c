"""Run methods with torch.compile, or plainly where it does not work."""

import warnings
from collections.abc import Callable
from types import MethodType
from typing import Any, ParamSpec, TypeVar

import torch

from gaam_cache.common.compiling import (
    compiler_errors,
    copy_function,
    reason_of_failure,
    reproducible_options,
)
from gaam_cache.common.errors import GaamWarning

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


class Compiler:
    """Runs methods, compiled for each shape if ``enabled``, else plainly.

    If the compiler fails, it warns, and ``works`` becomes False.
    """

    def __init__(self, *, enabled: bool, device_type: str) -> None:
        self.works = enabled
        self._compiled: dict[tuple[str, object], Callable[..., Any]] = {}
        self._options: dict[str, Any] = {}
        if not enabled:
            return
        import torch._inductor.config as inductor

        # torch would check hundreds of facts at every call: as slow as a small step
        if hasattr(torch.compiler, "skip_all_guards_unsafe"):
            self._options["guard_filter_fn"] = torch.compiler.skip_all_guards_unsafe
        self._options |= reproducible_options(device_type)
        # no trial program for every vector extension of the CPU, which takes seconds
        if hasattr(inductor.cpp, "vec_isa_ok") and inductor.cpp.vec_isa_ok is None:
            inductor.cpp.vec_isa_ok = True
        # torch warns of float16 states that meet bfloat16 products, and recommends
        # TensorFloat32 where float32 was requested: both are meant
        for message in ("bf16 and fp16 are mixed", "TensorFloat32 tensor cores"):
            warnings.filterwarnings("ignore", message=message)

    def run(
        self,
        method: Callable[Arguments, Result],
        shapes: object,
        *arguments: Arguments.args,
        **keywords: Arguments.kwargs,
    ) -> Result:
        """Call a method, compiled if that works.

        Args:
            method: of an object that does not change between calls.
            shapes: everything that differs between calls, apart from the numbers in
                the tensors. Other shapes are compiled again.
            arguments: of the method.
            keywords: of the method.
        """
        if self.works:
            try:
                return self._compile(method, shapes)(*arguments, **keywords)
            except compiler_errors() as error:
                # nothing has been computed yet, so that the plain method can run
                text = f"not compiled, so slower: {reason_of_failure(error)}"
                warnings.warn(text, GaamWarning, stacklevel=2)
                self.works = False
        return method(*arguments, **keywords)

    def _compile(
        self, method: Callable[Arguments, Result], shapes: object
    ) -> Callable[Arguments, Result]:
        """A method compiled for inputs of these shapes, which torch does not check."""
        key = (method.__name__, shapes)
        if key not in self._compiled:
            # the type checker knows a callable, not that it is a method
            bound_method: Any = method
            copy = copy_function(bound_method.__func__)
            bound = MethodType(copy, bound_method.__self__)
            self._compiled[key] = torch.compile(
                bound, fullgraph=True, dynamic=False, options=self._options
            )
        return self._compiled[key]
