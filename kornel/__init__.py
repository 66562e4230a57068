"""Everything of Kornel that can be imported stands below this name; see docs/architecture.md for where it lies.

``__version__`` differs for different code: ``0.1.0`` for what was released under that number, ``0.1.0.dev0+s1a2b3c4d``
before, and ``0.1.0+s1a2b3c4d`` for anything else that is made of it. The last part is a digest of the code. It is the
same in a checkout, in a wheel and in an image, so neither git nor a file that the build writes is needed for it. It is
worked out when somebody asks, which takes 30 ms, because most commands do not.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    __version__: str

RELEASE = "0.1.0"
"""The release that this code is, or becomes."""
RELEASED = ""
"""The digest of that release; empty until there is one. ``make release`` writes it."""


def digest_code() -> str:
    """Returns a digest of every file below this package, by name and content: 64 hexadecimal digits.

    Left out are this file, which holds the digest of the release, what Python has compiled, hidden files, and the rules
    of the contract, which are here only in an installation.
    """
    # Imported here, for the sake of commands that do not ask.
    from hashlib import sha256  # noqa: PLC0415
    from os import walk  # noqa: PLC0415
    from pathlib import Path  # noqa: PLC0415

    home = Path(__file__).parent
    files = []
    for folder, folders, names in walk(home, followlinks=True):
        at = Path(folder).relative_to(home)
        left_out = ("__pycache__", "spec" if at.name == "conformance" else "")
        folders[:] = [name for name in folders if name not in left_out]
        files += [at / name for name in names if not name.startswith(".")]
    files.remove(Path("__init__.py"))
    digest = sha256()
    for file in sorted(files):
        content = (home / file).read_bytes()
        digest.update(b"%b\0%d\0%b" % (file.as_posix().encode(), len(content), content))
    return digest.hexdigest()


def find_version() -> str:
    """Returns the version of the code of this package, by PEP 440."""
    digest = digest_code()
    if digest == RELEASED:
        return RELEASE
    return f"{RELEASE}{'' if RELEASED else '.dev0'}+s{digest[:8]}"


if not TYPE_CHECKING:

    def __getattr__(name: str) -> str:
        if name != "__version__":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = version = find_version()
        return version
