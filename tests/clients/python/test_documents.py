"""The documents' sessions, run word for word against the server, and their tables against what it offers."""

import os
import re
import subprocess

import pytest
import redis

import documents
import harness

# A placeholder for a secret in the documents has a secret's form.
SECRET = re.compile(r"(?<![\w-])[\w-]{43}(?![\w-])")


@pytest.fixture
def shell(tmp_path):
    """Runs a command as the documents' readers do: programs on the PATH, default addresses, the user's data folder. Only
    the addresses are others: each program is called through a script that puts in those of the server."""
    programs, home = tmp_path / "programs", tmp_path / "home"
    redis_at, memcached_at = harness.redis_address(), harness.memcached_address()
    (home / ".local/share").mkdir(parents=True)
    (home / ".local/share/tidemark").symlink_to(os.environ["TIDEMARK_DATA"])
    programs.mkdir()
    addresses = f"""
        for argument; do
            shift
            case $argument in
                127.0.0.1:6379) set -- "$@" {redis_at.host}:{redis_at.port} ;;
                127.0.0.1:11211) set -- "$@" {memcached_at.host}:{memcached_at.port} ;;
                11211) set -- "$@" {memcached_at.port} ;;
                *) set -- "$@" "$argument" ;;
            esac
        done"""
    path = os.environ["PATH"]
    for name, run in [
        ("redis-cli", f'exec redis-cli -p {redis_at.port} "$@"'),
        ("nc", 'exec nc "$@"'),
        ("tidemark", f'exec {os.environ["TEST_TIDEMARK"]} "$@"'),
    ]:
        script = programs / name
        script.write_text(f"#!/bin/sh\nPATH='{path}'\n{addresses}\n{run}\n")
        script.chmod(0o755)
    environment = {"HOME": str(home), "PATH": f"{programs}:{path}", "LC_ALL": "C.UTF-8"}

    def run(command, typed):
        # On a terminal redis-cli writes replies for people; without one it has to be asked.
        if typed:
            command = re.sub(r"^redis-cli\b", "redis-cli --no-raw", command)
        done = subprocess.run(
            ["bash", "-c", command],
            input="".join(line + "\n" for line in typed),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environment,
            cwd=tmp_path,
            text=True,
            timeout=120,
            check=False,
        )
        return done.stdout.replace("\r\n", "\n")

    return run


@pytest.mark.parametrize("document", ["README.md", "docs/tenants.md"])
def test_sessions_run_as_they_are_written(document, shell):
    steps = documents.sessions(document)
    assert steps, "there is no session"
    # The document's secrets, and the server's in their place.
    secrets = {}
    for step in steps:
        command = SECRET.sub(lambda found: secrets.get(found[0], found[0]), step.command)
        printed = shell(command, step.typed)
        shown, given = SECRET.findall("\n".join(step.printed)), SECRET.findall(printed)
        for written, real in zip(shown, given):
            secrets.setdefault(written, real)
            printed = printed.replace(real, written)
        pattern = step.pattern()
        assert re.fullmatch(pattern, printed if printed.endswith("\n") or not printed else printed + "\n"), (
            f"{document}: `{step.command}` prints\n{printed}\nand not\n" + "\n".join(step.printed)
        )


def commands_of(rows):
    """The commands that a table's first column names, each with the rest of its row."""
    named = {}
    for cells in rows:
        for name in re.findall(r"`([^`]+)`", cells[0]):
            assert name not in named, f"{name} is there twice"
            named[name] = cells[1:]
    return named


def test_the_table_of_redis_commands_is_what_the_server_offers():
    address = harness.redis_address()
    offered = set()
    with redis.Redis(address.host, address.port, decode_responses=True) as client:
        assert {name.lower() for name in client.command()} == {name for name in client.command_list() if "|" not in name}
        for name, command in client.command().items():
            below = {entry[0].replace("|", " ") for entry in command["subcommands"]}
            # A command that only holds others is written by them; COMMAND does something alone.
            offered |= below if below and name != "command" else below | {name}
    written = commands_of(documents.table("docs/compatibility.md", "### Commands of Redis"))
    assert {name.lower() for name in written} == offered


# A request for each command of memcached, complete, whose answer is no error.
MEMCACHED_REQUESTS = {
    "get": b"get k",
    "gets": b"gets k",
    "gat": b"gat 0 k",
    "gats": b"gats 0 k",
    "set": b"set k 0 0 1\r\n1",
    "add": b"add k 0 0 1\r\n1",
    "replace": b"replace k 0 0 1\r\n1",
    "append": b"append k 0 0 1\r\n1",
    "prepend": b"prepend k 0 0 1\r\n1",
    "cas": b"cas k 0 0 1 1\r\n1",
    "incr": b"incr k 1",
    "decr": b"decr k 1",
    "touch": b"touch k 0",
    "delete": b"delete k",
    "flush_all": b"flush_all",
    "version": b"version",
    "verbosity": b"verbosity 1",
    "stats": b"stats",
    "mg": b"mg k v",
    "ms": b"ms k 1\r\n1",
    "md": b"md k",
    "ma": b"ma k",
    "mn": b"mn",
    "me": b"me k",
    "quit": b"quit",
}


def test_the_table_of_memcached_commands_is_what_the_server_takes(tenant):
    written = commands_of(documents.table("docs/compatibility.md", "### Commands of memcached"))
    assert set(written) == set(MEMCACHED_REQUESTS)
    login = f"{tenant.name} {tenant.secret}".encode()
    for name, request in MEMCACHED_REQUESTS.items():
        sent = b"set auth 0 0 %d\r\n%s\r\n%s\r\nquit\r\n" % (len(login), login, request)
        address = harness.memcached_address()
        done = subprocess.run(
            ["nc", address.host, str(address.port)], input=sent, capture_output=True, timeout=30, check=True
        )
        stored, _, answer = done.stdout.partition(b"\r\n")
        assert stored == b"STORED" and not answer.startswith((b"ERROR", b"CLIENT_ERROR", b"SERVER_ERROR")), (name, answer)
        assert bool(answer) == (name != "quit"), (name, answer)
