"""Loading and unloading over HTTP: stale state (field case 22), races (23), unload in use (25), refusals that leave
nothing (17, 19, 20), who may do it."""

import shutil
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.support.adapters import marker_adapter, random_adapter
from tests.support.servers import ADMIN, BASE, serving

PROMPT = "The quick brown fox jumps over the lazy dog. " * 4


def greedy(served, model: str, **body) -> dict:
    response = served.complete(model=model, prompt=PROMPT, max_tokens=16, logprobs=1, ignore_eos=True, **body)
    assert response.status_code == 200, response.text
    return response.json()


def same(got: dict, expected: dict) -> bool:
    logprobs = [answer["choices"][0]["logprobs"] for answer in (got, expected)]
    values = zip(*(entry["token_logprobs"] for entry in logprobs), strict=True)
    return logprobs[0]["tokens"] == logprobs[1]["tokens"] and all(abs(a - b) < 1e-4 for a, b in values)


@pytest.fixture(scope="module")
def pair(random_base, tmp_path_factory):
    """Two adapters that write other keys and values, and what each gives on a server that never saw another."""
    root = tmp_path_factory.mktemp("pair")
    folders = [
        random_adapter(root / name, random_base, targets=("k_proj", "v_proj"), rank=8, alpha=32, seed=seed)
        for seed, name in enumerate("ab")
    ]
    answers = []
    for folder in folders:
        with serving(random_base, {"x": folder}) as served:
            answers.append(greedy(served, "x"))
    assert not same(*answers)
    return root, folders, answers


@pytest.mark.parametrize("in_between", [True, False])
def test_a_name_with_new_weights_never_meets_old_state(random_base, pair, in_between) -> None:
    root, folders, answers = pair
    with serving(random_base, roots=(root,)) as served:
        seen: set[int] = set()
        for which in (0, 0, 1, 0, 1):
            if in_between:
                served.unload("x")
            assert served.load("x", folders[which], load_inplace=True).status_code == 200
            got = greedy(served, "x")
            cached = got["usage"]["prompt_tokens_details"]["cached_tokens"]
            assert same(got, answers[which])
            # A hit is right only for bytes that were here before.
            assert (cached > 0) == (which in seen)
            seen.add(which)


def test_the_scale_is_part_of_the_identity(random_base, tmp_path) -> None:
    weak = random_adapter(tmp_path / "weak", random_base, alpha=4, seed=1)
    strong = random_adapter(tmp_path / "strong", random_base, alpha=32, seed=1)
    assert (weak / "adapter_model.safetensors").read_bytes() == (strong / "adapter_model.safetensors").read_bytes()
    with serving(random_base, roots=(tmp_path,)) as served:
        served.load("x", weak)
        first = greedy(served, "x")
        assert served.load("x", strong, load_inplace=True).status_code == 200
        second = greedy(served, "x")
        assert not same(first, second)
        assert second["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
        numbers = served.http.get("/v1/models/x").json()["number"]
        assert numbers == 2


def test_the_same_load_many_times_at_once(random_base, pair) -> None:
    root, folders, answers = pair
    with serving(random_base, roots=(root,)) as served, ThreadPoolExecutor(16) as pool:
        quiet = greedy(served, BASE)
        streams = [pool.submit(greedy, served, BASE) for _ in range(4)]
        replies = list(pool.map(lambda _: served.load("x", folders[0]).status_code, range(12)))
        assert replies.count(200) == 1 and replies.count(409) == 11
        assert served.engine.stats().adapters_loaded == 1
        assert [card["id"] for card in served.http.get("/v1/models").json()["data"]].count("x") == 1
        assert all(same(stream.result(), quiet) for stream in streams)
        assert same(greedy(served, "x"), answers[0])


def test_two_loads_of_one_name_at_once_end_as_one_of_them(random_base, pair) -> None:
    root, folders, answers = pair
    with serving(random_base, roots=(root,)) as served, ThreadPoolExecutor(2) as pool:
        for _ in range(10):
            jobs = [pool.submit(served.load, "x", folder, load_inplace=True) for folder in folders]
            assert {job.result().status_code for job in jobs} == {200}
            response = served.complete(model="x", prompt=PROMPT, max_tokens=16, logprobs=1, ignore_eos=True)
            listed = served.http.get("/v1/models/x").json()["digest"]
            assert response.headers["X-Turnout-Digest"] == listed
            digests = [served.bench.read(folder).digest for folder in folders]
            assert same(response.json(), answers[digests.index(listed)])


def test_two_names_for_one_folder_are_independent(random_base, pair) -> None:
    root, folders, answers = pair
    with serving(random_base, roots=(root,)) as served:
        served.load("x", folders[0])
        served.load("y", folders[0])
        assert served.engine.stats().adapters_loaded == 1
        served.unload("x")
        assert same(greedy(served, "y"), answers[0])
        assert served.complete(model="x", prompt="A").status_code == 404
        served.unload("y")
        served.bench.settle()
        assert served.engine.stats().adapters_loaded == 0


def test_load_and_unload_racing_end_as_the_last_reply_says(random_base, pair) -> None:
    root, folders, _ = pair
    with serving(random_base, roots=(root,)) as served, ThreadPoolExecutor(2) as pool:
        for _ in range(30):
            load = pool.submit(served.load, "x", folders[0])
            unload = pool.submit(served.unload, "x")
            assert load.result().status_code in (200, 409) and unload.result().status_code in (200, 404)
            listed = served.http.get("/v1/models/x").status_code
            assert served.complete(model="x", prompt="A", max_tokens=1).status_code == listed
        served.unload("x")
        served.bench.settle()
        stats = served.engine.stats()
        assert (stats.adapters_loaded, stats.adapter_bytes_used) == (0, 0)


@pytest.mark.parametrize("n", [1, 4])
@pytest.mark.parametrize("reload", [True, False])
def test_unload_while_a_stream_runs(alphabet_base, tmp_path, n, reload) -> None:
    """The stream ends as if nothing had happened; new requests are refused, or served by what was loaded since."""
    a, b = marker_adapter(tmp_path / "a", ord("A")), marker_adapter(tmp_path / "b", ord("B"))
    with serving(alphabet_base, {"x": a}, roots=(tmp_path,)) as served:
        stream = served.openai().completions.create(
            model="x", prompt="q", max_tokens=150, n=n, stream=True, temperature=0
        )
        texts = [""] * n
        for seen, chunk in enumerate(stream):
            texts[chunk.choices[0].index] += chunk.choices[0].text
            if seen == 5:
                assert served.unload("x").status_code == 200
                assert served.complete(model="x", prompt="q").status_code == 404
                if reload:
                    assert served.load("x", b).status_code == 200
                    assert served.complete(model="x", prompt="q", max_tokens=2).json()["choices"][0]["text"] == "BB"
        assert texts == ["A" * 150] * n
        served.bench.settle()
        assert served.engine.stats().adapters_loaded == int(reload)


def test_what_is_refused_leaves_nothing(random_base, tmp_path) -> None:
    """Fifty times a bad adapter, then a good one under the same name; a stream beside it never notices."""
    good = random_adapter(tmp_path / "good", random_base)
    cut = shutil.copytree(good, tmp_path / "cut")
    weights = cut / "adapter_model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    pickled = shutil.copytree(good, tmp_path / "pickled")
    (pickled / "adapter_model.safetensors").rename(pickled / "adapter_model.bin")
    with serving(random_base, roots=(tmp_path,), max_rank=16) as served:
        quiet = greedy(served, BASE)
        wide = random_adapter(tmp_path / "wide", random_base, rank=64)
        for folder, code in [
            (cut, "adapter_file_invalid"),
            (pickled, "adapter_file_invalid"),
            (wide, "adapter_too_large"),
        ]:
            for _ in range(17):
                response = served.load("x", folder)
                assert response.status_code == 400 and response.json()["error"]["code"] == code
        assert same(greedy(served, BASE), quiet)
        assert served.http.get("/v1/models/x").status_code == 404
        assert served.complete(model="x", prompt="A").status_code == 404
        assert served.engine.stats().adapters_loaded == 0
        assert served.load("x", good).status_code == 200


def test_the_reply_says_what_was_loaded(random_base, tmp_path) -> None:
    folder = random_adapter(tmp_path / "good", random_base, targets=("q_proj",), layers=[0])
    with serving(random_base, roots=(tmp_path,)) as served:
        text = served.load("x", folder).text
        assert text.startswith("Success: LoRA adapter 'x' added successfully.")
        assert "adapts 1 modules, leaves 13 alone" in text and "x@1" in text
        assert served.unload("x").text == "Success: LoRA adapter 'x' removed successfully."
        again = served.unload("x")
        assert again.status_code == 404 and again.json()["error"]["param"] == "lora_name"


@pytest.mark.parametrize("path", ["/etc", "../", "missing", "link-out", "good/../../secret", "", "\x00"])
def test_only_adapter_roots_are_read(random_base, tmp_path, path) -> None:
    """Outside and missing look alike: nobody learns by asking what there is on the machine."""
    root = tmp_path / "root"
    random_adapter(root / "good", random_base)
    secret = random_adapter(tmp_path / "secret", random_base)
    (root / "link-out").symlink_to(secret)
    with serving(random_base, roots=(root,)) as served:
        asked = path if path.startswith(("/", "\x00")) or not path else str(root / path)
        response = served.load("x", asked)
        assert response.status_code in (400, 404)
        if path:
            missing = served.load("x", f"{root}/nothing")
            assert response.json()["error"]["code"] == missing.json()["error"]["code"]
        assert str(secret) not in response.text
        assert served.load("x", root / "good").status_code == 200


def test_only_the_admin_changes_adapters(alphabet_base, markers) -> None:
    calls = [
        ("/v1/load_lora_adapter", {"lora_name": "x", "lora_path": str(markers["always-A"])}),
        ("/v1/unload_lora_adapter", {"lora_name": "always-A"}),
    ]
    with serving(alphabet_base, markers, admin_key=None) as served:
        for path, body in calls:
            for headers in ({}, ADMIN):
                assert served.http.post(path, json=body, headers=headers).status_code == 401
    with serving(alphabet_base, markers, api_key="user-secret") as served:
        for path, body in calls:
            for key, status in (("user-secret", 403), ("admin-secre", 401), ("admin-secret2", 401), ("é", 401)):
                headers = {"Authorization": f"Bearer {key}".encode("latin-1")}
                assert served.http.post(path, json=body, headers=headers).status_code == status
        for key, status in (("user-secret", 200), ("admin-secret", 200), ("wrong", 401)):
            headers = {"Authorization": f"Bearer {key}"}
            assert served.http.get("/v1/models", headers=headers).status_code == status
            body = {"model": "always-A", "prompt": "x", "max_tokens": 1}
            response = served.http.post("/v1/completions", json=body, headers=headers)
            assert response.status_code == status
            assert "secret" not in response.text
        assert served.openai(api_key="user-secret").models.list().data
        assert served.http.get("/health").status_code == served.http.get("/ready").status_code == 200
        assert "secret" not in served.http.get("/metrics").text
