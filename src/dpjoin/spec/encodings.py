"""How the bytes of a text file stand for characters: names that a spec may give, each read so that no row changes
how another one is read. Encodings that shift (ISO-2022, UTF-7) are not among them: one row would shift the next.
"""

from __future__ import annotations

import codecs

from dpjoin.errors import SpecError, suggest

ENCODINGS = (
    *("utf-8", "utf-16", "utf-16-le", "utf-16-be", "ascii", "latin-1", "mac-roman", "koi8-r", "koi8-u"),
    *(f"iso-8859-{i}" for i in range(2, 17) if i != 12),
    *(f"windows-125{i}" for i in range(9)),
    *("cp437", "cp850", "cp852", "cp866"),
    *("shift_jis", "euc_jp", "euc_kr", "gbk", "gb18030", "big5"),
)


def encoding_of(name: str, what: str) -> str:
    """The encoding as it is listed, whatever spelling of its name was used.

    >>> encoding_of("Latin1", "encoding"), encoding_of("CP1252", "encoding"), encoding_of("UTF8", "encoding")
    ('latin-1', 'windows-1252', 'utf-8')
    """
    try:
        meant = codecs.lookup(name).name
    except (LookupError, ValueError):
        meant = ""
    for known in ENCODINGS:
        if codecs.lookup(known).name == meant:
            return known
    raise SpecError(f"{what} ({name!r}) must be an encoding of text; {suggest(name.lower(), ENCODINGS)}")
