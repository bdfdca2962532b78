"""Runs in OpenVINO GenAI's environment: a closed loop on its continuous batching pipeline. See `in_process.drive`."""

import json
import sys
import time
from collections import deque

import numpy as np
import openvino
import openvino_genai as genai


def main() -> None:
    """Read the job, run its cases, write the results."""
    job = json.load(sys.stdin)
    adapters = {name: genai.Adapter(f"{path}/adapter_model.safetensors") for name, path in job["adapters"].items()}
    pipeline = _pipeline(job, adapters)
    print(json.dumps([_closed_loop(pipeline, case, adapters) for case in job["cases"]]))


def _pipeline(job: dict, adapters: dict) -> genai.ContinuousBatchingPipeline:
    scheduler = genai.SchedulerConfig()
    scheduler.cache_size = 2
    scheduler.max_num_seqs = 32
    scheduler.max_num_batched_tokens = 512
    scheduler.enable_prefix_caching = False
    properties = {"INFERENCE_NUM_THREADS": job["threads"], "INFERENCE_PRECISION_HINT": "bf16"}
    if adapters:
        config = genai.AdapterConfig()
        for adapter in adapters.values():
            config.add(adapter, 1.0)
        properties["adapters"] = config
    return genai.ContinuousBatchingPipeline(job["model"], scheduler, "CPU", properties)


def _closed_loop(pipeline: genai.ContinuousBatchingPipeline, case: dict, adapters: dict) -> dict:
    warm, counted = case["requests"][: case["clients"]], case["requests"][case["clients"] :]
    _run(pipeline, warm, case, adapters)
    began = time.perf_counter()
    answers = _run(pipeline, counted, case, adapters)
    return {"elapsed": time.perf_counter() - began, "answers": answers}


def _run(pipeline: genai.ContinuousBatchingPipeline, requests: list, case: dict, adapters: dict) -> list:
    todo, running, answers = deque(enumerate(requests)), {}, []
    while todo or running:
        while todo and len(running) < case["clients"]:
            number, request = todo.popleft()
            tokens = openvino.Tensor(np.array([request["prompt"]], np.int64))
            config = _config(case["output_tokens"], adapters.get(request["model"]), bool(adapters))
            running[number] = (
                pipeline.add_request(number, tokens, config),
                {"sent": time.perf_counter(), "arrivals": []},
            )
        pipeline.step()
        now = time.perf_counter()
        for number, (handle, answer) in list(running.items()):
            while handle.can_read():
                for output in handle.read().values():
                    answer["arrivals"] += [now] * len(output.generated_ids)
            if len(answer["arrivals"]) >= case["output_tokens"]:
                answers.append(running.pop(number)[1])
    return answers


def _config(output_tokens: int, adapter: genai.Adapter | None, has_adapters: bool) -> genai.GenerationConfig:
    config = genai.GenerationConfig()
    config.max_new_tokens = output_tokens
    config.ignore_eos = True
    config.do_sample = False
    if has_adapters:
        config.adapters = genai.AdapterConfig(adapter, 1.0) if adapter else genai.AdapterConfig()
    return config


if __name__ == "__main__":
    main()
