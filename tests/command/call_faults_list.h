/* The calls that can be made to fail: allocations, threads, files, io_uring and, in the tests of
 * the CUDA backend, its runtime. tests/CMakeLists.txt reads the names too: each is linked with
 * --wrap.
 *
 * CALL: name, class, error, type, failure, (parameters), (arguments)
 *   a call that fails with errno `error` and the value `failure`, and does nothing then
 * ODD_CALL: name, class, error
 *   one with a variable number of arguments, or that does its work even when it fails; its wrapper
 *   is in call_faults.c
 * CUDA_CALL: name, (parameters), (arguments)
 *   one of the stand-in, which fails by itself when it is told to
 *
 * Left out: what cannot fail here (locks with default attributes), what only releases, and standard
 * output and error.
 */
#ifndef SL_TESTS_CALL_FAULTS_LIST_H
#define SL_TESTS_CALL_FAULTS_LIST_H

/* clang-format off */
#define CALL_FAULTS_MEMORY(CALL, ODD_CALL) \
    CALL(malloc, MEMORY, ENOMEM, void *, NULL, (size_t bytes), (bytes)) \
    CALL(calloc, MEMORY, ENOMEM, void *, NULL, (size_t count, size_t bytes), (count, bytes)) \
    CALL(realloc, MEMORY, ENOMEM, void *, NULL, (void *old, size_t bytes), (old, bytes)) \
    CALL(aligned_alloc, MEMORY, ENOMEM, void *, NULL, (size_t unit, size_t bytes), (unit, bytes)) \
    CALL(posix_memalign, MEMORY, ENOMEM, int, ENOMEM, (void **out, size_t unit, size_t bytes), (out, unit, bytes)) \
    CALL(strdup, MEMORY, ENOMEM, char *, NULL, (const char *text), (text)) \
    CALL(open_memstream, MEMORY, ENOMEM, FILE *, NULL, (char **text, size_t *bytes), (text, bytes)) \
    CALL(mmap, MEMORY, ENOMEM, void *, MAP_FAILED, (void *at, size_t bytes, int protection, int flags, int fd, off_t offset), (at, bytes, protection, flags, fd, offset)) \
    CALL(mprotect, MEMORY, ENOMEM, int, -1, (void *at, size_t bytes, int protection), (at, bytes, protection)) \
    CALL(mlock, MEMORY, ENOMEM, int, -1, (const void *at, size_t bytes), (at, bytes)) \
    CALL(madvise, MEMORY, ENOMEM, int, -1, (void *at, size_t bytes, int advice), (at, bytes, advice)) \
    CALL(__sched_cpualloc, MEMORY, ENOMEM, cpu_set_t *, NULL, (size_t count), (count)) \
    CALL(XXH3_createState, MEMORY, ENOMEM, void *, NULL, (void), ()) \
    CALL(io_uring_get_probe_ring, MEMORY, ENOMEM, void *, NULL, (void *ring), (ring)) \
    ODD_CALL(asprintf, MEMORY, ENOMEM) \
    ODD_CALL(__asprintf_chk, MEMORY, ENOMEM)

#define CALL_FAULTS_THREADS(CALL, ODD_CALL) \
    CALL(pthread_create, THREADS, EAGAIN, int, EAGAIN, (pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *user), (thread, attributes, run, user))

#define CALL_FAULTS_FILES(CALL, ODD_CALL) \
    ODD_CALL(open, FILES, EIO) \
    ODD_CALL(openat, FILES, EIO) \
    CALL(__openat_2, FILES, EIO, int, -1, (int at, const char *path, int flags), (at, path, flags)) \
    CALL(fopen, FILES, EIO, FILE *, NULL, (const char *path, const char *mode), (path, mode)) \
    CALL(opendir, FILES, EIO, DIR *, NULL, (const char *path), (path)) \
    CALL(fdopendir, FILES, EIO, DIR *, NULL, (int fd), (fd)) \
    CALL(readdir, FILES, EIO, struct dirent *, NULL, (DIR *stream), (stream)) \
    CALL(access, FILES, EIO, int, -1, (const char *path, int mode), (path, mode)) \
    CALL(faccessat, FILES, EIO, int, -1, (int at, const char *path, int mode, int flags), (at, path, mode, flags)) \
    CALL(stat, FILES, EIO, int, -1, (const char *path, struct stat *out), (path, out)) \
    CALL(lstat, FILES, EIO, int, -1, (const char *path, struct stat *out), (path, out)) \
    CALL(fstat, FILES, EIO, int, -1, (int fd, struct stat *out), (fd, out)) \
    CALL(fstatat, FILES, EIO, int, -1, (int at, const char *path, struct stat *out, int flags), (at, path, out, flags)) \
    CALL(statx, FILES, EIO, int, -1, (int at, const char *path, int flags, unsigned mask, struct statx *out), (at, path, flags, mask, out)) \
    CALL(statfs, FILES, EIO, int, -1, (const char *path, struct statfs *out), (path, out)) \
    CALL(fstatfs, FILES, EIO, int, -1, (int fd, struct statfs *out), (fd, out)) \
    CALL(statvfs, FILES, EIO, int, -1, (const char *path, struct statvfs *out), (path, out)) \
    CALL(fstatvfs, FILES, EIO, int, -1, (int fd, struct statvfs *out), (fd, out)) \
    CALL(read, FILES, EIO, ssize_t, -1, (int fd, void *data, size_t bytes), (fd, data, bytes)) \
    CALL(write, FILES, EIO, ssize_t, -1, (int fd, const void *data, size_t bytes), (fd, data, bytes)) \
    CALL(pread, FILES, EIO, ssize_t, -1, (int fd, void *data, size_t bytes, off_t offset), (fd, data, bytes, offset)) \
    CALL(pwrite, FILES, EIO, ssize_t, -1, (int fd, const void *data, size_t bytes, off_t offset), (fd, data, bytes, offset)) \
    CALL(fgets, FILES, EIO, char *, NULL, (char *text, int bytes, FILE *stream), (text, bytes, stream)) \
    CALL(getline, FILES, EIO, ssize_t, -1, (char **text, size_t *bytes, FILE *stream), (text, bytes, stream)) \
    CALL(fsync, FILES, EIO, int, -1, (int fd), (fd)) \
    CALL(fdatasync, FILES, EIO, int, -1, (int fd), (fd)) \
    CALL(sync_file_range, FILES, EIO, int, -1, (int fd, off_t offset, off_t bytes, unsigned flags), (fd, offset, bytes, flags)) \
    CALL(posix_fadvise, FILES, EIO, int, EIO, (int fd, off_t offset, off_t bytes, int advice), (fd, offset, bytes, advice)) \
    CALL(fallocate, FILES, ENOSPC, int, -1, (int fd, int mode, off_t offset, off_t bytes), (fd, mode, offset, bytes)) \
    CALL(ftruncate, FILES, EIO, int, -1, (int fd, off_t bytes), (fd, bytes)) \
    CALL(fchmod, FILES, EIO, int, -1, (int fd, mode_t mode), (fd, mode)) \
    CALL(flock, FILES, ENOLCK, int, -1, (int fd, int operation), (fd, operation)) \
    CALL(mkdir, FILES, EIO, int, -1, (const char *path, mode_t mode), (path, mode)) \
    CALL(mkdirat, FILES, EIO, int, -1, (int at, const char *path, mode_t mode), (at, path, mode)) \
    CALL(renameat2, FILES, EIO, int, -1, (int from_at, const char *from, int to_at, const char *to, unsigned flags), (from_at, from, to_at, to, flags)) \
    CALL(unlinkat, FILES, EIO, int, -1, (int at, const char *path, int flags), (at, path, flags)) \
    CALL(getrandom, FILES, EIO, ssize_t, -1, (void *data, size_t bytes, unsigned flags), (data, bytes, flags)) \
    CALL(getrlimit, FILES, EIO, int, -1, (int resource, struct rlimit *out), (resource, out)) \
    CALL(gethostname, FILES, EIO, int, -1, (char *text, size_t bytes), (text, bytes)) \
    CALL(setvbuf, FILES, EIO, int, -1, (FILE *stream, char *buffer, int mode, size_t bytes), (stream, buffer, mode, bytes)) \
    ODD_CALL(fcntl, FILES, EIO) \
    ODD_CALL(close, FILES, EIO) \
    ODD_CALL(fclose, FILES, EIO) \
    ODD_CALL(fflush, FILES, ENOSPC) \
    ODD_CALL(fputs, FILES, ENOSPC) \
    ODD_CALL(fputc, FILES, ENOSPC) \
    ODD_CALL(fprintf, FILES, ENOSPC) \
    ODD_CALL(__fprintf_chk, FILES, ENOSPC)

#define CALL_FAULTS_RING(CALL, ODD_CALL) \
    CALL(io_uring_queue_init, RING, ENOMEM, int, -ENOMEM, (unsigned depth, void *ring, unsigned flags), (depth, ring, flags)) \
    CALL(io_uring_register_files, RING, ENOMEM, int, -ENOMEM, (void *ring, const int *files, unsigned count), (ring, files, count)) \
    CALL(io_uring_register_buffers, RING, ENOMEM, int, -ENOMEM, (void *ring, const void *parts, unsigned count), (ring, parts, count)) \
    CALL(io_uring_submit, RING, ENOMEM, int, -ENOMEM, (void *ring), (ring)) \
    ODD_CALL(io_uring_wait_cqe_timeout, RING, ENOMEM)

#define CALL_FAULTS_LIST(CALL, ODD_CALL) \
    CALL_FAULTS_MEMORY(CALL, ODD_CALL) \
    CALL_FAULTS_THREADS(CALL, ODD_CALL) \
    CALL_FAULTS_FILES(CALL, ODD_CALL) \
    CALL_FAULTS_RING(CALL, ODD_CALL)

/* Types as the linker sees them: every handle is a pointer, every enumeration an int. */
#define CALL_FAULTS_CUDA_LIST(CUDA_CALL) \
    CUDA_CALL(cudaGetDeviceCount, (int *count), (count)) \
    CUDA_CALL(cudaGetDeviceProperties, (void *out, int device), (out, device)) \
    CUDA_CALL(cudaDeviceGetAttribute, (int *out, int attribute, int device), (out, attribute, device)) \
    CUDA_CALL(cudaDeviceGetPCIBusId, (char *text, int bytes, int device), (text, bytes, device)) \
    CUDA_CALL(cudaSetDevice, (int device), (device)) \
    CUDA_CALL(cudaGetDevice, (int *out), (out)) \
    CUDA_CALL(cudaSetDeviceFlags, (unsigned flags), (flags)) \
    CUDA_CALL(cudaDriverGetVersion, (int *out), (out)) \
    CUDA_CALL(cudaRuntimeGetVersion, (int *out), (out)) \
    CUDA_CALL(cudaGetDriverEntryPointByVersion, (const char *name, void **out, unsigned version, unsigned long long flags, int *status), (name, out, version, flags, status)) \
    CUDA_CALL(cudaStreamCreateWithFlags, (void **out, unsigned flags), (out, flags)) \
    CUDA_CALL(cudaStreamDestroy, (void *stream), (stream)) \
    CUDA_CALL(cudaStreamWaitEvent, (void *stream, void *event, unsigned flags), (stream, event, flags)) \
    CUDA_CALL(cudaStreamSynchronize, (void *stream), (stream)) \
    CUDA_CALL(cudaStreamQuery, (void *stream), (stream)) \
    CUDA_CALL(cudaEventCreateWithFlags, (void **out, unsigned flags), (out, flags)) \
    CUDA_CALL(cudaEventRecord, (void *event, void *stream), (event, stream)) \
    CUDA_CALL(cudaEventQuery, (void *event), (event)) \
    CUDA_CALL(cudaEventSynchronize, (void *event), (event)) \
    CUDA_CALL(cudaEventDestroy, (void *event), (event)) \
    CUDA_CALL(cudaEventElapsedTime, (float *out, void *start, void *end), (out, start, end)) \
    CUDA_CALL(cudaMalloc, (void **out, size_t bytes), (out, bytes)) \
    CUDA_CALL(cudaFree, (void *memory), (memory)) \
    CUDA_CALL(cudaHostAlloc, (void **out, size_t bytes, unsigned flags), (out, bytes, flags)) \
    CUDA_CALL(cudaFreeHost, (void *memory), (memory)) \
    CUDA_CALL(cudaHostRegister, (void *memory, size_t bytes, unsigned flags), (memory, bytes, flags)) \
    CUDA_CALL(cudaHostUnregister, (void *memory), (memory)) \
    CUDA_CALL(cudaHostGetDevicePointer, (void **out, void *memory, unsigned flags), (out, memory, flags)) \
    CUDA_CALL(cudaMemGetInfo, (size_t *out_free, size_t *out_total), (out_free, out_total)) \
    CUDA_CALL(cudaMemcpy, (void *to, const void *from, size_t bytes, int kind), (to, from, bytes, kind)) \
    CUDA_CALL(cudaMemcpyAsync, (void *to, const void *from, size_t bytes, int kind, void *stream), (to, from, bytes, kind, stream)) \
    CUDA_CALL(cudaMemsetAsync, (void *to, int value, size_t bytes, void *stream), (to, value, bytes, stream))
/* clang-format on */

#endif
