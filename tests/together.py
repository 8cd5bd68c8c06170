"""One test for many items: for checks so short that pytest's own work for a test of each takes longer than they do."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

import pytest

Item = TypeVar("Item")


def together(
    items: Iterable[Item], name: Callable[[Item], str] = str
) -> Callable[[Callable[[Item], None]], Callable[[], None]]:
    """Makes a test of all items from one of an item. All are tried; each that fails is named, with what it says.

    Args:
        items: The items, one at least.
        name: The name of an item.
    """

    def decorate(test: Callable[[Item], None]) -> Callable[[], None]:
        def of_all() -> None:
            count, failed = 0, []
            for item in items:
                count += 1
                try:
                    test(item)
                except (Exception, pytest.fail.Exception) as error:
                    failed.append(f"{name(item)}: {type(error).__name__}: {error}")
            assert count, "there is nothing to try"
            assert not failed, f"{len(failed)} of {count} fail:\n" + "\n".join(failed)

        of_all.__name__, of_all.__doc__ = test.__name__, test.__doc__
        return of_all

    return decorate
