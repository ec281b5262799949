"""Greedy text of llama.cpp, by one of two Python packages."""


def open_llama(path):
    """A function from a prompt and a count to greedy text, or None."""
    try:
        import llama_cpp
        model = llama_cpp.Llama(model_path=path, n_ctx=128, n_threads=1, verbose=False, seed=1)
        return lambda prompt, count: model(prompt, max_tokens=count, temperature=0.0,
                                           repeat_penalty=1.0)["choices"][0]["text"]
    except ImportError:
        pass
    try:
        import xllamacpp
    except ImportError:
        return None
    params = xllamacpp.CommonParams()
    params.model.path = path
    params.n_ctx = 128
    params.n_parallel = 1
    params.cpuparams.n_threads = 1
    params.warmup = False
    server = xllamacpp.Server(params)
    return lambda prompt, count: server.handle_completions(
        {"prompt": prompt, "max_tokens": count, "temperature": 0.0, "repeat_penalty": 1.0,
         "cache_prompt": False})["choices"][0]["text"]
