"""The files of tables: the one module that reads, lists, renames and removes them.

`TableFolder` reaches the files of a table as deltalake does, at a path or a URL, with the same
options. Folders of tables are renamed and removed by fsspec's paths (`folder_at`), which are
`pathlib`'s own on a disk of this machine. Spark reaches files by its own file systems.
"""

import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.fs as pafs
    from upath import UPath

LOG_FOLDER = "_delta_log"
CHANGES_FOLDER = "_change_data"
VECTORS = "deletion_vector_"  # their names are spelled otherwise in the log; VACUUM knows them


@dataclass(frozen=True)
class StoredFile:
    """A file below a table's folder, by its path as text, not as a URL; `modified` in
    milliseconds.
    """

    path: str
    size: int
    modified: int

    @property
    def name(self) -> str:
        """Its name without folders."""
        return self.path.rpartition("/")[2]


@dataclass(frozen=True)
class TableFolder:
    """The files below a table's location; paths are relative to it.

    Args:
        location: A local path or a URL that deltalake understands.
        options: Credentials and endpoints of an object store, as deltalake takes them.

    Raises (every method): OSError, or an error of deltalake, where the location is out of reach.
    """

    location: str
    options: Mapping[str, str] = field(default_factory=dict, repr=False)

    @cached_property
    def _files(self) -> "pafs.FileSystem":
        import pyarrow.fs as pafs  # a tenth of a second, for those only who read files
        from deltalake.fs import DeltaStorageHandler

        return pafs.PyFileSystem(DeltaStorageHandler(self.location, dict(self.options)))

    def read(self, path: str) -> bytes | None:
        """The contents of a file; None where it does not exist."""
        try:
            with self._files.open_input_stream(path) as stream:
                return stream.read()
        except FileNotFoundError:
            return None

    def open(self, path: str) -> "pa.NativeFile":
        """A file to be read at any position.

        Raises:
            FileNotFoundError: it does not exist.
        """
        return self._files.open_input_file(path)

    def files_in(self, folder: str) -> list[StoredFile]:
        """The files directly in a folder."""
        return self._entries(folder)[0]

    def data_files(self, folder: str = "") -> Iterator[StoredFile]:
        """The files of rows and of changes, without the log, deletion vectors, what Spark hides,
        and tables that lie within.
        """
        files, folders = self._entries(folder)
        if folder and any(one.rpartition("/")[2] == LOG_FOLDER for one in folders):
            return
        yield from (one for one in files if not one.name.startswith(("_", ".", VECTORS)))
        for one in folders:
            name = one.rpartition("/")[2]
            if one == CHANGES_FOLDER or "=" in name or not name.startswith(("_", ".")):
                yield from self.data_files(one)

    def _entries(self, folder: str) -> tuple[list[StoredFile], list[str]]:
        """The files directly in a folder, and the paths of the folders there."""
        import pyarrow.fs as pafs

        files, folders = list[StoredFile](), list[str]()
        for entry in self._files.get_file_info(pafs.FileSelector(folder, recursive=False)):
            path = entry.path.strip("/")
            if entry.type == pafs.FileType.Directory:
                folders.append(path)
            else:
                files.append(StoredFile(path, entry.size or 0, (entry.mtime_ns or 0) // 1_000_000))
        return files, folders


def is_local(location: str) -> bool:
    """Whether it is a path of this machine, where folders exist and are renamed in a moment, rather
    than a URL.
    """
    return "://" not in location


def folder_at(location: str) -> "UPath":
    """The folder at a location."""
    from upath import UPath  # 50 ms, for those only who look for folders

    return UPath(location)


def is_stored(location: str) -> bool:
    """Whether a file or folder lies there."""
    return folder_at(location).exists()


def has_folder(location: str) -> bool:
    """Whether there is a local folder; at a URL there is none."""
    return is_local(location) and folder_at(location).is_dir()


def folders_below(location: str) -> "Iterator[UPath]":
    """The folders below a local one that are no links, each before those in it, but for those
    within tables; none at a URL.
    """
    if not is_local(location):
        return
    for parent, names, _ in folder_at(location).walk():
        own = [name for name in names if not (parent / name).is_symlink()]
        names[:] = [] if LOG_FOLDER in own else own
        yield from (parent / name for name in own)


def remove_folder(folder: "UPath") -> bool:
    """Remove a folder of this machine with all that can be removed in it; whether it is gone."""
    shutil.rmtree(str(folder), ignore_errors=True)
    return not folder.exists()
