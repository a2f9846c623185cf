"""Rows and their one operation, select; embeddings that are one matrix or several; the cache as a value."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from nmt.data.tokenizer import PAD
from nmt.models.base import DecoderState, Embeddings, OutputProjection, Rows
from nmt.models.cache import ROOM, KeyValueCache


@dataclass(frozen=True)
class Part(Rows):
    values: Tensor


@dataclass(frozen=True)
class Whole(DecoderState):
    plain: Tensor
    several: tuple[Tensor, ...]
    nested: tuple[tuple[Tensor, Tensor], ...]
    parts: tuple[Part, ...]
    part: Part
    absent: Tensor | None
    number: int


def whole(rows: int) -> Whole:
    """Tensors of different shapes whose every entry is the number of its row."""

    def tensor(*shape: int) -> Tensor:
        return torch.arange(rows).view(-1, *(1 for _ in shape)).expand(rows, *shape).clone()

    return Whole(
        tensor(), (tensor(2), tensor(1, 3)), ((tensor(2), tensor(4)),), (Part(tensor(5)),), Part(tensor(2, 2)), None, 7
    )


def tensors(value: object) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, tuple):
        return [tensor for part in value for tensor in tensors(part)]
    if dataclasses.is_dataclass(value):
        return [tensor for field in dataclasses.fields(value) for tensor in tensors(getattr(value, field.name))]
    return []


@given(st.integers(1, 5).flatmap(lambda rows: st.tuples(st.just(rows), st.lists(st.integers(0, rows - 1), max_size=9))))
@settings(deadline=None, max_examples=50)
def test_select_takes_the_same_rows_of_everything(case: tuple[int, list[int]]) -> None:
    rows, index = case
    before = whole(rows)
    chosen = before.select(torch.tensor(index, dtype=torch.long))
    assert type(chosen) is Whole
    assert len(tensors(chosen)) == len(tensors(before)) == 7
    for tensor, original in zip(tensors(chosen), tensors(before), strict=True):
        assert tensor.shape == (len(index), *original.shape[1:])
        assert torch.equal(
            tensor, torch.tensor(index, dtype=torch.long).view(-1, *[1] * (original.dim() - 1)) + 0 * tensor
        )
        assert torch.equal(original, original[torch.arange(rows)])
    assert chosen.absent is None
    assert chosen.number == 7


def test_select_leaves_the_value_it_was_asked_of() -> None:
    before = whole(3)
    before.select(torch.tensor([2, 2]))
    assert before.plain.tolist() == [0, 1, 2]
    with pytest.raises(dataclasses.FrozenInstanceError):
        before.number = 8  # type: ignore[misc]


def test_selecting_twice_is_selecting_the_selected() -> None:
    first, second = torch.tensor([2, 0, 2, 1]), torch.tensor([3, 0, 0])
    twice, once = whole(3).select(first).select(second), whole(3).select(first[second])
    for a, b in zip(tensors(twice), tensors(once), strict=True):
        assert torch.equal(a, b)


# Cache -----------------------------------------------------------------------------------------------------------


def test_a_cache_grows_by_a_new_value_and_leaves_the_old_one() -> None:
    empty = KeyValueCache()
    one = empty.append(torch.ones(2, 3, 1, 4), 2 * torch.ones(2, 3, 1, 4))
    left, right = (one.append(k * torch.ones(2, 3, 1, 4), torch.zeros(2, 3, 1, 4)) for k in (5, 6))
    assert [cache.length for cache in (empty, one, left, right)] == [0, 1, 2, 2]
    assert left.keys[0][0, 0, :, 0].tolist() == [1, 5]
    assert right.keys[0][0, 0, :, 0].tolist() == [1, 6]
    assert left.keys[1][0, 0, :, 0].tolist() == [2, 0]
    assert one.keys[0].shape == (2, 3, 1, 4)
    with pytest.raises(AssertionError):
        _ = empty.keys


def test_a_cache_is_selected_like_everything_else() -> None:
    keys = torch.arange(3).view(3, 1, 1, 1).expand(3, 2, 1, 5)
    cache = KeyValueCache().append(keys, -keys).append(10 * keys, -10 * keys)
    chosen = cache.select(torch.tensor([2, 2, 0, 1]))
    assert chosen.keys[0][:, 0, 0, 0].tolist() == [2, 2, 0, 1]
    assert chosen.keys[1][:, 1, 1, 4].tolist() == [-20, -20, 0, -10]
    again = chosen.select(torch.tensor([3, 0])).append(100 * keys[:2], -100 * keys[:2])
    assert again.keys[0][:, 1, :, 2].tolist() == [[1, 10, 0], [2, 20, 100]]
    assert cache.keys[0][:, 0, 0, 0].tolist() == [0, 1, 2]
    assert KeyValueCache().select(torch.tensor([0, 0])).length == 0


def test_a_position_is_written_where_there_is_room_and_nobody_else_has_written() -> None:
    """Several caches that go on from one, in any order, with and without a choice of rows: each has its own history."""

    def column(number: float, rows: int = 2) -> Tensor:
        return torch.full((rows, 1, 1, 1), number)

    start = KeyValueCache().append(column(1), -column(1))
    first = start.append(column(2), -column(2))
    assert first.store is start.store
    assert first.keys[0].data_ptr() == start.keys[0].data_ptr()
    second = start.append(column(3), -column(3))
    assert second.store is not start.store, "there, `first` has written"
    longer = first.append(column(4), -column(4))
    chosen = first.select(torch.tensor([1, 0, 1])).append(column(5, 3), -column(5, 3))
    assert chosen.append(column(6, 3), -column(6, 3)).keys[0][2].flatten().tolist() == [1, 2, 5, 6]
    for cache, expected in ((start, [1]), (first, [1, 2]), (second, [1, 3]), (longer, [1, 2, 4]), (chosen, [1, 2, 5])):
        keys, values = cache.keys
        assert torch.equal(keys, -values)
        assert all(row.flatten().tolist() == expected for row in keys)
    for number in range(ROOM):  # and where the room ends
        longer = longer.append(column(number), -column(number))
    assert longer.keys[0][1].flatten().tolist() == [1, 2, 4, *range(ROOM)]


def test_a_cache_has_its_gradient() -> None:
    keys = torch.ones(2, 1, 1, 3, requires_grad=True)
    with torch.no_grad():
        cache = KeyValueCache().append(5 * keys, keys)
    cache = cache.append(keys, keys).select(torch.tensor([0, 0])).append(2 * keys, keys)
    assert cache.keys[0][0, 0, :, 0].tolist() == [5, 1, 2]
    cache.keys[0].sum().backward()
    assert keys.grad is not None
    assert keys.grad.flatten(1)[:, 0].tolist() == [2 + 2, 2]


# Embeddings and projection ---------------------------------------------------------------------------------------


def test_tied_embeddings_are_one_matrix_with_the_projection() -> None:
    tied = Embeddings(9, 9, 4, tied=True)
    projection = tied.projection(4, 9)
    assert tied.source.weight is tied.target.weight is projection.weight
    assert projection.bias.shape == (9,)
    untied = Embeddings(9, 7, 4, tied=False)
    assert untied.source.weight.shape == (9, 4)
    assert untied.target.weight.shape == (7, 4)
    assert untied.projection(6, 7).weight.shape == (7, 6)
    with pytest.raises(ValueError, match="joint"):
        Embeddings(9, 7, 4, tied=True)


def test_padding_embeds_to_zero_and_learns_nothing() -> None:
    table = Embeddings(9, 9, 4, tied=True).source
    embedded = table(torch.tensor([[5, PAD, PAD]]))
    assert torch.all(embedded[0, 1:] == 0)
    embedded.sum().backward()
    assert torch.all(table.weight.grad[PAD] == 0)
    assert torch.all(table.weight.grad[5] == 2)  # √4


def test_first_embeddings_have_unit_length_on_average() -> None:
    torch.manual_seed(1)
    for weight in (Embeddings(500, 500, 64, tied=True).source.weight[1:], OutputProjection(64, 500, None).weight):
        assert weight.square().sum(dim=1).mean().item() == pytest.approx(1, abs=0.05)


def test_embedded_pieces_have_unit_variance_at_first() -> None:
    torch.manual_seed(1)
    assert Embeddings(500, 500, 64, tied=True).source(torch.arange(1, 500)).var().item() == pytest.approx(1, abs=0.05)


def test_the_projection_is_linear() -> None:
    projection = OutputProjection(2, 3, torch.tensor([[1.0, 0.0], [0.0, 2.0], [1.0, 1.0]]))
    with torch.no_grad():
        projection.bias.copy_(torch.tensor([0.0, 10.0, 20.0]))
    assert projection(torch.tensor([[[3.0, 4.0]]])).tolist() == [[[3.0, 18.0, 27.0]]]
