"""Permissions: who may write to files and folders that this user trusts."""

from __future__ import annotations

import os
import stat
from collections.abc import Collection


def name_other_writers(status: os.stat_result, owners: Collection[int] = ()) -> str:
    """Say who else than this user, root and `owners` may write to a file or folder; nothing if nobody, or if the system has no such users.

    A group of the user's own name, and that of root, may write if it has no other members: a umask of 002 is made for such groups. Of a
    folder with the sticky bit, such as /tmp, only the owner counts: others cannot replace what is not theirs.
    """
    if not hasattr(os, "geteuid"):
        return ""
    if status.st_uid not in {os.geteuid(), 0, *owners}:
        return f"it belongs to user {status.st_uid}"
    if stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_ISVTX:
        return ""
    if status.st_mode & stat.S_IWOTH:
        return "everybody may write to it"
    if status.st_mode & stat.S_IWGRP and not _is_own_group(status.st_gid):
        return f"group {status.st_gid} may write to it"
    return ""


def _is_own_group(group: int) -> bool:
    try:
        import grp
        import pwd

        found = grp.getgrgid(group)
        user = pwd.getpwuid(os.geteuid()).pw_name
    except (ImportError, KeyError):  # a user or group without a name
        return False
    return (group == 0 or found.gr_name == user) and set(found.gr_mem) <= {user, "root"}
