"""Architectures of torchvision and transformers through ``torch.compile(backend="dmlvk")``: inference and a training step.

    python tools/torch_architectures.py --out benchmarks.json            # all, resumes where it was stopped
    python tools/torch_architectures.py --only "resnet*" --out rows.json
    python tools/torch_architectures.py --full --jobs 16 --seconds 300 --out rows.json   # on a GPU, published sizes

Weights are random and sizes small, so that lavapipe takes a minute for one. Each runs in a process of its own. What it gives
is compared with float32 and float64 on the CPU: outputs, and after a step all gradients and the statistics that batch
normalization keeps. Nothing may run elsewhere: a converter that is missing is an error, and graphs are counted.

With ``--full`` sizes are those that the networks were published with, in batches of two; of language models that were
published with more than some 0.6 billion parameters the widths are, with fewer layers. There float32, without TF32, and
float64 are CUDA's.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import fnmatch
import importlib
import json
import math
import multiprocessing
import multiprocessing.connection
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import torch

SEED: Final = 0
TOLERANCE: Final = 1e-3
"""The largest difference, relative to the largest number of a tensor, of results that agree."""
_SLACK: Final = 4.0
"""How many times as far from float64 as PyTorch's float32 a result may be, where that is more than the tolerance."""
_MOVES: Final = 16
"""How many runs of float32 with moved numbers say how far it is, where one does not."""
_SLACK_MOVED: Final = 1.5
"""How many times as far as the farthest of those a result may be. With four, 31 of 40 gradients in mnasnet1_0 may be
a tenth too large unseen, with this 3; with one, 4 of 8 steps that PyTorch makes of numbers moved otherwise are wrong."""
_WORDS: Final = 16
_VOCABULARY: Final = 128


# -- the architectures


_SIDES: Final = {"inception_v3": 96, "maxvit_t": 224, "alexnet": 64, "googlenet": 64}
_PICTURES: Final = (
    *("alexnet", "vgg11", "vgg11_bn", "resnet18", "resnet34", "resnet50", "resnext50_32x4d", "wide_resnet50_2"),
    *("densenet121", "densenet169", "squeezenet1_0", "squeezenet1_1", "inception_v3", "googlenet"),
    *("shufflenet_v2_x0_5", "shufflenet_v2_x1_0", "mobilenet_v2", "mobilenet_v3_small", "mobilenet_v3_large"),
    *("mnasnet0_5", "mnasnet1_0", "efficientnet_b0", "efficientnet_b1", "efficientnet_v2_s", "regnet_x_400mf"),
    *("regnet_x_800mf", "regnet_y_400mf", "regnet_y_800mf", "convnext_tiny", "vit_b_16", "vit_b_32", "swin_t"),
    *("swin_v2_t", "maxvit_t"),
)
_OTHERS: Final = {
    "fcn_resnet50": (2, 3, 64, 64),
    "deeplabv3_mobilenet_v3_large": (2, 3, 64, 64),
    "lraspp_mobilenet_v3_large": (2, 3, 64, 64),
    "r3d_18": (2, 3, 4, 32, 32),
    "mc3_18": (2, 3, 4, 32, 32),
    "r2plus1d_18": (2, 3, 4, 32, 32),
}


_FULL_OTHERS: Final = {
    "fcn_resnet50": (2, 3, 520, 520),
    "deeplabv3_mobilenet_v3_large": (2, 3, 520, 520),
    "lraspp_mobilenet_v3_large": (2, 3, 520, 520),
    "r3d_18": (2, 3, 16, 112, 112),
    "mc3_18": (2, 3, 16, 112, 112),
    "r2plus1d_18": (2, 3, 16, 112, 112),
}


def _full_vision(name: str) -> tuple[Any, dict[str, torch.Tensor]]:
    import torchvision

    options: dict[str, Any] = {"weights": None}
    if name in ("googlenet", "inception_v3"):
        options.update(init_weights=False, aux_logits=False)
    if name in _OTHERS and len(_OTHERS[name]) == 4:
        options["weights_backbone"] = None
    side = 299 if name == "inception_v3" else 224
    return torchvision.models.get_model(name, **options), {"x": torch.rand(_FULL_OTHERS.get(name, (2, 3, side, side)))}


def _vision(name: str) -> tuple[Any, dict[str, torch.Tensor]]:
    import torchvision

    options: dict[str, Any] = {"weights": None, "num_classes": 10}
    if name in ("googlenet", "inception_v3"):
        options.update(init_weights=False, aux_logits=False)
    if name in _OTHERS and len(_OTHERS[name]) == 4:
        options["weights_backbone"] = None
    side = _SIDES.get(name, 64)
    if name.startswith("vit"):
        options["image_size"] = side
    model = torchvision.models.get_model(name, **options)
    return model, {"x": torch.rand(_OTHERS.get(name, (2, 3, side, side)))}


def _ids() -> dict[str, torch.Tensor]:
    return {"input_ids": torch.randint(3, _VOCABULARY, (2, _WORDS))}


def _words() -> dict[str, torch.Tensor]:
    return {**_ids(), "attention_mask": torch.ones(2, _WORDS, dtype=torch.int64)}


def _pairs() -> dict[str, torch.Tensor]:
    return {**_words(), "decoder_input_ids": torch.randint(3, _VOCABULARY, (2, 8))}


def _picture() -> dict[str, torch.Tensor]:
    return {"pixel_values": torch.rand(2, 3, 64, 64) * 2 - 1}


_ENDS: Final = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
_SMALL: Final = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 128,
    "vocab_size": _VOCABULARY,
    **_ENDS,
}
_GROUPED: Final = {**_SMALL, "num_key_value_heads": 2, "head_dim": 16}
_GPT: Final = {"n_embd": 64, "n_layer": 2, "n_head": 4, "vocab_size": _VOCABULARY, **_ENDS}
_TRANSLATOR: Final = {
    "d_model": 64,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 128,
    "decoder_ffn_dim": 128,
    "vocab_size": _VOCABULARY,
    "decoder_start_token_id": 1,
    **_ENDS,
}
_T5: Final = {"d_model": 64, "d_kv": 16, "d_ff": 128, "num_layers": 2, "num_heads": 4, "vocab_size": _VOCABULARY}
_SEEN: Final = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 128,
    "image_size": 64,
}
_TRANSFORMERS: Final[Mapping[str, tuple[Mapping[str, Any], Callable[[], dict[str, torch.Tensor]]]]] = {
    "AlbertModel": ({**_SMALL, "embedding_size": 32}, _words),
    "BertModel": (_SMALL, _words),
    "CamembertModel": (_SMALL, _words),
    "ConvBertModel": (_SMALL, _words),
    "DebertaV2Model": (_SMALL, _words),
    "DistilBertModel": ({"dim": 64, "hidden_dim": 128, "n_layers": 2, "n_heads": 4, "vocab_size": _VOCABULARY}, _words),
    "ElectraModel": ({**_SMALL, "embedding_size": 32}, _words),
    "ErnieModel": (_SMALL, _words),
    "MPNetModel": (_SMALL, _words),
    "MegatronBertModel": (_SMALL, _words),
    "MobileBertModel": ({"num_hidden_layers": 2, "vocab_size": _VOCABULARY}, _words),
    "ModernBertModel": ({**_SMALL, "cls_token_id": 1, "sep_token_id": 2}, _words),
    "RemBertModel": ({**_SMALL, "input_embedding_size": 32, "output_embedding_size": 32}, _words),
    "RoFormerModel": (_SMALL, _words),
    "RobertaModel": (_SMALL, _words),
    "SqueezeBertModel": ({**_SMALL, "embedding_size": 64}, _words),
    "BioGptForCausalLM": (_SMALL, _words),
    "BloomForCausalLM": ({"hidden_size": 64, "n_layer": 2, "n_head": 4, "vocab_size": _VOCABULARY, **_ENDS}, _words),
    "FalconForCausalLM": (_SMALL, _words),
    "GPT2LMHeadModel": (_GPT, _words),
    "GPTJForCausalLM": ({**_GPT, "rotary_dim": 8}, _words),
    "GPTNeoXForCausalLM": (_SMALL, _words),
    "Gemma2ForCausalLM": (_GROUPED, _words),
    "GemmaForCausalLM": (_GROUPED, _words),
    "GraniteForCausalLM": (_GROUPED, _words),
    "LlamaForCausalLM": (_GROUPED, _words),
    "MistralForCausalLM": (_GROUPED, _words),
    "OPTForCausalLM": ({**_SMALL, "ffn_dim": 128, "word_embed_proj_dim": 64}, _words),
    "Olmo2ForCausalLM": (_GROUPED, _words),
    "Phi3ForCausalLM": (_GROUPED, _words),
    "PhiForCausalLM": (_SMALL, _words),
    "Qwen2ForCausalLM": (_GROUPED, _words),
    "Qwen3ForCausalLM": (_GROUPED, _words),
    "StableLmForCausalLM": (_GROUPED, _words),
    "Starcoder2ForCausalLM": (_GROUPED, _words),
    "BartModel": (_TRANSLATOR, _pairs),
    "MBartModel": (_TRANSLATOR, _pairs),
    "PegasusModel": (_TRANSLATOR, _pairs),
    "T5Model": ({**_T5, "decoder_start_token_id": 0}, _pairs),
    "T5EncoderModel": (_T5, _words),
    "ViTModel": (_SEEN, _picture),
    "DeiTModel": (_SEEN, _picture),
    "Dinov2Model": ({**_SEEN, "patch_size": 16}, _picture),
    "ConvNextModel": ({"hidden_sizes": [16, 24, 32, 40], "depths": [1, 1, 1, 1]}, _picture),
    "ResNetModel": ({"hidden_sizes": [16, 24, 32, 40], "depths": [1, 1, 1, 1], "embedding_size": 16}, _picture),
    "SwinModel": ({"embed_dim": 16, "depths": [1, 1], "num_heads": [2, 2], "image_size": 64, "window_size": 4}, _picture),
}


def _transformer(name: str) -> tuple[Any, dict[str, torch.Tensor]]:
    import transformers

    options, inputs = _TRANSFORMERS[name]
    model_class = getattr(transformers, name)
    config = model_class.config_class(**options)
    config.use_cache = False
    return model_class(config), inputs()


def _grouped(width: int, layers: int, heads: int, shared: int, inner: int, **rest: int) -> dict[str, int]:
    """The options of a language model whose heads share keys."""
    return {
        "hidden_size": width,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": shared,
        "intermediate_size": inner,
        **rest,
    }


_BASE: Final = {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072}
_FULL: Final[Mapping[str, Mapping[str, Any]]] = {
    "AlbertModel": {**_BASE, "embedding_size": 128},
    "DebertaV2Model": _BASE,
    "RemBertModel": {"num_hidden_layers": 8},
    "BloomForCausalLM": {"hidden_size": 1024, "n_layer": 24, "n_head": 16},
    "FalconForCausalLM": {"hidden_size": 2048, "num_hidden_layers": 4, "num_attention_heads": 32},
    "GPTJForCausalLM": {"n_layer": 2},
    "GPTNeoXForCausalLM": _grouped(1024, 24, 16, 16, 4096),
    "Gemma2ForCausalLM": _grouped(2304, 2, 8, 4, 9216, head_dim=256),
    "GemmaForCausalLM": _grouped(2048, 2, 8, 1, 16384, head_dim=256),
    "GraniteForCausalLM": _grouped(2048, 4, 32, 8, 8192, vocab_size=49155),
    "LlamaForCausalLM": _grouped(2048, 4, 32, 8, 8192, head_dim=64, vocab_size=128256),
    "MistralForCausalLM": _grouped(4096, 2, 32, 8, 14336),
    "Olmo2ForCausalLM": _grouped(2048, 4, 16, 16, 8192),
    "Phi3ForCausalLM": _grouped(3072, 2, 32, 32, 8192),
    "PhiForCausalLM": _grouped(2048, 4, 32, 32, 8192),
    "Qwen2ForCausalLM": _grouped(896, 24, 14, 2, 4864),
    "Qwen3ForCausalLM": _grouped(1024, 28, 16, 8, 3072, head_dim=128),
    "StableLmForCausalLM": _grouped(2048, 4, 32, 32, 5632),
    "Starcoder2ForCausalLM": _grouped(3072, 2, 24, 2, 12288),
    "BartModel": {
        "encoder_layers": 6,
        "decoder_layers": 6,
        "d_model": 768,
        "encoder_ffn_dim": 3072,
        "decoder_ffn_dim": 3072,
    },
}
"""What is not the default of a model's configuration, which is of a published size."""
_FULL_WORDS: Final = 128


def _full_transformer(name: str) -> tuple[Any, dict[str, torch.Tensor]]:
    import transformers

    model_class = getattr(transformers, name)
    config = model_class.config_class(**_FULL.get(name, {}))
    config.use_cache = False
    if name in ("T5Model", "BartModel", "MBartModel", "PegasusModel"):
        config.decoder_start_token_id = 0
    model = model_class(config)
    if _TRANSFORMERS[name][1] is _picture:
        return model, {"pixel_values": torch.rand(2, 3, 224, 224) * 2 - 1}
    words = {"input_ids": torch.randint(3, 1000, (2, _FULL_WORDS))}
    words["attention_mask"] = torch.ones(2, _FULL_WORDS, dtype=torch.int64)
    if _TRANSFORMERS[name][1] is _pairs:
        words["decoder_input_ids"] = torch.randint(3, 1000, (2, 32))
    return model, words


def full_architectures() -> dict[str, Callable[[], tuple[Any, dict[str, torch.Tensor]]]]:
    """As ``architectures``, in published sizes."""
    found = {name: partial(_full_vision, name) for name in (*_PICTURES, *_OTHERS)}
    return {**found, **{name: partial(_full_transformer, name) for name in _TRANSFORMERS}}


def architectures() -> dict[str, Callable[[], tuple[Any, dict[str, torch.Tensor]]]]:
    """Makes each architecture and its inputs, by name."""
    found = {name: partial(_vision, name) for name in (*_PICTURES, *_OTHERS)}
    return {**found, **{name: partial(_transformer, name) for name in _TRANSFORMERS}}


# -- what is compared


def _tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value] if value.is_floating_point() else []
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ()
    return [tensor for part in parts for tensor in _tensors(part)]


class Flat(torch.nn.Module):  # type: ignore[misc]  # PyTorch's types are not followed
    """A model that returns a list of tensors."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, **inputs: torch.Tensor) -> list[torch.Tensor]:
        """The tensors of numbers that the model returns, in its order."""
        if list(inputs) == ["x"]:
            return _tensors(self.model(inputs["x"]))
        return _tensors(self.model(**inputs))


def without_chance(model: torch.nn.Module) -> None:
    """Leaves out what is random in training: no two runs could be compared."""
    for part in model.modules():
        for name in ("p", "dropout", "attention_dropout", "dropout_p", "drop_prob", "hidden_dropout", "layerdrop"):
            if isinstance(getattr(part, name, None), float):
                setattr(part, name, 0.0)


def distance(found: torch.Tensor, exact: torch.Tensor) -> float:
    """How far a result is from float64, relative to the largest number of it."""
    if found.shape != exact.shape:
        return float("inf")
    if not found.numel():
        return 0.0
    far = float((found.detach().double() - exact).abs().max()) / max(float(exact.abs().max()), 1e-12)
    return far if far == far else float("inf")


def moved(tensor: torch.Tensor, seed: int) -> torch.Tensor:
    """A tensor of float32 each of whose elements is one unit in the last place more or less, or as it was."""
    chance = torch.Generator(tensor.device).manual_seed(seed)
    turn = torch.randint(-1, 2, tensor.shape, generator=chance, device=tensor.device, dtype=torch.int8)
    return tensor * (1 + turn.float() * 2.0**-23)


def moved_step(model: torch.nn.Module, inputs: Mapping[str, torch.Tensor], seed: int) -> Any:
    """What a step of PyTorch's leaves, of weights and inputs that are moved."""
    own = copy.deepcopy(model)
    with torch.no_grad():
        for item in own.parameters():
            item.copy_(moved(item, seed))
    return _stepped(
        own, own, {name: moved(item, seed) if item.is_floating_point() else item for name, item in inputs.items()}
    )


def _loss(outputs: list[torch.Tensor]) -> torch.Tensor:
    return torch.stack([(output * output).mean() + output.mean() for output in outputs]).sum()


def _stepped(run: Callable[..., list[torch.Tensor]], model: torch.nn.Module, inputs: Mapping[str, torch.Tensor]) -> Any:
    """What a step leaves: outputs, gradients and statistics."""
    outputs = run(**inputs)
    _loss(outputs).backward()
    gradients = [item.grad for item in model.parameters() if item.grad is not None]
    return [*outputs, *gradients, *(item for item in model.buffers() if item.is_floating_point())]


def judged(
    found: Sequence[torch.Tensor],
    near: Sequence[float],
    exact: Sequence[torch.Tensor],
    others: Iterable[Sequence[float]] = (),
) -> dict[str, Any]:
    """A verdict: each tensor is within the tolerance of float64, or about as far from it as float32 is.

    Args:
        found: What is judged.
        near: How far PyTorch's float32 is from float64, for each tensor.
        exact: PyTorch's float64.
        others: How far PyTorch's float32 of moved numbers is, each asked for only where all before leave the verdict wrong.
            Where a rounding decides on which side of 0 a number is, one run of float32 says little about its distance.
    """
    if len(found) != len(near):
        return {"state": "wrong", "why": f"{len(found)} results instead of {len(near)}"}
    ours = [*map(distance, found, exact)]
    bounds = [_SLACK * far for far in near]
    made = _verdict(ours, bounds)
    if made["state"] == "right":
        return made
    for count, other in enumerate(others, 1):
        bounds = [max(bound, _SLACK_MOVED * far) for bound, far in zip(bounds, other, strict=True)]
        made = {**_verdict(ours, bounds), "moved": count}
        if made["state"] == "right":
            break
    return made


def distances(found: Sequence[torch.Tensor], exact: Sequence[torch.Tensor]) -> list[float]:
    """How far each result is from float64."""
    return [distance(*pair) for pair in zip(found, exact, strict=True)]


def _verdict(ours: Sequence[float], bounds: Sequence[float]) -> dict[str, Any]:
    worst = max((far for far, bound in zip(ours, bounds, strict=True) if far > bound), default=0.0)
    return {"state": "right" if worst <= TOLERANCE else "wrong", "difference": float(f"{worst:.3g}")}


def _compiled(model: torch.nn.Module) -> Callable[..., list[torch.Tensor]]:
    import dmlvk.torch

    run: Callable[..., list[torch.Tensor]] = torch.compile(model, backend=dmlvk.torch.backend)
    return run


def _counted(model: torch.nn.Module, inputs: Mapping[str, torch.Tensor]) -> int:
    """Graphs that TorchDynamo makes of a model: 1 unless Python between them has to run."""
    return int(torch._dynamo.explain(model)(**inputs).graph_count)


def tried(name: str, kind: str) -> dict[str, Any]:
    """A row: inference or a training step of an architecture."""
    torch.manual_seed(SEED)
    model, inputs = architectures()[name]()
    model = Flat(model)
    without_chance(model)
    model.train(kind == "training")
    wide = copy.deepcopy(model).double()
    narrow = copy.deepcopy(model)
    doubles = {key: item.double() if item.is_floating_point() else item for key, item in inputs.items()}
    start = time.perf_counter()
    if kind == "training":
        first = copy.deepcopy(model)
        exact = _stepped(wide, wide, doubles)
        near = distances(_stepped(narrow, narrow, inputs), exact)
        others = (distances(moved_step(first, inputs, seed), exact) for seed in range(1, _MOVES + 1))
        made = judged(_stepped(_compiled(model), model, inputs), near, exact, others)
    else:
        with torch.no_grad():
            exact = wide(**doubles)
            made = judged(_compiled(model)(**inputs), distances(narrow(**inputs), exact), exact)
    made["seconds"] = round(time.perf_counter() - start, 1)
    torch.compiler.reset()
    with torch.no_grad():
        made["graphs"] = _counted(narrow, inputs)
    return made


def tried_full(name: str, kind: str) -> dict[str, Any]:
    """A row of an architecture in its published size: on the device beside CUDA, or the processor where there is none.

    All that CUDA computes comes before the import of our package, from which on PyTorch runs no backward pass there. Without
    CUDA the first backward pass comes after it.
    """
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    place = "cuda" if torch.cuda.is_available() else "cpu"
    if place == "cpu":
        importlib.import_module("dmlvk.torch")
    torch.manual_seed(SEED)
    with torch.device(place):
        model, inputs = full_architectures()[name]()
    model = Flat(model)
    without_chance(model)
    model.train(kind == "training")
    own = copy.deepcopy(model).cpu()

    def results(run: Callable[..., list[torch.Tensor]], of: torch.nn.Module, given: Mapping[str, torch.Tensor]) -> Any:
        if kind == "training":
            return [item.detach() for item in _stepped(run, of, given)]
        with torch.no_grad():
            return run(**given)

    wide = copy.deepcopy(model).double()
    exact = results(wide, wide, {key: item.double() if item.is_floating_point() else item for key, item in inputs.items()})
    del wide
    first = copy.deepcopy(model)
    near = distances(results(model, model, inputs), exact)
    del model
    moves = range(1, _MOVES + 1) if kind == "training" else ()
    others = [distances(moved_step(first, inputs, seed), exact) for seed in moves]
    del first
    if place == "cuda":
        torch.cuda.empty_cache()  # the rest of the memory is for the device, and for the processes beside this one
    import dmlvk.torch

    start = time.perf_counter()
    own = own.to("dmlvk")
    found = results(_compiled(own), own, {key: item.cpu().to("dmlvk") for key, item in inputs.items()})
    found = [item.cpu() for item in found]
    seconds = round(time.perf_counter() - start, 1)
    made = judged([item.to(place) for item in found], near, exact, others)
    report = dmlvk.torch.report()
    made.update(
        seconds=seconds, device=dmlvk.default_device().info.name, beside=place, breaks=sum(report.graph_breaks.values())
    )
    made["graphs"] = sum(graph.kind in ("inference", "forward") for graph in report.graphs)
    made["parameters"] = sum(item.numel() for item in own.parameters())
    return made


# -- runs


def define_missing() -> None:
    """Declares what torchvision registers shapes for, where its extension is not of this PyTorch and cannot be loaded."""
    try:
        import torchvision  # noqa: F401
    except RuntimeError:
        for name, types in (("nms", "Tensor dets, Tensor scores, float t"), ("qnms", "Tensor dets, Tensor scores, float t")):
            with contextlib.suppress(RuntimeError):
                torch.library.define(f"torchvision::{name}", f"({types}) -> Tensor")


def _work(name: str, kind: str, is_full: bool, pipe: Any) -> None:
    torch.set_num_threads(1)
    define_missing()
    try:
        pipe.send((tried_full if is_full else tried)(name, kind))
    except BaseException as error:
        cause: BaseException = getattr(error, "inner_exception", error)
        refused = type(cause).__name__ in ("UnsupportedError", "BackendCompilerFailed")
        where = traceback.extract_tb(cause.__traceback__)
        place = f"{Path(where[-1].filename).name}:{where[-1].lineno}" if where else ""
        text = f"{type(cause).__name__}: {' '.join(str(cause).split())[:400]} ({place})"
        pipe.send({"state": "refused" if refused else "failed", "why": text})


class _Task(NamedTuple):
    """One process.

    Attributes:
        name, kind: What it runs.
        worker: The process.
        pipe: Where its row comes from.
        end: When it is stopped.
    """

    name: str
    kind: str
    worker: Any
    pipe: Any
    end: float

    def row(self, made: Mapping[str, Any]) -> dict[str, Any]:
        """The row, of what came; ends the process."""
        self.worker.join(0.0 if made["state"] == "failed" else 5.0)
        if self.worker.is_alive():
            self.worker.kill()
        return {"name": self.name, "kind": self.kind, **made}


def run(wanted: Sequence[tuple[str, str]], is_full: bool, jobs: int, limit: float, until: float) -> Iterator[dict[str, Any]]:
    """Rows, in the order in which they are ready. Nothing begins, and nothing goes on, after a time."""
    # forked ones have what takes longest to import, and nothing has touched a device here
    method = "fork" if is_full else "spawn"
    context: Any = multiprocessing.get_context(method)
    rest, running = list(wanted), dict[Any, _Task]()
    while (rest or running) and time.monotonic() < until:
        while rest and len(running) < jobs:
            name, kind = rest.pop(0)
            here, there = context.Pipe(duplex=False)
            worker = context.Process(target=_work, args=(name, kind, is_full, there))
            worker.start()
            there.close()
            running[here] = _Task(name, kind, worker, here, time.monotonic() + limit)
        first = min(until, *(task.end for task in running.values()))
        for pipe in multiprocessing.connection.wait([*running], max(first - time.monotonic(), 0.0)):
            task = running.pop(pipe)
            try:
                yield task.row(task.pipe.recv())
            except EOFError:
                yield task.row({"state": "failed", "why": "the process ended"})
        for pipe, task in [*running.items()]:
            if task.end <= time.monotonic() < until:
                yield running.pop(pipe).row({"state": "failed", "why": f"more than {limit} s"})
    for task in running.values():
        task.worker.kill()


def import_before_parting() -> None:
    """Imports once what all processes need, but for our package, which ends CUDA's backward passes."""
    os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"  # asking for devices does not begin CUDA, which no fork survives
    import torch._dynamo.backends.common
    import torch._functorch.aot_autograd  # noqa: F401
    import transformers

    import dmlvk  # noqa: F401

    define_missing()
    for name in _TRANSFORMERS:
        getattr(transformers, name)


def merge(rows: list[dict[str, Any]], into: Path, commit: str) -> None:
    """Puts rows into the file of results, in place of those of the same names and kinds; notes their commit in each."""
    found = json.loads(into.read_text(encoding="utf-8"))
    known = {(row["name"], row["kind"]): row for row in found["architectures"]}
    for row in rows:
        key = (row["name"], row["kind"])
        if {**known.get(key, {}), "commit": ""} != {**row, "commit": ""}:
            known[key] = {**row, "commit": commit}
    found["architectures"] = list(known.values())
    into.write_text(json.dumps(found, indent=0, sort_keys=True) + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="rows, one a line; what is in it is not run again")
    parser.add_argument("--only", default="*", help="names, with wildcards")
    parser.add_argument("--kinds", default="inference,training")
    parser.add_argument("--limit", type=int, default=600, help="seconds for one")
    parser.add_argument("--jobs", type=int, default=1, help="how many run at once")
    parser.add_argument("--full", action="store_true", help="published sizes, beside CUDA")
    parser.add_argument("--seconds", type=float, default=math.inf, help="when all ends")
    parser.add_argument("--into", type=Path, help="a file of results that gets the rows in --out; nothing is run")
    parser.add_argument("--commit", default="", help="that of the rows")
    given = parser.parse_args()
    lines = given.out.read_text().splitlines() if given.out.exists() else []
    if given.into is not None:
        merge([json.loads(line) for line in lines], given.into, given.commit)
        return
    done = {(made["name"], made["kind"]) for made in map(json.loads, lines)}
    until = time.monotonic() + given.seconds
    wanted = [
        (name, kind)
        for kind in given.kinds.split(",")
        for name in architectures()
        if fnmatch.fnmatch(name, given.only) and (name, kind) not in done
    ]
    if given.full:
        import_before_parting()
    for made in run(wanted, given.full, given.jobs, given.limit, until):
        print(json.dumps(made), file=sys.stderr, flush=True)
        with given.out.open("a") as file:
            file.write(json.dumps(made, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
