"""sql-helper: a table's columns and a question in English become one SQLite query."""

import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from random import Random

from examples.data.task import Case, Task

INSTRUCTION = "Write one SQLite query that answers the question. Answer with the query only."
ROWS = 40
# Enough virtual-machine steps for any sensible query on ROWS rows; a runaway recursive query stops there.
STEP_LIMIT = 1_000_000

QUERIES: Mapping[str, str] = {
    "count": "SELECT COUNT(*) FROM {table} WHERE {category} = '{value}';",
    "over": "SELECT {label} FROM {table} WHERE {number} > {limit};",
    "under": "SELECT {label} FROM {table} WHERE {number} < {limit};",
    "average": "SELECT {category}, AVG({number}) FROM {table} GROUP BY {category};",
    "top": "SELECT {label} FROM {table} ORDER BY {number} DESC LIMIT {few};",
    "total": "SELECT SUM({number}) FROM {table} WHERE {category} = '{value}';",
}


@dataclass(frozen=True, slots=True)
class Table:
    """A table with an id, a text column that names the row, one with few values, and one of whole numbers."""

    name: str
    label: str
    category: str
    values: tuple[str, ...]
    number: str
    low: int
    high: int

    @property
    def schema(self) -> str:
        """The table as the prompt shows it, which is also what CREATE TABLE takes."""
        return f"{self.name}(id INTEGER, {self.label} TEXT, {self.category} TEXT, {self.number} INTEGER)"


@dataclass(frozen=True, slots=True)
class Words:
    """Tables to ask about, and wordings for each kind of query."""

    tables: tuple[Table, ...]
    wordings: Mapping[str, tuple[str, ...]]


TRAINING = Words(
    tables=(
        Table("orders", "customer", "city", ("Berlin", "Paris", "Rome", "Oslo"), "total", 10, 900),
        Table("employees", "name", "department", ("sales", "finance", "support"), "salary", 2000, 9000),
        Table("books", "title", "genre", ("poetry", "history", "crime"), "pages", 80, 900),
        Table("flights", "code", "airline", ("Aero", "Northair", "Blue Wing"), "delay", 0, 300),
        Table("products", "name", "brand", ("Acme", "Lumen", "Orbit"), "unit_price", 1, 500),
        Table("students", "name", "school", ("Hill", "Lakeside", "Central"), "grade", 1, 100),
        Table("movies", "title", "country", ("France", "Japan", "Brazil"), "length", 60, 240),
        Table("tickets", "subject", "status", ("open", "closed", "waiting"), "hours_spent", 1, 90),
        Table("hotels", "name", "region", ("coast", "alps", "islands"), "rooms", 8, 400),
        Table("songs", "title", "artist", ("Nova", "The Pines", "Lido"), "plays", 100, 9000),
        Table("invoices", "reference", "currency", ("EUR", "USD", "CHF"), "amount", 20, 5000),
        Table("plants", "species", "colour", ("green", "white", "purple"), "height", 5, 300),
        Table("machines", "serial", "factory", ("Lyon", "Graz", "Turin"), "error_count", 0, 80),
        Table("recipes", "title", "cuisine", ("thai", "greek", "mexican"), "minutes", 5, 180),
    ),
    wordings={
        "count": (
            "How many {table} have the {category} {value}?",
            "Count the {table} where {category} is {value}.",
            "How many {table} are there with {category} {value}?",
        ),
        "over": (
            "List the {label} of all {table} with a {number} above {limit}.",
            "Which {label} belongs to {table} whose {number} is greater than {limit}?",
            "Show the {label} of {table} where {number} is over {limit}.",
        ),
        "under": (
            "List the {label} of all {table} with a {number} below {limit}.",
            "Which {label} belongs to {table} whose {number} is less than {limit}?",
            "Show the {label} of {table} where {number} is under {limit}.",
        ),
        "average": (
            "What is the average {number} for each {category}?",
            "Show each {category} with its average {number}.",
            "Give the mean {number} per {category}.",
        ),
        "top": (
            "Which {few} {table} have the highest {number}? Give the {label}.",
            "Show the {label} of the top {few} {table} by {number}.",
            "List the {label} of the {few} {table} with the largest {number}.",
        ),
        "total": (
            "What is the total {number} of {table} with {category} {value}?",
            "Add up the {number} of all {table} where {category} is {value}.",
            "Give the sum of {number} for {table} with the {category} {value}.",
        ),
    },
)

HELD_OUT = Words(
    tables=(
        Table("cars", "model", "fuel", ("diesel", "electric", "hybrid"), "mileage", 1000, 90000),
        Table("patients", "surname", "ward", ("north", "south", "surgery"), "age", 1, 99),
        Table("parcels", "tracking_code", "carrier", ("Swift", "Postal One", "Relay"), "weight", 1, 70),
        Table("games", "name", "platform", ("desktop", "console", "mobile"), "play_time", 1, 400),
        Table("mountains", "peak", "chain", ("Andes", "Rockies", "Tatra"), "altitude", 900, 7000),
    ),
    wordings={
        "count": ("What is the number of {table} with {category} equal to {value}?",),
        "over": ("Find the {label} of every one of the {table} that has a {number} of more than {limit}.",),
        "under": ("Find the {label} of every one of the {table} that has a {number} lower than {limit}.",),
        "average": ("For every {category}, what is the mean {number}?",),
        "top": ("Name the {label} of the {few} {table} that have the greatest {number}.",),
        "total": ("How much {number} do the {table} with {category} {value} have in total?",),
    },
)

TABLES = {table.schema: table for table in TRAINING.tables + HELD_OUT.tables}


def write(random: Random, words: Words) -> Case:
    """One question about one table; column names are spelt with spaces in the question."""
    table, kind = random.choice(words.tables), random.choice(list(QUERIES))
    names = {"table": table.name, "label": table.label, "category": table.category, "number": table.number}
    literals = {
        "value": random.choice(table.values),
        "limit": random.randint(table.low, table.high),
        "few": random.randint(2, 9),
    }
    spoken = {key: name.replace("_", " ") for key, name in names.items()}
    question = random.choice(words.wordings[kind]).format(**spoken, **literals)
    query = QUERIES[kind].format(**names, **literals)
    return Case(f"{INSTRUCTION}\nTable: {table.schema}\nQuestion: {question}", query)


def score(case: Case, answer: str) -> float:
    """1.0 if the whole answer is a query that gives the expected query's rows, else 0.0.

    Rows are compared in order only where the expected query orders them.
    """
    schema = case.prompt.split("\nTable: ")[1].split("\nQuestion: ")[0]
    try:
        rows, expected = _rows(TABLES[schema], answer), _rows(TABLES[schema], case.expected)
    except (sqlite3.Error, sqlite3.Warning):
        return 0.0
    if "ORDER BY" in case.expected:
        return float(rows == expected)
    return float(sorted(rows, key=repr) == sorted(expected, key=repr))


def _rows(table: Table, query: str) -> list[tuple[object, ...]]:
    """Run a query that may only read, in a fresh database in memory."""
    random = Random(table.name)
    numbers = random.sample(range(table.low, table.high + 1), k=ROWS)
    connection = sqlite3.connect(":memory:")
    try:
        connection.execute(f"CREATE TABLE {table.schema}")
        connection.executemany(
            f"INSERT INTO {table.name} VALUES (?, ?, ?, ?)",
            [(i, f"{table.label} {i}", random.choice(table.values), number) for i, number in enumerate(numbers)],
        )
        connection.set_authorizer(_only_reads)
        connection.set_progress_handler(lambda: 1, STEP_LIMIT)
        return connection.execute(query).fetchall()
    finally:
        connection.close()


def _only_reads(action: int, *_: str | None) -> int:
    reading = action in (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION)
    return sqlite3.SQLITE_OK if reading else sqlite3.SQLITE_DENY


TASK = Task("sql-helper", TRAINING, HELD_OUT, write, score, max_tokens=48)
