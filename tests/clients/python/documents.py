"""The promises of the documents, read from them: sessions to paste into a shell, and tables.

A session is a block of kind `console`: lines that begin with `$ ` are commands, the others what they print. In what is
printed, `…` stands for any text, on a line of its own for any lines, and columns may be further apart or nearer. A
command `redis-cli` alone is followed by what is typed into it, behind its prompt.
"""

import re
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
PROMPT = "127.0.0.1:6379> "


@dataclass
class Step:
    """A command of a session."""

    command: str
    # Typed into it.
    typed: list[str] = field(default_factory=list)
    printed: list[str] = field(default_factory=list)

    def pattern(self):
        """A regular expression that what is printed must match whole."""
        lines = []
        for line in self.printed:
            if line == "…":
                lines.append(r"(?:.*\n)*?")
            else:
                lines.append(re.sub(r"(\\ ){2,}", " +", ".*".join(map(re.escape, line.split("…")))) + r"\n")
        return "".join(lines)


def sessions(document):
    """The steps of all sessions of a document, in order."""
    steps = []
    for block in re.findall(r"^```console\n(.*?)^```$", (ROOT / document).read_text(), re.DOTALL | re.MULTILINE):
        for line in block.splitlines():
            if line.startswith("$ "):
                steps.append(Step(line[2:]))
            elif line.startswith(PROMPT):
                steps[-1].typed.append(line[len(PROMPT) :])
            else:
                steps[-1].printed.append(line)
    return steps


def table(document, heading):
    """The rows of the first table below a heading, each a list of its cells' texts; without the table's head."""
    text = (ROOT / document).read_text()
    _, found, below = text.partition(f"\n{heading}\n")
    assert found, f"{document} has no heading {heading!r}"
    below = re.split(r"^#+ ", below, maxsplit=1, flags=re.MULTILINE)[0]
    lines = [line.strip() for line in below.splitlines() if line.startswith("|")]
    rows = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip("|"))] for line in lines[2:]]
    assert rows, f"{document} has no table below {heading!r}"
    return rows
