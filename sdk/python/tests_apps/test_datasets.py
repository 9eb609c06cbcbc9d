"""Hugging Face's datasets on bb://."""

from __future__ import annotations

from typing import Any

import datasets
import pytest

import forebay
from tests.daemon import Daemon


@pytest.fixture
def options(daemon: Daemon) -> dict[str, Any]:
    return {"address": daemon.socket}


def double(row: dict[str, Any]) -> dict[str, Any]:
    return {"n": 2 * row["n"], "text": row["text"] + "!"}


def test_save_and_load(buffer: forebay.Buffer, options: dict[str, Any]) -> None:
    """By four processes, which the datasets package forks. Each writes through a session of its own."""
    rows = {"n": list(range(1000)), "text": [f"row {i}" for i in range(1000)]}
    path = f"bb://{buffer.name}/rows"
    datasets.Dataset.from_dict(rows).save_to_disk(path, num_proc=4, storage_options=options)
    assert sum(e.name.endswith(".arrow") for e in buffer.listdir("rows")) == 4
    again = datasets.load_from_disk(path, storage_options=options)
    assert again["n"] == rows["n"]
    doubled = again.map(double, num_proc=4)
    doubled.save_to_disk(f"{path}2", num_proc=4, storage_options=options)
    got = datasets.load_from_disk(f"{path}2", storage_options=options)
    assert got["n"] == [2 * i for i in range(1000)]
    assert got["text"][999] == "row 999!"
