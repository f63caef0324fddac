/* What a process does to one SQLite file, seen from between it and the C library (LD_PRELOAD): counted, and on demand
 * recorded, made to fail, or made the last thing that the process does.
 *
 * NIGHT_DISK_FILE is the database's path; its -wal and -journal and the folder's fsync count too, -shm does not (SQLite
 * makes it anew after a crash). NIGHT_DISK_CONTROL is a file of one page that is shared with whoever conducts the trial
 * (struct control); NIGHT_DISK_LOG, if set, is appended to: struct record, then the data of a write. Deliberately
 * absent: mmap (the journal does not ask SQLite for it), and everything that is no file of the database.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PLAIN, FAIL, KILL_BEFORE, KILL_AFTER, TEAR_AND_FAIL, TEAR_AND_KILL };
enum { WRITE = 1, SYNC, CUT, UNLINK, CREATE };
enum { NONE = 0, DATABASE = 1, WAL, JOURNAL, FOLDER };

struct control {
    uint64_t done;    /* operations so far, of all processes */
    uint64_t at;      /* the operation to act on, counted from 1; 0: none */
    uint64_t acted;   /* how often something was made to fail, or about to */
    uint32_t mode;
    uint32_t error;   /* errno of what fails */
    uint64_t span;    /* how many operations fail from there on */
    uint64_t every;   /* how many operations later the next one is acted on; 0: none */
};
struct record {
    uint32_t kind, file;
    uint64_t offset, length;
};

static struct control *control;
static int recording = -1;
static char path[4096], folder[4096];
static unsigned char kinds[65536];
static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;

static ssize_t (*real_write)(int, const void *, size_t);
static ssize_t (*real_pwrite)(int, const void *, size_t, off64_t);
static int (*real_open)(const char *, int, ...);
static int (*real_close)(int), (*real_fsync)(int), (*real_fdatasync)(int);
static int (*real_ftruncate)(int, off64_t), (*real_unlink)(const char *);

__attribute__((constructor)) static void begin(void) {
    real_write = dlsym(RTLD_NEXT, "write");
    real_pwrite = dlsym(RTLD_NEXT, "pwrite64");
    real_open = dlsym(RTLD_NEXT, "open64");
    real_close = dlsym(RTLD_NEXT, "close");
    real_fsync = dlsym(RTLD_NEXT, "fsync");
    real_fdatasync = dlsym(RTLD_NEXT, "fdatasync");
    real_ftruncate = dlsym(RTLD_NEXT, "ftruncate64");
    real_unlink = dlsym(RTLD_NEXT, "unlink");
    const char *file = getenv("NIGHT_DISK_FILE"), *shared = getenv("NIGHT_DISK_CONTROL"), *log = getenv("NIGHT_DISK_LOG");
    if (!file || !shared || strlen(file) > 4000) return;
    strcpy(path, file);
    strcpy(folder, file);
    char *slash = strrchr(folder, '/');
    if (slash) *slash = 0;
    int held = real_open(shared, O_RDWR | O_CLOEXEC);
    if (held < 0) return;
    void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, held, 0);
    real_close(held);
    if (page != MAP_FAILED) control = page;
    if (log) recording = real_open(log, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
}

static int kind_of(const char *name) {
    size_t length = strlen(path);
    if (!control || !name) return NONE;
    if (!strcmp(name, folder)) return FOLDER;
    if (strncmp(name, path, length)) return NONE;
    if (!name[length]) return DATABASE;
    if (!strcmp(name + length, "-wal")) return WAL;
    if (!strcmp(name + length, "-journal")) return JOURNAL;
    return NONE;
}

static int kind_at(int fd) { return control && fd >= 0 && fd < (int)sizeof kinds ? kinds[fd] : NONE; }

static void record(uint32_t kind, uint32_t file, uint64_t offset, uint64_t length, const void *data) {
    if (recording < 0) return;
    struct record told = {kind, file, offset, length};
    char *whole = malloc(sizeof told + (data ? length : 0));
    if (!whole) abort();
    memcpy(whole, &told, sizeof told);
    if (data) memcpy(whole + sizeof told, data, length);
    if (real_write(recording, whole, sizeof told + (data ? length : 0)) < 0) abort();
    free(whole);
}

/* Count an operation; return what is to become of it. Called with the turn taken. */
static uint32_t fate(void) {
    uint64_t number = ++control->done;
    if (!control->at || number < control->at) return PLAIN;
    control->acted++;
    if (number + 1 >= control->at + control->span) control->at = control->every ? number + control->every : 0;
    if (control->mode == KILL_BEFORE) kill(getpid(), SIGKILL);
    return control->mode;
}

static void settle(uint32_t mode) {
    if (mode == KILL_AFTER || mode == TEAR_AND_KILL) kill(getpid(), SIGKILL);
}

static ssize_t put(int fd, int file, const void *data, size_t length, off64_t offset) {
    pthread_mutex_lock(&turn);
    uint32_t mode = fate();
    ssize_t done = -1;
    int error = control->error;
    if (mode == FAIL) {
    } else if (mode == TEAR_AND_FAIL || mode == TEAR_AND_KILL) {
        size_t half = length / 2 / 512 * 512 + 100 < length ? length / 2 / 512 * 512 + 100 : length / 2;
        done = real_pwrite(fd, data, half, offset);
        if (done > 0) record(WRITE, file, offset, done, data);
        if (mode == TEAR_AND_FAIL) done = -1;
    } else {
        done = real_pwrite(fd, data, length, offset);
        error = errno;
        if (done > 0) record(WRITE, file, offset, done, data);
    }
    settle(mode);
    pthread_mutex_unlock(&turn);
    if (done < 0) errno = error;
    return done;
}

static int act(int (*real)(int), int fd, int file) {
    pthread_mutex_lock(&turn);
    uint32_t mode = fate();
    int done = -1, error = control->error;
    if (mode != FAIL && mode != TEAR_AND_FAIL) {
        done = real(fd);
        error = errno;
        if (!done) record(SYNC, file, 0, 0, NULL);
    }
    settle(mode);
    pthread_mutex_unlock(&turn);
    if (done < 0) errno = error;
    return done;
}

static int opened(const char *name, int flags, mode_t mode) {
    int file = kind_of(name);
    int fresh = file != NONE && file != FOLDER && (flags & O_CREAT) && access(name, F_OK);
    int fd = real_open(name, flags, mode);
    if (fd >= 0 && fd < (int)sizeof kinds) {
        kinds[fd] = file;
        if (fresh) {
            pthread_mutex_lock(&turn);
            record(CREATE, file, 0, 0, NULL);
            pthread_mutex_unlock(&turn);
        }
    }
    return fd;
}

#define OPEN(NAME)                                                                       \
    int NAME(const char *name, int flags, ...) {                                         \
        va_list rest;                                                                    \
        va_start(rest, flags);                                                           \
        mode_t mode = (flags & (O_CREAT | __O_TMPFILE)) ? va_arg(rest, mode_t) : 0;      \
        va_end(rest);                                                                    \
        if (!real_open) real_open = dlsym(RTLD_NEXT, "open64");                          \
        return opened(name, flags, mode);                                                \
    }
OPEN(open)
OPEN(open64)

int close(int fd) {
    if (!real_close) real_close = dlsym(RTLD_NEXT, "close");
    if (fd >= 0 && fd < (int)sizeof kinds) kinds[fd] = NONE;
    return real_close(fd);
}
ssize_t write(int fd, const void *data, size_t length) {
    if (!real_write) real_write = dlsym(RTLD_NEXT, "write");
    int file = kind_at(fd);
    if (file == NONE) return real_write(fd, data, length);
    off64_t at = lseek64(fd, 0, SEEK_CUR);
    ssize_t done = put(fd, file, data, length, at);
    if (done > 0) lseek64(fd, at + done, SEEK_SET);
    return done;
}
ssize_t pwrite64(int fd, const void *data, size_t length, off64_t offset) {
    if (!real_pwrite) real_pwrite = dlsym(RTLD_NEXT, "pwrite64");
    int file = kind_at(fd);
    return file == NONE ? real_pwrite(fd, data, length, offset) : put(fd, file, data, length, offset);
}
ssize_t pwrite(int fd, const void *data, size_t length, off_t offset) { return pwrite64(fd, data, length, offset); }
int fsync(int fd) {
    if (!real_fsync) real_fsync = dlsym(RTLD_NEXT, "fsync");
    int file = kind_at(fd);
    return file == NONE ? real_fsync(fd) : act(real_fsync, fd, file);
}
int fdatasync(int fd) {
    if (!real_fdatasync) real_fdatasync = dlsym(RTLD_NEXT, "fdatasync");
    int file = kind_at(fd);
    return file == NONE ? real_fdatasync(fd) : act(real_fdatasync, fd, file);
}
int ftruncate64(int fd, off64_t length) {
    if (!real_ftruncate) real_ftruncate = dlsym(RTLD_NEXT, "ftruncate64");
    int file = kind_at(fd);
    if (file == NONE) return real_ftruncate(fd, length);
    pthread_mutex_lock(&turn);
    uint32_t mode = fate();
    int done = -1, error = control->error;
    if (mode != FAIL && mode != TEAR_AND_FAIL) {
        done = real_ftruncate(fd, length);
        error = errno;
        if (!done) record(CUT, file, length, 0, NULL);
    }
    settle(mode);
    pthread_mutex_unlock(&turn);
    if (done < 0) errno = error;
    return done;
}
int ftruncate(int fd, off_t length) { return ftruncate64(fd, length); }
int unlink(const char *name) {
    if (!real_unlink) real_unlink = dlsym(RTLD_NEXT, "unlink");
    int file = kind_of(name);
    if (file == NONE || file == FOLDER) return real_unlink(name);
    pthread_mutex_lock(&turn);
    uint32_t mode = fate();
    int done = -1, error = control->error;
    if (mode != FAIL && mode != TEAR_AND_FAIL) {
        done = real_unlink(name);
        error = errno;
        if (!done) record(UNLINK, file, 0, 0, NULL);
    }
    settle(mode);
    pthread_mutex_unlock(&turn);
    if (done < 0) errno = error;
    return done;
}
