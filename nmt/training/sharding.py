"""Fully sharded training (Zhao et al. 2023): each process keeps a share of the weights and of what belongs to them.

PyTorch's `fully_shard` keeps the shares: each process has its rows of every weight, and of its gradient, average and
optimizer state. The whole weights exist from the beginning of a step's forward to the end of its backward pass and
during a validation, since loss, search and caches read them outside of any one module's forward pass. The step that is
computed and the checkpoint that is saved are those of `Replicas`, so a run may be continued with or without sharding.

Apart from `nmt.training.distributed`, since its imports take as long as half of PyTorch's.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor

from nmt.data.batching import make_batch
from nmt.data.tokenizer import EOS, UNKNOWN
from nmt.models.base import TranslationModel
from nmt.training.distributed import Processes, Replicas, exchanging
from nmt.training.loss import label_smoothed_loss


class Shards(Replicas):
    """Every process has its share of each weight's first dimension."""

    def __init__(self, model: TranslationModel, processes: Processes) -> None:
        super().__init__(model, processes)
        device = next(model.parameters()).device
        self.sharded = fully_shard(model, mesh=init_device_mesh(device.type, (processes.size,)))
        self.sharded.set_gradient_divide_factor(1.0)  # a sum, since the loss is divided by the tokens of the step
        self.sharded.set_force_sum_reduction_for_comms(True)
        # Some models return a view of their last layer's output, which nothing changes in place.
        warnings.filterwarnings("ignore", message="FSDP2-wrapped module .* returned a view tensor")

    @contextlib.contextmanager
    def summed_gradients(self) -> Iterator[None]:
        with exchanging():
            self.sharded.unshard()
        self._synchronize(False)
        with self.processes.together():
            yield
        # Gradients are summed at the end of a backward pass that all processes take part in, one of weight zero. Two
        # pieces on either side are the least that every weight of every model has a part in.
        self._synchronize(True)
        batch = make_batch([[UNKNOWN, EOS]], [[UNKNOWN, EOS]]).to(next(self.model.parameters()).device)
        sums = label_smoothed_loss(self.model(batch), self.model.output, batch.target_output_BT, 0.0)
        with exchanging():
            (0.0 * sums.loss).backward()

    def _synchronize(self, wanted: bool) -> None:
        self.sharded.set_requires_gradient_sync(wanted)
        self.sharded.set_reshard_after_backward(wanted)

    @contextlib.contextmanager
    def whole_model(self) -> Iterator[None]:
        with exchanging():
            self.sharded.unshard()
        try:
            yield
        finally:
            self.sharded.reshard()

    def kept(self, tensor: Tensor) -> Tensor:
        if not isinstance(tensor, DTensor):
            return tensor.detach()
        with torch.no_grad():
            return tensor.to_local()

    def share(self, whole: Tensor, parameter: Tensor) -> Tensor:
        return self.kept(self._distributed(whole, parameter))

    def whole(self, tensor: Tensor) -> Tensor:
        if not isinstance(tensor, DTensor):
            return tensor.detach()
        with exchanging(), torch.no_grad():
            return tensor.full_tensor()

    def optimizer_state(self, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
        state = optimizer.state_dict()
        whole = {
            number: {name: self.whole(value) for name, value in of.items()} for number, of in state["state"].items()
        }
        return {**state, "state": whole}

    def load_optimizer(self, optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> None:
        parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        shares = {
            number: {  # a count of steps, without dimensions, is the same for all
                name: self._distributed(value, parameters[number]) if value.dim() else value
                for name, value in of.items()
            }
            for number, of in state["state"].items()
        }
        optimizer.load_state_dict({**state, "state": shares})

    @staticmethod
    def _distributed(whole: Tensor, parameter: Tensor) -> Tensor:
        assert isinstance(parameter, DTensor)
        mesh = parameter.device_mesh
        return distribute_tensor(whole.to(parameter.device), mesh, parameter.placements, src_data_rank=None)
