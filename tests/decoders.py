"""Tiny causal language models, and tokenizers in the styles of their families, trained on a few sentences."""

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerFast

MARKS = ["<unk>", "<s>", "</s>", "<user>", "<bot>"]
CORPUS = ["Review: the film is good, a great one.\nSentiment: positive", "Review: bad!\nSentiment: negative"] * 9
SPLIT = Regex(r"(?i:'s|'t)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
"""How Qwen and Llama 3 split a text."""
BYTES = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
STYLES = {
    "gpt2": (pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()),
    "qwen": (pre_tokenizers.Sequence([pre_tokenizers.Split(SPLIT, "isolated"), BYTES]), decoders.ByteLevel()),
    "sentencepiece": (pre_tokenizers.Metaspace(), decoders.Metaspace()),
}
DECODERS = {
    "gpt2": {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 96},
    "llama": {"num_key_value_heads": 2, "head_dim": 8},
    "qwen2": {"num_key_value_heads": 2},
    "qwen3": {"num_key_value_heads": 2, "head_dim": 8},
}
SIZES = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
CHAT = "{% for turn in messages %}<user>{{ turn['content'] }}</s>{% endfor %}<bot>"


def tokenizer_of(style="gpt2", **settings):
    """A tokenizer of 320 tokens that begins texts with <s>, in the style of a family."""
    inner = Tokenizer(models.BPE(unk_token="<unk>"))
    inner.pre_tokenizer, inner.decoder = STYLES[style]
    alphabet = [] if style == "sentencepiece" else pre_tokenizers.ByteLevel.alphabet()
    inner.train_from_iterator(
        CORPUS, trainers.BpeTrainer(vocab_size=320, special_tokens=MARKS, initial_alphabet=alphabet)
    )
    inner.post_processor = processors.TemplateProcessing(single="<s> $A", pair="<s> $A $B", special_tokens=[("<s>", 1)])
    named = {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>", "chat_template": CHAT, **settings}
    return PreTrainedTokenizerFast(tokenizer_object=inner, **named)


def language_model(name, tokenizer, **settings):
    """A tiny causal language model of a family, with weights that differ."""
    sizes = {**({} if name == "gpt2" else {**SIZES, "max_position_embeddings": 96}), **DECODERS[name], **settings}
    config = AutoConfig.for_model(name, vocab_size=len(tokenizer), bos_token_id=1, eos_token_id=2, **sizes)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(config)
        for parameter in model.parameters():
            parameter.data.normal_(0, 0.25)
    return model.eval()
