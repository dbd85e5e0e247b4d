"""How kernels and helpers are compiled: by numba's own compiler, without the steps that they do not need.

- numba makes machine code of every function that it compiles. Nobody can call that of a helper, because helpers have no
  entry from Python, and making it takes a tenth of the time in which a kernel is compiled. `HelperCompiler` leaves this
  step out. Kernels get the optimized code of their helpers all the same, in the form that it has before machine code is
  made of it.
- numba looks in every function for forms of Python that no kernel here has, such as closures, ``with`` and expressions
  of whole arrays. Both compilers leave these passes out, which take 6 % of the time of nDCG.
- numba prepares an optimizer for each function that a module names, even if the function is defined elsewhere and there
  is nothing to optimize. Here it does so for functions that are defined in the module.
- numba tries dozens of definitions of ``+`` and the like for each place in the code where two numbers are added.
  `_RememberingContext` keeps what it has found for two types, which saves a tenth of the time.

None of this changes the code that is made.
"""

from __future__ import annotations

from inspect import signature
from typing import Any, ClassVar

from numba.core import types
from numba.core.codegen import JITCodeLibrary, JITCPUCodegen
from numba.core.compiler import Compiler, CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import LoweringPass, register_pass
from numba.core.typed_passes import AnnotateTypes
from numba.core.typing.context import BaseContext

__all__ = ["helper_compiler", "kernel_compiler"]

# Passes of numba by name, so that other versions can lack some of them. They serve: with statements; closures; raised
# errors and indices that are constants; calls to inline in numba's own form; literals as types; array expressions.
_NEEDLESS = frozenset(
    {
        "WithLifting",
        "InlineClosureLikes", "MakeFunctionToJitFunction",
        "GenericRewrites", "RewriteDynamicRaises",
        "InlineInlinables", "InlineOverloads",
        "FindLiterallyCalls", "LiteralUnroll", "LiteralPropagationSubPipelinePass",
        "NopythonRewrites",
        "NoPythonSupportedFeatureValidation", "DumpParforDiagnostics",
    }
)  # fmt: skip


# Whether this version of numba makes a manager of passes for each function; earlier ones made one for a whole module.
_HAS_OWN_MANAGERS = "llvm_module" not in signature(JITCPUCodegen._function_pass_manager).parameters


# ---- code ------------------------------------------------------------------------------------------------------------


class _Code(JITCodeLibrary):  # type: ignore[misc]
    """Code of a kernel."""

    def _optimize_functions(self, ll_module: Any) -> None:
        if not _HAS_OWN_MANAGERS:
            super()._optimize_functions(ll_module)
            return
        ll_module.data_layout = self._codegen._data_layout
        for function in ll_module.functions:
            if not function.is_declaration:
                passes, builder = self._codegen._function_pass_manager()
                passes.run(function, builder)


class _LinkedCode(_Code):
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


class _CreateLibrary(LoweringPass):  # type: ignore[misc]
    """Create the library to which the next pass writes its code, as that pass would."""

    library: type[_Code]

    def __init__(self) -> None:
        super().__init__()

    def run_pass(self, state: Any) -> bool:
        """Create the library."""
        state.library = self.library(state.targetctx.codegen(), state.func_id.func_qualname)
        state.library.enable_object_caching()
        return False


@register_pass(mutates_CFG=False, analysis_only=True)
class _CreateCode(_CreateLibrary):
    _name = "rankbound_create_code"
    library = _Code


@register_pass(mutates_CFG=False, analysis_only=True)
class _CreateLinkedCode(_CreateLibrary):
    _name = "rankbound_create_linked_code"
    library = _LinkedCode


# ---- types -----------------------------------------------------------------------------------------------------------


class _RememberingContext:
    """numba's typing context, which remembers the signatures of calls of functions that numba itself defines."""

    _signatures: ClassVar[dict[Any, Any]] = {}  # by function and types of the arguments: both are never changed

    def __init__(self, context: Any) -> None:
        self._context = context

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)

    def resolve_function_type(self, func: Any, args: Any, kws: Any) -> Any:
        """The signature of a call, for which numba has to try all definitions of the function one by one."""
        if kws or (isinstance(func, types.Type) and not isinstance(func, types.BaseFunction)):
            return self._context.resolve_function_type(func, args, kws)
        key = func, tuple(args)
        known = self._signatures.get(key)
        if known is None:
            known = self._context.resolve_function_type(func, args, kws)
            if known is not None:
                self._signatures[key] = known
        return known

    resolve_setitem = BaseContext.resolve_setitem  # calls the method above


# ---- compilers -------------------------------------------------------------------------------------------------------


class _Compiler(CompilerBase):  # type: ignore[misc]
    def __init__(self, typingctx: Any, *arguments: Any) -> None:
        super().__init__(_RememberingContext(typingctx), *arguments)


def _passes(state: Any, create_library: type[_CreateLibrary]) -> Any:
    """The passes of numba that are needed, and one that creates a library before that which lowers."""
    manager = DefaultPassBuilder.define_nopython_pipeline(state)
    manager.passes = [entry for entry in manager.passes if entry[0].__name__ not in _NEEDLESS]
    manager.add_pass_after(create_library, AnnotateTypes)
    manager.finalize()
    return manager


class KernelCompiler(_Compiler):
    """numba's compiler for serial kernels."""

    def define_pipelines(self) -> list[Any]:
        """The passes that are needed."""
        return [_passes(self.state, _CreateCode)]


class HelperCompiler(_Compiler):
    """numba's compiler for functions that other compiled functions call."""

    def define_pipelines(self) -> list[Any]:
        """The passes that are needed."""
        return [_passes(self.state, _CreateLinkedCode)]


def kernel_compiler() -> type[CompilerBase]:
    """`KernelCompiler`, or numba's own where a later version lacks the methods on which it rests."""
    return KernelCompiler if hasattr(JITCodeLibrary, "_optimize_functions") else Compiler


def helper_compiler() -> type[CompilerBase]:
    """`HelperCompiler`, or numba's own in the same case."""
    methods = ("_finalize_final_module", "_finalize_dynamic_globals", "_verify_declare_only_symbols")
    is_complete = kernel_compiler() is KernelCompiler and all(hasattr(JITCodeLibrary, name) for name in methods)
    return HelperCompiler if is_complete else Compiler
