"""What models are made of: the names, shapes and dtypes of their weights, in the order of their checkpoints.

Each manifest is one function of the numbers that its model's configuration publishes. Nothing is read from anywhere,
and nothing is allocated: a manifest describes hundreds of gigabytes, and a plan of it is built on the meta device, or
with all sides made smaller.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from bucketproof.strategies.plans import Item, Shape


class Weight(NamedTuple):
    """One weight of a model, before anybody hands it over."""

    name: str
    shape: Shape
    dtype: str = "bfloat16"


@dataclass(frozen=True)
class Manifest:
    """All weights of a model."""

    id: str
    sentence: str
    weights: tuple[Weight, ...]

    @property
    def nbytes(self) -> int:
        """Bytes of all of them, at full size."""
        return sum(Item("", "fresh", each.dtype, each.shape).nbytes for each in self.weights)


Describe = Callable[..., Iterator[Weight]]
_DESCRIBED: dict[str, Describe] = {}

BLOCK = 128
"""Sides of the blocks that share one scale, where weights are quantised by blocks."""


def manifests() -> tuple[str, ...]:
    """The ids of all manifests."""
    return tuple(_DESCRIBED)


@cache
def manifest(id: str) -> Manifest:
    """The manifest of that name."""
    describe = _DESCRIBED[id]
    return Manifest(id, (describe.__doc__ or "").strip().split("\n")[0], tuple(describe()))


def _described(id: str) -> Callable[[Describe], Describe]:
    def add(describe: Describe) -> Describe:
        _DESCRIBED[id] = describe
        return describe

    return add


@_described("llama")
def llama(
    layers: int = 126,
    hidden: int = 16384,
    heads: int = 128,
    kv_heads: int = 8,
    ffn: int = 53248,
    vocab: int = 128256,
) -> Iterator[Weight]:
    """Dense, with grouped queries: Llama 3.1 405B.

    As in its `config.json`: 126 layers, 16384 wide, 128 heads with 8 of keys, 53248 within, 128256 words.
    """
    yield Weight("model.embed_tokens.weight", (vocab, hidden))
    for layer in range(layers):
        at = f"model.layers.{layer}"
        yield from _attention(at, hidden, heads, kv_heads, hidden // heads)
        yield from _gated(f"{at}.mlp", hidden, ffn)
        yield from _norms(at, hidden)
    yield from _head(hidden, vocab)


@_described("qwen-moe")
def qwen_moe(
    layers: int = 94,
    hidden: int = 4096,
    heads: int = 64,
    kv_heads: int = 4,
    head_dim: int = 128,
    experts: int = 128,
    ffn: int = 1536,
    vocab: int = 151936,
    fused: bool = False,
) -> Iterator[Weight]:
    """A mixture of experts, each a weight of its own: Qwen3 235B-A22B.

    As in its `config.json`, and in slime's `scripts/models/qwen3-235B-A22B.sh`, which names each of these numbers.
    """
    yield Weight("model.embed_tokens.weight", (vocab, hidden))
    for layer in range(layers):
        at = f"model.layers.{layer}"
        yield from _attention(at, hidden, heads, kv_heads, head_dim)
        yield from (Weight(f"{at}.self_attn.{which}_norm.weight", (head_dim,)) for which in "qk")
        yield Weight(f"{at}.mlp.gate.weight", (experts, hidden))
        yield from (_stacked if fused else _each_expert)(f"{at}.mlp", hidden, ffn, experts)
        yield from _norms(at, hidden)
    yield from _head(hidden, vocab)


@_described("qwen-moe-fused")
def qwen_moe_fused() -> Iterator[Weight]:
    """The same mixture, with the experts of a layer stacked in two weights of gigabytes."""
    return qwen_moe(fused=True)


@_described("deepseek")
def deepseek(
    layers: int = 61,
    dense: int = 3,
    hidden: int = 7168,
    heads: int = 128,
    q_rank: int = 1536,
    kv_rank: int = 512,
    plain_dim: int = 128,
    rotary_dim: int = 64,
    value_dim: int = 128,
    dense_ffn: int = 18432,
    experts: int = 256,
    ffn: int = 2048,
    vocab: int = 129280,
) -> Iterator[Weight]:
    """Low-rank attention and many experts in fp8, each weight with its scales: DeepSeek V3.

    As `DeepseekV3Config` of transformers has them by default, whose defaults are this model's.
    """
    yield Weight("model.embed_tokens.weight", (vocab, hidden))
    for layer in range(layers + 1):  # the last one predicts a token more, and has embeddings of its own
        at = f"model.layers.{layer}"
        yield from _extra_head(at, hidden, vocab) if layer == layers else ()
        yield from _quantised(f"{at}.self_attn.q_a_proj", q_rank, hidden)
        yield Weight(f"{at}.self_attn.q_a_layernorm.weight", (q_rank,))
        yield from _quantised(f"{at}.self_attn.q_b_proj", heads * (plain_dim + rotary_dim), q_rank)
        yield from _quantised(f"{at}.self_attn.kv_a_proj_with_mqa", kv_rank + rotary_dim, hidden)
        yield Weight(f"{at}.self_attn.kv_a_layernorm.weight", (kv_rank,))
        yield from _quantised(f"{at}.self_attn.kv_b_proj", heads * (plain_dim + value_dim), kv_rank)
        yield from _quantised(f"{at}.self_attn.o_proj", hidden, heads * value_dim)
        if layer < dense:
            yield from _quantised_gated(f"{at}.mlp", hidden, dense_ffn)
        else:
            yield Weight(f"{at}.mlp.gate.weight", (experts, hidden))
            yield Weight(f"{at}.mlp.gate.e_score_correction_bias", (experts,), "float32")
            for expert in range(experts):
                yield from _quantised_gated(f"{at}.mlp.experts.{expert}", hidden, ffn)
            yield from _quantised_gated(f"{at}.mlp.shared_experts", hidden, ffn)
        yield from _norms(at, hidden)
    yield from _head(hidden, vocab)


@_described("qwen-vl")
def qwen_vl(
    layers: int = 80,
    hidden: int = 8192,
    heads: int = 64,
    kv_heads: int = 8,
    ffn: int = 29568,
    vocab: int = 152064,
    blocks: int = 32,
    width: int = 1280,
    vision_ffn: int = 3456,
    patch: Shape = (3, 2, 14, 14),
    merged: int = 4,
) -> Iterator[Weight]:
    """A vision tower with biases and a convolution, before a dense model: Qwen2.5-VL 72B.

    The language model is as in Qwen2.5 72B's `config.json`. The tower is `Qwen2_5_VLVisionConfig` of transformers but
    for what it has within, which is 3420 in the smaller models; sources differ about the larger ones (3420 or 3456).
    """
    yield Weight("visual.patch_embed.proj.weight", (width, *patch))
    for block in range(blocks):
        at = f"visual.blocks.{block}"
        yield from (Weight(f"{at}.norm{which}.weight", (width,)) for which in "12")
        yield from _linear(f"{at}.attn.qkv", 3 * width, width, bias=True)
        yield from _linear(f"{at}.attn.proj", width, width, bias=True)
        yield from _gated(f"{at}.mlp", width, vision_ffn, bias=True)
    yield Weight("visual.merger.ln_q.weight", (width,))
    yield from _linear("visual.merger.mlp.0", merged * width, merged * width, bias=True)
    yield from _linear("visual.merger.mlp.2", hidden, merged * width, bias=True)
    yield Weight("model.embed_tokens.weight", (vocab, hidden))
    for layer in range(layers):
        at = f"model.layers.{layer}"
        yield from _attention(at, hidden, heads, kv_heads, hidden // heads, bias=True)
        yield from _gated(f"{at}.mlp", hidden, ffn)
        yield from _norms(at, hidden)
    yield from _head(hidden, vocab)


@_described("jamba")
def jamba(
    layers: int = 72,
    hidden: int = 8192,
    heads: int = 64,
    kv_heads: int = 8,
    ffn: int = 24576,
    experts: int = 16,
    state: int = 16,
    kernel: int = 4,
    step_rank: int = 512,
    vocab: int = 65536,
) -> Iterator[Weight]:
    """Seven Mamba layers to one of attention, and experts in every other one: Jamba 1.5 Large.

    Layers, width, heads and experts are those of its report (arXiv 2408.12570); the rank of the steps is a sixteenth of
    the width, as `JambaConfig` of transformers has it. What is within, and the words, fit its 398 billion parameters.
    """
    yield Weight("model.embed_tokens.weight", (vocab, hidden))
    for layer in range(layers):
        at = f"model.layers.{layer}"
        if layer % 8 == 4:
            yield from _attention(at, hidden, heads, kv_heads, hidden // heads)
        else:
            yield from _mamba(f"{at}.mamba", hidden, 2 * hidden, state, kernel, step_rank)
        if layer % 2:
            yield Weight(f"{at}.feed_forward.router.weight", (experts, hidden))
            yield from _each_expert(f"{at}.feed_forward", hidden, ffn, experts)
        else:
            yield from _gated(f"{at}.feed_forward", hidden, ffn)
        yield from (Weight(f"{at}.{which}_layernorm.weight", (hidden,)) for which in ("input", "pre_ff"))
    yield Weight("model.final_layernorm.weight", (hidden,))
    yield Weight("lm_head.weight", (vocab, hidden))


def _linear(at: str, outputs: int, inputs: int, *, bias: bool = False) -> Iterator[Weight]:
    yield Weight(f"{at}.weight", (outputs, inputs))
    if bias:
        yield Weight(f"{at}.bias", (outputs,))


def _attention(
    at: str, hidden: int, heads: int, kv_heads: int, head_dim: int, *, bias: bool = False
) -> Iterator[Weight]:
    yield from _linear(f"{at}.self_attn.q_proj", heads * head_dim, hidden, bias=bias)
    yield from _linear(f"{at}.self_attn.k_proj", kv_heads * head_dim, hidden, bias=bias)
    yield from _linear(f"{at}.self_attn.v_proj", kv_heads * head_dim, hidden, bias=bias)
    yield from _linear(f"{at}.self_attn.o_proj", hidden, heads * head_dim)


def _gated(at: str, hidden: int, ffn: int, *, bias: bool = False) -> Iterator[Weight]:
    yield from _linear(f"{at}.gate_proj", ffn, hidden, bias=bias)
    yield from _linear(f"{at}.up_proj", ffn, hidden, bias=bias)
    yield from _linear(f"{at}.down_proj", hidden, ffn, bias=bias)


def _each_expert(at: str, hidden: int, ffn: int, experts: int) -> Iterator[Weight]:
    for expert in range(experts):
        yield from _gated(f"{at}.experts.{expert}", hidden, ffn)


def _stacked(at: str, hidden: int, ffn: int, experts: int) -> Iterator[Weight]:
    yield Weight(f"{at}.experts.gate_up_proj", (experts, 2 * ffn, hidden))
    yield Weight(f"{at}.experts.down_proj", (experts, hidden, ffn))


def _quantised(at: str, outputs: int, inputs: int) -> Iterator[Weight]:
    yield Weight(f"{at}.weight", (outputs, inputs), "float8_e4m3fn")
    yield Weight(f"{at}.weight_scale_inv", (-(-outputs // BLOCK), -(-inputs // BLOCK)), "float32")


def _quantised_gated(at: str, hidden: int, ffn: int) -> Iterator[Weight]:
    yield from _quantised(f"{at}.gate_proj", ffn, hidden)
    yield from _quantised(f"{at}.up_proj", ffn, hidden)
    yield from _quantised(f"{at}.down_proj", hidden, ffn)


def _mamba(at: str, hidden: int, inner: int, state: int, kernel: int, step_rank: int) -> Iterator[Weight]:
    yield Weight(f"{at}.A_log", (inner, state), "float32")
    yield Weight(f"{at}.D", (inner,), "float32")
    yield from _linear(f"{at}.in_proj", 2 * inner, hidden)
    yield Weight(f"{at}.conv1d.weight", (inner, 1, kernel))
    yield Weight(f"{at}.conv1d.bias", (inner,))
    yield from _linear(f"{at}.x_proj", step_rank + 2 * state, inner)
    yield from _linear(f"{at}.dt_proj", inner, step_rank, bias=True)
    yield from _linear(f"{at}.out_proj", hidden, inner)
    yield Weight(f"{at}.dt_layernorm.weight", (step_rank,))
    yield from (Weight(f"{at}.{which}_layernorm.weight", (state,)) for which in "bc")


def _norms(at: str, hidden: int) -> Iterator[Weight]:
    for which in ("input", "post_attention"):
        yield Weight(f"{at}.{which}_layernorm.weight", (hidden,))


def _head(hidden: int, vocab: int) -> Iterator[Weight]:
    yield Weight("model.norm.weight", (hidden,))
    yield Weight("lm_head.weight", (vocab, hidden))


def _extra_head(at: str, hidden: int, vocab: int) -> Iterator[Weight]:
    yield Weight(f"{at}.embed_tokens.weight", (vocab, hidden))
    yield from (Weight(f"{at}.{which}.weight", (hidden,)) for which in ("enorm", "hnorm"))
    yield from _linear(f"{at}.eh_proj", hidden, 2 * hidden)
    yield Weight(f"{at}.shared_head.norm.weight", (hidden,))
    yield Weight(f"{at}.shared_head.head.weight", (vocab, hidden))
