"""Runs the very steps of deploy/Dockerfile without Docker, as root: debootstrap makes the base, chroot runs the steps.

    python -m kafka_s3_platform_tests.deploy.image_steps /tmp/image

leaves the image's tree in /tmp/image/final and says its size. It takes some minutes and 4 GB. To enter the image:

    chroot --userspec=10001:10001 /tmp/image/final env -i $(cat /tmp/image/final.env) bash
"""

import fnmatch
import os
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from kafka_s3_platform_tests.deploy.dockerfile import Stage, Step, read_stages

REPOSITORY = Path(__file__).parents[2]
DOCKERFILE = REPOSITORY / "deploy" / "Dockerfile"

RELEASES = {"debian:12": "bookworm"}
"""The suite of debootstrap for the beginning of a base image's name."""

MACHINE_FILES = ("etc/resolv.conf", "etc/hosts")
"""What Docker gives its containers, too."""

AUTHORITIES = "run/authorities.pem"
"""The certificate authorities that pip trusts on this machine."""


def main() -> None:
    """Run all stages, and say what they made."""
    folder = Path(sys.argv[1]).absolute()
    folder.mkdir(parents=True)
    roots: dict[str, Path] = {}
    env: dict[str, dict[str, str]] = {}
    for stage in read_stages(DOCKERFILE):
        name = stage.name or "final"
        roots[name] = folder / name
        base_env = dict(env.get(stage.base, {}))
        started = time.monotonic()
        _make_base(stage, roots.get(stage.base), roots[name])
        env[name] = run_stage(stage, roots, base_env)
        _say(f"{name}: {time.monotonic() - started:.0f} s, {measure(roots[name]) / 1e6:.0f} MB")
    (folder / "final.env").write_text("".join(f"{key}={value}\n" for key, value in env["final"].items()))
    packed = folder / "final.tar.gz"
    with tarfile.open(packed, "w:gz", compresslevel=6) as tar:
        tar.add(roots["final"], ".")
    _say(f"packed with gzip, as registries keep it: {packed.stat().st_size / 1e6:.0f} MB")


def run_stage(stage: Stage, roots: Mapping[str, Path], env: dict[str, str]) -> dict[str, str]:
    """Run the steps of a stage in its tree. Return the environment at its end."""
    root = roots[stage.name or "final"]
    user, folder = "0:0", "/"
    with _mounted(root):
        for step in stage.steps:
            if step.name == "RUN":
                _say(f"RUN {step.text}")
                run_inside(root, step.command, env, user=user, folder=folder)
            elif step.name == "ENV":
                env |= step.variables
            elif step.name == "USER":
                user = step.text
            elif step.name == "WORKDIR":
                folder = step.text
                (root / folder[1:]).mkdir(parents=True, exist_ok=True)
            elif step.name == "COPY":
                _copy(step, roots, root / folder[1:], root)
    return env


def run_inside(
    root: Path, command: Sequence[str], env: Mapping[str, str], *, user: str = "0:0", folder: str = "/"
) -> None:
    """Run a command in a tree, with the machine's settings of pip and its proxies, which are not part of an image."""
    machine = {k: v for k, v in os.environ.items() if k == "PIP_INDEX_URL" or k.lower().endswith("_proxy")}
    if (root / AUTHORITIES).exists():
        machine["PIP_CERT"] = f"/{AUTHORITIES}"
    chroot = ["chroot", f"--userspec={user}", str(root), "env", "-i", f"--chdir={folder}"]
    given = [f"{name}={value}" for name, value in {**machine, **env}.items()]
    subprocess.run([*chroot, *given, *command], check=True)


def measure(root: Path) -> int:
    """Return the bytes of a tree on disk."""
    shown = subprocess.run(["du", "-s", "-x", "--block-size=1", root], capture_output=True, text=True, check=True)
    return int(shown.stdout.split()[0])


def is_sent(path: str, rules: Sequence[str]) -> bool:
    """Whether .dockerignore lets a file of the repository into the build. The last rule that fits decides."""
    sent = True
    for rule in rules:
        pattern = rule.removeprefix("!").removeprefix("**/")
        parts = [path, *map(str, Path(path).parents)]
        names = parts if not rule.startswith("**/") else [Path(part).name for part in parts]
        if any(fnmatch.fnmatchcase(name, pattern) for name in names):
            sent = rule.startswith("!")
    return sent


def read_rules(repository: Path) -> list[str]:
    """Return the rules of .dockerignore."""
    lines = (repository / ".dockerignore").read_text().splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def _make_base(stage: Stage, earlier: Path | None, root: Path) -> None:
    if earlier is not None:
        subprocess.run(["cp", "--archive", "--reflink=auto", earlier, root], check=True)
        return
    suite = next(suite for image, suite in RELEASES.items() if stage.base.startswith(image))
    subprocess.run(["debootstrap", "--variant=minbase", suite, root, *_find_mirror()], check=True, stdout=sys.stderr)
    for name in ("etc/apt/sources.list", "etc/apt/sources.list.d", "etc/apt/apt.conf.d"):
        source = Path("/", name)
        if source.is_dir():
            shutil.copytree(source, root / name, dirs_exist_ok=True)
        elif source.exists():
            shutil.copy(source, root / name)


def _find_mirror() -> list[str]:
    """Return the mirror of Debian that this machine uses, if it says so."""
    shown = subprocess.run(
        ["apt-get", "indextargets", "--format", "$(SITE)", "Created-By: Packages"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    sites = [site for site in shown.stdout.split() if "security" not in site]
    return sites[:1]


@contextmanager
def _mounted(root: Path) -> Iterator[None]:
    """Give the tree what Docker gives to a container: /proc, /dev and the names of hosts."""
    kept = [name for name in MACHINE_FILES if Path("/", name).exists()]
    before = {name: (root / name).read_bytes() if (root / name).exists() else None for name in kept}
    for name in kept:
        shutil.copy(Path("/", name), root / name)
    if authorities := os.environ.get("PIP_CERT"):
        shutil.copy(authorities, root / AUTHORITIES)
    subprocess.run(["mount", "-t", "proc", "proc", root / "proc"], check=True)
    subprocess.run(["mount", "--bind", "/dev", root / "dev"], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", root / "dev", root / "proc"], check=True)
        (root / AUTHORITIES).unlink(missing_ok=True)
        for name, content in before.items():
            (root / name).unlink()
            if content is not None:
                (root / name).write_bytes(content)


def _copy(step: Step, roots: Mapping[str, Path], folder: Path, root: Path) -> None:
    words = step.text.split()
    stage = words.pop(0).removeprefix("--from=") if words[0].startswith("--from=") else None
    *sources, target = words
    goal = root / target[1:] if target.startswith("/") else folder / target
    rules = read_rules(REPOSITORY)
    for name in sources:
        source = roots[stage] / name[1:] if stage else REPOSITORY / name
        if source.is_dir():
            subprocess.run(["cp", "--archive", "--reflink=auto", f"{source}/.", _made(goal)], check=True)
            for path in [] if stage else sorted(goal.rglob("*"), reverse=True):
                if path.is_file() and not is_sent(str(Path(name, path.relative_to(goal))), rules):
                    path.unlink()
        elif stage or is_sent(name, rules):
            shutil.copy(source, _made(goal) if target.endswith("/") else goal)
        else:
            raise ValueError(f".dockerignore keeps {name} out of the build, which copies it")


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _say(text: str) -> None:
    sys.stderr.write(f"--- {text}\n")


if __name__ == "__main__":
    main()
