"""What an object store can refuse, by name."""

from __future__ import annotations

from common.errors import Conflict, Damaged, Failed, Usage

__all__ = [
    "AccessDenied",
    "AlreadyExists",
    "InArchiveClass",
    "InvalidKey",
    "InvalidRoot",
    "NoSuchBucket",
    "NoSuchObject",
    "ObjectStoreError",
    "ObjectStoreUnavailable",
    "OutOfSpace",
    "ServerBusy",
    "TooLarge",
    "UnorderedListing",
    "WrongSize",
]


class ObjectStoreError(Failed):
    """Base of what goes wrong at an object store."""


class ObjectStoreUnavailable(ObjectStoreError):
    """The store does not answer, throttles or fails for longer than the retries last. Trying again may help."""


class ServerBusy(ObjectStoreUnavailable):
    """The server is there, but throttles or fails."""


class AccessDenied(ObjectStoreError):
    """The credentials are wrong or do not allow this (a read-only bucket)."""


class NoSuchBucket(ObjectStoreError):
    """The bucket, or the root folder, does not exist."""

    retriable = False


class NoSuchObject(ObjectStoreError):
    """No object has this key."""


class InArchiveClass(ObjectStoreError):
    """An object is in an archive class (S3 Glacier) and cannot be read before it is brought back."""

    retriable = False

    @classmethod
    def of(cls, storage_class: str, where: str) -> InArchiveClass:
        """One that S3 was not asked for."""
        todo = "Ask S3 for it with 'streamvault warm', which may take hours; then run this again."
        return cls(f"an object is in the archive class {storage_class}".rstrip(), where=where, todo=todo)


class OutOfSpace(ObjectStoreError):
    """The store has no room left."""


class UnorderedListing(ObjectStoreError):
    """The server lists keys in another order than that of their bytes; it cannot hold an archive."""


class WrongSize(ObjectStoreError):
    """An object is shorter than what was asked for, or has another size than its listing said."""


class TooLarge(Damaged):
    """An object is larger than anything that an archive has under its key."""

    @classmethod
    def of(cls, size: int, at_most: int, where: str) -> TooLarge:
        """One of `size` bytes where `at_most` were expected."""
        return cls(f"the object has {size} bytes instead of {at_most} at most", where=where)


class AlreadyExists(Conflict):
    """An object has this key already."""


class InvalidRoot(Usage):
    """A ROOT that is neither ``s3://BUCKET/PREFIX`` nor ``file:///FOLDER``."""


class InvalidKey(Usage):
    """A key that is not below the root (absolute, ``..``, control characters, an empty part)."""
