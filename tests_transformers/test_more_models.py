"""Many more architectures, each once: the captured maps are the attention weights of the eager model.

`test_models.py` looks more closely at fewer of them.
"""

import numpy as np
import pytest
import torch
import transformers as tf

import py_attn as pa
from py_attn.viewer.engines.host import ReferenceEngine
from tests_transformers.models import ENDS, GROUPED, SMALL
from tests_transformers.test_models import BOUND, run

FEW = SMALL | ENDS | {"num_key_value_heads": 2}
WINDOWED = FEW | {"sliding_window": 6}
IMAGES = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "image_size": 16,
    "patch_size": 4,
}
SOUND = SMALL | {
    "conv_dim": (16, 16),
    "conv_stride": (5, 4),
    "conv_kernel": (10, 8),
    "num_feat_extract_layers": 2,
    "num_conv_pos_embeddings": 4,
    "num_conv_pos_embedding_groups": 2,
}
PAIR = ENDS | {
    "vocab_size": 99,
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 48,
    "max_position_embeddings": 128,
    "decoder_start_token_id": 2,
}
EXPERTS = {
    "moe_intermediate_size": 16,
    "n_routed_experts": 4,
    "n_group": 2,
    "topk_group": 1,
    "num_experts_per_tok": 2,
}
LATENT = {
    "q_lora_rank": 16,
    "kv_lora_rank": 16,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 8,
    "v_head_dim": 8,
}

#: Class, configuration, its arguments.
ENCODERS = [
    ("RobertaModel", "RobertaConfig", SMALL | ENDS),
    (
        "DistilBertModel",
        "DistilBertConfig",
        {"vocab_size": 99, "dim": 32, "hidden_dim": 48, "n_layers": 2, "n_heads": 4},
    ),
    ("ElectraModel", "ElectraConfig", SMALL | {"embedding_size": 16}),
    ("EsmModel", "EsmConfig", SMALL | {"pad_token_id": 0, "position_embedding_type": "rotary"}),
    (
        "ModernBertModel",
        "ModernBertConfig",
        SMALL
        | ENDS
        | {"cls_token_id": 1, "sep_token_id": 2, "global_attn_every_n_layers": 2, "local_attention": 8},
    ),
]
DECODERS = [
    ("OPTForCausalLM", "OPTConfig", SMALL | ENDS | {"ffn_dim": 48, "word_embed_proj_dim": 32}),
    ("GPTNeoXForCausalLM", "GPTNeoXConfig", SMALL),
    (
        "GPTBigCodeForCausalLM",
        "GPTBigCodeConfig",
        {"vocab_size": 99, "n_embd": 32, "n_layer": 2, "n_head": 4},
    ),
    ("BioGptForCausalLM", "BioGptConfig", SMALL | ENDS),
    ("PhiForCausalLM", "PhiConfig", SMALL),
    ("Phi3ForCausalLM", "Phi3Config", WINDOWED),
    ("MixtralForCausalLM", "MixtralConfig", WINDOWED | {"num_local_experts": 2}),
    ("Starcoder2ForCausalLM", "Starcoder2Config", WINDOWED),
    ("Cohere2ForCausalLM", "Cohere2Config", WINDOWED | {"head_dim": 8}),
    ("Olmo3ForCausalLM", "Olmo3Config", WINDOWED | {"num_hidden_layers": 4}),
    ("Exaone4ForCausalLM", "Exaone4Config", WINDOWED | {"sliding_window_pattern": 2}),
    ("GraniteForCausalLM", "GraniteConfig", FEW),
    ("SmolLM3ForCausalLM", "SmolLM3Config", FEW),
    ("Glm4ForCausalLM", "Glm4Config", GROUPED | ENDS),
    ("Lfm2ForCausalLM", "Lfm2Config", FEW | {"full_attn_idxs": [1]}),
    ("DeepseekV2ForCausalLM", "DeepseekV2Config", SMALL | EXPERTS | LATENT | {"num_key_value_heads": 4}),
    ("DeepseekV3ForCausalLM", "DeepseekV3Config", SMALL | EXPERTS | LATENT | {"num_key_value_heads": 4}),
    (
        "Llama4ForCausalLM",
        "Llama4TextConfig",
        GROUPED | ENDS | {"intermediate_size_mlp": 48, "num_local_experts": 2, "attention_chunk_size": 8},
    ),
]
PAIRS = [
    ("MBartForConditionalGeneration", "MBartConfig", PAIR),
    ("MarianMTModel", "MarianConfig", PAIR),
    ("M2M100ForConditionalGeneration", "M2M100Config", PAIR),
]
OTHERS = [
    ("Dinov2Model", "Dinov2Config", IMAGES),
    ("CLIPVisionModel", "CLIPVisionConfig", IMAGES),
    ("BeitModel", "BeitConfig", IMAGES),
    ("Wav2Vec2Model", "Wav2Vec2Config", SOUND),
]


def build(kind, config, options, implementation):
    torch.manual_seed(7)
    model = (
        getattr(tf, kind)
        ._from_config(getattr(tf, config)(**options), attn_implementation=implementation)
        .eval()
    )
    with torch.no_grad():
        for tensor in model.parameters():
            if tensor.ndim == 2:
                tensor.mul_(4)
    return model


def compare(maps, case, given, rows=slice(None)):
    """Compare the maps of the second element of the batch, rows of padding left out."""
    model, eager = build(*case, "sdpa"), build(*case, "eager")
    plain = run(model, **given)
    with pa.transformers.capture(model) as captured:
        out = run(model, **given)
    assert torch.equal(out[0], plain[0])
    wanted = run(eager, **given, output_attentions=True)
    names = ("encoder_attentions", "decoder_attentions", "cross_attentions")
    stacks = [(captured[name.split("_")[0]], wanted[name]) for name in names if wanted.get(name)]
    for stack, layers in stacks or [(captured.main, wanted["attentions"])]:
        expected = np.stack([layer[1].numpy() for layer in layers if layer is not None])
        found = maps(stack, 1)
        if stack.cross:
            keys = expected.shape[-1]
            found = found[:, :, keys:, :keys]
        assert found.shape == expected.shape
        part = rows if expected.shape[2] == 24 else slice(None)
        assert np.abs(found - expected)[:, :, part].max() < BOUND


@pytest.fixture(scope="session")
def engine():
    """Only numpy: the kernels are compared in `test_models.py`."""
    return ReferenceEngine()


def text(side):
    """A batch of two, the second one with padding, and the rows of it that are none."""
    ids = torch.randint(3, 99, (2, 24), generator=torch.Generator().manual_seed(3))
    mask = torch.ones_like(ids)
    mask[1, slice(0, 6) if side == "left" else slice(-6, None)] = 0
    return {"input_ids": ids, "attention_mask": mask}, slice(6, None) if side == "left" else slice(0, -6)


@pytest.mark.parametrize("case", ENCODERS, ids=lambda case: case[0])
def test_encoders(case, maps):
    compare(maps, case, *text("right"))


@pytest.mark.parametrize("case", DECODERS, ids=lambda case: case[0])
def test_decoders(case, maps):
    compare(maps, case, *text("left"))


@pytest.mark.parametrize("case", PAIRS, ids=lambda case: case[0])
def test_encoders_with_decoders(case, maps):
    given, rows = text("left")
    compare(maps, case, given | {"decoder_input_ids": given["input_ids"][:, :9]}, rows)


@pytest.mark.parametrize("case", OTHERS, ids=lambda case: case[0])
def test_images_and_sound(case, maps):
    generator = torch.Generator().manual_seed(1)
    if case[2] is SOUND:
        given = {"input_values": torch.randn(2, 800, generator=generator)}
    else:
        given = {"pixel_values": torch.randn(2, 3, 16, 16, generator=generator)}
    compare(maps, case, given)


def test_windows_of_images_have_stacks_of_their_own():
    options = {"image_size": 16, "patch_size": 2, "embed_dim": 16, "depths": [1, 1], "num_heads": [2, 4]}
    model = build("SwinModel", "SwinConfig", options | {"window_size": 2}, "sdpa")
    with pa.transformers.capture(model) as captured:
        run(model, pixel_values=torch.randn(2, 3, 16, 16))
    assert [stack.layers[0].query.shape for stack in captured.stacks.values()] == [
        (32, 2, 4, 8),
        (8, 4, 4, 8),
    ]


def test_only_the_layers_with_attention_are_captured():
    options = FEW | {
        "num_hidden_layers": 4,
        "attn_layer_period": 2,
        "attn_layer_offset": 1,
        "mamba_d_state": 4,
    }
    model = build("JambaForCausalLM", "JambaConfig", options | {"use_mamba_kernels": False}, "sdpa")
    with pa.transformers.capture(model) as captured:
        run(model, **text("left")[0])
    assert [layer.name.split(".")[2] for layer in captured.main.layers] == ["1", "3"]
