"""What encoders and decoders share about ``torch.compile``."""

import functools
import importlib.util
from types import FunctionType
from typing import Any


def reproducible_options(device_type: str) -> dict[str, Any]:
    """Options of the compiler with which equal inputs always make equal results.

    On a GPU torch would time several kernels and take the fastest. After an
    interruption it may take another one, which sums in another order.
    """
    import torch._inductor.config as inductor

    # an option holds for all compilations, a change of torch's configuration for the
    # next one alone
    if device_type != "cpu" and hasattr(inductor, "deterministic"):
        return {"deterministic": True}
    return {}


@functools.cache
def missing_compiler(device_type: str) -> str | None:
    """Why ``torch.compile`` cannot work here, or None."""
    if device_type == "mps":
        return "not compiled for mps"
    if device_type == "cuda" and importlib.util.find_spec("triton") is None:
        return "no Triton here"
    from torch._inductor import cpp_builder
    from torch._inductor.exc import InvalidCxxCompiler

    try:
        cpp_builder.get_cpp_compiler()
    except (InvalidCxxCompiler, OSError, RuntimeError):
        return "no C++ compiler here"
    return None


def copy_function(function: Any) -> FunctionType:
    """A function of the same kind, whose compiled programs are its own.

    torch keeps programs by the code object, only a few for each. A copy has a code
    object of its own.
    """
    copy = FunctionType(
        function.__code__.replace(),
        function.__globals__,
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
    copy.__kwdefaults__ = function.__kwdefaults__
    return copy


def compiler_errors() -> tuple[type[Exception], ...]:
    """The errors that torch raises where it cannot compile."""
    from torch._dynamo import exc
    from torch._inductor.exc import CppCompileError, InvalidCxxCompiler

    # too many shapes of input; an older torch has another name for it
    too_many_shapes: type[Exception] = getattr(
        exc, "FailOnRecompileLimitHit", exc.TorchDynamoException
    )
    return (
        exc.TorchDynamoException,
        too_many_shapes,
        CppCompileError,
        InvalidCxxCompiler,
    )


def reason_of_failure(error: Exception) -> str:
    """The first line of a compiler's message; its type if there is no message."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0]
