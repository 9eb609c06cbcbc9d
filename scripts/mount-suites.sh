#!/usr/bin/env bash
# Makes sure of the suites of file systems that make test-mount runs on a mount: fsx and pjdfstest, compiled below
# .cache, and programs of the distribution. Prints the folder of the compiled ones. Where they cannot be had,
# prints the missing ones, and exits 1.
set -euo pipefail
cd "$(dirname "$0")/.."

fsx=0.3.2 pjdfstest=0.2.2
into=$PWD/.cache/mount-suites

missing=()
for tool in dbench dockerd fio fusermount3 h5dump h5pcc.mpich mpiexec.mpich rsync setfattr stress-ng; do
	command -v "$tool" >/dev/null || missing+=("$tool")
done
/usr/bin/python3 -c 'import h5py' 2>/dev/null || missing+=(h5py)
if [ ${#missing[@]} -gt 0 ]; then
	packages=(acl attr dbench docker.io fio fuse3 hdf5-tools libacl1-dev libhdf5-mpich-dev mpich python3-h5py rsync stress-ng)
	scripts/apt-install.sh "${packages[@]}" >&2 || {
		echo "${missing[*]} missing: install ${packages[*]}." >&2
		exit 1
	}
fi

made="fsx $fsx pjdfstest $pjdfstest"
if [ ! -f "$into/made" ] || [ "$(cat "$into/made")" != "$made" ]; then
	command -v cargo >/dev/null || {
		echo "cargo is missing: install Rust to compile fsx and pjdfstest." >&2
		exit 1
	}
	for crate in "fsx@$fsx" "pjdfstest@$pjdfstest"; do
		cargo install --quiet --locked --root "$into" "$crate" >&2
	done
	printf '%s' "$made" >"$into/made"
fi
echo "$into/bin"
