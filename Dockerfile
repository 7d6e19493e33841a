# One image for the web process and the workers. TORCH_INDEX chooses torch's build: empty for PyPI's (CUDA on Linux),
# https://download.pytorch.org/whl/cpu for the smaller one without CUDA.
FROM python:3.11-slim
ARG TORCH_INDEX=""
WORKDIR /lab
COPY requirements.lock .
RUN pip install --no-cache-dir ${TORCH_INDEX:+--index-url "$TORCH_INDEX"} "$(grep '^torch==' requirements.lock)" \
 && pip install --no-cache-dir -r requirements.lock
COPY . .
RUN useradd --create-home lab && mkdir /data && chown lab:lab /data
USER lab
ENV LAB_HOME=/data PYTHONUNBUFFERED=1
VOLUME /data
EXPOSE 8000
