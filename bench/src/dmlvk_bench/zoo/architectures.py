"""The architectures: every one of torchvision, and classes of transformers with random weights.

Those of transformers have fewer layers and words than what is published under their names, so that a file takes seconds and
not minutes; the layers themselves are as wide as those of a base model.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeAlias

import torch

from dmlvk_bench.zoo.unet import UNet

Tensor: TypeAlias = Any
Module: TypeAlias = Any
"""PyTorch's; its types are not there where it is not."""

SEED: Final = 0
_WORDS: Final = 128
_VOCABULARY: Final = 8192


@dataclass(frozen=True)
class Architecture:
    """One architecture.

    Attributes:
        name: Its name in torchvision or transformers, unique.
        kind: "classification", "segmentation", "detection", "video", "flow", "transformers" or "float16".
        make: Makes the model, in evaluation mode, and its inputs by name.
    """

    name: str
    kind: str
    make: Callable[[], tuple[Module, dict[str, Tensor]]]


def _halved(make: Callable[[], tuple[Module, dict[str, Tensor]]]) -> tuple[Module, dict[str, Tensor]]:
    """A model and its inputs in float16."""
    model, inputs = make()
    return model.half(), {name: own.half() if own.is_floating_point() else own for name, own in inputs.items()}


class Flat(torch.nn.Module):  # type: ignore[misc]  # of a class without types, where PyTorch is not installed
    """A model that takes and returns tensors, whatever it takes and returns itself.

    Args:
        model: The model.
        names: Its arguments, one a tensor; none where it takes them by position.
        listed: Whether it takes one list of all tensors, as detectors do.
    """

    def __init__(self, model: Module, names: tuple[str, ...] = (), *, listed: bool = False) -> None:
        super().__init__()
        self.model, self.names, self.listed = model, names, listed

    def forward(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        """The tensors that the model returns, in its order."""
        if self.names:
            return tuple(_tensors(self.model(**dict(zip(self.names, tensors, strict=True)))))
        return tuple(_tensors(self.model(list(tensors)) if self.listed else self.model(*tensors)))


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        for part in value.values():
            yield from _tensors(part)
    elif isinstance(value, (list, tuple)):
        for part in value:
            yield from _tensors(part)


def architectures() -> list[Architecture]:
    """All of them, torchvision's first; those of a package that is not installed are missing."""
    found: list[Architecture] = []
    if _has("torchvision"):
        found += _torchvision()
    if _has("transformers"):
        found += [Architecture(name, "transformers", partial(_transformer, name)) for name in sorted(_TRANSFORMERS)]
    half = [
        Architecture(f"{one.name}-float16", _HALVES, partial(_halved, one.make)) for one in found if one.name in _IN_HALF
    ]
    return [*found, *half, Architecture("unet-float16", _HALVES, partial(_halved, _unet))]


def _has(package: str) -> bool:
    return importlib.util.find_spec(package) is not None


# -- torchvision


def _torchvision() -> list[Architecture]:
    models: Any = importlib.import_module("torchvision.models")
    kinds = {
        "classification": models,
        "segmentation": models.segmentation,
        "detection": models.detection,
        "video": models.video,
        "flow": models.optical_flow,
    }
    return [
        Architecture(name, kind, partial(_vision, name, kind))
        for kind, module in kinds.items()
        for name in models.list_models(module=module)
    ]


_HALVES: Final = "float16"
_IN_HALF: Final = (
    *("resnet50", "densenet121", "efficientnet_b0", "mobilenet_v3_large", "regnet_y_8gf", "vgg16", "convnext_tiny"),
    *("vit_b_16", "vit_l_16", "swin_t", "maxvit_t", "deeplabv3_resnet50", "r3d_18", "mvit_v2_s"),
    *("BertModel", "DebertaV2Model", "ModernBertModel", "GPT2LMHeadModel", "LlamaForCausalLM", "MambaForCausalLM"),
    *("T5Model", "CLIPVisionModel", "Dinov2Model", "DPTForDepthEstimation", "SegformerForSemanticSegmentation"),
    *("HieraModel", "Swin2SRForImageSuperResolution", "ASTModel", "Wav2Vec2Model", "WhisperModel"),
)
_KIND_SIDES: Final = {"classification": 224, "segmentation": 320, "detection": 320, "video": 112, "flow": 128}
_SIDES: Final = {"inception_v3": 299, "ssd300_vgg16": 300, "s3d": 224, **dict.fromkeys(("mvit_v1_b", "mvit_v2_s"), 224)}
_FRAMES: Final = dict.fromkeys(("mvit_v1_b", "mvit_v2_s", "s3d"), 16)
"""Sizes of pictures, by kind and for architectures that want others, and frames of a film."""
_SCORES: Final = ("cls_logits", "cls_score", "classification_head.module_list", "rpn.head.cls_logits")
"""The layers of a detector that give scores. As they are made, all their outputs are nearly the same, so that a rounding
decides which box comes first."""
_DEVIATION: Final = 3.0
_MEAN: Final = -2.0
"""Of the scores' logits."""


def _vision(name: str, kind: str) -> tuple[Module, dict[str, Tensor]]:
    models: Any = importlib.import_module("torchvision.models")
    torch.manual_seed(SEED)
    options: dict[str, Any] = {"weights": None}
    if kind in ("detection", "segmentation"):
        options["weights_backbone"] = None
    if name in ("googlenet", "inception_v3"):
        options["init_weights"] = False  # the other way takes a minute
    model = models.get_model(name, **options).eval()
    for layer in model.modules():
        if isinstance(layer, torch.nn.Linear) and not layer.weight.any():  # a head of zeros would hide what is before it
            torch.nn.init.normal_(layer.weight, std=0.02)
    side = _SIDES.get(name, _KIND_SIDES[kind])
    if kind == "detection":
        inputs = {"image": torch.rand(3, side, side)}
        _spread_scores(model, inputs["image"])
        return Flat(model, listed=True).eval(), inputs
    if kind == "flow":
        inputs = {which: torch.rand(1, 3, side, side) * 2 - 1 for which in ("image1", "image2")}
    elif kind == "video":
        inputs = {"video": torch.rand(1, 3, _FRAMES.get(name, 8), side, side)}
    else:
        inputs = {"image": torch.rand(1, 3, side, side)}
    return _normalized(Flat(model), inputs), inputs


def _normalized(model: Module, inputs: dict[str, Tensor]) -> Module:
    """Gives batch normalizations the mean and variance of what they see: with those that they are made with, the numbers of
    a deep network without trained weights come near 0, where everything is right."""
    layers = [layer for layer in model.modules() if isinstance(layer, torch.nn.modules.batchnorm._BatchNorm)]
    for layer in layers:
        layer.momentum = 1.0
        layer.train()
    if layers:
        with torch.inference_mode():  # two of each, where one would leave a layer a single number
            model(
                *(
                    torch.cat([tensor, torch.rand_like(tensor)]) if tensor.is_floating_point() else tensor
                    for tensor in inputs.values()
                )
            )
    return model.eval()


def _spread_scores(model: Module, image: Tensor) -> None:
    """Makes the layers that give scores give different ones: some of them high."""
    layers = [
        layer
        for path, layer in model.named_modules()
        if any(part in path for part in _SCORES) and isinstance(layer, (torch.nn.Conv2d, torch.nn.Linear))
    ]
    with torch.inference_mode():
        for layer in layers:
            seen: list[Tensor] = []
            handle = layer.register_forward_hook(lambda _, __, output, seen=seen: seen.append(output))
            model([image])
            handle.remove()
            if seen:
                deviation = max(float(torch.cat([part.reshape(-1) for part in seen]).std()), 1e-12)
                layer.weight.mul_(_DEVIATION / deviation)
                if layer.bias is not None:
                    layer.bias.fill_(_MEAN)


# -- pictures out of noise


def _unet() -> tuple[Module, dict[str, Tensor]]:
    """Of two pictures of 512 x 512 points, which have an eighth of that here."""
    torch.manual_seed(SEED)
    inputs = {"sample": torch.randn(2, 4, 64, 64), "time": torch.randn(2, 320), "context": torch.randn(2, 77, 768)}
    return Flat(UNet()).eval(), inputs


# -- transformers


def _ids() -> dict[str, Tensor]:
    return {"input_ids": torch.randint(1, _VOCABULARY, (1, _WORDS))}


def _words() -> dict[str, Tensor]:
    return {**_ids(), "attention_mask": torch.ones(1, _WORDS, dtype=torch.int64)}


def _pairs() -> dict[str, Tensor]:
    """What an encoder and a decoder read."""
    return {**_words(), "decoder_input_ids": torch.randint(1, _VOCABULARY, (1, 16))}


def _picture(side: int = 224) -> dict[str, Tensor]:
    return {"pixel_values": torch.rand(1, 3, side, side) * 2 - 1}


def _sound() -> dict[str, Tensor]:
    return {"input_values": torch.randn(1, 16000)}


def _boxed_words() -> dict[str, Tensor]:
    left = torch.randint(0, 500, (1, _WORDS, 2))
    return {**_words(), "bbox": torch.cat([left, left + torch.randint(0, 400, (1, _WORDS, 2))], dim=2)}


_SIZES: Final = {
    "hidden_size": 768,
    "num_hidden_layers": 4,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "vocab_size": _VOCABULARY,
}
_GPT: Final = {"n_embd": 768, "n_layer": 4, "n_head": 12, "vocab_size": _VOCABULARY}
_TRANSLATOR: Final = {
    "d_model": 512,
    "encoder_layers": 3,
    "decoder_layers": 3,
    "encoder_attention_heads": 8,
    "decoder_attention_heads": 8,
    "encoder_ffn_dim": 2048,
    "decoder_ffn_dim": 2048,
    "vocab_size": _VOCABULARY,
}
_T5: Final = {"d_model": 512, "d_kv": 64, "d_ff": 1024, "num_layers": 3, "num_heads": 8, "vocab_size": _VOCABULARY}
_GROUPED: Final = {
    **_SIZES,
    "num_key_value_heads": 4,
    "head_dim": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_LAYERS: Final = {"num_hidden_layers": 4}

_Inputs = Callable[[], dict[str, Tensor]]
_TRANSFORMERS: Final[dict[str, tuple[dict[str, Any], _Inputs]]] = {
    # Encoders of text.
    "AlbertModel": ({**_SIZES, "embedding_size": 128}, _words),
    "BertModel": (_SIZES, _words),
    "CamembertModel": (_SIZES, _words),
    "ConvBertModel": (_SIZES, _words),
    "DebertaModel": (_SIZES, _words),
    "DebertaV2Model": (_SIZES, _words),
    "DistilBertModel": ({"dim": 768, "n_layers": 4, "n_heads": 12, "vocab_size": _VOCABULARY}, _words),
    "ElectraModel": ({**_SIZES, "embedding_size": 128}, _words),
    "ErnieModel": (_SIZES, _words),
    "FNetModel": (_SIZES, _ids),
    "LayoutLMModel": (_SIZES, _boxed_words),
    "MPNetModel": (_SIZES, _words),
    "MegatronBertModel": (_SIZES, _words),
    "MobileBertModel": ({"num_hidden_layers": 6, "vocab_size": _VOCABULARY}, _words),
    "ModernBertModel": (
        {**_SIZES, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "cls_token_id": 1, "sep_token_id": 2},
        _words,
    ),
    "NystromformerModel": ({**_SIZES, "segment_means_seq_len": 128, "num_landmarks": 32}, _ids),
    "RemBertModel": ({**_SIZES, "input_embedding_size": 128}, _words),
    "RoFormerModel": (_SIZES, _words),
    "RobertaModel": (_SIZES, _words),
    "SqueezeBertModel": ({**_SIZES, "embedding_size": 768}, _words),
    "XLNetModel": ({"d_model": 768, "n_layer": 4, "n_head": 12, "d_inner": 3072, "vocab_size": _VOCABULARY}, _words),
    # Decoders.
    "BioGptForCausalLM": (_SIZES, _words),
    "BloomForCausalLM": ({"hidden_size": 768, "n_layer": 4, "n_head": 12, "vocab_size": _VOCABULARY}, _words),
    "CodeGenForCausalLM": ({**_GPT, "rotary_dim": 32, "n_head": 16, "n_embd": 1024}, _words),
    "CohereForCausalLM": (_GROUPED, _words),
    "FalconForCausalLM": (_SIZES, _words),
    "GPT2LMHeadModel": (_GPT, _words),
    "GPTJForCausalLM": ({**_GPT, "rotary_dim": 32}, _words),
    "GPTNeoForCausalLM": (
        {
            "hidden_size": 768,
            "num_layers": 4,
            "num_heads": 12,
            "attention_types": [[["global", "local"], 2]],
            "vocab_size": _VOCABULARY,
        },
        _words,
    ),
    "GPTNeoXForCausalLM": (_SIZES, _words),
    "Gemma2ForCausalLM": (_GROUPED, _words),
    "GemmaForCausalLM": (_GROUPED, _words),
    "GraniteForCausalLM": (_GROUPED, _words),
    "LlamaForCausalLM": (_GROUPED, _words),
    "MambaForCausalLM": ({"hidden_size": 768, "num_hidden_layers": 2, "vocab_size": _VOCABULARY}, _ids),
    "MistralForCausalLM": (_GROUPED, _words),
    "OPTForCausalLM": ({**_SIZES, "ffn_dim": 3072, "word_embed_proj_dim": 768}, _words),
    "Olmo2ForCausalLM": (_GROUPED, _words),
    "Phi3ForCausalLM": (_GROUPED, _words),
    "PhiForCausalLM": (_SIZES, _words),
    "Qwen2ForCausalLM": (_GROUPED, _words),
    "Qwen3ForCausalLM": (_GROUPED, _words),
    "StableLmForCausalLM": (_GROUPED, _words),
    "Starcoder2ForCausalLM": (_GROUPED, _words),
    "XGLMForCausalLM": (
        {"d_model": 768, "num_layers": 4, "attention_heads": 12, "ffn_dim": 3072, "vocab_size": _VOCABULARY},
        _words,
    ),
    # Encoders with decoders.
    "BartModel": (_TRANSLATOR, _pairs),
    "M2M100Model": (_TRANSLATOR, _pairs),
    "MBartModel": (_TRANSLATOR, _pairs),
    "MarianModel": (
        {**_TRANSLATOR, "pad_token_id": 0, "decoder_start_token_id": 0, "decoder_vocab_size": _VOCABULARY},
        _pairs,
    ),
    "PegasusModel": (_TRANSLATOR, _pairs),
    "T5EncoderModel": (_T5, _words),
    "T5Model": (_T5, _pairs),
    # Pictures.
    "BeitModel": (_LAYERS, _picture),
    "BitModel": ({}, _picture),
    "CLIPVisionModel": (_LAYERS, _picture),
    "ConvNextModel": ({}, _picture),
    "ConvNextV2Model": ({}, _picture),
    "CvtModel": ({}, _picture),
    "DPTForDepthEstimation": ({"num_hidden_layers": 12}, partial(_picture, 384)),
    "DeiTModel": (_LAYERS, _picture),
    "Dinov2Model": (_LAYERS, _picture),
    "EfficientNetModel": (
        {"image_size": 224, "width_coefficient": 1.0, "depth_coefficient": 1.0, "hidden_dim": 1280},
        _picture,
    ),
    "FocalNetModel": ({}, _picture),
    "GLPNForDepthEstimation": ({}, _picture),
    "HieraModel": ({}, _picture),
    "LevitModel": ({}, _picture),
    "MobileNetV1Model": ({}, _picture),
    "MobileNetV2Model": ({}, _picture),
    "MobileViTModel": ({}, partial(_picture, 256)),
    "MobileViTV2Model": ({}, partial(_picture, 256)),
    "PoolFormerModel": ({}, _picture),
    "PvtV2Model": ({}, _picture),
    "RegNetModel": ({}, _picture),
    "ResNetModel": ({}, _picture),
    "SegformerForSemanticSegmentation": ({}, _picture),
    "SiglipVisionModel": (_LAYERS, _picture),
    "SwiftFormerModel": ({}, _picture),
    "Swin2SRForImageSuperResolution": ({}, partial(_picture, 64)),
    "SwinModel": ({}, _picture),
    "Swinv2Model": ({"image_size": 256, "window_size": 8}, partial(_picture, 256)),
    "ViTModel": (_LAYERS, _picture),
    "YolosForObjectDetection": ({"num_hidden_layers": 4, "image_size": [224, 224]}, _picture),
    # Sound.
    "ASTModel": (_LAYERS, lambda: {"input_values": torch.randn(1, 1024, 128)}),
    "HubertModel": (_LAYERS, _sound),
    "SEWModel": (_LAYERS, _sound),
    "Wav2Vec2Model": (_LAYERS, _sound),
    "WavLMModel": (_LAYERS, _sound),
    "WhisperModel": (
        {
            **_TRANSLATOR,
            "num_mel_bins": 80,
            "pad_token_id": 0,
            "bos_token_id": 1,
            "eos_token_id": 2,
            "decoder_start_token_id": 1,
        },
        lambda: {"input_features": torch.randn(1, 80, 3000), "decoder_input_ids": torch.randint(1, _VOCABULARY, (1, 8))},
    ),
    # Series of numbers.
    "PatchTSTModel": (
        {"num_input_channels": 7, "context_length": 512, "num_hidden_layers": 4},
        lambda: {"past_values": torch.randn(1, 512, 7)},
    ),
    "PatchTSMixerModel": (
        {"num_input_channels": 7, "context_length": 512, "num_layers": 4},
        lambda: {"past_values": torch.randn(1, 512, 7)},
    ),
}
"""Class -> the options of its configuration, and its inputs."""


def _transformer(name: str) -> tuple[Module, dict[str, Tensor]]:
    transformers: Any = importlib.import_module("transformers")
    torch.manual_seed(SEED)
    sizes, inputs = _TRANSFORMERS[name]
    model_class = getattr(transformers, name)
    config = model_class.config_class(**sizes)
    config.use_cache = False
    fed = inputs()
    return _normalized(Flat(model_class(config), tuple(fed)), fed), fed
