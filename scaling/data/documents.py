"""All documents of a source on disk for a moment, to be read back in an order of our own."""

from pathlib import Path

from scaling.data.split import digest, split_by_content
from scaling.errors import UserError


class Spool:
    """A file of documents and, in memory, a line about each: 32 bytes of digest and its place.

    It lets a source be read once and in its own order, while splits and order follow from the
    content, whatever the file system or the number of shards.
    """

    def __init__(self, path: Path):
        self._file = path.open("w+b")
        self._entries: list[tuple[bytes, str, int, int]] = []  # digest, split, offset, length
        self._end = 0

    def __enter__(self) -> "Spool":
        return self

    def __exit__(self, *exc_info) -> None:
        self._file.close()

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, document: bytes, split: str) -> None:
        """Adds a UTF-8 document of split `train`, `validation`, or `all` where it is to be split.

        NULs are dropped for every tokenizer alike, so that all read the same text.
        """
        document = document.replace(b"\0", b"")
        if document:
            self._file.write(document)
            self._entries.append((digest(document), split, self._end, len(document)))
            self._end += len(document)

    def ordered(self, source: str) -> tuple[list[int], list[int]]:
        """Numbers of the train and of the validation documents, in the order of their digests.

        Raises:
          UserError: a split without a document.
        """
        order = sorted(range(len(self)), key=lambda i: self._entries[i][0])
        by_content = split_by_content([entry[0] for entry in self._entries])
        held_out = [
            by_content[i] if entry[1] == "all" else entry[1] == "validation"
            for i, entry in enumerate(self._entries)
        ]
        validation = [i for i in order if held_out[i]]
        # A set's own splits may share documents; what is held out is never trained on.
        kept_back = {self._entries[i][0] for i in validation}
        train = [i for i in order if not held_out[i] and self._entries[i][0] not in kept_back]
        if not train or not validation:
            distinct = len({entry[0] for entry in self._entries})
            raise UserError(
                f"data source {source} holds {distinct} distinct documents with text "
                f"({len(train)} for training, {len(validation)} for validation), and each split "
                "needs one: give more documents, for example a .jsonl file with one a line"
            )
        return train, validation

    def read(self, number: int) -> bytes:
        """Document `number`, as UTF-8."""
        _, _, offset, length = self._entries[number]
        self._file.seek(offset)
        return self._file.read(length)
