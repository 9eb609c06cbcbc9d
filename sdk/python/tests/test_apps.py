"""Programs of others on bb://, which they reach through fsspec."""

from __future__ import annotations

from typing import Any

import dask
import dask.bag
import dask.dataframe as dd
import fsspec
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest
import zarr
from upath import UPath

import forebay
from tests.daemon import Daemon


@pytest.fixture
def options(daemon: Daemon) -> dict[str, Any]:
    return {"address": daemon.socket}


def frame() -> pd.DataFrame:
    rng = np.random.default_rng(1)
    return pd.DataFrame({"k": np.arange(2000) % 5, "v": rng.random(2000), "s": ["text"] * 2000})


def test_pandas(buffer: forebay.Buffer, options: dict[str, Any]) -> None:
    df = frame()
    base = f"bb://{buffer.name}/pandas"
    df.to_parquet(f"{base}/f.parquet", storage_options=options)
    pd.testing.assert_frame_equal(pd.read_parquet(f"{base}/f.parquet", storage_options=options), df)
    df.to_csv(f"{base}/f.csv.gz", index=False, storage_options=options)
    again = pd.read_csv(f"{base}/f.csv.gz", storage_options=options)
    pd.testing.assert_series_equal(again["v"], df["v"])


def test_pyarrow(buffer: forebay.Buffer, options: dict[str, Any]) -> None:
    fs = pafs.PyFileSystem(pafs.FSSpecHandler(fsspec.filesystem("bb", **options)))
    table = pa.Table.from_pandas(frame())
    root = f"{buffer.name}/arrow"
    ds.write_dataset(table, root, format="parquet", partitioning=["k"], filesystem=fs)
    got = ds.dataset(root, partitioning=["k"], filesystem=fs)
    assert got.count_rows() == 2000
    assert got.to_table(filter=ds.field("k") == 3).num_rows == 400
    with buffer.open("f.arrow", "wb") as f, pa.ipc.new_file(f, table.schema) as w:
        w.write_table(table)
    with buffer.open("f.arrow") as f:
        assert pa.ipc.open_file(f.map().view).read_all().equals(table)
    pq.write_table(table, f"{buffer.name}/t.parquet", filesystem=fs)
    assert pq.read_table(f"{buffer.name}/t.parquet", filesystem=fs).num_rows == 2000


def test_zarr(buffer: forebay.Buffer, options: dict[str, Any]) -> None:
    url = f"bb://{buffer.name}/a.zarr"
    data = np.arange(300 * 200).reshape(300, 200)
    store = zarr.storage.FsspecStore.from_url(url, storage_options=options)
    array = zarr.create_array(store=store, data=data, chunks=(100, 100))
    array[10:20] = 0
    data[10:20] = 0
    again = zarr.open_array(
        zarr.storage.FsspecStore.from_url(url, storage_options=options, read_only=True), mode="r"
    )
    np.testing.assert_array_equal(again[:], data)


def test_dask(buffer: forebay.Buffer, options: dict[str, Any]) -> None:
    with dask.config.set(scheduler="threads", num_workers=2):
        bag = dask.bag.from_sequence([{"n": i} for i in range(100)], npartitions=4)  # type: ignore[no-untyped-call]
        files = f"bb://{buffer.name}/bag/*.json"
        bag.map(str).to_textfiles(files, storage_options=options)
        lines = dask.bag.read_text(files, storage_options=options)  # type: ignore[no-untyped-call]
        assert sum(eval(line)["n"] for line in lines.compute()) == 4950
    assert len(buffer.listdir("bag")) == 4


@pytest.mark.filterwarnings("ignore:The inplace keyword")  # Dask's own
@pytest.mark.parametrize("scheduler", ["threads", "processes"])
def test_dask_parquet(buffer: forebay.Buffer, options: dict[str, Any], scheduler: str) -> None:
    """Written by threads, and by processes that are spawned. Each has a session of its own."""
    url = f"bb://{buffer.name}/frames"
    frames = dd.from_pandas(frame(), npartitions=4)  # type: ignore[no-untyped-call]
    with dask.config.set(scheduler=scheduler, num_workers=2):
        frames.to_parquet(url, storage_options=options)
    with dask.config.set(scheduler="threads", num_workers=2):
        got = dd.read_parquet(url, storage_options=options)
        assert got.npartitions == 4
        pd.testing.assert_frame_equal(got.compute(), frame(), check_dtype=False)
        assert got.groupby("k")["v"].count().compute().to_dict() == dict.fromkeys(range(5), 400)
    assert sum(e.name.endswith(".parquet") for e in buffer.listdir("frames")) == 4


@pytest.mark.filterwarnings("ignore:UPath 'bb' filesystem")  # it has a class of its own for few
def test_paths(buffer: forebay.Buffer, options: dict[str, Any]) -> None:
    """universal-pathlib finds bb:// by the entry point alone."""
    base = UPath(f"bb://{buffer.name}/d", **options)
    base.mkdir()
    (base / "f.txt").write_text("text")
    assert (base / "f.txt").read_text() == "text"
    assert [p.name for p in base.iterdir()] == ["f.txt"]
    (base / "f.txt").rename(base / "g.txt")
    assert sorted(p.name for p in base.glob("*.txt")) == ["g.txt"]
    (base / "g.txt").unlink()
    assert not (base / "g.txt").exists()
