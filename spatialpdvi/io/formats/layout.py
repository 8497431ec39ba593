"""What the metadata of a file tell of a matrix: how large it is and how it is stored, without reading it."""

from typing import Any, NamedTuple

from spatialpdvi.io.storage.elements import file_bytes, is_array, is_packed

__all__ = ["Layout", "layout_of"]


class Layout(NamedTuple):
    """A matrix as it lies in the file."""

    shape: tuple[int, int]
    storage: str  # "csr", "csc" or "dense"
    n_values: int  # that are stored; of a dense matrix all
    value_bytes: int  # of one value
    index_bytes: int  # of one column number; those of CSR where it is dense
    n_bytes: int  # of all arrays once they are read
    packed_bytes: int  # of those that the file holds compressed, once they are read
    file_bytes: int  # in the file, compressed or not

    @property
    def by_rows(self) -> bool:
        """Whether it can be read block by block."""
        return self.storage != "csc"


def layout_of(element: Any) -> Layout:
    """Layout of a dense matrix or of a sparse one in anndata's form."""
    if is_array(element):
        rows, columns = element.shape if element.ndim == 2 else (element.shape[0], 1)
        size = int(element.size) * element.dtype.itemsize
        packed = size if is_packed(element) else 0
        stored = file_bytes(element)
        shape = (int(rows), int(columns))
        return Layout(shape, "dense", int(element.size), element.dtype.itemsize, 4, size, packed, stored)
    rows, columns = element.attrs["shape"] if "shape" in element.attrs else element.attrs["h5sparse_shape"]
    encoding = element.attrs.get("encoding-type", element.attrs.get("h5sparse_format", "csr_matrix"))
    arrays = [element[name] for name in ("data", "indices", "indptr")]
    sizes = [int(array.size) * array.dtype.itemsize for array in arrays]
    return Layout(
        shape=(int(rows), int(columns)),
        storage="csc" if str(encoding).startswith("csc") else "csr",
        n_values=int(arrays[0].size),
        value_bytes=arrays[0].dtype.itemsize,
        index_bytes=arrays[1].dtype.itemsize,
        n_bytes=sum(sizes),
        packed_bytes=sum(size for size, array in zip(sizes, arrays, strict=True) if is_packed(array)),
        file_bytes=sum(file_bytes(array) for array in arrays),
    )
