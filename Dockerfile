# nmt on a machine with an NVIDIA GPU.
#
#   docker build -t nmt .
#   docker run --rm --gpus all -v "$PWD:/data" nmt train model=transformer data=multi30k
#   docker run --rm --gpus all -v "$PWD:/data" -p 127.0.0.1:8000:8000 nmt serve runs/NAME --host 0.0.0.0
#
# Not built by the tests, which run without Docker: try it after changing pyproject.toml. The CUDA libraries come with
# PyTorch's wheels, so that the host needs the driver and the NVIDIA container toolkit only.
FROM python:3.12-slim

# A compiler, which torch.compile calls to build the kernels that it generates.
RUN apt-get update \
    && apt-get install --yes --no-install-recommends gcc libc6-dev \
    && rm -rf /var/lib/apt/lists/*

WORKDIR /opt/nmt
COPY pyproject.toml constraints.txt README.md* LICENSE* ./
COPY nmt nmt
COPY configs configs
RUN pip install --no-cache-dir --constraint constraints.txt '.[serve]'

# Runs and the cache of corpora are kept in the folder that is mounted.
ENV NMT_CACHE=/data/.cache/nmt
WORKDIR /data
ENTRYPOINT ["nmt"]
