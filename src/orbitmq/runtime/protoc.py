"""Descriptors of Protobuf from files: those that protoc has written, or a `.proto`, which is compiled here."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from orbitmq.errors import ConfigurationError

PROTO = ".proto"
SIZE_MAX = 16 << 20  # bytes of a file; a larger one is some other file
COMPILE_TIMEOUT_S = 60  # a file with thousands of messages takes a second


def descriptors(path: Path) -> bytes:
    """The descriptors of a file, compiled if it is a `.proto`, else as they are. ConfigurationError if that fails,
    OSError for a file that cannot be read.
    """
    if path.stat().st_size > SIZE_MAX:
        raise ConfigurationError(f"{path} is larger than {SIZE_MAX >> 20} MiB")
    if path.suffix != PROTO:
        return path.read_bytes()
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "descriptors"
        source = path.absolute()  # whose name is no option, whatever it begins with
        # -P: modules in the working directory, such as next to a file from elsewhere, are not imported.
        command = [sys.executable, "-P", "-m", "grpc_tools.protoc", f"-I{source.parent}", "--include_imports"]
        try:
            done = subprocess.run(  # noqa: S603 - our own Python
                [*command, f"--descriptor_set_out={out}", str(source)],
                capture_output=True, text=True, errors="replace", timeout=COMPILE_TIMEOUT_S, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired as error:
            raise ConfigurationError(f"{path} was not compiled within {COMPILE_TIMEOUT_S} s") from error
        if done.returncode == 0:
            return out.read_bytes()
    if "No module named" in done.stderr:
        raise ConfigurationError(
            "a .proto file needs protoc: pip install 'orbitmq[protobuf]', or give the descriptors that "
            f"`protoc --include_imports --descriptor_set_out=FILE {path.name}` writes"
        )
    raise ConfigurationError(done.stderr.strip()[:500])
