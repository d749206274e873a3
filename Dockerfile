# ROVER on the CPU: docker build -t rover . && docker run rover pretrain rover/MultiRooms-v0
FROM python:3.11-slim
WORKDIR /opt/rover
# PyTorch for the CPU alone is a tenth of the size of the package that brings CUDA; build with
# --build-arg TORCH_INDEX=... where you have an index of such builds.
ARG TORCH_INDEX=
RUN if [ -n "$TORCH_INDEX" ]; then pip install --no-cache-dir --index-url "$TORCH_INDEX" torch; fi
COPY pyproject.toml LICENSE README.md ./
COPY docs/package.md docs/package.md
COPY src src
RUN pip install --no-cache-dir ".[bench,sb3]"
# Runs are written here: docker run -v "$PWD/runs:/work/runs" rover pretrain rover/Maze-v0
WORKDIR /work
ENTRYPOINT ["rover"]
CMD ["--help"]
