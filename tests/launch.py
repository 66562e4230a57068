"""Has a prepared process (:mod:`tests.prepared`) run a program, behind a command that stands for ``python``.

``main(SOCKET, ["-m", MODULE, *ARGUMENTS])`` hands over the files, directory and environment of the command, passes
signals on, and ends as the program ends. It imports only what is built in, so that it costs a hundredth of a second.
Where nobody is prepared, or Python is asked for something else, it becomes an ordinary Python.
"""

import _signal
import _socket
import os
import struct
import sys

PASSED_ON = (
    _signal.SIGTERM, _signal.SIGINT, _signal.SIGHUP, _signal.SIGQUIT, _signal.SIGUSR1, _signal.SIGUSR2,
)  # fmt: skip


def main(path: str, arguments: list[str]) -> None:
    """Becomes, to whoever started this command, the program that *arguments* for Python name."""
    connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    try:
        connection.connect(path)
    except OSError:
        os.execv(sys.executable, [sys.executable, *arguments])
    environment = [name + b"=" + value for name, value in os.environb.items()]
    words = [
        os.getcwdb(),  # noqa: PTH109 - pathlib takes longer than all of this
        *map(os.fsencode, arguments),
        b"",
        *environment,
    ]
    request = b"\0".join(words)

    def pass_on(number: int, _frame: object) -> None:
        try:
            connection.send(bytes([number]))
        except OSError:
            return  # The program has ended, and its status is on the way.

    for number in PASSED_ON:
        _signal.signal(number, pass_on)
    files = struct.pack("3i", 0, 1, 2)
    connection.sendmsg([struct.pack("!I", len(request))], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, files)])
    sent = 0
    while sent < len(request):
        sent += connection.send(request[sent:])
    answer = b""
    while len(answer) < 4 and (received := connection.recv(4 - len(answer))):
        answer += received
    if len(answer) < 4:
        os._exit(1)
    (status,) = struct.unpack("!i", answer)
    if status == -1000:  # It is no program that was prepared.
        os.execv(sys.executable, [sys.executable, *arguments])
    if status < 0:
        if -status != _signal.SIGKILL:  # Nobody can catch it.
            _signal.signal(-status, _signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    os._exit(status)
