"""How helpers are compiled: to code that is linked into kernels, without machine code of their own.

numba makes machine code of every function that it compiles. Nobody can call that of a helper, because helpers have no
entry from Python, and making it takes a tenth of the time in which a kernel is compiled. `HelperCompiler` is numba's
own compiler without this step. Kernels get the optimized code of their helpers all the same, in the form that it has
before machine code is made of it.
"""

from __future__ import annotations

from typing import Any

from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler, CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import LoweringPass, register_pass
from numba.core.typed_passes import AnnotateTypes

__all__ = ["helper_compiler"]


class _LinkedCode(JITCodeLibrary):  # type: ignore[misc]
    """Code of a helper that is optimized and can be linked, and is not passed to the execution engine."""

    @property
    def codegen(self) -> Any:
        """What numba asks, after it has compiled a function, to fill in the environment of its machine code."""
        return self

    def set_env(self, name: str, environment: Any) -> None:
        """Do nothing: without machine code there is no environment of it."""

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._verify_declare_only_symbols()
        self._finalized = True


@register_pass(mutates_CFG=False, analysis_only=True)
class _LinkOnly(LoweringPass):  # type: ignore[misc]
    """Have the next pass write its code to a library of `_LinkedCode`."""

    _name = "rankbound_link_only"

    def __init__(self) -> None:
        super().__init__()

    def run_pass(self, state: Any) -> bool:
        """Create the library, as the pass that lowers would."""
        state.library = _LinkedCode(state.targetctx.codegen(), state.func_id.func_qualname)
        state.library.enable_object_caching()
        return False


class HelperCompiler(CompilerBase):  # type: ignore[misc]
    """numba's compiler for functions that other compiled functions call."""

    def define_pipelines(self) -> list[Any]:
        """The usual passes, and `_LinkOnly` before that which lowers."""
        passes = DefaultPassBuilder.define_nopython_pipeline(self.state)
        passes.add_pass_after(_LinkOnly, AnnotateTypes)
        passes.finalize()
        return [passes]


def helper_compiler() -> type[CompilerBase]:
    """`HelperCompiler`, or numba's own where a later version lacks the methods on which it rests."""
    methods = ("_finalize_final_module", "_finalize_dynamic_globals", "_verify_declare_only_symbols")
    return HelperCompiler if all(hasattr(JITCodeLibrary, name) for name in methods) else Compiler
