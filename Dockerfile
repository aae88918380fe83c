# docker build -t gaam .
# docker build -t gaam --build-arg BASE=nvidia/cuda:13.0.1-runtime-ubuntu24.04 .
# docker run --rm --user "$(id -u)" -v gaam:/data -v "$PWD:/work" gaam extract
#
# BASE is a Debian or Ubuntu with Python 3.11 or newer, or with packages of it; for a GPU add --gpus all
# to docker run. pip's torch brings CUDA's libraries along on any base. For the smaller one without them:
# --build-arg PIP_EXTRA_INDEX_URL=... with the address at which PyTorch keeps its builds for CPUs.
ARG BASE=python:3.11-slim
FROM ${BASE}

# A compiler makes training several times as fast. Which version it has is for the base to say.
# hadolint ignore=DL3008
RUN if python3 -c 'import ensurepip'; then set --; else set -- python3-dev python3-venv; fi \
    && apt-get update \
    && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends g++ "$@" \
    && rm -rf /var/lib/apt/lists/* \
    && python3 -m venv /opt/gaam \
    && install -d -m 1777 /data /data/huggingface /data/cache /work

ARG EXTRAS=audio,demo,tensorboard,vision
ARG PIP_EXTRA_INDEX_URL=
WORKDIR /src
COPY pyproject.toml constraints.txt README.md LICENSE cli.py ./
COPY data data
COPY gaam_cache gaam_cache
COPY gaam_decoder gaam_decoder
RUN /opt/gaam/bin/pip install --no-cache-dir -c constraints.txt ".[${EXTRAS}]"

# For any --user: what is fetched and what was checked lies in the volume, results in /work.
ENV PATH=/opt/gaam/bin:$PATH HOME=/data USER=gaam HF_HOME=/data/huggingface XDG_CACHE_HOME=/data/cache
VOLUME ["/data"]
USER 10001
WORKDIR /work
ENTRYPOINT ["gaam"]
CMD ["--help"]
