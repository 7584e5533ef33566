"""Errors of the object stores."""

from __future__ import annotations

from streamvault.common.errors import Absent, Conflict, Damaged, Failed, Usage


class ObjectStoreError(Failed):
    """Base class of object store errors."""


class ObjectStoreUnavailable(ObjectStoreError):
    """The store did not answer, throttled or failed until the retries were exhausted. A later retry may succeed."""

    transient = True


class NoSuchHost(ObjectStoreUnavailable):
    """The endpoint's host name does not exist."""


class ServerBusy(ObjectStoreUnavailable):
    """The server answers, but throttles or fails."""


class AccessDenied(ObjectStoreError):
    """The credentials are invalid or lack permission (a read-only bucket)."""


class NoSuchBucket(Absent, ObjectStoreError):
    """The bucket does not exist, or neither the root folder nor the one that it would be created in."""

    @classmethod
    def of(cls, where: str) -> NoSuchBucket:
        """Build the error for a bucket."""
        todo = "Check its name and the endpoint; a new one must be created first."
        return cls("no such bucket", where=where, todo=todo)


class NoSuchObject(ObjectStoreError):
    """No object has this key."""


class InArchiveClass(ObjectStoreError):
    """An object is in an archive class (S3 Glacier) and cannot be read until it is restored."""

    retriable = False

    @classmethod
    def of(cls, class_name: str, where: str) -> InArchiveClass:
        """Build the error for an object that no restore was requested for."""
        todo = "Restore it with 'streamvault warm', which may take hours; then run this again."
        return cls(f"an object is in the archive class {class_name}".rstrip(), where=where, todo=todo)


class OutOfSpace(ObjectStoreError):
    """The store is full."""


class UnorderedListing(ObjectStoreError):
    """The server does not list keys in byte order, so it cannot hold an archive."""

    @classmethod
    def at(cls, root: str) -> UnorderedListing:
        """Build the error for a root (a URI)."""
        todo = "It cannot hold an archive; use another server."
        return cls("the server does not list keys in byte order", where=root, todo=todo)


class WrongSize(ObjectStoreError):
    """An object is shorter than the requested range, or its size differs from the listing."""

    @classmethod
    def short(cls, start: int, end: int, where: str) -> WrongSize:
        """Build the error for an object that ends before the bytes ``[start, end)`` do."""
        return cls(f"the object is too short for bytes {start} to {end}", where=where)


class TooLarge(Damaged):
    """An object is larger than anything an archive stores under its key."""

    @classmethod
    def of(cls, size: int, at_most: int, where: str) -> TooLarge:
        """Build the error for an object of ``size`` bytes where ``at_most`` were expected."""
        return cls(f"the object has {size} bytes instead of at most {at_most}", where=where)


class AlreadyExists(Conflict):
    """An object with this key already exists."""


class InvalidRoot(Usage):
    """The root is neither ``s3://BUCKET/PREFIX`` nor ``file:///FOLDER``."""


class InvalidKey(Usage):
    """The key is not allowed (absolute, ``..``, control characters, an empty part)."""
