"""A real SLURM of one node in a folder, as long as a test needs it."""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "scancel", "sinfo", "squeue")
CORES = 4
"""That the node says it has, and GPUs: so many tasks run side by side on any machine."""
CONFIGURATION = """
ClusterName=one
SlurmctldHost={host}(127.0.0.1)
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CryptoType=crypto/munge
SlurmUser=root
SlurmdUser=root
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=sched_interval=1,sched_min_interval=0,batch_sched_delay=0,bf_interval=1
SlurmdParameters=config_overrides
KillWait=5
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
GresTypes=gpu
NodeName={host} NodeAddr=127.0.0.1 CPUs={cores} Gres=gpu:{cores} State=UNKNOWN
PartitionName=all Nodes={host} Default=YES MaxTime=INFINITE State=UP
"""
PATH = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])


def why_not() -> str | None:
    """Why no SLURM can be started here; None where it can."""
    if missing := [name for name in PROGRAMS if shutil.which(name, path=PATH) is None]:
        return f"no {', '.join(missing)} here (Debian: slurm-wlm, munge)"
    return None if os.getuid() == 0 else "slurmd starts jobs as root alone"


@contextmanager
def slurm(folder: Path) -> Iterator[dict[str, str]]:
    """Start one; what it yields is the environment of its commands."""
    host = socket.gethostname().partition(".")[0]
    with socket.socket() as one, socket.socket() as two:
        one.bind(("127.0.0.1", 0))
        two.bind(("127.0.0.1", 0))
        ports = [one.getsockname()[1], two.getsockname()[1]]
    for name in ("state", "spool"):
        (folder / name).mkdir()
    key, conf = folder / "munge.key", folder / "slurm.conf"
    key.write_bytes(secrets.token_bytes(128))
    key.chmod(0o400)
    conf.write_text(CONFIGURATION.format(folder=folder, host=host, ports=ports, cores=CORES))
    for number in range(CORES):  # devices that are none: what a job is given is a number
        (folder / f"gpu{number}").touch()
    gpus = f"NodeName={host} Name=gpu File={folder}/gpu[0-{CORES - 1}]\n"
    (folder / "gres.conf").write_text(gpus)
    environ = {**os.environ, "SLURM_CONF": str(conf), "PATH": PATH}
    own = [f"--{name}-file={folder}/munge.{name}" for name in ("pid", "log", "seed")]
    own += [f"--socket={folder}/munge.socket", f"--key-file={key}"]
    running: list[subprocess.Popen[bytes]] = []

    def start(*command: object) -> None:
        words = [*map(str, command)]
        with (folder / f"{words[0]}.out").open("wb") as out:
            running.append(subprocess.Popen(words, env=environ, stdout=out, stderr=out, cwd=folder))

    def until(there: Callable[[], bool]) -> None:
        latest = time.monotonic() + 120  # a hang
        while not there():
            if any(one.poll() is not None for one in running) or time.monotonic() > latest:
                logs = [f"{log.name}: {log.read_text()[-500:]}" for log in folder.glob("*.out")]
                raise RuntimeError("SLURM did not start\n" + "\n".join(logs))
            time.sleep(0.1)

    try:
        start("munged", "--foreground", "--force", *own)
        until((folder / "munge.socket").exists)
        start("slurmctld", "-D", "-i", "-f", conf)
        start("slurmd", "-D", "-f", conf, "-N", host)
        until(lambda: "idle" in _ask(["sinfo", "--noheader", "-o", "%T"], environ))
        yield environ
    finally:
        if len(running) > 1:
            _ask(["scancel", "--full", "--signal=KILL", "--user=root"], environ)
            wait_for_jobs(environ, 60)
        for process in reversed(running):
            process.terminate()
            process.wait()


def wait_for_jobs(environ: dict[str, str], seconds: float = 600) -> None:
    """Until no job is left."""
    latest = time.monotonic() + seconds
    while _ask(["squeue", "--noheader"], environ).strip() and time.monotonic() < latest:
        time.sleep(0.2)


def _ask(command: list[str], environ: dict[str, str]) -> str:
    return subprocess.run(command, env=environ, capture_output=True, text=True).stdout
