"""sentiment: a product review becomes one word, positive, negative or neutral."""

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random

from examples.data.task import Case, Task

INSTRUCTION = "Is this review positive, negative or neutral? Answer with one word."


@dataclass(frozen=True, slots=True)
class Words:
    """A review is an opinion on a product, then a detail; both are keyed by label."""

    products: tuple[str, ...]
    opinions: Mapping[str, tuple[str, ...]]
    details: Mapping[str, tuple[str, ...]]


TRAINING = Words(
    products=tuple(
        "lamp, kettle, blanket, backpack, chair, speaker, tea set, raincoat, bookshelf, toaster, clock, suitcase, "
        "mirror, keyboard, carpet, helmet, pan, coat, watch, camera, phone, pillow, drill, bottle".split(", ")
    ),
    opinions={
        "positive": (
            "I love this {product}.",
            "The best {product} I have ever had.",
            "What a wonderful {product}!",
            "I am very happy with the {product}.",
            "This {product} is excellent.",
            "A great {product} for the price.",
            "The {product} is even better than I hoped.",
            "I would buy this {product} again at once.",
            "Five stars for this {product}.",
            "The {product} is a pleasure to use every day.",
            "This {product} made my life easier.",
            "I can warmly recommend the {product}.",
        ),
        "negative": (
            "I hate this {product}.",
            "The worst {product} I have ever had.",
            "What a terrible {product}!",
            "I am very unhappy with the {product}.",
            "This {product} is useless.",
            "A poor {product} for the price.",
            "The {product} is far worse than I feared.",
            "I would never buy this {product} again.",
            "One star for this {product}.",
            "The {product} is a pain to use every day.",
            "This {product} made my life harder.",
            "I have to warn everyone about the {product}.",
        ),
        "neutral": (
            "The {product} is okay.",
            "An average {product}.",
            "The {product} does its job, nothing more.",
            "This {product} is neither good nor bad.",
            "A plain {product} at a plain price.",
            "I have no strong opinion on the {product}.",
            "The {product} is as described.",
            "Three stars for this {product}.",
            "The {product} has good sides and bad sides.",
            "This {product} is much like any other.",
            "The {product} is acceptable.",
            "It is just a {product}.",
        ),
    },
    details={
        "positive": (
            "It works perfectly.",
            "The quality is superb.",
            "It looks beautiful.",
            "Delivery was quick and friendly.",
            "It still works like new after a year.",
            "My whole family enjoys it.",
            "Everything about it is well made.",
            "It was worth every cent.",
            "Service was kind and helpful.",
            "It is light, strong and easy to clean.",
        ),
        "negative": (
            "It broke after two days.",
            "The quality is awful.",
            "It looks cheap and ugly.",
            "Delivery took forever.",
            "It makes a horrible noise.",
            "I asked for my money back.",
            "Nothing about it is well made.",
            "It was a waste of money.",
            "Service was rude and slow.",
            "It is heavy, weak and hard to clean.",
        ),
        "neutral": (
            "It works most of the time.",
            "The quality is average.",
            "It looks like the picture.",
            "Delivery took the usual time.",
            "It is used now and then.",
            "I might keep it or give it away.",
            "Some parts are nice and some are not.",
            "The price is normal.",
            "Service was neither fast nor slow.",
            "It is not special, but it is not a problem.",
        ),
    },
)

HELD_OUT = Words(
    products=tuple("tent, guitar, printer, scarf, grinder, heater, wallet, router".split(", ")),
    opinions={
        "positive": (
            "So glad I bought the {product}!", "An amazing {product}, truly.", "The {product} is fantastic.",
            "My new {product} is a real joy.",
        ),
        "negative": (
            "I regret buying the {product}.", "A dreadful {product}, truly.", "The {product} is rubbish.",
            "My new {product} is a real letdown.",
        ),
        "neutral": (
            "The {product} is all right, I suppose.", "A fairly ordinary {product}.",
            "The {product} is so-so.", "My new {product} is nothing remarkable, but it will do.",
        ),
    },
    details={
        "positive": (
            "It exceeded my expectations.", "I use it with delight.", "Brilliant design and it lasts.",
        ),
        "negative": (
            "It stopped working within a week.", "I am so disappointed.", "Bad design and it fell apart.",
        ),
        "neutral": (
            "It met the basic needs.", "I use it sometimes.", "Some things could be better, others are fine.",
        ),
    },
)  # fmt: skip


def write(random: Random, words: Words) -> Case:
    """One review of two sentences, in either order."""
    label = random.choice(list(words.opinions))
    opinion = random.choice(words.opinions[label]).format(product=random.choice(words.products))
    sentences = [opinion, random.choice(words.details[label])]
    random.shuffle(sentences)
    return Case(f"{INSTRUCTION}\n\n{' '.join(sentences)}", label)


def score(case: Case, answer: str) -> float:
    """1.0 if the whole answer is the label, whatever its case and with or without a full stop, else 0.0."""
    return float(answer.strip().removesuffix(".").lower() == case.expected)


TASK = Task("sentiment", TRAINING, HELD_OUT, write, score, max_tokens=8)
