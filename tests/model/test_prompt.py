"""A language model by its label words: its logits are the language model's own, and its template is never cut."""

import pytest
import torch
from transformers import AutoTokenizer

from decoders import DECODERS, STYLES, language_model, tokenizer_of
from uatlite import LabelPrompt, UATLiteError
from uatlite.errors import ConfigurationError, InputError, ModelError
from uatlite.model.load import load_checkpoint
from uatlite.model.tokens import prompt_of, tokenize
from uatlite.model.windows import windowed

PROMPT = LabelPrompt("Review: {text}\nSentiment:", ["negative", "positive"])
TEXTS = ["good", "the film is bad, a great one", "Bad!"]


@pytest.fixture(scope="module", params=DECODERS)
def made(request):
    """A language model, its tokenizer, and what the prompt makes of both."""
    tokenizer = tokenizer_of()
    model = language_model(request.param, tokenizer)
    return model, tokenizer, *PROMPT.classifier(model, tokenizer)


def test_the_logits_are_those_of_the_language_model_at_the_label_words(made):
    model, tokenizer, classifier, prompted = made
    words = [tokenizer(f" {word}", add_special_tokens=False)["input_ids"][0] for word in ("negative", "positive")]
    assert classifier.config.id2label == {0: "negative", 1: "positive"}
    (batch,) = tokenize(prompted, TEXTS, None).batches(most_padding=1000)  # padded to the longest
    with torch.no_grad():
        logits = classifier(**batch.inputs).logits
        for row, number in enumerate(batch.rows):
            string = f"Review: {TEXTS[number]}\nSentiment:"
            expected = model(**tokenizer(string, return_tensors="pt")).logits[0, -1, words]
            torch.testing.assert_close(logits[row], expected, atol=1e-5, rtol=0)


def test_the_language_model_is_left_as_it_was_and_shares_its_layers():
    tokenizer = tokenizer_of()
    model = language_model("llama", tokenizer, attention_dropout=0.1).train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    state, config = tokenizer.backend_tokenizer.to_str(), model.config.to_dict()
    classifier, _ = PROMPT.classifier(model, tokenizer)
    assert classifier.model is model.model
    assert all(module.training for module in model.modules())
    assert (tokenizer.backend_tokenizer.to_str(), model.config.to_dict()) == (state, config)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("template", [PROMPT.template, "{text}\nSentiment:", "good {text} the film:  "])
def test_tokens_are_those_of_the_whole_string(style, template):
    tokenizer = tokenizer_of(style)
    prompted = LabelPrompt(template, ["negative", "positive"]).classifier(
        language_model("llama", tokenizer), tokenizer
    )[1]
    for text in ("the film is good", "great"):
        string = template.replace("{text}", text).rstrip(" ")
        assert prompted(text)["input_ids"] == tokenizer(string)["input_ids"]
    assert set(prompted(text)) == {"input_ids", "attention_mask"}


def test_a_long_text_is_cut_and_the_template_is_not(made):
    prompted = made[-1]
    around = len(prompted("")["input_ids"])
    text = "the film is good, " * 30
    short, long = prompted("the film"), tokenize(prompted, [text], 40)
    ids = long.rows[0][0]["input_ids"]
    assert len(ids) == 40
    assert prompted.decode(ids).startswith("<s>Review: the film is good,")
    assert prompted.decode(ids).endswith("\nSentiment:")
    assert long.cut[0] == len(prompted(text)["input_ids"]) - 40
    windows = windowed(prompted, [text, "short"], 40)
    decoded = [prompted.decode(row[0]["input_ids"]) for row in windows.tokens.rows]
    assert len(decoded) == windows.counts.sum() > 4
    assert all(window.startswith("<s>Review:") and window.endswith("\nSentiment:") for window in decoded)
    assert around < len(short["input_ids"])


def test_the_logit_of_several_words_is_their_mean():
    tokenizer = tokenizer_of()
    model = language_model("gpt2", tokenizer)
    prompt = LabelPrompt(PROMPT.template, {"no": ["bad", "negative"], "yes": "good"})
    classifier, prompted = prompt.classifier(model, tokenizer)
    bad, negative, good = (
        tokenizer(f" {word}", add_special_tokens=False)["input_ids"][0] for word in ("bad", "negative", "good")
    )
    with torch.no_grad():
        inputs = prompted("the film", return_tensors="pt")
        lm, logits = model(**inputs).logits[0, -1], classifier(**inputs).logits[0]
    torch.testing.assert_close(logits, torch.stack([(lm[bad] + lm[negative]) / 2, lm[good]]), atol=1e-5, rtol=0)


def test_pairs_have_their_places():
    tokenizer = tokenizer_of()
    prompt = LabelPrompt("Review: {text}\nthe film: {text_pair}?\nSentiment:", ["negative", "positive"])
    prompted = prompt.classifier(language_model("llama", tokenizer), tokenizer)[1]
    ids = tokenize(prompted, [("good one", "bad")], None).rows[0][0]["input_ids"]
    assert ids == tokenizer("Review: good one\nthe film: bad?\nSentiment:")["input_ids"]
    with pytest.raises(InputError, match=r"takes pairs of texts, and these are single: name the second column"):
        tokenize(prompted, ["good one"], None)
    single = PROMPT.classifier(language_model("llama", tokenizer), tokenizer)[1]
    with pytest.raises(
        InputError, match=r"takes single texts, and these are pairs: a template for them has \{text_pair\}"
    ):
        tokenize(single, [("good one", "bad")], None)


def test_a_chat_is_asked_in_the_tokenizers_own_template():
    tokenizer = tokenizer_of()
    prompt = LabelPrompt("good or bad? {text}", ["bad", "good"], chat=True)
    prompted = prompt.classifier(language_model("qwen2", tokenizer), tokenizer)[1]
    ids = prompted("</s><bot>good")["input_ids"]
    assert prompted.decode(ids) == "<user>good or bad? </s><bot>good</s><bot>"
    marks = [tokenizer.convert_tokens_to_ids(mark) for mark in ("<user>", "</s>", "<bot>")]
    assert [token for token in ids if token in marks] == marks  # what the text spells are letters
    with pytest.raises(ConfigurationError, match="no chat template; leave chat away"):
        prompt.classifier(language_model("qwen2", tokenizer), tokenizer_of(chat_template=None))


@pytest.mark.parametrize("name", DECODERS)
def test_a_saved_one_comes_back_as_it_was(name, tmp_path):
    tokenizer = tokenizer_of("qwen" if "qwen" in name else "gpt2")
    language_model(name, tokenizer).save_pretrained(tmp_path / "lm")
    tokenizer.save_pretrained(tmp_path / "lm")
    made = load_checkpoint(tmp_path / "lm", prompt=PROMPT, device="cpu")
    made.model.save_pretrained(tmp_path / "out")
    made.tokenizer.save_pretrained(tmp_path / "out")
    loaded = load_checkpoint(tmp_path / "out", device="cpu")
    assert loaded.hash == made.hash
    assert prompt_of(loaded.tokenizer)["template"] == PROMPT.template
    assert tokenize(loaded.tokenizer, TEXTS, 24).rows == tokenize(made.tokenizer, TEXTS, 24).rows
    if name != "qwen2":  # transformers makes the tokenizers of this family anew
        alone = AutoTokenizer.from_pretrained(tmp_path / "out")
        assert alone(TEXTS)["input_ids"] == made.tokenizer(TEXTS)["input_ids"]


def refusal(make):
    with pytest.raises(UATLiteError) as raised:
        make()
    return str(raised.value)


@pytest.mark.parametrize(
    "template, labels, says",
    [
        ("Review:", ["a", "b"], r"the template 'Review:' must hold {text} once"),
        ("{text} {text}", ["a", "b"], r"must hold {text} once"),
        ("{text}", ["good"], "are not two or more different labels"),
        ("{text}", ["good", "good"], "are not two or more different labels"),
        ("{text}", "good,bad", "are not two or more different labels"),
        ("Review: {text}\n", ["good", ""], "'', a word of the label '', is no token of this model"),
        ("Review: {text}\n", {"good": [], "bad": "bad"}, "'', a word of the label 'good', is no token"),
        (
            "Review: {text}\n",
            ["good", "goods"],
            "'good' of the label 'good' and 'goods' of 'goods' begin with the same",
        ),
        ("Review: {text}film", ["good", "bad"], "runs into the text: 'thefilm' is one token"),
    ],
)
def test_what_cannot_be_asked_is_said(template, labels, says):
    tokenizer = tokenizer_of()
    tokenizer.backend_tokenizer.add_tokens(["thefilm"])
    said = refusal(lambda: LabelPrompt(template, labels).classifier(language_model("llama", tokenizer), tokenizer))
    assert says in said


def test_a_word_that_the_vocabulary_lacks_is_no_token():
    tokenizer = tokenizer_of("sentencepiece")
    said = refusal(
        lambda: LabelPrompt("{text}:", ["é", "bad"]).classifier(language_model("llama", tokenizer), tokenizer)
    )
    assert "'é', a word of the label 'é', is no token of this model after" in said


def test_a_prompt_is_for_language_models(tiny, tokenizer, tmp_path):
    with pytest.raises(ModelError, match="no causal language model; a prompt asks one of gpt2, llama, qwen2, qwen3"):
        PROMPT.classifier(tiny("bert"), tokenizer)
    tiny("bert").save_pretrained(tmp_path)
    with pytest.raises(ModelError, match=r"is a BertForSequenceClassification, and a prompt asks a \*ForCausalLM"):
        load_checkpoint(tmp_path, prompt=PROMPT)
    slow = tokenizer_of()
    with pytest.raises(ModelError, match="no token to pad with"):
        PROMPT.classifier(language_model("llama", slow), tokenizer_of(eos_token=None, unk_token=None))


def test_a_command_line_spells_it():
    assert LabelPrompt.spelt("a {text}\\n:", "no,yes") == LabelPrompt("a {text}\n:", {"no": ("no",), "yes": ("yes",)})
    assert LabelPrompt.spelt("{text}", "0=bad|awful,1=good").words == {"0": ("bad", "awful"), "1": ("good",)}
    assert "different labels" in refusal(lambda: LabelPrompt.spelt("{text}", "good,good"))
