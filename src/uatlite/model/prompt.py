"""A causal language model as a classifier by its label words, with no training: its head, and its template.

logits[label] = W[label word] · h,  h the last token of "Review: {text}\\nSentiment:", W the output embedding

The head is rows of W, so its logits are the language model's own for the same tokens. The template becomes the
tokenizer's post-processor, which sets its tokens around those of a text: so a long text is cut and the template is not,
each window has all of it, its tokens are no words of the text, and tokenizer.json keeps it.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

from uatlite.errors import ConfigurationError, ModelError
from uatlite.model.architectures import architecture_of, architectures
from uatlite.model.tokens import PAIR_MARK, PROMPT, TEXT_MARK

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

_FILLER = "the"
"""Stands for a text while the template is tokenized: a word that tokenizers do not join to a mark beside it."""


@dataclass(frozen=True)
class LabelPrompt:
    """What a language model is asked about a text, and the words by which it answers.

    `template` holds `{text}`, and `{text_pair}` where texts are pairs. `labels` are words, or by the name of each label
    its words: {"positive": ["good", "great"], "negative": "bad"}. The logit of a label is the mean of its words'; a
    word of several tokens is read at its first one. With `chat` the template is what a user says, in the chat template
    of the tokenizer.
    """

    template: str
    labels: Sequence[str] | Mapping[str, str | Sequence[str]]
    chat: bool = False

    def __post_init__(self) -> None:
        before, text, after = str(self.template).partition(TEXT_MARK)
        if not text or TEXT_MARK in after or PAIR_MARK in before or after.count(PAIR_MARK) > 1:
            raise ConfigurationError(
                f"the template {self.template!r} must hold {TEXT_MARK} once, where the text goes, and may hold "
                f"{PAIR_MARK} once after it; as in 'Review: {TEXT_MARK}\\nSentiment:'."
            )
        if isinstance(self.labels, str) or not 2 <= len(self.words) == len(self.labels):
            raise ConfigurationError(
                f"labels={self.labels!r} are not two or more different labels; give their words, as in "
                "['negative', 'positive'], or the words of each: {'negative': ['bad', 'awful'], 'positive': 'good'}."
            )

    @classmethod
    def spelt(cls, template: str, labels: str, *, chat: bool = False) -> LabelPrompt:
        """As on a command line: \\n is a line break, and labels are 'negative,positive' or '0=bad|awful,1=good'."""
        named = [entry.strip().partition("=") for entry in labels.split(",")]
        words = {name: tuple((given if sign else name).split("|")) for name, sign, given in named}
        names = [name for name, *_ in named]
        return cls(template.replace("\\n", "\n"), words if len(words) == len(names) else names, chat)

    @property
    def words(self) -> dict[str, tuple[str, ...]]:
        """The words of each label."""
        given = self.labels if isinstance(self.labels, Mapping) else {label: label for label in self.labels}
        return {label: (words,) if isinstance(words, str) else tuple(words) for label, words in given.items()}

    def classifier(
        self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase
    ) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
        """A sequence classifier around the layers of a causal language model, which stays as it is, and a tokenizer
        that sets the template around each text."""
        import torch
        from transformers import AutoModelForSequenceClassification

        if not architecture_of(model).reads_last or (embedding := model.get_output_embeddings()) is None:
            decoders = ", ".join(name for name, row in architectures().items() if row.reads_last)
            raise ModelError(f"{type(model).__name__} is no causal language model; a prompt asks one of {decoders}.")
        weight = embedding.weight.detach()
        prompted, tokens = self._tokenizer(tokenizer, len(weight))
        config = copy.deepcopy(model.config)
        config.id2label, config.label2id = dict(enumerate(tokens)), {label: i for i, label in enumerate(tokens)}
        config.pad_token_id, config.problem_type = prompted.pad_token_id, None
        with torch.device("meta"):  # the weights that it would draw at random are never made
            classifier: PreTrainedModel = AutoModelForSequenceClassification.from_config(config)
        setattr(classifier, classifier.base_model_prefix, model.base_model)
        rows = torch.stack([weight[ids].float().mean(dim=0) for ids in tokens.values()])
        classifier.score.weight = torch.nn.Parameter(rows)
        classifier.training = False  # eval() would reach into the user's model
        return classifier, prompted

    def _tokenizer(
        self, tokenizer: PreTrainedTokenizerBase, vocabulary: int
    ) -> tuple[PreTrainedTokenizerBase, dict[str, list[int]]]:
        """The tokenizer with the template, and the token of each word of each label."""
        from tokenizers import Tokenizer
        from transformers import PreTrainedTokenizerFast

        if not tokenizer.is_fast:
            raise ModelError(f"{type(tokenizer).__name__} is a slow tokenizer; a prompt needs a fast one.")
        inner = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
        inner.no_truncation()
        inner.no_padding()
        string = self._string(tokenizer)
        tokens = self._label_tokens(inner, string)
        _set_template(inner, string, special=not self.chat)
        names = {name: str(token) for name, token in tokenizer.special_tokens_map.items() if isinstance(token, str)}
        marks = [names[name] for name in ("pad_token", "eos_token", "unk_token") if name in names]
        padding = next((mark for mark in marks if (inner.token_to_id(mark) or 0) < vocabulary), None)
        if padding is None:
            raise ModelError("the tokenizer has no token to pad with that the model knows; set tokenizer.pad_token.")
        shown = {label: inner.decode(ids) for label, ids in tokens.items()}
        prompted = PreTrainedTokenizerFast(
            tokenizer_object=inner,
            **{**names, "pad_token": padding},
            model_input_names=["input_ids", "attention_mask"],
            model_max_length=tokenizer.model_max_length,
            truncation_side=tokenizer.truncation_side,
            split_special_tokens=True,  # a text cannot end the user's turn
            **{PROMPT: {"template": self.template, "chat": self.chat, "labels": shown}},
        )
        return prompted, tokens

    def _string(self, tokenizer: PreTrainedTokenizerBase) -> str:
        """What the model reads, with the placeholders; a space at the end belongs to the label words."""
        if not self.chat:
            return self.template.rstrip(" ")
        if tokenizer.chat_template is None:
            raise ConfigurationError("the tokenizer has no chat template; leave chat away, and write the whole prompt.")
        turn = [{"role": "user", "content": self.template}]
        return str(tokenizer.apply_chat_template(turn, tokenize=False, add_generation_prompt=True)).rstrip(" ")

    def _label_tokens(self, inner: Tokenizer, string: str) -> dict[str, list[int]]:
        """The first token of each word of each label, as it follows the template; an error where two share one."""
        filled = _FILLER.join(_pieces(string))
        start = inner.encode(filled, add_special_tokens=False).ids
        space = "" if string[-1].isspace() else " "
        unknown = inner.token_to_id(getattr(inner.model, "unk_token", None) or "")
        tokens: dict[str, list[int]] = {}
        label_of: dict[int, tuple[str, str]] = {}
        for label, words in self.words.items():
            tokens[label] = []
            for word in words or ("",):
                ids = inner.encode(filled + space + word.strip(), add_special_tokens=False).ids
                joined, ids = ids[: len(start)] != start, ids[len(start) :]
                if joined or unknown in ids or not inner.decode(ids[:1]).strip():
                    raise ConfigurationError(
                        f"{word!r}, a word of the label {label!r}, is no token of this model after {string[-20:]!r}; "
                        "give another word, or let the template end in a colon or a line break."
                    )
                other, other_word = label_of.setdefault(ids[0], (label, word))
                if other != label:
                    raise ConfigurationError(
                        f"{other_word!r} of the label {other!r} and {word!r} of {label!r} begin with the same token, "
                        f"{inner.decode(ids[:1]).strip()!r}, by which they would be read; give one of them another "
                        f"word, as in '{label}=other word'."
                    )
                tokens[label].append(ids[0])
        return tokens


def _pieces(string: str) -> list[str]:
    """The template before, between and after the texts."""
    return string.replace(PAIR_MARK, TEXT_MARK).split(TEXT_MARK)


def _set_template(inner: Tokenizer, string: str, *, special: bool) -> None:
    """Let a tokenizer set the template around each text; with `special` also the special tokens that it begins with."""
    from tokenizers import Tokenizer, processors
    from tokenizers.normalizers import Prepend, Sequence

    pieces, filled = _pieces(string), _FILLER.join(_pieces(string))
    ends = [end - len(_FILLER) for end in accumulate(len(piece) + len(_FILLER) for piece in pieces)]
    around: list[list[int]] = [[] for _ in pieces]
    fillers: list[list[int]] = [[] for _ in pieces[1:]]
    encoding = inner.encode(filled, add_special_tokens=special)
    i = 0
    for token, (start, stop), added in zip(encoding.ids, encoding.offsets, encoding.special_tokens_mask, strict=True):
        i += start >= ends[i] + len(_FILLER)
        last = i == len(fillers)
        if added or last or stop <= ends[i]:
            around[i] += [] if added and last else [token]  # the answer does not follow an end-of-text token
        elif filled[start:stop].strip() in _FILLER:
            fillers[i].append(token)
        else:
            raise ConfigurationError(
                f"the template {string!r} runs into the text: {filled[start:stop]!r} is one token. Put a space or a "
                "line break before and after each placeholder."
            )
    spaced = Tokenizer.from_str(inner.to_str())
    spaced.normalizer = Sequence([Prepend(" "), *([inner.normalizer] if inner.normalizer else [])])
    # A space before the text belongs to its first token, as it does in the whole string.
    alone, after_space = (fillers.count(way.encode(_FILLER, add_special_tokens=False).ids) for way in (inner, spaced))
    if after_space and after_space >= alone:
        inner.normalizer = spaced.normalizer
    names = [f"template {i}" for i in range(len(pieces))]
    single, pair = [names[0], "$A", names[-1]], [names[0], "$A", *names[1:-1], "$B", names[-1]]
    tokens = [{"id": name, "ids": ids, "tokens": [*map(inner.id_to_token, ids)]} for name, ids in zip(names, around)]  # noqa: B905
    inner.post_processor = processors.TemplateProcessing(single=single, pair=pair, special_tokens=tokens)
