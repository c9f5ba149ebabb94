/* A clock that is set forward by hand, for all code of the process that it is preloaded into: the wall clock, and the
   times of files, which were written by the clock as it stood then. Deadlines of locks and sleeps are left alone.
   Processes share a clock by the file that MANUAL_CLOCK names: each starts with the settings of those before it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define SECOND 1000000000LL
#define MOST_SETTINGS (1 << 20)

/* From the real instant on, the clock is ahead by so much; real instants rise. */
static struct setting { int64_t real, ahead; } settings[MOST_SETTINGS];
static int count;

static int shared_file(int flags) {
  const char *path = getenv("MANUAL_CLOCK");
  return path ? open(path, flags, 0644) : -1;
}

__attribute__((constructor)) static void take_in_settings(void) {
  int file = shared_file(O_RDONLY);
  if (file < 0) return;
  ssize_t length = read(file, settings, sizeof settings);
  if (length > 0) count = length / sizeof *settings;
  close(file);
}

static int share(const struct setting *setting) {
  int file = shared_file(O_WRONLY | O_APPEND | O_CREAT);
  if (file < 0) return getenv("MANUAL_CLOCK") ? -1 : 0;
  ssize_t written = write(file, setting, sizeof *setting);
  close(file);
  return written == sizeof *setting ? 0 : -1;
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static int64_t read_clock(clockid_t kind) {
  static __typeof__(&clock_gettime) real;
  struct timespec now;
  if (!real) real = REAL(clock_gettime);
  real(kind, &now);
  return now.tv_sec * SECOND + now.tv_nsec;
}

static int64_t set_forward(int64_t real) {
  int low = 0, high = __atomic_load_n(&count, __ATOMIC_ACQUIRE);
  while (low < high) {
    int middle = (low + high) / 2;
    if (settings[middle].real <= real) low = middle + 1; else high = middle;
  }
  return low ? real + settings[low - 1].ahead : real;
}

/* Set the clock; -1 if that would be back, once too often, or cannot be shared. A file's time lies between the coarse clock, which stands
   still for milliseconds, and the fine one: the setting begins where the coarse clock has passed what the fine one says
   now, so that it is after the times of all files so far, and not after those of later ones. */
int manual_clock_set(int64_t instant) {
  int64_t before = read_clock(CLOCK_REALTIME), from;
  if (count == MOST_SETTINGS || instant < set_forward(before)) return -1;
  do from = read_clock(CLOCK_REALTIME_COARSE); while (from <= before);
  settings[count].real = from;
  settings[count].ahead = instant - from;
  if (share(&settings[count])) return -1;
  __atomic_store_n(&count, count + 1, __ATOMIC_RELEASE);
  return 0;
}

static void split(int64_t instant, struct timespec *into) {
  into->tv_sec = instant / SECOND;
  into->tv_nsec = instant % SECOND;
}

int clock_gettime(clockid_t kind, struct timespec *now) {
  if (kind == CLOCK_REALTIME || kind == CLOCK_REALTIME_COARSE) {
    split(set_forward(read_clock(kind)), now);
    return 0;
  }
  return REAL(clock_gettime)(kind, now);
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
  int64_t instant = set_forward(read_clock(CLOCK_REALTIME));
  now->tv_sec = instant / SECOND;
  now->tv_usec = instant % SECOND / 1000;
  return 0;
}

time_t time(time_t *now) {
  time_t seconds = set_forward(read_clock(CLOCK_REALTIME)) / SECOND;
  if (now) *now = seconds;
  return seconds;
}

static void shift(struct timespec *of) { split(set_forward(of->tv_sec * SECOND + of->tv_nsec), of); }

#define SHIFTED(call)                                                  \
  do {                                                                 \
    int failed = (call);                                               \
    if (!failed) { shift(&found->st_mtim); shift(&found->st_ctim); }   \
    return failed;                                                     \
  } while (0)
#define PATHS(name, type) \
  int name(const char *restrict path, struct type *restrict found) { SHIFTED(REAL(name)(path, found)); }
#define OPENED(name, type) \
  int name(int file, struct type *found) { SHIFTED(REAL(name)(file, found)); }
#define BELOW(name, type)                                                                 \
  int name(int directory, const char *restrict path, struct type *restrict found, int flags) { \
    SHIFTED(REAL(name)(directory, path, found, flags));                                   \
  }

PATHS(stat, stat)
PATHS(lstat, stat)
PATHS(stat64, stat64)
PATHS(lstat64, stat64)
OPENED(fstat, stat)
OPENED(fstat64, stat64)
BELOW(fstatat, stat)
BELOW(fstatat64, stat64)

/* What was built for a C library before 2.33 asks by other names. */
#define OLD(name, type, ...) \
  int name(int version, __VA_ARGS__, struct type *found)
int __xstat(int version, const char *path, struct stat *found);
int __lxstat(int version, const char *path, struct stat *found);
int __fxstat(int version, int file, struct stat *found);
int __xstat64(int version, const char *path, struct stat64 *found);
int __lxstat64(int version, const char *path, struct stat64 *found);
int __fxstat64(int version, int file, struct stat64 *found);
OLD(__xstat, stat, const char *path) { SHIFTED(REAL(__xstat)(version, path, found)); }
OLD(__lxstat, stat, const char *path) { SHIFTED(REAL(__lxstat)(version, path, found)); }
OLD(__fxstat, stat, int file) { SHIFTED(REAL(__fxstat)(version, file, found)); }
OLD(__xstat64, stat64, const char *path) { SHIFTED(REAL(__xstat64)(version, path, found)); }
OLD(__lxstat64, stat64, const char *path) { SHIFTED(REAL(__lxstat64)(version, path, found)); }
OLD(__fxstat64, stat64, int file) { SHIFTED(REAL(__fxstat64)(version, file, found)); }

static void shift_x(struct statx_timestamp *of) {
  int64_t instant = set_forward(of->tv_sec * SECOND + of->tv_nsec);
  of->tv_sec = instant / SECOND;
  of->tv_nsec = instant % SECOND;
}

int statx(int directory, const char *restrict path, int flags, unsigned wanted, struct statx *restrict found) {
  int failed = REAL(statx)(directory, path, flags, wanted, found);
  if (!failed) {
    shift_x(&found->stx_mtime);
    shift_x(&found->stx_ctime);
    shift_x(&found->stx_btime);
  }
  return failed;
}
