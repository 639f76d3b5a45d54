"""Upload an output to the hub as one commit, or as a pull request; only if the user asks for it.

The model card gets a section about the conversion. A repository that does not exist is created as a
private one: publishing it is left to its owner.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from resize_pos.containers.detect import WEIGHT_SUFFIXES
from resize_pos.containers.hub import hub_name, parse_hub
from resize_pos.containers.hub_errors import explained, kinds
from resize_pos.containers.hub_files import hub_library
from resize_pos.containers.io.remote_path import RemotePath
from resize_pos.core.errors import OutputError, UsageError
from resize_pos.core.fast_dataclass import dataclass
from resize_pos.report.model_card import card_section, merged_card
from resize_pos.report.report import HubUpload, Report, Status
from resize_pos.run.job import Job

_CARD = "README.md"
_NOT_THERE = "RepositoryNotFoundError"
_WRITER = "Log in with `hf auth login`, or set HF_TOKEN to a token that may write there."


@dataclass(frozen=True, slots=True)
class Target:
    """A repository of the hub, as it was before the run."""

    repo: str
    pull_request: bool
    commit: str | None  # None: there is no such repository
    files: tuple[str, ...]

    @property
    def address(self) -> str:
        """The repository as a user would type it."""
        return f"hf://{self.repo}"


def push_target(given: str, job: Job, *, pull_request: bool) -> Target:
    """Find a repository to upload to; refuse, before any work is done, one that cannot be."""
    address = given if given.startswith("hf:/") else (hub_name(Path(given)) or given)
    model = parse_hub(Path(address))
    if model is None or model.path or model.revision != "main" or "/" not in model.repo:
        raise UsageError(f"--push {given}: is not the name of a model.", hint="--push ORG/NAME")
    if isinstance(job.output, RemotePath):
        raise UsageError(
            f"--push: the output {job.output} is not on this machine.",
            hint="name a local folder with -o.",
        )
    commit, files = _looked_up(model.repo)
    target = Target(model.repo, pull_request, commit, files)
    if pull_request:
        if commit is None:
            raise UsageError(
                f"{target.address}: there is no such repository, or it is private.",
                hint="a pull request needs one; without --push-pr it is created.",
            )
        return target
    held = [name for name in files if name.endswith(WEIGHT_SUFFIXES)]
    source = parse_hub(job.source)
    if source is not None and source.repo == model.repo:
        raise OutputError(
            f"{target.address}: the target is the source, which is never modified.",
            hint="name another model, or offer the output with --push-pr.",
        )
    if held and not job.force:
        raise OutputError(
            f"{target.address}: already holds {held[0]}.",
            hint="pass --force to replace it in a new commit, or --push-pr.",
        )
    return target


def _looked_up(repo: str) -> tuple[str | None, tuple[str, ...]]:
    hub = hub_library(f"hf://{repo}")
    try:
        info = hub.HfApi().model_info(repo)
    except Exception as error:
        if _NOT_THERE in kinds(error) and "GatedRepoError" not in kinds(error):
            return None, ()
        raise explained(f"hf://{repo}", error, "request") from error
    return info.sha, tuple(sibling.rfilename for sibling in info.siblings or ())


def pushed(
    report: Report, job: Job, target: Target, command: str | None, *, strict: bool = False
) -> Report:
    """Upload the output of a run; return the report with what was done."""
    upload = HubUpload(target.address, (), target.commit is None, target.pull_request)
    reason = _why_not(report, strict=strict)
    if reason:
        return replace(report, upload=replace(upload, reason=reason))
    assert report.output is not None
    source = parse_hub(job.source)
    base = None if source is None else source.repo
    files: dict[str, Path | bytes] = dict(_files(report.output))
    section = card_section(report, base, command)
    files[_CARD] = _card(target, files.get(_CARD), section, base).encode()
    url = _commit(target, files, report)
    done = replace(upload, files=tuple(sorted(files)), url=url)
    return replace(report, upload=done)


def _why_not(report: Report, *, strict: bool) -> str:
    if report.status is Status.PLANNED:
        return "this is a dry run"
    if report.output is None:
        return "there is no output"
    if report.exit_code(strict=strict):
        return f"the verdict is {report.verdict.value}"
    return ""


def _files(output: Path) -> Mapping[str, Path]:
    if output.is_file():
        return {output.name: output}
    found = sorted(path for path in output.rglob("*") if path.is_file())
    return {path.relative_to(output).as_posix(): path for path in found}


def _card(target: Target, copied: Path | bytes | None, section: str, base: str | None) -> str:
    """Merge the section into the card of the repository, else into the one of the source."""
    own = _CARD in target.files
    if own:
        card = _downloaded(target)
    else:
        card = copied.read_text(encoding="utf-8") if isinstance(copied, Path) else ""
    return merged_card(card, section, base, keep_base=own)


def _downloaded(target: Target) -> str:
    hub = hub_library(target.address)
    try:
        found = hub.hf_hub_download(target.repo, _CARD, revision=target.commit)
        return Path(found).read_text(encoding="utf-8")
    except Exception as error:
        raise _failed(target, error, None) from error


def _commit(target: Target, files: Mapping[str, Path | bytes], report: Report) -> str:
    hub = hub_library(target.address)
    api = hub.HfApi()
    size = f" to {report.plan.to_size} px" if report.plan.to_size else ""
    adding = [
        hub.CommitOperationAdd(name, content if isinstance(content, bytes) else str(content))
        for name, content in sorted(files.items())
    ]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a card's metadata, which are not ours
            if target.commit is None:
                api.create_repo(target.repo, private=True)
            done: Any = api.create_commit(
                target.repo,
                operations=adding,
                commit_message=f"Resize{size} with resize-pos",
                create_pr=target.pull_request,
                parent_commit=target.commit,
            )
    except Exception as error:
        raise _failed(target, error, report.output) from error
    return str((done.pr_url if target.pull_request else None) or done.commit_url)


def _failed(target: Target, error: Exception, output: Path | None) -> OutputError:
    """Say why an upload failed, and how to repeat it without the conversion."""
    kept = ""
    if output is not None:
        kept = f" The output is kept: hf upload {target.repo} {output} uploads it."
    status = getattr(getattr(error, "response", None), "status_code", None)
    if status in (401, 403) or _NOT_THERE in kinds(error):
        return OutputError(
            f"{target.address}: the hub does not let you write there ({status}).",
            hint=f"{_WRITER}{kept}",
        )
    if status in (409, 412):
        return OutputError(
            f"{target.address}: was changed by somebody else in the meantime ({status}).",
            hint=f"Look at it, then push again.{kept}",
        )
    ours = explained(target.address, error, "upload")
    return OutputError(ours.message, hint=f"{ours.hint or 'Try again later.'}{kept}")
