"""Tiny models of transformers with random weights, made from configurations: nothing is downloaded."""

from __future__ import annotations

import torch
import transformers as tf

SMALL = {
    "vocab_size": 99,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 128,
}
GROUPED = SMALL | {"num_key_value_heads": 2, "head_dim": 16}
SLIDING = ["sliding_attention", "full_attention"]
ENDS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}


def bert():
    return tf.BertModel, tf.BertConfig(**SMALL)


def albert():
    return tf.AlbertModel, tf.AlbertConfig(**SMALL, embedding_size=16)


def gpt2():
    return tf.GPT2LMHeadModel, tf.GPT2Config(
        vocab_size=99, n_embd=32, n_layer=3, n_head=4, n_positions=128, scale_attn_by_inverse_layer_idx=True
    )


def llama():
    return tf.LlamaForCausalLM, tf.LlamaConfig(**GROUPED, **ENDS)


def qwen3():
    return tf.Qwen3ForCausalLM, tf.Qwen3Config(**GROUPED)


def mistral():
    return tf.MistralForCausalLM, tf.MistralConfig(**GROUPED, sliding_window=7)


def gemma2():
    config = tf.Gemma2Config(
        **GROUPED,
        **ENDS,
        sliding_window=6,
        attn_logit_softcapping=0.5,
        query_pre_attn_scalar=24,
        layer_types=SLIDING,
    )
    return tf.Gemma2ForCausalLM, config


def gemma3():
    config = tf.Gemma3TextConfig(
        **GROUPED, **ENDS, sliding_window=5, query_pre_attn_scalar=24, layer_types=SLIDING
    )
    return tf.Gemma3ForCausalLM, config


def gpt_oss():
    config = tf.GptOssConfig(
        **GROUPED, **ENDS, sliding_window=6, layer_types=SLIDING, num_local_experts=2, num_experts_per_tok=1
    )
    return tf.GptOssForCausalLM, config


def t5():
    config = tf.T5Config(
        vocab_size=99, d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4, decoder_start_token_id=0
    )
    return tf.T5ForConditionalGeneration, config


def bart():
    config = tf.BartConfig(
        vocab_size=99,
        d_model=32,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=48,
        decoder_ffn_dim=48,
        max_position_embeddings=128,
        **ENDS,
        decoder_start_token_id=2,
        forced_eos_token_id=None,
    )
    return tf.BartForConditionalGeneration, config


def whisper():
    config = tf.WhisperConfig(
        vocab_size=99,
        num_mel_bins=8,
        d_model=32,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=48,
        decoder_ffn_dim=48,
        max_source_positions=20,
        max_target_positions=40,
        **ENDS,
        decoder_start_token_id=1,
        suppress_tokens=None,
        begin_suppress_tokens=None,
    )
    return tf.WhisperForConditionalGeneration, config


def vit():
    config = tf.ViTConfig(
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        image_size=16,
        patch_size=4,
    )
    return tf.ViTModel, config


MODELS = {
    make.__name__: make
    for make in (bert, albert, gpt2, llama, qwen3, mistral, gemma2, gemma3, gpt_oss, t5, bart, whisper, vit)
}
#: Those whose heads have a softcap or sinks, which torch's scaled_dot_product_attention does not compute.
EAGER_ONLY = {"gemma2", "gpt_oss"}
DECODERS = ("gpt2", "llama", "qwen3", "mistral", "gemma2", "gemma3", "gpt_oss")
ENCODER_DECODERS = ("t5", "bart", "whisper")


#: What weights are multiplied by, so that maps are neither uniform nor all of one key.
_FACTORS = {"bert": 12, "albert": 12, "vit": 12, "t5": 2}


def build(name, implementation="eager"):
    """The model of a name, for evaluation, with weights large enough for maps that are not uniform."""
    torch.manual_seed(7)
    kind, config = MODELS[name]()
    model = kind._from_config(config, attn_implementation=implementation).eval()
    with torch.no_grad():
        for part, tensor in model.named_parameters():
            if "sinks" in part:
                tensor.normal_()
            elif tensor.ndim == 2:
                tensor.mul_(_FACTORS.get(name, 6))
    return model


def inputs(name, length=24, *, padded=""):
    """Inputs of a batch of two; ``padded`` is the side at which the second one has six tokens of padding."""
    generator = torch.Generator().manual_seed(3)
    ids = torch.randint(3, 99, (2, length), generator=generator)
    if name == "vit":
        return {"pixel_values": torch.randn(2, 3, 16, 16, generator=generator)}
    if name == "whisper":
        features = torch.randn(2, 8, 40, generator=generator)
        return {"input_features": features, "decoder_input_ids": ids[:, :9]}
    given = {"input_ids": ids}
    if padded:
        mask = torch.ones_like(ids)
        mask[1, slice(0, 6) if padded == "left" else slice(-6, None)] = 0
        given["attention_mask"] = mask
    return given | ({"decoder_input_ids": ids[:, :9] + 0} if name in ENCODER_DECODERS else {})
