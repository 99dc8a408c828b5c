"""Words that say little about what a text is about."""

from __future__ import annotations

from pathlib import Path

from elmo.errors import MissingFileError
from elmo.text.files import TextFile

ENGLISH = frozenset(
    """
    a about above across after again against all almost along already also although always am among
    an and another any anybody anyone anything are around as at away back be became because become
    been before behind being below beneath beside besides between beyond both but by can cannot
    could did do does doing done down during each either else even ever every everybody everyone
    everything few for from further had has have having he hence her here hers herself him himself
    his how however i if in indeed inside into is it its itself just least less many may me might
    mine more most much must my myself near neither never next no nobody none nor not nothing now of
    off often on once one only onto or other others otherwise ought our ours ourselves out outside
    over own per perhaps quite rather same shall she should since so some somebody someone something
    somewhat still such than that the their theirs them themselves then there therefore these they
    this those though through throughout thus till to together too toward towards under underneath
    unless until up upon us very via was we well were what whatever when whence whenever where
    whereas wherever whether which while who whoever whole whom whose why will with within without
    would yet you your yours yourself yourselves
    n't 's 'm 're 've 'd 'll nt ca wo sha
    """.split()
)
"""Function words of English."""


def read_stop_words(name: str | None) -> frozenset[str]:
    """Give stop words, in lower case.

    Args:
        name: `english`, or a file with one word a line; None for none.
    """
    if name is None:
        return frozenset()
    if name == "english":
        return ENGLISH
    if not Path(name).is_file():
        raise MissingFileError(
            f"--stop-words is {name!r}, expected 'english' or a file with one word a line"
        )
    with TextFile(name) as lines:
        return frozenset(line.strip().lower() for line in lines) - {""}
