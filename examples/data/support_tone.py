"""support-tone: a customer's complaint becomes a short reply in one house style."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from random import Random

from examples.data.task import Case, Task

SIGNATURE = "Kind regards,\nThe Harbour Lane team"
INSTRUCTION = (
    'Reply to this customer in our style, five lines: "Hi" and the first name; one sentence that says sorry and names '
    'the product; "Next step:" with the order number; "Kind regards,"; "The Harbour Lane team".'
)
ORDER_NUMBER = re.compile(r"[A-Z]{2}-\d{4}")

NEXT_STEPS: Mapping[str, str] = {
    "late": "we trace the parcel of order {order} and write to you today.",
    "damaged": "we send you a replacement for order {order} at no cost.",
    "wrong": "we send the right item for order {order} and collect the other one.",
    "overcharged": "we check the payment of order {order} and refund the difference.",
}
APOLOGIES: Mapping[str, str] = {
    "late": "I am sorry that your {product} is late.",
    "damaged": "I am sorry that your {product} arrived damaged.",
    "wrong": "I am sorry that you did not get the {product} you ordered.",
    "overcharged": "I am sorry that we charged you too much for your {product}.",
}


@dataclass(frozen=True, slots=True)
class Words:
    """The parts a complaint is put together from; problems are keyed like NEXT_STEPS."""

    names: tuple[str, ...]
    products: tuple[str, ...]
    order_prefixes: tuple[str, ...]
    problems: Mapping[str, tuple[str, ...]]
    messages: tuple[str, ...]


TRAINING = Words(
    names=tuple(
        "Anna Ben Carla David Elena Felix Greta Hugo Irene Jonas Karin Liam Maria Nils Olga Paul Rosa Simon Tara Uwe "
        "Vera Walter Yara Zoe Amir Bianca Chen Diego Esther Farid".split()
    ),
    products=tuple(
        "lamp, kettle, blanket, backpack, desk chair, headphones, tea set, raincoat, bookshelf, toaster, wall clock, "
        "suitcase, mirror, keyboard, carpet, bicycle helmet, frying pan, winter coat, plant pot, camera bag".split(", ")
    ),
    order_prefixes=("AB", "KL", "MX", "RT", "QZ", "HJ"),
    problems={
        "late": (
            "the {product} was promised for Monday and is still not here",
            "I have been waiting three weeks for the {product}",
            "the {product} has not arrived yet",
            "there is no sign of the {product}, and tracking has not moved for days",
        ),
        "damaged": (
            "the {product} came with a big crack",
            "the {product} was broken when I opened the box",
            "the {product} is scratched all over",
            "the {product} stopped working on the first day",
        ),
        "wrong": (
            "I ordered the {product} in blue and you sent me the red one",
            "I got somebody else's things and not my {product}",
            "the box holds something quite different from the {product} I chose",
            "you sent the {product} in the wrong size",
        ),
        "overcharged": (
            "I paid twice for the {product}",
            "the invoice for the {product} is higher than the price on your site",
            "my discount was not taken off the price of the {product}",
            "my card was charged too much for the {product}",
        ),
    },
    messages=(
        "This is {name}. Order {order}: {problem}. Not happy!",
        "Hello, my name is {name} and {problem}. My order number is {order}.",
        "{problem}, order {order}. Please do something. {name}",
        "I am really disappointed, {problem}. Order number {order}, regards, {name}.",
        "Dear team, about order {order}: {problem}. What now? Best, {name}",
    ),
)

HELD_OUT = Words(
    names=tuple("Otto Mina Pavel Sofia Kofi Laura Emil Nadia Ravi Clara Bruno Ines".split()),
    products=tuple("sofa, guitar, tent, coffee grinder, scarf, printer, picnic basket, night light".split(", ")),
    order_prefixes=("DG", "WN", "PV"),
    problems={
        "late": (
            "my {product} should have been delivered ten days ago",
            "nobody has brought the {product}, and I am still waiting for it",
        ),
        "damaged": (
            "one corner of the {product} is smashed",
            "the {product} fell apart as soon as I unpacked it",
        ),
        "wrong": (
            "instead of the {product} I found a different article in the parcel",
            "this is not the colour of {product} that I ordered",
        ),
        "overcharged": (
            "you took the money for the {product} two times",
            "the {product} cost me more than what you advertise",
        ),
    },
    messages=(
        "{name} here, with a question on {order}. Why is it that {problem}?",
        "To whom it may concern: {problem}. I want this solved. {name}, order {order}",
        "I shop with you often, but now {problem}. See {order}. Thank you, {name}",
    ),
)


def write(random: Random, words: Words) -> Case:
    """One complaint with a name, an order number, a product and a problem."""
    name, product = random.choice(words.names), random.choice(words.products)
    order = f"{random.choice(words.order_prefixes)}-{random.randint(1000, 9999)}"
    kind = random.choice(list(NEXT_STEPS))
    problem = random.choice(words.problems[kind]).format(product=product)
    message = random.choice(words.messages).format(name=name, order=order, problem=problem)
    apology, step = APOLOGIES[kind].format(product=product), NEXT_STEPS[kind].format(order=order)
    reply = f"Hi {name},\n{apology}\nNext step: {step}\n{SIGNATURE}"
    return Case(f"{INSTRUCTION}\n\n{message[0].upper()}{message[1:]}", reply)


def score(case: Case, answer: str) -> float:
    """The share of the five marks of the house style that the answer bears, 0.0 to 1.0.

    The marks: the greeting, sorry for the product the reference names, the right order after "Next step:",
    the signature at the end, and five lines in all. The choice of words is free.
    """
    lines = answer.strip().splitlines()
    greeting, apology, step, *_ = case.expected.splitlines()
    product = _product(apology)
    order = ORDER_NUMBER.findall(step)
    marks = (
        lines[:1] == [greeting],
        any("sorry" in line.lower() and product in line for line in lines),
        any(line.startswith("Next step:") and ORDER_NUMBER.findall(line) == order for line in lines),
        answer.strip().endswith(SIGNATURE),
        len(lines) == 5,
    )
    return sum(marks) / len(marks)


def _product(apology: str) -> str:
    products = [product for product in TRAINING.products + HELD_OUT.products if product in apology]
    return max(products, key=len)


TASK = Task("support-tone", TRAINING, HELD_OUT, write, score, max_tokens=96)
