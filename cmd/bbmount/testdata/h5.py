# Writes data sets of HDF5 into a file, changes and extends them when the file is opened again, and compares
# all of it with arrays in memory.
import sys

import h5py
import numpy

name = sys.argv[1]
random = numpy.random.default_rng(7)
plain = random.random((300, 1000))
chunked = random.integers(0, 1000, (64, 4000))
with h5py.File(name, "w") as f:
    f["plain"] = plain
    f.create_dataset("chunked", data=chunked, maxshape=(None, 4000), chunks=(16, 1000), compression="gzip", fletcher32=True)
    f.attrs["step"] = 0
for step in range(1, 9):
    with h5py.File(name, "r+") as f:
        plain[step * 7] = step
        f["plain"][step * 7] = step
        more = random.integers(0, 1000, (10, 4000))
        chunked = numpy.concatenate([chunked, more])
        f["chunked"].resize(chunked.shape[0], axis=0)
        f["chunked"][-10:] = more
        f.attrs["step"] = step
        f.flush()
    with h5py.File(name, "r") as f:
        assert f.attrs["step"] == step
        assert numpy.array_equal(f["plain"][:], plain), "plain"
        assert numpy.array_equal(f["chunked"][:], chunked), "chunked"
