"""The filter of system calls, call by call, on a machine for its programs that is written out here: both architectures.

The kernel runs the same programs in the tests of the walls; here every number and argument can be tried, and a machine
that this one is not.
"""

import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from shikisha.sandbox.child import confinement
from shikisha.sandbox.child.confinement import (
    AARCH64,
    ALLOW,
    ALLOWED_CALLS,
    CHECKED_CALLS,
    ENOSYS,
    EPERM,
    ERRNO,
    IGNORED_CALLS,
    KILL,
    REFUSED_CALLS,
    X86_64,
    syscall_numbers,
)

MACHINES = pytest.mark.parametrize("machine", [X86_64, AARCH64])
AUDIT = {X86_64: 0xC000003E, AARCH64: 0xC00000B7}
US = 4_321
HEADERS = {
    X86_64: Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"),
    AARCH64: Path("/usr/include/asm-generic/unistd.h"),
}


def verdict(machine: str, number: int, *arguments: int, audit: int | None = None) -> int:
    """Run the filter on one call as the kernel would."""
    whole = [*arguments, *[0] * (6 - len(arguments))]
    words = {0: number, 4: AUDIT[machine] if audit is None else audit}
    for place, argument in enumerate(whole):
        words |= {16 + 8 * place: argument & 0xFFFFFFFF, 20 + 8 * place: (argument >> 32) & 0xFFFFFFFF}
    program = [*confinement.filter_start(machine), *confinement.filter_end(machine, US)]
    return _run(program, words)


def _run(program: Sequence[confinement.Instruction], words: dict[int, int]) -> int:
    accumulator = at = 0
    while True:
        code, if_true, if_false, operand = program[at]
        at += 1
        match code:
            case confinement.LOAD:
                accumulator = words[operand]
            case confinement.AND:
                accumulator &= operand
            case confinement.VERDICT:
                return operand
            case confinement.EQUAL | confinement.GREATER_OR_EQUAL | confinement.ANY_BIT:
                holds = {
                    confinement.EQUAL: accumulator == operand,
                    confinement.GREATER_OR_EQUAL: accumulator >= operand,
                    confinement.ANY_BIT: bool(accumulator & operand),
                }[code]
                at += if_true if holds else if_false
            case _:
                pytest.fail(f"no such instruction: {code:#x}")


@MACHINES
def test_every_number_has_the_verdict_of_its_list(machine: str) -> None:
    expected = dict.fromkeys(syscall_numbers(ALLOWED_CALLS, machine).values(), ALLOW)
    expected |= dict.fromkeys(syscall_numbers(REFUSED_CALLS, machine).values(), ERRNO | EPERM)
    expected |= dict.fromkeys(syscall_numbers(IGNORED_CALLS, machine).values(), ERRNO)
    checked = set(syscall_numbers(CHECKED_CALLS, machine).values())
    for number in range(1_200):
        if number not in checked:
            assert verdict(machine, number) == expected.get(number, ERRNO | ENOSYS), number


@MACHINES
def test_no_call_stands_in_two_lists(machine: str) -> None:
    listed = [
        number
        for table in (ALLOWED_CALLS, CHECKED_CALLS, REFUSED_CALLS, IGNORED_CALLS)
        for number in syscall_numbers(table, machine).values()
    ]
    assert len(listed) == len(set(listed))


@MACHINES
def test_another_way_to_call_the_system_ends_the_process(machine: str) -> None:
    for audit in {0x40000003, 0x40000028, *AUDIT.values()} - {AUDIT[machine]}:  # i386, arm, the other one
        assert verdict(machine, 0, audit=audit) == KILL
    for number in (0x40000000, 0x40000027, 0xFFFFFFFF):
        assert verdict(machine, number) == KILL


NOT_US = (1, 0, US + 1, 2**32 - US)
TOP = 1 << 32  # the kernel looks at the lower half of what is an int


@MACHINES
@pytest.mark.parametrize(
    ("call", "allowed", "refused"),
    [
        ("clone", [(0x3D0F00,), (0x7D0F00,)], [(17,), (0x01200011,), (0x4111,), (0x10010000,), (0x30000,), (0,)]),
        ("socketpair", [(1, 1), (1, 0x80801)], [(1, 2), (1, 5), (2, 1), (1, 3), (16, 1)]),
        ("sendto", [(5, 9, 1, 0x4000)], [(5, 9, 1, 0, 7), (5, 9, 1, 0, TOP), (5, 9, 1, 1), (5, 9, 1, 0x4001)]),
        ("recvfrom", [(5, 9, 1, 0, 7), (5, 9, 1, 2)], [(5, 9, 1, 1), (5, 9, 1, 3)]),
        ("kill", [(US, 9), (US + TOP, 9)], [(one, 9) for one in NOT_US]),
        ("tgkill", [(US, 7, 9)], [(one, US, 9) for one in NOT_US]),
        ("rt_sigqueueinfo", [(US,)], [(one,) for one in NOT_US]),
        ("rt_tgsigqueueinfo", [(US,)], [(one,) for one in NOT_US]),
        ("prlimit64", [(0,), (US,)], [(1,), (US + 1,)]),
        ("prctl", [(15,), (16,)], [(1, 0), (4, 1), (22, 0), (38, 0), (28,), (0x59616D61,), (31,)]),
        ("ioctl", [(0, 0x5401), (0, 0x5421), (0, 0x541B)], [(0, 0x5412), (0, 0x8901), (0, 0x40086602), (0, 0)]),
        ("fcntl", [(0, 0), (0, 4), (0, 6), (0, 1030), (0, 38)], [(0, 8), (0, 10), (0, 15), (0, 1024), (0, 1031)]),
        ("openat", [(0, 9, 0o1101), (0, 9, 0o1002), (0, 9, 0)], [(0, 9, 0o1000), (0, 9, 0o1100), (0, 9, 0o2001000)]),
        ("utimensat", [], [(0, 9, 0), (0, 0, 0)]),
    ],
)
def test_arguments_decide(machine: str, call: str, allowed: list[Sequence[int]], refused: list[Sequence[int]]) -> None:
    number = syscall_numbers(CHECKED_CALLS, machine)[call]
    assert [verdict(machine, number, *arguments) for arguments in allowed] == [ALLOW] * len(allowed)
    assert [verdict(machine, number, *arguments) for arguments in refused] == [ERRNO | EPERM] * len(refused)


def test_x86_64_has_an_open_of_its_own() -> None:
    assert verdict(X86_64, 2, 9, 0o1101) == ALLOW
    assert verdict(X86_64, 2, 9, 0o1000) == ERRNO | EPERM


@MACHINES
def test_setting_times_is_ignored(machine: str) -> None:
    number = syscall_numbers(CHECKED_CALLS, machine)["utimensat"]
    assert verdict(machine, number, 0, 9, 0x7FFF00000000) == verdict(machine, number, 0, 9, 8) == ERRNO


@MACHINES
def test_the_kernel_would_take_it(machine: str) -> None:
    program = [*confinement.filter_start(machine), *confinement.filter_end(machine, US)]
    assert len(program) <= 4_096  # BPF_MAXINSNS
    assert len(confinement.pack_instructions(program)) == 8 * len(program)
    for at, (code, if_true, if_false, _) in enumerate(program):
        assert max(if_true, if_false) <= 255
        assert at + 1 + max(if_true, if_false) < len(program) or code == confinement.VERDICT


def known(header: Path) -> Iterator[tuple[str, int]]:
    """Numbers that a header defines, as a preprocessor sees it on a 64-bit machine."""
    flags = ["-D__BITS_PER_LONG=64", "-D__ARCH_WANT_RENAMEAT", "-D__ARCH_WANT_SET_GET_RLIMIT", "-D__ARCH_WANT_NEW_STAT"]
    compiler = shutil.which("cc") or pytest.skip("there is no compiler to read headers with")
    told = subprocess.run(  # noqa: S603 - a compiler, to read its own headers
        [compiler, "-E", "-dM", "-x", "c", *flags, str(header)],
        capture_output=True,
        text=True,
        check=True,
    )
    defined = dict(re.findall(r"^#define (__NR\w+) (\w+)$", told.stdout, re.M))
    for name, value in defined.items():
        while value in defined:
            value = defined[value]
        yield re.sub(r"^__NR(3264)?_", "", name), int(value)


@MACHINES
def test_the_numbers_are_the_kernels(machine: str) -> None:
    if not HEADERS[machine].exists():
        pytest.skip(f"the kernel's header {HEADERS[machine]} is not installed")
    headers = dict(known(HEADERS[machine]))
    for table in (ALLOWED_CALLS, CHECKED_CALLS, REFUSED_CALLS, IGNORED_CALLS):
        for name, number in syscall_numbers(table, machine).items():
            assert headers.get(name, number) == number, name
            assert name in headers or name in {"epoll_pwait2", "faccessat2", "close_range"}, name
