"""Seconds, peak memory and size of the result of `spatialpdvi bin` on simulated bin-1 GEFs and a GEM."""

import tempfile
from contextlib import ExitStack
from pathlib import Path
from sys import executable

import click
from processes import apart, describe_machine, forget, run, section_size

N_GENES = 25_000
BLOCK = 1 << 22


@click.command()
@click.option("--records", default="1e7,1e8", show_default=True, help="Records of the GEFs, separated by commas.")
@click.option("--bins", default="1,50", show_default=True, help="Values of --bin, separated by commas.")
@click.option("--memory", default="1GB", show_default=True, help="Value of --memory.")
@click.option("--gem/--no-gem", default=True, show_default=True, help="Also bin the first GEF as a gzipped GEM.")
@click.option("--folder", type=click.Path(path_type=Path), help="Folder for the files. Default: a temporary one.")
def main(records: str, bins: str, memory: str, *, gem: bool, folder: Path | None) -> None:
    """Print a Markdown table with one row for each file and bin size."""
    with tempfile.TemporaryDirectory(dir=folder) as room:
        print(f"{describe_machine()}; {N_GENES:,} genes, --memory {memory}\n")
        print("| input | records | MB | --bin | seconds | CPU | peak MB | spots | values | MB of the h5ad |")
        print("|---|---|---|---|---|---|---|---|---|---|")
        for number, n in enumerate(int(float(text)) for text in records.split(",")):
            gems = [f"{room}/made.gem.gz"] if gem and number == 0 else []
            for path in map(Path, apart(make, f"{room}/made.gef", n, *gems)):
                for size in bins.split(","):
                    _measure(path, n, size, memory)
                path.unlink()


def _measure(path: Path, n: int, size: str, memory: str) -> None:
    output = path.with_name("out.h5ad")
    forget(path)
    done = run([executable, "-m", "spatialpdvi", "bin", path, "--bin", size, "-o", output, "--memory", memory, "-q"])
    cells = [path.suffixes[0][1:], f"{n:,}", _megabytes(path), size]
    if done.failure is None:
        spots, _, values = apart(section_size, output)
        cells += [f"{done.seconds:.1f}", f"{done.cpu_seconds:.1f}", f"{done.peak_bytes / 1e6:,.0f}"]
        cells += [f"{spots:,}", f"{values:,}", _megabytes(output)]
        output.unlink()
    else:
        cells += [f"failed: {done.failure}", *[""] * 5]
    print(f"| {' | '.join(cells)} |", flush=True)


def _megabytes(path: Path) -> str:
    return f"{path.stat().st_size / 1e6:,.0f}"


def make(path: str, n: int, *gems: str) -> list[str]:
    """Write a square-bin GEF of ``n`` records on a chip of 1 cm, ordered by gene, and GEMs of it; return all paths."""
    import gzip

    import h5py
    import numpy as np

    rng = np.random.default_rng(0)
    share = rng.lognormal(sigma=2.0, size=N_GENES)
    n_of = rng.multinomial(n, share / share.sum())
    ends = np.cumsum(n_of)
    kind = np.dtype([("x", "<i4"), ("y", "<i4"), ("count", "<u1")])
    names = np.zeros(N_GENES, dtype=[("geneID", "S64"), ("geneName", "S64"), ("offset", "<u4"), ("count", "<u4")])
    names["geneID"] = [f"ENSMUSG{i:011d}" for i in range(N_GENES)]
    names["geneName"] = [f"Gene{i}" for i in range(N_GENES)]
    names["count"], names["offset"] = n_of, ends - n_of
    with h5py.File(path, "w") as file, ExitStack() as stack:
        texts = [stack.enter_context(gzip.open(gem, "wt", compresslevel=4)) for gem in gems]
        group = file.create_group("geneExp/bin1")
        group["gene"] = names
        records = group.create_dataset("expression", (n,), dtype=kind)
        records.attrs.update({"minX": 0, "minY": 0, "maxX": 19_999, "maxY": 19_999, "resolution": 500})
        for text in texts:
            text.write("#FileFormat=GEMv0.1\n#BinSize=1\n#OffsetX=0\n#OffsetY=0\ngeneID\tx\ty\tMIDCount\n")
        for first in range(0, n, BLOCK):
            block = np.empty(min(BLOCK, n - first), dtype=kind)
            block["x"], block["y"] = (rng.normal(10_000, 3_500, size=(2, block.size)) % 20_000).astype(int)
            block["count"] = rng.geometric(0.8, size=block.size)
            records[first : first + block.size] = block
            for text in texts:
                gene = np.searchsorted(ends, np.arange(first, first + block.size), side="right")
                columns = [names["geneID"][gene].astype(str), *(block[name] for name in kind.names)]
                rows = zip(*(column.tolist() for column in columns), strict=True)
                text.writelines(f"{gene_id}\t{x}\t{y}\t{count}\n" for gene_id, x, y, count in rows)
    return [path, *gems]


if __name__ == "__main__":
    main()
