# One image for the web process and the workers. TORCH_INDEX chooses torch's build: empty for PyPI's (CUDA on Linux),
# https://download.pytorch.org/whl/cpu for the smaller one without CUDA. What tests need is not part of it (requirements-test.lock).
# Images are named by tag, for people, and by digest, which decides; make images writes the digests that the tags have now.
FROM python:3.11-slim@sha256:9c900dea9e8fb7e16277c179b555cc72d29a352dbc33cff48ad5a0412fd5bfc7
ARG TORCH_INDEX=""
WORKDIR /lab
COPY requirements.in requirements.lock ./
RUN pip install --no-cache-dir --require-hashes --no-deps -r requirements.lock \
 && pip install --no-cache-dir ${TORCH_INDEX:+--index-url "$TORCH_INDEX"} "$(grep '^torch==' requirements.in)"
# What LAB_STORE needs, in the version of the locked fsspec: s3fs==2026.9.0 for s3://
ARG STORE_PACKAGES=""
RUN test -z "$STORE_PACKAGES" || pip install --no-cache-dir $STORE_PACKAGES
COPY . .
# What runs record as the commit of their code: the build's context has no .git. Empty: "not recorded".
ARG LAB_COMMIT=""
RUN test -z "$LAB_COMMIT" || echo "$LAB_COMMIT" > trainers/commit.txt
RUN python -m lab.lib.npm_packages npm.lock
# Static files under names with a hash of their content, which browsers keep for good; the settings' services are not asked.
ENV LAB_STATIC=/lab-static
RUN DATABASE_URL=postgres:/// REDIS_URL=unix:/// SECRET_KEY=unused python manage.py collectstatic --noinput --verbosity 0
RUN useradd --create-home --uid 1000 lab && mkdir /data && chown lab:lab /data
USER lab
ENV LAB_HOME=/data PYTHONUNBUFFERED=1
VOLUME /data
EXPOSE 8000
