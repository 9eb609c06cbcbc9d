// Writes one file from all ranks of an MPI program, and reads it back on ranks of other nodes: by MPI-IO
// with calls that are independent, strided, and collective, and by parallel HDF5.
//
//	mpicc shared.c -lhdf5 && mpiexec -n 4 ./a.out DIR [chunked]
//
// SIEVE=VALUE is the hint romio_ds_write
#include <hdf5.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { records = 64, record = 1175 }; // ints: 4,700 bytes, no multiple of a page

static int rank, ranks, wrong;
static char path[8192], where[4096];

static void check(int error, const char *what) {
	if (error == MPI_SUCCESS) return;
	char text[MPI_MAX_ERROR_STRING];
	int n;
	MPI_Error_string(error, text, &n);
	fprintf(stderr, "rank %d: %s: %s: %s\n", rank, path, what, text);
	MPI_Abort(MPI_COMM_WORLD, 1);
}

static void need(long long id, const char *what) {
	if (id >= 0) return;
	fprintf(stderr, "rank %d: %s: %s\n", rank, path, what);
	MPI_Abort(MPI_COMM_WORLD, 1);
}

static int value(int writer, int i, int k) { return writer * 1000003 + i * 1009 + k; }

static void fill(int *p, int writer, int i) {
	for (int k = 0; k < record; k++) p[k] = value(writer, i, k);
}

static void compare(const int *p, int writer, int i, const char *how) {
	for (int k = 0; k < record; k++) {
		if (p[k] != value(writer, i, k)) {
			if (wrong++ == 0)
				fprintf(stderr, "rank %d: %s: %s: record %d of rank %d: %d in place of %d\n", rank, path, how, i, writer, p[k], value(writer, i, k));
			return;
		}
	}
}

// mpiio writes records that interleave: record i of rank r is the (i*ranks + r)th.
static void mpiio(const char *name, int strided, int collective, int preallocate) {
	snprintf(path, sizeof path, "%s/%s", where, name);
	MPI_File f;
	MPI_Info info;
	MPI_Info_create(&info);
	const char *sieve = getenv("SIEVE");
	if (sieve) MPI_Info_set(info, "romio_ds_write", sieve);
	check(MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_CREATE | MPI_MODE_RDWR, info, &f), "open");
	MPI_Offset whole = (MPI_Offset)records * ranks * record * sizeof(int);
	if (preallocate) check(MPI_File_set_size(f, whole), "set the size");
	int *all = malloc((size_t)records * record * sizeof(int));
	for (int i = 0; i < records; i++) fill(all + (size_t)i * record, rank, i);
	if (strided) { // all records of a rank by one call
		MPI_Datatype pieces;
		MPI_Type_vector(records, record, record * ranks, MPI_INT, &pieces);
		MPI_Type_commit(&pieces);
		check(MPI_File_set_view(f, (MPI_Offset)rank * record * sizeof(int), MPI_INT, pieces, "native", info), "view");
		MPI_Status s;
		if (collective) check(MPI_File_write_all(f, all, records * record, MPI_INT, &s), "write");
		else check(MPI_File_write(f, all, records * record, MPI_INT, &s), "write");
		MPI_Type_free(&pieces);
	} else {
		for (int i = 0; i < records; i++) {
			MPI_Offset at = ((MPI_Offset)i * ranks + rank) * record * sizeof(int);
			if (collective) check(MPI_File_write_at_all(f, at, all + (size_t)i * record, record, MPI_INT, MPI_STATUS_IGNORE), "write");
			else check(MPI_File_write_at(f, at, all + (size_t)i * record, record, MPI_INT, MPI_STATUS_IGNORE), "write");
		}
	}
	if (!preallocate) check(MPI_File_set_size(f, whole), "set the size");
	check(MPI_File_close(&f), "close");
	MPI_Barrier(MPI_COMM_WORLD);
	check(MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_RDONLY, MPI_INFO_NULL, &f), "open again");
	MPI_Offset size;
	check(MPI_File_get_size(f, &size), "size");
	if (size != whole && wrong++ == 0) fprintf(stderr, "rank %d: %s: %lld bytes in place of %lld\n", rank, path, (long long)size, (long long)whole);
	for (int w = 0; w < ranks; w++) {
		for (int i = 0; i < records; i++) {
			check(MPI_File_read_at(f, ((MPI_Offset)i * ranks + w) * record * sizeof(int), all, record, MPI_INT, MPI_STATUS_IGNORE), "read");
			compare(all, w, i, "read");
		}
	}
	check(MPI_File_close(&f), "close");
	free(all);
	MPI_Info_free(&info);
	MPI_Barrier(MPI_COMM_WORLD);
}

// hdf5 writes a data set of records × ranks rows, that is extended once, with a row of each rank in turn.
static void hdf5(const char *name, int chunked, H5FD_mpio_xfer_t how) {
	snprintf(path, sizeof path, "%s/%s", where, name);
	hid_t access = H5Pcreate(H5P_FILE_ACCESS);
	need(H5Pset_fapl_mpio(access, MPI_COMM_WORLD, MPI_INFO_NULL), "access");
	hid_t file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, access);
	need(file, "create");
	hsize_t rows[2] = {(hsize_t)(chunked ? records / 2 : records) * ranks, record}, most[2] = {H5S_UNLIMITED, record}, chunk[2] = {3, 500};
	hid_t space = H5Screate_simple(2, rows, chunked ? most : NULL);
	hid_t create = H5Pcreate(H5P_DATASET_CREATE);
	if (chunked) need(H5Pset_chunk(create, 2, chunk), "chunk");
	hid_t set = H5Dcreate2(file, "records", H5T_NATIVE_INT, space, H5P_DEFAULT, create, H5P_DEFAULT);
	need(set, "data set");
	if (chunked) {
		rows[0] = (hsize_t)records * ranks;
		need(H5Dset_extent(set, rows), "extend");
	}
	H5Sclose(space);
	space = H5Dget_space(set);
	hid_t transfer = H5Pcreate(H5P_DATASET_XFER);
	need(H5Pset_dxpl_mpio(transfer, how), "transfer");
	hsize_t one[2] = {1, record};
	hid_t memory = H5Screate_simple(2, one, NULL);
	int row[record];
	for (int i = 0; i < records; i++) {
		hsize_t start[2] = {(hsize_t)i * ranks + rank, 0};
		H5Sselect_hyperslab(space, H5S_SELECT_SET, start, NULL, one, NULL);
		fill(row, rank, i);
		need(H5Dwrite(set, H5T_NATIVE_INT, memory, space, transfer, row), "write");
	}
	hid_t scalar = H5Screate(H5S_SCALAR), attribute = H5Acreate2(set, "ranks", H5T_NATIVE_INT, scalar, H5P_DEFAULT, H5P_DEFAULT);
	need(attribute, "attribute");
	need(H5Awrite(attribute, H5T_NATIVE_INT, &ranks), "attribute");
	H5Aclose(attribute);
	H5Sclose(scalar);
	H5Dclose(set);
	need(H5Fclose(file), "close");
	MPI_Barrier(MPI_COMM_WORLD);
	file = H5Fopen(path, H5F_ACC_RDONLY, access);
	need(file, "open again");
	set = H5Dopen2(file, "records", H5P_DEFAULT);
	need(set, "data set again");
	int count = 0;
	attribute = H5Aopen(set, "ranks", H5P_DEFAULT);
	need(attribute, "attribute again");
	need(H5Aread(attribute, H5T_NATIVE_INT, &count), "attribute again");
	if (count != ranks && wrong++ == 0) fprintf(stderr, "rank %d: %s: attribute %d\n", rank, path, count);
	for (int w = 0; w < ranks; w++) {
		for (int i = 0; i < records; i++) {
			hsize_t start[2] = {(hsize_t)i * ranks + w, 0};
			H5Sselect_hyperslab(space, H5S_SELECT_SET, start, NULL, one, NULL);
			memset(row, 0, sizeof row);
			need(H5Dread(set, H5T_NATIVE_INT, memory, space, H5P_DEFAULT, row), "read");
			compare(row, w, i, "read");
		}
	}
	H5Aclose(attribute);
	H5Dclose(set);
	H5Fclose(file);
	H5Sclose(memory);
	H5Sclose(space);
	H5Pclose(create);
	H5Pclose(transfer);
	H5Pclose(access);
	MPI_Barrier(MPI_COMM_WORLD);
}

int main(int argc, char **argv) {
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	if (argc < 2) {
		fprintf(stderr, "the directory is missing\n");
		MPI_Abort(MPI_COMM_WORLD, 2);
	}
	snprintf(where, sizeof where, "%s", argv[1]); // of this rank's node
	MPI_File_set_errhandler(MPI_FILE_NULL, MPI_ERRORS_RETURN);
	mpiio("independent", 0, 0, 0);
	mpiio("independent-preallocated", 0, 0, 1);
	mpiio("record-collective", 0, 1, 0);
	mpiio("strided-collective", 1, 1, 0);
	mpiio("strided-independent", 1, 0, 0);
	hdf5("contiguous-independent.h5", 0, H5FD_MPIO_INDEPENDENT);
	hdf5("contiguous-collective.h5", 0, H5FD_MPIO_COLLECTIVE);
	if (argc > 2) { // with data sets whose index several ranks write in turn
		hdf5("chunked-independent.h5", 1, H5FD_MPIO_INDEPENDENT);
		hdf5("chunked-collective.h5", 1, H5FD_MPIO_COLLECTIVE);
	}
	int sum = 0;
	MPI_Allreduce(&wrong, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	if (rank == 0) printf("%d ranks, %d wrong\n", ranks, sum);
	MPI_Finalize();
	return sum ? 1 : 0;
}
