"""Which rows of a session are members of one group."""


def list_group_rows(rows: int, first_row: int, group_size: int) -> dict[int, range]:
    """Number of a group in the whole batch -> its rows here, of ``rows`` that begin at ``first_row``.

    Where several processes sample a batch, the first and the last may be parts of a group.
    """
    found = dict[int, range]()
    for row in range(rows):
        number = (first_row + row) // group_size
        found[number] = range(found[number].start if number in found else row, row + 1)
    return found
