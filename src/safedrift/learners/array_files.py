"""Named arrays and a JSON header in one file, whole or not at all, checked when read.

The file is a zip of uncompressed .npy members and `header.json`, as `np.load` reads it. Its last 64
bytes, the comment of the zip, are the SHA-256 of all bytes before them: any change to names,
dtypes, shapes, numbers or header is found. The same arrays give the same bytes.

Nothing in such a file can run code, and no array is allocated before its size has been compared
with that of the file. The checksum finds damage; it does not say who wrote the file.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from safedrift import _check
from safedrift._files import write_whole

__all__ = ["read_array", "read_arrays", "write_array", "write_arrays"]

_DIGEST = 64  # hexadecimal digits of a SHA-256
_BLOCK = 2**20  # bytes read at once
_HEADER = "header.json"
_LONGEST_HEADER = 2**28
_KINDS = "biufcSU"  # numbers and text; no objects, no records


def write_array(file: IO[bytes], name: str, array: NDArray[Any]) -> None:
    """Write one array as .npy; refuse objects."""
    if array.dtype.kind not in _KINDS:
        raise TypeError(f"{name} must be an array of numbers; got {array.dtype}")
    np.lib.format.write_array(file, np.asarray(array, order="C"), allow_pickle=False)


def write_arrays(
    path: str | os.PathLike[str], header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]
) -> Path:
    """Write a header (plain data) and arrays by name to a file with a checksum."""
    text = json.dumps(header, indent=1, sort_keys=True).encode()

    def write(file: IO[bytes]) -> None:
        with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
            archive.comment = b"0" * _DIGEST
            with archive.open(_member(_HEADER), "w") as member:
                member.write(text)
            for name in sorted(arrays):
                with archive.open(_member(f"{name}.npy"), "w", force_zip64=True) as member:
                    write_array(member, name, np.asarray(arrays[name]))
        size = file.seek(0, os.SEEK_END) - _DIGEST
        digest = _digest(file, size)
        file.seek(size)
        file.write(digest)

    return write_whole(path, write)


def _member(name: str) -> zipfile.ZipInfo:
    """A member that says nothing of the time and machine it was written at."""
    member = zipfile.ZipInfo(name)  # of 1980
    member.create_system = 3
    member.external_attr = 0o644 << 16
    return member


def _digest(file: IO[bytes], size: int) -> bytes:
    """SHA-256 of the first `size` bytes, in hexadecimal digits."""
    found = hashlib.sha256()
    file.seek(0)
    while size > 0:
        block = file.read(min(size, _BLOCK))
        if not block:
            break
        found.update(block)
        size -= len(block)
    return found.hexdigest().encode()


def read_arrays(
    path: str | os.PathLike[str], wanted: str
) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Read header and arrays that `write_arrays` wrote; `wanted` says what the file must be."""

    def refuse(found: str) -> NoReturn:
        _check.fail(str(path), wanted, found)

    with open(path, "rb") as file:
        size = file.seek(0, os.SEEK_END) - _DIGEST
        if size <= 0:
            refuse(f"one of {size + _DIGEST} bytes")
        file.seek(0)
        if file.read(4) != b"PK\3\4":
            refuse("another kind of file")
        digest = _digest(file, size)
        if file.read(_DIGEST) != digest:
            refuse("one that is damaged: its checksum differs")
        try:
            with zipfile.ZipFile(file) as archive:
                return _members(archive, size)
        except (zipfile.BadZipFile, ValueError, KeyError, EOFError, NotImplementedError) as error:
            refuse(f"one that cannot be read ({error})")


def _members(archive: zipfile.ZipFile, size: int) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    header: dict[str, Any] = {}
    arrays: dict[str, NDArray[Any]] = {}
    for member in archive.infolist():
        name = member.filename
        stored = member.compress_type == zipfile.ZIP_STORED
        if not stored or member.file_size != member.compress_size or member.file_size > size:
            raise ValueError(f"{name} must be stored uncompressed")
        with archive.open(member) as file:
            if name == _HEADER:
                if member.file_size > _LONGEST_HEADER:
                    raise ValueError(f"{name} is too long")
                header = json.loads(file.read())
            else:
                arrays[name.removesuffix(".npy")] = read_array(file, name, member.file_size)
    if not isinstance(header, dict):
        raise ValueError(f"{_HEADER} must be an object")
    return header, arrays


def read_array(file: IO[bytes], name: str, size: int) -> NDArray[Any]:
    """Read one .npy of so many bytes; refuse objects, and shapes that these bytes do not hold."""
    version = np.lib.format.read_magic(file)
    if version not in ((1, 0), (2, 0)):
        raise ValueError(f"{name} is of an unknown version of the .npy format")
    read_header = (
        np.lib.format.read_array_header_1_0
        if version == (1, 0)
        else np.lib.format.read_array_header_2_0
    )
    shape, fortran, dtype = read_header(file)
    if dtype.kind not in _KINDS or dtype.hasobject:
        raise ValueError(f"{name} must be an array of numbers; got {dtype}")
    left = size - file.tell()
    if math.prod(shape) * dtype.itemsize != left:
        raise ValueError(f"{name} must hold an array of {dtype} of shape {shape}; got {left} bytes")
    data = file.read(left)
    if len(data) != left:
        raise ValueError(f"{name} ends early")
    flat = np.frombuffer(bytearray(data), dtype)
    return flat.reshape(shape[::-1]).T if fortran else flat.reshape(shape)
