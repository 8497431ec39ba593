"""Whatever is wrong with a GEF or a GEM is one clear error, and nothing is left behind."""

import gzip
import re

import h5py
import numpy as np
import pytest
from binning_samples import write_cell_gef, write_gef, write_gem

from spatialpdvi import InputError, bin_file


def _gef(change):
    def make(path, molecules):
        write_gef(path, molecules, count_type="<i4")
        with h5py.File(path, "r+") as file:
            change(file)

    return make


def _replace(name, change):
    def apply(file):
        values = file[name][:]
        del file[name]
        file[name] = change(values)

    return _gef(apply)


def _set(field, value, dtype=None):
    def change(values):
        values = values.astype([(n, dtype if n == field and dtype else values.dtype[n]) for n in values.dtype.names])
        values[field][7] = value
        return values

    return change


def _without(field):
    def change(values):
        kept = [(name, values.dtype[name]) for name in values.dtype.names if name != field]
        changed = np.zeros(values.size, dtype=kept)
        for name, _ in kept:
            changed[name] = values[name]
        return changed

    return change


def _text(text):
    def make(path, _):
        path.write_text(text)

    return make


def _cut(n_bytes):
    def make(path, molecules):
        write_gef(path, molecules)
        path.write_bytes(path.read_bytes()[:n_bytes])

    return make


def _cut_gzip(path, molecules):
    whole = write_gem(path.with_suffix(".gz"), molecules)
    path.write_bytes(whole.read_bytes()[:-900])
    whole.unlink()


def _broken_gzip(path, molecules):
    whole = write_gem(path.with_suffix(".gz"), molecules)
    content = bytearray(whole.read_bytes())
    content[len(content) // 2] ^= 255
    path.write_bytes(content)
    whole.unlink()


HEAD = "geneID\tx\ty\tMIDCount\n"
EXPRESSION, GENE = "geneExp/bin1/expression", "geneExp/bin1/gene"


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda path, _: None, "found no such file"),
        (lambda path, _: path.touch(), "found an empty file"),
        (lambda path, _: path.write_bytes(bytes(range(256)) * 40), "where their names should be"),
        (_text("a picture\n"), "found 'a picture' where their names should be"),
        (_text(HEAD), "found none after its header"),
        (_text("#only\n#comments\n"), "found nothing where their names should be"),
        (
            _text("geneID\tx\ty\tn\nA\t1\t1\t1\n"),
            r"counts \(MIDCount or MIDCounts or UMICount\) in .* columns geneID, x, y",
        ),
        (_text("n\tx\ty\tMIDCount\nA\t1\t1\t1\n"), r"a column of genes \(geneID\) in"),
        (_text("geneID\tx\tMIDCount\nA\t1\t1\n"), r"a column of places \(y\) in"),
        (_text(HEAD + "A\t1\t1\t-2\n"), "whole numbers from 0 to 2,147,483,647, found -2"),
        (_text(HEAD + "A\t1\t1\t2.5\n"), "whole numbers from 0 to 2,147,483,647, found 2.5"),
        (_text(HEAD + "A\t1\t1\tinf\n"), "found inf"),
        (_text(HEAD + "A\t1\t1\t99999999999999999999999\n"), "Expected"),
        (_text(HEAD + "A\t1\t1\tmany\n"), "numbers in column MIDCount of .*, found 'many' in record 1"),
        (_text(HEAD + "A\t1\t1\t2\nA\t1"), "numbers in column .*, found nothing in record 2"),
        (_text("x\ty\tMIDCount\tgeneID\n1\t1\t1\tA\n1\t1\t1\n"), "a gene in every .*, found none in record 2"),
        (_text(HEAD + "A\t1.5\t1\t2\n"), r"whole numbers in column x of .*, found 1\.5\. Places are in DNBs"),
        (_text(HEAD + "A\t1\t99999999\t2\n"), "within 4,194,304 DNBs of its origin, found 99,999,999"),
        (_text(HEAD + "A\t1\t1\t0\n"), "Expected molecules in .*, found none in any spot"),
        (_text("geneID\tgeneID\tx\ty\tMIDCount\nA\tB\t1\t1\t2\n"), "Duplicate names"),
        (_text("#BinSize=50\n" + HEAD + "A\t0\t50\t2\n"), r"single DNBs \(BinSize 1\), found BinSize 50\. Export it"),
        (_cut_gzip, r"a complete gzip-compressed GEM, found it truncated or damaged"),
        (_broken_gzip, r"a complete gzip-compressed GEM, found it truncated or damaged|found '.*' in record"),
        (lambda path, _: path.write_bytes(gzip.compress(b"")), "found nothing where their names should be"),
        (_cut(4000), "a complete GEF, found it truncated or damaged"),
        (_gef(lambda file: file.pop("geneExp")), "found groups wholeExp. Check the path"),
        (_gef(lambda file: file.move("geneExp", "cellBin")), "found a cell-bin GEF. Give `cell_bin`"),
        (_gef(lambda file: (file.pop("geneExp"), file.create_group("obs"), file.create_group("var"))), "an AnnData"),
        (_gef(lambda file: (file.pop("geneExp"), file.create_group("matrix"))), "found a matrix of 10x"),
        (_gef(lambda file: file["geneExp"].move("bin1", "x")), "Expected groups bin1, bin50, .* found none"),
        (_gef(lambda file: (file.pop("geneExp"), file.create_dataset("geneExp", data=1))), "found none"),
        (_gef(lambda file: file.pop(EXPRESSION)), "expression of .* to be a table with x, y, count, found nothing of"),
        (_gef(lambda file: file.pop(GENE)), "gene of .* to be a table with count, found nothing of that name"),
        (_replace(EXPRESSION, _without("y")), "found no field y in it, but x, count"),
        (_replace(EXPRESSION, lambda values: values["x"]), "found values of type int32 in 1 dimensions"),
        (_replace(EXPRESSION, _set("x", b"a", "S4")), "found |S4 in its field x"),
        (_replace(EXPRESSION, _set("count", -3)), "the counts in /geneExp/bin1/expression to be whole .* found -3"),
        (_replace(EXPRESSION, _set("count", 1.5, "<f4")), r"found 1\.5\. Export the raw counts again"),
        (_replace(EXPRESSION, _set("count", np.nan, "<f8")), "found nan"),
        (_replace(EXPRESSION, lambda values: values[:-5]), "count its .* records, found"),
        (_replace(EXPRESSION, lambda values: values[:0]), "to have records, found none"),
        (
            _replace(GENE, lambda values: _without("geneID")(_without("geneName")(values))),
            "gene, geneID or geneName, found fi",
        ),
        (_replace(GENE, lambda values: values[:-1]), "count its .* records, found"),
        (_replace(EXPRESSION, _set("x", 0.5, "<f8")), r"places in .*expression to be whole numbers .*, found 0\.5\."),
        (_replace(EXPRESSION, _set("y", np.nan, "<f8")), "found nan"),
        (_replace(EXPRESSION, _set("x", 2**64 - 1, "<u8")), r"found 1\.84467440737e\+19"),
        (_replace(GENE, _set("count", -3, "<i8")), "the counts in /geneExp/bin1/gene to be whole .*, found -3"),
        (_replace(GENE, _set("geneName", b"a\0b")), r"names of genes to be texts, found a null character in 'a\\x00b'"),
        (_text("#BinSize=\u00b2\nn\tx\ty\tMIDCount\nA\t1\t1\t1\n"), r"a column of genes \(geneID\) in"),
    ],
)
def test_what_is_off_is_one_sentence(tmp_path, molecules, make, said):
    path = tmp_path / "in.file"
    make(path, molecules)
    before = {entry.name: entry.read_bytes() for entry in tmp_path.iterdir()}
    with pytest.raises(InputError, match=said) as raised:
        bin_file(path, tmp_path / "out.h5ad")
    assert re.fullmatch(r"Expected .+, found .+\. .+\.", str(raised.value)), raised.value
    assert {entry.name: entry.read_bytes() for entry in tmp_path.iterdir()} == before


def _largest_of_one_gene(values):
    values = values.astype([("geneID", "<u4"), ("count", "<u4")])
    values["geneID"], values["count"] = 0, 2**31 - 1
    return values


def _cell_gef(name, change):
    def make(path, molecules):
        write_cell_gef(path, molecules)
        with h5py.File(path, "r+") as file:
            values = file[name][:]
            del file[name]
            if change is not None:
                file[name] = change(values)

    return make


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (write_gef, r"cell-bin GEF \(with cellBin\), found a square-bin GEF\. Leave out `cell_bin`"),
        (write_gem, r"a column of cells \(CellID\) in .* Leave out `cell_bin`"),
        (_text("geneID\tx\ty\tMIDCount\tCellID\nA\t1\t1\t1\t0\n"), "Expected molecules in .*, found none in any spot"),
        (_text("geneID\tx\ty\tMIDCount\tCellID\nA\t1\t1\t1\t-4\n"), "numbers of cells from 0 to .*, found -4"),
        (_cell_gef("cellBin/cellExp", None), "cellExp of .* found nothing of that name"),
        (_cell_gef("cellBin/cell", _without("geneCount")), "found no field geneCount in it"),
        (_cell_gef("cellBin/cell", lambda cells: cells[1:]), "the cells of .* to count its .* values, found"),
        (_cell_gef("cellBin/cellExp", _set("geneID", 99)), "numbers of genes below 12 in .* found 99"),
        (_cell_gef("cellBin/gene", lambda genes: genes[:3]), "numbers of genes below 3 in"),
        (_cell_gef("cellBin/cell", _set("id", 1)), "every cell once in .*, found 1 again"),
        (_cell_gef("cellBin/cell", _set("x", np.nan, "<f8")), "places in cellBin/cell of .*, found nan"),
        (
            _cell_gef("cellBin/cell", _set("geneCount", -1, "<i8")),
            "the counts in /cellBin/cell to be whole .* found -1",
        ),
        (_cell_gef("cellBin/cellExp", _set("geneID", 0.5, "<f8")), r"counts in geneID of .*, found 0\.5"),
        (_cell_gef("cellBin/cellExp", _largest_of_one_gene), "added up by cell and gene, to be .*, found 2.57"),
    ],
)
def test_of_cells(tmp_path, molecules, make, said):
    path = tmp_path / "in.file"
    make(path, molecules)
    with pytest.raises(InputError, match=said) as raised:
        bin_file(path, tmp_path / "out.h5ad", cell_bin=True)
    assert re.fullmatch(r"Expected .+, found .+\. .+\.", str(raised.value)), raised.value
    assert [entry.name for entry in tmp_path.iterdir()] == ["in.file"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"bin_size": 0}, "`bin_size` to be a whole number from 1 to 4,194,303, found 0"),
        ({"bin_size": -50}, "found -50"),
        ({"bin_size": 1 << 22}, "found 4194304"),
        ({"bin_size": 50, "cell_bin": True}, "one of `bin_size` and `cell_bin`, found both"),
        ({"memory": "much"}, "`memory` to be a size such as 8GB or 500MB, found 'much'"),
    ],
)
def test_of_options(tmp_path, molecules, options, said):
    path = write_gef(tmp_path / "in.gef", molecules)
    with pytest.raises(InputError, match=said):
        bin_file(path, tmp_path / "out.h5ad", **options)
    assert [entry.name for entry in tmp_path.iterdir()] == ["in.gef"]
