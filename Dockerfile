# The controller's image: the locked packages of requirements/run.txt, no shell scripts of its own, no root.
# Built by digest in releases: docker build --build-arg PYTHON_IMAGE=python:3.13-slim@sha256:… .
ARG PYTHON_IMAGE=python:3.13-slim

FROM ${PYTHON_IMAGE} AS build
WORKDIR /src
COPY pyproject.toml hatch_build.py README.md LICENSE ./
COPY requirements requirements
COPY scripts/install scripts/install
COPY src src
# The commit that logs and karpenter_build_info name: --build-arg COMMIT="$(git rev-parse HEAD)"
ARG COMMIT=
ENV PYKARPENTER_COMMIT=${COMMIT}
RUN scripts/install /opt/pykarpenter run

FROM ${PYTHON_IMAGE}
COPY --from=build /opt/pykarpenter /opt/pykarpenter
ENV PATH=/opt/pykarpenter/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
USER 65532:65532
EXPOSE 8080 8081
ENTRYPOINT ["pykarpenter"]
CMD ["run"]
