"""Uploads to S3 in parts: ranges of a source in the same store are copied by the store itself."""

from __future__ import annotations

import contextlib
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from resize_pos.containers.io.remote_path import RemotePath
from resize_pos.containers.remote.journal import Journal, abort_abandoned
from resize_pos.containers.remote.part_reader import PartReader
from resize_pos.containers.remote.parts import MOST_PARTS, SMALLEST, UploadPart, cut
from resize_pos.containers.remote.remote_file import RemoteFile
from resize_pos.containers.remote.s3_store import CONNECTIONS, S3Store, error_code, errors, quoted
from resize_pos.containers.remote.store import ObjectInfo, changed, store_of
from resize_pos.containers.remote.traffic import count
from resize_pos.containers.remote.upload import Upload, taken
from resize_pos.core.errors import OutputError, ResizePosError

if TYPE_CHECKING:
    from resize_pos.containers.remote.pending import PendingFile

_MORE = SMALLEST // 2
_SENDING = 3  # parts that are in memory at the same time

# Answers of stores that cannot copy a part, or cannot complete on a condition.
_CANNOT = frozenset(
    {"405", "501", "MethodNotAllowed", "NotImplemented", "XNotImplemented", "NotSupported"}
)
_LOST = frozenset({"412", "PreconditionFailed", "409", "ConditionalRequestConflict"})


class _CannotCopy(Exception):
    """The store does not copy parts; the message says how that showed."""


class S3Upload(Upload):
    """A multipart upload; an object smaller than one part is put with one request."""

    def __init__(self, path: RemotePath, file: PendingFile) -> None:
        super().__init__(path, file)
        store = store_of(path)
        assert isinstance(store, S3Store)
        self._client = store.client(path)
        self._where = {"Bucket": path.host, "Key": path.key}
        self._upload: str | None = None
        self._journal: Journal | None = None
        self._etags: dict[int, str] = {}
        self._memory = threading.Semaphore(_SENDING)
        self._stopped = threading.Event()

    def send(self) -> None:
        """Upload the parts; bytes that are being computed are waited for last."""
        if self.file.size < SMALLEST:
            self.file.wait()
            return
        try:
            if self._source() is not None:
                self._send(cut(self.file.pieces, copies=True))
                return
        except _CannotCopy as reason:
            self.abort()
            count(note=f"{self.path}: {reason}, so all bytes went through this machine")
        self._send(cut(self.file.pieces, copies=False))

    def _source(self) -> RemoteFile | None:
        """Return the source if the store can copy from it."""
        source = self.file.source
        if isinstance(source, RemoteFile) and source.remote_path.scheme == "s3":
            return source if source.info.identity else None
        return None

    def _send(self, parts: list[UploadPart]) -> None:
        if len(parts) > MOST_PARTS:
            raise OutputError(f"{self.path}: would need {len(parts)} parts.")
        self._stopped.clear()
        self._etags = {}
        self._begin()
        numbered = list(enumerate(parts, start=1))
        copies = [(number, part) for number, part in numbered if part.source is not None]
        sent = [(number, part) for number, part in numbered if part.source is None]
        with ThreadPoolExecutor(min(CONNECTIONS, len(parts))) as pool:
            jobs = [pool.submit(self._copy, number, part) for number, part in copies]
            jobs += [pool.submit(self._borrow, part) for _, part in sent[:1] if copies]
            try:
                self.file.wait()
                jobs += [pool.submit(self._put, number, part) for number, part in sent]
                _first_error(jobs)
            except BaseException:
                self._stopped.set()
                for job in jobs:
                    job.cancel()
                raise

    def _begin(self) -> None:
        abort_abandoned(self._client, self.path)
        with errors(self.path), self._named():
            answer = self._client.create_multipart_upload(
                **self._where, ContentType="application/octet-stream"
            )
        self._upload = str(answer["UploadId"])
        self._journal = Journal.enter(self._client, self.path, self._upload)

    def _copy(self, number: int, part: UploadPart) -> None:
        from botocore.exceptions import ClientError

        if self._stopped.is_set():
            return
        source = self._source()
        assert source is not None and part.source is not None
        origin = source.remote_path
        try:
            with errors(origin), _reraised(ClientError):
                answer = self._client.upload_part_copy(
                    **self._where,
                    UploadId=self._upload,
                    PartNumber=number,
                    CopySource={"Bucket": origin.host, "Key": origin.key},
                    CopySourceRange=f"bytes={part.source}-{part.source + part.length - 1}",
                    CopySourceIfMatch=source.info.identity,
                )
        except _Refused as refused:
            code, words = refused.args
            if code in _CANNOT:
                raise _CannotCopy(f"the store does not copy parts ({code})") from None
            if code in _LOST:
                raise changed(origin) from None
            raise OutputError(f"{self.path}: the store refused to copy: {words}.") from None
        etag = answer.get("CopyPartResult", {}).get("ETag")
        if not etag:
            raise _CannotCopy("the store does not confirm copied parts (no ETag)")
        count(copied=part.length)
        self._etags[number] = etag

    def _borrow(self, part: UploadPart) -> None:
        """Read what the first part needs of the source while the new bytes are computed.

        A little more is read: the first block of a model often follows, and the measures need it.
        """
        source, ranges = self._source(), list(self.file.borrowed(part.start, part.length))
        if source is not None and ranges and part.length <= 2 * SMALLEST:
            begin, end = ranges[0]
            source.view(begin, min(end - begin + _MORE, source.size - begin))

    def _put(self, number: int, part: UploadPart) -> None:
        with self._memory:
            if self._stopped.is_set():
                return
            data = PartReader(self.file.views(part.start, part.length))
            with errors(self.path), self._named():
                answer = self._client.upload_part(
                    **self._where, UploadId=self._upload, PartNumber=number, Body=data
                )
        count(sent=part.length)
        self._etags[number] = answer["ETag"]

    def complete(self, before: ObjectInfo | None) -> None:
        """Make the object visible, if the store still holds what it held `before`."""
        condition = {"IfNoneMatch": "*"} if before is None else {"IfMatch": before.identity}
        try:
            answer = self._finish(condition)
        except _Refused as refused:
            code, words = refused.args
            if code in _LOST or code == "NoSuchUpload":
                answer = self._stored()
                if answer is None:
                    raise taken(self.path) from None
            elif code not in _CANNOT:
                raise OutputError(f"{self.path}: the store refused: {words}.") from None
            else:
                # The store has no conditions. Look just before, which leaves a short moment.
                if store_of(self.path).info(self.path) != before:
                    raise taken(self.path) from None
                answer = self._finish({})
        self._upload = None
        if self._journal is not None:
            self._journal.leave()
        etag = quoted(answer.get("ETag"))
        found = store_of(self.path).info(self.path) if not etag else None
        self.result = found or ObjectInfo(self.file.size, etag)

    def _stored(self) -> dict[str, str] | None:
        """Return the answer that was lost if the store holds what was sent; None if it does not.

        The SDK repeats a request whose answer is lost. Then the object is already there.
        """
        found = store_of(self.path).info(self.path)
        if found is None or found.size != self.file.size or found.identity != self._etag():
            return None
        return {"ETag": found.identity}

    def _etag(self) -> str:
        """Compute the ETag that S3 gives to what was sent, unless the bucket is encrypted."""
        import hashlib

        if self._upload is None:
            data, count_words = self.file.fetch(0, self.file.size), ""
        else:
            tags = [etag.strip('"') for _, etag in sorted(self._etags.items())]
            try:
                data, count_words = bytes.fromhex("".join(tags)), f"-{len(tags)}"
            except ValueError:
                return ""
        return f'"{hashlib.md5(data, usedforsecurity=False).hexdigest()}{count_words}"'

    def _finish(self, condition: dict[str, str]) -> Any:
        from botocore.exceptions import ClientError

        try:
            with errors(self.path), _reraised(ClientError):
                if self._upload is None:
                    data = self.file.fetch(0, self.file.size)
                    answer = self._client.put_object(**self._where, Body=data, **condition)
                    count(sent=len(data))
                    return answer
                parts = [
                    {"PartNumber": number, "ETag": etag}
                    for number, etag in sorted(self._etags.items())
                ]
                return self._client.complete_multipart_upload(
                    **self._where,
                    UploadId=self._upload,
                    MultipartUpload={"Parts": parts},
                    **condition,
                )
        except FileNotFoundError:
            raise OutputError(f"{self.path}: there is no such bucket.") from None

    @contextlib.contextmanager
    def _named(self) -> Any:
        try:
            yield
        except FileNotFoundError:
            raise OutputError(f"{self.path}: there is no such bucket.") from None

    def abort(self) -> None:
        """Remove what was uploaded; never raises."""
        self._stopped.set()
        upload, self._upload = self._upload, None
        if upload is None:
            return
        with contextlib.suppress(Exception):
            self._client.abort_multipart_upload(**self._where, UploadId=upload)
            if self._journal is not None:
                self._journal.leave()

    def remove(self) -> None:
        """Remove the object, if it is the one that was completed here; never raises."""
        if self.result is None:
            return
        with contextlib.suppress(Exception):
            if store_of(self.path).info(self.path) == self.result:
                self._client.delete_object(**self._where)


class _Refused(Exception):
    """The store refused a request: its code, and a sentence."""


@contextlib.contextmanager
def _reraised(kind: type[Exception]) -> Any:
    try:
        yield
    except kind as error:
        code, words = error_code(error)
        raise _Refused(code, words) from error


def _first_error(jobs: list[Future[None]]) -> None:
    """Wait for all jobs; stop at the first one that fails."""
    from concurrent.futures import FIRST_EXCEPTION, wait

    done, _ = wait(jobs, return_when=FIRST_EXCEPTION)
    failed = [error for job in done if (error := job.exception()) is not None]
    cannot = next((error for error in failed if isinstance(error, _CannotCopy)), None)
    ours = next((error for error in failed if isinstance(error, ResizePosError)), None)
    if failed:
        raise cannot or ours or failed[0]
