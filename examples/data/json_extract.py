"""json-extract: an order e-mail becomes a JSON object with four fixed keys."""

import json
from dataclasses import dataclass
from random import Random

from examples.data.task import Case, Task

INSTRUCTION = (
    "Extract the order from this e-mail as one JSON object with the keys customer, product, quantity and city. "
    "Answer with the JSON only."
)
NUMBER_WORDS = {"two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9, "ten": 10}


@dataclass(frozen=True, slots=True)
class Words:
    """The parts an e-mail is put together from; an e-mail has the fields customer, product, quantity and city."""

    first_names: tuple[str, ...]
    last_names: tuple[str, ...]
    products: tuple[str, ...]
    cities: tuple[str, ...]
    emails: tuple[str, ...]


TRAINING = Words(
    first_names=tuple(
        "Anna Ben Carla David Elena Felix Greta Hugo Irene Jonas Karin Liam Maria Nils Olga Paul Rosa Simon Tara Uwe "
        "Vera Walter Yara Zoe Amir Bianca Chen Diego Esther Farid".split()
    ),
    last_names=tuple(
        "Schmidt Moreau Rossi Novak Jensen Kowalski Silva Papadopoulos Nagy Larsen Dubois Weber Costa Horvat Virtanen "
        "Peeters Ivanova Murphy Taylor Tanaka Okafor Haddad Mehta Nguyen Castro".split()
    ),
    products=(
        "desk lamps",
        "water bottles",
        "red notebooks",
        "office chairs",
        "coffee mugs",
        "garden hoses",
        "wool blankets",
        "phone cases",
        "steel pans",
        "paper towels",
        "running shoes",
        "wall clocks",
        "cotton shirts",
        "tea kettles",
        "bike helmets",
        "yoga mats",
        "blue umbrellas",
        "travel bags",
        "toy trains",
        "picture frames",
        "ink cartridges",
        "bath towels",
        "rain coats",
        "kitchen scales",
        "white candles",
        "leather belts",
        "flower pots",
        "hand drills",
    ),
    cities=tuple(
        "Berlin Paris Rome Madrid Lisbon Vienna Prague Warsaw Dublin Oslo Athens Budapest Brussels Zagreb Helsinki "
        "Hamburg Milan Lyon Porto Krakow Boston Denver Toronto Osaka".split()
    ),
    emails=(
        "Hello, I would like to order {quantity} {product}. Please ship them to {city}. Thanks, {customer}",
        "Hi, this is {customer} from {city}. Please send me {quantity} {product}.",
        "Dear team, {customer} here. We need {quantity} {product} at our office in {city}.",
        "Please deliver {quantity} {product} to {city}. The order is for {customer}.",
        "Good morning, could you reserve {quantity} {product} for me? My name is {customer} and I live in {city}.",
        "Order request: {quantity} {product}. Name: {customer}. Ship to: {city}.",
        "My shop in {city} has run out of {product}, please send {quantity}. Best, {customer}",
        "I am writing from {city} to buy {quantity} {product}. Kind regards, {customer}",
        "{customer} asks for {quantity} {product}, to be delivered in {city} next week.",
        "Can I still get {quantity} {product} before Friday? I am in {city}. Yours, {customer}",
    ),
)

HELD_OUT = Words(
    first_names=tuple("Otto Mina Pavel Sofia Kofi Laura Emil Nadia Ravi Clara Bruno Ines".split()),
    last_names=tuple("Bergman Lopez Fischer Adeyemi Marino Suzuki Clarke Petrov Lindqvist Romero Khan Bauer".split()),
    products=(
        "green backpacks", "desk fans", "glass vases", "winter gloves", "soup bowls", "garden chairs", "silk scarves",
        "alarm clocks", "oak shelves", "chess sets", "camping stoves", "reading glasses",
    ),
    cities=tuple("Munich Seville Naples Geneva Utrecht Bergen Gdansk Chicago Kyoto Nairobi Cork Antwerp".split()),
    emails=(
        "Hey, {customer} speaking. I want to buy {quantity} {product}; the address is in {city}.",
        "To the sales desk: we would be glad to receive {quantity} {product} in {city}. Signed, {customer}",
        "We are opening a cafe in {city} and are looking for {quantity} {product}. Cheers, {customer}",
        "Do you have {product}? I'd take {quantity}, delivered to {city}. Greetings from {customer}",
        "For {customer}: {quantity} {product}, destination {city}, as discussed on the phone.",
    ),
)  # fmt: skip


def write(random: Random, words: Words) -> Case:
    """One e-mail; the quantity is written in digits or as a word, the JSON always has the number."""
    customer = f"{random.choice(words.first_names)} {random.choice(words.last_names)}"
    product, city = random.choice(words.products), random.choice(words.cities)
    word = random.choice(list(NUMBER_WORDS))
    digits = random.randint(2, 60)
    written, quantity = random.choice([(word, NUMBER_WORDS[word]), (str(digits), digits)])
    email = random.choice(words.emails).format(customer=customer, product=product, quantity=written, city=city)
    order = {"customer": customer, "product": product, "quantity": quantity, "city": city}
    return Case(f"{INSTRUCTION}\n\n{email}", json.dumps(order))


def score(case: Case, answer: str) -> float:
    """1.0 if the whole answer is JSON equal to the expected object, else 0.0."""
    try:
        return float(json.loads(answer) == json.loads(case.expected))
    except json.JSONDecodeError:
        return 0.0


TASK = Task("json-extract", TRAINING, HELD_OUT, write, score, max_tokens=64)
