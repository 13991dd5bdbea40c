#!/usr/bin/env python3
"""Trains a small synthetic transformer on a GPU, with every phase in a span: the Rust examples in PyTorch.

Sizes, optimizers and order are those of the preset `small` of examples/workload, so the collector finds the same.
Exit status: 0 done, 1 failed, 2 bad usage or no GPU, 3 out of memory.
"""

import argparse
import math
import os
import sys
from typing import List

from phasescope_export import identity, tracer_provider
from phasescope_phases import Phases, TorchCuda

try:
    import torch
    from torch import Tensor, nn
    from torch.nn import functional
except ImportError as error:
    print(f"train: expected PyTorch with CUDA, found none: {error}", file=sys.stderr)
    sys.exit(2)

LAYERS, HIDDEN, HEADS, FEEDFORWARD, SEQUENCE = 4, 384, 6, 1536, 256
VOCABULARY, CLASSES = 4096, 16
CASES = ("alpha", "beta", "gamma", "control")


class Block(nn.Module):
    """A pre-norm block: attention, then feed-forward, each beside a residual path."""

    def __init__(self) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(HIDDEN)
        self.query_key_value = nn.Linear(HIDDEN, 3 * HIDDEN, bias=False)
        self.attention_out = nn.Linear(HIDDEN, HIDDEN, bias=False)
        self.feedforward_norm = nn.LayerNorm(HIDDEN)
        self.feedforward_in = nn.Linear(HIDDEN, FEEDFORWARD, bias=False)
        self.feedforward_out = nn.Linear(FEEDFORWARD, HIDDEN, bias=False)

    def forward(self, hidden: Tensor) -> Tensor:
        hidden = hidden + self.attention(self.attention_norm(hidden))
        wide = self.feedforward_in(self.feedforward_norm(hidden))
        return hidden + self.feedforward_out(functional.gelu(wide, approximate="tanh"))

    def attention(self, hidden: Tensor) -> Tensor:
        """Sequence first inside, as the Rust examples have it, so that the same tensors are kept for backward."""
        samples = hidden.shape[0]
        projected = self.query_key_value(hidden.transpose(0, 1)).view(SEQUENCE, samples, 3, HIDDEN)
        projected = projected.permute(2, 0, 1, 3).contiguous()

        def head(place: int) -> Tensor:
            rows = projected[place].view(SEQUENCE, samples * HEADS, HIDDEN // HEADS).transpose(0, 1)
            return rows.view(samples, HEADS, SEQUENCE, HIDDEN // HEADS)

        attended = functional.scaled_dot_product_attention(head(0), head(1), head(2))
        merged = attended.permute(2, 0, 1, 3).contiguous().view(SEQUENCE * samples, HIDDEN)
        return self.attention_out(merged).view(SEQUENCE, samples, HIDDEN).transpose(0, 1)


class Transformer(nn.Module):
    """Classifies a sequence by its first token."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, HIDDEN)
        self.positions = nn.Parameter(torch.empty(SEQUENCE, HIDDEN).normal_(0.0, 0.02))
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.norm = nn.LayerNorm(HIDDEN)
        self.head = nn.Linear(HIDDEN, CLASSES, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        hidden = self.blocks(self.tokens(tokens) + self.positions)
        return self.head(self.norm(hidden[:, 0]))


def train(phases: Phases, case: str, steps: int, batch: int) -> float:
    torch.manual_seed(1234)
    with phases.phase("model"), torch.device(phases.device_name):
        model = Transformer()
    phases.parameter_bytes = sum(parameter.numel() * parameter.element_size() for parameter in model.parameters())
    phases.batch_size = batch
    with phases.phase("optimizer_create"):
        # One parameter at a time, as libtorch's own optimizers do it: all at once takes memory for all.
        if case == "beta":
            optimizer: torch.optim.Optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, foreach=False)
        else:
            optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, foreach=False)
    elements = batch * SEQUENCE
    with phases.phase("input", input_elements=elements), torch.device(phases.device_name):
        tokens = torch.randint(VOCABULARY, (batch, SEQUENCE))
        labels = torch.randint(CLASSES, (batch,))

    def forward() -> Tensor:
        return functional.cross_entropy(model(tokens), labels)

    kept: List[Tensor] = []

    def step() -> float:
        # A function, so that nothing but what is kept lives until the next step.
        with phases.phase("forward", input_elements=elements):
            loss = forward()
        with phases.phase("backward"):
            loss.backward(retain_graph=case == "gamma")
        value = loss.item()
        if case == "gamma":
            # Its fault: it keeps the loss itself, and with it the graph.
            kept.append(loss)
        with phases.phase("optimizer_step"):
            optimizer.step()
        with phases.phase("clear_gradients"):
            optimizer.zero_grad()
        return value

    value = math.nan
    for number in range(steps):
        with phases.step(number):
            value = step()
        if not math.isfinite(value):
            raise ValueError(f"expected a finite loss, found {value} in step {number}")
    return value


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--case", choices=CASES, default="control")
    parser.add_argument("--steps", type=int, default=6, help="growth is judged from 6 on")
    parser.add_argument("--batch", type=int, help="samples in the batch [default: 2, the control's 1]")
    options = parser.parse_args()
    batch = options.batch if options.batch is not None else 1 if options.case == "control" else 2
    if options.steps < 1 or batch < 1:
        parser.error("expected --steps and --batch from 1 on")
    local_rank = os.environ.get("LOCAL_RANK", "")
    index = int(local_rank) if local_rank.isdecimal() else 0
    found = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if index >= found:
        print(f"train: expected a GPU cuda:{index}, PyTorch {torch.__version__} finds {found} GPUs", file=sys.stderr)
        return 2
    source = TorchCuda(index)
    me = identity()
    provider = tracer_provider(me)
    phases = Phases(provider.get_tracer("phasescope"), source, *me, device_name=source.device_name)
    try:
        with phases.run():
            loss = train(phases, options.case, options.steps, batch)
    except torch.cuda.OutOfMemoryError as error:
        print(f"train: {error}; try a smaller --batch than {batch}", file=sys.stderr)
        return 3
    except (RuntimeError, ValueError) as error:
        print(f"train: {error}", file=sys.stderr)
        return 1
    finally:
        provider.shutdown()
    print(f"{options.case}: {options.steps} steps on {source.device_name}, run {me.run_id}, final loss {loss:.3f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
