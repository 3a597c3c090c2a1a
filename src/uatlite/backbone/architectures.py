"""The architecture table: where each model family drops, attends and classifies.

A row names module paths. `{base}` is the encoder inside the classifier and `{layer}` one of its layers. To add an
architecture, add a row here and its tiny configuration to `tests/conftest.py`; every engine test then
runs on it.

A component without a live site of its own (Llama's embedding, ALBERT's feed-forward) gets one at the natural
place; such rows put the path in `added`.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Architecture:
    """Where one family keeps its dropout sites; paths as `named_modules` spells them."""

    base: str
    """The encoder, an attribute of the classifier."""
    embedding: str
    """The module whose output is the embedding block's, relative to the base."""
    layers: str
    """The list of layers, relative to the base."""
    attention: str
    """The module that computes self-attention, relative to a layer."""
    attention_rate: str
    """The attribute of `attention` with its own rate: a float, or a Dropout module."""
    attention_output: str | None
    """The site after the attention's output projection, relative to a layer; None where there is none."""
    feed_forward: str
    """The site at the feed-forward output, relative to a layer."""
    head: tuple[str, ...] = ()
    """The sites of the classification head, relative to the model; one may be called more than once."""
    added: frozenset[str] = frozenset()
    """Components that have no live dropout: their path names the module whose output we drop."""
    interface: bool = True
    """Whether attention runs through transformers' AttentionInterface."""
    value: str | None = None
    """Outside the interface: the value projection, relative to a layer."""
    position: str | None = None
    """A dropout on relative-position embeddings shared by the whole batch, relative to a layer."""
    convolution: str | None = None
    """A dropout of a convolution beside the first layer, relative to the base; a checkpoint may lack it."""
    narrow: str | None = None
    """In the last layer, the module from whose inputs on only the first token counts, as the head reads no other;
    relative to a layer, None where the head reads more."""
    reads_last: bool = False
    """Whether the head reads the last real token, as decoders' do; others read the first, or a pooler's output."""
    reserved_positions: int = 0
    """Position embeddings that no token can use: RoBERTa counts positions from padding_idx + 1."""


BERT = Architecture(
    base="bert",
    embedding="embeddings.dropout",
    layers="encoder.layer",
    attention="attention.self",
    attention_rate="dropout",
    attention_output="attention.output.dropout",
    feed_forward="output.dropout",
    head=("dropout",),
    narrow="attention.output",
)


def _like_bert(base: str, **changes: object) -> Architecture:
    return Architecture(**{**BERT.__dict__, "base": base, **changes})


_ROBERTA_HEAD = {"head": ("classifier.dropout", "dropout")}  # sequence classification, multiple choice
_LLAMA = Architecture(
    base="model",
    embedding="embed_tokens",
    layers="layers",
    attention="self_attn",
    attention_rate="attention_dropout",
    attention_output=None,
    feed_forward="mlp",
    added=frozenset({"embedding", "feed_forward"}),
    reads_last=True,
)

# config.model_type -> row
ARCHITECTURES: dict[str, Architecture] = {
    "bert": BERT,
    "roberta": _like_bert("roberta", reserved_positions=2, **_ROBERTA_HEAD),
    "xlm-roberta": _like_bert("roberta", reserved_positions=2, **_ROBERTA_HEAD),
    "electra": _like_bert("electra", **_ROBERTA_HEAD),
    "distilbert": Architecture(
        base="distilbert",
        embedding="embeddings.dropout",
        layers="transformer.layer",
        attention="attention",
        attention_rate="dropout",
        attention_output=None,
        feed_forward="ffn.dropout",
        head=("dropout",),
        narrow="sa_layer_norm",
    ),
    "albert": Architecture(
        base="albert",
        embedding="embeddings.dropout",
        layers="encoder.albert_layer_groups.*.albert_layers",
        attention="attention",
        attention_rate="attention_dropout",
        attention_output="attention.output_dropout",
        feed_forward="ffn_output",
        head=("dropout",),
        added=frozenset({"feed_forward"}),
    ),
    "deberta-v2": _like_bert(
        "deberta",
        head=("pooler.dropout", "dropout"),
        interface=False,
        value="attention.self.value_proj",
        position="attention.self.pos_dropout",
        convolution="encoder.conv.dropout",
        narrow=None,
    ),
    "mpnet": _like_bert(
        "mpnet",
        attention="attention.attn",
        attention_output="attention.dropout",
        interface=False,
        value="attention.attn.v",
        narrow="attention.LayerNorm",
        reserved_positions=2,
        **_ROBERTA_HEAD,
    ),
    "modernbert": Architecture(
        base="model",
        embedding="embeddings.drop",
        layers="layers",
        attention="attn",
        attention_rate="attention_dropout",
        attention_output="attn.out_drop",
        feed_forward="mlp.drop",
        head=("drop",),
    ),
    "gpt2": Architecture(
        base="transformer",
        embedding="drop",
        layers="h",
        attention="attn",
        attention_rate="attn_dropout",
        attention_output="attn.resid_dropout",
        feed_forward="mlp.dropout",
        reads_last=True,
    ),
    "llama": _LLAMA,
    "qwen2": _LLAMA,
    "qwen3": _LLAMA,
}
