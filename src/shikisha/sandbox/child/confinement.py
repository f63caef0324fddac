"""How a process gives up its rights: first the fork server's share, then the program's share. Landlock and seccomp.

Invariants: nothing given up can be regained (no_new_privs, hard limits, an empty bounding set). A step that fails
raises, so no program starts half confined. Every Landlock right that the running kernel knows is handled, hence denied
where no rule grants it; nothing may be executed. A system call in no list is refused, so that a call of a future kernel
stays refused until somebody has thought about it; a call in another architecture's way (i386, x32) ends the process.
Only threads can be created, never processes, and a program can signal only itself. Every block of filter instructions
ends in a verdict or falls through to the next, so no jump is longer than its block.

As root the fork server becomes `nobody`, unless the interpreter lies where only root can read (a Python under /root):
then it keeps user 0 without any capability, and Landlock and seccomp refuse what the number alone would allow.

What Landlock leaves open (modes, owners, times, attributes, sockets before ABI 4, UDP) the filter closes; a program can
still tell whether a file exists and how large it is. Left out of the allowed calls on purpose: processes, sockets,
mappings that outlive the program, memory that counts towards no limit (memfd, System V), and splicing. Deliberately
absent: RLIMIT_NPROC, which counts everything a user runs and nothing root runs; threads are counted from outside. The
filter is written by hand because libseccomp is not everywhere. Call numbers are from the kernel's headers (`-`: no such
call); a test compares them. Sources: landlock(7), seccomp(2), Documentation/userspace-api of the kernel.
"""

import ctypes
import errno
import fcntl
import os
import platform
import resource
import struct
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from stat import S_ISDIR
from typing import Final

_CREATE, _ADD, _RESTRICT = 444, 445, 446  # the same numbers on every machine
_EXECUTE, _WRITE, _READ, _LIST, _CHARACTER, _BLOCK = 1 << 0, 1 << 1, 1 << 2, 1 << 3, 1 << 6, 1 << 11
_TRUNCATE, _DEVICE_IOCTL = 1 << 14, 1 << 15
_RIGHTS_SINCE = {1: (1 << 13) - 1, 2: 1 << 13, 3: _TRUNCATE, 5: _DEVICE_IOCTL}  # by ABI
# Bind and connect, since ABI 4; abstract sockets and signals, since ABI 6.
_TCP, _SCOPES = 0b11, 0b11
_NO_READING_BACK = _EXECUTE | _CHARACTER | _BLOCK | _DEVICE_IOCTL

SystemCall = Callable[..., int]


def landlock_version(system: SystemCall) -> int:
    """Return the kernel's Landlock ABI; 0: none."""
    try:
        return system(_CREATE, None, 0, 1)
    except OSError:
        return 0


def landlock_restrict(system: SystemCall, readable: Sequence[int], devices: Sequence[int], own: int, abi: int) -> None:
    """Restrict this thread permanently to the files behind these open descriptors, and those beneath them.

    `readable` are folders and files, `own` is the only writable folder, `devices` are files such as /dev/null to read
    and write.
    """
    rights = sum(right for since, right in _RIGHTS_SINCE.items() if abi >= since)
    handled = struct.pack("=QQQ", rights, _TCP, _SCOPES)[: 8 if abi < 4 else 16 if abi < 6 else 24]
    ruleset = system(_CREATE, handled, len(handled), 0)
    try:
        for folder in readable:
            _landlock_grant(system, ruleset, folder, _READ | _LIST if S_ISDIR(os.fstat(folder).st_mode) else _READ)
        for device in devices:
            _landlock_grant(system, ruleset, device, (_READ | _WRITE | _TRUNCATE) & rights)
        _landlock_grant(system, ruleset, own, rights & ~_NO_READING_BACK)
        system(_RESTRICT, ctypes.c_int(ruleset), 0)
    finally:
        os.close(ruleset)


def _landlock_grant(system: SystemCall, ruleset: int, where: int, rights: int) -> None:
    system(_ADD, ctypes.c_int(ruleset), 1, struct.pack("=Qi", rights, where), 0)


X86_64: Final = "x86_64"
AARCH64: Final = "aarch64"
_MACHINE_ORDER = (X86_64, AARCH64)

# Allowed with any arguments: files (Landlock decides which), waiting, memory, threads, signals, clocks.
ALLOWED_CALLS = """
read 0 63, write 1 64, readv 19 65, writev 20 66, pread64 17 67, pwrite64 18 68, preadv 295 69, pwritev 296 70,
preadv2 327 286, pwritev2 328 287, lseek 8 62, close 3 57, close_range 436 436, dup 32 23, dup2 33 -, dup3 292 24,
stat 4 -, fstat 5 80, lstat 6 -, newfstatat 262 79, statx 332 291, statfs 137 43, fstatfs 138 44, access 21 -,
faccessat 269 48, faccessat2 439 439, getdents 78 -, getdents64 217 61, getcwd 79 17, chdir 80 49, fchdir 81 50,
mkdir 83 -, mkdirat 258 34, rmdir 84 -, unlink 87 -, unlinkat 263 35, rename 82 -, renameat 264 38,
renameat2 316 276, link 86 -, linkat 265 37, symlink 88 -, symlinkat 266 36, readlink 89 -, readlinkat 267 78,
ftruncate 77 46, fallocate 285 47, fsync 74 82, fdatasync 75 83, fadvise64 221 223, flock 73 32, umask 95 166,
sendfile 40 71, copy_file_range 326 285, getxattr 191 8, lgetxattr 192 9, fgetxattr 193 10, listxattr 194 11,
llistxattr 195 12, flistxattr 196 13, pipe 22 -, pipe2 293 59, poll 7 -, ppoll 271 73, select 23 -, pselect6 270 72,
epoll_create 213 -, epoll_create1 291 20, epoll_ctl 233 21, epoll_wait 232 -, epoll_pwait 281 22,
epoll_pwait2 441 441, eventfd 284 -, eventfd2 290 19, timerfd_create 283 85, timerfd_settime 286 86,
timerfd_gettime 287 87, signalfd 282 -, signalfd4 289 74, shutdown 48 210, getsockname 51 204, getpeername 52 205,
getsockopt 55 209, mmap 9 222, munmap 11 215, mremap 25 216, mprotect 10 226, madvise 28 233, brk 12 214,
mincore 27 232, msync 26 227, membarrier 324 283, futex 202 98, set_robust_list 273 99, rseq 334 293,
set_tid_address 218 96, gettid 186 178, sched_yield 24 124, sched_getaffinity 204 123, getcpu 309 168,
sched_getparam 143 121, sched_getscheduler 145 120, sched_get_priority_max 146 125, sched_get_priority_min 147 126,
rt_sigaction 13 134, rt_sigprocmask 14 135, rt_sigreturn 15 139, rt_sigpending 127 136, rt_sigsuspend 130 133,
rt_sigtimedwait 128 137, sigaltstack 131 132, pause 34 -, alarm 37 -, getitimer 36 102, setitimer 38 103,
timer_create 222 107, timer_settime 223 110, timer_gettime 224 108, timer_getoverrun 225 109, timer_delete 226 111,
restart_syscall 219 128, clock_gettime 228 113, clock_getres 229 114, clock_nanosleep 230 115, nanosleep 35 101,
gettimeofday 96 169, time 201 -, times 100 153, getrandom 318 278, getpid 39 172, getppid 110 173, getuid 102 174,
geteuid 107 175, getgid 104 176, getegid 108 177, getresuid 118 148, getresgid 120 150, getgroups 115 158,
getpgid 121 155, getpgrp 111 -, getsid 124 156, uname 63 160, sysinfo 99 179, getrusage 98 165, getrlimit 97 163,
getpriority 140 141, capget 125 90, exit 60 93, exit_group 231 94, wait4 61 260, waitid 247 95
"""
# Allowed with some arguments only, see _CHECKS.
CHECKED_CALLS = """
clone 56 220, socketpair 53 199, sendto 44 206, recvfrom 45 207, kill 62 129, tgkill 234 131,
rt_sigqueueinfo 129 138, rt_tgsigqueueinfo 297 240, prctl 157 167, ioctl 16 29, fcntl 72 25, prlimit64 302 261,
open 2 -, openat 257 56, utimensat 280 88
"""
# Succeed without effect: Landlock does not cover modes, and copying a file sets them.
IGNORED_CALLS = """
chmod 90 -, fchmod 91 52, fchmodat 268 53
"""
# Fail with EPERM, which Python reports as "Operation not permitted". A call in no list fails with ENOSYS.
REFUSED_CALLS = """
fork 57 -, vfork 58 -, execve 59 221, execveat 322 281, socket 41 198, connect 42 203, bind 49 200, listen 50 201,
accept 43 202, accept4 288 242, sendmsg 46 211, recvmsg 47 212, sendmmsg 307 269, recvmmsg 299 243,
setsockopt 54 208, truncate 76 45, chown 92 -, fchown 93 55, lchown 94 -, fchownat 260 54, setxattr 188 5,
lsetxattr 189 6, fsetxattr 190 7, removexattr 197 14, lremovexattr 198 15, fremovexattr 199 16, mknod 133 -,
mknodat 259 33, setuid 105 146, setgid 106 144, setreuid 113 145, setregid 114 143, setresuid 117 147,
setresgid 119 149, setgroups 116 159, setsid 112 157, setpgid 109 154, setpriority 141 140,
sched_setaffinity 203 122, sched_setscheduler 144 119, chroot 161 51, mount 165 40, umount2 166 39, unshare 272 97,
setns 308 268, ptrace 101 117, process_vm_readv 310 270, process_vm_writev 311 271, tkill 200 130, setrlimit 160 164,
utime 132 -, utimes 235 -, futimesat 261 -
"""


def syscall_numbers(table: str, machine: str) -> dict[str, int]:
    """Return the numbers of a list's calls on one machine type, by name, without calls that it lacks."""
    rows = [row.split() for row in table.split(",")]
    column = 1 + _MACHINE_ORDER.index(machine)
    return {row[0]: int(row[column]) for row in rows if row[column] != "-"}


# Code, jump if true, jump if false, operand.
Instruction = tuple[int, int, int, int]

LOAD, EQUAL, GREATER_OR_EQUAL, ANY_BIT, AND, VERDICT = 0x20, 0x15, 0x35, 0x45, 0x54, 0x06
KILL, ALLOW, ERRNO = 0x80000000, 0x7FFF0000, 0x00050000
EPERM, ENOSYS = errno.EPERM, errno.ENOSYS
_SET_SECCOMP, _FILTER = 22, 2  # prctl(2)
# Offsets in struct seccomp_data; both machines are little-endian.
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16
_AUDIT = {X86_64: 0xC000003E, AARCH64: 0xC00000B7}
_X32 = 0x40000000

_THREAD, _NAMESPACES = 0x00010000, 0x7E020000  # clone(2)
_UNIX, _STREAM, _TYPE_MASK, _OUT_OF_BAND = 1, 1, 0xF, 1  # socketpair(2), send(2)
_ACCESS_MODE, _OPEN_TRUNCATE = 0o3, 0o1000  # open(2)
_SET_NAME, _GET_NAME = 15, 16  # prctl(2)
# TCGETS, TIOCGWINSZ, FIONREAD, FIONBIO and FIO[N]CLEX: what Python's own streams ask; TIOCSTI would type for others.
_HARMLESS_IOCTLS = (0x5401, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451)
# Without F_SETOWN, F_SETSIG and leases, by which the kernel would signal another process.
_HARMLESS_FCNTLS = (0, 1, 2, 3, 4, 5, 6, 7, 36, 37, 38, 1030, 1032)


def seccomp_supported(machine: str) -> bool:
    """Whether there is a table of system calls for this machine type."""
    return machine in _AUDIT


def filter_start(machine: str) -> list[Instruction]:
    """Return the filter's beginning, which is the same for every process and decides most calls."""
    own = syscall_numbers(CHECKED_CALLS, machine)
    made: list[Instruction] = [(LOAD, 0, 0, _ARCHITECTURE), (EQUAL, 1, 0, _AUDIT[machine]), (VERDICT, 0, 0, KILL)]
    made += [(LOAD, 0, 0, _NUMBER), (GREATER_OR_EQUAL, 0, 1, _X32), (VERDICT, 0, 0, KILL)]
    for start, end in _ranges(syscall_numbers(ALLOWED_CALLS, machine).values()):
        made += [(GREATER_OR_EQUAL, 0, 2, start), (GREATER_OR_EQUAL, 1, 0, end), (VERDICT, 0, 0, ALLOW)]
    for name, block in _CHECKS.items():
        if name in own:
            made += [(EQUAL, 0, len(block), own[name]), *block]
    for table, error in ((REFUSED_CALLS, EPERM), (IGNORED_CALLS, 0)):
        for number in syscall_numbers(table, machine).values():
            made += [(EQUAL, 0, 1, number), (VERDICT, 0, 0, ERRNO | error)]
    return made


def filter_end(machine: str, process: int) -> list[Instruction]:
    """Return the filter's end for a process: signals and limits only for itself, everything else refused."""
    own = syscall_numbers(CHECKED_CALLS, machine)
    made: list[Instruction] = []
    for name in ("kill", "tgkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo", "prlimit64"):
        block = _allow_values(0, (process, 0) if name == "prlimit64" else (process,))
        made += [(EQUAL, 0, len(block), own[name]), *block]
    return [*made, (VERDICT, 0, 0, ERRNO | ENOSYS)]


def pack_instructions(instructions: Iterable[Instruction]) -> bytes:
    """Return instructions as the kernel's struct sock_filter."""
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in instructions)


def seccomp_available(prctl: Callable[..., int]) -> bool:
    """Whether the kernel accepts filters: it shows by reading one from a null address."""
    try:
        prctl(_SET_SECCOMP, _FILTER, None, 0, 0)
    except OSError as error:
        return error.errno == errno.EFAULT
    return False


def install_filter(filter_: bytes, prctl: Callable[..., int]) -> None:
    """Put this thread and its future threads under a filter permanently; OSError when the kernel refuses."""

    class Program(ctypes.Structure):
        _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))

    whole = Program(len(filter_) // 8, filter_)
    prctl(_SET_SECCOMP, _FILTER, ctypes.byref(whole), 0, 0)


def _ranges(allowed: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Yield the ranges of consecutive numbers, with exclusive ends."""
    left = sorted(allowed)
    while left:
        start = end = left[0]
        while left and left[0] == end:
            end = left.pop(0) + 1
        yield start, end


def _low_word(argument: int) -> Instruction:
    return (LOAD, 0, 0, _ARGUMENTS + 8 * argument)


def _high_word(argument: int) -> Instruction:
    return (LOAD, 0, 0, _ARGUMENTS + 8 * argument + 4)


def _allow_or(error: int) -> tuple[Instruction, Instruction]:
    return (VERDICT, 0, 0, ALLOW), (VERDICT, 0, 0, ERRNO | error)


def _allow_values(argument: int, values: tuple[int, ...]) -> list[Instruction]:
    """Return a block that allows these values of an argument."""
    tests = [(EQUAL, len(values) - 1 - place, 0, value) for place, value in enumerate(values)]
    tests[-1] = (EQUAL, 0, 1, values[-1])
    return [_low_word(argument), *tests, *_allow_or(EPERM)]


def _truncates_only_when_writing(argument: int) -> list[Instruction]:
    """Return a block that refuses O_TRUNC without write access, which Landlock before ABI 3 does not check."""
    masked = (AND, 0, 0, _ACCESS_MODE | _OPEN_TRUNCATE)
    return [_low_word(argument), masked, (EQUAL, 1, 0, _OPEN_TRUNCATE), *_allow_or(EPERM)]


_CHECKS: Mapping[str, list[Instruction]] = {
    "clone": [_low_word(0), (ANY_BIT, 2, 0, _NAMESPACES), (ANY_BIT, 0, 1, _THREAD), *_allow_or(EPERM)],
    "socketpair": [
        *(_low_word(0), (EQUAL, 0, 4, _UNIX)),
        *(_low_word(1), (AND, 0, 0, _TYPE_MASK), (EQUAL, 0, 1, _STREAM), *_allow_or(EPERM)),
    ],
    "sendto": [
        *(_low_word(4), (EQUAL, 0, 5, 0), _high_word(4), (EQUAL, 0, 3, 0)),  # without an address
        *(_low_word(3), (ANY_BIT, 1, 0, _OUT_OF_BAND), *_allow_or(EPERM)),
    ],
    "recvfrom": [_low_word(3), (ANY_BIT, 1, 0, _OUT_OF_BAND), *_allow_or(EPERM)],
    "prctl": _allow_values(0, (_SET_NAME, _GET_NAME)),
    "ioctl": _allow_values(1, _HARMLESS_IOCTLS),
    "fcntl": _allow_values(1, _HARMLESS_FCNTLS),
    "open": _truncates_only_when_writing(1),
    "openat": _truncates_only_when_writing(2),
    "utimensat": [  # "now" is refused, so that Path.touch continues to create the file
        *(_low_word(2), (EQUAL, 0, 3, 0), _high_word(2), (EQUAL, 0, 1, 0)),
        *((VERDICT, 0, 0, ERRNO | EPERM), (VERDICT, 0, 0, ERRNO)),
    ],
}


NOBODY = 65534
# The first descriptor that programs never receive.
FIRST_FREE_DESCRIPTOR = 10
MOST_FILES, LARGEST_FILE = 64, 16 * 2**20  # open at once; bytes
# For deep recursion; it counts towards the memory.
_STACK = 64 * 2**20
_SET_PDEATHSIG, _SET_DUMPABLE, _CAPBSET_DROP, _SET_SECUREBITS, _SET_NO_NEW_PRIVS, _CAP_AMBIENT = 1, 4, 24, 28, 38, 47
_ARENA_MAX = -8
# securebits: no root, no fix-up, no kept or ambient capabilities, each locked.
_KEEP_NOTHING = 0b11101111
_DEVICES = ("/dev/null", "/dev/zero", "/dev/urandom", "/dev/random")
_LIBRARIES = ("/lib64", "/usr/lib64", "/nix/store")
# Systems differ: libraries directly, or in a folder per architecture.
_SHARED_LIBRARIES = ("/lib", "/usr/lib")
_DATA_FILES = ("/etc/ld.so.cache", "/usr/share/zoneinfo")

_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class Allowance:
    """What one program may use: a writable folder, bytes of memory beyond the interpreter, seconds of CPU time."""

    folder: str
    memory: int
    cpu_seconds: int


def readable_paths(linked: str = "") -> tuple[str, ...]:
    """Return the existing paths that a program may read: the interpreter's library, shared libraries, time zones.

    `linked`: a folder of links to installed packages, which may be read too.
    """
    library = os.path.dirname(os.__file__)
    architecture = getattr(sys.implementation, "_multiarch", "")
    shared = [os.path.join(path, architecture) for path in _SHARED_LIBRARIES]
    own = () if sys.base_prefix == "/usr" else (os.path.join(sys.base_prefix, "lib"),)
    packages = [entry.path for entry in os.scandir(linked)] if os.path.isdir(linked) else []
    more = [os.path.realpath(path) for path in packages] + [linked] * bool(packages)
    folders = shared if os.path.isdir(shared[1]) else _SHARED_LIBRARIES
    paths = (library, *own, *folders, *_LIBRARIES, *_DATA_FILES, *more)
    return tuple(dict.fromkeys(path for path in paths if os.path.exists(path)))


def support_problem() -> str | None:
    """Return why this system cannot confine programs; None when it can."""
    machine = platform.machine()
    if sys.platform != "linux" or not seccomp_supported(machine):
        return f"a jail needs Linux on x86_64 or aarch64, not {sys.platform} on {machine}"
    if not landlock_version(_syscall):
        return "this kernel offers no Landlock (Linux 5.13 or newer with landlock among its security modules)"
    if not seccomp_available(_prctl):
        return "this kernel offers no filters of system calls (seccomp), or does not let us use them"
    return None


def drop_launcher_privileges(folder: str) -> None:
    """Give up every right that forking and confining do not need; `folder` will hold the programs' folders."""
    with (
        suppress(OSError),
        open("/proc/self/oom_score_adj", "w") as file,
    ):  # when memory is short, programs are killed first
        file.write("1000")
    if os.geteuid() == 0:
        strangers = _as_nobody(lambda: _can_reach(folder))
        _drop_bounding_set()
        if strangers:
            _become_user(NOBODY)
    _prctl(_CAP_AMBIENT, 4, 0, 0, 0)
    _drop_capabilities()
    _prctl(_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    _prctl(_SET_DUMPABLE, 0, 0, 0, 0)


def end_with_parent(launcher: int) -> None:
    """End this process when the fork server ends; ProcessLookupError when it already has."""
    _prctl(_SET_PDEATHSIG, 9, 0, 0, 0)
    if os.getppid() != launcher:
        raise ProcessLookupError("the fork server has ended")


def open_paths(paths: tuple[str, ...]) -> list[int]:
    """Return descriptors for Landlock's rules, above those that programs receive."""
    opened = [os.open(path, os.O_PATH) for path in paths]
    try:
        return [fcntl.fcntl(one, fcntl.F_DUPFD_CLOEXEC, FIRST_FREE_DESCRIPTOR) for one in opened]
    finally:
        for one in opened:
            os.close(one)


class Confinement:
    """The confinement of programs; what all programs share is prepared once."""

    def __init__(self, linked: str = "", *, contained: bool = False) -> None:
        """Prepare; `contained`: we are inside a container, so a kernel without Landlock suffices."""
        # glibc: otherwise each thread reserves 64 MiB of the program's memory.
        if hasattr(_libc, "mallopt"):
            _libc.mallopt(_ARENA_MAX, 1)
        self._machine = platform.machine()
        self._contained = contained
        self._filter = pack_instructions(filter_start(self._machine))
        self._abi = landlock_version(_syscall)
        self._readable = open_paths(readable_paths(linked))
        self._devices = open_paths(tuple(path for path in _DEVICES if os.path.exists(path)))

    def enter(self, allowance: Allowance) -> None:
        """Confine this process permanently. OSError when the system refuses."""
        os.chdir(allowance.folder)
        mapped = int(_read_text("/proc/self/statm").split()[0]) * resource.getpagesize()
        hard = {
            resource.RLIMIT_AS: mapped + allowance.memory,
            resource.RLIMIT_CPU: allowance.cpu_seconds,
            resource.RLIMIT_FSIZE: LARGEST_FILE,
            resource.RLIMIT_NOFILE: MOST_FILES,
            resource.RLIMIT_CORE: 0,
            resource.RLIMIT_MEMLOCK: 0,
            resource.RLIMIT_MSGQUEUE: 0,
            resource.RLIMIT_STACK: _STACK,
        }
        for which, most in hard.items():
            allowed = resource.getrlimit(which)[1]
            most = most if allowed == resource.RLIM_INFINITY else min(most, allowed)
            resource.setrlimit(which, (most, most))
        _prctl(_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        own = os.open(allowance.folder, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        if self._abi or not self._contained:
            landlock_restrict(_syscall, self._readable, self._devices, own, self._abi)
        install_filter(self._filter + pack_instructions(filter_end(self._machine, os.getpid())), _prctl)


def _can_reach(folder: str) -> bool:
    for path in (os.__file__, os.path.join(os.path.dirname(os.__file__), "lib-dynload"), folder):
        os.stat(path)
    return bool(_read_text(os.__file__))


def _as_nobody(look: Callable[[], bool]) -> bool:
    """Whether user `nobody` could do this, too; a child process that becomes nobody tries it."""
    child = os.fork()
    if child == 0:
        failed = True
        try:
            _become_user(NOBODY)
            failed = not look()
        finally:
            os._exit(failed)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def _become_user(user: int) -> None:
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)


def _drop_bounding_set() -> None:
    for capability in range(64):
        try:
            _prctl(_CAPBSET_DROP, capability, 0, 0, 0)
        except OSError:  # beyond the last capability of this kernel
            break
    # A process that may not set these has no capability to lose.
    with suppress(PermissionError):
        _prctl(_SET_SECUREBITS, _KEEP_NOTHING, 0, 0, 0)


def _drop_capabilities() -> None:
    version_3 = (ctypes.c_uint32 * 2)(0x20080522, 0)
    nothing = (ctypes.c_uint32 * 6)()
    _check_result(_libc.capset(version_3, nothing))


def _read_text(path: str) -> str:
    with open(path, encoding="utf-8") as file:
        return file.read()


def _prctl(*arguments: object) -> int:
    whole = [ctypes.c_ulong(one) if isinstance(one, int) else one for one in arguments]
    return _check_result(_libc.prctl(*whole))


def _syscall(number: int, *arguments: object) -> int:
    whole = [ctypes.c_long(one) if isinstance(one, int) else one for one in arguments]
    return _check_result(_libc.syscall(ctypes.c_long(number), *whole))


def _check_result(returned: int) -> int:
    if returned < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return int(returned)
