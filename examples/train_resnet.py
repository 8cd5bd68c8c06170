"""Train a small residual network with PyTorch, with all of its arithmetic on the Vulkan device.

    python examples/train_resnet.py [--epochs 3] [--check STEPS]

The data are scikit-learn's 1,797 digits of 8 x 8 pixels, a fifth of them kept for the test. The network is a ResNet of three
blocks with batch normalisation, trained by SGD with momentum on the cross-entropy. It is an ordinary PyTorch program: the
model goes ``to("dmlvk")``, and ``torch.compile(..., backend="dmlvk")`` makes three graphs of a step: forward, backward and
optimiser. Parameters, gradients and momenta stay on the device; images and labels go there, and a loss comes back.

Exits with status 1 if the test accuracy ends below 90 %. With ``--check`` it does so many steps beside PyTorch on the CPU
instead, and prints how far apart the losses and the parameters are after each.
"""

from __future__ import annotations

import argparse
import copy
import sys
import time
from collections.abc import Iterator

import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import Tensor, nn

import dmlvk.torch

BATCH, CHANNELS = 64, 8


class Block(nn.Module):
    """Two convolutions of 3 x 3 beside a shortcut."""

    def __init__(self, inside: int, outside: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(inside, outside, 3, stride, 1, bias=False), nn.BatchNorm2d(outside), nn.ReLU())
        self.second = nn.Sequential(nn.Conv2d(outside, outside, 3, 1, 1, bias=False), nn.BatchNorm2d(outside))
        is_same = stride == 1 and inside == outside
        short = nn.Sequential(nn.Conv2d(inside, outside, 1, stride, bias=False), nn.BatchNorm2d(outside))
        self.short = nn.Identity() if is_same else short

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.second(self.first(x)) + self.short(x))


def network() -> nn.Sequential:
    """The network: images {n, 1, 8, 8} to scores {n, 10}."""
    return nn.Sequential(
        *(nn.Conv2d(1, CHANNELS, 3, 1, 1, bias=False), nn.BatchNorm2d(CHANNELS), nn.ReLU()),
        *(Block(CHANNELS, CHANNELS, 1), Block(CHANNELS, 2 * CHANNELS, 2), Block(2 * CHANNELS, 4 * CHANNELS, 2)),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4 * CHANNELS, 10)),
    )


def load() -> list[Tensor]:
    """Images from 0 to 1 to train with and to test with, and the digits that they show."""
    pixels, labels = load_digits(return_X_y=True)
    images = torch.from_numpy(pixels / 16).float().reshape(-1, 1, 8, 8)
    return list(train_test_split(images, torch.from_numpy(labels), test_size=0.2, stratify=labels, random_state=0))


def batches(images: Tensor, labels: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """All samples in a new order, in whole batches."""
    for part in torch.randperm(len(labels)).split(BATCH):
        if len(part) == BATCH:
            yield images[part], labels[part]


class Trainer:
    """A model with its optimiser."""

    def __init__(self, model: nn.Module, *, compiled: bool) -> None:
        self.model = model
        self.optimiser = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
        self._loss = torch.compile(self._forward, backend=dmlvk.torch.backend) if compiled else self._forward
        self._update = torch.compile(self.optimiser.step, backend=dmlvk.torch.backend) if compiled else self.optimiser.step

    def _forward(self, images: Tensor, labels: Tensor) -> Tensor:
        return nn.functional.cross_entropy(self.model(images), labels)

    def step(self, images: Tensor, labels: Tensor) -> Tensor:
        """One step; returns its loss."""
        device = next(self.model.parameters()).device
        loss = self._loss(images.to(device), labels.to(device))
        self.optimiser.zero_grad()
        loss.backward()
        self._update()
        return loss.detach()


def check(steps: int) -> None:
    """Prints how far apart the losses and the parameters of both are after each step."""
    reference = network()
    trainers = [Trainer(copy.deepcopy(reference).to("dmlvk"), compiled=True), Trainer(reference, compiled=False)]
    images, _, labels, _ = load()
    every = (batch for _ in range(steps) for batch in batches(images, labels))
    for step, batch in zip(range(1, steps + 1), every, strict=False):
        ours, theirs = (trainer.step(*batch).item() for trainer in trainers)
        states = (trainer.model.state_dict().values() for trainer in trainers)
        worst = max(float((own.cpu() - other).abs().max()) for own, other in zip(*states, strict=True))
        print(f"step {step:3}    loss {ours:.6f}, PyTorch's {theirs:.6f}; parameters at most {worst:.1e} apart", flush=True)


def train(epochs: int) -> float:
    """Trains and prints a line an epoch; returns the accuracy on the test digits at the end."""
    images, test_images, labels, test_labels = load()
    trainer = Trainer(network().to("dmlvk"), compiled=True)
    read = torch.compile(trainer.model, backend=dmlvk.torch.backend)
    accuracy = 0.0
    for epoch in range(1, epochs + 1):
        start, trainer.model = time.perf_counter(), trainer.model.train()
        losses = [trainer.step(*batch) for batch in batches(images, labels)]
        mean = sum(loss.item() for loss in losses) / len(losses)
        trainer.model.eval()
        with torch.no_grad():
            accuracy = float((read(test_images.to("dmlvk")).cpu().argmax(1) == test_labels).float().mean())
        seconds = time.perf_counter() - start
        print(f"epoch {epoch:2}    loss {mean:.4f}, test accuracy {accuracy:.2%}, {seconds:.1f} s", flush=True)
    print(dmlvk.torch.report())
    return accuracy


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=3, help="how often to go through the digits")
    parser.add_argument("--check", type=int, metavar="STEPS", help="steps to do beside PyTorch's CPU instead")
    wanted = parser.parse_args()
    torch.manual_seed(0)
    if wanted.check:
        check(wanted.check)
        return 0
    return int(train(wanted.epochs) < 0.9)


if __name__ == "__main__":
    sys.exit(main())
