"""Build of the compiled kernels; everything else about the package is in pyproject.toml.

Each library in ``src/rankbound/kernels`` is a plain shared library that `rankbound.kernels` loads with ctypes: it does
not use Python's C interface, so that one file serves every version of Python. The same sources are compiled for the
baseline of the architecture and, on x86-64, for processors with AVX2 and FMA, and with AVX-512. Where there is no
compiler, the package is installed without the libraries.

An editable installation, and ``python setup.py build_ext --inplace``, build them in the source tree: those that this
processor uses, or all with ``RANKBOUND_ALL_KERNELS=1``. ``RANKBOUND_SANITIZE=1`` adds the address and
undefined-behavior sanitizers.
"""

import os
import platform
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext

FOLDER = Path("src/rankbound/kernels")
SOURCES = sorted(map(str, FOLDER.glob("*.cpp")))
HEADERS = sorted(map(str, FOLDER.glob("*.hpp")))
# The lanes of sums are explicit, so that no flag may let the compiler reorder sums (-ffast-math, -fassociative-math).
FLAGS = [
    "-std=c++17",
    "-O3",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-fno-signed-zeros",
    "-fvisibility=hidden",
    "-Wno-psabi",
    "-g0",
]
AVX2 = ["-mavx2", "-mfma"]
AVX512 = ["-mavx512f", "-mavx512vl", "-mavx512dq", "-mavx512bw", "-mprefer-vector-width=512"]
IS_X86 = platform.machine().lower() in ("x86_64", "amd64")


def library(name: str, *flags: str) -> Extension:
    """A library with all kernels."""
    return Extension(
        f"rankbound.kernels.{name}", SOURCES, depends=HEADERS, extra_compile_args=list(flags), optional=True
    )


class BuildLibraries(build_ext):
    """Builds plain shared libraries: no suffix of a Python version, and no function that Python would call."""

    def get_ext_filename(self, fullname: str) -> str:
        """The file of a library."""
        return str(Path(*fullname.split("."))) + (".dll" if sys.platform == "win32" else ".so")

    def get_export_symbols(self, ext: Extension) -> list[str]:  # noqa: ARG002
        """None: the sources mark what they export."""
        return []

    def get_libraries(self, ext: Extension) -> list[str]:  # noqa: ARG002
        """None: Python is not needed."""
        return []

    def build_extension(self, ext: Extension) -> None:
        """Compile and link a library; in the source tree, only if this processor uses it and a source has changed."""
        if (self.inplace or self.editable_mode) and not os.environ.get("RANKBOUND_SANITIZE"):
            present = FOLDER / Path(self.get_ext_filename(ext.name)).name
            if is_newer(present) or (not os.environ.get("RANKBOUND_ALL_KERNELS") and not is_used_here(ext)):
                target = Path(self.get_ext_fullpath(ext.name))
                if present.exists() and target.resolve() != present.resolve():
                    target.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy2(present, target)
                return
        self.build_library(ext)

    def build_library(self, ext: Extension) -> None:
        """Compile the sources at the same time, the longest first, and link them."""
        flags, links = list(ext.extra_compile_args), []
        if self.compiler.compiler_type == "msvc":
            arch = "/arch:AVX512" if AVX512[0] in flags else "/arch:AVX2" if flags else ""
            flags = ["/std:c++17", "/O2", "/EHsc", *filter(None, [arch])]
        else:
            flags = [*FLAGS, *([] if flags or not IS_X86 else ["-O2"]), *flags]  # few processors need the baseline
            if os.environ.get("RANKBOUND_SANITIZE"):
                links = ["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"]
                flags += ["-O1", *links, "-g"]
        folder = str(Path(self.build_temp) / ext.name)  # the libraries have objects of the same names

        def compile_source(source: str) -> list[str]:
            return self.compiler.compile([source], output_dir=folder, extra_postargs=flags, depends=ext.depends)

        by_size = sorted(ext.sources, key=lambda source: -Path(source).stat().st_size)
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            objects = [name for names in pool.map(compile_source, by_size) for name in names]
        path = self.get_ext_fullpath(ext.name)
        self.compiler.link_shared_object(objects, path, extra_postargs=links, target_lang="c++")


def is_newer(library: Path) -> bool:
    """Whether a library is newer than everything that it is compiled from."""
    changed = max(Path(source).stat().st_mtime for source in [*SOURCES, *HEADERS, __file__])
    return library.exists() and library.stat().st_mtime > changed


def is_used_here(ext: Extension) -> bool:
    """Whether this processor may use a library: the baseline, and the best of the others; all where it is not known."""
    try:
        known = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return True
    has_avx512 = all(f" {name} " in known for name in ("avx512f", "avx512vl", "avx512dq", "avx512bw"))
    has_avx2 = " avx2 " in known and " fma " in known
    unused = {"avx2": has_avx512 or not has_avx2, "avx512": not has_avx512}
    return not unused.get(ext.name.rpartition(".")[2], False)


class PlatformWheel(bdist_wheel):
    """The wheel holds libraries for a platform, but for every version of Python."""

    def get_tag(self) -> tuple[str, str, str]:
        """The tag of the wheel."""
        return "py3", "none", super().get_tag()[2]


setup(
    ext_modules=[library("baseline"), *([library("avx2", *AVX2), library("avx512", *AVX2, *AVX512)] if IS_X86 else [])],
    cmdclass={"build_ext": BuildLibraries, "bdist_wheel": PlatformWheel},
)
